"""The attacks of a cell, each run when its result is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedassay.contracts.attack import Attack, AttackResult
from fedassay.exchange.feature_sources import VectorSource
from fedassay.execution.stages import Stages
from fedassay.plan.schema import Component
from fedassay.support.errors import NothingToReadError, NotRunError


class Attacked:
    """Results of a cell's attacks on what is seen; the order of asking changes none of them.

    Attributes:
        reasons: Reasons why there is no result, by the attack's label.
        idle: Names of attacks that found nothing to read.
    """

    def __init__(
        self,
        attacks: Sequence[Component[Attack]],
        stages: Stages,
        run: Callable[[Component[Attack], tuple[VectorSource, ...]], AttackResult],
    ) -> None:
        """For attacks in the plan's order; `run` runs one that knows the recovered vectors."""
        self._attacks, self._stages, self._run = attacks, stages, run
        self._results: dict[str, AttackResult | None] = {}
        self.reasons: dict[str, str] = {}
        self.idle: set[str] = set()

    def result(self, attack: Component[Attack]) -> AttackResult | None:
        """Result of an attack; it knows the vectors of the plan's earlier ones. None: see `reasons`."""
        if attack.label not in self._results:
            self._results[attack.label] = self._first(attack)
        return self._results[attack.label]

    def _first(self, attack: Component[Attack]) -> AttackResult | None:
        before = [
            each for each in self._attacks[: self._attacks.index(attack)] if "vectors" in each.build.facts.gives
        ]
        results = [result for each in before if (result := self.result(each)) is not None]
        recovered = tuple(vector for result in results for vector in result.vectors)
        self.reasons[attack.label] = "the attack failed; see errors"
        with self._stages(attack.label):
            try:
                return self._run(attack, recovered)
            except NotRunError as error:
                self.reasons[attack.label] = error.why
                if isinstance(error, NothingToReadError):
                    self.idle.add(attack.name)
        return None
