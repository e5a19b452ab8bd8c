"""FedCVAE (Heinbaugh, Luz-Ricca & Shao, ICLR 2023): decoders of conditional autoencoders, one round."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedassay.contracts.facts import Given, MethodFacts
from fedassay.contracts.method import MethodInput, Model, Outcome
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Sizes
from fedassay.data.records import Records
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.methods.shared.classifiers import Classifiers, MadeWhenAsked, of_network, read, write
from fedassay.methods.shared.decoders import TRUNCATION, DecoderGenerator
from fedassay.methods.shared.dp_sgd import DpSgd, training_mechanism, training_release
from fedassay.methods.shared.heads import overfitted
from fedassay.methods.shared.local_heads import Ensemble, head_loss
from fedassay.methods.shared.local_networks import finite
from fedassay.methods.shared.sent_generators import (
    HistogramNoise,
    histogram_noise,
    received_generators,
    sent_histogram,
)
from fedassay.nets.cvae import CVAE, CVAEKind, build_cvae, one_hot, pixel_rows, truncated_normal
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.nets.dp_sgd.tape import Training
from fedassay.nets.dp_sgd.updates import Updates
from fedassay.nets.local_training import Normals, record_objective, train, train_privately
from fedassay.plan import rates as rate
from fedassay.plan.work import training
from fedassay.support.optimisation import Minibatches, OptimizerKey, chosen, take_step
from fedassay.support.types import Ints, Parameters

_SOURCE = (
    "DP-SGD with Poisson sampling on each client's autoencoder, and the Gaussian mechanism on its "
    "label histogram, by privacy loss distributions"
)
"""The source of a private run's claim."""


@dataclass(frozen=True)
class _Noise:
    """Protection of a private run: DP-SGD for the networks, Gaussian noise for the label histogram."""

    steps: PrivateSteps
    histogram: HistogramNoise


def _seconds(given: Given, sizes: Sizes, private: bool) -> float:
    parameters, speed = 2.0 * sizes.pixels * given["hidden"] + given["hidden"] ** 2, rate.DENSE_FLOPS
    operations = parameters
    if given["decoder"] == "residual":
        # 73 million multiplications at 32x32 of three channels, and as many parameters as its dense layers have.
        operations, speed = 7.3e7 * sizes.pixels / 3072, rate.CONVOLUTION_FLOPS
        parameters = 1.8e6 + 2.7 * sizes.pixels * given["hidden"]
    seconds = 6.0 * operations * sizes.private * given["local_epochs"] / speed
    steps = given["local_epochs"] * sizes.private / given["batch"]
    if private:
        steps = math.ceil(given["local_epochs"] / given["dp_sgd"]["sampling_rate"]) * sizes.clients
        seconds = rate.PRIVATE_RECORD * seconds + steps * (rate.PRIVATE_STEP + rate.PRIVATE_PARAMETER * parameters)
    inner = given["classifier"]
    after = training(inner, sizes, epochs=inner["local_epochs"], batch=inner["batch"], private=False)
    return float(seconds + rate.STEP * steps + after + rate.CALIBRATION * private)


@register("method", "fedcvae")
class FedCVAE(Parameters):
    """Clients send the decoder of a conditional autoencoder and their label histogram.

    The server draws as many images as there were records (at most 100,000 if histograms are noised), with labels
    from each client's histogram and latent vectors from a truncated normal. It trains a classifier on them.
    `ensemble`: from each client's decoder (FedCVAE-Ens). `distill`: from one decoder that has learnt from them all
    (FedCVAE-KD).

    Private runs train by DP-SGD and noise the histogram, from one budget. The encoder never leaves, but
    was trained with the decoder, so both are clipped and noised together.

    Attributes:
        server: `ensemble`: images from each client's decoder. `distill`: from one that has learnt from them all.
        decoder: `dense` layers, or `convolutions` at the end, for small machines. `residual`: blocks in encoder
            and decoder; with `hidden: 502` 5.97 million parameters at 32x32 and 10 classes, as Mendieta et al.
            2025 have them.
        latent: Width of the latent vector.
        hidden: Width of hidden layers.
        beta: Weight of the divergence from the prior.
        local_epochs: Passes over a client's records; 200 in Mendieta et al. 2025.
        batch: Minibatch size; the divisor of noised gradient sums in a private run.
        learning_rate: Learning rate of the optimiser.
        optimizer: Optimiser of autoencoders and of `distill`'s decoder; None: Adam.
        distillation_epochs: With `distill`: passes over as many images as there were records.
        classifier: Settings of the server's training of its classifier on the images; `dp_sgd` is ignored there.
        labels: Whether a private run noises the histogram.
        label_share: Share of the squared Gaussian-DP parameter that the histogram may spend.
        dp_sgd: Parameters of a private run.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(units=("record", "person"), cost=_seconds)

    server: Literal["ensemble", "distill"] = "ensemble"
    decoder: CVAEKind = "dense"
    latent: int = Field(default=10, ge=1)
    hidden: int = Field(default=256, ge=1)
    beta: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    local_epochs: int = Field(default=40, ge=1)
    batch: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    optimizer: OptimizerKey = None
    distillation_epochs: int = Field(default=20, ge=1)
    classifier: Classifiers = Classifiers()
    labels: Literal["noised", "exact"] = "noised"
    label_share: float = Field(default=0.05, gt=0, lt=1)
    dp_sgd: DpSgd = DpSgd()

    def leakiest_form(self) -> FedCVAE:
        """The same method, with decoders that memorize a few records."""
        return overfitted(self, self.local_epochs, self.learning_rate)

    def run(self, task: MethodInput) -> Outcome:
        """One round: decoders and histograms up; the server samples and trains.

        Raises:
            DataError: No client has a record, no label is left to sample, or training has diverged.
        """
        task.require_records("fedcvae")
        noise = self._noise(task)
        messages = task.spool.keep_all(
            self._message(client, self._train(client, noise, task), noise, task)
            for client in task.progress.each("autoencoders", task.clients)
        )
        generators, notes = received_generators("fedcvae", messages, partial(self._generator, task))
        if task.simulated:
            model: Model = MadeWhenAsked(lambda: self._served(generators, task))
        else:
            model = self._served(generators, task)
        sent = float(sum(message.fields["decoder"].size for message in messages))
        return Outcome(
            Transcript("fedcvae", task.classes, tuple(messages), task.privacy.claim(_SOURCE)),
            model,
            communication={"paper_parameters_up": sent, "paper_bytes_up": 4 * sent},
            mechanisms={} if noise is None else noise.histogram.experiments(task.classes),
            generators=generators,
            notes=notes,
        )

    def _served(self, generators: Mapping[str, DecoderGenerator], task: MethodInput) -> Ensemble:
        """Return the server's classifier, trained on samples of the decoders."""
        sampled = self._sampled(generators, task)
        classifier = self.classifier.network(0, sampled, task)
        generator = torch.Generator().manual_seed(task.seeds.integer("classifier"))
        by = self.classifier
        minibatches = Minibatches(by.local_epochs, by.batch, by.learning_rate, by.optimizer)
        train(classifier.module, classifier.inputs, classifier.labels, head_loss, minibatches, generator)
        return Ensemble([of_network(classifier.module)])

    def _noise(self, task: MethodInput) -> _Noise | None:
        if not task.privacy.private:
            return None
        histogram = histogram_noise(task.privacy, self.labels, self.label_share, task.classes)
        steps = self.dp_sgd.record_steps(
            task.privacy, epochs=self.local_epochs, rounds=1, batch=self.batch, other=histogram.mu
        )
        return _Noise(steps, histogram)

    def _fresh(self, client: Records, task: MethodInput) -> CVAE:
        return build_cvae(
            client.image_shape,
            task.classes,
            latent=self.latent,
            hidden=self.hidden,
            kind=self.decoder,
            beta=self.beta,
            seed=task.seeds.integer("autoencoder"),
        ).to(task.device)

    def _train(self, client: Records, noise: _Noise | None, task: MethodInput) -> CVAE:
        """A client's autoencoder."""
        network = self._fresh(client, task)
        labels = torch.tensor(client.labels, device=task.device)
        rows = torch.cat([pixel_rows(client.images, task.device), one_hot(labels, task.classes)], dim=1)
        generator = torch.Generator().manual_seed(task.seeds.integer("training", client.name))

        def draw(chosen: Tensor, normals: Normals) -> Tensor:
            return torch.cat([chosen, normals(self.latent).to(chosen.device)], dim=1)

        if noise is None:
            minibatches = Minibatches(self.local_epochs, self.batch, self.learning_rate, self.optimizer)
            train(network, rows, labels, _bound, minibatches, generator, draw)
        else:
            objective, updates = record_objective(_bound, draw), Updates.by(self.optimizer, self.learning_rate)
            mechanism = training_mechanism(task, client.name, 0, "decoder")
            training = Training(network, rows, labels, objective, noise.steps, updates, mechanism)
            train_privately(training, task.persons(client))
        return network

    def _message(self, client: Records, network: CVAE, noise: _Noise | None, task: MethodInput) -> Message:
        trained = finite(read(network.decoder), f"fedcvae: training at {client.name} has diverged")
        of_decoder, of_counts = exact(), exact("labels")
        if noise is not None:
            of_decoder = training_release(noise.steps, task.privacy, "encoder and decoder together")
            of_counts = noise.histogram.release()
        counts = sent_histogram(client, None if noise is None else noise.histogram, task)
        fields = {
            "decoder": MessageField(trained, "parameters", of_decoder),
            "class_counts": MessageField(counts, "class_counts", of_counts),
        }
        return Message(0, client.name, SERVER, fields)

    def _generator(self, task: MethodInput, index: int, message: Message, counts: Ints) -> DecoderGenerator:
        """A client's decoder as received."""
        network = self._fresh(task.clients[index], task)
        write(network.decoder, message.fields["decoder"].values)
        return DecoderGenerator(network.eval(), counts, task.clients[index].image_shape)

    def _sampled(self, generators: Mapping[str, DecoderGenerator], task: MethodInput) -> Records:
        """As many images as the histograms say."""
        if self.server == "distill":
            generators = {"server": self._distilled(generators, task)}
        images, labels = [], []
        for name, generator in task.progress.each("sampling", list(generators.items())):
            own = np.repeat(np.arange(task.classes), generator.counts)
            images.append(generator.decode(own, task.seeds.child("samples", name)))
            labels.append(own)
        return Records("server", np.concatenate(images), np.concatenate(labels), task.backbone.extract)

    def _distilled(self, generators: Mapping[str, DecoderGenerator], task: MethodInput) -> DecoderGenerator:
        """FedCVAE-KD: one decoder with the outputs of the clients' decoders for the same latent vectors."""
        first = next(iter(generators.values()))
        student = self._fresh(task.clients[0], task)
        counts = np.sum([each.counts for each in generators.values()], axis=0)
        optimizer = chosen(self.optimizer).build(student.decoder.parameters(), self.learning_rate)
        source = torch.Generator().manual_seed(task.seeds.integer("distillation"))
        names, weights = list(generators), [float(each.counts.sum()) for each in generators.values()]
        steps = math.ceil(self.distillation_epochs * counts.sum() / self.batch)
        rng = task.seeds.numpy("distillation")
        for _ in range(steps):
            teacher = generators[names[int(rng.choice(len(names), p=np.array(weights) / sum(weights)))]]
            labels = torch.tensor(rng.choice(len(counts), self.batch, p=teacher.counts / teacher.counts.sum()))
            latent = truncated_normal(self.batch, self.latent, TRUNCATION, source)
            given = torch.cat([latent, one_hot(labels, task.classes)], dim=1).to(task.device)
            with torch.no_grad():
                goal = torch.sigmoid(teacher.network.decoder(given))
            loss = functional.binary_cross_entropy_with_logits(student.decoder(given), goal)
            take_step(optimizer, loss)
        return DecoderGenerator(student.eval(), counts, first.image_shape)


def _bound(found: Tensor, labels: Tensor) -> Tensor:
    return found[:, 0]
