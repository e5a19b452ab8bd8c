"""Of whom a sentence speaks: a sum, an artificial pair, nearest pictures, a list; and what is really spent."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from planted import finding

from fedassay.records.facts import Harm
from fedassay.records.record import Finding, Metric, RunRecord, TapeAnswer, load_record
from fedassay.reports.answer.answer import answer
from fedassay.reports.document.privacy_tables import claims_table
from fedassay.reports.gate.judging import judge
from fedassay.reports.gate.policy import Policy, Scope
from fedassay.reports.words.claims import ledger_stands
from fedassay.reports.words.harm_words import harm_clause
from fedassay.reports.words.harms import leaks, rank
from fedassay.support.epsilon import Epsilon

GALLERY = Path(__file__).resolve().parents[2] / "docs" / "gallery"


def said_of(build_cell: Any, *found: Finding) -> list[str]:
    cell = build_cell(None, "fedcgs", "fedcgs", math.inf, 0, findings=found)
    return [harm_clause(leak) for leak in leaks([cell])]


def leaking(audit: str, harm: Harm, **given: Any) -> Finding:
    found: Finding = finding(audit, **given)
    return found.model_copy(update={"harm": harm})


@pytest.mark.parametrize("kind", ["attributes", "counts"])
def test_of_a_sum_nothing_is_said_of_single_clients(build_cell: Any, kind: Any) -> None:
    harm = Harm(kind=kind, of="sum", count=None if kind == "attributes" else 1, total=1, mechanism="exact_counts")
    (said,) = said_of(build_cell, leaking("message", harm))
    assert "all clients together" in said
    assert "single clients" not in said
    assert "a client " not in said


def test_an_artificial_worst_pair_could_be_told_and_no_record_was(build_cell: Any) -> None:
    harm = Harm(kind="members", of="record", metric="auc", value=0.853)
    worst = harm.model_copy(update={"of": "worst_neighbours"})
    pair = leaking("membership", worst, source="informed", selection="worst_case")
    real = leaking("membership", harm, source="model", selection="lira_online")
    alone, beside = said_of(build_cell, pair), said_of(build_cell, pair, real)
    assert alone == [
        "an attacker who knows all other records could tell whether an artificial worst record took part "
        "(AUC 0.853, 0.5 is guessing)"
    ]
    assert beside[0].startswith("an attacker tells which records took part"), "what was told comes first"


def test_nearest_pictures_are_no_names(build_cell: Any) -> None:
    """65 of 300 pictures were nearest to a record of their sender: nobody knows which 65."""
    stated = Harm(kind="pictures", of="record", count=65, total=300, metric="identified", mechanism="class_means")
    pictures = leaking("reconstruction", stated).model_copy(
        update={"baseline": {"identified": Metric(value=32 / 300, n=300)}}
    )
    (said,) = said_of(build_cell, pictures)
    assert said == (
        "65 of 300 images made from class means are nearer to a record of their sender than to any other, against "
        "32 of the attacker's look-alikes"
    )
    (vectors,) = said_of(build_cell, leaking("message", stated.model_copy(update={"kind": "members"})))
    assert vectors.startswith("65 of 300 vectors made from class means are nearer to a record of their sender")
    by_list = Harm(kind="named", of="record", count=3, total=300, mechanism="linear_in_members")
    (found,) = leaks([build_cell(None, "fedcgs", "fedcgs", math.inf, 0, findings=(pictures,))])
    assert rank(by_list) < rank(found.harm)


def test_the_headline_is_of_the_list_that_the_plan_gives(build_cell: Any) -> None:
    """A list that holds half of the members is not answered with the AUC of one that holds all."""
    of_half = leaking(
        "membership",
        Harm(kind="members", of="record", metric="auc", value=0.84),
        attack="gallery",
        source="messages",
        selection="gallery",
    )
    of_all = leaking(
        "membership",
        Harm(kind="members", of="record", metric="auc", value=1.0),
        attack="membership",
        source="messages",
        selection="joint",
    )
    said = said_of(build_cell, of_all, of_half)
    assert said == ["an attacker tells which records took part better than by chance (AUC 0.840, 0.5 is guessing)"]
    (alone,) = said_of(build_cell, of_all)
    assert alone.startswith("an attacker with a list that holds everybody tells which records took part")


def _claiming(build_cell: Any, **given: Any) -> Any:
    return build_cell(None, "fedcgs", "fedcgs", 2.5, 0, verdict="unsound", accounted=5.1362, **given)


@pytest.mark.parametrize("question", ["noise", "sensitivity", "rest"])
def test_what_is_accounted_is_withheld_where_the_ledger_failed_and_nowhere_else(
    build_cell: Any, question: Any
) -> None:
    """A claim below what is really spent is disproved by it; the number that disproves it is not withheld."""
    too_small = _claiming(build_cell, observed=5.1372)
    failed = too_small.model_copy(update={"tape": (TapeAnswer(question=question, status="failed", words="w"),)})
    assert ledger_stands(too_small)
    assert not ledger_stands(failed)
    for cell, shown in ((too_small, "5.14"), (failed, "does not hold")):
        record = RunRecord(plan={}, environment={}, cells=(cell,))
        (row,) = answer(record).rows
        assert row.accounted == shown
        table = claims_table(record)
        (place,) = (n for n, column in enumerate(table.columns) if column.key == "accounted")
        (group,) = table.groups
        held = group[0].values[place]
        assert isinstance(held, Metric | Epsilon)
        assert (held.value if isinstance(held, Metric) else held.bare) == (5.1362 if shown == "5.14" else None)
        (rule,) = (
            each
            for each in judge(record, Policy(name="p", maximum={"accounted": 6.0}))
            if each.metric == "accounted"
        )
        assert rule.state == ("pass" if shown == "5.14" else "broken")


def test_a_ledger_that_an_attack_contradicts_does_not_stand(build_cell: Any) -> None:
    assert not ledger_stands(_claiming(build_cell, observed=9.0))
    inside = build_cell(None, "fedcgs", "fedcgs", 2.5, 0, verdict="unsound", accounted=2.4, observed=3.0)
    assert not ledger_stands(inside)


def test_the_demonstration_says_what_fedlog_really_spends() -> None:
    rows = answer(load_record(GALLERY / "demonstration")).rows
    (row,) = (row for row in rows if "fedlog" in row.name)
    assert row.accounted == "5.14"
    assert row.brief == "worst record could be told"


@pytest.mark.parametrize(
    ("verdicts", "brief"),
    [
        (("inconclusive", "inconclusive"), "not decided"),
        (("no_leak_found", "inconclusive"), "not decided"),
        (("no_leak_found", "no_leak_found"), "no leak found"),
        (("not_run", "not_run"), "no attack was run"),
    ],
)
def test_no_attack_was_run_where_none_was_and_nowhere_else(build_cell: Any, verdicts: Any, brief: str) -> None:
    found = tuple(finding("reconstruction", verdict, source=str(n)) for n, verdict in enumerate(verdicts))
    cell = build_cell(None, "fedcgs", "fedcgs", math.inf, 0, findings=found, exact=())
    record = RunRecord(plan={}, environment={}, cells=(cell,))
    (row,) = answer(record, Policy(name="p", claims="not_disproved", cells=Scope(epsilon="finite"))).rows
    assert row.brief == brief
