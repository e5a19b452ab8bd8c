"""Read the client, the round and the name of an array from the names of files, folders and keys."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, replace

from fedassay.exchange.kinds import called

CLIENT_WORDS = (
    *("client", "site", "hospital", "party", "node", "worker", "silo", "device", "org", "organisation"),
    *("organization", "institution", "participant", "collaborator", "centre", "center", "shard", "partition"),
)
ROUND_WORDS = ("round", "rnd", "current_round", "server-round", "server_round", "epoch", "iteration")
_MODELS = "model|weights|parameters|params|checkpoint|ckpt"
_MADE = "final|best|last|latest|start(?:ing)?|avg|averaged?|mean|agg(?:regated?)?|consensus|fed(?:erated)?|fl"
_SERVER = re.compile(
    r"(?i)(?<![a-z])(server|global|aggregator|coordinator|orchestrator|master|central|fedavg|initial|init|broadcast|"
    rf"downlink|sent|(?:{_MADE})[-_ ](?:{_MODELS})|(?:{_MODELS})[-_ ](?:{_MADE}))(?![a-z])"
)
"""Words for the server, or for a model that it made: the numbers decide whether before the round or after it."""
_MODEL = re.compile(rf"(?i)(?<![a-z])({_MODELS}|round|state|updates?)$")
_OF_ROUND = re.compile(rf"(?i)({_MODELS})")
"""Rest of a file's name, without its round, if a server saved its model there, as in Flower's how-to."""
_SUMMED = re.compile(
    r"(?i)(?<![a-z])(sums?|summed|aggregated?|averaged?|total|pooled|secagg|secure[-_ ]?sum|all[-_ ]clients)"
    r"(?![a-z])"
)
_WHO = "|".join(CLIENT_WORDS)
_ENDS = r"(?![A-Za-z0-9])"
_NUMBER = re.compile(
    rf"(?i)(?<![a-z])(?:{_WHO})s?(?:[-_ .#=]?(?:id[-_ .=]?)?(\d+)|(?:[-_ .=]|(?-i:(?=[A-Z])))([a-z])){_ENDS}"
)
_NAMED = re.compile(rf"(?i)(?:{_WHO})[-_ .=](\w[\w .-]*)")
_ROUND = re.compile(rf"(?i)(?<![a-z])(?:round|rnd|epoch|iteration|iter)s?[-_ .#=]?(\d+){_ENDS}")
_SEVERAL = {f"{word}s": word for word in (*CLIENT_WORDS, *ROUND_WORDS)} | {"parties": "party"}
"""Words for several clients or rounds, each with that for one: what stands below is one of them."""
_EDGES = "-_ .:/"


@dataclass(frozen=True)
class Whose:
    """Client, round and role of an array by its names.

    Attributes:
        client: Name of the client; None: no name gives one.
        round: Number of the round; None: no name gives one.
        server: Whether a name says that the array is a server's.
        summed: Whether a name says that it is a sum over all clients.
        rest: The rest of the names, from the outermost.
    """

    client: str | None
    round: int | None
    server: bool
    summed: bool
    rest: tuple[str, ...]


def whose(names: tuple[str, ...], last: bool) -> Whose:
    """Read a row of names, from the outermost.

    Args:
        names: Names of folders, of a file without its ending, and of keys.
        last: Whether the last of them is an array's own name, which may hold a client's number but no party.
    """
    client: str | None = None
    number: int | None = None
    server, summed, rest = False, False, []
    names = _each(names, last)
    for place, given in enumerate(names):
        name = given
        own = last and place == len(names) - 1
        if number is None and (found := _ROUND.search(name)):
            number, name = int(found[1][:9]), _without(name, found)
        if client is None and (found := _NUMBER.search(name)):
            client, name = _plain(found[1] or found[2]), _without(name, found)
        elif client is None and not own and (found := _NAMED.fullmatch(name)):
            client, name = found[1], ""
        if not own and client is None:
            if found := _SERVER.search(name):
                server, name = True, _without(name, found)
            elif found := _SUMMED.search(name):
                summed, name = True, _without(name, found)
            elif re.match("(?i)r(ou)?nd", given) and _OF_ROUND.fullmatch(name):
                server, name = True, ""
        rest += [name] if name else []
    return Whose(client, number, server, summed, tuple(rest))


def _each(names: tuple[str, ...], last: bool) -> tuple[str, ...]:
    """Put what stands below a word for several clients or rounds together with that for one: `clients/A`."""
    made: list[str] = []
    several = ""
    for place, name in enumerate(names):
        own = last and place == len(names) - 1
        statistic = called(name) and not (len(name) == 1 and name.isupper())
        if several and not statistic and not _SERVER.search(name):
            made += [f"{several}_{name.removeprefix('#')}", *([""] if own else [])]
            several = ""
        elif own or name.casefold() not in _SEVERAL:
            made.append(name)
            several = ""
        else:
            several = _SEVERAL[name.casefold()]
    return tuple(made)


def of_server(about: Whose, theirs: Container[tuple[str, ...]], alone: bool) -> Whose | None:
    """Mark an array as the server's or a sum by its own name, without that word; None where it is a client's.

    Args:
        about: Its names.
        theirs: The own names of clients' arrays, one of which has to be left.
        alone: Whether it is the only array of its file, which may have no other name than the server's.
    """
    name = about.rest[-1] if about.rest else ""
    found = _SERVER.search(name) or _SUMMED.search(name)
    if found is None:
        return None
    left = _without(name, found)
    bare = _MODEL.sub("", left).strip(_EDGES)
    named = [(each,) if each else () for each in (left, bare)]
    own = next((each for each in named if each in theirs), None)
    if own is None and not (alone and not bare and found.re is _SERVER):
        return None
    return replace(about, server=True, rest=(*about.rest[:-1], *(own or ())))


def _plain(name: str) -> str:
    """Return a number without leading zeros; any other name stays as it is."""
    return str(int(name)) if name.isdigit() and len(name) < 10 else name


def _without(name: str, found: re.Match[str]) -> str:
    before, after = name[: found.start()].strip(_EDGES), name[found.end() :].strip(_EDGES)
    return f"{before}_{after}" if before and after else before or after
