"""A contact sheet: counts, what looks odd, what is alike, what was left out."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fedassay.data.account import Account, LeftOut
from fedassay.data.image_header import Header
from fedassay.data.pictures_seen import Seen, seen
from fedassay.data.sheet import THUMBNAILS, TILE, Listed, contact, tile
from fedassay.data.shortcuts import odd_masks, shortcuts
from fedassay.data.twins import twins

_SIDE = 24


def _blobs(count: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Smooth pictures, no two alike, shape (n, _SIDE, _SIDE, 1)."""
    coarse = rng.integers(40, 216, size=(count, 6, 6), dtype=np.uint8)
    large = [Image.fromarray(each).resize((_SIDE, _SIDE), Image.Resampling.BICUBIC) for each in coarse]
    return np.stack([np.asarray(each) for each in large])[..., None]


def _listed(images: NDArray[np.uint8], labels: NDArray[np.int64], **more: object) -> Listed:
    listed = Listed(
        source="a set",
        labels=labels,
        class_names=tuple(f"class {number}" for number in range(int(labels.max()) + 1)),
        kinds=[Header("", "", True, (_SIDE, _SIDE))] * len(images),
        picture=lambda row: images[row],
        name=lambda row: f"record {row}",
    )
    return replace(listed, **more)  # type: ignore[arg-type]


def _seen(images: NDArray[np.uint8]) -> Seen:
    return seen(range(len(images)), lambda row: images[row])


def _again(image: NDArray[np.uint8], quality: int = 70) -> NDArray[np.uint8]:
    """A picture that is made smaller, saved with losses, and made larger again."""
    stream = io.BytesIO()
    Image.fromarray(image[..., 0]).resize((18, 18)).save(stream, "JPEG", quality=quality)
    return np.asarray(Image.open(stream).resize((_SIDE, _SIDE), Image.Resampling.BICUBIC))[..., None]


def test_a_picture_that_is_saved_again_or_brightened_is_found_and_no_other() -> None:
    images = _blobs(300, np.random.default_rng(0))
    brighter = np.clip(images[7].astype(int) + 12, 0, 255).astype(np.uint8)
    images = np.concatenate([images, _again(images[3])[None], brighter[None], images[9][None]])
    assert [(twin.first, twin.second, twin.same) for twin in twins(_seen(images))] == [
        (3, 300, False),
        (7, 301, False),
        (9, 302, True),
    ]


def test_slopes_of_brightness_are_not_alike() -> None:
    ramp = np.linspace(0, 200, _SIDE)[None, :, None] * np.ones((_SIDE, 1, 1))
    skies = np.stack([np.clip(ramp * share, 0, 255) for share in (0.8, 0.9, 1.0)]).astype(np.uint8)
    assert twins(_seen(skies)) == []


def test_few_pictures_have_no_twins() -> None:
    assert twins(_seen(_blobs(1, np.random.default_rng(0)))) == []
    assert twins(_seen(_blobs(2, np.random.default_rng(0)))) == []


def _told(images: NDArray[np.uint8], labels: NDArray[np.int64], kinds: list[Header], **given: object) -> list[str]:
    persons = given.get("persons")
    found = shortcuts(labels, ("a", "b", "c"), persons, kinds, _seen(images))  # type: ignore[arg-type]
    return [f"{each.of}: {each.what}" for each in found]


_PLAIN = Header("", "", True, (_SIDE, _SIDE))


def test_classes_alike_are_not_told_by_a_number() -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        images = _blobs(90, rng)
        assert _told(images, np.arange(90) % 3, [_PLAIN] * 90) == []


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (Header("", "", True, (_SIDE, 2 * _SIDE)), "shape (width by height)"),
        (Header("", "", False, (_SIDE, _SIDE)), "share of colour"),
        (Header("", "", True, (_SIDE, _SIDE), 16), "depth (bits a channel)"),
        (Header("PNG", "", True, (_SIDE, _SIDE), 8), "share of PNG files"),
    ],
)
def test_what_a_file_is_tells_a_class(kind: Header, what: str) -> None:
    labels = np.arange(60) % 2
    kinds = [kind if label else replace(_PLAIN, format="JPEG" if kind.format else "") for label in labels]
    found = _told(_blobs(60, np.random.default_rng(2)), labels, kinds)
    assert any(each.startswith("a:") and what in each.replace("JPEG", "PNG") for each in found)


def test_brightness_tells_a_class_by_persons_and_not_by_their_pictures() -> None:
    labels = np.arange(80) % 2
    images = np.clip(
        _blobs(80, np.random.default_rng(3)) * np.where(labels, 1.0, 0.5)[:, None, None, None], 0, 255
    )
    images = images.astype(np.uint8)
    assert "a: brightness" in _told(images, labels, [_PLAIN] * 80)
    # Two persons of each class are too few to say it of persons, however many pictures they have.
    assert _told(images, labels, [_PLAIN] * 80, persons=np.arange(80) % 4) == []


def test_masks_among_pictures_are_named() -> None:
    images = _blobs(20, np.random.default_rng(4))
    images[:3] = np.where(images[:3] > 128, 255, 0)
    labels = np.repeat([0, 1], 10)
    (line,) = odd_masks(labels, ("a", "b"), _seen(images))
    assert line.startswith("3 of 10 pictures of a have four grey values or fewer")


def test_groups_count_pictures_and_persons_and_name_what_is_alike(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    images = _blobs(40, rng)
    images[39] = images[0]
    labels, persons, sites = np.arange(40) % 2, np.arange(40) // 4, np.arange(40) // 20
    account = Account(
        left_out=(LeftOut("image", 2, "beside", ("x.png", "y.png")), LeftOut("file", 3, "of no use"))
    )
    made = contact(
        _listed(
            images,
            labels,
            persons=persons,
            sites=sites,
            site_names=("north", "south"),
            parts=sites,
            part_names=("training", "official test"),
            account=account,
            unread=lambda path: images[1] if path == "x.png" else None,
        )
    )
    sheet = made.sheet
    assert [(each.kind, each.name, each.records, each.persons) for each in sheet.groups] == [
        ("part", "training", 20, 5),
        ("part", "official test", 20, 5),
        ("class", "class 0", 20, 10),
        ("class", "class 1", 20, 10),
        ("site", "north", 20, 5),
        ("site", "south", 20, 5),
    ]
    first = images[labels == 0].reshape(20, -1).mean(axis=1)
    assert sheet.groups[2].brightness == pytest.approx(first.mean(), abs=0.01)
    assert sheet.groups[2].spread == pytest.approx(first.std(), abs=0.01)
    assert sheet.alike == {"all": 1, "parts": 1, "persons": 1, "classes": 1, "sites": 1}
    assert (sheet.pairs[0].first, sheet.pairs[0].second, sheet.pairs[0].same) == ("record 0", "record 39", True)
    assert sheet.pairs[0].words == "the same picture in two parts, persons, classes and sites"
    assert sheet.left_out == (("2 images: beside", 1), ("3 files: of no use", 0))
    assert (sheet.files_left_out, sheet.persons) == (5, 10)
    assert made.tiles.shape == (6 + 1 + 2, THUMBNAILS, TILE, TILE, 3)
    assert any("1 pair of pictures of two persons is alike" in each for each in sheet.warnings)


def test_the_same_seed_draws_the_same_thumbnails() -> None:
    listed = _listed(_blobs(60, np.random.default_rng(6)), np.arange(60) % 2)
    one, same, other = (contact(listed, seed) for seed in (0, 0, 1))
    assert np.array_equal(one.tiles, same.tiles)
    assert one.sheet == same.sheet
    assert not np.array_equal(one.tiles, other.tiles)


def test_many_classes_are_counted_and_not_all_shown() -> None:
    sheet = contact(_listed(_blobs(60, np.random.default_rng(7)), np.arange(60) % 30)).sheet
    assert len(sheet.groups) == 24
    assert sheet.unshown == {"class": 6}


def test_of_a_large_set_a_sample_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedassay.data.sheet._PIXELS", 10 * _SIDE * _SIDE)
    sheet = contact(_listed(_blobs(60, np.random.default_rng(8)), np.arange(60) % 2)).sheet
    assert (sheet.looked_at, sheet.records) == (10, 60)
    assert sum(each.looked_at for each in sheet.groups) == 10


@pytest.mark.parametrize("shape", [(8, 8, 1), (300, 100, 3), (7, 90, 3), (TILE, TILE, 1)])
def test_thumbnails_keep_their_proportion(shape: tuple[int, int, int]) -> None:
    made = tile(np.full(shape, 255, np.uint8))
    assert made.shape == (TILE, TILE, 3)
    filled = (made == 255).all(axis=2)
    height, width = filled.any(axis=1).sum(), filled.any(axis=0).sum()
    assert filled.sum() == height * width
    assert max(height, width) > TILE // 2
    assert abs(height / width - shape[0] / shape[1]) < 0.15 * shape[0] / shape[1]
