"""Names of folders and files in redacted runs: they may say whose the records are, and nothing keeps them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from fedassay.cli import cli
from fedassay.contracts.registry import component
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import Message, MessageField, Transcript
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import parse_plan
from fedassay.records.record import ErrorRecord, RunRecord, load_record
from fedassay.records.redacted import GONE, redact, redact_plan
from fedassay.reports.gate.verify import verify

CANARY = "Oncology-Ward7"
_FORMATS = ("html", "md", "json", "csv", "sarif", "junit")
_SPLIT = {"private": 0.4, "attacker": 0.2, "public": 0.2, "test": 0.2}


def _invoke(*args: str | Path) -> str:
    done = CliRunner().invoke(cli, [str(arg) for arg in args], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def _texts(content: bytes) -> Iterator[str]:
    """A file as text, with what is base64 in it."""
    yield content.decode("utf-8", "replace")
    for found in re.findall(rb"[A-Za-z0-9+/]{24,}={0,2}", content):
        yield base64.b64decode(found[: len(found) // 4 * 4]).decode("utf-8", "replace")


def _named(home: Path, *folders: Path) -> set[str]:
    """The files below some folders that name the canary, or the folder that all lies in."""
    words = (CANARY.lower(), str(home).lower())
    return {
        str(path.relative_to(home))
        for folder in folders
        for path in folder.rglob("*")
        if any(word in path.name.lower() for word in words)
        or (path.is_file() and any(word in text.lower() for text in _texts(path.read_bytes()) for word in words))
    }


def _plan(home: Path, **data: Any) -> Path:
    """A plan of forty images in two classes, every folder of which bears the canary's name."""
    rng = np.random.default_rng(0)
    for number in range(80):
        kind = f"{CANARY}-others" if number % 2 else f"{CANARY}-own"
        folder = home / f"{CANARY}-home" / f"{CANARY}-{'images' if number < 40 else 'attacker'}" / kind
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8), np.uint8)).save(folder / f"{CANARY}_{number:02}.png")
    plan = {
        "name": "plain",
        "seeds": [0],
        "data": {"name": "image_folder", "path": f"{CANARY}-images", "split": _SPLIT, **data},
        "clients": {"count": 2, "partition": "iid"},
        "backbone": {"name": "pixels"},
        "methods": ["raw_features", "fedcgs"],
        "attacks": ["message_algebra"],
        "audits": ["message"],
        "resources": {"threads": 1},
    }
    path = home / f"{CANARY}-home" / f"{CANARY}-plan.yaml"
    path.write_text(json.dumps(plan))
    return path


@pytest.mark.parametrize("given", ["relative", "absolute"])
def test_no_folder_is_named_in_a_redacted_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    home, out = tmp_path / f"{CANARY}-user", tmp_path / "out"
    home.mkdir()
    out.mkdir()
    plan = _plan(home)
    at = f"{plan.parent}/" if given == "absolute" else ""
    monkeypatch.setenv("FEDASSAY_CACHE", str(out / "cache"))
    monkeypatch.chdir(home)
    monkeypatch.setattr("sys.argv", ["fedassay", "run", str(plan), "--redact", "--set", f"data.path={CANARY}"])
    _invoke(
        *("run", plan if given == "absolute" else plan.relative_to(home), "-o", out / "run", "--redact"),
        *("--set", f"data.path={at}{CANARY}-images"),
        *("--set", f"data.attacker_from={{name: image_folder, path: {at}{CANARY}-attacker}}"),
        *("--set", f"data.classes=[{CANARY}-own, {CANARY}-others]"),
    )
    for format in _FORMATS:
        _invoke("report", out / "run", "--format", format, "-o", out / f"report.{format}")
    monkeypatch.chdir(out)
    _invoke("compare", out / "run", out / "run", "-o", out / "compare.html")
    assert _named(tmp_path, out) == set()
    assert verify(out / "run").problems == ()
    record = load_record(out / "run")
    assert record.plan["data"]["path"] == GONE
    assert record.plan["data"]["classes"] == [GONE, GONE]
    assert set(record.environment["command"][3:]) <= {GONE, "--redact", "--set"}


def test_a_run_that_is_redacted_later_names_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / f"{CANARY}-user"
    home.mkdir()
    monkeypatch.chdir(home)
    _invoke("run", _plan(home), "-o", home / "run")
    assert _named(home, home / "run") >= {"run/record.json", "run/report.html"}
    for format in _FORMATS:
        _invoke("report", home / "run", "--redact", "--format", format, "-o", home / "out" / f"report.{format}")
    _invoke("compare", home / "run", home / "run", "--redact", "-o", home / "out" / "compare.html")
    monkeypatch.chdir(home)
    assert _named(home, home / "out") == set()


def test_no_folder_is_named_in_a_redacted_audit_of_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, home = np.random.default_rng(1), tmp_path / f"{CANARY}-user"
    folders = [home / f"{CANARY}-{number}" for number in range(2)]
    for folder in folders:
        fields = {"sums": MessageField(rng.standard_normal((2, 4)), "class_sums", exact(), additive=True)}
        Transcript("own", 2, (Message(0, "client/0", "server", fields),)).save(folder)
    gallery = home / f"{CANARY}-gallery"
    gallery.mkdir()
    np.savez(gallery / "gallery.npz", features=rng.standard_normal((6, 4)), labels=np.arange(6) % 2)
    monkeypatch.chdir(home)
    _invoke("audit", folders[0], "--again", folders[1], "--gallery", gallery, "--redact", "--quiet")
    (run,) = (home / "runs").iterdir()
    assert _named(tmp_path, home / "runs") == set()
    assert verify(run).problems == ()


_PATHS = {
    "data": {key: CANARY for key in ("root", "path", "labels", "features", "test_domain")}
    | {"groups": f"{CANARY}/{{person}}_*", "label_column": CANARY, "file_column": CANARY, "classes": [CANARY]}
    | {"attacker_from": {key: CANARY for key in ("root", "path", "labels", "features")}},
    "backbone": {"name": "resnet18", "weights": f"{CANARY}/weights.pt"},
    "similarity": {"lpips": {"trunk": f"{CANARY}.pt"}},
    "methods": [{"other_package": {"prior": f"~/{CANARY}/prior.pt", "parts": [{"file": f"{CANARY}\\x"}]}}],
    "transcript": {"folder": CANARY, "again": [{"folder": CANARY, "sha256": "plain"}]},
    "candidates": {"folder": CANARY, "count": 3},
    "name": CANARY,
}


def test_every_key_of_a_plan_that_holds_a_path_is_redacted() -> None:
    redacted = redact_plan(_PATHS)
    assert CANARY not in json.dumps(redacted)
    assert redact_plan(redacted) == redacted
    assert redacted["backbone"]["name"] == "resnet18"
    assert redacted["candidates"]["count"] == 3


def test_what_is_no_path_stays_in_a_redacted_plan() -> None:
    """A plan of a data set that is known by name is the same, redacted; so are all defaults of all components."""
    plan = {
        "name": "known",
        "data": {"name": "digits", "split": _SPLIT},
        "methods": ["fedcgs", {"fedpft": {"label": "wards/one"}}],
        "attacks": "standard",
    }
    resolved = resolve(parse_plan(plan, "plan"), Path(), "plan").resolved()
    assert redact_plan(resolved) == resolved
    assert component("method", "fedcgs").model_fields


@pytest.mark.parametrize(
    "message",
    [
        f"FileNotFoundError: 'no {CANARY} (folder.py:3)",
        "OSError: /srv/ward seven/x.png cannot be read",
        "could not open ~/ward7/x",
        "x: ward7/images/003.png is cut",
        "C:\\data\\ward7\\x.png",
        "the class ward-seven has one record",
    ],
)
def test_an_error_that_quotes_a_name_or_a_path_is_left_out(message: str) -> None:
    record = RunRecord(
        plan={"name": "x", "data": {"path": f"scans/{CANARY}"}},
        environment={},
        data={"0": {"class_names": ["ward-seven", "0"]}},
        cells=(),
        errors=(
            ErrorRecord(cell="a", stage="method", message=message),
            ErrorRecord(cell="a", stage="method", message="ValueError: 0 records, 1/2 of 10 s (em.py:3)"),
        ),
    )
    first, second = redact(record).errors
    assert first.message in (GONE, f"FileNotFoundError: {GONE}", f"OSError: {GONE}")
    assert second.message == record.errors[1].message
