"""Whether the arrays of a message are what their kinds say: shapes, types, and numbers that index something.

Attacks and audits rely on it. What is refused here cannot make them fail, or make them allocate more than the
message itself is large: a label of 10^12, a class list that names a class twice, a class without a component.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.kinds import facts_of
from fedassay.support import limits

if TYPE_CHECKING:
    from fedassay.exchange.message import Message

MAX_COUNT = 1e9
"""Records a class; a larger number is no count."""

MAX_BLOCKS = 1 << 27
"""Classes times features: sums of the few classes that a message names are spread over all of them."""


def shape_problem(message: Message, classes: int) -> str | None:
    """Return a contradiction of the table of kinds in a message, or None."""
    return next(_problems(message, classes), None)


def declared_problem(what: str, kind: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str | None:
    """Return a contradiction of the table of kinds in a declared array, before that is read; or None.

    Args:
        what: The field, for the message.
        kind: Its kind.
        shape: As declared.
        dtype: As declared.
    """
    if dtype.kind not in "fiub":
        return f"{what} has type {dtype}; it must be of floats, integers or booleans"
    facts = facts_of(kind)
    if facts.sides is not None and len(shape) != facts.sides:
        return f"{what} has shape {shape}; it must have {facts.sides} sides"
    if facts.whole and dtype.kind not in "iu":
        return f"{what} must be integers, given {dtype}"
    width = shape[-1] if shape else 0
    if len(shape) < facts.square:
        width = math.isqrt(2 * width)  # a packed lower triangle
    if facts.square and width > limits.WIDTH:
        return f"{what} has shape {shape}, which is of width {width:,}; allowed: {limits.WIDTH:,}"
    return None


def _problems(message: Message, classes: int) -> Iterator[str]:
    for name, item in message.fields.items():
        problem = declared_problem(f"field {name!r} ({item.kind})", item.kind, item.shape, item.dtype)
        if problem is not None:
            yield problem
    yield from _indices(message, classes)
    yield from _lengths(message, classes)
    yield from _widths(message, classes)
    yield from _weights(message)


def _weights(message: Message) -> Iterator[str]:
    """Of what its class holds, every component's share is one of: together they are more than nothing."""
    parts, weights = message.of_kind("component_counts"), message.of_kind("mixture_weights")
    if weights is None or weights.ndim != 1:
        return
    sizes = np.ones(len(weights), np.int64) if parts is None else parts.astype(np.int64).ravel()
    # Sizes that do not fit are said by their lengths.
    if sizes.size and sizes.min() > 0 and int(sizes.sum()) == len(weights):
        raised = np.maximum(weights.astype(np.float64), 0.0)
        whole = np.add.reduceat(raised, np.concatenate([[0], np.cumsum(sizes)[:-1]]))
        if not (whole > 0).all():
            yield f"mixture_weights of a class must add up to more than 0, given {whole[~(whole > 0)][0]:g}"


def _indices(message: Message, classes: int) -> Iterator[str]:
    for kind in ("class_ids", "labels"):
        values = message.of_kind(kind)
        if values is not None and values.size and (values.min() < 0 or values.max() >= classes):
            yield f"{kind} must lie in 0..{classes - 1}, given {values.min()}..{values.max()}"
    ids = message.of_kind("class_ids")
    if ids is not None and len(np.unique(ids)) != ids.size:
        yield "class_ids name a class twice"
    components = message.of_kind("component_counts")
    if components is not None and components.size and components.min() < 1:
        yield f"component_counts must be at least 1, given {components.min()}"
    counts = message.of_kind("class_counts")
    if counts is not None and counts.size and float(np.abs(counts.astype(np.float64)).max()) > MAX_COUNT:
        yield f"class_counts must be at most {MAX_COUNT:g}, given {np.abs(counts.astype(np.float64)).max():g}"


def _lengths(message: Message, classes: int) -> Iterator[str]:
    """The first side: records, classes in the message, or mixture components."""
    ids = message.of_kind("class_ids")
    present = classes if ids is None else int(ids.size)
    parts, rows = message.of_kind("component_counts"), message.of_kind("features")
    means = message.of_kind("mixture_means")
    components = None if means is None else len(means)
    components = components if parts is None else int(parts.astype(object).sum())
    expected = {
        "classes": present,
        "components": components,
        "records": None if rows is None else int(rows.shape[0]),
    }
    for name, item in message.fields.items():
        wanted, values = expected.get(facts_of(item.kind).first), item.values
        if wanted is not None and (values.ndim == 0 or values.shape[0] != wanted):
            yield f"field {name!r} ({item.kind}) has shape {values.shape}; its first side must be {wanted}"
    # One component a class is understood where nothing else is said.
    if components is not None and parts is None and components != present:
        yield f"{components} mixture components for {present} classes, and no component_counts"


def _widths(message: Message, classes: int) -> Iterator[str]:
    """The feature width, which all sums, means and moments of a message share."""
    held: dict[str, NDArray[Any]] = {item.kind: item.values for item in message.fields.values()}
    wide = [values.shape[1] for kind, values in held.items() if facts_of(kind).wide]
    width = wide[0] if wide else None
    if width is not None and width * classes > MAX_BLOCKS:
        yield f"class sums or means of width {width} for {classes} classes; at most {MAX_BLOCKS} numbers in all"
    if any(other != width for other in wide):
        yield "class sums, means or ridge weights of different widths in one message"
    yield from _moments(held, width)
    matrix, phases = held.get("projection"), held.get("phases")
    if matrix is not None and phases is not None and matrix.shape[1] != len(phases):
        yield f"phases have shape {phases.shape}; beside a projection of width {matrix.shape[1]}: one each"
    yield from _covariances(held)


def _moments(held: Mapping[str, NDArray[Any]], width: int | None) -> Iterator[str]:
    """Second moments, in all and by class, beside sums or means of a width; None: there are none."""
    for kind, moment in held.items():
        if facts_of(kind).square != 2:
            continue
        square = moment.ndim == 2 and moment.shape[0] == moment.shape[1]
        side = moment.shape[0] if square else _triangular(moment)
        if side is None:
            yield f"{kind} has shape {moment.shape}; it must be (d, d), or d(d+1)/2 packed entries"
        elif width is not None and side != width:
            yield f"{kind} is of width {side}, the class sums or means of width {width}"
    moments = held.get("class_second_moments")
    if moments is not None and width is not None:
        rows = len(moments)
        allowed = ((rows, width, width), (rows, width * (width + 1) // 2), (rows, width))
        if moments.shape not in allowed:
            listed = " or ".join(map(str, allowed))
            yield f"class_second_moments have shape {moments.shape}; of this width: {listed}"


def _covariances(held: Mapping[str, NDArray[Any]]) -> Iterator[str]:
    """Covariances beside the means that they belong to."""
    for covariances, means in (("class_covariances", "class_means"), ("mixture_covariances", "mixture_means")):
        if covariances in held and means in held:
            rows, d = held[means].shape
            shapes = _packed(rows, d) if means == "mixture_means" else ((rows, d, d), *_packed(rows, d))
            if held[covariances].shape not in shapes:
                listed = " or ".join(map(str, shapes))
                yield f"{covariances} have shape {held[covariances].shape}; beside these {means}: {listed}"


def _packed(n: int, d: int) -> tuple[tuple[int, ...], ...]:
    """Lower triangles, diagonals, or one variance each."""
    return (n, d * (d + 1) // 2), (n, d), (n,)


def _triangular(values: NDArray[Any]) -> int | None:
    """The side d where there are d(d+1)/2 entries in one row, else None."""
    if values.ndim != 1:
        return None
    d = int((np.sqrt(8 * values.size + 1) - 1) / 2)
    return d if d * (d + 1) // 2 == values.size else None
