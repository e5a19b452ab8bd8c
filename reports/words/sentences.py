"""Facts of a finding, a claim or a limit as sentences; every report says them in these words and no others.

A clause has a subject, a verb and an object, no full stop, and starts small; `sentence` makes a sentence of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fedassay.contracts.registry import audit_facts
from fedassay.records.facts import HARMS, NEAREST, Harm, Obstacle, ObstacleKind, Thing
from fedassay.reports.words.harms import (
    BY_CLAIM,
    BY_THREAT,
    FALSE_ALARMS,
    Leak,
    faint,
    kind_sought,
    of_full_list,
    worked,
)
from fedassay.reports.words.named import NAMED
from fedassay.reports.words.numbers import short, significant, with_kind
from fedassay.support.epsilon import Epsilon
from fedassay.support.registry import entries

if TYPE_CHECKING:
    from fedassay.records.record import Finding, Limit
    from fedassay.reports.words.groups import Group

SOURCES = {
    "raw": "raw features",
    "mixture_samples": "features sampled from the mixtures",
    "class_means": "class means",
    "class_sums": "class sums",
    "second_moment": "second moments",
    "gradient": "gradients",
    "singletons": "sums over a single record",
    "collapsed_components": "mixture components of a single record",
    "exact_counts": "record counts, which are sent as they are",
    "derivable_counts": "class sums and second moments together",
    "rank": "the rank of second moments",
    "label_histograms": "what is sent",
    "layer_inputs": "the gradients",
    "strongest_direction": "the gradients",
    "informed": "messages whose other records are known",
    "model": "the model",
}
"""Plain words for what was attacked; others are printed as they are."""

_ROWS = {
    "layer_inputs": "rebuilt from gradients",
    "before_layer_inputs": "rebuilt by descent",
    "gradient_matching": "rebuilt by matching",
    "strongest_direction": "what gradients share",
}
"""Words for a row of pictures, by the result of the gradient attack that it shows."""

_SINGULAR = ("the model", "the rank", "what is sent")
"""Beginnings of those that are one thing."""

_FAULTS = {
    "redundant_field": "the noise of a field can be averaged away with another field",
    "missing_noise": "declared noise is visibly absent from a field",
    "unprotected_field": "a field without noise stands beside noised ones",
}
"""Faults of a message that give something away, by their mechanism."""

BRIEF_FAULTS = {
    "redundant_field": "noise that averages away",
    "missing_noise": "declared noise is absent",
    "unprotected_field": "a field without noise",
}
"""The same in a few words; the information given away by such a field is not counted."""

_THINGS: dict[Thing, str] = {
    "record": "records",
    "person": "persons",
    "client": "clients",
    "message": "messages",
    "canary": "canaries",
    "training_record": "training images",
    "class": "classes",
    "release": "releases",
    "sum": "all clients together",
    "worst_neighbours": "artificial neighbours",
}

_MOST_EXPOSED = frozenset({"worst_record", "worst_person_told", "worst_client_told"})
"""Metrics for the share of runs in which the unit most at risk is inferred."""

_PARTS = frozenset({"share", "total_variation", *FALSE_ALARMS, *_MOST_EXPOSED})
"""Metrics of limits that are parts of a whole."""

_HALF = 0.5

_SELECTED = {
    "attacker": "that the attacker is surest of",
    "oracle": "that come closest",
}
"""Images that a selection keeps, as a clause; others keep all."""

_INFORMED = "informed"
"""Source of findings that the adversary has who knows every record but one."""

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


def source_words(source: str | None) -> str:
    """Name the attacked source, in plain words."""
    if source in SOURCES:
        return SOURCES[source]
    words = (source or "what is sent").replace("_", " ")
    # Vectors that an attack recovered are named after it.
    return f"what is sent, by {words}" if source in entries("attack") else words


def row_words(row: str) -> str:
    """Name a row of pictures, in plain words."""
    return _ROWS.get(row.removeprefix("from "), row.replace("_", " "))


def who(group: Group) -> str:
    """A method entry at one epsilon, as a sentence names it."""
    return f"{group.name} {at_epsilon(group.asked)}"


def at_epsilon(asked: Epsilon) -> str:
    """Epsilon that was asked for, to follow a name."""
    return f"at ε = {with_kind(asked)}" if asked.finite else "without noise"


def harm_clause(leak: Leak) -> str:
    """Clause on the information that a leak gives away."""
    return harm_words(leak.harm, leak.finding)


def harm_words(harm: Harm, finding: Finding) -> str:
    """Clause on the information that a finding's harm gives away."""
    say = {
        "pictures": _pictures,
        "exact": _exact,
        "named": _named,
        "members": _members,
        "attributes": _attributes,
        "counts": _counts,
    }
    return say[harm.kind](harm, finding)


def _pictures(harm: Harm, finding: Finding) -> str:
    if harm.of == "training_record":
        made = "generated images" if harm.count is None else f"{_of(harm.count, harm.total)} generated images"
        return f"{made} are copies of training images"
    source = _from(harm)
    if harm.metric == NEAREST:
        return _nearest("images", harm, finding)
    if harm.count is not None:
        return f"{_images(harm.count, harm.whole, 'private image')} rebuilt {source}"
    if harm.metric == "misfit" and harm.total is not None:
        of = "a private record, or of a sum or difference of several"
        return (
            f"{_images(harm.total, None, 'image')} computed {source}, {'' if harm.total == 1 else 'each '}of {of}"
        )
    figures = [] if harm.total is None else [_selected(harm, finding)]
    theirs = finding.baseline.get(harm.metric)
    if harm.metric and harm.value is not None:
        unit = " dB" if harm.metric == "psnr" else ""
        beside = ""
        if theirs is not None and theirs.value is not None:
            whose = "" if faint(harm) else " for the attacker's best look-alikes"
            beside = f" against {significant(theirs.value)}{whose}"
        figures.append(f"{harm.metric.upper()} {significant(harm.value)}{unit}{beside}")
    words = f"private images were rebuilt {source}"
    if faint(harm):
        words = f"images made {source} come closer to the private ones than the attacker's best look-alikes"
    return f"{words}: {', '.join(figures)}" if figures else words


def _nearest(things: str, harm: Harm, finding: Finding) -> str:
    """Clause on the images or vectors nearest to a record of their sender, against those of look-alikes."""
    near = f"{_of(harm.count, harm.total)} {things} made {_from(harm)} are nearer to a record of their sender"
    theirs = finding.baseline.get(NEAREST)
    if theirs is None or theirs.value is None or harm.total is None:
        return f"{near} than to any other"
    return f"{near} than to any other, against {round(theirs.value * harm.total):,} of the attacker's look-alikes"


def _selected(harm: Harm, finding: Finding) -> str:
    """The images that a mean is over, as an object: all of them, or which of them."""
    images = "images" if harm.of == "record" else f"images of {_THINGS[harm.of]}"
    if harm.among is None:
        return f"{harm.total:,} images" if harm.of == "record" else f"images of {harm.total:,} {_THINGS[harm.of]}"
    which = _SELECTED.get(finding.selection or "", "that were selected")
    return f"the {harm.total:,} of {harm.among:,} {images} {which}"


def _exact(harm: Harm, _finding: Finding) -> str:
    if harm.count == 0:
        return f"features close to those of single records follow {_from(harm)}"
    whose = _THINGS[harm.of]
    if harm.count is None and harm.total is not None and harm.low is not None:
        least = f"at least {short(100 * harm.low)} % of {harm.total:,}"
        return f"the features of {least} {whose} were recovered exactly {_from(harm)}"
    total = None if harm.total == 1 else harm.total
    whose = harm.of.replace("_", " ") if harm.count == 1 and total is None else whose
    many = f"the features of {_of(harm.count, total, alone='single')} {whose}"
    return f"{many} were recovered exactly {_from(harm)}"


def _named(harm: Harm, _finding: Finding) -> str:
    # Only those among the candidates can be named, and more may have taken part.
    candidate = "" if harm.total is None else "candidate "
    who = f"{_of(harm.count, harm.total, alone='single')} {candidate}{_THINGS[harm.of]}"
    return f"an attacker names {who} that took part"


def _members(harm: Harm, finding: Finding) -> str:
    if harm.of == "training_record":
        return "training images can be distinguished from images that the generator never saw"
    if harm.metric == NEAREST:
        return _nearest("vectors", harm, finding)
    knows = " who knows all other records" if finding.source == _INFORMED else ""
    knows = " with a list that holds everybody" if of_full_list(finding) else knows
    if harm.of == "worst_neighbours":
        words = f"an attacker{knows} could tell whether an artificial worst record took part"
    else:
        words = f"an attacker{knows} tells which {_THINGS[harm.of]} took part better than by chance"
    if harm.metric in _MOST_EXPOSED:
        return f"{words} ({_told(harm)})"
    if harm.value is not None and harm.metric:
        guess = f", {short(0.5)} is guessing" if "auc" in harm.metric else ""
        name = "AUC" if "auc" in harm.metric else harm.metric.replace("_", " ")
        words += f" ({name} {significant(harm.value)}{guess})"
    return words


def _told(harm: Harm) -> str:
    """Clause on the number of inferred units, and the rate for the most exposed one."""
    many = f"{harm.count:,} of {harm.total:,} are; " if harm.count is not None and harm.total is not None else ""
    often = "" if harm.value is None else f" in {short(100 * harm.value)} % of runs, {short(50)} % is guessing"
    return f"{many}the most exposed is told{often}"


def _attributes(harm: Harm, _finding: Finding) -> str:
    if harm.metric in _MOST_EXPOSED:
        like = f"an attacker tells what the records of {_THINGS[harm.of]} are like"
        return f"{like} better than by chance ({_told(harm)})"
    if harm.metric == "attribute_advantage" and harm.value is not None:
        points = short(100 * harm.value)
        return f"an attribute of single records is guessed {points} points more often {_from(harm)}"
    whose = f"{_of(harm.count, harm.total, alone='single')} {_THINGS[harm.of]}"
    if harm.of == "sum":
        whose = _THINGS[harm.of]
    return f"labels or attributes of {whose} follow {_from(harm)}"


def _counts(harm: Harm, _finding: Finding) -> str:
    if harm.mechanism in _FAULTS:
        return _FAULTS[harm.mechanism]
    who = "all clients together hold" if harm.of == "sum" else "a client holds"
    return f"how many records {who} follows {_from(harm)}"


def _from(harm: Harm) -> str:
    return f"from {source_words(harm.mechanism or None)}"


def _images(count: int, total: int | None, kind: str) -> str:
    """A count of images of a total, with the verb that agrees with it."""
    whole = None if total == 1 else total
    noun = kind if max(count, whole or 0) == 1 else f"{kind}s"
    return f"{_of(count, whole)} {noun} {'was' if count == 1 else 'were'}"


def _of(count: int | None, total: int | None, alone: str = "") -> str:
    """A count of a total, as an adjective: `all 5`, `3 of 9`, `3`."""
    if count is None:
        return alone
    if total is None:
        return f"{count:,}"
    return f"all {count:,}" if count >= total else f"{count:,} of {total:,}"


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
    return NAMED[kind_sought(finding)].sought


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
        return f"{sought} of {_THINGS[limit.of or 'record']} with {rate} may have been missed"
    if limit.metric in _MOST_EXPOSED:
        often = f"recognised in fewer than {short(100 * limit.value)} % of the runs"
        return f"{sought} may have been missed where a {limit.of or 'record'} is {often}"
    if limit.metric in _THINGS.values():
        return f"{sought} of fewer than {short(limit.value)} {limit.metric} may have been missed"
    amount = f"{short(limit.value)} ({limit.metric.replace('_', ' ')})"
    return f"{sought} may have been missed where they show by less than {amount}"


def _most(limit: Limit, asked: Epsilon | None) -> str:
    """Clause on the bound of a sound claim on any attack."""
    whose = _THINGS[limit.of or "record"]
    if limit.metric == "epsilon":
        of = "the claim's unit and relation" if asked is None else asked.kind.words
        return f"by the accounting no attack can show more than ε = {short(limit.value)} ({of})"
    share = f"{short(100 * limit.value)} %"
    if limit.metric in FALSE_ALARMS:
        return f"by the accounting no attack on {whose} has a true-positive rate above {share}, at {_at(limit)}"
    guess = f"a {limit.of or 'record'} that is guessed right in 1 % of cases without the messages"
    return f"by the accounting {guess} is rebuilt in at most {share} with them"


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
    if limit.metric in _THINGS.values():
        return limit.value > 1 and 2 * limit.value >= limit.n
    return limit.metric in _PARTS and limit.value >= _HALF


def _counted(limit: Limit) -> int:
    """A share of those asked as the number of them that a sentence states."""
    return math.ceil(limit.value * limit.n)


def _least(limit: Limit) -> str:
    """The smallest leak that a share stands for, counted where the record says what it is a share of."""
    if limit.of is None:
        return f"{short(100 * limit.value)} % of the records"
    return f"{_counted(limit):,} of {limit.n:,} {_THINGS[limit.of]}"


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
