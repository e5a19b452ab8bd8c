"""AT&T's faces: the class that we give them is not the person."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedassay.data.att_faces import PERSONS, PICTURES
from fedassay.data.loading import DataRequest, load
from fedassay.plan.own_images import outline
from fedassay.support.errors import DataError, PlanError

FILE = "att_faces.npz"
REQUEST = DataRequest("att_faces", None, None, None, 0, Path(), groups="person")
THERE = Path(os.environ.get("FEDASSAY_DATA", "/nowhere")) / FILE


def _pretended(folder: Path, shape: tuple[int, ...] = (400, 112, 92)) -> DataRequest:
    np.savez_compressed(folder / FILE, x=np.zeros(shape, np.uint8))
    return replace(REQUEST, path=folder / FILE)


def test_glasses_are_no_person(tmp_path: Path) -> None:
    found = outline(_pretended(tmp_path))
    assert found is not None
    assert found.image == (112, 92, 1)
    train = found.data.train
    assert train.labels.sum() == 119
    assert train.groups is not None
    by_person = train.labels.reshape(PERSONS, PICTURES)
    assert (train.groups.reshape(PERSONS, PICTURES) == np.arange(PERSONS)[:, None]).all()
    assert ((by_person.mean(axis=1) > 0) & (by_person.mean(axis=1) < 1)).sum() == 7
    assert outline(replace(_pretended(tmp_path), groups=None)).data.train.groups is None  # type: ignore[union-attr]


def test_other_pictures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds other pictures"):
        load(_pretended(tmp_path))
    with pytest.raises(DataError, match=r"x of uint8 \(400, 92, 112\)"):
        load(_pretended(tmp_path, (400, 92, 112)))
    with pytest.raises(PlanError, match="y given; data set att_faces knows person"):
        load(replace(_pretended(tmp_path), groups="y"))


@pytest.mark.skipif(not THERE.exists(), reason=f"no {FILE} under FEDASSAY_DATA")
def test_the_pictures_are_read() -> None:
    faces = load(replace(REQUEST, path=THERE, size=16)).train
    assert faces.image_shape == (16, 16, 1)
    assert len(faces) == PERSONS * PICTURES
