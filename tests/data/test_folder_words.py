"""What levels of folders are called: years and versions of pictures are neither classes nor sites nor persons."""

from __future__ import annotations

import pytest

from fedassay.data.folder_reading import read_folders
from fedassay.data.folder_words import are_classes, level_of, odd_names
from fedassay.support.errors import DataError


@pytest.mark.parametrize(
    ("names", "level"),
    [
        (["2019", "2020", "2021"], "skipped"),
        (["train", "Validation", "TEST"], "split"),
        (["north", "south"], "site"),
        (["patient_001", "patient_002"], "person"),
        (["benign", "malignant"], "class"),
        (["0", "1", "2"], "class"),
        (["40X", "100X"], "visit"),
        (["images", "imgs"], "skipped"),
        (["stage_2_train_images", "stage_2_test_images"], "split"),
        (["BraTS20_Training_001", "BraTS20_Training_002"], "numbered"),
        (["flair", "t1", "t2"], "visit"),
        (["NCT-CRC-HE-100K", "CRC-VAL-HE-7K"], "unknown"),
    ],
)
def test_names_say_what_a_level_is(names: list[str], level: str) -> None:
    assert level_of(names) == level


def test_versions_of_the_same_pictures_are_no_sites() -> None:
    assert odd_names(["color", "grayscale", "segmented"]) == ["grayscale"]


def test_a_class_beside_several_views_is_one_part_of_the_word() -> None:
    assert are_classes(["ill", "healthy"])
    assert are_classes(["left_ill", "left_healthy"])
    assert not are_classes(["left_ill", "right_ill", "left_healthy", "right_healthy"])


def test_folders_that_are_no_classes_are_named() -> None:
    paths = [f"{year}/{number}.png" for year in (2019, 2020) for number in range(12)]
    with pytest.raises(
        DataError, match="has folders that are no classes by name, 2019, 2020; allowed: two or more"
    ):
        read_folders(paths, "scans")
