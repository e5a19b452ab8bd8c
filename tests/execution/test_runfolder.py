"""The run folder: one writer, nothing overwritten unasked, finished cells kept."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from fedassay.execution import runfolder
from fedassay.execution.runfolder import FinishedCell
from fedassay.records import manifest
from fedassay.records.record import CellRecord, Finding, RunRecord
from fedassay.support.errors import PlanError

PLAN = {"name": "a", "epsilon": float("inf")}


def test_an_output_that_holds_a_run_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text("precious")
    with (
        pytest.raises(PlanError, match=r"already holds record\.json"),
        runfolder.claim(tmp_path, PLAN, resume=False, force=False),
    ):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["record.json"]
    assert (tmp_path / "record.json").read_text() == "precious"


# What a user may keep beside the files of a run.
FOREIGN = (
    "thesis.tex",
    "tables/important.csv",
    "artifacts/model.pt",
    "artifacts/cell/mine.png",
    "transcripts/cell/notes.txt",
    "transcripts/other/transcript.json",
    ".cells/notes.txt",
)
OWN = (
    "record.json",
    "report.html",
    "tables/verdicts.csv",
    "artifacts/cell/audit-raw.png",
    "transcripts/cell/transcript.json",
    "transcripts/cell/00000.safetensors",
)


def _write(folder: Path, name: str, text: str = "mine") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def _a_run(folder: Path) -> None:
    """A run that noted its files and wrote them."""
    with runfolder.claim(folder, PLAN, resume=False, force=False):
        manifest.note(folder, "cell", [name for name in OWN if "cell" in name])
        manifest.note(folder, manifest.OF_THE_RUN, ["tables/verdicts.csv", "tables/never_written.csv"])
        for name in OWN:
            _write(folder, name, "ours")
        _write(folder, ".cells/cell.json", "ours")
        _write(runfolder.scratch(folder, "cell"), "checkpoint.safetensors", "ours")


def test_force_removes_what_the_run_s_manifest_lists_and_nothing_else(tmp_path: Path) -> None:
    _a_run(tmp_path)
    _write(tmp_path, "tables/.verdicts.csv.abcd1234.tmp", "half")  # killed while writing
    for name in FOREIGN:
        _write(tmp_path, name)
    with runfolder.claim(tmp_path, PLAN, resume=False, force=True):
        assert _files(tmp_path) == {*FOREIGN, ".lock", ".cells/plan.sha256", ".cells/run.files"}
    assert all((tmp_path / name).read_text() == "mine" for name in FOREIGN)


def test_force_leaves_no_empty_folders_behind(tmp_path: Path) -> None:
    _a_run(tmp_path)
    with runfolder.claim(tmp_path, PLAN, resume=False, force=True):
        assert {path.name for path in tmp_path.iterdir()} == {".cells", ".lock"}


def test_force_in_a_folder_that_is_no_run_touches_nothing(tmp_path: Path) -> None:
    for name in (*FOREIGN, "record.json"):
        _write(tmp_path, name)
    before = _files(tmp_path)
    with (
        pytest.raises(PlanError, match="no sign of a run"),
        runfolder.claim(tmp_path, PLAN, resume=False, force=True),
    ):
        pass
    assert _files(tmp_path) == before


def test_a_manifest_names_nothing_outside_the_run(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    _write(elsewhere, "verdicts.csv")
    _write(elsewhere, "00000.safetensors")
    _a_run(run)
    _write(run, "thesis.tex")
    names = ["../elsewhere/verdicts.csv", "thesis.tex", "tables/../thesis.tex", str(elsewhere / "verdicts.csv")]
    manifest.note(run, "cell", [*names, "transcripts/link/00000.safetensors", "tables/link.csv"])
    (run / "transcripts" / "link").symlink_to(elsewhere)
    (run / "tables" / "link.csv").symlink_to(elsewhere / "verdicts.csv")
    with runfolder.claim(run, PLAN, resume=False, force=True):
        pass
    assert _files(elsewhere) == {"verdicts.csv", "00000.safetensors"}
    assert (run / "thesis.tex").read_text() == "mine"


@pytest.mark.parametrize("name", ["tables", "transcripts", "artifacts"])
def test_a_link_in_the_place_of_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    _a_run(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / name)
    (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere")
    with (
        pytest.raises(PlanError, match=f"{name} in it is no folder of its own"),
        runfolder.claim(tmp_path / "run", PLAN, resume=False, force=True),
    ):
        pass
    assert (tmp_path / "run" / name).is_symlink()


def test_a_run_that_died_before_it_wrote_anything_is_in_nobody_s_way(tmp_path: Path) -> None:
    _write(tmp_path, ".cells/.plan.sha256.abcd1234.tmp", "half")
    with runfolder.claim(tmp_path, PLAN, resume=False, force=False):
        pass


def _cell(*findings: Finding) -> CellRecord:
    return CellRecord.model_validate(
        {
            **{"params": {}, "params_given": {}, "utility": {}, "communication": {}},
            **{"method": "m", "label": "m", "epsilon": "inf", "delta": 1e-5, "adjacency": "add_remove", "seed": 0},
            "privacy": {"claimed": None, "accounted": None, "verdict": "not_run"},
            "findings": findings,
        }
    )


def test_two_runs_in_one_folder(tmp_path: Path) -> None:
    with (
        runfolder.claim(tmp_path / "out", PLAN, resume=False, force=False),
        pytest.raises(PlanError, match="another fedassay run"),
        runfolder.claim(tmp_path / "out", PLAN, resume=True, force=False),
    ):
        pass


def test_resume_wants_the_same_plan(tmp_path: Path) -> None:
    with runfolder.claim(tmp_path, PLAN, resume=False, force=False):
        pass
    with runfolder.claim(tmp_path, PLAN, resume=True, force=False):
        pass
    with (
        pytest.raises(PlanError, match="another plan"),
        runfolder.claim(tmp_path, {**PLAN, "name": "b"}, resume=True, force=False),
    ):
        pass


@pytest.mark.parametrize("content", [b"\xff\xfe\0", b"", b"theirs\n"])
def test_a_digest_of_a_plan_that_is_none(tmp_path: Path, content: bytes) -> None:
    _a_run(tmp_path)
    (tmp_path / ".cells" / "plan.sha256").write_bytes(content)
    with (
        pytest.raises(PlanError, match="another plan"),
        runfolder.claim(tmp_path, PLAN, resume=True, force=False),
    ):
        pass


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
@pytest.mark.parametrize("name", [".lock", ".cells/run.files", ".cells/plan.sha256"])
def test_what_a_run_writes_to_first_is_a_file(tmp_path: Path, name: str, kind: str) -> None:
    _a_run(tmp_path)
    path = tmp_path / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero") if kind == "link" else path.mkdir()
    with pytest.raises(PlanError), runfolder.claim(tmp_path, PLAN, resume=True, force=False):
        pass


@pytest.mark.parametrize("kind", ["pipe", "nesting", "sparse", "no text"])
@pytest.mark.parametrize("name", ["x.json", "x.files", "plan.sha256"])
def test_force_reads_nothing_that_a_run_does_not_write(tmp_path: Path, name: str, kind: str) -> None:
    _a_run(tmp_path)
    RunRecord(plan={}, environment={}, cells=()).save(tmp_path)
    for path in (tmp_path / ".cells").glob("*.files"):
        path.unlink()
    path = tmp_path / ".cells" / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes({"nesting": b'{"cell": ' + b"[" * 100_000, "sparse": b"", "no text": b"\xff"}[kind])
        if kind == "sparse":
            os.truncate(path, 20 << 30)
    with suppress(PlanError), runfolder.claim(tmp_path, PLAN, resume=False, force=True):
        pass  # what is no file is left alone, and may be in the way


def _kept(folder: Path) -> FinishedCell:
    """A finished cell in a run folder, with a picture and a transcript."""
    cell = _cell(Finding(audit="message", verdict="leak", reason=""))
    done = FinishedCell(cell=cell)
    for name in ("artifacts/x/a.png", "transcripts/x/transcript.json"):
        manifest.note(folder, "x", [name])
        _write(folder, name, "ours")
    runfolder.keep(folder, "x", done)
    return done


def test_a_finished_cell_is_read_back_as_it_was(tmp_path: Path) -> None:
    done = _kept(tmp_path)
    assert runfolder.finished(tmp_path, "x") == done
    assert runfolder.finished(tmp_path, "y") is None


def _flip(path: Path) -> None:
    path.write_text(path.read_text().replace('"verdict":"leak"', '"verdict":"no_leak_found"'))


def _again(path: Path) -> None:
    """As an older fedassay wrote it, without a digest."""
    path.write_text(json.dumps(json.loads(path.read_text())["kept"]["finished"]))


def _half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def _rewritten(path: Path) -> None:
    path.write_text("theirs")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _sparse(path: Path) -> None:
    os.truncate(path, 20 << 30)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (".cells/x.json", _flip),
        (".cells/x.json", _again),
        (".cells/x.json", _half),
        (".cells/x.json", _rewritten),
        (".cells/x.json", _pipe),
        (".cells/x.json", _link),
        (".cells/x.json", _sparse),
        ("artifacts/x/a.png", _sparse),
        ("artifacts/x/a.png", _rewritten),
        ("artifacts/x/a.png", Path.unlink),
        ("transcripts/x/transcript.json", _rewritten),
    ],
)
def test_an_altered_cell_is_refused(tmp_path: Path, name: str, change: Callable[[Path], None]) -> None:
    _kept(tmp_path)
    change(tmp_path / name)
    with pytest.raises(PlanError, match=rf"--resume, but {re.escape(name)} .*allowed: remove \.cells/x\.json"):
        runfolder.finished(tmp_path, "x")


def test_half_written_files_of_a_killed_run_are_removed_and_others_are_not(tmp_path: Path) -> None:
    _a_run(tmp_path)
    halves = ("tables/.verdicts.csv.abcd1234.tmp", "artifacts/cell/.audit-raw.png.abcd1234.tmp")
    for name in (*halves, ".cells/.cell.json.abcd1234.tmp", ".record.json.abcd1234.tmp"):
        _write(tmp_path, name, "half")
    for name in (".thesis.tex.abcd1234.tmp", "tables/.important.csv.abcd1234.tmp"):
        _write(tmp_path, name)
    with runfolder.claim(tmp_path, PLAN, resume=True, force=False):
        left = sorted(path.name for path in tmp_path.rglob("*.tmp"))
    assert left == [".important.csv.abcd1234.tmp", ".thesis.tex.abcd1234.tmp"]


def test_checkpoints_of_other_threads_or_libraries_are_not_continued(tmp_path: Path) -> None:
    runfolder.renew_scratch(tmp_path, "x", "one thread")
    (runfolder.scratch(tmp_path, "x") / "round").touch()
    runfolder.renew_scratch(tmp_path, "x", "one thread")
    assert (runfolder.scratch(tmp_path, "x") / "round").exists()
    runfolder.renew_scratch(tmp_path, "x", "two threads")
    assert not (runfolder.scratch(tmp_path, "x") / "round").exists()


def test_a_redacted_run_is_not_resumed_and_is_replaced(tmp_path: Path) -> None:
    with runfolder.claim(tmp_path, PLAN, resume=False, force=False, redact=True):
        pass
    with (
        pytest.raises(PlanError, match="made with --redact"),
        runfolder.claim(tmp_path, PLAN, resume=True, force=False),
    ):
        pass
    with runfolder.claim(tmp_path, PLAN, resume=False, force=True):
        pass
    with runfolder.claim(tmp_path, PLAN, resume=True, force=False):
        pass


def test_an_output_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with (
        pytest.raises(PlanError, match="it is a file"),
        runfolder.claim(tmp_path / "out", PLAN, resume=False, force=True),
    ):
        pass
    assert (tmp_path / "out").read_text() == "mine"


def test_a_run_folder_that_cannot_be_made_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was finished there, and nothing can be resumed."""

    def refuses(path: Path, **_given: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(runfolder, "make_folder", refuses)
    with (
        pytest.raises(PlanError, match=r"^-o .*out: it cannot be made \(Permission denied\); allowed: another"),
        runfolder.claim(tmp_path / "out", PLAN, resume=False, force=False),
    ):
        pass


def test_a_folder_is_free_again_though_a_process_that_was_forked_meanwhile_lives(tmp_path: Path) -> None:
    """From Python a second run of a private method into one folder was refused: a server of the first held it."""
    gone, end = os.pipe()
    with runfolder.claim(tmp_path, PLAN, resume=False, force=False):
        process = os.fork()
        if not process:
            os.read(gone, 1)
            os._exit(0)
        with (
            pytest.raises(PlanError, match="another fedassay run is writing"),
            runfolder.claim(tmp_path, PLAN, resume=False, force=True),
        ):
            pass
    try:
        with runfolder.claim(tmp_path, PLAN, resume=False, force=True):
            pass
    finally:
        os.write(end, b".")
        os.waitpid(process, 0)
        os.close(gone)
        os.close(end)
