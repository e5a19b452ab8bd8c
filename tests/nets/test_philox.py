"""The counter-based generator: published words, the normal distribution, and independence of batch and device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from fedassay.nets.philox import normals, philox

PUBLISHED = {
    "zeros": ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    "ones": ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    "digits of pi": (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
}
"""philox4x32, ten rounds: the known answers that come with Random123."""


@pytest.mark.parametrize("case", PUBLISHED)
def test_published_words(case: str) -> None:
    counter, (low, high), expected = PUBLISHED[case]
    a, b, c, d = (torch.tensor([word]) for word in counter)
    found = philox((a, b, c, d), low | high << 32)
    assert " ".join(f"{int(word):08x}" for word in found) == expected


def test_a_row_depends_on_nothing_but_its_number() -> None:
    whole = normals(11, range(40), 2, (3, 5, 7), "cpu")
    assert whole.shape == (40, 3, 5, 7)
    assert whole.dtype == torch.float32
    parts = [normals(11, range(first, min(40, first + 7)), 2, (3, 5, 7), "cpu") for first in range(0, 40, 7)]
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(normals(11, range(5, 30, 5), 2, (3, 5, 7), "cpu"), whole[5:30:5])


def test_seeds_draws_and_rows_differ() -> None:
    size = (64,)
    drawn = [
        normals(seed, range(row, row + 1), draw, size, "cpu").flatten().numpy()
        for seed in (0, 1, 2**32, 2**63 - 1)
        for row in (0, 1, 2**31)
        for draw in (0, 1, 1000)
    ]
    assert len({each.tobytes() for each in drawn}) == len(drawn)
    together = np.corrcoef(np.stack(drawn))
    assert np.abs(together[np.triu_indices(len(drawn), 1)]).max() < 0.6  # 5 standard deviations of 1 / 8


def test_they_are_normal_and_independent_in_a_row() -> None:
    drawn = normals(3, range(2000), 0, (130,), "cpu").numpy().astype(np.float64)
    assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-3
    assert abs(drawn.mean()) < 5 / drawn.size**0.5
    assert abs(stats.kurtosis(drawn.ravel())) < 5 * (24 / drawn.size) ** 0.5
    # The two of one pair share a radius; their squares must not be correlated.
    for lag in (1, 2, 3, 4):
        for power in (1, 2):
            x, y = drawn[:, :-lag].ravel() ** power, drawn[:, lag:].ravel() ** power
            assert abs(np.corrcoef(x, y)[0, 1]) < 5 / x.size**0.5


def test_the_same_on_a_gpu(pretended_gpu: Callable[[], AbstractContextManager[Any]]) -> None:
    here = normals(5, range(9), 1, (3, 4, 4), "cpu")
    with pretended_gpu() as gpu:
        there = normals(5, range(9), 1, (3, 4, 4), "cuda")
        assert there.is_cuda
        assert torch.equal(there.cpu(), here)
    assert not gpu.drawn
