"""Run, sign, pack, verify, check: one archive, and what becomes of it where something of it is forged."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import stat
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fedassay.cli import cli
from fedassay.support.errors import FedassayError

pytest.importorskip("securesystemslib")
pytestmark = pytest.mark.long

PLAN = {
    "name": "packed",
    "seeds": [0],
    "data": {"name": "digits", "limit": 300, "split": {"private": 0.5, "test": 0.3, "control": 0.2}},
    "clients": {"count": 2, "partition": "iid"},
    "backbone": {"name": "pixels"},
    "methods": ["fedcgs"],
    "attacks": ["message_algebra"],
    "audits": ["message"],
    "resources": {"threads": 1},
}
POLICY = "name: any\nallowed_leaks: all\n"


def _invoke(*args: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(cli, [str(arg) for arg in args], standalone_mode=False)
    if isinstance(done.exception, FedassayError):
        return 2, str(done.exception)
    assert done.exception is None, done.exception
    return done.return_value, done.output


def _keys(home: Path, kind: str, name: str, password: str = "") -> tuple[Path, Path]:
    """A private and a public key as people have them."""
    private = home / name
    if kind == "pem":
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519

        made = ed25519.Ed25519PrivateKey.generate()
        pem = serialization.Encoding.PEM
        form = serialization.PrivateFormat.PKCS8
        lock = (
            serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        )
        private.write_bytes(made.private_bytes(pem, form, lock))
        public = private.with_suffix(".pem.pub")
        public.write_bytes(made.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
        return private, public
    if shutil.which("ssh-keygen") is None:
        pytest.skip("no ssh-keygen here")
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", password, "-f", private], check=True)
    return private, Path(f"{private}.pub")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("packed")
    (home / "plan.yaml").write_text(json.dumps(PLAN))
    assert _invoke("run", home / "plan.yaml", "-o", home / "run", "--quiet")[0] == 0
    return home / "run"


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa", "pem"])
def test_whoever_signs_is_who_verify_asks_for(run: Path, tmp_path: Path, kind: str) -> None:
    private, public = _keys(tmp_path, kind, "mine")
    _, other = _keys(tmp_path, kind, "other")
    assert _invoke("sign", run, "--key", private, "--quiet") == (0, "")
    assert _invoke("verify", run, "--key", public, "--quiet") == (0, "")
    assert _invoke("verify", run, "--key", other, "--quiet")[0] == 1
    # A second reviewer signs beside the first.
    second, second_public = _keys(tmp_path, "pem", "second")
    assert _invoke("sign", run, "--key", second, "--quiet") == (0, "")
    assert _invoke("verify", run, "--key", public, "--quiet") == (0, "")
    assert _invoke("verify", run, "--key", second_public, "--quiet") == (0, "")
    assert _invoke("verify", run, "--key", private)[0] == 2  # no public key


def test_a_password_is_asked_for_and_taken(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, public = _keys(tmp_path, "pem", "mine", "correct horse")
    code, said = _invoke("sign", run, "--key", private)
    assert (code, "FEDASSAY_KEY_PASSWORD" in said) == (2, True)
    monkeypatch.setenv("FEDASSAY_KEY_PASSWORD", "wrong")
    assert _invoke("sign", run, "--key", private)[0] == 2
    monkeypatch.setenv("FEDASSAY_KEY_PASSWORD", "correct horse")
    assert _invoke("sign", run, "--key", private)[0] == 0
    assert _invoke("verify", run, "--key", public)[0] == 0
    # A key without one takes none.
    assert _invoke("sign", run, "--key", _keys(tmp_path, "pem", "open")[0])[0] == 2


def test_a_locked_key_of_openssh_is_opened_or_what_it_takes_is_said(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = _keys(tmp_path, "ed25519", "mine", "correct horse")
    code, said = _invoke("sign", run, "--key", private)
    assert (code, "FEDASSAY_KEY_PASSWORD" in said) == (2, True)
    monkeypatch.setenv("FEDASSAY_KEY_PASSWORD", "correct horse")
    code, said = _invoke("sign", run, "--key", private)
    if importlib.util.find_spec("bcrypt") is None:
        assert (code, "bcrypt" in said) == (2, True)
    else:
        assert (code, _invoke("verify", run, "--key", public)[0]) == (0, 0)


def test_what_does_not_hold_is_neither_signed_nor_packed(run: Path, tmp_path: Path) -> None:
    private, _ = _keys(tmp_path, "pem", "mine")
    record = (run / "record.json").read_text()
    (run / "record.json").write_text(record.replace('"verdict": "leak"', '"verdict": "no_leak_found"'))
    assert (run / "record.json").read_text() != record
    for arguments in (("sign", run, "--key", private), ("pack", run, "--key", private), ("pack", run)):
        code, said = _invoke(*arguments)
        assert (code, "does not hold" in said) == (2, True), said
    assert not (tmp_path / "run.zip").exists()
    (tmp_path / "none").write_text("no key")
    for key in (tmp_path / "none", tmp_path / "absent", run):
        assert _invoke("sign", run, "--key", key)[0] == 2


def test_a_run_is_packed_redacted_and_taken_as_it_is(run: Path, tmp_path: Path) -> None:
    private, public = _keys(tmp_path, "ed25519", "mine")
    (tmp_path / "policy.yaml").write_text(POLICY)
    (run / "notes.txt").write_text("somebody's")
    archive = tmp_path / "run.zip"
    assert _invoke("pack", run, "--key", private) == (0, f"{archive}\n")
    with zipfile.ZipFile(archive) as packed:
        names = packed.namelist()
    assert not any(name.startswith(("transcripts/", "artifacts/", ".cells/")) or "notes" in name for name in names)
    assert {"record.json", "report.html", "statement.json", "statement.dsse.json"} <= set(names)
    code, said = _invoke("verify", archive, "--key", public)
    assert (code, f"signature: by {public}" in said) == (0, True), said
    on_run = _invoke("check", run, "--policy", tmp_path / "policy.yaml", "--quiet")
    on_archive = _invoke("check", archive, "--policy", tmp_path / "policy.yaml", "--key", public, "--quiet")
    assert on_archive[0] == on_run[0]
    same = _invoke("check", archive, "--policy", tmp_path / "policy.yaml", "--baseline", archive, "--quiet")
    assert same[0] == on_run[0]
    # The same run makes the same archive, but for what is drawn: its signature is of Ed25519, which draws nothing.
    first = archive.read_bytes()
    assert _invoke("pack", run, "-o", tmp_path / "again.zip", "--key", private)[0] == 0
    assert (tmp_path / "again.zip").read_bytes() == first


def test_a_signed_run_is_packed_whole_or_signed_again(run: Path, tmp_path: Path) -> None:
    private, public = _keys(tmp_path, "pem", "mine")
    assert _invoke("sign", run, "--key", private)[0] == 0
    code, said = _invoke("pack", run)
    assert (code, "--whole" in said) == (2, True)
    assert _invoke("pack", run, "--whole", "-o", tmp_path / "whole.zip")[0] == 0
    assert _invoke("verify", tmp_path / "whole.zip", "--key", public)[0] == 0
    with zipfile.ZipFile(tmp_path / "whole.zip") as packed:
        assert any(name.startswith("transcripts/") for name in packed.namelist())
    assert _invoke("pack", run, "-o", run / "inside.zip", "--whole")[0] == 2


def test_evidence_is_signed_and_packed_as_well(run: Path, tmp_path: Path) -> None:
    private, public = _keys(tmp_path, "pem", "mine")
    assert _invoke("report", run, "--format", "evidence", "--quiet")[0] == 0
    assert _invoke("sign", run / "evidence", "--key", private)[0] == 0
    assert _invoke("verify", run / "evidence", "--key", public)[0] == 0
    assert _invoke("pack", run / "evidence", "-o", tmp_path / "e.zip")[0] == 0
    assert _invoke("verify", tmp_path / "e.zip", "--key", public)[0] == 0


Forge = Callable[[dict[str, bytes]], Any]


def _other_digest(files: dict[str, bytes]) -> None:
    """The record is changed, and the statement made to fit; the envelope stays."""
    import hashlib

    files["record.json"] = files["record.json"].replace(b"packed", b"forged")
    statement = json.loads(files["statement.json"])
    for subject in statement["subject"]:
        if subject["name"] == "record.json":
            subject["digest"]["sha256"] = hashlib.sha256(files["record.json"]).hexdigest()
    files["statement.json"] = json.dumps(statement).encode()


FORGERIES: dict[str, Forge] = {
    "record": lambda files: files.update({"record.json": files["record.json"].replace(b"packed", b"forged")}),
    "record and statement": _other_digest,
    "page": lambda files: files.update({"report.html": b"<p>all fine</p>"}),
    "table": lambda files: files.update({"tables/verdicts.csv": b"all,fine\n"}),
    "statement": lambda files: files.pop("statement.json"),
    "signature": lambda files: files.pop("statement.dsse.json"),
    "another's signature": lambda files: files.update(
        {"statement.dsse.json": files["statement.dsse.json"].replace(b'"sig": "', b'"sig": "00')}
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_archive_is_refused(run: Path, tmp_path: Path, forgery: str) -> None:
    private, public = _keys(tmp_path, "pem", "mine")
    archive = tmp_path / "run.zip"
    assert _invoke("pack", run, "--key", private, "--quiet")[0] == 0
    with zipfile.ZipFile(archive) as packed:
        files = {name: packed.read(name) for name in packed.namelist()}
    before = dict(files)
    FORGERIES[forgery](files)
    assert files != before
    with zipfile.ZipFile(archive, "w") as packed:
        for name, content in files.items():
            packed.writestr(f"artifact/{name}", content)
    code, said = _invoke("verify", archive, "--key", public)
    assert code == 1, said
    (tmp_path / "policy.yaml").write_text(POLICY)
    checked = _invoke("check", archive, "--policy", tmp_path / "policy.yaml", "--key", public)
    # A page or a table alone decides nothing.
    assert checked[0] != 0 or forgery in ("page", "table"), checked[1]


def _linked(archive: zipfile.ZipFile) -> None:
    about = zipfile.ZipInfo("record.json")
    about.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive.writestr(about, "/etc/passwd")


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda archive: archive.writestr("../record.json", "{}"), "inside the archive's folder"),
        (lambda archive: archive.writestr("/record.json", "{}"), "inside the archive's folder"),
        (lambda archive: archive.writestr("a/../../b", "{}"), "inside the archive's folder"),
        (_linked, "no regular file"),
        (lambda archive: [archive.writestr("record.json", "{}") for _ in range(2)], "twice"),
        (lambda archive: archive.writestr("record.json", b"0" * (200 << 20)), "bytes unpacked"),
        (lambda archive: archive.writestr("other.txt", b"0"), "record.json"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_from_elsewhere_is_refused_in_one_sentence(write: Any, says: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        write(archive)
    before = set(os.listdir(tmp_path))
    code, said = _invoke("verify", tmp_path / "x.zip")
    assert (code, says in said) == (2, True), said
    assert set(os.listdir(tmp_path)) == before
    assert "/run/" not in said.replace(str(tmp_path), "")


def test_a_broken_archive_is_refused_in_one_sentence(run: Path, tmp_path: Path) -> None:
    assert _invoke("pack", run, "--quiet")[0] == 0
    whole = (tmp_path / "run.zip").read_bytes()
    for number, content in enumerate(
        (whole[: len(whole) // 2], whole[:200] + b"\0" * 400 + whole[600:], b"PK\x03\x04")
    ):
        path = tmp_path / f"{number}.zip"
        path.write_bytes(content)
        assert _invoke("verify", path)[0] == 2
