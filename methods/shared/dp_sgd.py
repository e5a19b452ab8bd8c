"""Private training of a client's network: parameters and calibration that methods share.

Where the unit of privacy is a record or a person, DP-SGD samples and clips its gradients. Where it is the client,
there is one clipped and noised update a round (`fedassay.nets.dp_sgd.clipped_update`).
"""

from __future__ import annotations

import math
from functools import lru_cache

from pydantic import Field

from fedassay.contracts.method import MethodInput
from fedassay.exchange.release import PrivacyTarget, Release
from fedassay.nets.dp_sgd.clipped_update import ClippedUpdate, clipped_updates
from fedassay.nets.dp_sgd.mechanism import TrainingMechanism
from fedassay.nets.dp_sgd.steps import Engine, PrivateSteps, steps_of
from fedassay.privacy.accounting import calibrate_noise_multiplier
from fedassay.privacy.events import GaussianEvent
from fedassay.privacy.gaussian import mu_of
from fedassay.privacy.reruns import Experiment
from fedassay.privacy.tape import Key
from fedassay.support import limits
from fedassay.support.adjacency import Adjacency
from fedassay.support.errors import PlanError
from fedassay.support.types import Frozen

NoisedTraining = PrivateSteps | ClippedUpdate
"""The private training of a network in a round."""


class DpSgd(Frozen):
    """Settings of differentially private training of a client's network.

    Attributes:
        sampling_rate: Probability of each record, or person, to be in a step's batch. A public constant, so that
            the number of steps does not reveal the number of records.
        norm: L2 norm that each record's or person's gradient is clipped to, or the client's update.
        engine: The code that adds up the clipped gradients. `fast`: one backward pass, with the gradients of
            single records written out only where that is cheaper. `opacus`: Opacus's hooks and optimiser, which
            write all of them. The sums are the same, and the same mechanism adds the noise.
    """

    sampling_rate: float = Field(default=0.1, ge=1 / limits.RECORDS, le=1)
    norm: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    engine: Engine = "fast"

    def steps(
        self, target: PrivacyTarget, *, epochs: int, rounds: int, batch: int, other: float = 0.0
    ) -> NoisedTraining:
        """The private training of one round; arguments and errors as `record_steps`."""
        if target.unit != "client":
            return self.record_steps(target, epochs=epochs, rounds=rounds, batch=batch, other=other)
        mu = mu_of(target.epsilon, target.delta)
        if other >= mu:
            raise PlanError(
                f"epsilon: the releases beside the update alone spend the {target.epsilon:g} asked for"
            )
        moved = self.norm * (1.0 if target.adjacency == "add_remove" else 2.0)
        return ClippedUpdate(self.norm, moved, moved * math.sqrt(rounds / (mu**2 - other**2)))

    def record_steps(
        self, target: PrivacyTarget, *, epochs: int, rounds: int, batch: int, other: float = 0.0
    ) -> PrivateSteps:
        """The DP-SGD steps of one round, with the smallest noise under which all rounds meet the target.

        Args:
            target: A finite epsilon, for everything.
            epochs: Times that each record is sampled in a round, on average.
            rounds: Number of rounds.
            batch: Divisor of the noised gradient sums.
            other: Gaussian-DP parameter mu of everything else that is released about a record.

        Raises:
            PlanError: The other releases alone spend the budget.
        """
        each = steps_of(epochs, self.sampling_rate)
        multiplier = _noise_multiplier(
            target.epsilon, target.delta, target.adjacency, self.sampling_rate, each * rounds, other
        )
        return PrivateSteps(multiplier, self.sampling_rate, each, self.norm, float(batch), self.engine)


def training_words(target: PrivacyTarget) -> str:
    """Return the name of a private training in the source of a claim."""
    return {
        "record": "DP-SGD with Poisson sampling",
        "person": "DP-SGD with Poisson sampling of persons",
        "client": "one clipped and noised update a round",
    }[target.unit]


def update_experiments(steps: NoisedTraining | None, rounds: int) -> dict[str, Experiment]:
    """Return the entries of `Outcome.mechanisms` for clipped updates; DP-SGD is observed by its steps instead."""
    if not isinstance(steps, ClippedUpdate):
        return {}
    return {f"clipped updates of {rounds} round(s)": clipped_updates(steps, rounds)}


def training_mechanism(task: MethodInput, sender: str, number: int, name: str) -> TrainingMechanism:
    """The noise mechanism of a private training; arguments as those of `MethodInput.mechanism`."""
    return TrainingMechanism(task.noise, task.hidden_randomness, Key(sender, number, name), shadow=task.shadow)


def training_release(
    steps: NoisedTraining, target: PrivacyTarget, note: str = "", group: str | None = None
) -> Release:
    """Return the release of a round's training; fields of one `group` were trained together."""
    if isinstance(steps, ClippedUpdate):
        return target.gaussian(steps.scale, steps.sensitivity, group=group, note=note)
    return Release(
        mechanism="dp_sgd",
        group=group,
        adjacency=target.adjacency,
        unit=target.unit,
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
