"""All words of every harm: its names, its clause, its words in tables and its place on the scale of risk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedassay.records.facts import HARMS, NEAREST, Harm, HarmKind
from fedassay.reports.words.harms import Leak, faint, of_full_list
from fedassay.reports.words.numbers import short, significant
from fedassay.reports.words.things import MOST_EXPOSED, THINGS, source_words

if TYPE_CHECKING:
    from fedassay.records.record import Finding

Level = Literal["severe", "serious", "limited"]

SCALE = (
    "Severe: images are rebuilt, records follow exactly, or persons are named. Serious: it shows who is likely "
    "to have taken part, or attributes. Limited: counts, or what could be learned of an artificial worst record, "
    "where no record of the run was told. A severe harm counts as serious where the attack needs the records that "
    "it asks about, or where images only come closer than look-alikes. Likelihood is no probability: shown means "
    "that an attack of this run did it; conceivable, that only an artificial worst record was told."
)

_ROWS = {
    "layer_inputs": "rebuilt from gradients",
    "before_layer_inputs": "rebuilt by descent",
    "gradient_matching": "rebuilt by matching",
    "strongest_direction": "what gradients share",
}
"""Words for a row of pictures, by the result of the gradient attack that it shows."""

_FAULTS = {
    "redundant_field": "the noise of a field can be averaged away with another field",
    "missing_noise": "declared noise is visibly absent from a field",
    "unprotected_field": "a field without noise stands beside noised ones",
}
"""Faults of a message that give something away, by their mechanism."""

_BRIEF_FAULTS = {
    "redundant_field": "noise that averages away",
    "missing_noise": "declared noise is absent",
    "unprotected_field": "a field without noise",
}
"""The same in a few words; the information given away by such a field is not counted."""

_SELECTED = {
    "attacker": "that the attacker is surest of",
    "oracle": "that come closest",
}
"""Images that a selection keeps, as a clause; others keep all."""

_INFORMED = "informed"
"""Source of findings that the adversary has who knows every record but one."""


@dataclass(frozen=True)
class HarmWords:
    """The words of a harm.

    Attributes:
        sought: The harm that was looked for, as an object.
        found: The harm that was found, in at most four words.
        asked: The question of a form, as a heading.
        level: Its severity on the scale of `SCALE`.
        clause: Clause on the information that a finding gives away.
    """

    sought: str
    found: str
    asked: str
    level: Level
    clause: Callable[[Harm, Finding], str]


def harm_clause(leak: Leak) -> str:
    """Clause on the information that a leak gives away."""
    return harm_words(leak.harm, leak.finding)


def harm_words(harm: Harm, finding: Finding) -> str:
    """Clause on the information that a finding's harm gives away."""
    return HARM_WORDS[harm.kind].clause(harm, finding)


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
    images = "images" if harm.of == "record" else f"images of {THINGS[harm.of]}"
    if harm.among is None:
        return f"{harm.total:,} images" if harm.of == "record" else f"images of {harm.total:,} {THINGS[harm.of]}"
    which = _SELECTED.get(finding.selection or "", "that were selected")
    return f"the {harm.total:,} of {harm.among:,} {images} {which}"


def _exact(harm: Harm, _finding: Finding) -> str:
    if harm.count == 0:
        return f"features close to those of single records follow {_from(harm)}"
    whose = THINGS[harm.of]
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
    who = f"{_of(harm.count, harm.total, alone='single')} {candidate}{THINGS[harm.of]}"
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
        words = f"an attacker{knows} tells which {THINGS[harm.of]} took part better than by chance"
    if harm.metric in MOST_EXPOSED:
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
    if harm.metric in MOST_EXPOSED:
        like = f"an attacker tells what the records of {THINGS[harm.of]} are like"
        return f"{like} better than by chance ({_told(harm)})"
    if harm.metric == "attribute_advantage" and harm.value is not None:
        points = short(100 * harm.value)
        return f"an attribute of single records is guessed {points} points more often {_from(harm)}"
    whose = f"{_of(harm.count, harm.total, alone='single')} {THINGS[harm.of]}"
    if harm.of == "sum":
        whose = THINGS[harm.of]
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


def brief_words(leak: Leak) -> str:
    """A leak in few words, for a table."""
    harm, words = leak.harm, _BRIEF_FAULTS.get(leak.harm.mechanism) or HARM_WORDS[leak.harm.kind].found
    if harm.of == "worst_neighbours":
        return "worst record could be told"
    if faint(harm):
        return "images nearer than look-alikes"
    if harm.metric == "misfit":
        return "images computed"
    if harm.count and harm.kind in ("exact", "named", "pictures"):
        return f"{harm.count:,} {words}" if harm.whole is None else f"{harm.count:,} of {harm.whole:,} {words}"
    return words


def row_words(row: str) -> str:
    """Name a row of pictures, in plain words."""
    return _ROWS.get(row.removeprefix("from "), row.replace("_", " "))


def most_rebuilt(unit: str, share: str) -> str:
    """Clause on the bound of an accounting on records that are rebuilt."""
    guess = f"a {unit} that is guessed right in 1 % of cases without the messages"
    return f"by the accounting {guess} is rebuilt in at most {share} with them"


HARM_WORDS: dict[HarmKind, HarmWords] = {
    "pictures": HarmWords("rebuilt images", "images rebuilt", "Images of people rebuilt", "severe", _pictures),
    "exact": HarmWords(
        "exact features or records", "records exact", "Exact features or records", "severe", _exact
    ),
    "named": HarmWords("persons named", "candidates named", "Persons named as members", "severe", _named),
    "members": HarmWords("signs of membership", "members told from others", "Likely members", "serious", _members),
    "attributes": HarmWords(
        "labels and attributes",
        "labels or attributes told",
        "Labels and traits of clients",
        "serious",
        _attributes,
    ),
    "counts": HarmWords("record counts", "record counts told", "How many records there are", "limited", _counts),
}

assert tuple(HARM_WORDS) == HARMS
