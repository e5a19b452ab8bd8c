"""Own images are checked by their headers, before anything of torch is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest
from PIL import Image

from fedassay.data import load
from fedassay.data.roles import split_roles
from fedassay.plan.estimate import estimate
from fedassay.plan.own_images import check_images, data_seeds, outline, request_of, role_sizes, shares_of
from fedassay.plan.resolve import load_scenario
from fedassay.plan.schema import Plan, parse_plan
from fedassay.support.errors import DataError, FedassayError, PlanError

_RNG = np.random.default_rng(0)


def _npz(folder: Path, **changes: Any) -> None:
    arrays = {
        "train_images": _RNG.integers(0, 256, (40, 9, 8, 3), np.uint8),
        "train_labels": np.arange(40)[:, None] % 4,
        "test_images": _RNG.integers(0, 256, (8, 9, 8, 3), np.uint8),
        "test_labels": np.arange(8)[:, None] % 4,
    } | changes
    np.savez(folder / "mine.npz", **{name: array for name, array in arrays.items() if array is not None})


def _folder(folder: Path, *, sizes: tuple[int, ...] = (8,), classes: tuple[str, ...] = ("a", "b")) -> None:
    for label in classes:
        (folder / "mine" / label).mkdir(parents=True, exist_ok=True)
        for number in range(20):
            side = sizes[number % len(sizes)]
            # Large ones are black, which compresses at once.
            pixels = _RNG.integers(0, 256 if side < 100 else 1, (side, side, 3), np.uint8)
            Image.fromarray(pixels).save(folder / "mine" / label / f"{number}.png")


def _both(folder: Path) -> None:
    _npz(folder)
    _folder(folder)


def _table(folder: Path, text: str) -> None:
    _folder(folder)
    (folder / "labels.csv").write_text(text)


def _plan(data: dict[str, Any], **sections: Any) -> dict[str, Any]:
    content: dict[str, Any] = {
        "name": "p",
        "data": {"name": "npz", "path": "mine.npz", "split": {"private": 0.5, "attacker": 0.3}} | data,
        "clients": {"count": 2, "partition": "iid"},
        "backbone": {"name": "pixels"},
        "methods": [{"raw_features": {}}],
    }
    return content | sections


_IN_FOLDER = {"name": "image_folder", "path": "mine", "split": {"private": 0.5, "attacker": 0.3, "test": 0.2}}

_WRONG: dict[str, tuple[Callable[[Path], None], dict[str, Any], str]] = {
    "no file": (lambda folder: None, _plan({}), "data.path: mine.npz does not exist; looked beside the plan"),
    "no folder": (lambda folder: None, _plan(_IN_FOLDER), "data.path: mine does not exist"),
    "no path": (lambda folder: None, _plan({"path": None}), "data.path: not given"),
    "wrong names": (
        lambda folder: np.savez(folder / "mine.npz", a=np.zeros(3)),
        _plan({}),
        "has no array x, x_train",
    ),
    "floats": (lambda folder: _npz(folder, train_images=np.zeros((40, 9, 8))), _plan({}), "allowed: uint8"),
    "labels missing": (lambda folder: _npz(folder, train_labels=np.arange(39)), _plan({}), "there are 40 images"),
    "several labels": (
        lambda folder: _npz(folder, train_labels=np.zeros((40, 14), np.uint8)),
        _plan({}),
        "has 14 labels a record",
    ),
    "test of another size": (
        lambda folder: _npz(folder, test_images=np.zeros((8, 9, 9, 3), np.uint8)),
        _plan({}),
        "test_images holds images of (9, 9, 3), train_images of (9, 8, 3)",
    ),
    "two sizes": (lambda folder: _folder(folder, sizes=(8, 9)), _plan(_IN_FOLDER), "images of different sizes"),
    "too large": (lambda folder: _folder(folder, sizes=(1030,)), _plan(_IN_FOLDER), "allowed: up to 1024x1024"),
    "one class": (lambda folder: _folder(folder, classes=("a",)), _plan(_IN_FOLDER), "has one class folder, a"),
    "labels of others": (
        lambda folder: _table(folder, "file,label\na/1.png,x\nb/99.png,y\n"),
        _plan(_IN_FOLDER | {"labels": "labels.csv"}),
        "labels.csv, line 3: 'b/99.png' is not in the folder",
    ),
    "no test records": (
        _folder,
        _plan(_IN_FOLDER | {"split": {"private": 0.5, "attacker": 0.5}}),
        "data.split.test: no records",
    ),
    "a role too small": (
        _folder,
        _plan(_IN_FOLDER | {"split": {"private": 0.5, "attacker": 0.005, "test": 0.2}}),
        "data.split.attacker: 0.005 of 40 records of folder mine is no record",
    ),
    "two test sets": (
        _npz,
        _plan({"split": {"private": 0.5, "test": 0.2}}),
        "data.split.test: 0.2 given, but the data set has an official test set",
    ),
    "too many clients": (
        _npz,
        _plan({}, clients={"count": 5, "min_records": 10}),
        "clients: 5 clients of at least 10 records given, but there are 20 private records",
    ),
    "no such domain": (
        _npz,
        _plan({"test_domain": "north"}),
        "data.test_domain: north given, but the data set has no",
    ),
    "domains": (
        _npz,
        _plan({}, clients={"count": 2, "partition": "domains"}),
        "clients.partition: domains given, but file mine.npz has none",
    ),
    "another attacker": (
        _both,
        _plan({"attacker_from": {"name": "image_folder", "path": "mine"}}),
        "data.attacker_from: images of folder mine are (8, 8, 3), the private ones (9, 8, 3)",
    ),
}


def _parsed(content: dict[str, Any]) -> Plan:
    return parse_plan(content, "plan")


@pytest.mark.long
@pytest.mark.parametrize("case", _WRONG)
def test_what_cannot_be_run_is_refused(case: str, tmp_path: Path) -> None:
    make, content, message = _WRONG[case]
    make(tmp_path)
    with pytest.raises(FedassayError) as refused:
        check_images(_parsed(content), tmp_path)
    assert message in str(refused.value)


_WITHOUT_TORCH = """
import sys
from fedassay.cli import cli
from fedassay.support.errors import FedassayError
try:
    cli.main(sys.argv[1:], standalone_mode=False)
except FedassayError as error:
    print(error)
print("torch" in sys.modules, "sklearn" in sys.modules)
"""


@pytest.mark.long
@pytest.mark.parametrize("options", [["--dry-run"], []])
@pytest.mark.parametrize("case", ["no folder", "labels missing", "two sizes", "a role too small"])
def test_it_is_refused_before_torch_is_imported(case: str, options: list[str], tmp_path: Path) -> None:
    make, content, message = _WRONG[case]
    make(tmp_path)
    (tmp_path / "plan.yaml").write_text(json.dumps(content))
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TORCH, "run", "plan.yaml", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert message in done.stdout
    assert done.stdout.endswith("False False\n")
    assert not (tmp_path / "runs").exists()


def test_exit_code_and_message_of_the_command(tmp_path: Path) -> None:
    make, content, message = _WRONG["labels missing"]
    make(tmp_path)
    (tmp_path / "plan.yaml").write_text(json.dumps(content))
    done = forked.fedassay("run", "plan.yaml", "--dry-run", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr


@pytest.mark.parametrize("limit", [None, 12, 30])
@pytest.mark.parametrize("kind", ["npz", "image_folder"])
def test_headers_tell_the_sizes_that_the_run_has(kind: str, limit: int | None, tmp_path: Path) -> None:
    (_npz if kind == "npz" else _folder)(tmp_path)
    data = {"limit": limit} if kind == "npz" else _IN_FOLDER | {"limit": limit}
    plan = _parsed(_plan(data | {"size": 12}))
    check_images(plan, tmp_path)
    seeds = data_seeds(0)
    request = request_of(plan.data, tmp_path, seeds)
    seen, read = outline(request), load(request)
    assert seen is not None
    shares = shares_of(plan.data, test_set=read.test is not None)
    roles = split_roles(read, shares, seeds.numpy("roles"))
    sizes = role_sizes(plan.data, seen)
    assert sizes._asdict() == {role: len(getattr(roles, role)) for role in sizes._fields}
    assert sizes.control > 0
    assert seen.image == read.train.image_shape == (12, 12, 3)


def test_a_limit_lets_a_file_pass_that_is_never_read(tmp_path: Path) -> None:
    _folder(tmp_path)
    odd = tmp_path / "mine" / "a" / "7.png"
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(odd)
    verdicts = set()
    for seed in range(8):
        plan = _parsed(_plan(_IN_FOLDER | {"limit": 20}, seeds=[seed]))
        request = request_of(plan.data, tmp_path, data_seeds(seed))
        outcomes = []
        for read in (lambda plan=plan: check_images(plan, tmp_path), lambda request=request: load(request)):
            try:
                read()
            except DataError as error:
                outcomes.append(str(error))
            else:
                outcomes.append("")
        assert outcomes[0] == outcomes[1]
        verdicts.add(bool(outcomes[0]))
    assert verdicts == {True, False}


def test_own_images_are_estimated(tmp_path: Path) -> None:
    _folder(tmp_path)
    seconds = []
    for size in (8, 32):
        content = _plan(_IN_FOLDER | {"size": size}, methods=[{"fedavg": {}}])
        (tmp_path / "plan.yaml").write_text(json.dumps(content))
        found = estimate(load_scenario(tmp_path / "plan.yaml"))
        assert found.seconds is not None
        assert found.memory is not None
        assert found.remarks == ()
        seconds.append(found.seconds)
    assert seconds[1] > seconds[0]


def test_other_data_sets_are_not_looked_at(tmp_path: Path) -> None:
    for name in ("digits", "photographs", "cifar10"):
        plan = _parsed(_plan({"name": name, "path": None}))
        check_images(plan, tmp_path)
        assert outline(request_of(plan.data, tmp_path, data_seeds(0))) is None


def test_a_key_of_another_data_set_is_refused(tmp_path: Path) -> None:
    _npz(tmp_path)
    with pytest.raises(PlanError, match=r"data\.labels: x\.csv given, but data set npz takes path, label_column"):
        check_images(_parsed(_plan({"labels": "x.csv"})), tmp_path)


@pytest.mark.parametrize(("limit", "clients", "refused"), [(3, 3, True), (30, 3, False), (30, 25, True)])
def test_a_limit_that_leaves_clients_without_records_is_refused_before_the_run(
    limit: int, clients: int, refused: bool, tmp_path: Path
) -> None:
    content = {"name": "p", "data": {"name": "digits", "limit": limit}, "methods": ["raw_features"]}
    plan = _parsed(content | {"clients": {"count": clients}})
    if refused:
        with pytest.raises(
            PlanError, match=rf"clients.count: {clients} given; allowed: at most \d+, for data.limit"
        ):
            check_images(plan, tmp_path)
    else:
        check_images(plan, tmp_path)
