"""One situation, one verdict: every audit's own way to the ladder, in each situation of an assay.

Every audit is run on a small release whose records it gets back, and the arms that it hands over are kept. They
are then put into each situation of the table. Two situations are made for real, before any audit looks: there are
no control records, and the method's own release of control records gives nothing away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from assays import CASES, WITHOUT_ALONE, MakeContext, MakeTask
from contexts import with_data, with_runs

from fedassay.audits import verdict
from fedassay.audits.evidence import Arms, Confounder, ControlResult, LeakTest
from fedassay.audits.ladder import LADDER, Rung
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.registry import every_audit
from fedassay.data.records import Records
from fedassay.records.facts import HARMS, Obstacle
from fedassay.records.record import Finding, Limit
from fedassay.reports.words.harms import rank

Change = Callable[[AuditContext], AuditContext]
Walked = Callable[..., tuple[list[Arms], list[Finding]]]


@contextmanager
def _kept(arms: list[Arms]) -> Iterator[None]:
    asked = verdict.decide

    def keep(given: Arms) -> Rung:
        arms.append(given)
        return asked(given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verdict, "decide", keep)
        yield


@pytest.fixture(scope="module")
def walked(make_task: MakeTask, make_context: MakeContext, tmp_path_factory: pytest.TempPathFactory) -> Walked:
    """The arms and the findings of a case, in a context that may be changed; each is walked once."""
    kept: dict[tuple[str, str], tuple[list[Arms], list[Finding]]] = {}

    def walk(name: str, what: str = "as it is", change: Change = lambda context: context) -> Any:
        if (name, what) not in kept:
            arms: list[Arms] = []
            context = CASES[name].context(make_task, make_context, tmp_path_factory.mktemp("case"))
            with _kept(arms):
                found = CASES[name].run(change(context))
            kept[name, what] = arms, found
        return kept[name, what]

    return walk


def test_every_audit_that_attacks_is_here() -> None:
    """A claim has its own door; every other audit that is registered is walked."""
    others = {"dp_claim", "ledger"}
    assert {case.audit for case in CASES.values()} == set(every_audit()) - others


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_an_audit_hands_over_every_arm(name: str, walked: Walked) -> None:
    arms, findings = walked(name)
    assert arms
    assert findings
    for each in arms:
        assert not isinstance(each.own, str)
        assert each.own
        # A rule fires or does not: no attack could do so by a shorter way.
        assert each.attack_only or name in WITHOUT_ALONE or not each.result.test.words
        assert each.result.limit is not None or each.result.undecided or each.result.public
        assert each.result.harm is not None
    for finding in findings:
        roles = [control.role for control in finding.all_controls]
        assert roles.count("end_to_end") >= 1
        assert roles.count("negative") == 1
        assert finding.rule in {rung.name for rung in LADDER}
        assert (finding.obstacle is not None) == (finding.verdict in ("inconclusive", "not_run"))


SURE, BETWEEN, NONE = LeakTest(True, True), LeakTest(False, True), LeakTest(False, False)
CAUGHT, MISSED = {"detected": True, "gain": 1.0}, {"detected": False, "gain": 1.0}
OTHERS = Confounder(0.01, 1.0, 0.5, "other data show as much", ControlResult("other data", True, "so"))
LIMIT = Limit(metric="share", value=0.1, n=9)

TABLE: dict[str, tuple[str, str]] = {
    # situation: what follows where the test rejects, and where it is silent
    "all controls hold": ("leak", "no_leak_found"),
    "the negative control is flagged": ("inconclusive", "inconclusive"),
    "no end-to-end control could be made": ("leak", "inconclusive"),
    "the end-to-end control is missed, the attack alone caught": ("leak", "inconclusive"),
    "the end-to-end control is caught, the attack alone missed": ("leak", "inconclusive"),
    "no positive control is caught": ("inconclusive", "inconclusive"),
    "no positive control could be made": ("inconclusive", "inconclusive"),
    "other data explain it, within twice their reach": ("inconclusive", "no_leak_found"),
    "other data are seen, and it is beyond twice their reach": ("leak", "no_leak_found"),
    "other data would explain it, but there are near copies": ("leak", "no_leak_found"),
    "the end-to-end control gains under a tenth": ("leak", "inconclusive"),
    "there is no limit of detection": ("leak", "inconclusive"),
    "it is worse than its baseline": ("leak", "inconclusive"),
    "the audit knows why silence is no answer": ("leak", "inconclusive"),
}
"""The table of situations: docs/assay.md says it in words."""


def _put(arms: Arms, situation: str, test: LeakTest) -> Arms:
    """An audit's own arms, in a situation."""
    assert not isinstance(arms.own, str)
    result = replace(
        arms.result,
        test=test,
        below_baseline="",
        near_copies=0,
        undecided="",
        obstacle=None,
        public=False,
        limit=lambda: LIMIT,
    )
    own = tuple(replace(control, **CAUGHT) for control in arms.own)
    alone = tuple(replace(control, **CAUGHT) for control in arms.attack_only)
    alone = alone or (ControlResult("the attack alone", True, "so", gain=1.0),)
    held = Arms(result, own, replace(arms.negative, detected=False), alone)
    lost = {
        side: tuple(replace(each, **MISSED) for each in getattr(held, side)) for side in ("own", "attack_only")
    }
    return {
        "all controls hold": held,
        "the negative control is flagged": replace(held, negative=replace(held.negative, detected=True)),
        "no end-to-end control could be made": replace(held, own="too few control records"),
        "the end-to-end control is missed, the attack alone caught": replace(held, own=lost["own"]),
        "the end-to-end control is caught, the attack alone missed": replace(
            held, attack_only=lost["attack_only"]
        ),
        "no positive control is caught": replace(held, **lost),
        "no positive control could be made": replace(held, own="too few control records", attack_only=()),
        "other data explain it, within twice their reach": replace(held, confounder=OTHERS),
        "other data are seen, and it is beyond twice their reach": replace(
            held, confounder=replace(OTHERS, gain=1.01)
        ),
        "other data would explain it, but there are near copies": replace(
            held, confounder=OTHERS, result=replace(result, near_copies=1)
        ),
        "the end-to-end control gains under a tenth": replace(
            held, own=tuple(replace(each, gain=0.09) for each in own)
        ),
        "there is no limit of detection": replace(held, result=replace(result, limit=lambda: "too few")),
        "it is worse than its baseline": replace(held, result=replace(result, below_baseline="chance")),
        "the audit knows why silence is no answer": replace(held, result=replace(result, undecided="not tried")),
    }[situation]


@pytest.mark.parametrize("situation", TABLE)
@pytest.mark.parametrize("name", CASES)
def test_one_situation_has_one_verdict(name: str, situation: str, walked: Walked) -> None:
    rejecting, silent = TABLE[situation]
    for arms in walked(name)[0]:
        found = [verdict.decide(_put(arms, situation, test)).verdict for test in (SURE, NONE, BETWEEN)]
        assert found[:2] == [rejecting, silent]
        assert found[2] == "inconclusive"


@pytest.mark.parametrize("name", CASES)
def test_what_decides_is_declared_and_ranked(name: str, walked: Walked) -> None:
    for finding in walked(name)[1]:
        declared = {metric.name: metric for metric in every_audit()[finding.audit].metrics}
        assert set(finding.metrics) | set(finding.baseline) <= set(declared)
        assert finding.test is not None
        assert declared[finding.test.statistic].worse is not None
        if finding.verdict == "leak":
            assert finding.harm is not None
            assert rank(finding.harm)[0] in range(len(HARMS))
            assert finding.harm.metric in {"", *declared}


@pytest.mark.parametrize("name", CASES)
def test_without_control_records_a_leak_takes_the_attack_alone(name: str, walked: Walked) -> None:
    """Found all the same where another control was caught; silence, and what has no other, is `inconclusive`."""
    findings = walked(
        name, "no control records", lambda c: with_data(c, control=c.data.control.take(np.zeros(0, np.int64)))
    )[1]
    for finding in findings:
        assert "end_to_end" not in {control.role for control in finding.all_controls}
        caught = any(control.role == "attack_only" and control.detected for control in finding.all_controls)
        flagged = finding.controls.negative is not None and finding.controls.negative.flagged
        rejects = finding.test is not None and finding.test.rejects
        expected = "leak" if rejects and caught and not flagged else "inconclusive"
        assert finding.verdict == expected or finding.rule == "explained_by_others", finding.reason
        if finding.verdict == "inconclusive" and not rejects and finding.rule == "own_control_missing":
            assert isinstance(finding.obstacle, Obstacle)
            assert finding.obstacle.kind == "records_missing", finding.reason
            assert finding.obstacle.role == "control"
            assert (finding.obstacle.needed or 0) > (finding.obstacle.held or 0)


def _ruined(context: AuditContext) -> AuditContext:
    """The method's own releases of control records are of noise, all of one label: they give nothing away."""

    def ruin(records: Records) -> Records:
        rng = np.random.default_rng(len(records))
        images = rng.integers(0, 256, records.images.shape).astype(np.uint8)
        return Records(records.name, images, np.zeros_like(records.labels), context.data.encode)

    run = context.method.run_nonprivate
    return with_runs(
        context, run_nonprivate=lambda clients, seeds: run([ruin(client) for client in clients], seeds)
    )


@pytest.mark.parametrize("name", CASES)
def test_a_missed_control_elsewhere_tells_of_silence_alone(name: str, walked: Walked) -> None:
    missed = 0
    for finding in walked(name, "ruined", _ruined)[1]:
        own = [control.detected for control in finding.all_controls if control.role == "end_to_end"]
        if not own or all(own):
            continue
        missed += 1
        assert finding.test is not None
        caught = any(
            control.detected for control in finding.all_controls if control.role in ("end_to_end", "attack_only")
        )
        if finding.controls.negative is not None and finding.controls.negative.flagged:
            assert finding.verdict == "inconclusive"
        elif finding.rule != "explained_by_others":
            assert finding.verdict == ("leak" if finding.test.rejects and caught else "inconclusive")
    assert missed
