"""Inputs and results of an attack.

An attack gets a `View` and its `Knowledge`, nothing else; truth is joined afterwards by the audit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fedassay.contracts.component import Configured
from fedassay.contracts.facts import AttackFacts
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.view import View
from fedassay.support.errors import NotRunError, Why
from fedassay.support.progress import Progress
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images

if TYPE_CHECKING:
    from fedassay.backbones.base import Backbone
    from fedassay.contracts.membership import MembershipGame


LEAST_OWN = 20
"""Least number of the attacker's own records that show the distribution of features."""


@dataclass(frozen=True)
class Knowledge:
    """The adversary's knowledge beyond the view.

    Attributes:
        attacker: Its own labelled images, from no private record; None where the plan gives it none.
        classes: Number of classes C.
        backbone: The feature extractor; `white_box` says whether gradients through it are allowed.
        white_box: See `backbone`.
        seeds: Random streams of the attack.
        device: `cpu` or `cuda`.
        progress: The display that long steps report to.
        recovered: Feature vectors that other attacks of the same cell recovered.
        scratch: Folder for checkpoints that a resumed run may use, or None.
        game: Records with a membership question, and shadow releases of the method; None where membership is not
            asked.
    """

    attacker: Records | None
    classes: int
    backbone: Backbone | None
    white_box: bool
    seeds: Seeds
    device: str
    progress: Progress
    recovered: tuple[VectorSource, ...] = ()
    scratch: Path | None = None
    game: MembershipGame | None = None

    def population(self, width: int) -> Records:
        """Return the attacker's own records, if they show the distribution of features of a width.

        Raises:
            NotRunError: There are fewer than `LEAST_OWN`, or their features have another width.
        """
        held = 0 if self.attacker is None else len(self.attacker)
        if self.attacker is None or held < LEAST_OWN:
            raise NotRunError(
                f"the attacker has {held} records of its own; {LEAST_OWN} are needed to learn what features are "
                "like",
                role="attacker",
                held=held,
                needed=LEAST_OWN,
            )
        if self.attacker.features.shape[1] != width:
            raise NotRunError(
                f"the messages' features have width {width}, the attacker's {self.attacker.features.shape[1]}"
            )
        return self.attacker


class Note(str):
    """A fallback or limit that an attack met, in words, with its source and facts as data.

    Attributes:
        about: A source of the attack's scores or vectors; empty: all of it.
    """

    about: str

    def __new__(cls, words: str, about: str = "") -> Note:
        """The words, and the source and facts."""
        made = super().__new__(cls, words)
        made.about = about
        return made

    def __reduce__(self) -> tuple[type[Note], tuple[str, str]]:
        """Copy and pickle the data with the words."""
        return Note, (str(self), self.about)


@dataclass(frozen=True)
class Reconstruction:
    """Images reconstructed from vectors.

    Attributes:
        source: The vectors; row i of `images` was made from vector i.
        images: Shape (n, k, H, W, C), uint8: k samples a vector.
    """

    source: VectorSource
    images: Images


@dataclass(frozen=True)
class AttackResult:
    """The results of an attack, without a verdict.

    Attributes:
        attack: Registered name.
        reconstructions: Images, by source.
        vectors: Feature vectors recovered from the view.
        scores: Per-trial scores by name.
        artifacts: Other arrays by name.
        notes: Fallbacks used and limits met; a remark on a single source is a `Note`.
        limited: The reason that part of the input was not tried, with the parameter, its value and a sufficient
            value: silence about that part is not an answer. None where all was tried.
    """

    attack: str
    reconstructions: tuple[Reconstruction, ...] = ()
    vectors: tuple[VectorSource, ...] = ()
    scores: Mapping[str, Floats] = field(default_factory=dict)
    artifacts: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    limited: Why | None = None


def given_up(result: AttackResult, answered: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Reasons why an attack says nothing of sources, by source in the order of its notes.

    Args:
        result: Its results so far.
        answered: Sources that it does say something of.
    """
    found: dict[str, tuple[str, ...]] = {}
    for note in result.notes:
        if isinstance(note, Note) and note.about and note.about not in answered:
            found[note.about] = (*found.get(note.about, ()), str(note))
    return found


class Attack(Configured, Protocol):
    """An attack; its fields are its plan parameters."""

    facts: ClassVar[AttackFacts]

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Attack a view.

        Raises:
            NotRunError: The view lacks an input of the attack; the message names it.
        """
        ...
