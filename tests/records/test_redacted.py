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
from fedassay.exchange.release import PrivacyClaim, Release, exact
from fedassay.exchange.transcript import Message, MessageField, Transcript
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import parse_plan
from fedassay.records.private_names import GONE, PrivateNames
from fedassay.records.record import ErrorRecord, RunRecord, load_record
from fedassay.records.redacted import redact, redact_plan
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


_KINDS = ("path", "file", "label_column", "file_column", "groups_column", "attribute", "class", "site", "sender")
NAMES = {kind: f"Canary{kind.title().replace('_', '')}" for kind in _KINDS} | {"short": "HV9"}
_ATTRIBUTES = ("attribute", "short")
_PARAMETERS = {"trials": 16, "control_records": 16}


@pytest.fixture(scope="module")
def named_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of images with a sensitive attribute, of which every name is a canary."""
    home = tmp_path_factory.mktemp("named")
    rng = np.random.default_rng(0)
    folder = home / NAMES["path"]
    folder.mkdir()
    smoker = rng.integers(0, 2, 160)
    images = rng.integers(0, 200, (160, 8, 8, 1)) + 40 * smoker[:, None, None, None]
    np.savez(
        folder / f"{NAMES['file']}.npz",
        x=images.astype(np.uint8),
        y=np.arange(160) % 2,
        **{NAMES["attribute"]: smoker, NAMES["short"]: smoker},
    )
    plan = {
        "name": "plain",
        "seeds": [0],
        "data": {
            "name": "npz",
            "path": f"{NAMES['path']}/{NAMES['file']}.npz",
            "attributes": [NAMES["attribute"], NAMES["short"]],
            "split": {"private": 0.35, "attacker": 0.25, "public": 0.1, "test": 0.15, "control": 0.15},
        },
        "clients": {"count": 2, "partition": "iid"},
        "backbone": {"name": "pixels"},
        "methods": ["fedcgs"],
        "attacks": ["attribute_likelihood"],
        "audits": [
            {"attribute_inference": {"attribute": NAMES[name], **_PARAMETERS}} for name in ("attribute", "short")
        ],
        "resources": {"threads": 1},
    }
    (home / "plan.yaml").write_text(json.dumps(plan))
    _invoke("run", home / "plan.yaml", "-o", home / "run", "--quiet")
    return home / "run"


def _pages(run: Path, out: Path) -> str:
    """Everything that can be written of a run, redacted, as one text."""
    for format in (*_FORMATS, "evidence"):
        _invoke("report", run, "--redact", "--format", format, "-o", out / f"report.{format}")
    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(files) > len(_FORMATS)
    return "\n".join(text for path in files for text in (path.name, *_texts(path.read_bytes())))


@pytest.mark.long
def test_the_name_of_an_attribute_is_nowhere_in_a_redacted_run(named_run: Path, tmp_path: Path) -> None:
    whole = (named_run / "record.json").read_text()
    assert f"messages / {NAMES['attribute']}: " in whole
    written = _pages(named_run, tmp_path)
    assert [name for name in NAMES.values() if re.search(rf"\b{name}\b", written)] == []
    assert GONE in written


_FREE = {
    *("reason", "words", "detail", "text", "note", "would_decide", "title", "caption", "selection", "planted"),
    *("notes", "warnings", "assumptions", "obstacle"),
}


def _quoting(value: Any, words: str, free: bool = False) -> Any:
    """What a record holds, with some words added to every text that is for people."""
    if isinstance(value, dict):
        return {key: _quoting(item, words, key in _FREE) for key, item in value.items()}
    if isinstance(value, list):
        return [_quoting(item, words, free) for item in value] + ([words] if free and not value else [])
    return f"{value} {words}" if free and isinstance(value, str) else value


@pytest.mark.long
def test_no_name_of_a_plan_is_left_in_any_text_of_a_redacted_run(named_run: Path, tmp_path: Path) -> None:
    """Every text for people quotes every name: as it is, in quotes, beside an underscore, and in small letters."""
    held = json.loads((named_run / "record.json").read_text())
    forms = ("{}", "'{}'", "{}_2", "x_{}/0", "({})")
    quotes = [form.format(name) for name in NAMES.values() for form in forms]
    quotes += [name.lower() for name in NAMES.values() if len(name) > 3]
    held["cells"] = _quoting(held["cells"], " ".join(quotes))
    held["plan"]["data"] |= {
        "label_column": NAMES["label_column"],
        "file_column": NAMES["file_column"],
        "groups": f"{NAMES['groups_column']}",
        "classes": [NAMES["class"]],
        "test_domain": NAMES["site"],
    }
    held["plan"]["transcript"] = {"folder": NAMES["path"], "senders": [NAMES["sender"]]}
    record = RunRecord.model_validate(held)
    out = tmp_path / "run"
    out.mkdir()
    assert all(name in record.model_dump_json() for name in NAMES.values())
    (out / "record.json").write_text(redact(record).model_dump_json(by_alias=True))
    left = (out / "record.json").read_text()
    assert [name for name in NAMES.values() if re.search(rf"(?i)\b{name}\b|{name}_2|x_{name}", left)] == []
    again = load_record(out)
    assert redact(again).cells == again.cells
    kept = [[(f.verdict, [m.value for m in f.metrics.values()]) for f in c.findings] for c in again.cells]
    assert kept == [[(f.verdict, [m.value for m in f.metrics.values()]) for f in c.findings] for c in record.cells]


def test_words_of_the_house_stay_where_they_are_names_of_folders_and_columns() -> None:
    names = PrivateNames(
        RunRecord(plan={"data": {"path": "data/train/HV", "label_column": "label"}}, environment={}, cells=())
    )
    assert names.without("the data of label 3 and HV") == f"the data of label 3 and {GONE}"


def test_senders_of_captured_messages_are_named_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    noise = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(3.0,), sensitivity=(1.0,))
    fields = {"sums": MessageField(rng.standard_normal((2, 4)), "class_sums", noise, additive=True)}
    sent = [Message(0, sender, "server", fields) for sender in (f"client/{CANARY}", "Charity-Nine")]
    claim = PrivacyClaim(epsilon=1.0, delta=1e-5, adjacency="replace_one_same_label", source="x")
    Transcript("own", 2, tuple(sent), claim).save(tmp_path / "sent")
    monkeypatch.chdir(tmp_path)
    _invoke("audit", "sent", "-o", "whole", "--quiet")
    assert CANARY in (tmp_path / "whole" / "record.json").read_text()
    _invoke("audit", "sent", "-o", "run/out", "--redact", "--quiet")
    _invoke("report", "whole", "--redact", "-o", tmp_path / "run" / "later.html")
    assert _named(tmp_path, tmp_path / "run") == set()
    assert "Charity-Nine" not in "".join(
        path.read_text() for path in (tmp_path / "run").rglob("*.*") if path.is_file()
    )


def test_thousands_of_names_are_found_each_in_its_longest_form() -> None:
    rng = np.random.default_rng(3)
    names = [f"Ward {number}" for number in range(3000)] + ["Ward", "ward-12 North", "HV9", "HV9-clinic", "a.b*c"]
    record = RunRecord(plan={"transcript": {"senders": names}}, environment={}, cells=())
    found = PrivateNames(record)
    for name in [*rng.choice(names, 200), *names[-5:]]:
        assert (
            found.without(f"of {name}: 3 of ({name.upper() if len(name) > 3 else name})")
            == f"of {GONE}: 3 of ({GONE})"
        )
    assert found.without("Ward 3000x, Wards, xHV9 and hv9") == f"{GONE} 3000x, Wards, xHV9 and hv9"
