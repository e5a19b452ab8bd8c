"""FedLog and FedLog-C: clients share sums of features by class, the server a head made from them.

Source: Yu, Zhang, Li and Poupart, "FedLog: Personalized Federated Classification with Less Communication and More
Flexibility", Transactions on Machine Learning Research, 2026; numbers of equations and theorems are those of arXiv
2407.08337.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from fedassay.contracts.facts import EVERY_UNIT, Given, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome, Retrained
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Sizes
from fedassay.data.records import Records
from fedassay.exchange.blocks import Enters
from fedassay.exchange.transcript import SERVER, Message, Transcript
from fedassay.heads.exponential import TOLERANCE, map_head
from fedassay.methods.fedlog.bodies import (
    Activation,
    Bodies,
    Shared,
    body_loss,
    body_scores,
    dropping,
    make_bodies,
)
from fedassay.methods.fedlog.messages import as_sent, closed_forms, head_message, summed, upload
from fedassay.methods.fedlog.private import (
    GROUP,
    Body,
    BodyTraining,
    Mechanism,
    Protection,
    Statistic,
    claimed,
    clamped,
    class_means,
    experiments,
    protection,
)
from fedassay.methods.fedlog.public_bodies import Networks, enters_through
from fedassay.methods.fedlog.retraining import retraining
from fedassay.methods.fedlog.shared_body import (
    OnSharedBody,
    cells_of,
    check,
    set_cells,
    taught_nothing,
    with_start,
)
from fedassay.methods.shared.dp_sgd import DpSgd, NoisedTraining
from fedassay.methods.shared.local_networks import LocalTraining, MeanModel, Scores, outputs, personalized
from fedassay.methods.shared.rounds import Arrays, Rounds
from fedassay.nets.bodies import BodySpec, read_bodies
from fedassay.plan import rates as rate
from fedassay.plan.work import training
from fedassay.privacy.mechanisms import release_fedlog_sums
from fedassay.support.errors import PlanError
from fedassay.support.optimisation import OptimizerKey
from fedassay.support.seeds import Seeds
from fedassay.support.types import Parameters

AUTHORS_DROPOUT = 0.5
"""PyTorch's default, which the authors' code leaves as it is."""


def _seconds(given: Given, sizes: Sizes, private: bool) -> float:
    by_noise = private and given["body"] == "dp_sgd"
    records = sizes.public if _trains(given["body"], private) == "public" else None
    each = training(
        given, sizes, epochs=given["local_epochs"], batch=given["batch"], private=by_noise, records=records
    )
    return float(given["rounds"] * (each + 0.2) + rate.CALIBRATION * by_noise)


def _trains(body: Body | None, private: bool) -> Body:
    """Return the training of a run's bodies, from the plan's key and whether the run is private."""
    return body or ("public" if private else "private")


@register("method", "fedlog")
class FedLog(Parameters):
    """Clients train bodies under a frozen head and send T = sum of (1, features) kron label, round by round.

    `accuracy` is that of the mean of the clients' predictions, a model that no party holds;
    `personalized_accuracy`, the paper's figure, that of each client's body with the shared head on its own
    label distribution (see `fedassay.methods.shared.personalized`).

    Attributes:
        variant: `plain`, or FedLog-`c`: features are also drawn to their class's global mean and pushed from the
            others, and the server broadcasts T, so that clients solve for the head.
        rounds: Global rounds k.
        local_epochs: Passes over a client's records in a round.
        alpha: FedLog-C: weight of the mean squared distance to the own class's mean.
        beta: FedLog-C: weight of the mean squared distances to the other classes' means. It makes the
            features grow by about (1 + beta / alpha) / (1 - (C - 1) beta / alpha) a round: keep it far
            below alpha / C. Yu et al. 2026 give neither value.
        clip: Private runs: features lie in [-clip, clip]. Others are not clipped.
        clip_gradient: `zero`: the clip is part of the body as in the paper (equation 16), so a clipped feature
            gets no gradient and may never come back. `straight_through`: gradients ignore it.
        activation: The last layer of a body: `relu` or `none`. None: a ReLU, but none in a private run, as in the
            authors' code, where the clip takes its place.
        dropout: Share of the features that training drops before the head. None: one half as in the authors' code,
            and none with `body: dp_sgd`, which they do not have.
        mechanism: Noise of a private run; see `fedassay.methods.fedlog.private`.
        counts: Whether n_i is sent besides T, exactly (the paper), or derived from the noised T.
        body: The training of the bodies: on public records, or on the client's own, in a private run also by
            DP-SGD. None: public records in a private run, and the client's own without privacy, as in the paper.
        noise: Every client's own (`local`), or one noise on the securely aggregated sum (`central`).
        width: Number of features m that all bodies share, the constant 1 included.
        bodies: One or several; client i gets entry i modulo their number.
        initialization: Whether bodies of one entry have the same initial weights (`shared`).
        public_seed: Seed of the first head, of the bodies' initial weights and of the order of minibatches, which
            the server sends to all clients, as Yu et al. 2026 allow; None: streams of the run. Noise and DP-SGD
            never use it.
        batch: Minibatch size; the divisor of noised gradient sums with `body: dp_sgd`.
        learning_rate: Learning rate of the bodies.
        optimizer: Optimiser of the bodies; None: Adam.
        tolerance: Tolerance of the head's solver; see `fedassay.heads.exponential`.
        measure_every: Rounds between measurements of the personalized accuracy; that of the last is always
            measured.
        target: Personalized accuracy up to which rounds and bytes are counted.
        dp_sgd: Parameters of `body: dp_sgd`.
        body_share: Share of the squared Gaussian-DP parameter that `body: dp_sgd` may spend.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(
        units=EVERY_UNIT, cost=_seconds, malicious="body", sends=("class_sums", "class_counts"), own_features=True
    )

    variant: Literal["plain", "c"] = "plain"
    rounds: int = Field(default=5, ge=1)
    local_epochs: int = Field(default=5, ge=1)
    alpha: float = Field(default=0.005, ge=0, allow_inf_nan=False)
    beta: float = Field(default=1e-5, ge=0, allow_inf_nan=False)
    clip: float = Field(default=2.0, gt=0, allow_inf_nan=False)
    clip_gradient: Literal["straight_through", "zero"] = "straight_through"
    activation: Activation | None = None
    dropout: float | None = Field(default=None, ge=0, lt=1)
    mechanism: Mechanism = "tight"
    counts: Literal["from_noised", "exact"] = "from_noised"
    body: Body | None = None
    noise: Literal["local", "central"] = "local"
    width: int = Field(default=32, ge=2)
    bodies: Annotated[tuple[BodySpec, ...], BeforeValidator(read_bodies), Field(min_length=1)] = (
        BodySpec(name="mlp"),
    )
    initialization: Literal["shared", "own"] = "shared"
    public_seed: int | None = Field(default=None, ge=0)
    batch: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    optimizer: OptimizerKey = None
    tolerance: float = Field(default=TOLERANCE, gt=0, allow_inf_nan=False)
    measure_every: int = Field(default=1, ge=1)
    target: float | None = Field(default=None, gt=0, le=1)
    dp_sgd: DpSgd = DpSgd()
    body_share: float = Field(default=0.5, gt=0, lt=1)

    @model_validator(mode="after")
    def _bodies_share_the_width(self) -> Self:
        for index, spec in enumerate(self.bodies):
            if spec.width not in (None, self.width):
                raise ValueError(
                    f"bodies.{index}.width: {spec.width} given for {spec.name}; allowed: {self.width}, the width "
                    "that all bodies share"
                )
        return self

    def run(self, task: MethodInput) -> Outcome:
        """All rounds: head down, bodies trained, statistics up.

        Raises:
            PlanError: Parameters that contradict each other or the task.
            DataError: No client has a record, or training has diverged.
        """
        self._check(task)
        protected = self._protection(task)
        from_public = task.public if self._body(task) == "public" else None
        bodies = self._bodies(task, from_public)
        rounds = Rounds(self, task, [network.module for network in bodies.networks])
        shared = self._initial(task)
        begun: list[Shared] = []
        messages = [head_message(0, client, shared.head, first=True) for client in task.clients]
        if cells_of(task) is not None:
            messages = with_start(messages, bodies)
        notes: list[str] = []
        for number in rounds.numbers(self.rounds):
            begun.append(shared)
            sent = rounds.sent(number, partial(self._round, number, bodies, shared, protected, task))
            received = task.spool.keep_all(upload(number, client, sent, protected) for client in task.clients)
            shared, answer = self._answer(number, received, protected, task, notes)
            messages += received + task.spool.keep_all(answer)
            rounds.end(number, sent, messages, partial(self._measured, number, bodies, shared, protected, task))
        utility, remarks = rounds.summary(self.target)
        used = [each for each in bodies.networks if len(each.labels)]
        return Outcome(
            Transcript("fedlog", task.classes, tuple(messages), *claimed(task.privacy, protected)),
            self._model([body_scores(each, shared.head, self._clip(protected)) for each in used], protected, task),
            utility=utility,
            communication=closed_forms(self.rounds, len(task.clients), task.classes, self.width),
            mechanisms=experiments(
                protected, f"T of {self.rounds} rounds{' with n' if self.counts == 'exact' else ''}"
            ),
            retrained=self._retrained(task, protected),
            notes=(*notes, *remarks),
            stays=frozenset({"model", *utility}),
            enters=None if from_public is None else self._enters(begun, bodies.of_client, protected, task),
        )

    def _model(self, scores: Sequence[Scores], protected: Protection | None, task: MethodInput) -> MeanModel:
        """Return the joint prediction of the clients."""
        if cells_of(task) is None:
            return MeanModel(scores)
        clip = self._clip(protected)
        return OnSharedBody(scores, None if clip is None else partial(np.clip, a_min=-clip, a_max=clip))

    def _measured(
        self, number: int, bodies: Bodies, shared: Shared, protected: Protection | None, task: MethodInput
    ) -> float | None:
        """The round's personalized accuracy; None where it is not due or there is none."""
        if (number + 1) % self.measure_every and number + 1 < self.rounds:
            return None
        scores = [body_scores(each, shared.head, self._clip(protected)) for each in bodies.networks]
        return personalized(scores, bodies.of_client, task.clients, task.test).mean

    def _check(self, task: MethodInput) -> None:
        task.require_records("fedlog")
        if task.adversary is not None:
            check(self.initialization == "shared", self.variant == "plain" or self.rounds == 1)
        if task.privacy.private and self.body == "dp_sgd" and self.dropout:
            raise PlanError(
                f"fedlog: dropout {self.dropout:g} with body dp_sgd, whose steps take every record by itself; "
                "allowed: 0 or null"
            )
        others = task.classes - 1
        if self.variant == "c" and not task.privacy.private and self.beta * others >= self.alpha > 0:
            raise PlanError(
                f"fedlog: beta {self.beta:g} with alpha {self.alpha:g} and {task.classes} classes: features that "
                "are not clipped are pushed away without end; allowed: below alpha / (C - 1) = "
                f"{self.alpha / others:g}"
            )

        if self._body(task) == "public" and not task.public:
            raise PlanError(
                "fedlog: public records train the body, but data.split.public has no records; allowed: a share of "
                "public records, or body dp_sgd or private"
            )

    def _body(self, task: MethodInput) -> Body:
        return _trains(self.body, task.privacy.private)

    def noiseless_form(self) -> FedLog:
        """Sums without noise, of the bodies that public records train where they train those of a private run."""
        if self.body not in (None, "public"):
            return self
        return self.model_copy(update={"body": "public", "activation": self.activation or "none"})

    def _protection(self, task: MethodInput) -> Protection | None:
        if not task.privacy.private:
            return None
        statistic = Statistic(
            rounds=self.rounds,
            width=self.width,
            clip=self.clip,
            classes=task.classes,
            clients=len(task.clients),
            mechanism=self.mechanism,
            central=self.noise == "central",
            counts=self.counts == "exact",
        )
        bodies = BodyTraining(
            body=self._body(task),
            epochs=self.local_epochs,
            batch=self.batch,
            dp_sgd=self.dp_sgd,
            share=self.body_share,
        )
        return protection(task.privacy, statistic, bodies)

    def _bodies(self, task: MethodInput, from_public: Records | None) -> Bodies:
        bodies = make_bodies(
            task,
            self.bodies,
            seeds=self._known(task),
            width=self.width,
            activation=self.activation or ("none" if task.privacy.private else "relu"),
            alike=self.initialization == "shared",
            from_public=from_public,
        )
        if (cells := cells_of(task)) is not None:
            set_cells(bodies, cells)
        return bodies

    def _clip(self, protected: Protection | None) -> float | None:
        return None if protected is None else self.clip

    def _known(self, task: MethodInput) -> Seeds:
        """Return the streams of all public randomness."""
        return task.seeds if self.public_seed is None else Seeds(self.public_seed)

    def _initial(self, task: MethodInput) -> Shared:
        """A random head, as a linear layer's: with eta = 0 the first round would teach the bodies nothing."""
        bound = self.width**-0.5
        eta = self._known(task).numpy("head").uniform(-bound, bound, (task.classes, self.width))
        shared = Shared(eta.astype(np.float32))
        return shared if cells_of(task) is None else taught_nothing(shared)

    def _round(
        self, number: int, bodies: Bodies, shared: Shared, protected: Protection | None, task: MethodInput
    ) -> Arrays:
        """Train all bodies under the head; every client's T as it travels, and n_i where it is sent."""
        self._train(number, bodies, shared, protected, task)
        sent: Arrays = {}
        for client, own in zip(task.clients, bodies.of_client, strict=True):
            noise_mechanism = task.mechanism(client.name, number, GROUP)
            statistic = release_fedlog_sums(
                outputs(bodies.networks[own].module, client.images),
                client.labels,
                task.classes,
                clip=np.inf if protected is None else self.clip,
                sigma=0.0 if protected is None else protected.scale,
                noise=noise_mechanism if protected is None else protected.noise(noise_mechanism),
                weights=task.weights(client),
            )
            sent |= as_sent(client, statistic, protected)
        return sent

    def _train(
        self, number: int, bodies: Bodies, shared: Shared, protected: Protection | None, task: MethodInput
    ) -> None:
        """Train all bodies in place under the head."""
        steps = None if protected is None else protected.steps
        training = LocalTraining(
            self.local_epochs, self.batch, self.learning_rate, steps, "body_dependence", self.optimizer
        )
        distances, known = self.variant == "c", self._known(task)
        for network in bodies.networks:
            loss = body_loss(
                shared,
                clip=self._clip(protected),
                through=self.clip_gradient == "straight_through",
                alpha=self.alpha if distances else 0.0,
                beta=self.beta if distances else 0.0,
                device=task.device,
                drop=dropping(self._dropout(steps), known.integer("dropout", number, network.name)),
            )
            training(network, loss, task, number, known)

    def _dropout(self, steps: NoisedTraining | None) -> float:
        """The share that training drops; `steps` of DP-SGD go by their own default."""
        if self.dropout is not None:
            return self.dropout
        return AUTHORS_DROPOUT if steps is None else 0.0

    def _retrained(self, task: MethodInput, protected: Protection | None) -> dict[str, Retrained]:
        """The first round on other records of a client, where its body is a function of these alone."""
        if protected is None or protected.body != "private" or self.public_seed is None:
            return {}
        if task.privacy.unit != "record":  # the search is for single records
            return {}
        fixed = protected

        def features(index: int, records: Records) -> NDArray[np.float32]:
            clients = [client.take(np.zeros(0, np.int64)) for client in task.clients]
            clients[index] = records
            alone = dataclasses.replace(task, clients=tuple(clients))
            bodies = self._bodies(alone, None)
            self._train(0, bodies, self._initial(alone), fixed, alone)
            return outputs(bodies.networks[bodies.of_client[index]].module, records.images)

        found = retraining(features, protected, self.batch)
        return {"T of the first round, the body trained again": found}

    def _enters(
        self, begun: Sequence[Shared], of_client: Sequence[int], protected: Protection | None, task: MethodInput
    ) -> Enters:
        """Return how a record enters T through publicly trained bodies; `begun` is the state before each round."""

        def rounds() -> list[Networks]:
            again = self._bodies(task, task.public)
            found = []
            for number, shared in enumerate(begun):
                self._train(number, again, shared, protected, task)
                found.append(tuple(copy.deepcopy(network.module) for network in again.networks))
            return found

        names = [client.name for client in task.clients]
        clip = np.inf if protected is None else self.clip
        return enters_through(rounds, dict(zip(names, of_client, strict=True)), clip)

    def _answer(
        self,
        number: int,
        received: Sequence[Message],
        protected: Protection | None,
        task: MethodInput,
        notes: list[str],
    ) -> tuple[Shared, list[Message]]:
        """The server's step: add up, solve for the head (or leave that to the clients), send out."""
        total = summed(received)
        records = float(total["records"].values[0]) if "records" in total else None
        together = np.column_stack([total["counts"].values, total["sums"].values])
        statistic, weight = clamped(together.astype(np.float64), records)
        nu = 0.0 if protected is not None and self.mechanism == "released_code" else 1.0
        solved = map_head(statistic, weight, nu=nu, tolerance=self.tolerance)
        if not solved.converged:
            notes.append(
                f"round {number}: the head's solver stopped at a relative gradient of {solved.gradient:.3g} after "
                f"{solved.steps} steps, above the tolerance of {self.tolerance:g}"
            )
        shared = Shared(solved.eta.astype(np.float32), *class_means(statistic, self._clip(protected)))
        if cells_of(task) is not None and number + 1 < self.rounds:
            shared = taught_nothing(shared)
        if self.variant == "plain":
            return shared, [head_message(number, client, shared.head) for client in task.clients]
        return shared, [Message(number, SERVER, client.name, total) for client in task.clients]
