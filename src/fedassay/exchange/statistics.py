"""Information in the arithmetic of a message besides vectors: a linter of transcripts.

Every rule looks at one message, or at all of them, and states a consequence in one sentence. None needs the method
that wrote the message, learns anything, or takes longer than an eigendecomposition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedassay.exchange.gram import Gram, measure
from fedassay.exchange.message import AGGREGATE, Message, MessageField, any_protected
from fedassay.exchange.ridge import regularised, square, sums_from_weights
from fedassay.mixtures.packed import unpack_lower
from fedassay.support.types import Bools, Floats, Ints, Matrix

_BY_CHANCE = 0.01
"""Columns of class sums that may be expected to hold whole numbers without being counts."""
_RESOLVED = 1e3
"""A type that is so much finer than the noise on a field leaves less than one entry in a thousand at 0."""
_RIDGED = ("regularised_gram", "inverse_gram")
"""Kinds of second moments that hold a ridge."""


@dataclass(frozen=True)
class Remark:
    """One thing that follows from a message.

    Attributes:
        rule: Name of the rule.
        sender: The sender of the message.
        field: The field it was seen in; several are joined by " and ".
        values: The numbers that were derived (counts, a rank), shape (k,).
        text: One sentence.
        discloses: Whether it reveals something that the fields do not state themselves, or breaks a protection.
    """

    rule: str
    sender: str
    field: str
    values: Matrix
    text: str
    discloses: bool


@dataclass(frozen=True)
class Statistics:
    """The sums of a message, in float64, where it has them.

    Attributes:
        order: Classes that the blocks speak of, shape (P,).
        counts: Records per class, shape (P,), or None.
        sums: Class sums, shape (P, d), or None; means times counts where only these were sent.
        second: Second moment, shape (d, d), or None.
    """

    order: Ints
    counts: Matrix | None
    sums: Matrix | None
    second: Matrix | None


def statistics_of(message: Message, classes: int) -> Statistics:
    """Read the sums that a message holds."""
    ids, counts = message.of_kind("class_ids"), message.of_kind("class_counts")
    sums, means = message.of_kind("class_sums"), message.of_kind("class_means")
    if sums is None and means is not None and counts is not None:
        sums = means * counts[:, None]
    second = message.of_kind("second_moment")
    return Statistics(
        np.arange(classes) if ids is None else ids.astype(np.int64),
        None if counts is None else counts.astype(np.float64),
        None if sums is None else sums.astype(np.float64),
        None if second is None else square(second),
    )


def roundoff(values: Floats) -> float:
    """Unit roundoff of the type of an array; 0 for integers."""
    return float(np.finfo(values.dtype).eps) / 2 if values.dtype.kind == "f" else 0.0


def noise_of(item: MessageField) -> float:
    """Declared standard deviation of the Gaussian noise on a field; 0 where none is declared."""
    scales = item.release.noise_scale if item.release.mechanism == "gaussian" else None
    return 0.0 if scales is None else float(max(scales))


def field_of(message: Message, kind: str) -> tuple[str, MessageField] | None:
    """Name and field of the first field of a kind."""
    return next(((name, item) for name, item in message.fields.items() if item.kind == kind), None)


def gram_of(message: Message, classes: int, gamma: float | None = None) -> Gram | None:
    """The second moment of a message with the sums and counts beside it, or None where it has none.

    Args:
        message: It may send the second moment as it is, or regularised, or the inverse of that.
        classes: Number of classes C.
        gamma: The ridge of a regularised moment; None: as the moment itself gives it, and None is returned where
            it gives no more than an upper bound.
    """
    found, own = field_of(message, "second_moment"), statistics_of(message, classes)
    if found is not None and own.second is not None:
        item = found[1]
        return Gram(own.second, own.sums, own.counts, own.order, roundoff(item.values), noise_of(item))
    ridge = regularised(message)
    if ridge is None or (gamma is None and not ridge.certain):
        return None
    sums = own.sums if own.sums is not None else sums_from_weights(message, ridge.second)
    noise = max((noise_of(item) for item in message.fields.values() if item.kind in _RIDGED), default=0.0)
    plain = ridge.without(ridge.gamma if gamma is None else gamma)
    return Gram(plain, sums, own.counts, own.order, ridge.unit, noise)


def known_counts(message: Message, classes: int) -> tuple[Matrix, str] | None:
    """Records per class (P,) as sent or as derived from other fields, and how; None where nothing says.

    `sent`; `second_moment`: A_c B^+ A_c^T; `constant_feature`: FedLog's first feature is 1 for every record.
    """
    own = statistics_of(message, classes)
    if own.counts is not None:
        return own.counts, "sent"
    gram = gram_of(message, classes)
    if gram is not None:
        size = measure(gram)
        if size.counted == "from_sums":
            return size.counts.astype(np.float64), "second_moment"
    sent = field_of(message, "class_sums") or field_of(message, "class_means")
    column = None if own.sums is None or sent is None else _constant_column(own.sums, roundoff(sent[1].values))
    if own.sums is not None and column is not None:
        return own.sums[:, column].copy(), "constant_feature"
    return None


def _constant_column(sums: Matrix, rounding: float) -> int | None:
    """A column of class sums that holds whole numbers, as a feature that is 1 everywhere gives.

    Args:
        sums: Shape (P, d).
        rounding: Unit roundoff of the type that they were sent in.

    Returns:
        Its position; None where there is none, or where a column of another feature may well be whole by chance:
        large numbers are whole in any type, and the coarser the type, the smaller they may be.
    """
    whole = (np.abs(sums - np.rint(sums)) < 1e-6) & (sums > -0.5)
    candidates = np.flatnonzero(whole.all(axis=0) & (sums.sum(axis=0) > 0))
    chance = np.where(sums == 0, 1.0, np.clip(2 * rounding * np.abs(sums), 2e-6, 1.0)).prod(axis=0)
    if float(chance[sums.any(axis=0)].sum()) > _BY_CHANCE:
        return None
    # Sums of other features are whole by chance in one column, or in all where features are whole.
    return int(candidates[0]) if len(candidates) == 1 else None


def without_spread(covariances: Floats, means: Matrix) -> Bools:
    """Whether each covariance is that of a single record: 0, or the regularisation that all share and no more.

    Args:
        covariances: In any of a message's forms: (S, d, d), (S, d(d+1)/2), (S, d) or (S,).
        means: Shape (S, d).

    Returns:
        Shape (S,). A multiple of the identity counts as regularisation only beside covariances that are none and
        have no smaller eigenvalue: spherical covariances are multiples of it whatever the records are like.
    """
    width = means.shape[1]
    whole = _full(covariances.astype(np.float64), width)
    # The smallest number above 0 stands for 0 in types that cannot hold smaller variances.
    tiny = 1.01 * _finest(covariances) if covariances.dtype.itemsize == 2 else 0.0
    zero = np.maximum(tiny, 8 * min(roundoff(covariances), 1e-7) * (means**2).max(axis=1, initial=0.0))
    largest = np.abs(whole).reshape(len(whole), -1).max(axis=1, initial=0.0)
    empty = np.asarray(largest <= zero)
    if whole.ndim == 1 or width < 3:
        return empty
    variances = np.diagonal(whole, axis1=1, axis2=2) if whole.ndim == 3 else whole
    level = variances.mean(axis=1)
    apart = np.abs(variances - level[:, None]).max(axis=1)
    if whole.ndim == 3:
        beside = whole * (1 - np.eye(width))
        apart = np.maximum(apart, np.abs(beside).reshape(len(whole), -1).max(axis=1))
    alike = apart <= 8 * max(roundoff(covariances), 1e-12) * level
    others = whole[~alike & ~empty]
    if not len(others) or not alike.any():
        return empty
    floor = float((np.linalg.eigvalsh(others) if whole.ndim == 3 else others).min())
    return np.asarray(empty | (alike & (np.abs(level - floor) <= 1e-2 * floor)))


def _full(covariances: Matrix, width: int) -> Matrix:
    """Covariances as matrices (S, d, d); variances (S, d) or (S,) stay as they are."""
    if covariances.ndim == 2 and covariances.shape[1] != width:
        return unpack_lower(covariances)
    return covariances


def remarks(messages: Sequence[Message], classes: int) -> list[Remark]:
    """Every remark on every message of the clients (the aggregate included), in order."""
    protected = any_protected(messages)
    found = []
    for message in messages:
        for rule in _RULES:
            found += list(rule(message, classes))
        if protected:
            found += list(_unprotected(message))
    return found


def _exact_counts(message: Message, classes: int) -> Iterator[Remark]:
    found = field_of(message, "class_counts")
    if found is None or found[1].release.mechanism != "exact":
        return
    values = found[1].values.astype(np.float64)
    who = "all clients together" if message.sender == AGGREGATE else message.sender
    yield Remark(
        "exact_counts", message.sender, found[0], values, f"records per class of {who} leave exactly", False
    )


def _rank(message: Message, classes: int) -> Iterator[Remark]:
    gram = gram_of(message, classes)
    kinds = ("second_moment", *_RIDGED)
    found = next((each for kind in kinds if (each := field_of(message, kind)) is not None), None)
    if gram is None or found is None:
        return
    size = measure(gram)
    live = int((np.diag(gram.second) > 0).sum())
    # Under noise the eigenvalues that stand out are fewer than the records.
    if 0 < size.rank < live and size.noise == 0:
        text = (
            f"the second moment of {live} active features has rank {size.rank}: there are at least so many records"
        )
        if gram.counts is not None:
            text += ", which the counts say as well"
        yield Remark("rank", message.sender, found[0], np.array([float(size.rank)]), text, gram.counts is None)


def _derived_counts(message: Message, classes: int) -> Iterator[Remark]:
    known = known_counts(message, classes)
    if known is None or known[1] == "sent":
        return
    how = {
        "second_moment": "class sums and second moment together give the records per class, which are not sent",
        "constant_feature": "one feature is 1 for every record: its class sums are the records per class",
    }[known[1]]
    yield Remark("derivable_counts", message.sender, known[1], known[0], how, True)


def _redundant(message: Message, classes: int) -> Iterator[Remark]:
    """Fields that others give: they cost bytes and, where both are noised, privacy."""
    own = statistics_of(message, classes)
    given: list[tuple[str, Matrix, float]] = []
    for kind, values in (("class_sums", own.sums), ("class_counts", own.counts)):
        found = field_of(message, kind)
        if found is not None and values is not None:
            noise = noise_of(found[1]) * float(np.sqrt(len(values)))
            given.append((found[0], np.atleast_1d(values.sum(axis=0)), noise))
    sums, means = field_of(message, "class_sums"), field_of(message, "class_means")
    if sums is not None and means is not None and own.counts is not None:
        product = means[1].values.astype(np.float64) * own.counts[:, None]
        if _same(product, sums[1].values, 1e-2 * roundoff(sums[1].values) ** 0.5):
            text = "class means are class sums over the counts"
            yield Remark("redundant_field", message.sender, means[0], np.zeros(0), text, False)
    for name, item in message.fields.items():
        values = np.atleast_1d(item.values)
        for other, total, noise in given:
            if name == other or values.shape != total.shape or values.dtype.kind not in "iuf":
                continue
            spread = float(np.hypot(noise, noise_of(item)))
            if _same(total, values, 8 * roundoff(item.values)) or (
                0 < spread < 0.2 * float(np.std(total)) and float(np.std(values - total)) < 2 * spread
            ):
                noised = "; noised twice, the two average out" if spread > 0 else ""
                text = f"{name} is the sum of {other} over the classes{noised}"
                yield Remark("redundant_field", message.sender, name, np.zeros(0), text, spread > 0)


def _same(first: Matrix, second: Floats, tolerance: float) -> bool:
    scale = float(np.abs(first).max(initial=0.0))
    return scale > 0 and float(np.abs(first - second).max(initial=0.0)) <= max(tolerance, 1e-12) * scale


def _missing_noise(message: Message, classes: int) -> Iterator[Remark]:
    """Declared noise that is not there: zeros or whole numbers where Gaussian noise leaves none.

    Whoever rounds or clamps what has been noised leaves the same traces and gives nothing away by that; so
    nothing counts as disclosed.
    """
    for name, item in message.fields.items():
        noise, values = noise_of(item), item.values
        if values.size == 0 or values.dtype.kind != "f" or noise < _RESOLVED * _finest(values):
            continue
        exact = float(np.mean(values == 0))
        if exact > 0 and (values >= 0).all():
            why = f"{exact:.0%} of the entries are exactly 0 and none is negative"
        elif exact > 0.01:
            why = f"{exact:.0%} of the entries are exactly 0"
        elif item.kind == "class_counts" and np.array_equal(values, np.rint(values)):
            # Large numbers are whole in any type; only fractions that it can hold can be missed.
            if noise < 0.05 or float(np.spacing(np.abs(values).max())) > 0.01:
                continue
            why = "all counts are whole"
        elif item.kind == "second_moment" and (alike := _alike(values, noise)) is not None:
            why = f"its smallest eigenvalues are alike, at {alike:.2g}, where noise sets eigenvalues apart"
        else:
            continue
        text = f"{name} declares Gaussian noise of scale {noise:.3g}, but {why}: it was left out, or clamped away"
        yield Remark("missing_noise", message.sender, name, np.array([noise]), text, False)


def _finest(values: Floats) -> float:
    """The smallest number above 0 that the type of an array can hold."""
    return float(np.finfo(values.dtype).smallest_subnormal)


def _alike(values: Floats, noise: float) -> float | None:
    """The three smallest eigenvalues of a second moment, where they are one number; else None.

    What a second moment is says nothing of noise that is small beside it. But whatever it is, symmetric noise
    keeps its eigenvalues apart: k of them lie within w of a point with a probability of the order of
    (w sqrt(d) / noise)^k at most (Aizenman et al. 2017, "Matrix regularizing effects of Gaussian perturbations").
    """
    moment = square(values)
    width = len(moment)
    reach = noise / float(np.sqrt(width))
    rounding = 8 * roundoff(values) * float(np.abs(moment).max()) * float(np.sqrt(width))
    if width < 3 or rounding > 1e-2 * reach:
        return None
    lowest = np.linalg.eigvalsh(moment)[:3]
    return float(lowest[0]) if lowest[2] - lowest[0] <= max(1e-3 * reach, rounding) else None


def _unprotected(message: Message) -> Iterator[Remark]:
    for name, item in message.fields.items():
        # Noise that was declared and is not believed is another fault, and the claim's.
        if item.release.mechanism == "exact" and not item.doubted:
            on = item.release.depends_on
            words = "number of records" if on == "size" else on
            text = f"{name} is an exact function of the {words} in a run that noises other fields"
            yield Remark("unprotected_field", message.sender, name, np.zeros(0), text, on == "records")


_RULES: tuple[Callable[[Message, int], Iterator[Remark]], ...] = (
    _exact_counts,
    _derived_counts,
    _rank,
    _redundant,
    _missing_noise,
)
