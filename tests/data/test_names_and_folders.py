"""Classes in names of files and of studies, and tables with one row for each patient."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedassay.data.layout import Layout
from fedassay.data.loading import DataRequest, load
from fedassay.support.errors import DataError, PlanError


def _folder(base: Path, *paths: str) -> Path:
    for number, path in enumerate(paths):
        (base / "set" / path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), number, np.uint8)).save(base / "set" / path)
    return base


def _request(base: Path, **keys: object) -> DataRequest:
    return DataRequest("image_folder", None, Path("set"), None, 0, base, **keys)  # type: ignore[arg-type]


def _labels(base: Path, **keys: object) -> list[str]:
    """The class of each image, in the order of the images."""
    train = load(_request(base, **keys)).train
    return [train.class_names[train.labels[place]] for place in np.argsort(train.images[:, 0, 0, 0])]


@pytest.mark.parametrize(
    ("layout", "path", "label", "person"),
    [
        ("{class}.#", "train/cat.12.jpg", "cat", ""),
        ("{class}_#", "american_bulldog_10.png", "american_bulldog", ""),
        ("{class} (#)", "x/benign (3).png", "benign", ""),
        ("{class}_*", "cat_3.png", "cat", ""),
        ("{class}_*.png", "cat_3.png", "cat", ""),
        ("#_{class}_*", "25_1_0_2017.jpg", "1", ""),
        ("person/*#_{class}/image", "patient1/study1_positive/image1.png", "positive", "patient1"),
        ("{person}-{class}", "p3-ill.png", "ill", "p3"),
    ],
)
def test_a_pattern_says_what_a_name_holds(layout: str, path: str, label: str, person: str) -> None:
    place = Layout(layout).place(path)
    assert place is not None
    assert (place.label, place.person) == (label, person)


@pytest.mark.parametrize("layout", ["{klass}_*", "class/{class}_*", "image/class", "cat_*", "class/{site}{site}"])
def test_a_layout_that_cannot_be(layout: str) -> None:
    with pytest.raises(PlanError, match="allowed: class, person, site, split"):
        Layout(layout)


def test_known_words_in_names_are_the_classes(tmp_path: Path) -> None:
    base = _folder(tmp_path, *(f"train/{word}.{n}.png" for n in range(3) for word in ("cat", "dog")))
    assert _labels(base) == ["cat", "dog"] * 3


@pytest.mark.parametrize(
    ("words", "names"),
    [(("north", "south"), "sites"), (("left", "right"), "views"), (("anna", "bert"), "persons")],
)
def test_words_in_names_that_may_be_something_else_are_asked_about(
    words: tuple[str, str], names: str, tmp_path: Path
) -> None:
    base = _folder(tmp_path, *(f"{word}_{n}.png" for n in range(3) for word in words))
    with pytest.raises(DataError, match=r"data\.layout: \{class\}_# \(2 classes"):
        load(_request(base))
    assert _labels(base, layout="{class}_#") == list(words) * 3, names


def test_folders_are_no_classes_where_names_of_their_files_hold_several(tmp_path: Path) -> None:
    base = _folder(
        tmp_path, *(f"{who}/{c}_{n}.png" for n in range(3) for who in ("anna", "bert") for c in ("ill", "well"))
    )
    assert _labels(base) == ["ill", "well"] * 6
    assert load(_request(base)).train.domain_names == ("anna", "bert")


def test_files_that_do_not_fit_are_left_out_when_asked(tmp_path: Path) -> None:
    base = _folder(tmp_path, "cat_1.png", "dog_1.png", "cat_2.png", "dog_2.png", "cover.png")
    with pytest.raises(DataError, match=r"cover\.png of set .* data\.incomplete: leave_out, which leaves out 1"):
        load(_request(base, layout="{class}_#"))
    request = _request(base, layout="{class}_#", incomplete="leave_out")
    assert len(load(request).train) == 4
    assert "1 image: which data.layout, {class}_#, does not fit" in " ".join(load(request).account.lines())


def test_a_row_a_patient_speaks_of_all_images_in_the_folder(tmp_path: Path) -> None:
    base = _folder(tmp_path, *(f"scans/pat_{p:02d}/visit{v}/{v}.png" for p in range(1, 5) for v in range(2)))
    rows = "".join(f"{p},{'ill' if p % 2 else 'well'}\n" for p in range(1, 5))
    (base / "set" / "patients.csv").write_text(f"patient,diagnosis\n{rows}")
    assert _labels(base) == (["ill"] * 2 + ["well"] * 2) * 2
    groups = load(_request(base, groups="patient")).train.groups
    assert groups is not None
    assert len(np.unique(groups)) == 4


def test_a_patient_without_a_row_is_named(tmp_path: Path) -> None:
    base = _folder(tmp_path, *(f"P{p}/{n}.png" for p in range(6) for n in range(2)))
    rows = "".join(f"P{p},{p % 2}\n" for p in range(5))
    (base / "set" / "patients.csv").write_text(f"patient,label\n{rows}")
    with pytest.raises(DataError, match="2 of 12 images have no row"):
        load(_request(base))


def test_a_legend_of_classes_is_no_table_of_patients(tmp_path: Path) -> None:
    base = _folder(tmp_path, *(f"{c}/{n}.png" for c in ("n01440764", "n02102040") for n in range(3)))
    (base / "set" / "classes.csv").write_text("id,kind\nn01440764,fish\nn02102040,dog\n")
    found = load(_request(base))
    assert found.train.class_names == ("n01440764", "n02102040")
    assert any("classes.csv" in line for line in found.account.lines())


def test_a_number_of_a_row_is_no_number_of_a_patient(tmp_path: Path) -> None:
    base = _folder(tmp_path, *(f"patient_{p}/scan{p}{n}.png" for p in range(4) for n in range(2)))
    rows = "".join(f"{p},{p % 2}\n" for p in range(4))
    (base / "set" / "t.csv").write_text(f"row,label\n{rows}")
    with pytest.raises(DataError, match="no column names files of the folder"):
        load(_request(base))


def test_a_list_names_the_folders_that_images_lack(tmp_path: Path) -> None:
    base = _folder(tmp_path, *(f"{word}/{n}.png" for word in ("oak", "ash") for n in "ab"), "c.png", "d.png")
    (base / "set" / "rest.txt").write_text("c.png ash\nd.png oak\n")
    assert _labels(base) == ["oak", "oak", "ash", "ash", "ash", "oak"]
    (base / "set" / "rest.txt").write_text("c.png ash\nd.png elm\n")
    with pytest.raises(DataError, match=r"holds images, but .* holds folders of images"):
        _labels(base)


def test_a_list_with_a_head_of_classes_tells_that_words_in_names_are_such(tmp_path: Path) -> None:
    base = _folder(tmp_path, *(f"{word}_{n}.png" for n in range(3) for word in ("Abyssinian", "Bombay")))
    rows = [f"{word}_{n} {number} 1" for n in range(3) for number, word in enumerate(("Abyssinian", "Bombay"), 1)]
    for head, swapped in (("", False), ("#Image SITE SPECIES", False), ("#Image CLASS-ID SPECIES", True)):
        held = [*rows[:-1], rows[-1].replace(" 2 ", " 1 ")] if swapped else rows
        (base / "set" / "list.txt").write_text("\n".join([head, *held]))
        with pytest.raises(DataError, match=r"data\.layout: \{class\}_# \(2 classes: Abyssinian, Bombay\)"):
            _labels(base)
    (base / "set" / "list.txt").write_text("\n".join(["#Image CLASS-ID SPECIES", *rows]))
    assert _labels(base) == ["Abyssinian", "Bombay"] * 3
