"""Two published data sets as two domains: each keeps its files, labels and test set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from named_folders import MADE

from fedassay.data import DataRequest, load
from fedassay.plan.own_images import outline
from fedassay.support.errors import DataError, PlanError


def _request(name: str, folder: Path, **given: object) -> DataRequest:
    return DataRequest(name, folder, None, None, 0, folder, size=8, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "parts", "held"),
    [("caltech101_and_cars", ("caltech101", "stanford_cars"), False),
     ("pets_and_food", ("oxford_pets", "food101"), True)],
)  # fmt: skip
def test_each_part_is_the_data_set_of_its_name(
    name: str, parts: tuple[str, str], held: bool, tmp_path: Path
) -> None:
    for part in parts:
        MADE[part](tmp_path)
    both, (first, second) = load(_request(name, tmp_path)), (load(_request(part, tmp_path)) for part in parts)
    assert both.train.domain_names == parts
    assert both.train.class_names == (*first.train.class_names, *second.train.class_names)
    assert both.train.domains is not None
    own, other = (both.train.take(np.flatnonzero(both.train.domains == number)) for number in (0, 1))
    assert np.array_equal(own.images, first.train.images)
    assert np.array_equal(own.labels, first.train.labels)
    assert first.train.classes not in own.labels
    expected = second.train.images
    if not held:
        assert both.test is None
        assert second.test is not None
        expected = np.concatenate([expected, second.test.images])
    assert np.array_equal(other.images, expected)
    assert other.labels.min() == first.train.classes
    if held:
        assert both.test is not None
        assert first.test is not None
        assert second.test is not None
        assert np.array_equal(both.test.images, np.concatenate([first.test.images, second.test.images]))
    told = outline(_request(name, tmp_path))
    assert told is not None
    assert np.array_equal(told.data.train.labels, both.train.labels)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    MADE["caltech101"](tmp_path)
    with pytest.raises(DataError, match=r"stanford_cars is not in data\.root: .* with data\.name: stanford_cars"):
        load(_request("caltech101_and_cars", tmp_path))
    with pytest.raises(PlanError, match=r"data\.path: .* given, but data set pets_and_food takes root"):
        load(DataRequest("pets_and_food", None, tmp_path, None, 0, tmp_path))
