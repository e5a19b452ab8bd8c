"""The eight verdicts: their words, their order, their look.

A verdict is always a word, an icon of its own shape and a colour, so that it can be identified in greyscale and by
any eye (the palette is Okabe and Ito's).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fedassay.records.record import Verdict

Tone = Literal["bad", "warn", "unsure", "open", "good", "none"]
"""Names of the colours; the style sheet gives them values for light, dark and print."""


@dataclass(frozen=True)
class Look:
    """Display of a verdict.

    Attributes:
        word: Printed beside the icon.
        tone: Its colour.
        icon: Name of its icon in the page's sprite.
        mark: A plain character for text formats.
        rank: Its weight among the verdicts of one cell; the heaviest gives the cell's own.
        meaning: One sentence for the key under the verdict strip.
    """

    word: str
    tone: Tone
    icon: str
    mark: str
    rank: int
    meaning: str


LOOKS: dict[Verdict, Look] = {
    "unsound": Look(
        "Claim refuted",
        "bad",
        "octagon",
        "✖",
        7,
        "an attack shows more than the claimed epsilon allows, or the noise that the claim needs is not there",
    ),
    "leak": Look(
        "Leak", "bad", "octagon", "✖", 6, "an attack beats what an adversary could do without what was sent"
    ),
    "unsupported": Look(
        "Claim exceeded",
        "warn",
        "triangle",
        "▲",
        5,
        "what leaves the clients adds up to more than the claimed epsilon",
    ),
    "inconclusive": Look(
        "Inconclusive",
        "unsure",
        "question",
        "?",
        4,
        "a control failed, an attack was too weak, or one that applies was not tried: nothing can be said",
    ),
    "not_refuted": Look(
        "Not refuted",
        "open",
        "ring",
        "○",
        3,
        "nothing that was tried refutes the claim, and the worst case of its mechanism is not known",
    ),
    "no_leak_found": Look(
        "No leak found",
        "good",
        "check",
        "✔",
        2,
        "the attack failed here and caught the positive control: no proof of safety beyond that power",
    ),
    "sound": Look(
        "Claim holds",
        "good",
        "check",
        "✔",
        2,
        "everything that leaves is accounted for within the claimed epsilon",
    ),
    "not_run": Look("Not run", "none", "dash", "–", 0, "the audit does not apply or could not run; it says why"),
}


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The heaviest verdict; `not_run` where there is none.

    Example:
        >>> worst(["sound", "not_run", "leak"])
        'leak'
    """
    return max(verdicts, key=lambda verdict: LOOKS[verdict].rank, default="not_run")
