"""A folder of images with a CSV of labels: rows and files belong together, or it is said which do not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pytest
from PIL import Image

from fedassay.data import DataRequest, ImageSet, load
from fedassay.support.errors import DataError, PlanError

_FILES = ("scan_1.png", "scan_2.png", "deep/scan_3.png", "deep/er/scan_4.png")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "scans"
    for number, name in enumerate(_FILES):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 9), 10 * number, np.uint8)).save(root / name)
    (root / ".hidden.png").write_text("no image")
    return root


def _load(root: Path, table: str, **given: Any) -> ImageSet:
    (root.parent / "labels.csv").write_text(table, encoding="utf-8")
    return load(_request(root, labels=Path("labels.csv"), **given)).train


def _request(root: Path, **given: Any) -> DataRequest:
    return DataRequest("image_folder", None, root, None, 0, root.parent, **given)


@pytest.mark.parametrize(
    "table",
    [
        "image,label\nscan_2.png,well\nscan_1.png,ill\nscan_4.png,ill\nscan_3.png,well\n",
        "\ufefffile;diagnosis\nscan_1;ill\nscan_2;well\ndeep/scan_3;well\ndeep/er/scan_4.png;ill\n\n",
        'age\tname\tDiagnosis\n40\t"scan_1"\till\n1\tscan_2\twell\n2\tscan_3\twell\n3\tscan_4\till\n',
    ],
)
def test_files_by_path_by_name_and_without_ending(folder: Path, table: str) -> None:
    records = _load(folder, table)
    assert records.class_names == ("ill", "well")
    # By path: deep/er/scan_4, deep/scan_3, scan_1, scan_2.
    assert records.images[:, 0, 0, 0].tolist() == [30, 20, 0, 10]
    assert records.labels.tolist() == [0, 1, 0, 1]


def test_a_table_in_the_folder_and_columns_by_name(folder: Path) -> None:
    (folder / "meta.csv").write_text("a,b,c\nscan_1,x,1\nscan_2,y,1\nscan_3,x,2\nscan_4,y,2\n")
    request = DataRequest("image_folder", None, folder, None, 0, folder, labels=Path("meta.csv"))
    with pytest.raises(
        DataError, match=r"not clear which column holds the labels; data\.label_column allows b \(2 values\), c"
    ):
        load(request)
    for column, expected in (("b", [1, 0, 0, 1]), ("c", [1, 1, 0, 0])):
        given = DataRequest(
            "image_folder", None, folder, None, 0, folder, labels=Path("meta.csv"), label_column=column
        )
        assert load(given).train.labels.tolist() == expected


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", "has no rows"),
        ("image\nscan_1\n", r"two columns or more"),
        ("image,image\n", r"has no rows"),
        ("image,label\n", r"labels\.csv: has no rows"),
        ("image,label\nscan_1,a,b\n", r"line 2: has 3 columns; allowed: 2"),
        (
            "image,label\nnobody,a\n",
            r"no column names files of the folder \(image, label; the first row is nobody, a\)",
        ),
        ("image,label\nscan_1,a\nnobody,b\n", r"line 3: 'nobody' is not in the folder"),
        ("image,label\nscan_1,a\nscan_1.png,b\n", r"line 3: scan_1\.png has a row already"),
        ("image,label\nscan_1,a\nscan_2,b\n", r"2 of 4 images have no row: deep/er/scan_4\.png"),
        ("image,label\nscan_1,a\nscan_2,\n", r"line 3: scan_2\.png has no label in column label"),
        ("image,label\nscan_1,a\nscan_2,a\nscan_3,a\nscan_4,a\n", r"has one class, a; allowed: two or more"),
        ('image,label\nscan_1,"a\n', r"is no CSV \(unexpected end of data"),
    ],
)
def test_tables_that_do_not_belong_to_the_images(folder: Path, table: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        _load(folder, table)


def test_a_name_that_stands_for_two_files(folder: Path) -> None:
    Image.fromarray(np.zeros((8, 9), np.uint8)).save(folder / "deep" / "scan_1.png")
    rows = "scan_2,a\nscan_3,b\nscan_4,b\nscan_1,a\n"
    with pytest.raises(DataError, match=r"'scan_1' stands for several files of the folder"):
        _load(folder, f"image,label\n{rows}")
    assert len(_load(folder, f"image,label\n{rows}deep/scan_1.png,b\n".replace("\nscan_1,", "\nscan_1.png,"))) == 5


def test_keys_of_a_table(folder: Path) -> None:
    table = "image,label\nscan_1,a\nscan_2,b\nscan_3,a\nscan_4,b\n"
    with pytest.raises(DataError, match=r"data\.file_column: name given; labels\.csv has image, label"):
        _load(folder, table, file_column="name")
    with pytest.raises(DataError, match=r"data\.label_column: kind given"):
        _load(folder, table, label_column="kind")
    with pytest.raises(PlanError, match=r"data\.label_column: 1 given; allowed: the name of a column"):
        _load(folder, table, label_column=1)
    with pytest.raises(DataError, match=r"data\.labels: none\.csv does not exist"):
        load(DataRequest("image_folder", None, folder, None, 0, folder, labels=Path("none.csv")))
    with pytest.raises(PlanError, match=r"data\.labels: x\.csv given, but data set digits takes"):
        load(DataRequest("digits", None, None, None, 0, folder, labels=Path("x.csv")))


@pytest.mark.parametrize(
    ("table", "expected", "given"),
    [
        ("image,cat,dog\nscan_1,True,False\nscan_2,False,True\nscan_3,TRUE,FALSE\nscan_4,0,1\n", "0101", {}),
        (
            "image,cat,dog\nscan_1,True,False\nscan_2,False,True\nscan_3,True,False\nscan_4,True,False\n",
            "0100",
            {"label_column": ("cat", "dog")},
        ),
        ("sep=;\nimage;label\nscan_1;a\nscan_2;b\nscan_3;a\nscan_4;a\n", "0100", {}),
        ('"sep=,"\nimage,label\nscan_1,a\nscan_2,b\nscan_3,a\nscan_4,a\n', "0100", {}),
        ('image,label\nscan_1,1\nscan_2,"1,000"\nscan_3,"2,000"\nscan_4,"1,0"\n', "0120", {}),
        (
            'image,label\nscan_1,"cat, dog"\nscan_2,cat\nscan_3,dog\nscan_4,"dog,cat"\n',
            "0010",
            {"label": "cat"},
        ),
        ('image,label\nscan_1,"tench, Tinca tinca"\nscan_2,cat\nscan_3,cat\nscan_4,cat\n', "1000", {}),
    ],
)
def test_tables_as_programs_write_them(folder: Path, table: str, expected: str, given: dict[str, Any]) -> None:
    # Images are in the order of their paths: scan_4, scan_3, scan_1, scan_2.
    found = _load(folder, table, **given).labels[[2, 3, 1, 0]].tolist()
    assert [found.index(label) for label in found] == [expected.index(each) for each in expected]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("image,label\nscan_1,a\nscan_2,b\nscan_3,N.A.\nscan_4,a\n", "has no label in column label"),
        ("image,label\nscan_1,a\nscan_2,b\nscan_3,.\nscan_4,#VALUE!\n", "in all: 2 images without a label"),
        (
            'image,label\nscan_1,"cat, dog"\nscan_2,cat\nscan_3,dog\nscan_4,cat\n',
            r"joins several labels in one cell; allowed: data\.label, one of cat \(3\), dog \(2\)",
        ),
    ],
)
def test_cells_that_are_no_class_are_refused(folder: Path, table: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        _load(folder, table)


_ROWS = "scan_1,ill\nscan_2,well\nscan_3,well\nscan_4,ill\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("table", "says"),
    [
        (f"file,label\n{_ROWS}" + "scan_1,well\n" * 100_000, "has a row already"),
        (f"file,label\n{_ROWS}" + "nobody,ill\n" * 100_000, "is not in the folder"),
        (f"file,label\n{_ROWS}" + "\n" * 200_000 + "scan_9,ill\n", "line 200006: 'scan_9' is not in the folder"),
        (f"file,label\n{_ROWS}" + "," * 2_000_000, "a line of 1,048,576 characters"),
        ("," * 2_000_000, "a line of 1,048,576 characters"),
        (",".join(map(str, range(20_000))) + f"\n{_ROWS}", "20,000 columns"),
    ],
)
def test_a_table_is_read_no_further_than_it_must_be(folder: Path, table: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        _load(folder, table)


@pytest.mark.parametrize("kind", ["pipe", "folder", "sparse"])
def test_a_table_that_is_no_file(folder: Path, kind: str) -> None:
    path = folder / "table.csv"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_text(f"file,label\n{_ROWS}")
        os.truncate(path, 20 << 30)
    request = DataRequest("image_folder", None, folder, None, 0, folder, labels=Path("table.csv"))
    with pytest.raises(DataError, match=r"table\.csv: (it is|21,474,836,480 bytes)"):
        load(request)


def test_folders_are_searched_to_a_depth(folder: Path) -> None:
    deep = folder
    for _ in range(40):
        deep /= "d"
        deep.mkdir()
    with pytest.raises(DataError, match="more than 32 folders inside each other"):
        _load(folder, f"file,label\n{_ROWS}")


def test_the_first_full_sheet_of_a_workbook_is_read_as_text(folder: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.create_sheet("labels")
    book.create_sheet("notes").append(["x", "y"])
    for row in (["image", "label", "patient"], *([f"scan_{n}", "ab"[n % 2], f"00{n}"] for n in range(1, 5))):
        sheet.append(row)
    book.save(folder / "labels.xlsx")
    found = load(_request(folder, groups="patient"))
    assert found.train.class_names == ("a", "b")
    assert found.train.groups is not None
    assert any("sheet labels is read, notes not" in note for note in found.account.notes)


def test_a_workbook_that_is_none_is_named(folder: Path) -> None:
    (folder / "labels.xlsx").write_bytes(b"PK no zip")
    with pytest.raises(DataError, match=r"labels\.xlsx: cannot be read as \.xlsx"):
        load(_request(folder))


@pytest.mark.parametrize(
    "held",
    [
        [{"file": name, "label": "ill" if number % 2 else "well"} for number, name in enumerate(_FILES)],
        {name: "ill" if number % 2 else "well" for number, name in enumerate(_FILES)},
        {name: {"label": "ill" if number % 2 else "well"} for number, name in enumerate(_FILES)},
    ],
)
def test_json_is_a_table_where_it_is_named(folder: Path, held: object) -> None:
    (folder / "labels.json").write_text(json.dumps(held))
    with pytest.raises(DataError, match=r"labels\.json may hold the labels: name it by data\.labels"):
        load(_request(folder))
    data = load(_request(folder, labels=Path("labels.json")))
    assert data.train.class_names == ("ill", "well")
    assert sorted(data.train.labels.tolist()) == [0, 0, 1, 1]
    assert not any("json" in each.line for each in data.account.left_out)


@pytest.mark.parametrize("text", ["{", '{"images": []}', "[1]", "[]", '{"a": 1, "a": 2}'])
def test_json_that_is_no_table_is_refused_by_name(folder: Path, text: str) -> None:
    (folder / "labels.json").write_text(text)
    with pytest.raises(DataError, match=r"^labels\.json: is no (JSON|table)"):
        load(_request(folder, labels=Path("labels.json")))


def test_minus_one_beside_classes_is_said(folder: Path) -> None:
    rows = "".join(f"{name},{number % 3 - 1}\n" for number, name in enumerate(_FILES))
    (folder / "labels.csv").write_text("file,label\n" + rows)
    notes = load(_request(folder)).account.notes
    assert "-1 is read as a class, of 2 records; where it means no label, take them out" in notes


def test_an_empty_folder_is_said(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / "in" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 9), number, np.uint8)).save(
            tmp_path / "in" / "ab"[number % 2] / f"{number}.png"
        )
    (tmp_path / "in" / "c").mkdir()
    assert load(_request(tmp_path / "in")).account.notes == ("empty folders, which are no classes (1): c",)
