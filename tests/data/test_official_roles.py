"""Roles from official splits, and accuracy on the clients' own records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedassay
from fedassay.data.evaluation import held_out
from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.official_roles import official_roles
from fedassay.plan.own_images import check_images, data_seeds, outline, request_of, role_sizes
from fedassay.plan.schema import parse_plan
from fedassay.plan.sizes import sizes_of
from fedassay.support.errors import PlanError

_NAMES = ("a", "b", "c")


def _set(size: int, seed: int) -> ImageSet:
    rng = np.random.default_rng(seed)
    return ImageSet(rng.integers(0, 256, (size, 8, 8, 1), np.uint8), np.arange(size) % 3, _NAMES)


def _data(train: int = 90, test: int = 30) -> LoadedData:
    return LoadedData(_set(train, 0), _set(test, 1), "mine")


def test_clients_hold_the_test_set_and_everybody_else_the_training_set() -> None:
    data = _data()
    assert data.test is not None
    shares: Any = {"private": 1.0, "attacker": 0.8, "test": 0.1, "control": 0.1}
    roles = official_roles(data, shares, np.random.default_rng(0))
    assert np.array_equal(roles.private.images, data.test.images)
    assert [len(roles.attacker), len(roles.test), len(roles.control), len(roles.public)] == [72, 9, 9, 0]
    for role in ("attacker", "test", "control"):
        held = getattr(roles, role)
        assert np.array_equal(held.images, data.train.images[roles.indices[role]])
    some = official_roles(data, {"private": 0.5, "test": 0.1}, np.random.default_rng(0))
    assert np.array_equal(some.private.images, data.test.images[some.indices["private"]])
    assert np.bincount(some.private.labels).tolist() == [5, 5, 5]


def test_nobody_holds_an_image_or_a_person_of_the_clients() -> None:
    data = _data()
    assert data.test is not None
    data.test.images[4] = data.train.images[7]
    train = replace(data.train, groups=np.arange(90) // 2)
    test = replace(data.test, groups=np.where(np.arange(30) < 3, 11, 1000 + np.arange(30)))
    roles = official_roles(
        LoadedData(train, test, "mine"), {"private": 1.0, "test": 0.5}, np.random.default_rng(0)
    )
    assert roles.dropped == 4
    assert sorted(set(range(30)) - set(roles.indices["private"].tolist())) == [0, 1, 2, 4]
    with pytest.raises(PlanError, match="official given, but mine has no test set of its own"):
        official_roles(LoadedData(train, None, "mine"), {"private": 1.0}, np.random.default_rng(0))


def _plan(**sections: Any) -> dict[str, Any]:
    data = {"name": "npz", "path": "mine.npz", "roles": "official"} | sections.pop("data", {})
    return {
        "name": "p",
        "data": data,
        "clients": {"count": 3, "partition": "iid"} | sections.pop("clients", {}),
        "backbone": {"name": "pixels"},
        "methods": [{"fedcgs": {}}],
    } | sections


@pytest.fixture
def own(tmp_path: Path) -> Path:
    data = _data(120, 60)
    assert data.test is not None
    x, y = (
        part.images + (70 * part.labels[:, None, None, None]).astype(np.uint8) for part in (data.train, data.test)
    )
    np.savez(tmp_path / "mine.npz", x=x // 2, y=data.train.labels, x_test=y // 2, y_test=data.test.labels)
    return tmp_path


def _facts(run: fedassay.Run) -> dict[str, Any]:
    found: dict[str, Any] = run.record.data["0"]
    return found


def test_a_plan_with_official_roles(own: Path) -> None:
    """Shares of the test set and of the training set are told apart, before anything is read and after."""
    content = _plan(data={"split": {"private": 1.0, "attacker": 0.8, "test": 0.1, "control": 0.1}})
    plan = parse_plan(content, "plan")
    check_images(plan, own)
    found = outline(request_of(plan.data, own, data_seeds(0)))
    assert found is not None
    assert role_sizes(plan.data, found)._asdict() == {
        "private": 60, "attacker": 96, "public": 0, "test": 12, "control": 12,
    }  # fmt: skip
    run = fedassay.run(content, own / "out", base=own)
    assert not run.errors
    assert _facts(run)["records"] == {"private": 60, "attacker": 96, "public": 0, "test": 12, "control": 12}


def test_sizes_of_a_published_set_with_official_roles() -> None:
    split = {"private": 1.0, "attacker": 0.98, "test": 0.01, "control": 0.01}
    content = _plan(data={"name": "cifar10", "path": None, "split": split})
    sizes = sizes_of(parse_plan(content, "plan"), Path())
    assert not isinstance(sizes, str)
    assert (sizes.private, sizes.attacker, sizes.test, sizes.control) == (10_000, 49_000, 500, 500)


def test_shares_of_more_than_there_is_are_refused(own: Path) -> None:
    with pytest.raises(PlanError, match=r"data\.split: .*the shares but private sum to 1\.1"):
        parse_plan(_plan(data={"split": {"private": 1.0, "attacker": 1.0, "test": 0.1}}), "plan")
    with pytest.raises(PlanError, match=r"data\.split: .*sum to 1\.9"):
        parse_plan(_plan(data={"roles": "drawn", "split": {"private": 1.0, "attacker": 0.9}}), "plan")
    alone = parse_plan(_plan(data={"split": {"private": 1.0, "attacker": 0.5}}), "plan")
    with pytest.raises(
        PlanError, match=r"split\.test: no records; .*of the 120 records of .*, whose test set is the"
    ):
        check_images(alone, own)
    np.savez(own / "mine.npz", x=np.zeros((30, 8, 8), np.uint8), y=np.arange(30) % 3)
    with pytest.raises(PlanError, match=r"official given, but file mine\.npz has no test set"):
        check_images(parse_plan(_plan(), "plan"), own)


def test_held_out_records_are_the_clients_own_and_whole_groups() -> None:
    rng = np.random.default_rng(0)
    private = _set(60, 2)
    parts = [np.arange(20), np.arange(20, 59), np.arange(59, 60)]
    kept, aside = held_out(private, parts, 0.25, rng)
    assert [len(part) for part in aside] == [5, 9, 0]
    for part, mine, theirs in zip(parts, kept, aside, strict=True):
        assert sorted([*mine, *theirs]) == part.tolist()
    assert np.bincount(private.labels[aside[1]], minlength=3).min() >= 2
    grouped = replace(private, groups=np.arange(60) // 4)
    kept, aside = held_out(grouped, [np.arange(40)], 0.3, rng)
    assert len(aside[0]) == 12
    assert not set(grouped.groups[aside[0]]) & set(grouped.groups[kept[0]])  # type: ignore[index]
    with pytest.raises(PlanError, match=r"held_out: 0\.01 of the clients' records is no record"):
        held_out(private, parts, 0.01, rng)
    with pytest.raises(PlanError, match="of client 1 leaves none"):
        held_out(replace(private, groups=np.arange(60)), [np.arange(9), np.arange(9, 10)], 0.9, rng)


@pytest.mark.parametrize(
    ("evaluate", "count", "clients"), [("test", 12, 60), ("own", 60, 60), ("held_out", 15, 45)]
)
def test_accuracy_is_measured_where_the_plan_says(own: Path, evaluate: str, count: int, clients: int) -> None:
    content = _plan(
        data={"split": {"private": 1.0, "attacker": 0.8, "test": 0.1, "control": 0.1}},
        clients={"evaluate": evaluate, "held_out": 0.25},
        methods=[{"fedcgs": {}}, "fedpft_chain"],
    )
    run = fedassay.run(content, own / "out", base=own)
    assert not run.errors
    assert _facts(run)["evaluated_on"] == {"records": evaluate, "count": count}
    assert sum(_facts(run)["client_records"]) == clients
    assert {cell.utility["accuracy_n"] for cell in run.record.cells} == {count}
    page = (own / "out" / "report.html").read_text()
    assert "the clients hold its test set" in page
    assert ("on the clients&#39; own records, which they trained on" in page) == (evaluate == "own")
    assert ("held out of the clients&#39; own" in page) == (evaluate == "held_out")
