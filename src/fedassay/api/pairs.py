"""Reconstructed images compared with the private ones: PSNR, SSIM and LPIPS of pairs, and chance.

Pairs are matched, where the original of each image is known, or assigned: one to one, so that the sum of SSIM is
largest (Kuhn, "The Hungarian method for the assignment problem", 1955). Look-alikes are images that the attacker
has anyway; the one closest to a private image in SSIM is its baseline, which is the hardest.

Two tests by permutation use SSIM. The first shuffles matched pairs: does an image resemble its own original more
than the others? Where look-alikes are given, the second exchanges them with private images: are the reconstructed
images closer to the private ones? A similarity that all images of one kind share makes neither significant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedassay.audits.stats.estimate import Estimate
from fedassay.audits.stats.permutation import gap
from fedassay.audits.stats.typed_intervals import mean_within
from fedassay.contracts.metrics import declared
from fedassay.data.named_images import NamedImages, alike
from fedassay.similarity.metrics import Similarity
from fedassay.similarity.ssim_search import most_similar, ssim_matrix
from fedassay.support.errors import DataError
from fedassay.support.seeds import Seeds

Pairing = Literal["auto", "matched", "assigned"]
"""`auto`: matched by name or number where both sides have the same, else assigned."""

_DRAWS = 9999
_MOST = 20_000
"""Most images a side: the SSIM of all pairs must fit into memory."""


@dataclass(frozen=True)
class Test:
    """A test by permutation.

    Attributes:
        about: The question that it answers.
        value: Mean SSIM, or the difference of two.
        chance: Mean value for permuted images.
        p: One-sided.
        n: Images in it.
    """

    __test__ = False

    about: str
    value: float
    chance: float
    p: float
    n: int


@dataclass(frozen=True)
class PairReport:
    """The results of a comparison of images.

    Attributes:
        how: Description of how images were read and paired.
        private: Numbers of the private images, shape (n,).
        rebuilt: Numbers of the reconstructed images of the same pairs.
        lookalikes: Numbers of the closest look-alikes; None where none were given.
        names: Names of the private image, the reconstructed image and the look-alike of each pair.
        values: Metrics of the pairs, each shape (n,).
        beside: The same for the look-alikes.
        means: Mean of each metric, with its 95 % interval.
        lookalike_means: The same for the look-alikes.
        gains: Mean difference of a reconstructed image and its look-alike.
        tests: Tests by permutation; empty where nothing can be permuted.
        lpips: The LPIPS network, or the reason that LPIPS was not measured.
    """

    how: tuple[str, ...]
    private: NDArray[np.int64]
    rebuilt: NDArray[np.int64]
    lookalikes: NDArray[np.int64] | None
    names: tuple[tuple[str, str, str], ...]
    values: Mapping[str, NDArray[np.float64]]
    beside: Mapping[str, NDArray[np.float64]]
    means: Mapping[str, Estimate]
    lookalike_means: Mapping[str, Estimate]
    gains: Mapping[str, Estimate]
    tests: tuple[Test, ...]
    lpips: str


def compare_pairs(
    private: NamedImages,
    rebuilt: NamedImages,
    lookalikes: NamedImages | None,
    similarity: Similarity,
    pairing: Pairing = "auto",
    seed: int = 0,
) -> PairReport:
    """Hold rebuilt images against private ones.

    Raises:
        DataError: Images of different sizes, too few or too many of them, or names that do not fit each other.
    """
    private, rebuilt, *others = alike([private, rebuilt, *([] if lookalikes is None else [lookalikes])])
    if not 2 <= min(len(private), len(rebuilt)) <= max(len(private), len(rebuilt)) <= _MOST:
        counts = f"{len(private)} private and {len(rebuilt)} rebuilt images"
        raise DataError(f"given {counts}; allowed: 2 to {_MOST:,} of each")
    device = similarity.device
    matrix = ssim_matrix(private.images, rebuilt.images, device=device).astype(np.float64)
    order, said = _matched(private, rebuilt, pairing)
    if order is None:
        rows, columns = linear_sum_assignment(-matrix)
        own, theirs = rows.astype(np.int64), columns.astype(np.int64)
    else:
        own, theirs = np.arange(len(private), dtype=np.int64), order
    values = similarity.measure(private.images[own], rebuilt.images[theirs])
    beside: dict[str, NDArray[np.float64]] = {}
    closest: NDArray[np.int64] | None = None
    rng = Seeds(seed).numpy("similarity", len(own))
    tests = [] if order is None else [_shuffled(matrix[own][:, theirs], rng)]
    if others:
        closest = most_similar(private.images[own], others[0].images, device=device).indices
        beside = similarity.measure(private.images[own], others[0].images[closest])
        if len(others[0]) >= 2:
            tests.append(_exchanged(matrix, others[0], rebuilt, rng, device))
    names = tuple(
        (private.name(a), rebuilt.name(b), "" if closest is None else others[0].name(int(closest[at])))
        for at, (a, b) in enumerate(zip(own.tolist(), theirs.tolist(), strict=True))
    )
    return PairReport(
        how=(*(f"{what}: {each.how}" for what, each in _called(private, rebuilt, others)), f"pairs: {said}"),
        private=own,
        rebuilt=theirs,
        lookalikes=closest,
        names=names,
        values=values,
        beside=beside,
        means={name: _mean(name, part) for name, part in values.items()},
        lookalike_means={name: _mean(name, part) for name, part in beside.items()},
        gains={name: _gain(name, values[name] - part) for name, part in beside.items()},
        tests=tuple(tests),
        lpips=similarity.remark,
    )


def _mean(name: str, values: NDArray[np.float64]) -> Estimate:
    facts = declared(name)
    return mean_within(values, facts.low, facts.high)


def _gain(name: str, values: NDArray[np.float64]) -> Estimate:
    facts = declared(name)
    reach = None if facts.low is None or facts.high is None else facts.high - facts.low
    return mean_within(values, None if reach is None else -reach, reach)


def _called(
    private: NamedImages, rebuilt: NamedImages, others: list[NamedImages]
) -> list[tuple[str, NamedImages]]:
    return [("private", private), ("reconstructed", rebuilt), *(("look-alikes", each) for each in others)]


def _matched(private: NamedImages, rebuilt: NamedImages, pairing: Pairing) -> tuple[NDArray[np.int64] | None, str]:
    """Of each private image the number of the rebuilt one, and how that is known; None: to be assigned.

    Raises:
        DataError: Names or numbers do not fit each other.
    """
    if pairing == "assigned":
        return None, "assigned one to one, by the largest sum of SSIM"
    first, second = _stems(private), _stems(rebuilt)
    if first and second:
        shared = set(first) & set(second)
        if shared == set(first) == set(second):
            place = {stem: at for at, stem in enumerate(second)}
            return np.array([place[stem] for stem in first], np.int64), "matched by the names of files"
        if shared or (pairing == "matched" and len(first) != len(second)):
            raise DataError(
                f"{len(shared)} of {len(first)} private and {len(second)} reconstructed images share a name; "
                f"allowed: the same names on both sides, or images that are assigned (pairs: assigned)"
            )
    if len(private) == len(rebuilt):
        return np.arange(len(private), dtype=np.int64), "matched by their order"
    if pairing == "matched":
        raise DataError(
            f"{len(private)} private and {len(rebuilt)} reconstructed images; allowed: as many on both sides, or "
            "images that are assigned (pairs: assigned)"
        )
    return None, "assigned one to one, by the largest sum of SSIM, for there are not as many on both sides"


def _stems(named: NamedImages) -> tuple[str, ...]:
    """Names without endings; none where they are not distinct."""
    stems = tuple(str(PurePath(name).with_suffix("")) for name in named.names)
    return stems if len(set(stems)) == len(stems) else ()


def _shuffled(matrix: NDArray[np.float64], rng: np.random.Generator) -> Test:
    """Test whether matched pairs are more similar than the same images paired at random."""
    n = len(matrix)
    value = float(np.diagonal(matrix).mean())
    rows = np.arange(n)
    drawn = np.array([matrix[rows, rng.permutation(n)].mean() for _ in range(_DRAWS)])
    p = (1 + int(np.count_nonzero(drawn >= value))) / (1 + _DRAWS)
    about = "Does an image show what it was rebuilt of, more than it shows the others?"
    return Test(about, value, float(drawn.mean()), p, n)


def _exchanged(
    matrix: NDArray[np.float64],
    lookalikes: NamedImages,
    rebuilt: NamedImages,
    rng: np.random.Generator,
    device: str,
) -> Test:
    """Test whether the closest reconstructed image is closer to a private image than to a look-alike."""
    others = most_similar(lookalikes.images, rebuilt.images, device=device).values
    found = gap(matrix.max(axis=1), others, rng, draws=_DRAWS)
    about = "Is the closest reconstructed image closer to a private image than to a look-alike?"
    return Test(about, found.value, 0.0, found.p, len(matrix) + len(others))
