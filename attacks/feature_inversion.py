"""Images from vectors in feature space by descent through the backbone.

The adversary looks for an image with a received or computed vector as its feature: a raw feature, a class mean, a
class sum whatever its count (direction only), the strongest directions of a second moment, and the single features
that `gram_factorization` recovered from it (Guan et al. 2025, figure 4, which inverts with the deep image prior of
Ulyanov et al. 2018 and concludes from blurred sums that its messages are safe).

Assumes: white-box access, gradients through the backbone included. Records of the adversary's own are used by
`principal_components` alone.
Features of a body that public records train (FedLog under a claim) are inverted through that body.

A null result does not mean that the vectors carry no image: pooled features determine the content of an image
better than its positions, and a descent may end in another image with the same feature. The audit's positive
control, raw features of single records, shows how much this backbone gives away at all.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from fedassay.backbones.base import Backbone
from fedassay.contracts.attack import AttackResult, Knowledge, Reconstruction
from fedassay.contracts.facts import AttackFacts, Given
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Load, Sizes
from fedassay.exchange.feature_sources import VECTORS, VectorSource, in_space, no_vectors, public_body, sources
from fedassay.exchange.gram import measure
from fedassay.exchange.statistics import gram_of, known_counts, statistics_of
from fedassay.exchange.transcript import Message
from fedassay.exchange.view import View
from fedassay.nets.image_families import Family
from fedassay.nets.inversion import LeakyBackward, Prior, Wanted, invert, schedule_named
from fedassay.plan import rates as rate
from fedassay.support.cache import Key, cached_arrays
from fedassay.support.environment import code_digest
from fedassay.support.errors import NotRunError, is_of_the_machine
from fedassay.support.hashing import digest_arrays
from fedassay.support.types import Floats, Images, Parameters

DIRECTIONS = "gram_directions"
SUMS = "class_sums"

_UNIT = 1 + 1e-3
_COMPARED = 8
"""Images on which bodies of clients have to agree."""


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    steps = given.get("steps") or {"tiny": 150, "small": 600, "paper": 3000}[given["preset"]]
    return load.cells * 100 * steps * 3 * sizes.backbone / rate.CONVOLUTION_FLOPS


@register("attack", "feature_inversion")
class FeatureInversion(Parameters):
    """Invert feature vectors by gradient descent on images through the white-box backbone."""

    facts: ClassVar[AttackFacts] = AttackFacts(
        gives=("inversions",),
        needs=("backbone_gradients",),
        takes=("vectors",),
        reads=(*VECTORS, "class_sums", "second_moment"),
        features_of=("backbone", "public_body"),
        cost=_seconds,
        stronger="preset",
    )
    family: Family = "spectrum"
    """Parametrization of images: `spectrum`, `principal_components` of the adversary's own images, `pixels` (with
    total variation) or `deep_image_prior`."""
    preset: Literal["tiny", "small", "paper"] = "tiny"
    """150, 600 or 3,000 steps of Adam, and skip networks of 16, 32 or 128 channels."""
    steps: int | None = Field(default=None, ge=1)
    """Steps of Adam; None: the preset's."""
    weight: float = Field(default=0.3, ge=0)
    """Weight of the penalty at the start, which `deep_image_prior` lacks; it falls to 0."""
    leak: float = Field(default=0.3, ge=0, lt=1)
    """Slope of the backward pass through rectifiers that are off; 0 is the true gradient."""
    directions: int = Field(default=3, ge=0)
    """Strongest directions of every second moment that are inverted."""
    max_vectors: int | None = Field(default=64, ge=1)
    """At most so many vectors of a source, drawn at random; None: all."""

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Invert every source of vectors in the view, and what earlier attacks recovered.

        Returns:
            One reconstruction a source, one image a vector; `misfit/<source>`: what is left of
            |f(x) - t|^2 / |t|^2, shape (n,).

        Raises:
            NotRunError: A black-box or non-differentiable backbone, vectors of another width alone, or too few
                images of the adversary's own for `principal_components`.
            NothingToReadError: Nothing that is sent is, or holds, vectors.
        """
        backbone = _differentiable(knowledge)
        seen = (
            *sources(view, knowledge.seeds.numpy("sources")),
            *_summed(view),
            *self._directions(view),
            *knowledge.recovered,
        )
        network, usable = _Network.of(backbone), _usable(seen, backbone.width)
        if not usable and (body := _Network.of_public_body(view, backbone, knowledge)) is not None:
            network, usable = body, _usable(seen, body.width)
        if not usable:
            needed = "features, mixtures, class means, class sums or second moments"
            raise no_vectors(seen, backbone.width, needed)
        made, misfits, notes = [], {}, []
        for source in usable:
            part = source.limited(self.max_vectors, knowledge.seeds)
            if len(part.vectors) < len(source.vectors):
                notes.append(
                    f"{source.name}: {len(part.vectors)} of {len(source.vectors)} vectors drawn at random"
                )
            images, misfits[f"misfit/{source.name}"] = self._invert(part, network, knowledge)
            made.append(Reconstruction(part, images[:, None]))
        return AttackResult("feature_inversion", reconstructions=tuple(made), scores=misfits, notes=tuple(notes))

    def _invert(
        self, source: VectorSource, network: _Network, knowledge: Knowledge
    ) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
        """Images of a source's vectors and the misfit left; kept, since controls ask for the same again."""
        schedule = schedule_named(self.preset, leak=self.leak)
        if self.steps is not None:
            schedule = replace(schedule, steps=self.steps)
        wanted = Wanted(source.vectors, _only_directions(source, network))
        own = self._own_images(knowledge)
        seed = knowledge.seeds.integer("start", source.name)

        def build() -> dict[str, NDArray[Any]]:
            with knowledge.progress.step(f"inverting {source.name}") as advance:
                images, misfit = invert(
                    network.module,
                    wanted,
                    network.image_shape,
                    prior=Prior(self.family, self.weight, own),
                    schedule=schedule,
                    seed=seed,
                    device=knowledge.device,
                    progress=advance,
                )
            return {"images": images, "misfit": misfit}

        key: Key = {
            "of": "feature inversion",
            "vectors": digest_arrays({"vectors": wanted.vectors, "directions": wanted.directions}),
            "own": "" if own is None else digest_arrays({"images": own}),
            "network": network.fingerprint,
            "settings": f"{schedule} {self.family} {self.weight} {network.image_shape}",
            "seed": seed,
            "device": knowledge.device,
            "code": code_digest(),
        }
        kept = cached_arrays(key, build)
        return kept["images"], kept["misfit"]

    def _own_images(self, knowledge: Knowledge) -> Images | None:
        """The adversary's own images, where the family takes them."""
        if self.family != "principal_components":
            return None
        if knowledge.attacker is None or len(knowledge.attacker) < 2:
            raise NotRunError(
                "family principal_components needs images of the adversary's own: give data.split.attacker some "
                "records, or take family spectrum",
                role="attacker",
                held=0 if knowledge.attacker is None else len(knowledge.attacker),
                needed=2,
            )
        return knowledge.attacker.images

    def _directions(self, view: View) -> Iterator[VectorSource]:
        """The leading eigenvectors of every second moment, with the sign that makes their sum positive."""
        vectors: list[Floats] = []
        senders: list[str] = []
        for message in view.from_clients():
            gram = gram_of(message, view.classes)
            if gram is None or self.directions == 0:
                continue
            count = min(self.directions, measure(gram).rank)
            leading = np.linalg.eigh(gram.second)[1][:, ::-1][:, :count].T
            vectors += list(leading * np.where(leading.sum(axis=1, keepdims=True) < 0, -1.0, 1.0))
            senders += [message.sender] * count
        if vectors:
            none = np.full(len(vectors), -1)
            yield VectorSource(DIRECTIONS, np.asarray(vectors, np.float32), none, tuple(senders), none)


@dataclass(frozen=True)
class _Network:
    """The network of a descent.

    Attributes:
        module: Float images in [0, 1], (n, channels, H, W), to features (n, width).
        width: Number of features.
        image_shape: Height, width and channels.
        longer: Whether the feature of a grey image is longer than 2.
        fingerprint: Content hash of its layers and weights.
    """

    module: nn.Module
    width: int
    image_shape: tuple[int, int, int]
    longer: bool
    fingerprint: str

    @classmethod
    def of(cls, backbone: Backbone) -> _Network:
        grey = np.full((1, *backbone.image_shape), 128, np.uint8)
        longer = float(np.linalg.norm(backbone.extract(grey))) > 2
        return cls(backbone.module, backbone.width, backbone.image_shape, longer, backbone.fingerprint)

    @classmethod
    def of_public_body(cls, view: View, backbone: Backbone, knowledge: Knowledge) -> _Network | None:
        """The body that all clients have and that everybody can train; None where there is none."""
        rng = knowledge.seeds.numpy("bodies alike")
        noise = rng.integers(256, size=(_COMPARED, *backbone.image_shape), dtype=np.uint8)
        body = public_body(view, noise)
        if body is None or body.network is None:
            return None
        # Bodies are the method's own and may be trained further in the run, so that the attack takes a copy.
        module = copy.deepcopy(body.network).requires_grad_(False).eval()
        weights = digest_arrays({name: part.cpu().numpy() for name, part in module.state_dict().items()})
        width = body.vectors(noise).shape[1]
        return cls(module, width, backbone.image_shape, longer=False, fingerprint=f"{module} {weights}")


def _usable(seen: Sequence[VectorSource], width: int) -> list[VectorSource]:
    """Return the sources in a feature space, without vectors of 0."""
    kept = (_without_zeros(source) for source in in_space(seen, width))
    return [part for part in kept if len(part.vectors)]


def _summed(view: View) -> Iterator[VectorSource]:
    """Class sums with hidden counts: over the counts that other fields give away, else their direction."""
    vectors: list[Floats] = []
    labels: list[int] = []
    senders: list[str] = []
    for message in view.from_clients():
        sums, order = _bare_sums(message, view.classes)
        known = known_counts(message, view.classes) if len(sums) else None
        for row, total in enumerate(sums):
            count = 1.0 if known is None else float(np.rint(known[0][row]))
            if count >= 1:
                vectors.append(total / count)
                labels.append(int(order[row]))
                senders.append(message.sender)
    if vectors:
        none = np.full(len(vectors), -1)
        yield VectorSource(SUMS, np.asarray(vectors, np.float32), np.array(labels), tuple(senders), none)


def _bare_sums(message: Message, classes: int) -> tuple[Floats, NDArray[np.int64]]:
    """Class sums that come without counts or means, and their classes."""
    own = statistics_of(message, classes)
    if own.sums is None or own.counts is not None or message.of_kind("class_means") is not None:
        return np.zeros((0, 0)), np.zeros(0, np.int64)
    return own.sums, own.order


def _without_zeros(source: VectorSource) -> VectorSource:
    """Remove vectors of 0, the feature of an absent class, and vectors that are not finite."""
    usable = np.isfinite(source.vectors).all(axis=1) & (np.linalg.norm(source.vectors, axis=1) > 0)
    return source.take(np.flatnonzero(usable))


def _only_directions(source: VectorSource, network: _Network) -> NDArray[np.bool_]:
    """Whether each vector gives a feature's direction alone: sums, eigenvectors, and features clipped to norm 1.

    Clipping is part of a method's public description; a network with longer features shows that it was applied.
    """
    if source.name in {DIRECTIONS, SUMS}:
        return np.ones(len(source.vectors), np.bool_)
    return np.asarray(network.longer & (np.linalg.norm(source.vectors, axis=1) <= _UNIT))


def _differentiable(knowledge: Knowledge) -> Backbone:
    """The backbone, if gradients through it are allowed and exist.

    Raises:
        NotRunError: Black-box, none, or no gradient reaches the image.
    """
    backbone = knowledge.backbone
    if backbone is None:
        raise NotRunError("no backbone: the features are those of networks that the adversary does not hold")
    if not knowledge.white_box:
        raise NotRunError("the threat model is black_box: inversion needs gradients through the backbone")
    height, width, channels = backbone.image_shape
    image = (
        torch.rand((1, channels, height, width), generator=torch.Generator().manual_seed(0))
        .to(backbone.device)
        .requires_grad_()
    )
    reason = "no gradient of the features reaches the image"
    try:
        with torch.enable_grad(), LeakyBackward(0.1):
            features = backbone.module(image)
            (gradient,) = torch.autograd.grad(features.square().sum(), image)
        if bool(torch.isfinite(gradient).all()) and bool((gradient != 0).any()):
            return backbone
    # PyTorch's error for an operation without a derivative.
    except (RuntimeError, NotImplementedError) as error:
        if is_of_the_machine(error):
            raise
        reason = str(error).partition("\n")[0]
    raise NotRunError(f"backbone {backbone.name} is not differentiable: {reason}")
