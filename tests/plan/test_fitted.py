"""`fedassay init --data`: whatever images there are, the plan that is written resolves and runs as it is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest
import yaml
from PIL import Image

from fedassay.backbones import small_cnn
from fedassay.execution.prepare import prepare
from fedassay.plan.estimate import estimate, foreseen
from fedassay.plan.fitted import fitted_plan
from fedassay.plan.own_images import check_images, outline_of, persons_in_words
from fedassay.plan.resolve import load_plan, load_scenario
from fedassay.plan.schema import Plan, parse_plan
from fedassay.support.errors import DataError, FedassayError, PlanError
from fedassay.support.progress import SILENT

_RNG = np.random.default_rng(0)
_STARTER = (resources.files("fedassay") / "starter.yaml").read_text(encoding="utf-8")


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backbone is trained for a few steps: nobody asks here how well."""
    monkeypatch.setattr(small_cnn, "_STEPS", (3, 3))


def _pixels(*shape: int) -> Any:
    return _RNG.integers(0, 256, shape, np.uint8)


def _medmnist(folder: Path, several: int = 1, side: int = 28) -> Path:
    def labels(count: int) -> Any:
        return np.stack([np.arange(count) // (2**bit) % 2 for bit in range(several)], axis=1).astype(np.uint8)

    arrays = {}
    for part, count in (("train", 300), ("val", 40), ("test", 60)):
        arrays |= {f"{part}_images": _pixels(count, side, side), f"{part}_labels": labels(count)}
    np.savez(folder / "chest x.npz", **arrays)
    return folder / "chest x.npz"


def _folder(folder: Path, names: tuple[str, ...], count: int, sides: tuple[int, ...] = (16,)) -> Path:
    root = folder / "scans: 2026 #1"
    for name in names:
        (root / name).mkdir(parents=True)
        for number in range(count):
            side = sides[number % len(sides)]
            Image.fromarray(_pixels(side, side, 3)).save(root / name / f"{number}.png")
    return root


def _with_table(folder: Path) -> Path:
    root = _folder(folder, ("pictures",), 60)
    rows = "".join(f"{number}.png,{number},{'ill' if number % 3 else 'well'}\n" for number in range(60))
    (root / "meta.csv").write_text(f"image,age,diagnosis\n{rows}")
    return root


@pytest.mark.parametrize(("classes", "each"), [(2, 100), (4, 100), (10, 30), (40, 10)])
def test_no_audit_of_a_plan_that_fits_is_too_small_for_its_controls(
    tmp_path: Path, classes: int, each: int
) -> None:
    root, file = _folder(tmp_path, tuple(map(str, range(classes))), each, (8,)), tmp_path / "plan.yaml"
    file.write_text(fitted_plan(root, file, _STARTER, given={"layout": "class/image"}))
    assert [words for words in foreseen(load_scenario(file)) if "control" in words] == []


_CASES: dict[str, tuple[Callable[[Path], Path], dict[str, Any]]] = {
    "medmnist": (_medmnist, {"data.name": "npz", "clients.count": 5, "backbone.weights": "public"}),
    "medmnist of 14 labels": (lambda folder: _medmnist(folder, several=14), {"data.label_column": 0}),
    "medmnist of 224 pixels": (lambda folder: _medmnist(folder, side=224), {"data.size": 32}),
    "class folders": (
        lambda folder: _folder(folder, ("a", "b\x1b[2J", "#c"), 60),
        {"data.name": "image_folder", "clients.count": 4},
    ),
    "few images": (
        lambda folder: _folder(folder, ("a", "b"), 12),
        {"clients.count": 1, "backbone.weights": "random"},
    ),
    "train and test": (
        lambda folder: _folder(folder, ("train/a", "train/b", "test/a", "test/b"), 60),
        {"data.split.public": 0.2},
    ),
    "two sizes": (lambda folder: _folder(folder, ("a", "b"), 60, (16, 20)), {"data.size": 32}),
    "sites": (
        lambda folder: _folder(folder, ("north/a", "north/b", "south/a", "south/b"), 60),
        {"clients.partition": "domains", "clients.count": 2},
    ),
    "a table of labels": (_with_table, {"data.labels": "meta.csv"}),
}


def _mixed(folder: Path) -> Path:
    """Images with a table in which several columns could be the labels."""
    root = _folder(folder, ("pictures",), 60, (16, 20))
    rows = "".join(
        f"{number}.png,{number // 2},{'nv' if number % 3 else 'mel'},{number % 3}\n" for number in range(60)
    )
    (root / "meta.csv").write_text(f"image,age,type,stain\n{rows}")
    return root


def test_the_column_of_labels_is_asked_for_and_taken(tmp_path: Path) -> None:
    root, plan = _mixed(tmp_path), tmp_path / "plan.yaml"
    with pytest.raises(DataError, match=r"label_column allows age \(30 values\), type \(2 values\), stain \(3"):
        fitted_plan(root, plan, _STARTER)
    text = fitted_plan(root, plan, _STARTER, "type")
    data = yaml.safe_load(text)["data"]
    assert (data["labels"], data["label_column"]) == ("meta.csv", "type")
    assert "2 classes: mel (20), nv (40)" in text
    assert "of several sizes (resized to 32)" in text
    archive = _medmnist(tmp_path, several=14)
    assert yaml.safe_load(fitted_plan(archive, plan, _STARTER, "6"))["data"]["label_column"] == 6
    with pytest.raises(PlanError, match="a whole number"):
        fitted_plan(archive, plan, _STARTER, "dx")
    with pytest.raises(PlanError, match=r"data\.label_column: dx given, but .* has no table"):
        fitted_plan(_folder(tmp_path / "plain", ("a", "b"), 30), plan, _STARTER, "dx")


def _sites_with_table(folder: Path) -> Path:
    """Sites, in each a folder for every patient, and a table in which several columns could be the labels."""
    root, rows = folder / "export", []
    for patient in range(90):
        site = ("north", "south", "west")[patient % 3]
        where = root / site / f"PAT{patient:05d}"
        where.mkdir(parents=True)
        for number in range(2):
            Image.fromarray(_pixels(16, 16, 3)).save(where / f"{number}.png")
            finding = "ill" if patient % 2 else "well"
            rows.append(f"{site}/{where.name}/{number}.png,{where.name},{site},{finding}\n")
    (root / "metadata.csv").write_text("file,patient_id,site,finding\n" + "".join(rows))
    return root


def test_a_table_beside_folders_is_not_passed_over(tmp_path: Path) -> None:
    """The folders are patients: taken for classes they would make a plan that tests nothing."""
    root, plan = _sites_with_table(tmp_path), tmp_path / "plan.yaml"
    made = yaml.safe_load(fitted_plan(root, plan, _STARTER))
    assert (made["data"]["labels"], made["data"]["sites"]) == ("metadata.csv", "site")
    assert made["data"]["groups"] == "patient_id"
    assert made["clients"] == {"count": 3, "partition": "domains", "shared_persons": "one_client"}


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            lambda table: table + b"north/PAT9/0.png,PAT9,north,ill\n",
            "line 182: 'north/PAT9/0.png' is not in the folder",
        ),
        (lambda table: table.rsplit(b"\n", 2)[0], "1 of 180 images have no row"),
        (lambda table: table.replace(b",well\n", b",\n", 1), "has no label in column finding"),
        (
            lambda table: table.replace(b"north/PAT00000/0", b"north/PAT00000/7"),
            "the nearest file is north/PAT00000/1.png",
        ),
        (lambda table: table.replace(b",ill", b",ill,", 1), "has 5 columns; allowed: 4"),
    ],
)
def test_the_error_of_a_table_stands(spoil: Callable[[bytes], bytes], says: str, tmp_path: Path) -> None:
    """The folders below it are patients, and would pass for classes."""
    root = _sites_with_table(tmp_path)
    table = root / "metadata.csv"
    table.write_bytes(spoil(table.read_bytes()))
    with pytest.raises(DataError, match=re.escape(says)):
        fitted_plan(root, tmp_path / "plan.yaml", _STARTER, "finding")


def test_a_table_that_does_not_speak_of_the_images_blocks_nothing(tmp_path: Path) -> None:
    root = _folder(tmp_path, ("ill", "well"), 30)
    (root / "scanners.csv").write_text("scanner,bought\nA,2019\nB,2020\n")
    assert "labels" not in yaml.safe_load(fitted_plan(root, tmp_path / "plan.yaml", _STARTER))["data"]
    (root / "who.csv").write_text("patient,born\nA,1950\nB,1960\n")
    with pytest.raises(DataError, match=r"who\.csv: no column names files of the folder"):
        fitted_plan(root, tmp_path / "plan.yaml", _STARTER)


def test_a_folder_with_one_archive_is_that_archive_and_keeps_its_size(tmp_path: Path) -> None:
    folder = tmp_path / "download"
    folder.mkdir()
    _medmnist(folder, several=2)
    data = yaml.safe_load(fitted_plan(folder, tmp_path / "plan.yaml", _STARTER))["data"]
    assert data["path"].endswith("chest x.npz")
    assert "size" not in data


def _write(case: str, folder: Path) -> Path:
    plan = folder / "plan.yaml"
    plan.write_text(fitted_plan(_CASES[case][0](folder), plan, _STARTER), encoding="utf-8")
    return plan


def _at(content: Any, path: str) -> Any:
    for key in path.split("."):
        content = content[key]
    return content


@pytest.mark.parametrize("case", _CASES)
def test_the_plan_fits_resolves_and_is_estimated(case: str, tmp_path: Path) -> None:
    plan = _write(case, tmp_path)
    text = plan.read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    for path, expected in _CASES[case][1].items():
        assert _at(content, path) == expected, path
    scenario = load_scenario(plan)
    check_images(scenario.plan, scenario.base)
    found = estimate(scenario)
    assert found.seconds is not None
    assert 10 < found.seconds < 600
    assert "\x1b" not in text
    assert set(content) == set(yaml.safe_load(_STARTER))


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("case", ["medmnist of 14 labels", "few images", "a table of labels", "sites"])
def test_the_records_of_the_plan_are_prepared_as_it_says(case: str, tmp_path: Path) -> None:
    from fedassay.execution.prepare import prepare
    from fedassay.support.progress import SILENT

    plan: Plan = load_scenario(_write(case, tmp_path)).plan
    prepared = prepare(plan, tmp_path, 0, "cpu", SILENT)
    assert len(prepared.clients) == plan.clients.count
    assert prepared.attacker is not None
    assert min(len(client) for client in prepared.clients) >= plan.clients.min_records
    assert np.isfinite(prepared.test.features).all()


@pytest.mark.slow
@pytest.mark.parametrize("case", ["few images", "a table of labels", "medmnist"])
def test_the_plan_runs_as_it_is(case: str, tmp_path: Path) -> None:
    plan = _write(case, tmp_path)
    command = [sys.executable, "-m", "fedassay", "run", str(plan), "-o", str(tmp_path / "out"), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "out" / "record.json").read_text())
    assert len(record["cells"]) == 5
    assert record["errors"] == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "nowhere", "does not exist; allowed: a folder of images, or an .npz file"),
        (lambda folder: Path(shutil.make_archive(str(folder / "a"), "zip", folder)), "a.zip: is no .npz file"),
        (lambda folder: folder, "has no folders in it"),
        (lambda folder: _folder(folder, ("a", "b"), 4), "holds 8 records to share out; allowed: 20 or more"),
        (lambda folder: _folder(folder, ("a",), 40), "has one class folder, a"),
    ],
)
def test_what_no_plan_fits_is_refused(make: Callable[[Path], Path], message: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(FedassayError) as refused:
        fitted_plan(make(tmp_path / "data"), tmp_path / "plan.yaml", _STARTER)
    assert message in str(refused.value)
    assert isinstance(refused.value, (PlanError, DataError))


@pytest.mark.long
def test_the_command_writes_one_file_and_nothing_where_it_refuses(tmp_path: Path) -> None:
    root = _folder(tmp_path, ("a", "b"), 30)

    def init(*args: str) -> subprocess.CompletedProcess[str]:
        return forked.fedassay("init", *args, cwd=tmp_path)

    done = init("mine.yaml", "--data", str(root))
    assert done.returncode == 0, done.stderr
    assert "fedassay run mine.yaml --dry-run" in done.stdout
    assert load_scenario(tmp_path / "mine.yaml").plan.data.path == root.name
    before = (tmp_path / "mine.yaml").read_text()
    for refused in (init("mine.yaml", "--data", str(root)), init("other.yaml", "--data", "none")):
        assert refused.returncode == 2
        assert "Traceback" not in refused.stderr
    assert (tmp_path / "mine.yaml").read_text() == before
    assert not (tmp_path / "other.yaml").exists()


def _npz_of_patients(folder: Path) -> Path:
    file = folder / "scans.npz"
    names = np.repeat([f"p{number:02d}" for number in range(60)], 4)
    np.savez(file, x=_pixels(240, 8, 8), y=np.arange(240) % 3, Patient_ID=names, age=np.arange(240))
    return file


def _table_of_patients(folder: Path) -> Path:
    root = _folder(folder, ("pictures",), 120)
    rows = "".join(f"{number}.png,{'ill' if number % 3 else 'well'},s{number // 3}\n" for number in range(120))
    (root / "meta.csv").write_text(f"image,diagnosis,subject\n{rows}")
    return root


def _files_of_patients(folder: Path) -> Path:
    root = _folder(folder, ("a", "b"), 60)
    for file in sorted(root.rglob("*.png")):
        number = int(file.stem)
        file.rename(file.with_name(f"patient{number // 3}_{number}.png"))
    return root


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize(
    ("make", "groups", "persons"),
    [
        (_npz_of_patients, "Patient_ID", 60),
        (_table_of_patients, "subject", 40),
        (_files_of_patients, "patient{person}_*", 20),
    ],
)
def test_persons_are_proposed_where_a_name_says_so(
    make: Callable[[Path], Path], groups: str, persons: int, tmp_path: Path
) -> None:
    text = fitted_plan(make(tmp_path), tmp_path / "plan.yaml", _STARTER)
    assert f"# {persons} persons by `groups`" in text
    (tmp_path / "plan.yaml").write_text(text)
    plan = load_plan(tmp_path / "plan.yaml")
    assert plan.data.groups == groups
    check_images(plan, tmp_path)
    assert persons_in_words(plan, outline_of(plan, tmp_path)).startswith(
        f"data.groups: {groups}; {persons} persons with"
    )
    prepared = prepare(plan, tmp_path, 0, "cpu", SILENT)
    held = [set(client.groups.tolist()) for client in prepared.clients if client.groups is not None]
    assert len(held) == plan.clients.count
    assert sum(map(len, held)) == len(set().union(*held))
    facts = prepared.facts["persons"]
    assert facts["groups"] == groups
    assert facts["persons"]["private"] == sum(facts["client_persons"]) == sum(map(len, held))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"label_colum": 1}, r"^data\.label_colum: unknown key; allowed: name, root"),
        ({"size": 32.5}, r"^data\.size: given 32\.5; allowed: a whole number"),
        ({"split": 0.5}, r"^data\.split: given 0\.5; allowed: a section"),
    ],
)
def test_a_wrong_key_of_data_is_one_sentence(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=_pixels(60, 8, 8), y=np.arange(60) % 3)
    with pytest.raises(PlanError, match=words):
        fitted_plan(tmp_path / "own.npz", tmp_path / "plan.yaml", _STARTER, None, given)


def test_persons_that_cannot_be_used_are_not_dropped_in_silence(tmp_path: Path) -> None:
    patients = np.where(np.arange(60) < 4, np.nan, np.arange(60) // 3)
    np.savez(tmp_path / "own.npz", x=_pixels(60, 8, 8), y=np.arange(60) % 3, patient=patients)
    with pytest.raises(DataError, match=r"patient holds float64; allowed: .*, or data\.groups: null, for records"):
        fitted_plan(tmp_path / "own.npz", tmp_path / "plan.yaml", _STARTER)
    assert "groups: null" in fitted_plan(
        tmp_path / "own.npz", tmp_path / "plan.yaml", _STARTER, None, {"groups": None}
    )


def test_no_person_is_proposed_of_whom_each_has_one_record(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=_pixels(60, 8, 8), y=np.arange(60) % 3, patient=np.arange(60))
    text = fitted_plan(tmp_path / "own.npz", tmp_path / "plan.yaml", _STARTER)
    assert "groups" not in text
    (tmp_path / "plan.yaml").write_text(text)
    plan = load_plan(tmp_path / "plan.yaml")
    assert "a person of its own" in persons_in_words(plan, outline_of(plan, tmp_path))


def test_too_few_persons_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    names = np.repeat(np.arange(6), 20)
    np.savez(tmp_path / "own.npz", x=_pixels(120, 8, 8), y=np.arange(120) % 3, who=names)
    content: dict[str, Any] = {
        "name": "few",
        "data": {"name": "npz", "path": "own.npz", "groups": "who"},
        "clients": {"count": 5, "partition": "iid"},
        "methods": ["raw_features"],
    }
    with pytest.raises(PlanError, match=r"persons is none|persons, each at one client"):
        check_images(parse_plan(content, "plan"), tmp_path)
