"""Forgeries of a finished run, made by the hundred: all are refused with the signer's key.

Those that contradict themselves are refused or undecided without it, too. One that agrees with itself everywhere
is told by nothing but a signature, and the answer says so.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import fedassay
from fedassay.cli import cli
from fedassay.execution.apart import forget_runs
from fedassay.records.record import load_record
from fedassay.records.signature import fingerprint
from fedassay.records.statement import ENVELOPE, STATEMENT, bound
from fedassay.reports import write_tables
from fedassay.reports.gate.check import check_run
from fedassay.reports.gate.policy import Policy
from fedassay.reports.gate.verify import verify
from fedassay.support.errors import DataError

pytestmark = pytest.mark.long

PLAN: dict[str, Any] = {
    "name": "forged",
    "seeds": [3],
    "data": {
        "name": "digits",
        "limit": 300,
        "split": {"private": 0.3, "attacker": 0.3, "public": 0.1, "test": 0.3},
    },
    "clients": {"count": 2, "partition": "iid"},
    "backbone": {"name": "pixels"},
    "privacy": {"epsilon": [1.0, 4.0]},
    "methods": ["fedcgs"],
    "attacks": ["message_algebra"],
    "audits": ["ledger", "message"],
    "resources": {"threads": 1},
}
POLICY = Policy(name="p", maximum={"accounted": 2.0}, cells={"labels": ("fedcgs",)})
GOOD = Policy(name="p", maximum={"accounted": 4.5})
CELLS = ("fedcgs-eps1-delta1e-05-seed3", "fedcgs-eps4-delta1e-05-seed3")
Tree = Any
Edit = Callable[[Tree], None]


@dataclass(frozen=True)
class Forgery:
    """One way to change a run.

    Attributes:
        name: For the report of the tests.
        forge: Changes a copy of the run folder; the second argument is another run of the same signer.
        agrees: Whether what is left agrees with itself, so that nothing but a signature tells.
    """

    name: str
    forge: Callable[[Path, Path], None]
    agrees: bool = False


@dataclass(frozen=True)
class Signed:
    """Runs that were signed, all by one key."""

    run: Path
    older: Path
    other: Path
    key: Path


def _sign(run: Path, signer: object) -> None:
    from securesystemslib.dsse import Envelope

    envelope = Envelope((run / STATEMENT).read_bytes(), "application/vnd.in-toto+json", {})
    envelope.sign(signer)
    (run / ENVELOPE).write_text(json.dumps(envelope.to_dict()))


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    pytest.importorskip("securesystemslib")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from securesystemslib.signer import CryptoSigner

    home = tmp_path_factory.mktemp("signed")
    private = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (home / "key.pem").write_bytes(public)
    signer = CryptoSigner(private)
    run = fedassay.run(PLAN, home / "run", progress=False).folder
    # Of other data, and so of another plan.
    other = {**PLAN, "data": {**PLAN["data"], "limit": 280}, "privacy": {"epsilon": 1.0}}
    forget_runs()
    fedassay.run(other, home / "other", progress=False)
    older = Path(shutil.copytree(run, home / "older"))
    _edit(older, lambda record: record["environment"].update(finished="2020-01-01T00:00:00+00:00"))
    _vouch_again(older)
    for each in (run, older, home / "other"):
        _sign(each, signer)
    return Signed(run, older, home / "other", home / "key.pem")


def _edit(run: Path, edit: Edit, name: str = "record.json") -> None:
    content = json.loads((run / name).read_text())
    before = json.dumps(content)
    edit(content)
    assert json.dumps(content) != before, "the forgery changes nothing"
    (run / name).write_text(json.dumps(content))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _vouch_again(run: Path) -> None:
    """Write the statement again, and the tables, as a forger would who can do no more than fedassay."""
    statement = json.loads((run / STATEMENT).read_text())
    for subject in statement["subject"]:
        if (run / subject["name"]).is_file():
            subject["digest"]["sha256"] = _digest(run / subject["name"])
    try:
        record = load_record(run)
        statement["predicate"].update(json.loads(json.dumps(bound(record))))
        write_tables(record, run / "tables")
    except (DataError, ValueError, KeyError, IndexError):
        pass
    (run / STATEMENT).write_text(json.dumps(statement))


def _at(path: tuple[str | int, ...], change: Callable[[Any], Any]) -> Edit:
    """An edit of what stands at a path."""

    def edit(tree: Tree) -> None:
        for step in path[:-1]:
            tree = tree[step]
        tree[path[-1]] = change(tree[path[-1]])

    return edit


def _drop(path: tuple[str | int, ...]) -> Edit:
    def edit(tree: Tree) -> None:
        for step in path[:-1]:
            tree = tree[step]
        del tree[path[-1]]

    return edit


def _halved(value: Any) -> Any:
    return [each * 0.5 for each in value] if isinstance(value, list) else value * 0.5


def _raised(value: Any) -> Any:
    return [each * 3 for each in value] if isinstance(value, list) else value * 3


def _other_text(value: Any) -> Any:
    return hashlib.sha256(str(value).encode()).hexdigest()


def _as(value: Any) -> Callable[[Any], Any]:
    return lambda _held: value


def _numbers(cell: int) -> Iterator[tuple[str, Edit]]:
    """Edits of a cell that contradict something else in the record."""
    own = ("cells", cell)
    row, sent = (*own, "ledger", 0), (*own, "released", "sent", 0)
    release = (*sent, "messages", 0, "fields", 0, "release")
    for name in ("claimed", "accounted", "accounted_stated", "mu"):
        yield f"{name} halved", _at((*own, "privacy", name), _halved)
        yield f"{name} raised", _at((*own, "privacy", name), _raised)
        yield f"{name} gone", _at((*own, "privacy", name), _as(None))
    yield "verdict sound", _at((*own, "privacy", "verdict"), _as("sound"))
    yield "verdict unsound", _at((*own, "privacy", "verdict"), _as("unsound"))
    yield "an exact field", _at((*own, "privacy", "exact_fields"), _as(["A"]))
    for name in ("sensitivity", "noise_scale"):
        yield f"row's {name} halved", _at((*row, name), _halved)
        yield f"row's {name} raised", _at((*row, name), _raised)
        yield f"row's {name} gone", _at((*row, name), _as(None))
        yield f"release's {name} halved", _at((*release, name), _halved)
        yield f"release's {name} raised", _at((*release, name), _raised)
    yield "row's mechanism", _at((*row, "mechanism"), _as("exact"))
    yield "row exact", _at((*row, "exact"), _as(True))
    yield "row's adjacency", _at((*row, "adjacency"), _as("replace_one"))
    yield "row's unit", _at((*row, "unit"), _as("client"))
    yield "row's group", _at((*row, "group"), _as("another"))
    yield "row's name", _at((*row, "field"), _as("Z"))
    yield "row gone", _drop(row)
    yield "no rows", _at((*own, "ledger"), _as([]))
    yield "release's mechanism", _at(release, _as({"mechanism": "public"}))
    yield "release's adjacency", _at((*release, "adjacency"), _as("replace_one"))
    yield "release that is none", _at(release, _as({"mechanism": "gaussian"}))
    yield "more messages", _at((*sent, "messages", 0, "count"), _raised)
    yield "endless messages", _at((*sent, "messages", 0, "count"), _as(1_000_000_000))
    yield "a sender gone", _at((*own, "released", "sent"), lambda sent: sent[1:])
    yield "nothing sent", _at((*own, "released", "sent"), _as([]))
    yield "releases gone", _at((*own, "released"), _as(None))
    yield "claim raised", _at((*own, "released", "claim", "epsilon"), _raised)
    yield "claim's delta", _at((*own, "released", "claim", "delta"), _as(0.1))
    yield "claim gone", _at((*own, "released", "claim"), _as(None))
    yield "transcript unnamed", _at((*own, "released", "transcript"), _as(""))
    yield "another transcript named", _at((*own, "released", "transcript"), _other_text)
    for name in ("plan", "cells", "entry"):
        yield f"basis: {name}", _at((*own, "basis", name), _other_text)
    yield "basis: data of one cell", _at((*own, "basis", "data", "private"), _other_text)
    yield "basis: weights of one cell", _at((*own, "basis", "weights"), _other_text)
    yield "basis gone", _at((*own, "basis"), _as(None))
    yield "epsilon of the cell", _at((*own, "epsilon"), _halved)
    yield "delta of the cell", _at((*own, "delta"), _raised)
    yield "adjacency of the cell", _at((*own, "adjacency"), _as("replace_one"))
    yield "unit of the cell", _at((*own, "unit"), _as("client"))
    yield "seed of the cell", _at((*own, "seed"), _as(4))
    yield "method of the cell", _at((*own, "method"), _as("fedpft"))
    yield "label of the cell", _at((*own, "label"), _as("another"))
    yield "key of the cell", _at((*own, "key"), _as("another"))
    yield "bytes", _at((*own, "communication", "bytes_up"), _halved)
    yield "findings gone", _at((*own, "findings"), _as([]))
    yield "the ledger's finding gone", _drop((*own, "findings", 0))
    yield "accounted in the finding", _at((*own, "findings", 0, "metrics", "accounted", "value"), _halved)
    yield "claimed in the finding", _at((*own, "findings", 0, "metrics", "claimed", "value"), _raised)
    yield "a leak without controls", _at((*own, "findings", 0, "verdict"), _as("leak"))
    controls = (*own, "findings", 1, "controls")
    yield "the positive control missed", _at((*controls, "positive", "caught"), _as(False))
    yield "the negative control flagged", _at((*controls, "negative", "flagged"), _as(True))
    yield "no controls", _at(controls, _as({"positive": None, "negative": None}))


def _of_the_record() -> Iterator[tuple[str, Edit]]:
    """Edits of the run that contradict something else in the record."""
    yield "a cell gone", _drop(("cells", 1))
    yield "the cells in another order", _at(("cells",), lambda cells: cells[::-1])
    yield "a cell twice", _at(("cells",), lambda cells: [cells[0], cells[0]])
    yield "no cells", _at(("cells",), _as([]))
    yield "plan: clients", _at(("plan", "clients", "count"), _as(5))
    yield "plan: data", _at(("plan", "data", "limit"), _as(9000))
    yield "plan: audits", _at(("plan", "audits"), lambda audits: audits[:1])
    yield "plan: name", _at(("plan", "name"), _as("another"))
    yield "redacted", _at(("redacted",), _as(True))
    yield "schema", _at(("schema",), _as(99))


def _in_statement() -> Iterator[tuple[str, Edit]]:
    """Edits of the statement that contradict the record, or cut it."""
    names = ("name", "redacted", "plan", "data", "date", "decision", "fedassay")
    for name in names:
        yield f"without {name}", _drop(("predicate", name))
        yield f"another {name}", _at(("predicate", name), lambda held: not held if isinstance(held, bool) else "x")
    yield "another outcome", _at(("predicate", "decision", "outcome"), _as("pass"))
    yield "another policy", _at(("predicate", "decision", "policy"), _as("research"))
    yield "no subjects", _at(("subject",), _as([]))
    yield (
        "the record alone",
        _at(("subject",), lambda all_: [each for each in all_ if each["name"] == "record.json"]),
    )
    yield "no record", _at(("subject",), lambda all_: [each for each in all_ if each["name"] != "record.json"])
    for cell in CELLS:
        name = f"transcripts/{cell}/transcript.json"
        cut = lambda all_, name=name: [each for each in all_ if each["name"] != name]  # noqa: E731
        yield f"without {cell}", _at(("subject",), cut)
    yield "other digests", _at(("subject", 0, "digest", "sha256"), _other_text)
    yield "a name twice removed", _at(("subject", 0, "name"), lambda name: f"./{name}")
    yield "predicate type", _at(("predicateType",), _as("urn:fedassay:evidence:1"))


def _edited(edit: Edit, again: bool, run: Path, _other: Path) -> None:
    _edit(run, edit)
    if again:
        _vouch_again(run)


def _restated(edit: Edit, run: Path, _other: Path) -> None:
    _edit(run, edit, STATEMENT)


def _lost_statement(edit: Edit, run: Path, _other: Path) -> None:
    _edit(run, edit)
    (run / STATEMENT).unlink()
    (run / ENVELOPE).unlink()


def _swapped(again: bool, run: Path, _other: Path) -> None:
    one, two = (run / "transcripts" / cell for cell in CELLS)
    one.rename(run / "transcripts" / "x")
    two.rename(one)
    (run / "transcripts" / "x").rename(two)
    if again:
        _vouch_again(run)


def _of_another(again: bool, run: Path, other: Path) -> None:
    shutil.rmtree(run / "transcripts" / CELLS[0])
    shutil.copytree(other / "transcripts" / CELLS[0], run / "transcripts" / CELLS[0])
    if again:
        _vouch_again(run)


def _named_of_another(run: Path, other: Path) -> None:
    """The transcript of another run, which the record names."""
    _of_another(again=False, run=run, other=other)
    digest = _digest(run / "transcripts" / CELLS[0] / "transcript.json")
    _edit(run, _at(("cells", 0, "released", "transcript"), _as(digest)))
    _vouch_again(run)


def _no_transcripts(again: bool, run: Path, _other: Path) -> None:
    shutil.rmtree(run / "transcripts")
    if again:
        keep = lambda all_: [each for each in all_ if not each["name"].startswith("transcripts/")]  # noqa: E731
        _edit(run, _at(("subject",), keep), STATEMENT)
        _vouch_again(run)


def _message(again: bool, run: Path, _other: Path) -> None:
    path = run / "transcripts" / CELLS[0] / "00000.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    if again:
        _vouch_again(run)


def _noise_in_transcript(run: Path, _other: Path) -> None:
    """A transcript that declares more noise than was added."""

    def edit(tree: Tree) -> None:
        for message in tree["messages"]:
            for about in message["fields"].values():
                if about["release"].get("noise_scale"):
                    about["release"]["noise_scale"] = _raised(about["release"]["noise_scale"])

    name = f"transcripts/{CELLS[0]}/transcript.json"
    _edit(run, edit, name)
    _edit(run, _at(("cells", 0, "released", "transcript"), _as(_digest(run / name))))
    _vouch_again(run)


def _gone(name: str, run: Path, _other: Path) -> None:
    (run / name).unlink()


def _table(run: Path, _other: Path) -> None:
    path = run / "tables" / "verdicts.csv"
    path.write_text(path.read_text() + "fedcgs,fine\n")


def _cells_of_another(run: Path, other: Path) -> None:
    """A cell of a run on other data, in this record."""
    theirs = json.loads((other / "record.json").read_text())["cells"][0]
    _edit(run, _at(("cells", 0), _as(theirs)))
    shutil.rmtree(run / "transcripts" / CELLS[0])
    shutil.copytree(other / "transcripts" / CELLS[0], run / "transcripts" / CELLS[0])
    _vouch_again(run)


def _record_of_another(run: Path, other: Path) -> None:
    shutil.copyfile(other / "record.json", run / "record.json")
    _vouch_again(run)


def _whole_without_envelope(run: Path, other: Path) -> None:
    """Another run, under this one's name and with this one's signature."""
    envelope = (run / ENVELOPE).read_bytes()
    shutil.rmtree(run)
    shutil.copytree(other, run)
    (run / ENVELOPE).write_bytes(envelope)


def _agreeing() -> Iterator[tuple[str, Edit]]:
    """Edits after which everything agrees: nothing but a signature tells."""
    yield "accuracy", _at(("cells", 0, "utility", "accuracy"), lambda value: min(1.0, value + 1e-3))
    yield "the date", _at(("environment", "finished"), _as("2031-01-01T00:00:00+00:00"))
    yield "a reason", _at(("cells", 0, "privacy", "reason"), _as("all is well"))
    yield "a note", _at(("cells", 0, "notes"), _as(["all is well"]))

    def data(tree: Tree) -> None:
        for cell in tree["cells"]:
            cell["basis"]["data"]["private"] = "0" * 64

    yield "the data of every cell", data


def _all() -> Iterator[Forgery]:
    edits = [*((f"cell {cell}: {name}", edit) for cell in (0, 1) for name, edit in _numbers(cell))]
    edits += [(f"run: {name}", edit) for name, edit in _of_the_record()]
    for name, edit in edits:
        yield Forgery(f"{name}, statement made anew", partial(_edited, edit, True))
    for name, edit in edits[::6]:
        yield Forgery(f"{name}, statement left", partial(_edited, edit, False))
        yield Forgery(f"{name}, statement gone", partial(_lost_statement, edit))
    for name, edit in _in_statement():
        yield Forgery(f"statement: {name}", partial(_restated, edit))
    for again in (False, True):
        yield Forgery(f"transcripts swapped {again}", partial(_swapped, again))
        yield Forgery(f"transcript of another run {again}", partial(_of_another, again))
        yield Forgery(f"no transcripts {again}", partial(_no_transcripts, again))
        yield Forgery(f"another message {again}", partial(_message, again))
    yield Forgery("transcript of another run, named", _named_of_another, agrees=True)
    yield Forgery("more noise declared in the transcript", _noise_in_transcript)
    for name in ("record.json", STATEMENT, f"transcripts/{CELLS[1]}/transcript.json"):
        yield Forgery(f"without {name}", partial(_gone, name))
    yield Forgery("without envelope", partial(_gone, ENVELOPE), agrees=True)
    yield Forgery("a table", _table)
    yield Forgery("a cell of another run", _cells_of_another)
    yield Forgery("the record of another run", _record_of_another)
    yield Forgery("another run with this signature", _whole_without_envelope, agrees=True)
    for name, edit in _agreeing():
        yield Forgery(f"{name}, in agreement", partial(_edited, edit, True), agrees=True)


FORGERIES = list(_all())
FEW = FORGERIES[::20] + [forgery for forgery in FORGERIES if forgery.agrees]


def _refused(forgery: Forgery, signed: Signed, folder: Path) -> None:
    run = Path(shutil.copytree(signed.run, folder / "run"))
    forgery.forge(run, signed.other)
    with pytest.raises(DataError):
        check_run(run, GOOD, key=signed.key)
    if forgery.agrees:
        outcome = check_run(run, GOOD)
        assert "whoever can edit this folder could have written it" in outcome.text().splitlines()[-1]
        return
    try:
        outcome = check_run(run, GOOD)
    except DataError:
        return
    assert outcome.exit_code == 2, outcome.text()


def test_there_are_about_two_hundred() -> None:
    assert len(FORGERIES) >= 200
    assert len({forgery.name for forgery in FORGERIES}) == len(FORGERIES)


@pytest.mark.parametrize("forgery", FEW, ids=lambda forgery: forgery.name)
def test_a_few_forgeries_are_refused(forgery: Forgery, signed: Signed, tmp_path: Path) -> None:
    _refused(forgery, signed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
def test_every_forgery_is_refused(forgery: Forgery, signed: Signed, tmp_path: Path) -> None:
    _refused(forgery, signed, tmp_path)


def test_the_run_itself_passes(signed: Signed) -> None:
    outcome = check_run(signed.run, GOOD, key=signed.key)
    assert outcome.exit_code == 0
    assert outcome.text().endswith(f"It is signed by {signed.key}.")
    assert check_run(signed.run, GOOD).exit_code == 0
    assert verify(signed.run, signed.key).problems == ()
    assert verify(signed.run, signed.key).open == ()


def _requires(**demands: Any) -> Policy:
    return Policy.model_validate({"name": "p", "maximum": {"accounted": 4.5}, "requires": demands})


def _about(run: Path) -> dict[str, Any]:
    return json.loads((run / STATEMENT).read_text())["predicate"]


def test_a_policy_can_demand_which_run_it_is(signed: Signed, tmp_path: Path) -> None:
    """A signed run under another name is refused by what the policy demands; the signature is good each time."""
    about = _about(signed.run)
    signer = fingerprint(signed.key)
    ours = _requires(
        plan=[about["plan"]], data=[about["data"]], days=30, versions=[about["fedassay"]], signers=[signer]
    )
    assert check_run(signed.run, ours, key=signed.key).exit_code == 0
    copy = Path(shutil.copytree(signed.other, tmp_path / "release"))
    assert check_run(copy, GOOD, key=signed.key).exit_code == 0
    for name in ("plan", "data"):
        outcome = check_run(copy, _requires(**{name: [about[name]]}), key=signed.key)
        assert [each.rule for each in outcome.judgements if each.state == "broken"] == [f"requires {name}"]
    old = check_run(signed.older, _requires(days=30), key=signed.key)
    assert (old.exit_code, "days old, above the maximum of 30" in old.text()) == (1, True)
    assert check_run(signed.run, _requires(versions=["0.0.0"]), key=signed.key).exit_code == 1
    assert check_run(signed.run, _requires(signers=["0" * 64]), key=signed.key).exit_code == 1
    unknown = check_run(signed.run, _requires(signers=[signer]))
    assert (unknown.exit_code, "--key" in unknown.text()) == (2, True)


def test_a_run_from_the_future_or_without_a_date_is_not_new(signed: Signed, tmp_path: Path) -> None:
    later = (datetime.now(UTC) + timedelta(days=3)).isoformat()
    for date in (later, "soon"):
        run = Path(shutil.copytree(signed.run, tmp_path / date))
        _edit(run, _at(("environment", "finished"), _as(date)))
        _vouch_again(run)
        assert check_run(run, _requires(days=30)).exit_code == 2


def test_the_reproduction_of_an_edited_record(signed: Signed, tmp_path: Path) -> None:
    """`check` passed an accounted epsilon of 1.9 in place of 4 once the statement was deleted."""
    run = Path(shutil.copytree(signed.run, tmp_path / "run"))
    assert check_run(run, POLICY).exit_code == 1

    def edit(record: Tree) -> None:
        record["cells"][1]["privacy"].update(accounted=1.9, claimed=1.9)

    _edit(run, edit)
    (run / STATEMENT).unlink()
    (run / ENVELOPE).unlink()
    (tmp_path / "policy.yaml").write_text("name: p\nmaximum: {accounted: 2.0}\n")
    for more in ((), ("--unverified",)):
        done = CliRunner().invoke(cli, ["check", str(run), "--policy", str(tmp_path / "policy.yaml"), *more])
        assert isinstance(done.exception, DataError)
        assert "accounted is given as 1.9" in str(done.exception) or "claimed is given" in str(done.exception)


def test_a_bare_record_needs_unverified(signed: Signed, tmp_path: Path) -> None:
    bare = tmp_path / "bare.json"
    shutil.copyfile(signed.run / "record.json", bare)
    outcome = check_run(bare, GOOD)
    assert (outcome.exit_code, "It is not verified" in outcome.text()) == (2, True)
    outcome = check_run(bare, GOOD, unverified=True)
    assert (outcome.exit_code, "It is not verified" in outcome.text()) == (0, True)
    beside = signed.run / "record.json"
    assert check_run(beside, GOOD).exit_code == 0


def test_a_statement_cut_down_to_the_record_does_not_hold(signed: Signed, tmp_path: Path) -> None:
    run = Path(shutil.copytree(signed.run, tmp_path / "run"))
    _no_transcripts(True, run, signed.other)
    assert any("transcript.json is not there" in problem for problem in verify(run).problems)
    assert any("does not list" in problem for problem in verify(run).problems)


def test_from_python_a_run_of_this_process_needs_no_statement(signed: Signed, tmp_path: Path) -> None:
    run = Path(shutil.copytree(signed.run, tmp_path / "run"))
    loaded = fedassay.load(run)
    assert loaded.check(GOOD, key=signed.key).exit_code == 0
    (run / STATEMENT).unlink()
    (run / ENVELOPE).unlink()
    assert loaded.check(GOOD).exit_code == 2
    assert loaded.check(GOOD, unverified=True).exit_code == 0
    assert fedassay.check(run, GOOD, unverified=True).exit_code == 0
    made = fedassay.Run(loaded.record, run)
    assert made.check(GOOD).exit_code == 0
    with pytest.raises(DataError, match="is not signed"):
        made.check(GOOD, key=signed.key)
