"""Truth joined to inverted images: which records they may show, and whether fresh ones would do as well.

Each image may show certain records: the very record (a raw feature), the records of its sender and class (a class
mean, a recovered feature), all records of its sender (a direction of its second moment). Under the hypothesis that
the images know nothing of those records beyond their classes, records and fresh ones of the same classes are
exchangeable; so the true sets are held against the same sets with their records exchanged for others of the class
(permutation test; Good 2005, chapter 3). It is exact whatever the images look like: best-of-set matching and a
taste for smooth images act on both sides alike.

Where clients have distributions of their own (domains), their records are not exchangeable with fresh ones: any
image of the client's domain is closer to them. `alike` makes such images: of the same clients, of other records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.evidence import NEAR_COPY, ControlResult, LeakTest, by_p_value
from fedassay.audits.stats.permutation import Draws, PermutationTest
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.membership import half_of_each
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.transcript import AGGREGATE
from fedassay.exchange.view import View
from fedassay.similarity.metrics import PSNR_CAP
from fedassay.support.seeds import Seeds
from fedassay.support.types import Bools, Images, Ints, Matrix

_TOGETHER = 2_000_000
"""Places of records in exchanges that are made at once."""
_KEPT = 40
"""Blocks of exchanges that are kept for the next tests of the same records, of 4 MB each."""
_PARTS = 5
"""Sets of fresh records that the baseline is the mean of."""


@dataclass(frozen=True)
class Pool:
    """Private records and fresh ones of the same classes.

    Attributes:
        images: Shape (N, H, W, C), the private ones first.
        labels: Shape (N,).
        features: Features that the method computes of them, shape (N, d).
        private: Number of private ones.
        seed: Names the exchanges of private records for others, which are the same in every test of equal pools.
    """

    images: Images
    labels: Ints
    features: Matrix
    private: int
    seed: int

    @cached_property
    def _labels(self) -> bytes:
        return self.labels.astype(np.int64).tobytes()

    def exchanges(self, slots: Ints, start: int, stop: int) -> Iterator[NDArray[np.unsignedinteger[Any]]]:
        """Exchanges number `start` to `stop` of the records at `slots` for random ones of their classes.

        No two go to the same record. What an exchange is depends on its number alone.

        Returns:
            Blocks of shape (slots, exchanges).
        """
        size = max(1, _TOGETHER // self.private)
        for number in range(start // size, -(-stop // size)):
            first = number * size
            block = _block(self.seed, self._labels, self.private, slots.tobytes(), number, size)
            yield block[:, max(start - first, 0) : stop - first]


@dataclass(frozen=True)
class ImageMatch:
    """Inverted images with the records that they are held against.

    Attributes:
        images: Shape (k, H, W, C).
        vectors: Vectors that they were made from, shape (k, d).
        records: The record of each in the pool, shape (k,).
        psnr: Of each image to its record, shape (k,).
        each: Mean PSNR of each image to all records that it may show, shape (k,).
        fresh: Fresh records in the same place, `_PARTS` times, shape (_PARTS, k).
        fresh_psnr: Mean over them, shape (k,).
        gain: PSNR of each image to its record, over that to fresh ones in the same place, both over what images of
            other records have to them, shape (k,): the mean of this is what the test is about.
        p: One-sided p-value of "no closer to the true records than to others of their classes".
        p_farther: The same of "no farther".
        tests: Tests in the run, which levels are corrected for.
    """

    images: Images
    vectors: Matrix
    records: Ints
    psnr: Matrix
    each: Matrix
    fresh: Ints
    fresh_psnr: Matrix
    gain: Matrix
    p: float
    p_farther: float
    tests: int

    @property
    def test(self) -> LeakTest:
        """The test of whether the images show more of these records than of their classes."""
        return by_p_value(self.p, self.tests, "psnr_gain")

    @property
    def words(self) -> str:
        """The figures that the verdict rests on."""
        return (
            f"PSNR {self.psnr.mean():.2f} dB against {self.fresh_psnr.mean():.2f} for fresh records of the class "
            f"(p = {self.p:.2g}), {len(self.psnr)} images"
        )

    @property
    def is_near_copy(self) -> Bools:
        """Whether each image is a near copy of its record, and not of a fresh one as well, shape (k,)."""
        return (self.psnr > NEAR_COPY) & (self.fresh_psnr <= NEAR_COPY)

    @property
    def near_copies(self) -> int:
        """Number of images that are near copies of their records."""
        return int(self.is_near_copy.sum())

    def control(self, release: str, *, end_to_end: bool = False) -> ControlResult:
        """As a control."""
        gain = float((self.psnr - self.fresh_psnr).mean())
        return ControlResult(
            release,
            detected=self.test.rejects,
            alone=self.test.uncorrected,
            shown=self.words,
            value=gain,
            n=len(self.psnr),
            detail="dB PSNR over fresh records of the class",
            end_to_end=end_to_end,
            gain=gain,
        )


def make_pool(private: Records, fresh: Records, encode: Callable[[Records], Matrix] | None, seed: int) -> Pool:
    """Private and fresh records in one pool; fresh ones of classes that no client holds are left out."""
    kept = fresh.take(np.flatnonzero(np.isin(fresh.labels, private.labels)))
    parts = (private, kept)
    features = [np.asarray(part.features if encode is None else encode(part), np.float64) for part in parts]
    return Pool(
        np.concatenate([part.images for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate(features),
        len(private),
        seed,
    )


def candidates(source: VectorSource, clients: Sequence[Records]) -> list[Ints]:
    """For every vector of a source, the records (in the clients' order) that its image may show."""
    owners = np.concatenate([np.full(len(client), i) for i, client in enumerate(clients)])
    rows = np.concatenate([np.arange(len(client)) for client in clients])
    labels = np.concatenate([client.labels for client in clients])
    numbers = {client.name: i for i, client in enumerate(clients)}
    sets = []
    for sender, row, label in zip(source.senders, source.rows, source.labels, strict=True):
        usable = np.full(len(owners), sender == AGGREGATE) | (owners == numbers.get(sender, -1))
        if row >= 0:
            usable &= rows == row
        elif label >= 0:
            usable &= labels == label
        sets.append(np.flatnonzero(usable))
    return sets


def records_behind(senders: Sequence[str], sets: Sequence[Ints], view: View) -> int:
    """Number of records that images may show: of each sender as many as its messages state.

    Args:
        senders: Of each image.
        sets: The records that each may show.
        view: The messages; where one does not say how many records it is of, all of its sender's count.
    """
    stated: dict[str, int] = {}
    for message in view.from_clients():
        for item in message.fields.values():
            if item.release.depends_on == "size" and item.release.mechanism == "exact" and item.values.size == 1:
                stated[message.sender] = stated.get(message.sender, 0) + int(item.values.reshape(-1)[0])
    shown: dict[str, list[Ints]] = {}
    for sender, part in zip(senders, sets, strict=True):
        shown.setdefault(sender, []).append(part)
    held = {sender: len(np.unique(np.concatenate(parts))) for sender, parts in shown.items()}
    return sum(min(number, stated.get(sender, number)) for sender, number in held.items())


def alike(source: VectorSource, context: AuditContext, rng: np.random.Generator) -> tuple[Ints, list[Ints]]:
    """Images that know what a source's may know of the clients, but nothing of the records they are held against.

    The clients' records are halved, no person over both halves. For each vector, one record of the first half
    stands for its image, of those that this may show (of its sender and class, where it may show a single one),
    and is held against such records of the second half.

    Returns:
        The positions of the records that stand for images, shape (k,), k at most the number of vectors, and for
        each the positions of those that it is held against.
    """
    starts = np.cumsum([0, *(len(client) for client in context.data.clients)])
    first = np.zeros(starts[-1], np.bool_)
    for start, client in zip(starts, context.data.clients, strict=False):
        first[start + half_of_each(client.labels, rng, client.groups)] = True
    images, sets = [], []
    unpaired = replace(source, rows=np.full(len(source.rows), -1))
    for row, part in zip(source.rows, candidates(unpaired, context.data.clients), strict=True):
        shown, held = part[first[part]], part[~first[part]]
        if len(shown) and len(held):
            images.append(int(rng.choice(shown)))
            sets.append(rng.choice(held, 1) if row >= 0 else held)
    return np.array(images, np.int64), sets


@dataclass(frozen=True)
class RecordMatch:
    """Images held against the records that they may show.

    Attributes:
        images: Shape (k, H, W, C).
        vectors: Vectors that they were made from, shape (k, d).
        sets: For each image, positions of private records in the pool; none empty.
        pool: Private and fresh records.
        between: An image shows the closest of its records in PSNR; else that of the closest feature.
    """

    images: Images
    vectors: Matrix
    sets: Sequence[Ints]
    pool: Pool
    between: bool

    @cached_property
    def table(self) -> Matrix:
        """PSNR of every image to every record of the pool, shape (k, N)."""
        return psnr_table(self.images, self.pool.images)

    @cached_property
    def above(self) -> Matrix:
        """PSNR above what images of other records have to the record, shape (k, N)."""
        return _above_others(self.table, self.sets)

    @cached_property
    def padded(self) -> Ints:
        """The sets as a table, -1 where a set has no more, shape (k, largest set)."""
        padded = np.full((len(self.sets), max(len(part) for part in self.sets)), -1)
        for row, part in enumerate(self.sets):
            padded[row, : len(part)] = part
        return padded

    @cached_property
    def _distance(self) -> Matrix:
        features = self.pool.features
        if self.between or self.vectors.shape[1] != features.shape[1]:
            return -self.table
        squares = (self.vectors**2).sum(axis=1)[:, None] + (features**2).sum(axis=1)
        return np.asarray(squares - 2 * self.vectors @ features.T)

    def chosen(self, places: Ints | None = None) -> Ints:
        """The record that each image shows where private records stand for those at `places`.

        Args:
            places: Shape (count, private); None: for themselves, once.

        Returns:
            Shape (count, k).
        """
        columns = (np.arange(self.pool.private)[None] if places is None else places)[:, self.padded]
        # Values at -1 are masked.
        far = np.where(self.padded < 0, np.inf, self._distance[np.arange(len(self.sets))[:, None], columns])
        return np.asarray(np.take_along_axis(columns, far.argmin(axis=2)[..., None], axis=2)[..., 0])

    def observed(self) -> Matrix:
        """Return the values that the test averages, shape (k,)."""
        return np.asarray(self.above[np.arange(len(self.sets)), self.chosen()[0]])

    def exchanged(self, start: int, stop: int) -> Matrix:
        """Return the values that the test averages under exchanges of these numbers, shape (stop - start, k)."""
        order = np.argsort(self._distance, axis=1, kind="stable")
        ranks = np.empty(order.shape, np.min_scalar_type(order.shape[1]))
        np.put_along_axis(ranks, order, np.arange(order.shape[1], dtype=ranks.dtype)[None], axis=1)
        by_rank = np.take_along_axis(self.above, order, axis=1)
        slots = _slots(self.padded)
        own = [np.searchsorted(slots, part) for part in self.sets]
        blocks = []
        for places in self.pool.exchanges(slots, start, stop):
            blocks.append(np.empty((places.shape[1], len(own))))
            for image, part in enumerate(own):
                # The closest of the records that stand for the image's own is the record of the lowest rank.
                closest = ranks[image][places[part]].min(axis=0)
                blocks[-1][:, image] = by_rank[image, closest]
        return np.concatenate(blocks)


def image_match(matched: RecordMatch, rng: np.random.Generator, *, tests: int, draws: int) -> ImageMatch:
    """Hold images against the records that they may show, and against others of the same classes.

    Args:
        matched: The images and their records.
        rng: Draws fresh records in the place of the true ones.
        tests: Tests in the run.
        draws: Permutations at least.
    """
    rows, own = np.arange(len(matched.sets)), matched.chosen()[0]
    table, above = matched.table, matched.above
    value = float(above[rows, own].mean())
    exchanged: list[Matrix] = []

    def drawn(count: int) -> Matrix:
        start = sum(len(part) for part in exchanged)
        exchanged.append(matched.exchanged(start, start + count).mean(axis=1))
        return exchanged[-1]

    n = matched.pool.private, len(matched.pool.labels) - matched.pool.private
    test = PermutationTest.of_some(value, drawn, Draws.of_run(tests, draws), 0.0, n, PSNR_CAP)
    lower = sum(int((part <= value + 1e-9).sum()) for part in exchanged)
    fresh = matched.chosen(_fresh_places(matched.padded, matched.pool, rng))
    return ImageMatch(
        images=matched.images,
        vectors=matched.vectors,
        records=own,
        psnr=table[rows, own],
        each=np.array([float(table[row, part].mean()) for row, part in enumerate(matched.sets)]),
        fresh=fresh,
        fresh_psnr=np.asarray(table[rows, fresh].mean(axis=0)),
        gain=np.asarray(above[rows, own] - above[rows, fresh].mean(axis=0)),
        p=test.p,
        p_farther=(1 + lower) / (1 + sum(len(part) for part in exchanged)),
        tests=tests,
    )


def _above_others(table: Matrix, sets: Sequence[Ints]) -> Matrix:
    """PSNR over what images that show other records have to the same record, shape (k, N).

    Dark or smooth records are close to any image. What is taken off depends on the record alone, whoever holds
    it, so the test stays exact and gains in power. Nothing is taken off where all images show the same records.
    """
    groups = np.unique([part.tobytes() for part in sets], return_inverse=True)[1]
    others = (groups[:, None] != groups).astype(np.float64)
    return np.asarray(table - others @ table / np.maximum(others.sum(axis=1, keepdims=True), 1))


def psnr_table(first: Images, second: Images) -> Matrix:
    """PSNR of all pairs, shape (k, N); data range 255."""
    left, right = (part.reshape(len(part), -1).astype(np.float64) for part in (first, second))
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
    with np.errstate(divide="ignore"):
        values = 10 * np.log10(255.0**2 / (np.maximum(squares, 0) / left.shape[1]))
    return np.asarray(np.minimum(values, PSNR_CAP))


def _slots(padded: Ints) -> Ints:
    """The private records that any image may show, rising."""
    return np.unique(padded[padded >= 0])


@lru_cache(maxsize=_KEPT)
def _block(
    seed: int, labels: bytes, private: int, slots: bytes, number: int, size: int
) -> NDArray[np.unsignedinteger[Any]]:
    """Block `number` of exchanges: for every slot a random record of its class, no two the same.

    Returns:
        Shape (slots, size).
    """
    classes, involved = np.frombuffer(labels, np.int64), np.frombuffer(slots, np.int64)
    rng = Seeds(seed).numpy("exchanges", number)
    places = np.empty((len(involved), size), np.min_scalar_type(len(classes)))
    for label in np.unique(classes[involved]):
        own = classes[involved] == label
        others = np.flatnonzero(classes == label)
        usable = np.concatenate([involved[own], others[others >= private]])
        places[own] = rng.permuted(np.tile(usable, (size, 1)), axis=1)[:, : own.sum()].T
    return places


def _fresh_places(padded: Ints, pool: Pool, rng: np.random.Generator) -> Ints:
    """Draw a random fresh record of its class for every private one, `_PARTS` times; itself where there is none.

    No two go to the same, unless there are too few.

    Returns:
        Shape (_PARTS, private).
    """
    places = np.tile(np.arange(pool.private), (_PARTS, 1))
    involved = _slots(padded)
    for label in np.unique(pool.labels[involved]):
        slots = involved[pool.labels[involved] == label]
        others = np.flatnonzero(pool.labels == label)
        others = others[others >= pool.private]
        if 0 < len(others) < len(slots):
            places[:, slots] = rng.choice(others, (_PARTS, len(slots)))
        elif len(others):
            places[:, slots] = rng.permuted(np.tile(others, (_PARTS, 1)), axis=1)[:, : len(slots)]
    return places
