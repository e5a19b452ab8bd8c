"""Feature-like vectors that messages give away, whatever method sent them.

Reconstruction attacks work on any vector that lives in feature space. This module reads them from
the kinds of a message's fields: features as they are, samples of mixtures, class means. An attack
may offer more (features recovered by algebra), as a `VectorSource` of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedassay.exchange.blocks import OfImages
from fedassay.exchange.counts import MAX_DRAWN, thinned, whole
from fedassay.exchange.kinds import facts_of, vector_kinds
from fedassay.exchange.transcript import Message
from fedassay.exchange.view import View
from fedassay.mixtures import Family, Mixtures, from_transport, sample_mixtures
from fedassay.support.errors import NothingToReadError, NotRunError, OtherFeaturesError
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images, Ints

VECTORS: tuple[str | tuple[str, ...], ...] = (
    "vectors",
    ("mixture_means", "mixture_covariances"),
    ("class_sums", "class_counts"),
)
"""Kinds of fields that hold vectors of feature space, or give them together; `sources` reads these."""

_OF_SEVERAL = frozenset({"mixture_samples", "class_sums", "gram_directions"})


def offered(source: str) -> bool:
    """Whether a source is read from messages as it is; vectors of others were recovered by an attack."""
    return source == "raw" or source in _OF_SEVERAL or source in vector_kinds()


def between(source: str) -> bool:
    """Whether its vectors are no record's own feature, but something between several."""
    return source == "strongest_direction" or (offered(source) and source != "raw")


@dataclass(frozen=True)
class VectorSource:
    """Vectors in feature space and where they come from.

    Attributes:
        name: `raw`, `mixture_samples`, `class_means`, or the name of the attack that recovered them.
        vectors: Shape (n, d), float32.
        labels: Class of each vector, shape (n,), -1 where unknown.
        senders: Sender of each vector, length n.
        rows: Position in the sender's own record order where the vector is the encoding of that very
            record, shape (n,); -1 where there is no such record.
    """

    name: str
    vectors: Floats
    labels: Ints
    senders: tuple[str, ...]
    rows: Ints

    @property
    def paired(self) -> bool:
        """Whether every vector is the encoding of one known record."""
        return bool((self.rows >= 0).all())

    def of_senders(self, names: Iterable[str]) -> dict[str, Ints]:
        """Positions of the vectors of each of these senders, none where it has no vector."""
        # Sorted once: a search of all vectors for each sender takes the square of their number.
        found: dict[str, list[int]] = {name: [] for name in names}
        for row, sender in enumerate(self.senders):
            if sender in found:
                found[sender].append(row)
        return {name: np.array(rows, np.int64) for name, rows in found.items()}

    def take(self, indices: Ints) -> VectorSource:
        """The vectors at `indices`."""
        senders = tuple(self.senders[i] for i in indices)
        return VectorSource(self.name, self.vectors[indices], self.labels[indices], senders, self.rows[indices])

    def limited(self, most: int | None, seeds: Seeds) -> VectorSource:
        """At most so many of the vectors, drawn without their order; None: all."""
        size = len(self.vectors)
        if most is None or size <= most:
            return self
        return self.take(np.sort(seeds.numpy("limit", self.name).permutation(size)[:most]))


def sources(view: View, rng: np.random.Generator) -> tuple[VectorSource, ...]:
    """Every feature-like source in a view; mixtures are sampled as often as their counts say."""
    found: dict[str, list[VectorSource]] = {}
    for message in view.from_clients():
        for source in _of_message(message, view.classes, rng):
            found.setdefault(source.name, []).append(source)
    return tuple(concatenated(parts) for parts in found.values())


def _of_message(message: Message, classes: int, rng: np.random.Generator) -> list[VectorSource]:
    found = []
    ids = message.of_kind("class_ids")
    order = np.arange(classes) if ids is None else ids.astype(np.int64)
    features = message.of_kind("features")
    if features is not None:
        labels = message.of_kind("labels")
        known = np.full(len(features), -1) if labels is None else labels
        found.append(_source("raw", features, known, message.sender, np.arange(len(features))))
    mixtures = message_mixtures(message)
    if mixtures is not None:
        vectors, groups = sample_mixtures(mixtures, thinned(mixtures.counts, MAX_DRAWN), rng)
        found.append(_source("mixture_samples", vectors, order[groups], message.sender, None))
    by_class = [
        item for item in message.fields.values() if facts_of(item.kind).vectors and item.kind != "features"
    ]
    found += [_source(item.kind, item.values, order, message.sender, None) for item in by_class]
    counts, sums = message.of_kind("class_counts"), message.of_kind("class_sums")
    if message.of_kind("class_means") is None and sums is not None and counts is not None:
        kept = counts > 0.5  # a noised count below one half says that the class is absent
        means = sums[kept] / counts[kept, None]
        found.append(_source("class_means", means, order[kept], message.sender, None))
    return found


def in_space(seen: Sequence[VectorSource], width: int) -> tuple[VectorSource, ...]:
    """Sources of a feature space, without the constant that ridge regression puts beside features.

    Args:
        seen: Sources of vectors (n, d).
        width: Of the space. Where d is wider by one, the feature that is left off is the first if it is 1 in every
            vector (FedLog), else the last (Fed3R), which noise hides.
    """
    found = (_without_constant(source, width) for source in seen if source.vectors.ndim == 2)
    return tuple(source for source in found if len(source.vectors) and source.vectors.shape[1] == width)


def _without_constant(source: VectorSource, width: int) -> VectorSource:
    vectors = source.vectors
    if not len(vectors) or vectors.shape[1] != width + 1:
        return source
    first = bool(np.allclose(vectors[:, 0], 1, atol=1e-3))
    return replace(source, vectors=vectors[:, 1:] if first else vectors[:, :-1])


def public_bodies(view: View) -> tuple[OfImages, ...]:
    """Return the networks that clients of a view sum up, where everybody can compute them; one a field."""
    if view.enters is None:
        return ()
    return tuple(
        block.of
        for message in view.from_clients()
        for block in view.enters(message, view.classes)
        if block.power == 1 and isinstance(block.of, OfImages)
    )


def public_body(view: View, images: Images) -> OfImages | None:
    """Return the one network that all clients sum up; None where there is none, or where theirs differ.

    Args:
        view: The messages.
        images: On which all of them have to agree, shape (n, H, W, channels).
    """
    made = public_bodies(view)
    if not made or any(not np.array_equal(each.vectors(images), made[0].vectors(images)) for each in made[1:]):
        return None
    return made[0]


def other_features(view: View, width: int) -> str:
    """Return the reason why a view's vectors are no features of a backbone of this width; empty where they may be.

    One constant feature beside those of the backbone is none of another network.
    """
    found = {
        item.values.shape[1]
        for message in view.from_clients()
        for item in message.fields.values()
        if item.values.ndim == 2 and (_wide(item.kind) or item.kind == "mixture_means")
    }
    return "" if not found or found & {width, width + 1} else _of_others(found, width)


def _wide(kind: str) -> bool:
    facts = facts_of(kind)
    return facts.wide or facts.vectors


def _of_others(widths: Collection[int], width: int) -> str:
    other = ", ".join(map(str, sorted(widths)))
    return f"the vectors that are sent have width {other}, and the backbone's features {width}"


def no_vectors(seen: Sequence[VectorSource], width: int, needed: str) -> NotRunError:
    """Error for an attack on features without input: no vectors are sent, or they are of another width.

    Where no field with vectors is sent the attack does not apply. Vectors of another width are features of
    networks that the adversary does not hold, and noise may leave no class with records: then the attack was not
    tried, and that is no answer.

    Args:
        seen: The sources of vectors.
        width: Of the backbone's features.
        needed: The fields with vectors, in words.
    """
    if not seen:
        return NothingToReadError(f"the view holds no vectors: {needed} are needed")
    widths = {source.vectors.shape[1] for source in seen if len(source.vectors)}
    if not widths:
        return NotRunError(f"the view holds no vectors that noise left: {needed} are needed")
    return OtherFeaturesError(_of_others(widths, width))


def message_mixtures(message: Message) -> Mixtures | None:
    """The mixtures that a message holds, one per entry of `class_ids`, valid again after rounding; or None.

    Noised counts are rounded and raised to 0; without `component_counts` every class has one component.
    """
    means = message.of_kind("mixture_means")
    covariances = message.of_kind("mixture_covariances")
    if means is None or covariances is None:
        return None
    size, width = means.shape
    parts = message.of_kind("component_counts")
    components = np.ones(size, np.int64) if parts is None else parts.astype(np.int64)
    weights = message.of_kind("mixture_weights")
    counts = message.of_kind("class_counts")
    records = np.zeros(len(components), np.int64) if counts is None else whole(counts)
    family: Family = "full"
    if covariances.ndim == 1:
        family = "spherical"
    elif covariances.shape[1] == width:
        family = "diag"
    return from_transport(
        family, components, records, np.ones(size) if weights is None else weights, means, covariances
    )


def _source(name: str, vectors: Floats, labels: Ints, sender: str, rows: Ints | None) -> VectorSource:
    size = len(vectors)
    where = np.full(size, -1) if rows is None else rows
    return VectorSource(
        name,
        np.asarray(vectors, np.float32),
        np.asarray(labels, np.int64),
        (sender,) * size,
        np.asarray(where, np.int64),
    )


def concatenated(parts: Sequence[VectorSource]) -> VectorSource:
    """Vectors of one source from several messages, in their order."""
    return VectorSource(
        parts[0].name,
        np.concatenate([part.vectors for part in parts]),
        np.concatenate([part.labels for part in parts]),
        tuple(sender for part in parts for sender in part.senders),
        np.concatenate([part.rows for part in parts]),
    )
