"""Group the arrays of files into messages, with the sender and the round of each.

Names decide where they contain a client or a round (`site-1/round_2.npz`, `client0_mean` or keys such as
`hospital_a`). Else each of several files with arrays of the same names is one client's, and so is each of such
parts of one file. Files of one array each with different names are one message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.kinds import called
from fedassay.recorders.files.formats import Leaf
from fedassay.recorders.files.keys import BY_CLASS, Held, by_key, numbered
from fedassay.recorders.files.names import CLIENT_WORDS, ROUND_WORDS, of_server, whose
from fedassay.support import limits
from fedassay.support.errors import DataError

Array = NDArray[Any]
Arrays = dict[str, Array]

SERVER, SUMMED = "server", "aggregate"
_STATISTICS = re.compile(
    r"(?i)(?<![a-z])(n|num|count|counts|size|mean|means|avg|sum|sums|cov|var|std|gram|moment|second|xtx|sq|weight|"
    r"weights|bias|coef|intercept|labels?|y|x|features?)(?![a-z])"
)
_META = "meta_props"
"""Key under which NVFlare stores metadata of a model."""
_WRAPPERS = {"model", "state_dict", "model_state_dict", "weights", "parameters", "arrays", "params", "net"}


def messages_of(files: Mapping[PurePath, list[Leaf]], clients: int | None) -> dict[tuple[int, str], Arrays]:
    """The arrays of files by round and sender: a client's name, `server` or `aggregate`.

    Args:
        files: Arrays and texts of each file, by its path below the given folder.
        clients: Number of clients, if given; 1: all arrays are one message.

    Raises:
        DataError: Names do not show whether files are parts of one message or clients, or there are fewer clients
            than given.
    """
    held = [each for path, leaves in files.items() for each in _held(path, leaves)]
    if clients == 1:
        held = [replace(each, about=replace(each.about, client="0", server=False, summed=False)) for each in held]
    held = _by_role(held)
    held = _by_file(held, clients)
    held = by_key(numbered(held), clients)
    return _collected(held)


def _held(path: PurePath, leaves: list[Leaf]) -> Iterable[Held]:
    """The arrays of a file, with its texts and numbers that name a client or a round."""
    said: dict[tuple[str, ...], dict[str, str]] = {}
    arrays = []
    after: int | None = None
    for leaf in leaves:
        if _META in leaf.path[:-1]:
            if leaf.path[-1] == "current_round" and not isinstance(leaf.values, str) and _is_round(leaf.values):
                # NVFlare saves the model at the end of a round: clients start from it in the next one.
                after = int(leaf.values.item()) + 1
            continue
        word = re.sub(r"[_\W]*(id|name)?$", "", leaf.path[-1].casefold()) if leaf.path else ""
        scalar = isinstance(leaf.values, str) or (leaf.values.size == 1 and leaf.values.dtype.kind in "iu")
        if scalar and word in (*CLIENT_WORDS, *ROUND_WORDS):
            value = leaf.values if isinstance(leaf.values, str) else str(int(leaf.values.item()))
            said.setdefault(leaf.path[:-1], {})["round" if word in ROUND_WORDS else "client"] = value
        elif not isinstance(leaf.values, str):
            arrays.append(leaf)
    outer = (*path.parent.parts, path.stem)
    for leaf in arrays:
        about = whose((*outer, *leaf.path), last=True)
        named = next((said[leaf.path[:k]] for k in range(len(leaf.path), -1, -1) if leaf.path[:k] in said), {})
        if "client" in named and (about.client is None or any(key.startswith("#") for key in leaf.path)):
            about = replace(about, client=named["client"], server=False, summed=False)
        if named.get("round", "").isdigit():
            about = replace(about, round=int(named["round"][:9]))
        elif after is not None and about.round is None:
            about = replace(about, round=after)
        inside = about.rest[len(whose(outer, last=not leaf.path).rest) :]
        yield Held(str(path), about, inside, np.asarray(leaf.values))


def _is_round(values: Array) -> bool:
    return values.size == 1 and values.dtype.kind in "iu" and 0 <= values.item() < limits.RECORDS


def _by_role(held: list[Held]) -> list[Held]:
    """Assign to the server the arrays of no client that have the names of clients' arrays.

    The word for the server may be part of an array's own name (`w_client_0`, `w_global`). The only array of a file
    with just a server's name is the server's, whatever other files there are. An array in a file without a name of
    its own has the name of clients' arrays where these have none either, and its shape.
    """
    theirs = {each.about.rest[-1:]: each.values.shape for each in held if each.about.client is not None}
    found = []
    for each in held:
        about = each.about
        if about.client is None and not about.server and not about.summed:
            said = of_server(about, theirs, not each.own)
            if said is not None:
                about = said
            elif each.own[-1:] in theirs and (each.own or theirs[()] == each.values.shape):
                about = replace(about, server=True, rest=each.own[-1:])
        own = each.own if about is each.about else each.own and about.rest[-len(each.own) :]
        found.append(replace(each, about=about, own=own))
    return found


def _by_file(held: list[Held], clients: int | None) -> list[Held]:
    """Assign files with arrays of the same names to one client each, or name a message's arrays by their files."""
    outside: dict[str, tuple[str, ...]] = {}
    inside: dict[str, list[tuple[str, ...]]] = {}
    for each in held:
        outside[each.file] = each.about.rest[: len(each.about.rest) - len(each.own)]
        inside.setdefault(each.file, []).append(each.own)
    parties = {each.file for each in held if each.about.client is None and not each.about.server}
    open_ = parties - {each.file for each in held if each.about.summed}
    parties = open_ if len(open_) > 1 else parties
    stems = {outside[file] for file in parties}
    if len(parties) < 2 or (len(stems) < 2 and clients != len(parties)):
        whole = {outside[each.file] for each in held if not each.about.server}
        single = all(names == [()] for names in inside.values())
        if single and len(whole) > 1:
            return [replace(each, own=outside[each.file]) for each in held]
        if clients == 1 and len(whole) > 1:
            return [replace(each, own=(*outside[each.file], *each.own)) for each in held]
        return held
    alike = len({tuple(sorted(names)) for file, names in inside.items() if file in parties}) == 1
    single = alike and all(inside[file] == [()] for file in parties)
    of_one = {file: each.values.shape for each in held if single for file in [each.file]}
    worded = all(stem and _STATISTICS.search("_".join(stem)) for stem in stems)
    if clients != len(parties) and single and (worded or len(set(of_one.values())) == len(parties)):
        return [replace(each, own=outside[each.file]) if each.file in parties else each for each in held]
    if not alike:
        raise DataError(
            f"{', '.join(sorted(parties)[:3])}: hold arrays of different names, and no name gives the client; "
            f"say --clients {len(parties)} where each file is a client's, or --clients 1 where all are one message"
            if clients is None
            else f"--clients {clients}: given, but {len(parties)} files hold arrays of different names; allowed: 1"
        )
    return [
        replace(each, about=replace(each.about, client="_".join(outside[each.file]) or str(number)))
        if each.file in parties
        else each
        for number, file in enumerate(sorted(outside, key=_natural))
        for each in held
        if each.file == file
    ]


def _collected(held: list[Held]) -> dict[tuple[int, str], Arrays]:
    found: dict[tuple[int, str], Arrays] = {}
    numbers = sorted({each.about.round for each in held if each.about.round is not None and not each.about.server})
    served = sorted({each.about.round for each in held if each.about.round is not None})
    # Clients without a round in their names started from the last model of the server.
    first = numbers[0] if numbers else served[-1] if served else 0
    for each in held:
        about = each.about
        sender = about.client or (SERVER if about.server else SUMMED if about.summed else "0")
        message = found.setdefault((first if about.round is None else about.round, sender), {})
        name = "/".join(each.own) or "array"
        if name in message and sender == SERVER:
            raise DataError(
                f"{each.file}: {name} of the server's model is there twice for one round; allowed: one model "
                "in the folder, and the one that clients started from by --downlink FILE"
            )
        if name in message:
            raise DataError(
                f"{each.file}: {name} is there twice for client {sender}; allowed: a name for each client, as in "
                f"client_0/{name}"
            )
        message[name] = each.values
    named = {key: _unwrapped(message) for key, message in found.items()}
    return dict(sorted(named.items(), key=lambda item: (item[0][0], item[0][1] != SERVER, _natural(item[0][1]))))


def _unwrapped(message: Arrays) -> Arrays:
    """Arrays without the outer keys that all of them share, or that hold the model among other numbers."""
    while message and all("/" in name for name in message):
        outer = {name.partition("/")[0] for name in message}
        if len(outer) > 1 or BY_CLASS.intersection(called(*outer)):
            break
        message = {name.partition("/")[2]: values for name, values in message.items()}
    outer = {name.partition("/")[0] for name in message if "/" in name} & _WRAPPERS
    if len(outer) == 1:
        (key,) = outer
        message = {name.removeprefix(f"{key}/"): values for name, values in message.items()}
    for prefix in ("base_model.", "module.", "_orig_mod.", "model."):
        if message and all(name.startswith(prefix) for name in message):
            message = {name.removeprefix(prefix): values for name, values in message.items()}
    return message


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that places `client_10` after `client_2`."""
    parts = re.split(r"(\d+)", name)
    return tuple((0, int(part[:15]), "") if part.isdigit() else (1, 0, part) for part in parts)


def without_settings(sent: dict[tuple[int, str], Arrays]) -> list[str]:
    """Remove single numbers that belong to no client, beside messages of clients; return their names.

    Args:
        sent: The messages by round and sender, which are changed.
    """
    single = [
        key for key, arrays in sent.items() if key[1] == "0" and all(each.size == 1 for each in arrays.values())
    ]
    others = {name for key, arrays in sent.items() if key not in single for name in arrays}
    gone = [key for key in single if others and not others & sent[key].keys()]
    return sorted({name for key in gone for name in sent.pop(key)})
