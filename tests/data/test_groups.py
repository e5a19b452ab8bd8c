"""Whose each record is: names from arrays, tables and paths, and everything that keeps a person together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fedassay.data import ImageSet
from fedassay.data.domains import leave_out
from fedassay.data.groups import is_obvious, likely_patterns, numbered, persons_of, typical
from fedassay.data.images import LoadedData
from fedassay.data.loading import DataRequest, limited, load
from fedassay.data.partition import Partition, partition
from fedassay.data.roles import Role, split_roles
from fedassay.support.errors import DataError, PlanError

KINDS = get_args(Partition)


def _set(labels: list[int], groups: list[int], domains: list[int], first: int = 0) -> ImageSet:
    """Records of which every second one has the image of its neighbour."""
    count = len(labels)
    images = np.zeros((count, 8, 8, 1), np.uint8)
    images[:, 0, 0, 0] = (first + np.arange(count)) // 2 % 256
    images[:, 0, 1, 0] = (first + np.arange(count)) // 512
    return ImageSet(
        images,
        np.array(labels, np.int64),
        tuple("abcd"),
        np.array(domains, np.int64),
        tuple("xyz"),
        np.array(groups, np.int64),
    )


PEOPLE = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.integers(0, 2)), min_size=2, max_size=60)


def _columns(rows: list[tuple[int, int, int]]) -> ImageSet:
    labels, groups, domains = (list(column) for column in zip(*rows, strict=True))
    return _set(labels, groups, domains)


def _disjoint(*sets: Any) -> bool:
    held = [set(np.asarray(each).tolist()) for each in sets]
    return sum(map(len, held)) == len(set().union(*held))


@settings(max_examples=25, deadline=None)
@given(
    rows=PEOPLE,
    kind=st.sampled_from(KINDS),
    count=st.integers(1, 6),
    least=st.integers(0, 5),
    alpha=st.floats(1e-3, 100),
    dominant=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
def test_no_partition_splits_a_person(
    rows: list[tuple[int, int, int]],
    kind: Partition,
    count: int,
    least: int,
    alpha: float,
    dominant: int,
    seed: int,
) -> None:
    people = _columns(rows)
    assert people.groups is not None
    given: dict[str, Any] = {"alpha": alpha, "min_records": least, "dominant": dominant}
    for shared in ("one_client", "refuse"):
        rng = np.random.default_rng(seed)
        try:
            parts = partition(people, kind, count, rng, **given, shared_persons=shared)
        except PlanError:
            continue
        held = np.concatenate(parts)
        assert _disjoint(*(people.groups[part] for part in parts))
        assert len(held) == len(np.unique(held))
        assert min(map(len, parts)) >= least
        assert set(people.groups[held].tolist()) == set(people.groups.tolist())
        if shared == "refuse" or kind in ("iid", "dirichlet", "dominant_classes"):
            assert len(held) == len(people)


@settings(max_examples=25, deadline=None)
@given(rows=PEOPLE, count=st.integers(1, 4), seed=st.integers(0, 2**32), kind=st.sampled_from(KINDS))
def test_one_record_a_person_is_what_no_groups_are(
    rows: list[tuple[int, int, int]], count: int, seed: int, kind: Partition
) -> None:
    people = _columns(rows)
    alone = replace(people, groups=np.arange(len(people)))
    parts = []
    for each in (alone, replace(people, groups=None)):
        try:
            parts.append(partition(each, kind, count, np.random.default_rng(seed), min_records=1))
        except PlanError:
            parts.append([])
    assert len(parts[0]) == len(parts[1])
    assert all(np.array_equal(one, two) for one, two in zip(*parts, strict=True))


@settings(max_examples=25, deadline=None)
@given(
    rows=PEOPLE,
    tested=PEOPLE,
    shares=st.lists(st.floats(0, 1), min_size=5, max_size=5),
    official=st.booleans(),
    limit=st.integers(30, 200),
    seed=st.integers(0, 2**32),
)
def test_no_role_shares_a_person_with_another(
    rows: list[tuple[int, int, int]],
    tested: list[tuple[int, int, int]],
    shares: list[float],
    official: bool,
    limit: int,
    seed: int,
) -> None:
    test = replace(_columns(tested), images=np.full((len(tested), 8, 8, 1), 255, np.uint8))
    try:
        train = limited(_columns(rows), limit, seed)
    except DataError:
        return
    total = max(1.0, sum(shares))
    wanted: dict[Role, float] = {role: share / total for role, share in zip(get_args(Role), shares, strict=True)}
    if official:
        wanted.pop("test")
    roles = split_roles(LoadedData(train, test if official else None, ""), wanted, np.random.default_rng(seed))
    parts = [getattr(roles, role).groups for role in get_args(Role)]
    assert _disjoint(*parts)
    if official:
        left = ~np.isin(np.array([row[1] for row in tested]), train.groups)
        assert len(roles.test) == left.sum()


@settings(max_examples=25, deadline=None)
@given(rows=PEOPLE, limit=st.integers(1, 100), seed=st.integers(0, 2**32))
def test_a_limit_takes_persons_whole(rows: list[tuple[int, int, int]], limit: int, seed: int) -> None:
    people = _columns(rows)
    assert people.groups is not None
    counts = np.bincount(people.groups)
    if limit < counts[counts > 0].min():
        with pytest.raises(DataError, match="no person has fewer than"):
            limited(people, limit, seed)
        return
    kept = limited(people, limit, seed)
    assert kept.groups is not None
    assert 0 < len(kept) <= max(limit, 0)
    persons, records = np.unique(kept.groups, return_counts=True)
    assert np.array_equal(records, counts[persons])


def test_a_domain_left_out_keeps_nobody_of_the_training_set() -> None:
    data = LoadedData(_set([0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 2, 3], [0, 1, 0, 0, 1, 1]), None, "")
    data = replace(
        data, train=replace(data.train, images=np.repeat(np.arange(6, dtype=np.uint8), 64).reshape(6, 8, 8, 1))
    )
    roles = split_roles(leave_out(data, "y"), {"private": 1.0}, np.random.default_rng(0))
    assert roles.private.groups is not None
    assert roles.test.groups is not None
    assert roles.test.groups.tolist() == [2, 3]
    assert roles.dropped == 1


def test_a_person_at_two_clients_is_refused_or_left_at_one() -> None:
    people = _set([0, 0, 0, 1, 1, 1, 2, 3], [0, 0, 0, 0, 1, 1, 2, 3], [0, 0, 0, 1, 1, 1, 2, 2])
    with pytest.raises(PlanError, match=r"domains puts 1 of 4 persons at several clients .*: one_client"):
        partition(people, "domains", 3, np.random.default_rng(0))
    parts = partition(people, "domains", 3, np.random.default_rng(0), shared_persons="one_client")
    assert sorted(part.tolist() for part in parts) == [[0, 1, 2], [4, 5], [6, 7]]
    # Where both domains are at one client, nobody is at two.
    assert len(np.concatenate(partition(people, "domains", 1, np.random.default_rng(0)))) == 8
    with pytest.raises(PlanError, match=r"of 4 persons, each at one client; allowed: 1 to 4"):
        partition(people, "iid", 5, np.random.default_rng(0))


def test_typical_values_and_numbers() -> None:
    assert typical(np.array([5, 5, 2, 7, 2]), np.array([1, 1, 1, 0, 0])).tolist() == [2, 5]
    assert [part.tolist() for part in numbered(["b", "a"], ["c", "b"])] == [[1, 0], [2, 1]]
    assert [part.tolist() for part in numbered([], [])] == [[], []]


@pytest.mark.parametrize(
    ("pattern", "path", "name"),
    [
        ("{person}_*", "ill/p12_left_2.png", "p12"),
        ("{person}/*", "p12/left.png", "p12"),
        ("{person}/*/*", "site/patient001/study1/view.jpg", "patient001"),
        ("*-{person}.png", "a-b-c.png", "b-c"),
        ("s{person}-*.png", "s07-1.png", "07"),
        ("{person}/{person}_*", "north/12_3.png", "north/12"),
        ("{person}.*", "a.b.png", "a"),
        ("{person}_*", "_x.png", None),
        ("x{person}_*", "p12_x.png", None),
        ("{person}/*", "left.png", None),
        ("*{person}", "abc", "abc"),
        ("{person}[0-9]", "a1", None),
    ],
)
def test_patterns_of_paths(pattern: str, path: str, name: str | None) -> None:
    if name is not None:
        assert persons_of(pattern, [path], "folder") == [name]
        return
    with pytest.raises(DataError, match="do not fit it"):
        persons_of(pattern, [path], "folder")


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    with pytest.raises(DataError, match="1 of 1 images"):
        persons_of("*a" * 100 + "{person}b", ["a" * 250], "folder")


@pytest.mark.parametrize("pattern", ["p*", "", "a//{person}"])
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(PlanError, match=r"data\.groups: .* such as \{person\}_\*"):
        persons_of(pattern, ["a/b.png"], "folder")


def test_obvious_names() -> None:
    assert all(is_obvious(name) for name in ("patient", "Patient ID", "subject_id", "personNumber", "writer"))
    assert not any(is_obvious(name) for name in ("patience", "impatient", "personality", "id", "x", ""))
    assert likely_patterns("ill/person12_2.png")[0] == "person{person}_*"
    assert likely_patterns("Patient007/study/1.png") == ["Patient{person}/*/*"]
    assert likely_patterns("ill/PAT00181_IM-0003.png")[0] == "PAT{person}_*"
    assert likely_patterns("sub-01/anat/1.png") == ["sub-{person}/*/*"]
    assert likely_patterns("ill/12.png") == []
    assert likely_patterns("ill/patch_12.png") == []


def _npz(folder: Path, **arrays: Any) -> DataRequest:
    rng = np.random.default_rng(0)
    content = {"x": rng.integers(0, 256, (12, 8, 8), np.uint8), "y": np.arange(12) % 2, **arrays}
    np.savez(folder / "own.npz", **content)
    return DataRequest("npz", None, Path("own.npz"), None, 0, folder, groups="patient")


def test_an_archive_names_persons(tmp_path: Path) -> None:
    names = np.array(list("aabbccddeeff"))
    groups = load(_npz(tmp_path, patient=names)).train.groups
    assert groups is not None
    assert groups.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    tests: dict[str, Any] = {"x_test": np.full((2, 8, 8), 90, np.uint8), "y_test": np.array([0, 1])}
    assert load(_npz(tmp_path, patient=names, **tests)).test.groups is None  # type: ignore[union-attr]
    known = load(_npz(tmp_path, patient=names.astype("S1"), **tests, patient_test=np.array([b"f", b"g"])))
    assert known.test is not None
    assert known.test.groups is not None
    assert known.test.groups.tolist() == [5, 6]
    assert load(replace(_npz(tmp_path), groups="y")).train.groups is not None


def test_an_archive_of_medmnist_names_persons(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, count in (("train", 6), ("val", 4), ("test", 2)):
        arrays[f"{part}_images"] = rng.integers(0, 256, (count, 8, 8), np.uint8)
        arrays[f"{part}_labels"] = (np.arange(count) % 2)[:, None]
        arrays[f"{part}_patient"] = np.arange(count)[:, None]
    np.savez(tmp_path / "own.npz", **arrays)
    data = load(DataRequest("npz", None, Path("own.npz"), None, 0, tmp_path, groups="patient"))
    assert data.train.groups is not None
    assert data.train.groups.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    assert data.test is not None
    assert data.test.groups is not None


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, r"patient given; own\.npz has no array patient"),
        ({"patient": np.arange(11)}, r"own\.npz: patient has shape \(11,\), but there are 12 images"),
        ({"patient": np.zeros((12, 2), np.int64)}, r"shape \(12, 2\)"),
        ({"patient": np.zeros(12)}, "holds float64; allowed: whole numbers or names"),
        ({"patient": np.zeros(12, np.int64)}, "all 12 records of .* are of one person"),
        ({"patient": np.array(["a"] * 11 + [" "])}, "names nobody for 1 images"),
        ({"patient": np.array([None] * 12)}, "pickled Python objects, which are never loaded"),
        ({"patient": np.int64(3)}, r"shape \(\)"),
    ],
)
def test_an_archive_that_names_them_wrongly(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        load(_npz(tmp_path, **arrays))


def _folder(root: Path) -> Path:
    rng = np.random.default_rng(1)
    for label in ("ill", "well"):
        (root / "scans" / label).mkdir(parents=True)
        for number in range(6):
            image = Image.fromarray(rng.integers(0, 256, (8, 8), np.uint8))
            image.save(root / "scans" / label / f"p{number // 2}_{label}{number}.png")
    return root


def test_a_folder_names_persons_by_path_or_column(tmp_path: Path) -> None:
    base = _folder(tmp_path)
    request = DataRequest("image_folder", None, Path("scans"), None, 0, base, groups="p{person}_*")
    groups = load(request).train.groups
    assert groups is not None
    assert groups.tolist() == [0, 0, 1, 1, 2, 2] * 2
    kept = load(replace(request, limit=8)).train
    assert kept.groups is not None
    assert np.unique(kept.groups, return_counts=True)[1].tolist() == [4, 4]
    with pytest.raises(DataError, match=r"patient given; .* in it, or site and person of the folders"):
        load(replace(request, groups="patient"))
    names = sorted(path.name for path in base.rglob("*.png"))
    rows = "".join(f"{name},{'ill' in name},{number // 6}\n" for number, name in enumerate(names))
    (base / "table.csv").write_text(f"file,label,patient\n{rows}")
    table = replace(request, labels=Path("table.csv"), groups="patient")
    assert load(table).train.groups is not None
    assert np.array_equal(load(replace(table, groups="p{person}_*")).train.groups, groups)  # type: ignore[arg-type]
    for request_, words in (
        (replace(table, groups="doctor"), r"data\.groups: doctor given; table\.csv has file, label, patient"),
        (replace(request, groups="q{person}_*"), r"12 of 12 images of scans do not fit it \(ill/p0_ill0\.png\)"),
        (replace(request, groups="p{person}_ill*"), "6 of 12 images"),
    ):
        with pytest.raises(DataError, match=words):
            load(request_)
    # A table beside the folder need not be named.
    by_column = load(table).train.groups
    assert np.array_equal(load(replace(request, groups="patient")).train.groups, by_column)  # type: ignore[arg-type]
    several = load(replace(request, groups=("patient", "label"))).train.groups
    assert several is not None
    assert several.tolist() == [1, 1, 1, 1, 3, 3, 0, 0, 2, 2, 2, 2]
    both = load(replace(request, groups=("patient", "p{person}_*"))).train.groups
    assert both is not None
    assert len(np.unique(both)) == len(np.unique(np.stack([by_column, groups]), axis=1).T)  # type: ignore[list-item]
    for groups_ in ("doctor", ("patient", "doctor")):
        with pytest.raises(DataError, match=r"data\.groups: doctor given; "):
            load(replace(request, groups=groups_))
    (base / "table.csv").write_text(f"file,label,patient\n{rows.replace(',1', ',', 1)}")
    with pytest.raises(DataError, match="has nobody in column patient"):
        load(table)


@pytest.mark.long
def test_data_sets_that_know_persons_are_asked_by_name() -> None:
    request = DataRequest("photographs", None, None, None, 0, Path(), groups="region")
    with pytest.raises(PlanError, match="person given; data set photographs knows region"):
        load(replace(request, groups="person"))
    with pytest.raises(PlanError, match=r"data\.groups: person given, but data set digits takes"):
        load(replace(request, name="digits", groups="person"))
    regions = load(request).train
    assert np.array_equal(regions.groups, regions.together)  # type: ignore[arg-type]
