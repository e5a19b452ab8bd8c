"""What cells stand on: resumed runs, mixed records, and digests of private data that confirm no guess."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fedassay
from fedassay.execution.basis import KEY, refuse_unlike
from fedassay.records.basis import KEYED, Basis, keyed
from fedassay.records.manifest import LOCK
from fedassay.records.record import CellRecord, RunRecord, load_record
from fedassay.records.redacted import redact
from fedassay.reports.gate.verify import verify
from fedassay.support.errors import DataError, PlanError

PLAN: dict[str, Any] = {
    "name": "stands",
    "seeds": [0],
    "data": {
        "name": "image_folder",
        "path": "images",
        "split": {"private": 0.4, "attacker": 0.2, "public": 0.2, "test": 0.2},
    },
    "clients": {"count": 2, "partition": "iid"},
    "backbone": {"name": "pixels"},
    "methods": ["raw_features", "fedcgs"],
    "attacks": ["message_algebra"],
    "audits": ["message"],
    "resources": {"threads": 1},
}


def _images(folder: Path, seed: int) -> None:
    """Forty images under the same names, whatever the seed."""
    rng = np.random.default_rng(seed)
    for number in range(40):
        path = folder / "images" / f"class{number % 2}" / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, size=(8, 8), dtype=np.uint8)).save(path)


def _run(folder: Path, name: str = "run", **options: Any) -> fedassay.Run:
    return fedassay.run(PLAN, folder / name, base=folder, progress=False, **options)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stands")
    _images(folder, 0)
    _run(folder)
    return folder


def _without_times(record: RunRecord) -> list[dict[str, Any]]:
    return [cell.model_dump(mode="json", exclude={"seconds"}) for cell in record.cells]


@pytest.mark.long
def test_resume_refuses_other_images_under_the_same_names(tmp_path: Path) -> None:
    """One cell was removed, all images were replaced: the record held old and new ones side by side."""
    _images(tmp_path, 0)
    whole = _run(tmp_path).record
    kept = tmp_path / "run" / "record.json"
    before = kept.read_bytes()
    (tmp_path / "run" / ".cells" / f"{whole.cells[0].key}.json").unlink()
    _images(tmp_path, 1)
    with pytest.raises(
        PlanError, match=r"--resume, but finished cells stand on something else .*the data \(.*private"
    ):
        _run(tmp_path, resume=True)
    assert kept.read_bytes() == before
    _images(tmp_path, 0)
    assert _without_times(_run(tmp_path, resume=True).record) == _without_times(whole)


def _changed(name: str, value: Any) -> Callable[[Basis], Basis]:
    return lambda basis: basis.model_copy(update={name: value})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_changed("plan", "0"), "the plan"),
        (_changed("cells", "0"), "the cells of the plan"),
        (_changed("entry", "0"), "the method entry"),
        (_changed("weights", "0"), "the weights of the backbone"),
        (_changed("code", "0"), "the code"),
        (_changed("data", {}), r"the data \(attacker, .*private, .*test\)"),
        (_changed("versions", {"numpy": "0"}), "the versions of .*numpy.*"),
    ],
)
def test_whatever_a_kept_cell_stood_on_is_named(home: Path, change: Callable[[Basis], Basis], words: str) -> None:
    cell = load_record(home / "run").cells[0]
    assert cell.basis is not None
    refuse_unlike(home, [(cell, cell.basis)])
    with pytest.raises(PlanError, match=rf"{cell.key} \({words}\)"):
        refuse_unlike(home, [(cell, change(cell.basis))])
    with pytest.raises(PlanError, match="an older fedassay"):
        refuse_unlike(home, [(cell.model_copy(update={"basis": None}), cell.basis)])


def test_cells_on_unlike_data_make_no_record(home: Path, tmp_path: Path) -> None:
    _images(tmp_path, 1)
    here, there = load_record(home / "run"), _run(tmp_path).record
    cells: tuple[CellRecord, ...] = (here.cells[0], there.cells[1])
    with pytest.raises(ValueError, match="stand on unlike data"):
        RunRecord(plan=here.plan, environment={}, cells=cells)
    content = json.loads(here.to_json())
    content["cells"][1] = json.loads(there.to_json())["cells"][1]
    (tmp_path / "record.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="stand on unlike data"):
        load_record(tmp_path / "record.json")


def _digests(record: RunRecord) -> dict[str, str]:
    basis = record.cells[0].basis
    assert basis is not None
    return basis.data


@pytest.mark.long
def test_digests_of_a_redacted_run_confirm_no_guess(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = _digests(load_record(home / "run"))
    (tmp_path / "key").write_text("0123456789abcdef\n")
    runs = [_run(home, f"redacted{tmp_path.name}{number}", redact=True) for number in range(2)]
    monkeypatch.setenv(KEY, str(tmp_path / "key"))
    runs.append(_run(home, f"redacted{tmp_path.name}", redact=True))
    for run in runs:
        digests = _digests(run.record)
        assert digests.keys() == plain.keys()
        assert all(digest.startswith(KEYED) for digest in digests.values())
        everything = b"".join(path.read_bytes() for path in run.folder.rglob("*") if path.is_file())
        assert not any(digest.encode() in everything for digest in plain.values())
        assert verify(run.folder).problems == ()
        assert verify(run.folder).open == ()
    # The lock of a run is empty: what somebody wrote into it is said.
    (runs[0].folder / LOCK).write_text("words")
    assert verify(runs[0].folder).open == (".lock: nothing names it, so it is compared with nothing",)
    assert _digests(runs[0].record) != _digests(runs[1].record)
    # Whoever has the key can tell which data a run had.
    assert _digests(runs[2].record)["private"] == keyed(plain["private"], b"0123456789abcdef")
    (tmp_path / "key").write_text("short")
    with pytest.raises(PlanError, match=f"{KEY}=.*allowed: 16 or more"):
        _run(home, "refused", redact=True)
    assert not (home / "refused").exists()


def test_what_redaction_leaves_of_a_whole_record(home: Path) -> None:
    whole = load_record(home / "run")
    content = json.loads(whole.to_json())
    content["plan"]["transcript"] = {"sha256": "a" * 64, "again": [{"folder": "x", "sha256": "b" * 64}]}
    content["data"]["0"]["backbone"]["fingerprint"] = "precomputed:" + "c" * 64
    left = redact(RunRecord.model_validate(content)).to_json()
    for digest in (*_digests(whole).values(), "a" * 64, "b" * 64, "c" * 64):
        assert digest not in left
    released = whole.cells[0].released
    assert released is not None
    assert released.transcript
    assert released.transcript not in left
