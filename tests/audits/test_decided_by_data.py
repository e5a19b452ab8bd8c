"""No sentence decides: with every one replaced by a random token, all that follows from a run is equal.

Attacks, audits and libraries write sentences: notes, reasons, what stood in the way, what a control is. Here each
is replaced where it is made, in every audit's own way to the ladder and in a whole run; and in the record, before
a policy is asked.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assays import CASES, MakeContext, MakeTask, of_messages
from contexts import with_data

from fedassay.attacks.gram.attack import GramFactorization
from fedassay.audits import evidence
from fedassay.configs.policies import __file__ as _POLICIES
from fedassay.contracts.attack import AttackResult, Note
from fedassay.execution.runner import RunOptions, run_scenario
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import parse_plan
from fedassay.records.record import Finding, RunRecord, load_record
from fedassay.reports.answer.answer import answer
from fedassay.reports.gate.judging import judged
from fedassay.reports.gate.policy import load_policy
from fedassay.support import errors
from fedassay.support.errors import NotRunError, Why

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
_RNG = random.Random(0)

SENTENCES = {
    "ControlResult": ("release", "shown", "detail"),
    "Result": ("shown", "leak", "clear", "about", "below_baseline", "undecided", "decided_by"),
    "LeakTest": ("words",),
    "Confounder": ("reason",),
    "Figures": (),
}
"""Fields of what audits hand over that hold sentences; that one is empty may decide, what it says may not."""

ARTIFACTS = ("texts", "reasons", "unattributed")
"""Arrays of attacks that hold sentences; other arrays of strings hold names."""


def _token(words: str) -> str:
    return "".join(_RNG.choices(string.ascii_letters, k=12)) if words else ""


def _said(value: Any) -> Any:
    """A sentence as a token, with the data that stand beside it."""
    if isinstance(value, Why):
        return value.said(_token(str(value)))
    if isinstance(value, Note):
        return Note(_token(str(value)), value.about)
    return _token(value) if isinstance(value, str) else value


@contextmanager
def _tokens() -> Iterator[None]:
    """Every sentence is replaced where it is made."""

    def replacing(made: Callable[..., None], names: tuple[str, ...]) -> Callable[..., None]:
        def init(self: Any, *args: Any, **given: Any) -> None:
            made(self, *args, **given)
            for name in names:
                object.__setattr__(self, name, _said(getattr(self, name)))

        return init

    def result(self: Any, *args: Any, **given: Any) -> None:
        attacked(self, *args, **given)
        object.__setattr__(self, "notes", tuple(_said(note) for note in self.notes))
        arrays = dict(self.artifacts)
        for name in set(ARTIFACTS) & set(arrays):
            tokens = [_token(str(each)) for each in np.atleast_1d(arrays[name])]
            arrays[name] = np.array(tokens, np.str_).reshape(arrays[name].shape)
        object.__setattr__(self, "artifacts", arrays)

    def raised(self: Any, message: str, **given: Any) -> None:
        refused(self, _token(message), **given)

    attacked, refused = AttackResult.__init__, NotRunError.__init__
    with pytest.MonkeyPatch.context() as patch:
        for name, fields in SENTENCES.items():
            kind = getattr(evidence, name)
            patch.setattr(kind, "__init__", replacing(kind.__init__, fields))
        patch.setattr(AttackResult, "__init__", result)
        patch.setattr(errors.NotRunError, "__init__", raised)
        yield


def _data(finding: Finding) -> dict[str, Any]:
    """All of a finding but its sentences."""
    held: dict[str, Any] = finding.model_dump(mode="json", exclude={"reason", "assumptions", "pictures", "series"})
    return _without_words(held)  # type: ignore[no-any-return]


WORDS = {
    "reason",
    "words",
    "release",
    "detail",
    "assumptions",
    "notes",
    "warnings",
    "would_decide",
    "title",
    "caption",
}
"""Keys of a record under which sentences stand."""


def _without_words(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_words(item) for key, item in value.items() if key not in WORDS}
    return [_without_words(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", CASES)
def test_verdicts_hang_on_no_sentence(
    name: str, make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    case = CASES[name]
    few = case.context(make_task, make_context, tmp_path)
    for control in (few.data.control, few.data.control.take(np.arange(3))):
        plain, replaced = (
            case.context(make_task, make_context, tmp_path / which) for which in ("plain", "replaced")
        )
        expected = [_data(finding) for finding in case.run(with_data(plain, control=control))]
        with _tokens():
            found = case.run(with_data(replaced, control=control))
        assert [_data(finding) for finding in found] == expected
        assert expected


@pytest.mark.parametrize("epsilon", [float("inf"), 1.0])
def test_why_an_attack_tried_nothing_is_read_as_data(
    epsilon: float, make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    """Messages above the plan's parameter, and sums that noise has made negative."""

    def findings() -> list[dict[str, Any]]:
        context = make_context(make_task(records=60, epsilon=epsilon), FedCGS(), folder=tmp_path)
        return [_data(finding) for finding in of_messages(GramFactorization(max_records=8), context)]

    expected = findings()
    with _tokens():
        assert findings() == expected
    assert expected[0]["verdict"] in ("inconclusive", "not_run")


PLAN = """
name: small
seeds: [0]
data: {name: digits, limit: 300, split: {private: 0.5, attacker: 0.2, test: 0.2, control: 0.1}}
clients: {count: 3, partition: iid}
backbone: {name: pixels}
privacy: {epsilon: [.inf, 1]}
methods: [fedcgs]
attacks: [label_distribution, message_algebra, gram_factorization, {membership: {shadows: 0}}]
audits: [message, {membership: {trials: 0, releases: 400}}, ledger]
"""


def _run(folder: Path, audits: str = "") -> RunRecord:
    import yaml

    plan = yaml.safe_load(PLAN)
    if audits:
        plan["audits"] = yaml.safe_load(audits)
    scenario = resolve(parse_plan(plan, "small.yaml"), folder, "small.yaml")
    return run_scenario(scenario, folder / "out", RunOptions(device="cpu", force=True))[1]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return _run(tmp_path_factory.mktemp("run"))


def _replaced(value: Any, key: str = "") -> Any:
    """A record's JSON with a token for every sentence."""
    if isinstance(value, dict):
        return {name: _replaced(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, key) for item in value]
    return _token(value) if key in WORDS and isinstance(value, str) else value


def _scrambled(record: RunRecord) -> RunRecord:
    held = record.model_dump(mode="json", by_alias=True)
    held["cells"] = _replaced(held["cells"])
    return RunRecord.model_validate(held)


def _decided(record: RunRecord) -> dict[str, Any]:
    """What follows from a record: states of rules and exit codes by policy, and the answer with its ranks."""
    found: dict[str, Any] = {}
    for path in sorted(Path(_POLICIES).parent.glob("*.yaml")):
        policy = load_policy(path)
        outcome, told = judged(record, policy), answer(record, policy)
        harm = None if told.leak is None else told.leak.harm
        found[path.stem] = (
            outcome.exit_code,
            [(item.rule, item.cell, item.state) for item in outcome.judgements],
            (told.answer, harm, [(row.answer, row.name, row.asked.bare, row.brief) for row in told.rows]),
            [[change.key for change in finding.remedy.changes] for finding in _findings(record) if finding.remedy],
        )
    return found


def _findings(record: RunRecord) -> list[Finding]:
    return [finding for cell in record.cells for finding in cell.findings]


@pytest.mark.parametrize("name", ["small", "photographs", "closed_forms", "claims", "sweep", "captured", "wrong"])
def test_decisions_ranks_and_exit_codes_hang_on_no_sentence(name: str, record: RunRecord) -> None:
    held = record if name == "small" else load_record(ROOT / "docs" / "gallery" / name)
    assert _decided(_scrambled(held)) == _decided(held)


def _by_name(record: RunRecord) -> dict[str, Any]:
    """Findings, coverage and the verdict on the claim by what they speak of, without their order and sentences."""
    found: dict[str, Any] = {}
    for cell in record.cells:
        where = f"{cell.label} {cell.epsilon}"
        for finding in cell.findings:
            name = f"{where} {finding.audit} {finding.attack} {finding.source} {finding.selection}"
            found[name] = _data(finding)
        found[where] = {row.attack: (row.status, bool(row.would_decide)) for row in cell.coverage}
        found[f"{where} claim"] = cell.privacy.verdict
    return found


def test_a_whole_run_hangs_on_no_sentence(record: RunRecord, tmp_path: Path) -> None:
    with _tokens():
        other = _run(tmp_path)
    assert _by_name(other) == _by_name(record)
    assert any(finding.remedy for finding in _findings(record))


def test_the_order_of_audits_decides_nothing(record: RunRecord, tmp_path: Path) -> None:
    other = _run(tmp_path, "[ledger, {membership: {trials: 0, releases: 400}}, message]")
    assert _by_name(other) == _by_name(record)
