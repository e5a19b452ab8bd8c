"""Feature-conditioned diffusion: images from vectors in feature space.

The adversary trains a conditional denoising diffusion model on pairs (feature, image) of its own records, then
samples it with the vectors that it received (Beitollahi et al. 2024, section 6.4 and appendix E; guidance after Ho
and Salimans 2022, sampling after Song et al. 2021). Presets but the paper's add blends of its few images, with
features computed by the backbone (`fedassay.nets.blends`), where vectors are features.

Features of a body trained on public records (FedLog under a claim) are read by a model of that body's features of
the adversary's images: an adversary with the public records trains the body again (`View.enters`).

Assumes: records of the adversary's own from a similar distribution, and the outputs of the backbone
on them (black box suffices). Works on any vectors that a view holds (features, samples of mixtures,
class means) or that another attack recovered.

A null result does not mean that the vectors carry no image: the model may be too small, trained too
briefly, or on images that are too different. The audit's positive control says whether it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sklearn.neighbors import NearestNeighbors
from torch.utils.flop_counter import FlopCounterMode

from fedassay.backbones.base import Backbone
from fedassay.contracts.attack import AttackResult, Knowledge, Reconstruction
from fedassay.contracts.facts import AttackFacts, Given
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Load, Sizes
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import (
    VECTORS,
    VectorSource,
    between,
    in_space,
    no_vectors,
    public_body,
    sources,
)
from fedassay.exchange.view import View
from fedassay.nets.blends import MOST, blends
from fedassay.nets.presets import PRESETS, Preset, preset_named
from fedassay.nets.sampling import Sampling, default_steps, sample
from fedassay.nets.trained import TrainedDenoiser, from_arrays
from fedassay.nets.training import train
from fedassay.plan import rates as rate
from fedassay.plan.work import film, film_parameters
from fedassay.support.cache import cached_arrays
from fedassay.support.errors import NotRunError
from fedassay.support.hashing import digest_arrays
from fedassay.support.types import Images, Parameters

_NEAR = 1.3
"""Median distance to the attacker's features, in those between these, up to which vectors pass for features.

Where noise takes vectors of digits further, models of blends are no closer than models without (three seeds)."""

_COMPARED = 8
"""Records with features computed again, to see that they are the backbone's."""

_UNET_OPERATIONS = 1.2e10
"""Operations of the U-Net of preset `paper` on a 32x32 colour image (Ho et al. 2020), forward."""


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    preset = PRESETS[given["preset"]]
    rows = min(sizes.private, given["max_vectors"] or sizes.private) * given["samples"]
    if preset.architecture == "unet":
        operations = _UNET_OPERATIONS * sizes.pixels / 3072
        speed = rate.UNET_FLOPS
    else:
        operations, speed = 2.0 * film(preset, sizes), rate.DENSE_FLOPS
    taken = given["steps"] or default_steps(preset, given["sampler"])
    fitted = 3 * operations * preset.steps * preset.batch / speed
    blended = min(max(0, preset.rows - sizes.attacker), MOST * sizes.attacker)
    fitted += min(blended * sizes.backbone / rate.CONVOLUTION_FLOPS, fitted)
    return float(fitted + load.cells * operations * rows * taken / speed)


@register("attack", "feature_diffusion")
class FeatureDiffusion(Parameters):
    """Reconstruct images from feature vectors with a diffusion model trained on the attacker's own."""

    facts: ClassVar[AttackFacts] = AttackFacts(
        gives=("reconstructions",),
        needs=("attacker_records",),
        takes=("vectors",),
        reads=VECTORS,
        features_of=("backbone", "public_body"),
        cost=_seconds,
        stronger="preset",
    )
    preset: Literal["quick", "tiny", "small", "paper_short", "paper"] = "tiny"
    """Size and training of the model: `quick` for 8x8 in seconds, `tiny` for 8x8 to 28x28 on 2 cores, `paper` for
    a GPU, `paper_short` the same network trained for a twentieth of the steps."""
    samples: int = Field(default=10, ge=1)
    """Reconstructions of each vector that encodes one record; ranked by their agreement. Others get 1."""
    guidance: float | None = Field(default=None, ge=0)
    """Classifier-free guidance weight; None: the preset's."""
    sampler: Literal["ddim", "dpm"] = "ddim"
    """`dpm` (DPM-Solver++ 2M) takes 10 steps where `ddim` takes 25 to 100, for as good pictures."""
    steps: int | None = Field(default=None, ge=1)
    """Steps of the sampler; None: 10 of `dpm`, and as many of `ddim` as the preset has."""
    max_vectors: int | None = Field(default=2000, ge=1)
    """At most so many vectors of a source, drawn at random; None: all."""

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Train (or fetch) the attacker's model, and sample it on every source of vectors.

        Raises:
            NotRunError: No attacker records, or vectors of another width than the backbone's alone.
            NothingToReadError: Nothing that is sent is, or holds, vectors.
        """
        if knowledge.attacker is None or len(knowledge.attacker) == 0:
            raise NotRunError("the plan gives the attacker no records to train on")
        width = knowledge.attacker.features.shape[1]
        seen = (*sources(view, knowledge.seeds.numpy("sources")), *knowledge.recovered)
        usable = in_space(seen, width)
        if not usable and (by_body := self._through_public_body(view, knowledge, seen)):
            return AttackResult("feature_diffusion", reconstructions=by_body)
        if not usable:
            raise no_vectors(seen, width, "features, mixtures, class means or class sums with counts")
        further = _blended(knowledge, knowledge.attacker, preset_named(self.preset))
        models = cache(lambda exact: self._model(knowledge, further if exact else further[:0]))
        limited = [source.limited(self.max_vectors, knowledge.seeds) for source in usable]
        notes = [
            f"{source.name}: {len(kept.vectors)} of {len(source.vectors)} vectors drawn at random"
            for source, kept in zip(usable, limited, strict=True)
            if len(kept.vectors) < len(source.vectors)
        ]
        reconstructions = tuple(
            self._reconstruct(source, models(_are_features(source, knowledge.attacker)), knowledge)
            for source in limited
        )
        return AttackResult("feature_diffusion", reconstructions=reconstructions, notes=tuple(notes))

    def _through_public_body(
        self, view: View, knowledge: Knowledge, seen: Sequence[VectorSource]
    ) -> tuple[Reconstruction, ...]:
        """Reconstructions from features of a body that everybody can train; none where there is no such body."""
        own = _by_public_body(view, knowledge.attacker) if knowledge.attacker is not None else None
        if own is None:
            return ()
        width = own.features.shape[1]
        known = replace(knowledge, attacker=own, backbone=None)
        usable = [source for source in seen if len(source.vectors) and source.vectors.shape[1] == width]
        model = self._model(known, own.images[:0]) if usable else None
        return tuple(
            self._reconstruct(source.limited(self.max_vectors, knowledge.seeds), model, knowledge)
            for source in usable
            if model is not None
        )

    def _reconstruct(self, source: VectorSource, model: TrainedDenoiser, knowledge: Knowledge) -> Reconstruction:
        count = self.samples if source.paired else 1
        with knowledge.progress.step(f"reconstructing {source.name}") as advance:
            images = sample(
                model,
                np.repeat(source.vectors, count, axis=0),
                Sampling(self.sampler, self.steps, self.guidance),
                seed=knowledge.seeds.integer("sampling", source.name),
                device=knowledge.device,
                progress=advance,
            )
        return Reconstruction(source, images.reshape(len(source.vectors), count, *images.shape[1:]))

    def _model(self, knowledge: Knowledge, further: Images) -> TrainedDenoiser:
        """The attacker's model, found again by content: one training serves every release of a sweep.

        Its warm start holds the attacker's own images, linearly mapped, so that its entry is a private one.
        """
        attacker = knowledge.attacker
        assert attacker is not None
        shape: tuple[int, int, int] = attacker.images.shape[1:]
        chosen = preset_named(self.preset)
        seed = knowledge.seeds.integer("training")
        images = np.concatenate([attacker.images, further])
        content = digest_arrays({"images": attacker.images, "features": attacker.features})
        settings = {f"preset.{name}": _scalar(value) for name, value in asdict(chosen).items()}
        key = {"what": "feature_diffusion", "data": content, "seed": seed, "device": knowledge.device, **settings}
        key |= {"blends": len(further)}
        # Models of a cell differ in their pairs and in their features' networks: none takes another's checkpoint.
        name = f"feature_diffusion_{len(images)}_{content[:16]}.safetensors"
        checkpoint = None if knowledge.scratch is None else knowledge.scratch / name

        def build() -> dict[str, NDArray[Any]]:
            features = attacker.features
            if knowledge.backbone is not None and len(further):
                features = np.concatenate([features, knowledge.backbone.extract(further)])
            with knowledge.progress.step("training the attacker's model") as advance:
                trained = train(
                    images,
                    features,
                    chosen,
                    seed=seed,
                    device=knowledge.device,
                    progress=advance,
                    checkpoint=checkpoint,
                )
            return dict(trained.to_arrays())

        return from_arrays(chosen, shape, cached_arrays(key, build))


def _blended(knowledge: Knowledge, attacker: Records, preset: Preset) -> Images:
    """Blends of the attacker's images, at most as many as the backbone can encode while a model trains.

    None without a backbone that may be asked, or where the attacker's features are not this backbone's.
    """
    backbone, none = knowledge.backbone, attacker.images[:0]
    if not preset.rows or backbone is None or not _made_by(backbone, attacker):
        return none
    shape = attacker.images.shape[1:]
    with FlopCounterMode(display=False) as one:
        backbone.extract(attacker.images[:1])
    training = 3 * 2.0 * film_parameters(preset, math.prod(shape)) * preset.steps * preset.batch
    most = int(training / max(1, one.get_total_flops()))
    rows = min(preset.rows, len(attacker) + most)
    return blends(attacker.images, rows, knowledge.seeds.numpy("blends"))


def _by_public_body(view: View, attacker: Records) -> Records | None:
    """The attacker's records with what a public body makes of them; None unless all clients have the same."""
    body = public_body(view, attacker.images[:_COMPARED])
    if body is None:
        return None
    encode = body.vectors
    return Records(
        attacker.name, attacker.images, attacker.labels, lambda images: encode(images).astype(np.float32)
    )


def _are_features(source: VectorSource, attacker: Records) -> bool:
    """Whether vectors may be the features of single records, as near to the attacker's as these to one another.

    A model of blends follows its condition closely: that is right for features, and wrong for vectors with an
    error of their own, which a model of fewer images smooths.
    """
    if between(source.name) or len(attacker) < 2:
        return False
    own = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(attacker.features)
    apart, theirs = np.median(own.kneighbors()[0]), np.median(own.kneighbors(source.vectors)[0])
    return bool(theirs <= _NEAR * apart)


def _made_by(backbone: Backbone, attacker: Records) -> bool:
    """Whether features are what a backbone makes of the images, as far as the first of them tell."""
    few = attacker.images[:_COMPARED]
    if few.dtype != np.uint8 or few.shape[1:] != backbone.image_shape:
        return False
    made = backbone.extract(few)
    return made.shape == attacker.features[:_COMPARED].shape and np.allclose(
        made, attacker.features[:_COMPARED], rtol=1e-3, atol=1e-4
    )


def _scalar(value: object) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
