"""Harms by facts: which of them a finding shows, which is the worst, and what is said below a refuted claim."""

from __future__ import annotations

import ast
import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from planted import HARMFUL, finding

from fedassay.records.facts import HARMS, MEANS, Harm, HarmKind, Obstacle
from fedassay.records.record import (
    CellPrivacy,
    CellRecord,
    Finding,
    Limit,
    Metric,
    RunRecord,
    TapeAnswer,
    load_record,
)
from fedassay.reports.answer.answer import answer
from fedassay.reports.gate.policy import Policy
from fedassay.reports.words.claims import claim_clause, fault_of
from fedassay.reports.words.harm_words import harm_clause
from fedassay.reports.words.harms import harm_of, leaks, obstacle_of, rank
from fedassay.reports.words.sentences import missed_clause, open_clause, sentence, silent_clause

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kind", HARMS)
def test_a_finding_that_states_no_harm_has_the_kind_that_it_looked_for(kind: HarmKind) -> None:
    found = harm_of(HARMFUL[kind].model_copy(update={"harm": None}))
    assert found is not None
    assert found.kind == ("members" if kind == "named" else kind)


def test_a_stated_harm_stands_and_silence_has_none() -> None:
    stated = Harm(kind="named", of="person", count=2, total=3)
    assert harm_of(HARMFUL["counts"].model_copy(update={"harm": stated})) == stated
    assert harm_of(HARMFUL["exact"].model_copy(update={"verdict": "no_leak_found"})) is None


@pytest.mark.parametrize(
    ("total", "words"),
    [
        (None, "names 119 records that took part"),
        (119, "names all 119 candidate records that took part"),
        (127, "names 119 of 127 candidate records that took part"),
    ],
)
def test_only_candidates_are_named(build_cell: Any, total: int | None, words: str) -> None:
    """More records may have taken part than an attacker asks about."""
    harm = Harm(kind="named", of="record", count=119, total=total, mechanism="linear_in_members")
    finding = Finding(audit="membership", verdict="leak", reason="x", harm=harm)
    (found,) = leaks([build_cell(None, "fedcgs", "fedcgs", math.inf, 0, findings=(finding,))])
    assert harm_clause(found) == f"an attacker {words}"


@pytest.mark.parametrize(("worse", "lesser"), list(itertools.combinations(HARMS, 2)))
def test_the_worse_harm_is_first_whatever_the_order_of_the_findings(
    build_cell: Any, worse: HarmKind, lesser: HarmKind
) -> None:
    for pair in itertools.permutations((HARMFUL[worse], HARMFUL[lesser])):
        found = leaks([build_cell(None, "fedcgs", "fedcgs", math.inf, 0, findings=pair)])
        assert [leak.harm.kind for leak in found] == [worse, lesser]


def test_of_one_kind_the_larger_share_is_first(build_cell: Any) -> None:
    few, many = (
        finding("message", harm=Harm(kind="exact", of="record", count=count, total=100)) for count in (4, 100)
    )
    found = leaks([build_cell(None, "fedcgs", "fedcgs", math.inf, 0, findings=(few, many))])
    assert [leak.harm.count for leak in found] == [100, 4]
    assert rank(found[0].harm) < rank(found[1].harm)


@pytest.mark.parametrize(
    ("metric", "value", "recognised"),
    [("psnr", 12.6, False), ("psnr", 24.0, True), ("ssim", 0.2, False), ("ssim", 0.9, True)],
)
def test_images_that_nobody_would_recognise_are_not_said_to_be_rebuilt(
    build_cell: Any, metric: str, value: float, recognised: bool
) -> None:
    """They are nearer than look-alikes, which is less than records that follow exactly, and more than members."""
    images = HARMFUL["pictures"].model_copy(
        update={"harm": Harm(kind="pictures", of="record", total=64, metric=metric, value=value)}
    )
    others = [HARMFUL[kind] for kind in HARMS if kind != "pictures"]
    found = leaks([build_cell(None, "fedcgs", "fedcgs", math.inf, 0, findings=(*others, images))])
    kinds = [leak.harm.kind for leak in found]
    if recognised:
        assert kinds == list(HARMS)
    else:
        assert kinds == ["exact", "named", "pictures", "members", "attributes", "counts"]
    said = next(harm_clause(leak) for leak in found if leak.harm.kind == "pictures")
    assert ("private images were rebuilt" in said) is recognised
    assert ("come closer to the private ones than the attacker's best look-alikes" in said) is not recognised


def test_harms_in_words(build_cell: Any) -> None:
    said = {
        kind: harm_clause(leaks([build_cell(None, "fedcgs", "fedcgs", math.inf, 0, findings=(one,))])[0])
        for kind, one in HARMFUL.items()
    }
    assert said == {
        "pictures": "private images were rebuilt from raw features: 90 images, SSIM 0.500",
        "exact": "the features of 60 of 100 records were recovered exactly from what is sent, "
        "by gram factorization",
        "named": "an attacker names 3 of 12 candidate persons that took part",
        "members": "an attacker tells which records took part better than by chance (AUC 0.800, 0.5 is guessing)",
        "attributes": "labels or attributes of 4 of 5 clients follow from what is sent",
        "counts": "how many records a client holds follows from class sums and second moments together",
    }


def test_units_that_are_told_are_said_with_what_guessing_gives(build_cell: Any) -> None:
    stated = {"of": "client", "count": 3, "total": 3, "metric": "worst_client_told", "value": 0.875}
    said = []
    for kind, hold in (("members", "records"), ("attributes", "property")):
        given = Finding(
            audit="membership",
            verdict="leak",
            reason="x",
            source="clients",
            selection=hold,
            harm=Harm(kind=kind, mechanism="membership", **stated),
        )
        (found,) = leaks([build_cell(None, "fedcgs", "fedcgs", math.inf, 0, findings=(given,))])
        said.append(harm_clause(found))
    told = "better than by chance (3 of 3 are; the most exposed is told in 87.5 % of runs, 50 % is guessing)"
    assert said == [
        f"an attacker tells which clients took part {told}",
        f"an attacker tells what the records of clients are like {told}",
    ]


def claiming(build_cell: Any, verdict: str = "unsound", **given: Any) -> CellRecord:
    privacy = {"claimed": 2.0, "accounted": 0.926, "verdict": verdict, **given.pop("privacy", {})}
    cell = build_cell(None, "fedcgs", "fedcgs", 2.0, 0)
    claimed: CellRecord = cell.model_copy(update={"privacy": CellPrivacy(**privacy), **given})
    return claimed


def test_noise_that_is_missing_is_why_a_claim_falls_not_what_adds_up(build_cell: Any) -> None:
    answer = TapeAnswer(question="noise", status="failed", field="means", words="x")
    captured = finding("dp_claim", "unsound", {"noise_p": (1e-300, 2640)})
    less = Finding(
        audit="dp_claim",
        verdict="unsound",
        reason="x",
        metrics={"noise_p": Metric(value=1e-38), "noise_measured": Metric(value=0.7, low=0.6, high=0.8, n=80)},
    )
    said = [
        claim_clause(claiming(build_cell, tape=(answer,))),
        claim_clause(claiming(build_cell, findings=(captured,))),
        claim_clause(claiming(build_cell, findings=(less,))),
    ]
    claim = "claims ε = 2 (one record added or removed) with noise of scale 0.0791"
    assert said == [
        f"{claim}, but the messages hold no such noise in means",
        f"{claim}, but the messages hold no such noise",
        f"{claim}, but the messages hold only 70 % of that noise",
    ]
    row = claiming(build_cell).ledger[0]
    unlike = (row, row.model_copy(update={"noise_scale": (4.0,)}))
    said = [claim_clause(claiming(build_cell, findings=(each,), ledger=unlike)) for each in (captured, less)]
    assert said == [
        "claims ε = 2 (one record added or removed), but the messages do not hold the noise that they declare",
        "claims ε = 2 (one record added or removed), but the messages hold only 70 % of the noise that "
        "they declare",
    ]


@pytest.mark.parametrize(
    ("privacy", "kind", "said"),
    [
        (
            {"accounted": math.inf, "exact_fields": ("counts", "sums")},
            "exact",
            "clients send the fields counts and sums without",
        ),
        ({"observed": 3.12}, "observed", "an attack shows at least 3.12"),
        ({"accounted": 21.9}, "accounted", "what is sent adds up to 21.9"),
        ({"accounted": math.inf}, "accounted", "no finite ε holds for what is sent"),
        ({}, "unstated", "that is disproved"),
    ],
)
def test_why_a_claim_falls(build_cell: Any, privacy: dict[str, Any], kind: str, said: str) -> None:
    cell = claiming(build_cell, privacy=privacy)
    fault = fault_of(cell)
    assert fault is not None
    assert fault.kind == kind
    assert f"claims ε = 2 (one record added or removed), but {said}" in claim_clause(cell)


def test_a_system_that_claims_nothing_has_no_fault_however_much_adds_up(build_cell: Any) -> None:
    cell = claiming(build_cell, "not_run", privacy={"claimed": None, "accounted": math.inf})
    assert fault_of(cell) is None
    assert claim_clause(cell) == "no privacy is claimed"


def silent(kind: HarmKind, **limit: Any) -> Finding:
    held = Limit(**{"n": 5, **limit}) if limit else None
    return HARMFUL[kind].model_copy(update={"verdict": "no_leak_found", "limit": held})


def test_the_weakest_audit_is_behind_a_tick_and_not_the_limit_of_another() -> None:
    features = silent("exact", metric="share", value=0.00554, n=414, of="record")
    everybody = silent("pictures", metric="shift", value=0.15, shift_metric="SSIM")
    unknown = silent("members")
    assert "rebuilt images of a few records may have been missed" in silent_clause([features, everybody])
    assert "the search for signs of membership would have missed is not known" in silent_clause(
        [features, everybody, unknown]
    )
    assert missed_clause(features).endswith(
        "of fewer than 3 of 414 records may have been missed, by the audit message"
    )
    assert missed_clause(silent("counts", metric="messages", value=1.0)) == ""
    told = silent("members", metric="tpr_at_10pct", value=0.3539, n=471, of="record")
    assert missed_clause(told).endswith(
        "of records with a true-positive rate under 35.4 %, at 10 % false alarms, may have been missed, "
        "by the audit membership"
    )
    counted = silent("counts", metric="messages", value=1.0)
    assert silent_clause([counted, told]) == f"no leak was found; {missed_clause(told)}"
    often = silent("members", metric="worst_client_told", value=0.8, n=200, of="client")
    assert missed_clause(often).endswith(
        "where a client is recognised in fewer than 80 % of the runs, by the audit membership"
    )


def test_an_obstacle_says_why_nothing_can_be_said() -> None:
    missing = Obstacle(kind="records_missing", role="control", held=0, needed=60)
    one = finding("reconstruction", "inconclusive", obstacle=missing, source="raw")
    assert obstacle_of(one) == missing
    assert "(0 control records, 60 would do)" in open_clause(one, missing)


def test_no_report_takes_a_reason_apart() -> None:
    """No regular expression, split or look inside is applied to a sentence of the record."""
    prose = {"reason", "why", "words", "would_decide", "shown", "said"}
    taking = {"split", "rsplit", "partition", "rpartition", "startswith", "endswith", "find", "index"}
    found = []
    for path in (ROOT / "reports").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            asked: list[ast.expr] = []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr in taking:
                    asked = [node.func.value]
                elif isinstance(node.func.value, ast.Name) and node.func.value.id == "re":
                    asked = list(node.args)
            elif isinstance(node, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
                asked = [each for each in node.comparators]
            found += [
                f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
                for each in asked
                if isinstance(each, ast.Attribute) and each.attr in prose
            ]
    assert not found
    for path in (ROOT / "reports").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "first_clause" not in text, path
        assert "first_sentence" not in text, path


@pytest.mark.parametrize("name", ["photographs", "captured", "wrong", "closed_forms", "sweep", "claims"])
def test_every_leak_on_record_has_a_harm_and_a_clause(name: str) -> None:
    record: RunRecord = load_record(ROOT / "docs" / "gallery" / name)
    for leak in leaks(record.cells):
        words = harm_clause(leak)
        assert words
        assert len(words.split()) <= 30


def test_a_field_without_noise_is_no_count_of_records(build_cell: Any) -> None:
    """What such a field gives away nobody has counted: a checkpoint of five records was `record counts told`."""
    harm = Harm(kind="counts", of="message", count=16, total=16, mechanism="unprotected_field")
    found = Finding(audit="message", verdict="leak", reason="r", source="unprotected_field", harm=harm)
    cell = build_cell(None, "fedcgs", "fedcgs", 2.0, 0).model_copy(update={"findings": (found,)})
    record = RunRecord(plan={"name": "n"}, environment={}, cells=(cell,))
    (row,) = answer(record, Policy(name="p", forbidden_verdicts=("leak",))).rows
    assert row.brief == "a field without noise"
    assert row.finding == "a field without noise stands beside noised ones"


def test_a_name_with_an_underscore_keeps_its_letters() -> None:
    assert sentence("mean_share claims ε = 2") == "mean_share claims ε = 2."
    assert sentence("no leak was found") == "No leak was found."
    assert sentence("ε adds up") == "ε adds up."


@pytest.mark.parametrize(
    "run", sorted((ROOT / "docs" / "gallery").glob("*/record.json")), ids=lambda run: run.parent.name
)
def test_images_are_counted_where_their_mean_is_taken(run: Path) -> None:
    """Of 181 images that were tried the attacker is surest of 20: their mean is no mean of 181."""
    for leak in leaks(load_record(run.parent).cells):
        harm, words = leak.harm, harm_clause(leak)
        if harm.kind not in MEANS or harm.value is None:
            continue
        size = leak.finding.metrics[harm.metric].n
        assert size == harm.total, words
        assert harm.among is None or f"the {size} of {harm.among} images that " in words, words


@pytest.mark.parametrize(
    ("selection", "among", "said"),
    [
        ("attacker", 181, "the 20 of 181 images that the attacker is surest of, SSIM 0.654"),
        ("oracle", 181, "the 20 of 181 images that come closest, SSIM 0.654"),
        ("all", None, "20 images, SSIM 0.654"),
    ],
)
def test_what_a_mean_is_over_is_said_before_it(
    build_cell: Any, selection: str, among: int | None, said: str
) -> None:
    harm = Harm(kind="pictures", of="record", total=20, among=among, metric="ssim", value=0.654, mechanism="raw")
    images = HARMFUL["pictures"].model_copy(update={"harm": harm, "selection": selection, "metrics": {}})
    (found,) = leaks([build_cell(None, "fedcgs", "fedcgs", math.inf, 0, findings=(images,))])
    assert harm_clause(found) == f"private images were rebuilt from raw features: {said}"


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (Harm(kind="pictures", of="record", count=42, total=48), "42 of 48 private images were rebuilt"),
        (Harm(kind="pictures", of="record", count=3, total=20, among=181), "3 of 181 private images were rebuilt"),
        (Harm(kind="pictures", of="record", count=48, total=48), "all 48 private images were rebuilt"),
        (Harm(kind="pictures", of="record", count=1, total=9), "1 of 9 private images was rebuilt"),
        (Harm(kind="pictures", of="record", count=1, total=1), "1 private image was rebuilt"),
        (Harm(kind="pictures", of="record", total=1, metric="misfit"), "1 image was computed"),
        (Harm(kind="pictures", of="record", total=2, metric="misfit"), "2 images were computed"),
    ],
)
def test_near_copies_are_counted_among_all_that_could_be_rebuilt(build_cell: Any, harm: Harm, said: str) -> None:
    images = HARMFUL["pictures"].model_copy(update={"harm": harm})
    (found,) = leaks([build_cell(None, "fedcgs", "fedcgs", math.inf, 0, findings=(images,))])
    assert harm_clause(found).startswith(f"{said} from ")
