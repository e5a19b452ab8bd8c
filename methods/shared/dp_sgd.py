"""DP-SGD parameters and calibration that methods training a client network share."""

from __future__ import annotations

from functools import lru_cache

from pydantic import Field

from fedassay.contracts.method import MethodInput
from fedassay.exchange.release import PrivacyTarget, Release
from fedassay.nets.dp_sgd.door import TrainingDoor
from fedassay.nets.dp_sgd.steps import Engine, PrivateSteps, steps_of
from fedassay.privacy.accounting import calibrate_noise_multiplier
from fedassay.privacy.events import GaussianEvent
from fedassay.privacy.tape import Key
from fedassay.support.adjacency import Adjacency
from fedassay.support.types import Frozen


class DpSgd(Frozen):
    """How a client's network is trained with differential privacy.

    Attributes:
        sampling_rate: Probability of each record to be in a step's batch. A public constant, so that the
            number of steps does not tell the number of records.
        norm: L2 norm that each record's gradient is clipped to.
        engine: What adds up the clipped gradients. `fast`: one backward pass, with the gradients of single records
            written out only where that is cheaper. `opacus`: Opacus's hooks and optimiser, which write all of
            them. The sums are the same, and the noise is added by the same door.
    """

    sampling_rate: float = Field(default=0.1, gt=0, le=1)
    norm: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    engine: Engine = "fast"

    def steps(
        self, target: PrivacyTarget, *, epochs: int, rounds: int, batch: int, other: float = 0.0
    ) -> PrivateSteps:
        """The steps of one round, with the smallest noise under which all rounds meet the target.

        Args:
            target: A finite epsilon, for everything.
            epochs: Times that each record is sampled in a round, on average.
            rounds: Number of rounds.
            batch: What noised gradient sums are divided by.
            other: Gaussian-DP parameter mu of everything else that is released about a record.

        Raises:
            PlanError: The other releases alone spend the budget.
        """
        each = steps_of(epochs, self.sampling_rate)
        multiplier = _noise_multiplier(
            target.epsilon, target.delta, target.adjacency, self.sampling_rate, each * rounds, other
        )
        return PrivateSteps(multiplier, self.sampling_rate, each, self.norm, float(batch), self.engine)


def training_door(task: MethodInput, sender: str, number: int, name: str) -> TrainingDoor:
    """The door that a private training goes through; arguments as those of `MethodInput.door`."""
    return TrainingDoor(task.noise, task.coins, Key(sender, number, name))


def dp_sgd_release(steps: PrivateSteps, adjacency: Adjacency, note: str = "", group: str | None = None) -> Release:
    """The release of what a round's steps have trained; fields of one `group` were trained together."""
    return Release(
        mechanism="dp_sgd",
        group=group,
        adjacency=adjacency,
        noise_multiplier=steps.noise_multiplier,
        sampling_rate=steps.sampling_rate,
        steps=steps.steps,
        note=note,
    )


@lru_cache(maxsize=64)
def _noise_multiplier(
    epsilon: float, delta: float, adjacency: Adjacency, sampling_rate: float, steps: int, other: float
) -> float:
    """By bisection over privacy loss distributions: seconds, so the result is kept."""
    return calibrate_noise_multiplier(
        epsilon,
        delta,
        sampling_rate=sampling_rate,
        steps=steps,
        adjacency=adjacency,
        others=[GaussianEvent(other)] if other else [],
    )
