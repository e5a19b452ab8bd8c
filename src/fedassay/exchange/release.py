"""Protection of a message's field, and the claim of its sender.

A `Release` is what the accountant reads: the mechanism, its noise, the L2 sensitivity it was
calibrated for, the adjacency that sensitivity is for, and the unit of privacy. A
field without a mechanism is `exact` and counts as such everywhere.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from fedassay.privacy.events import Sampling
from fedassay.support import limits
from fedassay.support.adjacency import Adjacency, Unit
from fedassay.support.epsilon import Epsilon
from fedassay.support.text import cut
from fedassay.support.types import Extended, Frozen, refuse_truth

DependsOn = Literal["records", "labels", "size"]
"""Argument of an exact field: the records, their labels alone, or the number of a client's records."""

MechanismName = Literal["exact", "public", "derived", "gaussian", "pure", "dp_sgd"]
"""The mechanisms an accountant can represent.

`exact`: computed from the records, nothing added. `public`: does not depend on any private record
(an initialisation, a model trained on public data). `derived`: computed from fields already sent in
this transcript and nothing else (post-processing). `gaussian`: normal noise of stated scale on a
statistic of stated L2 sensitivity. `pure`: a mechanism of stated pure epsilon (Laplace and the
like). `dp_sgd`: Poisson-subsampled Gaussian steps.
"""

_CELL = re.compile(r"all|class/(0|[1-9][0-9]*)")


class Release(Frozen):
    """The protection of one field.

    Attributes:
        mechanism: See `MechanismName`.
        depends_on: Arguments of the exact value. A function of labels alone (class counts,
            the list of classes) is public under `replace_one_same_label` and under nothing else; one of a
            client's number of records alone (`size`) is public under both relations of replacement.
        adjacency: The relation that `sensitivity` is for; None for exact, public and derived fields.
        unit: Unit in which neighbours differ, all of its records: see `fedassay.support.adjacency.UNITS`.
        group: Fields of one message with the same group are one joint release: one noise draw on
            the concatenated statistic, one ledger entry, one joint sensitivity repeated on each.
        cells: The disjoint sets of records that the blocks of the release speak of. ("all",) is the
            whole client; ("class/0", "class/4") means that the first block of the field is a function
            of class 0's records alone, and so on. Blocks of different cells compose in parallel. No other
            sets can be named: what a record may move between is known of classes only.
        noise_scale: `gaussian`: standard deviation per isometric coordinate, one per cell.
        sensitivity: `gaussian`: exact L2 sensitivity of the (joint, weighted) statistic, one per cell: how
            far that cell's block can move between any two neighbours. Under `replace_one` that covers a
            record replaced within the class and one that enters or leaves it; two cells are then added up
            as if both moved that far. Where the first is the larger, the sum is not attained: declare one
            release over "all" with the joint sensitivity instead.
        shares: `gaussian`: senders among whom the noise is divided. Each adds noise_scale / sqrt(shares), and only
            the secure sum of all of them carries noise_scale.
        stated_sensitivity: The sensitivity that the source paper states, where it differs.
        pure_epsilon: `pure`: total epsilon of the field over all its coordinates, one per cell.
        noise_multiplier: `dp_sgd`: noise standard deviation over the clipping norm.
        sampling_rate: `dp_sgd`: probability of a unit to be in a step's batch.
        sampling: `dp_sgd`: `poisson`, every unit by a coin of its own; `fixed_size`, batches of so many units that
            are drawn without replacement; `shuffled`, batches of a shuffled epoch, which nothing amplifies.
        steps: `dp_sgd`: number of noisy steps.
        answers: `derived`: whether it is a function of what clients sent in its round; not what goes out before.
        note: Anything a reader of the ledger must know.
    """

    mechanism: MechanismName
    depends_on: DependsOn = "records"
    adjacency: Adjacency | None = None
    unit: Unit = "record"
    group: str | None = Field(default=None, max_length=limits.NAME_LENGTH)
    cells: tuple[str, ...] = Field(default=("all",), max_length=limits.CLASSES)
    noise_scale: tuple[float, ...] | None = None
    sensitivity: tuple[float, ...] | None = None
    shares: int = Field(default=1, ge=1, le=limits.RECORDS)
    stated_sensitivity: tuple[float, ...] | None = None
    pure_epsilon: tuple[float, ...] | None = None
    noise_multiplier: float | None = Field(default=None, ge=0)
    sampling_rate: float | None = Field(default=None, gt=0, le=1)
    sampling: Sampling = "poisson"
    steps: int | None = Field(default=None, ge=0, le=limits.STEPS)
    answers: bool = True
    note: str = ""
    _no_truth = field_validator("*", mode="before")(refuse_truth)

    @field_validator("cells")
    @classmethod
    def _known_cells(cls, cells: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [cell for cell in cells if not _CELL.fullmatch(cell)]
        if unknown or len(set(cells)) < len(cells) or not cells:
            raise ValueError(
                f'cells must be "all" or "class/" and a number, at least one and each once, given {cells}'
            )
        return cells

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needed = {
            "gaussian": ("adjacency", "noise_scale", "sensitivity"),
            "pure": ("adjacency", "pure_epsilon"),
            "dp_sgd": ("adjacency", "noise_multiplier", "sampling_rate", "steps"),
        }.get(self.mechanism, ())
        missing = [name for name in needed if getattr(self, name) is None]
        if self.unit != "record" and self.cells != ("all",):
            raise ValueError(
                f'a release of unit {self.unit} has the cell "all" alone, given {cut(str(self.cells), 200)}: a '
                f"{self.unit} has records of several classes"
            )
        if missing:
            raise ValueError(f"a {self.mechanism} release must state {', '.join(missing)}")
        for name in ("noise_scale", "sensitivity", "stated_sensitivity", "pure_epsilon"):
            values = getattr(self, name)
            if values is None:
                continue
            if len(values) != len(self.cells):
                raise ValueError(f"{name} has {len(values)} values for {len(self.cells)} cells")
            if not all(0 <= value < float("inf") for value in values):
                raise ValueError(f"{name} must be finite and at least 0, given {cut(str(values), 200)}")
        return self


# Every field of every message has a release, and most of them are one of few: these are the same objects.
@lru_cache(maxsize=256)
def exact(depends_on: DependsOn = "records", note: str = "") -> Release:
    """A field that leaves as it is."""
    return Release(mechanism="exact", depends_on=depends_on, note=note)


@lru_cache(maxsize=256)
def public(note: str = "") -> Release:
    """A field that depends on no private record."""
    return Release(mechanism="public", note=note)


@lru_cache(maxsize=256)
def derived(note: str = "", *, answers: bool = True) -> Release:
    """A field computed from what this transcript already holds; `answers` False: for clients to start from."""
    return Release(mechanism="derived", answers=answers, note=note)


class PrivacyClaim(Frozen):
    """Stated claim about a transcript.

    Attributes:
        epsilon: The claimed epsilon, positive and finite.
        delta: The claimed delta, in (0, 1), or 0 for pure differential privacy.
        adjacency: The relation the claim is for.
        unit: The difference between neighbours.
        covers: Names of the fields the claim speaks of; empty means everything that leaves a client.
        source: Source of the claim (paper, section, formula, or the transcript's author).
    """

    kind: Literal["claim"] = "claim"
    epsilon: float = Field(gt=0, allow_inf_nan=False)
    delta: float = Field(ge=0, lt=1)
    adjacency: Adjacency
    unit: Unit = "record"
    covers: tuple[str, ...] = ()
    source: str
    _no_truth = field_validator("epsilon", "delta", mode="before")(refuse_truth)

    @property
    def guarantee(self) -> Epsilon:
        """The claimed epsilon, with its kind."""
        return Epsilon(self.epsilon, self.delta, self.adjacency, self.unit)


class NoClaim(Frozen):
    """An explicit absence of any claim."""

    kind: Literal["no_claim"] = "no_claim"
    reason: str = "the method makes no differential-privacy claim"


Claim = PrivacyClaim | NoClaim


class PrivacyTarget(Frozen):
    """The privacy that a plan asks a method for.

    Attributes:
        epsilon: Infinite: nothing is noised and nothing is claimed.
        delta: In (0, 1).
        adjacency: Named always; see `Adjacency`.
        unit: The unit of privacy; see `Unit`.
        max_records: The most records of one person or client in statistics; None: all.
    """

    epsilon: Extended = Field(gt=0)
    delta: float = Field(gt=0, lt=1)
    adjacency: Adjacency
    unit: Unit = "record"
    max_records: int | None = Field(default=None, ge=1, le=limits.RECORDS)

    @property
    def private(self) -> bool:
        """Whether anything is to be noised."""
        return self.epsilon != float("inf")

    @property
    def guarantee(self) -> Epsilon:
        """The epsilon asked for, with its kind."""
        return Epsilon(self.epsilon, self.delta, self.adjacency, self.unit)

    def claim(self, source: str) -> Claim:
        """Claim of a run for this target, from `source`; none where nothing is noised."""
        if not self.private:
            return NoClaim()
        return PrivacyClaim(
            epsilon=self.epsilon, delta=self.delta, adjacency=self.adjacency, unit=self.unit, source=source
        )

    def gaussian(
        self, scale: float, sensitivity: float, *, group: str | None = None, shares: int = 1, note: str = ""
    ) -> Release:
        """The release of a statistic of all of a client's records that one Gaussian noise is added to.

        Args:
            scale: Standard deviation of the noise on each isometric coordinate.
            sensitivity: L2 sensitivity of the statistic under this adjacency and unit.
            group: See `Release`, as for the others.
            shares: Senders among whom the noise is divided.
            note: For readers of the ledger.
        """
        return Release(
            mechanism="gaussian",
            adjacency=self.adjacency,
            unit=self.unit,
            group=group,
            noise_scale=(scale,),
            sensitivity=(sensitivity,),
            shares=shares,
            note=note,
        )
