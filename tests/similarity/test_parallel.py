"""One thread per task: order, errors, torch's own setting, and the same bits on any number of threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from fedassay.similarity.groups import group_agreement
from fedassay.similarity.parallel import parallel_map
from fedassay.similarity.ssim import ssim
from fedassay.similarity.ssim_search import top_k


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_order_and_the_setting_is_restored(threads: int) -> None:
    inside = []

    def square(number: int) -> int:
        inside.append(torch.get_num_threads())
        return int(torch.tensor(number).square())

    assert parallel_map(square, range(50)) == [number**2 for number in range(50)]
    assert set(inside) == {1}
    assert torch.get_num_threads() == threads


def test_errors_come_through_and_the_setting_is_restored(threads: int) -> None:
    with pytest.raises(ZeroDivisionError):
        parallel_map(lambda number: 1 // number, range(3))
    assert torch.get_num_threads() == threads


def test_the_number_of_threads_changes_no_bit() -> None:
    rng = np.random.default_rng(0)
    # Large enough for torch to split single operations, if it were left to.
    images = rng.integers(0, 256, (140, 16, 16, 3), dtype=np.uint8) // 4 + 90
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found = top_k(images[:10], images[10:], 2, gallery_block=64)
            agreement = group_agreement(images.reshape(35, 4, 16, 16, 3))
            results.append((*found, ssim(images[:70], images[70:]), agreement))
    finally:
        torch.set_num_threads(before)
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)
