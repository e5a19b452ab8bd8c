"""Records of one owner: what follows them when they are taken, joined and given other labels."""

from __future__ import annotations

import numpy as np

from fedassay.data.records import Records, joined
from fedassay.support.types import Ints


def _records(count: int, groups: Ints | None) -> Records:
    images = np.arange(count * 4, dtype=np.uint8).reshape(count, 2, 2, 1)
    return Records("client/0", images, np.arange(count), lambda held: np.zeros((len(held), 3), np.float32), groups)


def test_persons_follow_their_records() -> None:
    whole = _records(4, np.array([7, 7, 9, 3]))
    taken = whole.take(np.array([2, 0])).relabelled(np.array([1, 1]))
    assert taken.groups is not None
    assert taken.groups.tolist() == [9, 7]
    both = joined("all", [taken, whole]).groups
    assert both is not None
    assert both.tolist() == [9, 7, 7, 7, 9, 3]


def test_without_persons_in_every_part_there_are_none() -> None:
    assert joined("all", [_records(2, None), _records(2, np.array([1, 1]))]).groups is None
    assert _records(3, None).take(np.array([1])).groups is None
