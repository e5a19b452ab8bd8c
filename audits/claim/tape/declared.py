"""Distances between two replays of a run, held against the sensitivities and clipping norms that it declares."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.claim.tape.answers import Fault
from fedassay.audits.claim.tape.coverage import Covered, named
from fedassay.audits.claim.tape.flips import Draws
from fedassay.audits.claim.tape.neighbours import neighbours
from fedassay.audits.claim.tape.streams import squared_distance
from fedassay.audits.claim.tape.worlds import ROWS, World
from fedassay.contracts.audit import AuditContext
from fedassay.exchange.release import PrivacyClaim
from fedassay.nets.dp_sgd.tape import trainings
from fedassay.privacy.tape import Draw, Key
from fedassay.support.adjacency import UNIT_ORDER, Adjacency, Unit

_ROUNDING = 1e-3


@dataclass
class Declared:
    """The declarations of a run, and how far neighbours moved of what they allow.

    Attributes:
        context: Of the run.
        cells: Protection of each noised field.
        claim: The claim.
        mu: Total mu of the ledger where all is Gaussian; None: it is not.
        faults: The fields that move too far.
        tried: Number of neighbours that were compared.
        largest: Largest share of what is declared by which a neighbour moved.
    """

    context: AuditContext
    cells: Sequence[Covered]
    claim: PrivacyClaim
    mu: float | None
    faults: list[Fault] = field(default_factory=list)
    tried: int = 0
    largest: float = 0.0

    def compare(self, first: World, second: World, apart: Mapping[str, float] | None = None) -> None:
        """Hold the difference between two fillings against what is declared.

        Args:
            first: One filling.
            second: The other one.
            apart: Number of steps from neighbour to neighbour between the two, by client; None: one, where their
                labels say that they are neighbours.
        """
        about = f"{second.name} for {first.name}"
        if apart is None:
            apart = {
                name: 1.0
                for name, label in first.labels.items()
                if name in second.labels and neighbours(label, second.labels[name], self.claim.adjacency)
            }
        self.tried += len(apart)
        self.distances(first.draws, second.draws, apart, about)
        self._compare_sums(first, second, apart, about)

    def distances(self, first: Draws, second: Draws, apart: Mapping[str, float], about: str) -> dict[str, float]:
        """Distances that draws' inputs have moved, by sender, in deviations; held against the declaration."""
        together: dict[str, float] = defaultdict(float)
        for covered in self.cells:
            sender = covered.message.sender
            if sender not in apart or covered.release.mechanism != "gaussian" or covered.deviation == 0:
                continue
            square = self._moved(covered, first, second, apart[sender], about)
            together[sender] += square / covered.deviation**2
        found = {sender: math.sqrt(squared) for sender, squared in together.items()}
        if self.mu is not None and math.isfinite(self.mu):
            for sender, moved in found.items():
                where = f"all releases of {sender} together"
                self._hold(moved, self.mu, apart[sender], "", where, about, "mu")
        return found

    def _moved(self, covered: Covered, first: Draws, second: Draws, steps: float, about: str) -> float:
        """Squared distance of what went into a cell's draws, held against its declared sensitivity."""
        parts: dict[str, float] = defaultdict(float)
        for entry in covered.draws:
            if isinstance(entry, Draw) and entry.scale > 0:
                one, two = first.get(entry.key), second.get(entry.key)
                if (one is None) != (two is None):
                    name = named(entry.key, covered.fields)
                    self.faults.append(Fault(name, f"{covered.where}: {about} makes or unmakes a draw"))
                if isinstance(one, Draw) and isinstance(two, Draw) and one.exact.shape == two.exact.shape:
                    parts[named(entry.key, covered.fields)] += squared_distance(one, two)
        square = sum(parts.values())
        allowed = covered.moved * _conversion(covered.release.adjacency, self.claim.adjacency)
        allowed *= self._members(covered.release.unit)
        worst = max(parts, key=lambda name: parts[name]) if parts else ", ".join(covered.fields)
        self._hold(math.sqrt(square), allowed, steps, worst, covered.where, about, "sensitivity")
        return square

    def _members(self, made_for: Unit) -> float:
        """By how much the ledger raises a sensitivity for another unit."""
        larger = UNIT_ORDER.index(self.claim.unit) - UNIT_ORDER.index(made_for)
        if larger > 0:
            most = self.context.outcome.transcript.most_records if self.claim.unit == "person" else None
            return float(most or math.inf)
        return 2.0 if larger < 0 and self.claim.adjacency == "add_remove" else 1.0

    def _hold(
        self, moved: float, allowed: float, steps: float, name: str, where: str, about: str, what: str
    ) -> None:
        if allowed > 0 and steps == 1 and math.isfinite(moved):
            self.largest = max(self.largest, moved / allowed)
        allowed *= steps
        if not moved <= allowed * (1 + _ROUNDING):
            words = f"{where}: {about} moves it by {moved:.4g}, above the declared {what} of {allowed:.4g}"
            self.faults.append(Fault(name, words))

    def _compare_sums(self, first: World, second: World, apart: Mapping[str, float], about: str) -> None:
        entries = trainings(self.context.tape)
        for (key, step), sums in second.sums.items():
            other = first.sums.get((key, step))
            if key.sender not in apart or other is None:
                continue
            if step == ROWS:
                self._compare_rows(key, other, sums, apart[key.sender], about)
                continue
            if other.shape != sums.shape:
                continue
            allowed = entries[key].declared.norm * (1.0 if self.claim.adjacency == "add_remove" else 2.0)
            where = f"the gradients of {key.field} of {key.sender} in round {key.round}, step {step + 1}"
            moved = float(np.linalg.norm(sums - other))
            self._hold(moved, allowed, apart[key.sender], key.field, where, about, "clipping norm")

    def _compare_rows(
        self, key: Key, first: NDArray[np.float64], second: NDArray[np.float64], steps: float, about: str
    ) -> None:
        """Hold how many rows of a training change against one, since each row is sampled and clipped by itself."""
        one, two = Counter(first.tolist()), Counter(second.tolist())
        count = max((one - two).total(), (two - one).total())
        if count > steps:
            words = (
                f"the training of {key.field} of {key.sender} in round {key.round}: {about} changes {count} of "
                f"{len(second)} rows, and each is sampled and clipped by itself"
            )
            self.faults.append(Fault(key.field, words))


def _conversion(made_for: Adjacency | None, asked: Adjacency) -> float:
    """By how much the ledger raises a sensitivity: replacing a record is removing one and adding one."""
    return 2.0 if made_for == "add_remove" and asked != "add_remove" else 1.0
