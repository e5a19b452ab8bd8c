"""Images from gradients and from weights that were trained for a few steps.

In this order, for every sender of a gradient, or of weights with a known state before training:

1. The inputs of its first linear layer, one record at a time, by algebra
   (`fedassay.attacks.gradients.sparse_rows`): exact where a rectifier follows and the batch is smaller than the
   layer; or, where the server has sent weights that are a trap, the records between two of its thresholds
   (`fedassay.attacks.gradients.bins`). Where these are pixels, they are the images. 2. Where convolutions come
   before that layer, images that give these inputs, by descent, each record by itself. 3. Images of the whole
   batch by matching of the gradient, labels first (`fedassay.attacks.gradients.labels`,
   `fedassay.nets.gradient_matching`), where the network is known and the inputs were not separated.

Sources: Phong et al. 2018 and Geiping et al. 2020, proposition 3.1 (one record); Dimitrov et al. 2024 (batches
by the zeros of rectifiers); Fowl et al. 2022 (traps); Zhu et al. 2019, Zhao et al. 2020 and Geiping et al. 2020
(matching).

Assumes: for 1 the message alone, whatever the network; for 2 and 3 the network that the server sent. No record of
the adversary's own is used.

A null result does not mean that gradients are safe: larger batches, and steps of Adam (which forget how large a
derivative was), stop this attack and not every one. The control, the same method on other records without noise,
shows its power at this size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedassay.attacks.gradients.bins import binned_inputs
from fedassay.attacks.gradients.labels import label_counts, labels_of, mean_probabilities
from fedassay.attacks.gradients.pixels import Before, guessed_map, pixel_map
from fedassay.attacks.gradients.sparse_rows import Inputs, layer_inputs, unit_agreement
from fedassay.attacks.gradients.targets import Layer, Target, targets
from fedassay.contracts.attack import AttackResult, Knowledge, Reconstruction
from fedassay.contracts.facts import AttackFacts, Given
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Load, Sizes
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.view import View
from fedassay.nets.gradient_matching import match_gradient
from fedassay.nets.inversion import Prior, Wanted, invert, schedule_named
from fedassay.plan import rates as rate
from fedassay.support.errors import NothingToReadError, NotRunError, Why, above_limit
from fedassay.support.types import Bools, Images, Ints, Matrix, Parameters

NAME = "gradient_inversion"
INPUTS, STRONGEST = "layer_inputs", "strongest_direction"
BEHIND, MATCHED = "before_layer_inputs", "gradient_matching"

_AGREE = 0.95
"""Share of a layer's units that a record's input must switch on or off as its gradient says."""
_TRAPPED = "the server's weights ask one question at many thresholds, and what lies between two of them is read"
_STEPS = {"tiny": 150, "small": 600, "paper": 3000}


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    operations = 2.0e4 * sizes.pixels * (given["max_images"] or 64)
    return float(load.cells * (rate.AUDIT + _STEPS[given["preset"]] * operations / rate.CONVOLUTION_FLOPS))


@register("attack", "gradient_inversion")
class GradientInversion(Parameters):
    """Compute images from gradients: exactly from a linear layer, where that allows, else by descent."""

    facts: ClassVar[AttackFacts] = AttackFacts(
        gives=("inversions",),
        reads=("gradient", ("parameters", "model")),
        cost=_seconds,
        stronger="preset",
    )
    preset: Literal["tiny", "small", "paper"] = "tiny"
    """150, 600 or 3,000 steps of every descent."""
    rounds: int = Field(default=40, ge=1)
    """Maximum number of rounds, of 128 starts each, to separate the records of a batch."""
    most: int = Field(default=32, ge=1)
    """Largest batch that is separated or matched."""
    algebra: bool = True
    """Whether inputs of layers are computed; off, everything is left to matching."""
    weight: float = Field(default=0.05, ge=0)
    """Weight of total variation in matching."""
    max_images: int | None = Field(default=64, ge=1)
    """At most so many images of a view by descent; None: all."""

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Attack every gradient, and every change of weights, in the view.

        Returns:
            Reconstructions `layer_inputs` (exact), `strongest_direction` (of every gradient over pixels; all that
            remains of one that cannot be separated), `before_layer_inputs` (by descent to such inputs) and
            `gradient_matching`, one image each; `misfit/<source>` per image: the share of units that contradict
            it, the residual of its inputs, or 1 minus the cosine of the batch's gradient. `rank` and `recovered`
            per gradient, in the order of the artifact `senders`.

        Raises:
            NothingToReadError: No gradient of a layer over images, and no weights with a start that was sent.
            NotRunError: The inputs of the network's first layer were computed, and are no images.
        """
        found = targets(view)
        made = _Made()
        ranks, recovered = np.zeros(len(found)), np.zeros(len(found))
        with knowledge.progress.step("inverting gradients") as advance:
            for number, target in enumerate(found):
                advance(number, len(found))
                inputs = self._one(target, made, knowledge)
                if inputs is not None:
                    ranks[number], recovered[number] = inputs.rank, len(inputs.rows)
        if not made.images and made.limited is not None:
            raise NotRunError.of(made.limited)
        # The gradient of a head alone is the work of `head_inversion`.
        deep = sum(int(n) for n, target in zip(recovered, found, strict=True) if len(target.layers()) > 1)
        if deep and not made.images:
            raise NotRunError(
                f"{deep} inputs of a network's first layer were computed, but they are no images, and only "
                "images are judged"
            )
        if not made.images:
            raise NothingToReadError(
                "the view holds no gradient of a layer over images, and no weights of a network beside those that "
                "it was trained from"
            )
        return AttackResult(
            NAME,
            reconstructions=made.reconstructions(),
            scores={**made.misfits(), "rank": ranks, "recovered": recovered},
            artifacts={"senders": np.array([target.sender for target in found])},
            notes=tuple(made.notes),
            limited=made.limited,
        )

    def _one(self, target: Target, made: _Made, knowledge: Knowledge) -> Inputs | None:
        """Images of one gradient, by the first way that leads to some; what its first linear layer gave away."""
        layers = target.layers()
        shape = None if knowledge.backbone is None else knowledge.backbone.image_shape
        inputs = None
        if layers and self.algebra:
            inputs = self._inputs(layers[0], target, knowledge)
            if not inputs.complete and len(binned := binned_inputs(layers[0])) > len(inputs.rows):
                inputs = replace(inputs, rows=binned, binned=True)
                made.notes.append(f"{target.sender}: {_TRAPPED}")
            if self._by_algebra(target, layers, inputs, shape, made, knowledge):
                return inputs
        if target.network is not None and shape is not None and layers:
            count = target.records if inputs is None or target.records is not None else inputs.rank
            self._match(target, layers[-1], count, shape, made, knowledge)
        return inputs

    def _inputs(self, layer: Layer, target: Target, knowledge: Knowledge) -> Inputs:
        def agrees(rows: Matrix) -> Bools:
            return unit_agreement(rows, layer) >= _AGREE

        return layer_inputs(
            layer.gradient,
            layer.bias_gradient,
            knowledge.seeds.numpy("starts", target.sender),
            most=self.most,
            rounds=self.rounds,
            agrees=None if layer.weights is None else agrees,
            rounding=layer.rounding,
        )

    def _by_algebra(
        self,
        target: Target,
        layers: Sequence[Layer],
        inputs: Inputs,
        shape: tuple[int, int, int] | None,
        made: _Made,
        knowledge: Knowledge,
    ) -> bool:
        """Images of a layer's inputs; False where there are none, or matching may do better."""
        network, whole = target.network, inputs.complete or len(inputs.rows) > 0
        pixels = (
            guessed_map(inputs.rows if whole else inputs.strongest, shape)
            if network is None
            else None
            if shape is None
            else pixel_map(network, layers[0].name, shape)
        )
        if pixels is not None:
            for source, rows in ((INPUTS, inputs.rows), (STRONGEST, inputs.strongest)):
                images = pixels.images(rows)
                labels = np.full(len(images), -1, np.int64)
                if network is not None and inputs.complete and source == INPUTS:
                    labels = labels_of(network, layers[-1], images)
                # Without weights records are not distinguished from sums and differences, unless there is one:
                # of records of one label the sparsest inputs are often differences.
                misfit = np.full(len(images), float(inputs.rank > 1))
                if layers[0].weights is not None and len(rows) and not (inputs.binned and source == INPUTS):
                    misfit = 1 - unit_agreement(rows, layers[0])
                made.add(source, images, labels, target.sender, misfit)
            if not inputs.complete:
                made.notes.append(f"{target.sender}: {_incomplete(inputs)}")
            return True
        if network is None or shape is None or not whole:
            return False
        rows = inputs.rows[: self._left(made)]
        if len(rows) < len(inputs.rows) and self.max_images is not None:
            words = f"{target.sender}: {len(inputs.rows) - len(rows)} inputs were not inverted (max_images)"
            made.cut(above_limit(words, "max_images", self.max_images, made.descended + len(inputs.rows)))
        if len(rows):
            with knowledge.progress.step(f"inverting inputs of {target.sender}") as advance:
                images, misfit = invert(
                    Before(network, layers[0].name),
                    Wanted(rows.astype(np.float32), np.zeros(len(rows), np.bool_)),
                    shape,
                    prior=Prior("spectrum", 0.3),
                    schedule=schedule_named(self.preset),
                    seed=knowledge.seeds.integer("start", target.sender),
                    device=knowledge.device,
                    progress=advance,
                )
            made.add(BEHIND, images, np.full(len(images), -1, np.int64), target.sender, misfit)
        return True

    def _match(
        self,
        target: Target,
        last: Layer,
        records: int | None,
        shape: tuple[int, int, int],
        made: _Made,
        knowledge: Knowledge,
    ) -> None:
        """Images of a whole batch with the target's gradient."""
        assert target.network is not None
        if not records or not 0 < records <= min(self.most, self._left(made)):
            words = (
                f"{target.sender}: not matched: {records or 'an unknown number of'} records; allowed: 1 to "
                f"{self.most} a batch (most), {self.max_images} in all (max_images)"
            )
            made.notes.append(words)
            if records and records > self.most:
                made.cut(above_limit(words, "most", self.most, records))
            elif records and self.max_images is not None:
                made.cut(above_limit(words, "max_images", self.max_images, made.descended + records))
            return
        seed = knowledge.seeds.integer("matching", target.sender)
        counts = label_counts(last.bias_gradient, records, mean_probabilities(target.network, shape, seed))
        labels = np.repeat(np.arange(len(counts)), counts)
        with knowledge.progress.step(f"matching the gradient of {target.sender}") as advance:
            images, left = match_gradient(
                target.network.to(knowledge.device),
                list(target.arrays.values()),
                labels,
                shape,
                steps=_STEPS[self.preset],
                weight=self.weight,
                seed=seed,
                progress=advance,
            )
        made.add(MATCHED, images, labels, target.sender, np.full(len(images), left))

    def _left(self, made: _Made) -> int:
        """Number of images that may still be made by descent."""
        return 1 << 30 if self.max_images is None else max(0, self.max_images - made.descended)


def _incomplete(inputs: Inputs) -> str:
    if len(inputs.rows):
        return f"{len(inputs.rows)} of {inputs.rank} records were distinguished"
    return f"a gradient of rank {inputs.rank} was not taken apart; its strongest direction stands for it"


@dataclass
class _Part:
    """Images of one sender."""

    images: Images
    labels: Ints
    sender: str
    misfit: Matrix


@dataclass
class _Made:
    """Images by source, as they are made, and what must be said of them."""

    images: dict[str, list[_Part]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    limited: Why | None = None

    def cut(self, why: Why) -> None:
        """Keep why something was not tried: of several the one that asks for most."""
        if self.limited is None or (why.needed or 0) > (self.limited.needed or 0):
            self.limited = why

    @property
    def descended(self) -> int:
        """Images made by descent."""
        return sum(len(part.images) for name in (BEHIND, MATCHED) for part in self.images.get(name, ()))

    def add(self, source: str, images: Images, labels: Ints, sender: str, misfit: Matrix) -> None:
        """Keep images of one sender."""
        if len(images):
            self.images.setdefault(source, []).append(_Part(images, labels, sender, misfit))

    def reconstructions(self) -> tuple[Reconstruction, ...]:
        """One reconstruction a source. An image has no feature: its number stands for it and identifies it."""
        return tuple(
            Reconstruction(
                VectorSource(
                    name,
                    np.arange(sum(len(part.images) for part in parts), dtype=np.float32)[:, None],
                    np.concatenate([part.labels for part in parts]),
                    tuple(part.sender for part in parts for _ in part.images),
                    np.full(sum(len(part.images) for part in parts), -1),
                ),
                np.concatenate([part.images for part in parts])[:, None],
            )
            for name, parts in self.images.items()
        )

    def misfits(self) -> dict[str, Matrix]:
        """By the names of scores."""
        return {
            f"misfit/{name}": np.concatenate([part.misfit for part in parts])
            for name, parts in self.images.items()
        }
