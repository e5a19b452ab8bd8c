"""A signed folder of evidence: whatever of it is forged is refused with the signer's key."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedassay.records.record import RunRecord
from fedassay.records.statement import ENVELOPE, STATEMENT
from fedassay.reports import write_report
from fedassay.reports.evidence.verify import verify_evidence
from fedassay.reports.gate.policy import Policy
from fedassay.support.errors import DataError

STRICT = Policy(name="ours", maximum={"accounted": 3.0})
LAX = Policy(name="ours", maximum={"accounted": 30.0}, forbidden_verdicts=())
Tree = Any
Forge = Callable[[Path, RunRecord], None]


@pytest.fixture(scope="module")
def signer() -> Any:
    pytest.importorskip("securesystemslib")
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    from securesystemslib.signer import CryptoSigner

    return CryptoSigner(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32))))


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    public = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32))).public_key()
    path = tmp_path_factory.mktemp("key") / "key.pem"
    pem, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    path.write_bytes(public.public_bytes(pem, form))
    return path


def sign(folder: Path, signer: Any) -> None:
    from securesystemslib.dsse import Envelope

    envelope = Envelope((folder / STATEMENT).read_bytes(), "application/vnd.in-toto+json", {})
    envelope.sign(signer)
    (folder / ENVELOPE).write_text(json.dumps(envelope.to_dict()))


def written(record: RunRecord, home: Path, policy: Policy = STRICT, epsilon: float = 10.0) -> Path:
    return write_report(record, home, "evidence", None, policy, "fedcgs", epsilon)


def said(change: Callable[[Tree], None]) -> Forge:
    """Change what the statement says, and nothing else."""

    def forge(folder: Path, _record: RunRecord) -> None:
        statement = json.loads((folder / STATEMENT).read_text(encoding="utf-8"))
        change(statement)
        (folder / STATEMENT).write_text(json.dumps(statement), encoding="utf-8")

    return forge


def again(policy: Policy = STRICT, epsilon: float = 10.0, keep: str = ENVELOPE) -> Forge:
    """Write the whole folder anew, so that all of it agrees, and keep the signature."""

    def forge(folder: Path, record: RunRecord) -> None:
        held = (folder / keep).read_bytes()
        shutil.rmtree(folder)
        written(record, folder.parent, policy, epsilon)
        (folder / keep).write_bytes(held)

    return forge


def milder(folder: Path, record: RunRecord) -> None:
    """Another record, of fewer findings; the folder is made anew of it."""
    again()(folder, _without(record))


def _without(record: RunRecord) -> RunRecord:
    cells = tuple(cell.model_copy(update={"findings": cell.findings[:1]}) for cell in record.cells)
    return record.model_copy(update={"cells": cells})


FORGERIES: dict[str, Forge] = {
    "the decision": said(lambda s: s["predicate"]["decision"].update(answer="yes")),
    "the policy's digest": said(lambda s: s["predicate"]["decision"]["policy"].update(sha256="0" * 64)),
    "the policy's name": said(lambda s: s["predicate"]["decision"]["policy"].update(name="strict")),
    "the release's epsilon": said(lambda s: s["predicate"]["decision"]["release"].update(epsilon=1.0)),
    "the release's method": said(lambda s: s["predicate"]["decision"]["release"].update(method="fedncm")),
    "the record's digest": said(
        lambda s: next(each for each in s["subject"] if each["name"] == "record.json")["digest"].update(
            sha256=hashlib.sha256(b"another").hexdigest()
        )
    ),
    "a file that is no longer listed": said(lambda s: s["subject"].pop()),
    "the plan": said(lambda s: s["predicate"].update(plan="0" * 64)),
    "another policy, and all that follows": again(policy=LAX),
    "another release, and all that follows": again(epsilon=1.0),
    "another record, and all that follows": milder,
}


@pytest.mark.long
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_folder_is_refused_with_the_signer_s_key(
    record: RunRecord, tmp_path: Path, signer: Any, key: Path, name: str
) -> None:
    folder = written(record, tmp_path)
    sign(folder, signer)
    honest = verify_evidence(folder, key)
    assert honest.problems == ()
    assert honest.signature == f"by {key}"
    FORGERIES[name](folder, record)
    try:
        assert verify_evidence(folder, key).problems, name
    except DataError:
        assert name == "a file that is no longer listed"


def test_who_signs_with_another_key_is_refused(record: RunRecord, tmp_path: Path, signer: Any, key: Path) -> None:
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    folder = written(record, tmp_path)
    sign(folder, type(signer)(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))))
    assert verify_evidence(folder, key).problems


def test_a_folder_without_a_signature_is_refused_where_a_key_is_given(
    record: RunRecord, tmp_path: Path, key: Path
) -> None:
    assert verify_evidence(written(record, tmp_path), key).problems


def test_a_signature_of_a_run_is_none_of_its_evidence(
    record: RunRecord, tmp_path: Path, signer: Any, key: Path
) -> None:
    """The same record under a statement of a run: it decides nothing on one release."""
    from fedassay.records.statement import bound, statement_text

    folder = written(record, tmp_path)
    evidence = (folder / STATEMENT).read_text(encoding="utf-8")
    digests = {each["name"]: each["digest"]["sha256"] for each in json.loads(evidence)["subject"]}
    (folder / STATEMENT).write_text(statement_text("run", digests, **bound(record)), encoding="utf-8")
    sign(folder, signer)
    (folder / STATEMENT).write_text(evidence, encoding="utf-8")
    with pytest.raises(DataError):
        verify_evidence(folder, key)


@pytest.mark.long
def test_sums_that_do_not_fit_are_refused_and_a_print_is_said_to_be_held_to_nothing(
    record: RunRecord, tmp_path: Path
) -> None:
    folder = written(record, tmp_path)
    assert not any("nothing names it" in words for words in verify_evidence(folder).open)
    assert not any("evidence.pdf" in words for words in verify_evidence(folder).open)
    (folder / "evidence.pdf").write_bytes(b"%PDF-1.4 all fine")
    assert "does not list evidence.pdf" in " ".join(verify_evidence(folder).problems)
    digest = hashlib.sha256(b"%PDF-1.4 all fine").hexdigest()
    said(lambda tree: tree["subject"].append({"name": "evidence.pdf", "digest": {"sha256": digest}}))(
        folder, record
    )
    (problem,) = verify_evidence(folder).problems
    assert problem == "SHA256SUMS does not say what statement.json says"
    sums = [f"{digest}  evidence.pdf", *(folder / "SHA256SUMS").read_text().splitlines()]
    (folder / "SHA256SUMS").write_text("\n".join(sorted(sums, key=lambda line: line.split()[1])) + "\n")
    found = verify_evidence(folder)
    assert found.problems == ()
    assert "not verified: evidence.pdf: not compared with the record" in found.text()
    for content in ("", f"{'0' * 64}  record.json\n"):
        (folder / "SHA256SUMS").write_text(content)
        assert "SHA256SUMS does not say" in " ".join(verify_evidence(folder).problems)
    (folder / "SHA256SUMS").unlink()
    assert "SHA256SUMS does not say" in " ".join(verify_evidence(folder).problems)
    (folder / "approval.pdf").write_bytes(b"")
    assert any(words.startswith("approval.pdf: nothing names it") for words in verify_evidence(folder).open)
