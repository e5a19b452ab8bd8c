"""Facts of a finding, a claim or a limit as sentences; every report says them in these words and no others.

A clause has a subject, a verb and an object, no full stop, and starts small; `sentence` makes a sentence of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fedassay.contracts.registry import audit_facts
from fedassay.records.facts import HARMS, Obstacle, ObstacleKind
from fedassay.reports.words.harm_words import HARM_WORDS, most_rebuilt
from fedassay.reports.words.harms import (
    BY_CLAIM,
    BY_THREAT,
    FALSE_ALARMS,
    kind_sought,
    worked,
)
from fedassay.reports.words.numbers import short, with_kind
from fedassay.reports.words.things import MOST_EXPOSED, THINGS, source_words
from fedassay.support.epsilon import Epsilon

if TYPE_CHECKING:
    from fedassay.records.record import Finding, Limit
    from fedassay.reports.words.groups import Group

_SINGULAR = ("the model", "the rank", "what is sent")
"""Beginnings of those that are one thing."""

_PARTS = frozenset({"share", "total_variation", *FALSE_ALARMS, *MOST_EXPOSED})
"""Metrics of limits that are parts of a whole."""

_HALF = 0.5

NO_ATTACK = "no attack was run"

UNCLEAR = "we cannot say yet whether"
"""Beginning of a clause on an open question."""

_BESIDE = "the attack worked on the method's own messages without privacy, but missed another control"

_OBSTACLES: dict[ObstacleKind, str] = {
    "records_missing": "too few records were at hand for its controls",
    "control_missed": "the attack was not shown to work even on messages that leak on purpose",
    "control_faint": "the attack gains too little even on messages that leak on purpose",
    "control_flagged": "the test also fires where nothing leaks",
    "confounded": "other records explain the result as well",
    "worse_than_baseline": "the attack did worse than a guess without the messages",
    "between_levels": "a leak is likely but not proven: significant alone, not after correcting for all tests",
    "no_power": "this run would have missed even a total leak",
    "nothing_to_read": "the messages hold nothing that the attack reads",
    "other_features": "the messages hold features of networks that the attacker does not have",
    "not_in_plan": "the plan leaves the attack out",
    "not_judged": "no audit of the plan judges the attack",
    "signed_features": "the attack needs features without negative values",
    "too_large": "the messages are too large for the attack",
    "asked_elsewhere": "another test asks the same of more",
    "not_possible": "this kind of message cannot be tested",
    "crashed": "the attack crashed",
    "unstated": "the test was not conclusive",
}


def sentence(clause: str) -> str:
    """A clause as a sentence."""
    return f"{capital(clause)}." if clause else ""


def capital(clause: str) -> str:
    """A clause with a capital; a symbol, or a name such as `my_method`, stays as it is: it would be another."""
    first = "" if "_" in clause.partition(" ")[0] else clause[:1]
    return (first.upper() if first.isascii() else first) + clause[len(first) :]


def who(group: Group) -> str:
    """A method entry at one epsilon, as a sentence names it."""
    return f"{group.name} {at_epsilon(group.asked)}"


def at_epsilon(asked: Epsilon) -> str:
    """Epsilon that was asked for, to follow a name."""
    return f"at ε = {with_kind(asked)}" if asked.finite else "without noise"


def open_clause(finding: Finding, obstacle: Obstacle) -> str:
    """Clause on the reason why a finding decides nothing about its harm."""
    source = source_words(finding.source)
    source += "," if ", " in source else ""
    give = "gives" if source.startswith(_SINGULAR) else "give"
    words = f"{UNCLEAR} {source} {give} away {_sought(finding)}: "
    beside = obstacle.kind == "control_missed" and worked(finding)
    words += _BESIDE if beside else _OBSTACLES[obstacle.kind]
    if obstacle.key:
        words += f" ({obstacle.key} is {obstacle.held:,}, {obstacle.needed:,} would do)"
    elif obstacle.held is not None and obstacle.needed is not None:
        role = f"{obstacle.role.replace('_', ' ')} records" if obstacle.role != "clients" else "clients"
        words += f" ({obstacle.held:,} {role.strip()}, {obstacle.needed:,} would do)"
    return words


def _sought(finding: Finding) -> str:
    """Harm that a finding looked for, as an object; an attribute of persons by its name."""
    facts = audit_facts(finding.audit)
    own = facts is not None and [BY_THREAT[each] for each in facts.threats] == ["attributes"]
    if own and finding.selection:
        return f"the attribute {finding.selection}"
    return HARM_WORDS[kind_sought(finding)].sought


def silent_clause(findings: Sequence[Finding], asked: Epsilon | None = None, where: str = "") -> str:
    """Clause on the leak that findings without one may have missed: the weakest of them.

    Args:
        findings: Of one release.
        asked: The epsilon that it was asked for, with its kind.
        where: Name of the release, where others stand beside it.
    """
    weakest = min((finding for finding in findings), key=strength, default=None)
    if weakest is None:
        return NO_ATTACK
    missed = missed_clause(weakest, asked)
    words = f"no leak was found in {where}" if where else "no leak was found"
    return f"{words}; {missed}" if missed else words


def strength(finding: Finding) -> tuple[int, float, int]:
    """Orders findings without a leak by what they would have found, the weakest first.

    Without a limit a finding says nothing of what it missed; a shift of everybody says nothing of a few; a share
    is weaker the larger it is. One that would have found the least there is comes last.
    """
    limit, place = finding.limit, HARMS.index(kind_sought(finding))
    if limit is None:
        return 0, 0.0, place
    if _is_least(limit):
        return 4, 0.0, place
    if limit.metric == "shift":
        return 1, -limit.value, place
    if limit.metric == "share":
        return 2, -limit.value, place
    return 3, -limit.value, place


def missed_clause(finding: Finding, asked: Epsilon | None = None) -> str:
    """Clause on the leak that a silent finding may have missed; empty where it would have found any.

    It names its attack, and says nothing about attacks that were not run.
    """
    words = _missed(finding, asked)
    by_claim = finding.limit is not None and finding.limit.planted == BY_CLAIM
    if not words or by_claim:
        return words
    by = f"the audit {finding.audit}" if finding.attack is None else finding.attack
    return f"{words}, by {by}"


def _missed(finding: Finding, asked: Epsilon | None) -> str:
    sought, limit = _sought(finding), finding.limit
    if limit is None:
        return f"what the search for {sought} would have missed is not known"
    if limit.planted == BY_CLAIM:
        return _most(limit, asked)
    if limit.metric == "shift":
        unit = f" {limit.shift_metric}" if limit.shift_metric else ""
        return f"{sought} of a few records may have been missed, and of all where they gain under " + (
            f"{short(limit.value)}{unit}"
        )
    if limit.metric == "share":
        return f"{sought} of fewer than {_least(limit)} may have been missed"
    if limit.metric == "epsilon":
        of = "the claim's unit and relation" if asked is None else asked.kind.words
        return f"{sought} that show no more than ε = {short(limit.value)} ({of}) may have been missed"
    if _is_least(limit):
        return ""
    if limit.metric in FALSE_ALARMS:
        rate = f"a true-positive rate under {short(100 * limit.value)} %, at {_at(limit)},"
        return f"{sought} of {THINGS[limit.of or 'record']} with {rate} may have been missed"
    if limit.metric in MOST_EXPOSED:
        often = f"recognised in fewer than {short(100 * limit.value)} % of the runs"
        return f"{sought} may have been missed where a {limit.of or 'record'} is {often}"
    if limit.metric in THINGS.values():
        return f"{sought} of fewer than {short(limit.value)} {limit.metric} may have been missed"
    amount = f"{short(limit.value)} ({limit.metric.replace('_', ' ')})"
    return f"{sought} may have been missed where they show by less than {amount}"


def _most(limit: Limit, asked: Epsilon | None) -> str:
    """Clause on the bound of a sound claim on any attack."""
    whose = THINGS[limit.of or "record"]
    if limit.metric == "epsilon":
        of = "the claim's unit and relation" if asked is None else asked.kind.words
        return f"by the accounting no attack can show more than ε = {short(limit.value)} ({of})"
    share = f"{short(100 * limit.value)} %"
    if limit.metric in FALSE_ALARMS:
        return f"by the accounting no attack on {whose} has a true-positive rate above {share}, at {_at(limit)}"
    return most_rebuilt(limit.of or "record", share)


def _at(limit: Limit) -> str:
    """Clause on the share of false alarms of a true-positive rate."""
    return f"{short(100 * FALSE_ALARMS[limit.metric])} % false alarms"


def _is_least(limit: Limit) -> bool:
    """Whether one message or one record would have been found, which is the least there is."""
    return limit.metric in ("messages", "records") and limit.value <= 1


def sees_little(finding: Finding) -> bool:
    """Whether one half or more of those asked may have been missed: that nothing was found says nothing then.

    Records, images, persons, clients and messages follow one rule, on the number that the sentence states. What
    would have been found from the first one on misses none.
    """
    limit = finding.limit
    if limit is None:
        return False
    if limit.metric == "share" and limit.of is not None:
        return _counted(limit) > 1 and 2 * _counted(limit) >= limit.n
    if limit.metric in THINGS.values():
        return limit.value > 1 and 2 * limit.value >= limit.n
    return limit.metric in _PARTS and limit.value >= _HALF


def _counted(limit: Limit) -> int:
    """A share of those asked as the number of them that a sentence states."""
    return math.ceil(limit.value * limit.n)


def _least(limit: Limit) -> str:
    """The smallest leak that a share stands for, counted where the record says what it is a share of."""
    if limit.of is None:
        return f"{short(100 * limit.value)} % of the records"
    return f"{_counted(limit):,} of {limit.n:,} {THINGS[limit.of]}"


def listed(words: Iterable[str], limit: int = 3) -> str:
    """Words as an English list, cut after `limit`.

    Example:
        >>> listed(["counts"]), listed(["a", "b"]), listed("abcde")
        ('counts', 'a and b', 'a, b, c and 2 more')
    """
    items = list(words)
    if len(items) > limit:
        items = [*items[:limit], f"{len(items) - limit} more"]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""
