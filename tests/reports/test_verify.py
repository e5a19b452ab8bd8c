"""`fedassay verify`: every way in which a run may be other than it was written, and its signature."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedassay.cli import cli
from fedassay.execution.run_output import write_run
from fedassay.records import manifest
from fedassay.records.record import RunRecord, load_record
from fedassay.records.statement import ENVELOPE, PAYLOAD_TYPE, STATEMENT
from fedassay.reports import write_report
from fedassay.reports.gate.verify import verify
from fedassay.support.errors import DataError, FedassayError, PlanError


@pytest.fixture(scope="module")
def written(run: Path, record: RunRecord, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The synthetic run with all its files, as a run leaves them."""
    run = Path(shutil.copytree(run, tmp_path_factory.mktemp("written") / "run"))
    pictures = {picture.file for cell in record.cells for finding in cell.findings for picture in finding.pictures}
    manifest.note(run, "cell", sorted(pictures))
    write_run(run, record)
    return run


@pytest.fixture
def whole(written: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(written, tmp_path / "run"))


@pytest.mark.long
def test_a_run_as_it_was_written(whole: Path) -> None:
    found = verify(whole)
    assert found.problems == ()
    assert {"report.html", "tables/verdicts.csv"} <= set(found.pages)
    assert found.files > 1
    assert found.signature == "none"


@pytest.mark.long
def test_what_lies_beside_a_run_and_what_it_lacks_is_said(whole: Path) -> None:
    before = set(verify(whole).open)
    (whole / "report.html").unlink()
    shutil.rmtree(whole / "tables")
    write_report(load_record(whole), whole, "evidence", None, None, "fedcgs", 10.0)
    for name in ("tables/of_others.csv", "artifacts/other.png", "notes.txt", "evidence/crosswalk.md"):
        (whole / name).parent.mkdir(exist_ok=True)
        (whole / name).write_text("forged")
    (whole / "elsewhere").symlink_to("/")
    found = verify(whole)
    assert {words.partition(":")[0] for words in found.open if words not in before} == {
        *("report.html", "evidence/", "tables/of_others.csv", "artifacts/other.png", "notes.txt", "elsewhere"),
    }
    assert f"evidence/: verify it by itself (`fedassay verify {whole / 'evidence'}`)" in found.open
    for number in range(20):
        (whole / f"{number}.txt").write_text("x")
    assert len(set(verify(whole).open) - before) == 8  # the report, evidence, five files, and how many more
    assert "more files: nothing names them" in verify(whole).open[-1]


@pytest.mark.long
def test_pages_that_were_made_later_follow_from_the_record(whole: Path) -> None:
    record = load_record(whole)
    for format in ("md", "json", "sarif", "junit", "html", "csv"):
        write_report(record, whole, format, None)
    assert verify(whole).problems == ()
    (whole / "report.md").write_text((whole / "report.md").read_text().replace("Leak", "No leak"))
    (problem,) = verify(whole).problems
    assert "report.md does not follow from the record" in problem


@pytest.mark.long
def test_redacted_pages_follow_from_the_record(whole: Path) -> None:
    for format in ("html", "csv"):
        arguments = ["report", str(whole), "--redact", "--format", format]
        assert CliRunner().invoke(cli, arguments, catch_exceptions=False).exit_code == 0
    found = verify(whole)
    assert found.problems == ()
    assert {"report.redacted.html", "tables.redacted/verdicts.csv"} <= set(found.pages)


def _flip(run: Path) -> None:
    text = (run / "record.json").read_text()
    assert '"leak"' in text
    (run / "record.json").write_text(text.replace('"leak"', '"no_leak_found"'))


def _picture(run: Path) -> None:
    next((run / "artifacts").rglob("*.png")).write_bytes(b"another")


def _lost_picture(run: Path) -> None:
    next((run / "artifacts").rglob("*.png")).unlink()


def _linked_picture(run: Path) -> None:
    path = next((run / "artifacts").rglob("*.png"))
    path.rename(run / "elsewhere.png")
    path.symlink_to(run / "elsewhere.png")


def _table(run: Path) -> None:
    path = run / "tables" / "verdicts.csv"
    path.write_text(path.read_text().replace("leak", "no leak"))


def _lost_table(run: Path) -> None:
    (run / "tables" / "verdicts.csv").unlink()


def _page(run: Path) -> None:
    path = run / "report.html"
    path.write_text(path.read_text().replace("<h1>", "<h1>All is well: "))


def _endless_page(run: Path) -> None:
    os.truncate(run / "report.html", 20 << 30)


def _page_that_is_a_pipe(run: Path) -> None:
    (run / "report.html").unlink()
    os.mkfifo(run / "report.html")


def _endless_picture(run: Path) -> None:
    os.truncate(next((run / "artifacts").rglob("*.png")), 20 << 30)


def _one_file_by_many_names(run: Path) -> None:
    content = json.loads((run / STATEMENT).read_text())
    record = next(each for each in content["subject"] if each["name"] == "record.json")
    content["subject"] = [{**record, "name": "./" * i + "record.json"} for i in range(1000)]
    (run / STATEMENT).write_text(json.dumps(content))


def _no_statement(run: Path) -> None:
    (run / STATEMENT).unlink()


def _emptied_statement(run: Path) -> None:
    content = json.loads((run / STATEMENT).read_text())
    content["subject"] = []
    (run / STATEMENT).write_text(json.dumps(content))


def _thinned_statement(run: Path) -> None:
    content = json.loads((run / STATEMENT).read_text())
    content["subject"] = [each for each in content["subject"] if not each["name"].endswith(".png")]
    (run / STATEMENT).write_text(json.dumps(content))
    _picture(run)


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_flip, "record.json is not what was written"),
        (_picture, ".png is not what was written"),
        (_lost_picture, ".png is not there"),
        (_linked_picture, ".png is not there, or is no regular file"),
        (_table, "tables/verdicts.csv does not follow from the record"),
        (_lost_table, "tables/verdicts.csv does not follow from the record"),
        (_page, "report.html does not follow from the record"),
        (_endless_page, "report.html does not follow from the record"),
        (_page_that_is_a_pipe, "report.html does not follow from the record"),
        (_endless_picture, ".png is not there, or is no regular file of a size"),
        (_one_file_by_many_names, "././record.json is not there"),
        (_no_statement, "statement.json is not there"),
        (_emptied_statement, ""),
        (_thinned_statement, "the statement does not list it"),
    ],
)
def test_a_run_that_was_changed(whole: Path, change: Callable[[Path], None], words: str) -> None:
    change(whole)
    done = CliRunner().invoke(cli, ["verify", str(whole)], catch_exceptions=False, standalone_mode=False)
    assert done.return_value == 1
    *lines, last = done.output.splitlines()
    assert last == "does not hold"
    problems = [line for line in lines if line.startswith("does not hold: ")]
    assert problems
    assert any(words in problem for problem in problems)


def test_check_refuses_a_record_that_was_changed(whole: Path, tmp_path: Path) -> None:
    _flip(whole)
    policy = tmp_path / "policy.yaml"
    policy.write_text("name: any\nclaims: not_disproved\n")
    with pytest.raises(DataError, match=r"record\.json is not what was written.*fedassay verify"):
        CliRunner().invoke(cli, ["check", str(whole), "--policy", str(policy)], catch_exceptions=False)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"_type": "x"}', "null"])
def test_a_statement_that_is_none(whole: Path, content: str) -> None:
    (whole / STATEMENT).write_text(content)
    with pytest.raises(DataError, match=r"statement\.json"):
        verify(whole)


def _keys(folder: Path, name: str) -> tuple[object, Path]:
    """A new key pair: the signer, and the file of the public key."""
    pytest.importorskip("securesystemslib")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from securesystemslib.signer import CryptoSigner

    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / name).write_bytes(public)
    return CryptoSigner(private), folder / name


def _sign(run: Path, signer: object, payload: bytes | None = None, kind: str = PAYLOAD_TYPE) -> None:
    from securesystemslib.dsse import Envelope

    envelope = Envelope((run / STATEMENT).read_bytes() if payload is None else payload, kind, {})
    envelope.sign(signer)
    (run / ENVELOPE).write_text(json.dumps(envelope.to_dict()))


@pytest.mark.long
def test_a_signature(whole: Path, tmp_path: Path) -> None:
    signer, key = _keys(tmp_path, "key.pem")
    _, other = _keys(tmp_path, "other.pem")
    assert "the run is not signed" in verify(whole, key).problems[0]
    _sign(whole, signer)
    assert verify(whole, key).problems == ()
    assert verify(whole, key).signature == f"by {key}"
    assert "not checked" in verify(whole).signature
    assert "is not signed by" in verify(whole, other).problems[0]


@pytest.mark.long
def test_a_signer_that_names_no_key(whole: Path, tmp_path: Path) -> None:
    signer, key = _keys(tmp_path, "key.pem")
    _sign(whole, signer)
    content = json.loads((whole / ENVELOPE).read_text())
    del content["signatures"][0]["keyid"]
    (whole / ENVELOPE).write_text(json.dumps(content))
    assert verify(whole, key).problems == ()


@pytest.mark.long
def test_a_forged_run_with_its_statement_made_anew_is_caught_by_the_signature(whole: Path, tmp_path: Path) -> None:
    signer, key = _keys(tmp_path, "key.pem")
    _sign(whole, signer)
    envelope = (whole / ENVELOPE).read_bytes()
    _flip(whole)
    write_run(whole, load_record(whole))
    assert verify(whole).problems == ()  # nothing but a signature shows this
    (whole / ENVELOPE).write_bytes(envelope)
    problems = verify(whole, key).problems
    assert any("record.json is not what was written" in problem for problem in problems)
    assert any("is not what was signed" in problem for problem in problems)


@pytest.mark.long
def test_a_signed_payload_that_was_changed(whole: Path, tmp_path: Path) -> None:
    signer, key = _keys(tmp_path, "key.pem")
    _sign(whole, signer)
    content = json.loads((whole / ENVELOPE).read_text())
    payload = base64.b64decode(content["payload"]).replace(b"record.json", b"nothing.json")
    content["payload"] = base64.b64encode(payload).decode()
    (whole / ENVELOPE).write_text(json.dumps(content))
    assert "is not signed by" in verify(whole, key).problems[0]


def test_envelopes_and_keys_that_are_none(whole: Path, tmp_path: Path) -> None:
    signer, key = _keys(tmp_path, "key.pem")
    _sign(whole, signer, b"{}")
    with pytest.raises(DataError, match=r"statement\.dsse\.json"):
        verify(whole, key)
    _sign(whole, signer, kind="text/plain")
    with pytest.raises(DataError, match="holds 'text/plain'"):
        verify(whole, key)
    for content in ("", "[]", "{}", '{"payload": 1, "payloadType": 2, "signatures": [{}]}', '{"signatures": 1}'):
        (whole / ENVELOPE).write_text(content)
        with pytest.raises(FedassayError):
            verify(whole, key)
    (tmp_path / "none.pem").write_text("none")
    _sign(whole, signer)
    with pytest.raises(PlanError, match="no public key"):
        verify(whole, tmp_path / "none.pem")


@pytest.mark.parametrize("name", [STATEMENT, ENVELOPE])
@pytest.mark.parametrize("kind", ["pipe", "link", "sparse", "lists"])
def test_statements_and_envelopes_that_are_dear_or_no_files(
    whole: Path, tmp_path: Path, name: str, kind: str
) -> None:
    _, key = _keys(tmp_path, "key.pem")
    path = whole / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/etc/hostname")
    else:
        path.write_bytes(b"[" + b"[]," * 400_000 + b"[]]" if kind == "lists" else b"{")
        if kind == "sparse":
            os.truncate(path, 20 << 30)
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        verify(whole, key)


def test_a_key_that_is_a_pipe(whole: Path, tmp_path: Path) -> None:
    signer, _ = _keys(tmp_path, "key.pem")
    _sign(whole, signer)
    os.mkfifo(tmp_path / "pipe.pem")
    with pytest.raises(PlanError, match="it is a named pipe"):
        verify(whole, tmp_path / "pipe.pem")


def test_a_run_that_is_not_there_is_named_as_it_was_given(tmp_path: Path) -> None:
    with pytest.raises(FedassayError, match=r"nowhere: no record\.json there"):
        verify(tmp_path / "nowhere")
