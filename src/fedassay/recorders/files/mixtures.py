"""Mixtures of Gaussians in files, by the names of scikit-learn and of papers: `means_`, `mu`, `cov`, `pi`.

Weights (P, K) or (K,) that add up to 1 in their last side show a mixture of K components for each of P classes, or
for all records. The means beside them have one side more. Covariances may be whole, diagonal or one number each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.inference.populations import Populations
from fedassay.exchange.kinds import FieldKind, called
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.shapes import shape_problem
from fedassay.exchange.transcript import Transcript
from fedassay.mixtures.packed import pack_lower

_SUM = 1e-2
"""Largest distance from one of the sum of weights that travel in half precision."""
_SIZES = "component_counts"
_ROLES: dict[FieldKind, tuple[FieldKind, ...]] = {
    "mixture_weights": ("mixture_weights",),
    "mixture_means": ("mixture_means", "class_means"),
    "mixture_covariances": ("mixture_covariances", "class_covariances", "variances"),
    "class_counts": ("class_counts",),
}
"""Kinds by which arrays of each kind of a mixture are called."""


def mixtures_of(transcript: Transcript) -> Populations | None:
    """Read messages of mixtures by the names of their arrays; None where they hold none.

    Args:
        transcript: Messages whose fields declare nothing of statistics.
    """
    sent = [message for message in transcript.from_clients() if message.fields]
    found = {id(message): _fields(message) for message in sent}
    read = [fields for fields in found.values() if fields is not None]
    if not sent or len(read) < len(sent):
        return None
    largest = max(len(fields[_SIZES].values) for fields in read)
    classes = transcript.classes if "class_ids" in sent[0].fields else largest
    messages = tuple(
        replace(message, fields=found.get(id(message)) or message.fields) for message in transcript.messages
    )
    if any(message.sender != SERVER and shape_problem(message, classes) for message in messages):
        return None
    names = {item.kind: name for name, item in read[0].items()}
    sizes = read[0][_SIZES].values
    of = f"each of {len(sizes)} classes" if len(sizes) > 1 else "all records together"
    text = (
        f"{names['mixture_means']}, {names['mixture_covariances']} and {names['mixture_weights']} are read as a "
        f"mixture of {sizes[0]} Gaussians for {of}: their names say so, and the weights add up to 1"
    )
    return Populations(
        replace(transcript, classes=classes, messages=messages, notes=(*transcript.notes, text)), text
    )


def _fields(message: Message) -> dict[str, MessageField] | None:
    """Return the fields of a message with a mixture as kinds that attacks read; None where it holds none."""
    names = _names(message)
    if len(names) - ("class_counts" in names) < 3 or _SIZES in message.fields:
        return None
    held = {role: np.asarray(message.fields[name].values, np.float64) for role, name in names.items()}
    weights, means = held["mixture_weights"], held["mixture_means"]
    fits = weights.ndim in (1, 2) and weights.size and means.ndim and means.shape[:-1] == weights.shape
    if not fits or (weights < 0).any() or (np.abs(weights.sum(axis=-1) - 1) > _SUM).any():
        return None
    spreads = _spreads(held["mixture_covariances"], weights.shape, means.shape[-1])
    if spreads is None:
        return None
    sizes = np.full(weights[..., 0].size, weights.shape[-1], np.int64)
    made: dict[FieldKind, NDArray[Any]] = {
        "mixture_weights": weights.ravel(),
        "mixture_means": means.reshape(weights.size, -1),
        "mixture_covariances": spreads,
    }
    fields = dict(message.fields)
    for role, values in made.items():
        item = fields[names[role]]
        typed = values.astype(item.dtype) if item.dtype.kind == "f" else values
        fields[names[role]] = replace(item, kind=role, sent=typed)
    counts = held.get("class_counts")
    if counts is not None and counts.size == len(sizes) and np.array_equal(counts, np.rint(counts)):
        item = fields[names["class_counts"]]
        fields[names["class_counts"]] = replace(item, kind="class_counts", sent=counts.ravel().astype(np.int64))
    return {**fields, _SIZES: replace(fields[names["mixture_weights"]], kind=_SIZES, sent=sizes)}


def _names(message: Message) -> dict[FieldKind, str]:
    """Return the only field of each kind of a mixture; none where a kind has several."""
    names: dict[FieldKind, str] = {}
    for name in message.fields:
        own = name.rpartition("/")[2].casefold()
        kinds = ("mixture_weights",) if own == "weights" else called(name)
        role = next((role for role, known in _ROLES.items() if set(known) & set(kinds)), None)
        if role is not None and names.setdefault(role, name) != name:
            return {}
    return names


def _spreads(values: NDArray[Any], components: tuple[int, ...], width: int) -> NDArray[Any] | None:
    """Return covariances by component, matrices as packed lower triangles; None where they do not fit."""
    if (values.shape == (width, width)) and components != (width,):
        values = np.broadcast_to(values, (*components, width, width))  # one for all components
    inner = values.shape[len(components) :]
    if values.shape[: len(components)] != components or inner not in {(), (width,), (width, width)}:
        return None
    rows = values.reshape(-1, *inner)
    if len(inner) < 2:
        return None if (rows < 0).any() else rows
    near = 1e-3 * float(np.abs(rows).max(initial=0.0))
    return pack_lower(rows) if np.abs(rows - np.swapaxes(rows, -1, -2)).max() <= near else None
