"""FedDiff: a diffusion model from every client, and a classifier trained on samples of these models.

Source: Mendieta, Sun and Chen, "Navigating Heterogeneity and Privacy in One-Shot Federated Learning with Diffusion
Models", WACV 2025.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from fedassay.contracts.facts import Given, MethodFacts
from fedassay.contracts.method import MethodInput, Model, Outcome
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Sizes
from fedassay.data.records import Records
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.methods.feddiff.magnitudes import distances, largest_norm, pydp_bounds
from fedassay.methods.feddiff.magnitudes import kept as kept_by
from fedassay.methods.feddiff.messages import sent_magnitude
from fedassay.methods.feddiff.private import (
    Budget,
    Composition,
    DiffusionDpSgd,
    Filtering,
    Fmf,
    make_budget,
)
from fedassay.methods.feddiff.pydp_law import can_be_observed, pydp_experiment
from fedassay.methods.feddiff.server import (
    DiffusionGenerator,
    GlobalClassifier,
    correct,
    drawn,
    joined,
    kept,
    steps_of,
)
from fedassay.methods.shared.classifiers import MadeWhenAsked, of_network
from fedassay.methods.shared.dp_sgd import training_mechanism, training_release
from fedassay.methods.shared.heads import OVERFITTED
from fedassay.methods.shared.local_heads import Ensemble
from fedassay.methods.shared.local_networks import finite
from fedassay.methods.shared.rounds import fingerprint
from fedassay.methods.shared.sent_generators import received_generators, sent_histogram
from fedassay.nets.dp_sgd.checkpoint import keep_trainings, restore_trainings
from fedassay.nets.dp_sgd.generators import PrivateTraining, train_generator_privately
from fedassay.nets.generators import (
    GENERATORS,
    Computation,
    GeneratorName,
    flatten_weights,
    received_generator,
    train_generator,
)
from fedassay.nets.presets import Preset, Sampler
from fedassay.nets.sampling import Sampling
from fedassay.plan import rates as rate
from fedassay.plan.work import film
from fedassay.privacy import reruns
from fedassay.privacy.tape_checkpoint import keep_draws, restore_draws
from fedassay.support.errors import DataError, PlanError
from fedassay.support.optimisation import OptimizerKey
from fedassay.support.progress import Advance
from fedassay.support.types import Ints, Parameters

_SOURCE = (
    "one budget over the weights (DP-SGD with Poisson sampling), the label histogram and the mean "
    "magnitude, by privacy loss distributions"
)
"""The source of a private run's claim."""

_PUBLISHED = (
    "FedDiff as published: DP-SGD with Poisson sampling, the label histogram, and a mean magnitude whose epsilon, "
    "that of each coordinate, is counted once for all of them"
)
"""The source of the claim of a private run with `fmf_composition: per_coordinate`."""


def _one_or_several(given: object) -> object:
    return tuple(given) if isinstance(given, list | tuple) else (given,)


Presets = Annotated[tuple[GeneratorName, ...], BeforeValidator(_one_or_several), Field(min_length=1)]


_OVERFITTING_RATE = 1e-2
"""Learning rate at which a perceptron does so; the U-Nets keep their own."""


def _seconds(given: Given, sizes: Sizes, private: bool) -> float:
    presets = [GENERATORS[name] for name in given["preset"]]
    epochs = given["dp_sgd"]["epochs"] if private else given["epochs"]
    total = 0.0
    for preset in presets:
        if preset.architecture == "unet":
            # 300 MFLOPs, multiplications counted, of the paper's U-Net at 32x32; the square of the width.
            operations = 6.0e8 * (preset.width / 24) ** 2 * sizes.pixels / 3072
            parameters, speed = 5.8e6 * (preset.width / 24) ** 2, rate.UNET_FLOPS
        else:
            parameters = film(preset, sizes)
            operations, speed = 2.0 * parameters, rate.DENSE_FLOPS
        # A record's further draws cost as much as a plain step: its gradients are clipped once, as one.
        repeats = rate.PRIVATE_RECORD + given["dp_sgd"]["draws"] - 1 if private else 1
        trained = 3 * operations * sizes.private * epochs * repeats
        steps = steps_of(given["sampler"], given["steps"])
        sampled = 2 * operations * sizes.private * steps
        batches = epochs * sizes.private / (given["batch"] or preset.batch)
        total += (trained + sampled) / speed + batches * 3 * rate.STEP
        if private:
            noised = math.ceil(epochs / given["dp_sgd"]["sampling_rate"]) * sizes.clients
            total += noised * (rate.PRIVATE_STEP + rate.PRIVATE_PARAMETER * parameters)
    return total / len(presets) + rate.CALIBRATION * private


@register("method", "feddiff")
class FedDiff(Parameters):
    """Clients send a class-conditional diffusion model; the server samples them all and trains on the samples.

    A client's message is its model's weights, its label histogram, and with Fourier magnitude filtering (FMF) its
    images' mean magnitude. The server draws as many images as there were records (at most 100,000 if histograms
    are noised), with labels from each client's histogram. It drops images with a magnitude far from the sender's
    mean, and trains a classifier.

    Attributes:
        preset: The generator: `tiny`, a perceptron for small images on two cores, and `quick`, a smaller one for
            8x8; `small` and `paper`, the paper's FedDiff_s and FedDiff. A list gives client i entry i modulo its
            length.
        epochs: Passes over a client's records; 200 in the paper.
        batch: Minibatch size; None: the preset's. A private run has its own.
        learning_rate: The peak of a schedule; None: the preset's. The paper picks it on CIFAR-10 without charging
            privacy for it.
        optimizer: Optimiser of the generators; None: AdamW without decay. A private run has its own, in `dp_sgd`.
        label_dropout: Share of the training rows without their class, for guidance.
        sampler: `ddim`, `ddpm` as in the paper, or `dpm` (DPM-Solver++), which takes fewer steps.
        steps: Steps of the sampler; None: 40, 1000 for `ddpm`, 10 for `dpm`.
        guidance: Weight of classifier-free guidance; 1 is the conditional model alone.
        fmf: Protection of the mean magnitude in a private run; at epsilon inf it is exact for every value.
        fmf_composition: With `pydp`: the scope of `fmf_share` of epsilon. `total`: all coordinates together.
            `per_coordinate`: each of them, while the claim counts it once, as published; the ledger counts every
            coordinate.
        gamma: Percent of the generated images that FMF drops.
        gamma_scope: Whether the percentage is of each client's images, or of all of them pooled; the paper does
            not say.
        magnitude_clip: Norm that magnitude vectors are clipped to, as a share of the white image's.
        oracle_filter: Keep only images that a classifier trained on all private records gets right: the experiment
            of section 5.3, not a protocol, since no server has that classifier.
        classifier: The global classifier.
        labels: Whether a private run noises the histogram.
        label_share: Share of the squared Gaussian-DP parameter that the histogram may spend.
        fmf_share: The same for the mean magnitude; with `pydp`, share of epsilon.
        dp_sgd: Settings of a private run's training.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(
        units=("record", "person"), cost=_seconds, sends=("generator", "parameters", "class_counts")
    )

    preset: Presets = ("tiny",)
    epochs: int = Field(default=200, ge=1)
    batch: int | None = Field(default=None, ge=1)
    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    optimizer: OptimizerKey = None
    label_dropout: float = Field(default=0.1, ge=0, lt=1)
    sampler: Sampler = "ddim"
    steps: int | None = Field(default=None, ge=1, le=1000)
    guidance: float = Field(default=1.5, ge=0, allow_inf_nan=False)
    fmf: Fmf = "none"
    fmf_composition: Composition = "total"
    gamma: float = Field(default=5.0, ge=0, lt=100)
    gamma_scope: Literal["client", "pooled"] = "client"
    magnitude_clip: float = Field(default=1.0, gt=0, le=1)
    oracle_filter: bool = False
    classifier: GlobalClassifier = GlobalClassifier()
    labels: Literal["noised", "exact"] = "noised"
    label_share: float = Field(default=0.05, gt=0, lt=0.5)
    fmf_share: float = Field(default=0.05, gt=0, lt=0.5)
    dp_sgd: DiffusionDpSgd = DiffusionDpSgd()

    @model_validator(mode="after")
    def _composed_where_there_are_coordinates(self) -> Self:
        if self.fmf_composition == "per_coordinate" and self.fmf != "pydp":
            raise ValueError(f"fmf_composition: per_coordinate given with fmf {self.fmf}; allowed: with fmf pydp")
        return self

    def leakiest_form(self) -> FedDiff:
        """The same method, with generators that memorize a few records."""
        film = all(GENERATORS[name].architecture == "film" for name in self.preset)
        rate = max(self.learning_rate or 0.0, _OVERFITTING_RATE) if film else self.learning_rate
        epochs = max(self.epochs, OVERFITTED)
        trains = {"epochs": epochs, "learning_rate": rate, "optimizer": None}
        return self.model_copy(update={**trains, "label_dropout": 0.0})

    def run(self, task: MethodInput) -> Outcome:
        """One round: models up; the server samples, filters and trains.

        Raises:
            PlanError: No noise meets the target with this schedule, or `pydp` for another unit than the record.
            DataError: No client has a record, no label is left to sample, or training has diverged.
        """
        task.require_records("feddiff")
        budget, run = self._budget(task), fingerprint(self, task)
        messages = task.spool.keep_all(
            self._message(i, client, budget, run, task) for i, client in enumerate(task.clients)
        )
        generators, fewer = received_generators("feddiff", messages, partial(self._generator, task))
        utility: dict[str, float] = {}
        notes: tuple[str, ...] = ()
        if task.simulated:
            model: Model = MadeWhenAsked(lambda: self._served(generators, messages, run, task)[0])
        else:
            model, utility, notes = self._served(generators, messages, run, task)
        sent = float(sum(message.fields["weights"].size for message in messages))
        return Outcome(
            Transcript("feddiff", task.classes, tuple(messages), task.privacy.claim(self._source)),
            model,
            utility=utility,
            communication={"paper_parameters_up": sent, "paper_bytes_up": 4 * sent},
            mechanisms=self._mechanisms(budget, task),
            generators=generators,
            notes=(*fewer, *notes),
        )

    def _served(
        self,
        generators: Mapping[str, DiffusionGenerator],
        messages: Sequence[Message],
        run: str,
        task: MethodInput,
    ) -> tuple[Model, dict[str, float], tuple[str, ...]]:
        """Return the server's results: its classifier, figures and notes."""
        sampled, notes = self._sampled(generators, messages, run, task)
        classifier = self.classifier.fit(sampled, task, "classifier")
        return Ensemble([of_network(classifier.module)]), {"generated_images": float(len(sampled))}, notes

    @property
    def _source(self) -> str:
        """Return the source of a private run's claim."""
        published = self.fmf == "pydp" and self.fmf_composition == "per_coordinate"
        return _PUBLISHED if published else _SOURCE

    def _preset(self, index: int) -> Preset:
        """The generator of a client."""
        found = GENERATORS[self.preset[index % len(self.preset)]]
        rate = self.learning_rate or found.learning_rate
        return replace(
            found,
            batch=self.batch or found.batch,
            learning_rate=rate if self.optimizer is None else self.optimizer.rate(rate),
            optimizer=self.optimizer,
            condition_dropout=self.label_dropout,
        )

    def _clip(self, task: MethodInput) -> float:
        return self.magnitude_clip * largest_norm(task.clients[0].image_shape)

    def _budget(self, task: MethodInput) -> Budget | None:
        if not task.privacy.private:
            return None
        if self.fmf == "pydp" and task.privacy.unit != "record":
            raise PlanError(
                f"feddiff: fmf pydp with privacy.unit {task.privacy.unit}: PyDP's bounded mean is of single "
                "records; allowed: fmf gaussian or none, or unit record"
            )
        return make_budget(
            task.privacy,
            self.dp_sgd,
            labels=self.labels,
            label_share=self.label_share,
            filtering=Filtering(
                self.fmf,
                self.fmf_share,
                self.fmf_composition,
                self._clip(task),
                math.prod(task.clients[0].image_shape),
            ),
            classes=task.classes,
        )

    def _message(self, index: int, client: Records, budget: Budget | None, run: str, task: MethodInput) -> Message:
        """Return a client's message, made only once, also over interruptions."""
        name = client.name.replace("/", "-")

        def make() -> dict[str, NDArray[np.generic]]:
            with task.progress.step(f"generator of {client.name}") as advance:
                weights = self._train(index, client, budget, task, name, advance)
            arrays: dict[str, NDArray[np.generic]] = {
                "weights": finite(weights, f"feddiff: training at {client.name} has diverged"),
                "class_counts": sent_histogram(client, None if budget is None else budget.histogram, task),
            }
            if self.fmf != "none":
                count = float(np.asarray(arrays["class_counts"], dtype=np.float64).sum())
                arrays["magnitude_mean"] = sent_magnitude(client, budget, self._clip(task), count, task)
            made.append(client.name)
            if task.scratch is not None:
                own, trained = (task.scratch / f"{name}.{each}.safetensors" for each in ("tape", "trainings"))
                keep_draws(own, run, task.noise, lambda key: key.sender == client.name)
                keep_trainings(trained, run, lambda key: key.sender == client.name)
            return arrays

        made: list[str] = []
        arrays = kept(task.scratch, name, run, make)
        if task.scratch is not None and not made:
            restore_draws(task.scratch / f"{name}.tape.safetensors", run, task.noise)
            restore_trainings(task.scratch / f"{name}.trainings.safetensors", run, task.noise)
        target = task.privacy
        fields = {
            "weights": MessageField(
                arrays["weights"],
                "parameters",
                exact() if budget is None else training_release(budget.steps, target),
            ),
            "class_counts": MessageField(
                arrays["class_counts"],
                "class_counts",
                exact("labels") if budget is None else budget.histogram.release(),
            ),
        }
        if "magnitude_mean" in arrays:
            release = exact() if budget is None else budget.of_magnitude(target)
            fields["magnitude_mean"] = MessageField(arrays["magnitude_mean"], "magnitude_mean", release)
        return Message(0, client.name, SERVER, fields)

    def _train(
        self, index: int, client: Records, budget: Budget | None, task: MethodInput, name: str, advance: Advance
    ) -> NDArray[np.float32]:
        """A client's weights."""
        preset = self._preset(index)
        given = (client.images, client.labels, task.classes)
        computation = Computation(
            task.seeds.integer("training", client.name),
            task.device,
            advance,
            None if task.scratch is None else task.scratch / f"{name}.training.safetensors",
        )
        if budget is None:
            model = train_generator(*given, preset, self.epochs, computation)
        else:
            settings = self.dp_sgd
            training = PrivateTraining(
                budget.steps, settings.draws, settings.together, settings.average, settings.optimizer
            )
            preset = replace(preset, learning_rate=settings.learning_rate)
            mechanism = training_mechanism(task, client.name, 0, "weights")
            model = train_generator_privately(
                *given, preset, training, mechanism, computation, task.persons(client)
            )
        return flatten_weights(model.weights)

    def _generator(self, task: MethodInput, index: int, message: Message, counts: Ints) -> DiffusionGenerator:
        """A client's generator as received."""
        values, shape = message.fields["weights"].values, task.clients[index].image_shape
        model = received_generator(values, self._preset(index), shape, task.classes)
        sampling = Sampling(self.sampler, steps_of(self.sampler, self.steps), self.guidance)
        return DiffusionGenerator(model, counts, sampling, task.device)

    def _sampled(
        self,
        generators: Mapping[str, DiffusionGenerator],
        messages: Sequence[Message],
        run: str,
        task: MethodInput,
    ) -> tuple[Records, tuple[str, ...]]:
        """Return the generated images that the server trains on, and notes on them."""
        known = [message for message in messages if message.sender in generators]
        parts = [drawn(generators[message.sender], message.sender, run, task) for message in known]
        sampled = joined(parts, "server", task)
        notes: tuple[str, ...] = ()
        if self.fmf != "none":
            scores = [
                distances(part.images, message.fields["magnitude_mean"].values)
                for part, message in zip(parts, known, strict=True)
            ]
            groups = scores if self.gamma_scope == "client" else [np.concatenate(scores)]
            sampled = sampled.take(np.flatnonzero(np.concatenate([kept_by(g, self.gamma) for g in groups])))
        if self.oracle_filter:
            oracle = self.classifier.fit(joined(task.clients, "oracle", task), task, "oracle")
            right = correct(oracle, sampled)
            sampled = sampled.take(np.flatnonzero(right))
            notes = (
                f"oracle_filter: {right.mean():.1%} of the generated images kept, by a classifier trained on the "
                "private records of all clients; no claim covers the resulting model",
            )
        if not len(sampled):
            raise DataError("feddiff: no generated image is left after filtering")
        return sampled, notes

    def _mechanisms(self, budget: Budget | None, task: MethodInput) -> dict[str, reruns.Experiment]:
        if budget is None:
            return {}
        found = budget.histogram.experiments(task.classes)
        if budget.magnitude > 0:
            found["mean magnitude"] = reruns.magnitude_sum(
                self._clip(task),
                adjacency=task.privacy.adjacency,
                sigma=budget.magnitude,
                unit=task.privacy.unit,
            )
        if (
            budget.coordinates
            and task.privacy.unit == "record"
            and can_be_observed(task.privacy, budget.coordinates)
        ):
            bounds = pydp_bounds(task.clients[0].images)
            found["mean magnitude"] = pydp_experiment(budget.each, budget.coordinates, bounds)
        return found
