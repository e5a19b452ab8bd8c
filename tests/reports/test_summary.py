"""The verdict strip says the worst first, in plain words."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fedassay.records.facts import Harm, Obstacle
from fedassay.records.record import CellRecord, Finding, Limit, Metric, RunRecord, TapeAnswer
from fedassay.reports.words.harm_words import row_words
from fedassay.reports.words.sentences import listed, open_clause
from fedassay.reports.words.summary import lead, search, strip
from fedassay.reports.words.verdicts import LOOKS, worst


def lines(record: RunRecord) -> dict[tuple[str, float], Any]:
    return {(line.group.label, line.group.asked.bare): line for line in strip(record)}


def of(*cells: CellRecord) -> RunRecord:
    return RunRecord(plan={}, environment={}, cells=cells)


def test_one_line_per_method_entry_and_epsilon(record: RunRecord) -> None:
    assert len(strip(record)) == len({(cell.label, cell.epsilon) for cell in record.cells}) == 12


def test_lines_in_plain_words(record: RunRecord) -> None:
    found = lines(record)
    raw = found["raw_features", math.inf]
    assert raw.verdict == "leak"
    assert raw.text.startswith(
        "private images were rebuilt from raw features: 300 images, SSIM 0.950 against 0.880 for the "
        "attacker's best look-alikes"
    )
    unsupported = found["fedlog", 1.0]
    assert unsupported.verdict == "unsupported"
    assert unsupported.text.startswith(
        "claims ε = 1 (one record added or removed), but clients send the fields counts and statistics "
        "without noise"
    )
    unsound = found["released", 0.5]
    assert unsound.verdict == "unsound"
    assert "claims ε = 0.5 (one record added or removed), but an attack shows at least 3.12" in unsound.text
    sound = found["dp", 10.0]
    assert sound.verdict == "sound"
    assert "guessed right in 1 % of cases without the messages is rebuilt in at most 41 % with them" in sound.text


def test_an_inconclusive_audit_is_never_said_to_have_found_nothing(record: RunRecord) -> None:
    line = lines(record)["fedcgs", 1.0]
    assert line.verdict == "inconclusive"
    assert "gives away exact features or records: the attack was not shown to work even on" in line.text
    assert "no leak" not in line.text


def test_many_lines_come_worst_first_and_few_as_planned(build_cell: Any) -> None:
    leak = Finding(audit="message", verdict="leak", reason="recovers 3 records.")
    fine = Finding(audit="message", verdict="no_leak_found", reason="nothing")
    cells = [
        build_cell(None, "fedcgs", "fedcgs", 1.0, 0, findings=(leak if i % 5 == 4 else fine,)).model_copy(
            update={"label": f"m{i}"}
        )
        for i in range(20)
    ]
    many = strip(of(*cells))
    assert [line.group.label for line in many[:5]] == ["m4", "m9", "m14", "m19", "m0"]
    assert [line.group.label for line in strip(of(*cells[:6]))] == [f"m{i}" for i in range(6)]


def test_the_worst_seed_gives_the_verdict_and_the_line_says_how_many(build_cell: Any) -> None:
    leak = Finding(audit="message", verdict="leak", reason="recovers 3 records.")
    fine = Finding(audit="message", verdict="no_leak_found", reason="nothing")
    (line,) = strip(
        of(
            build_cell(None, "fedcgs", "fedcgs", 1.0, 0, findings=(fine,)),
            build_cell(None, "fedcgs", "fedcgs", 1.0, 1, findings=(leak,)),
        )
    )
    assert line.verdict == "leak"
    assert line.text.startswith("the features of single records were recovered exactly")
    assert line.seeds == "1 of 2 seeds"


def test_a_claim_that_no_audit_judged_is_still_held_against_the_ledger(build_cell: Any) -> None:
    cell = build_cell(
        None, "fedcgs", "fedcgs", 1.0, 0, verdict="not_run", accounted=7.0, reason="no dp_claim audit"
    )
    (line,) = strip(of(cell))
    assert line.text.startswith("claims ε = 1 (one record added or removed), but what is sent adds up to 7.00")


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ((("messages", 1.0), ("share", 0.0072), ("share", 0.0104)), "of fewer than 1.04 % of the records may"),
        ((("messages", 1.0),), "no leak was found"),
        ((("records", 3.0), ("messages", 1.0)), "of fewer than 3 records may"),
        (
            (("share", 0.1), ("shift", 0.2)),
            "of a few records may have been missed, and of all where",
        ),
        ((("worst_record", 0.25),), "where a record is recognised in fewer than 25 % of the runs"),
    ],
)
def test_what_was_missed_is_by_the_weakest_limit(build_cell: Any, limits: Any, said: str) -> None:
    findings = tuple(
        Finding(
            audit="message",
            verdict="no_leak_found",
            reason="n",
            limit=Limit(metric=kind, value=value, n=9, shift_metric="SSIM"),
        )
        for kind, value in limits
    )
    (line,) = strip(of(build_cell(None, "fedcgs", "fedcgs", math.inf, 0, findings=findings)))
    assert line.verdict == "no_leak_found"
    assert "no leak was found" in line.text
    assert said in line.text


def test_silence_without_a_limit_is_no_answer(build_cell: Any) -> None:
    fine = Finding(audit="message", verdict="no_leak_found", reason="nothing")
    (line,) = strip(of(build_cell(None, "fedcgs", "fedcgs", math.inf, 0, findings=(fine,))))
    assert line.verdict == "inconclusive"
    assert "what the search for exact features or records would have missed is not known" in line.text


@pytest.mark.parametrize(
    ("adjacency", "known"), [("replace_one_same_label", True), ("replace_one", False), ("add_remove", False)]
)
def test_labels_that_the_guarantee_declares_public_are_nothing_to_miss(
    build_cell: Any, adjacency: str, known: bool
) -> None:
    counts = Finding(
        audit="message",
        verdict="no_leak_found",
        reason="labels are public",
        metrics={"total_variation": Metric(value=0.0, n=5)},
    )
    limit = Limit(metric="share", value=0.1, n=9)
    rest = Finding(audit="message", verdict="no_leak_found", reason="nothing", limit=limit)
    cell = build_cell(None, "fedpft", "fedpft", math.inf, 0, findings=(counts, rest))
    (line,) = strip(of(cell.model_copy(update={"adjacency": adjacency})))
    assert ("labels and attributes would have missed is not known" in line.text) is not known
    assert ("of fewer than 10 % of the records may" in line.text) is known
    assert line.verdict == ("no_leak_found" if known else "inconclusive")


def test_lead_counts_every_release(record: RunRecord) -> None:
    words = lead(record)
    assert words.startswith("Of 12 releases under audit, 1 makes a claim that is disproved, 5 leak,")
    assert lead(of()) == "No release was audited."


def test_order_of_verdicts() -> None:
    order = ["unsound", "leak", "unsupported", "inconclusive", "no_leak_found", "not_run"]
    ranks = [LOOKS[verdict].rank for verdict in order]  # type: ignore[index]
    assert ranks == sorted(ranks, reverse=True)
    assert worst([]) == "not_run"
    assert worst(["no_leak_found", "inconclusive"]) == "inconclusive"


def test_every_verdict_is_told_apart_without_colour() -> None:
    assert len({look.word for look in LOOKS.values()}) == len(LOOKS)
    by_tone: dict[str, set[str]] = {}
    for look in LOOKS.values():
        by_tone.setdefault(look.tone, set()).add(look.icon)
    icons = [icon for icons in by_tone.values() for icon in icons]
    assert len(icons) == len(set(icons)) == len(by_tone)


def test_lists() -> None:
    assert listed([]) == ""
    assert listed(["a", "b", "c"]) == "a, b and c"


@pytest.mark.parametrize(
    ("verdict", "status", "said"),
    [
        ("unsound", "failed", "but the messages hold no such noise in A"),
        ("unsupported", "not_asked", "but whether the noise in A was added could not be checked"),
    ],
)
def test_a_question_that_decides_is_what_the_line_says(
    build_cell: Any, verdict: str, status: str, said: str
) -> None:
    """What leaves may add up to the claim on paper, and still not be what was declared."""
    cell = build_cell(None, "fedcgs", "fedcgs", 1.0, 0)
    privacy = cell.privacy.model_copy(
        update={"claimed": 1.0, "accounted": 1.0, "observed": None, "verdict": verdict, "reason": "see the tape"}
    )
    answers = (TapeAnswer(question="noise", status=status, field="A", words="nobody reads this"),)
    (line,) = strip(of(cell.model_copy(update={"privacy": privacy, "tape": answers})))
    assert line.text.startswith(f"claims ε = 1 (one record added or removed), {said}")


def test_below_a_refuted_claim_nothing_comforts(build_cell: Any) -> None:
    fine = Finding(
        audit="message", verdict="no_leak_found", reason="n", limit=Limit(metric="share", value=0.01, n=100)
    )
    cell = build_cell(None, "fedcgs", "fedcgs", 1.0, 0, verdict="unsound", accounted=0.9, findings=(fine,))
    (line,) = strip(of(cell))
    assert line.clauses == ("claims ε = 1 (one record added or removed), but that is disproved",)


def test_who_took_part_is_said_once_by_the_best_attack(build_cell: Any) -> None:
    told = [
        Finding(
            audit="membership",
            verdict="leak",
            reason="r",
            metrics={"auc": Metric(value=area, n=40)},
            harm=Harm(kind="members", of="record", metric="auc", value=area, mechanism=mechanism),
        )
        for mechanism, area in (("membership", 0.75), ("gallery", 1.0), ("surrogate", 1.0))
    ]
    (line,) = strip(of(build_cell(None, "fedpft", "fedpft", math.inf, 0, findings=tuple(told))))
    assert [clause for clause in line.clauses if "took part" in clause] == [
        "an attacker tells which records took part better than by chance (AUC 1.00, 0.5 is guessing)"
    ]


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        ({"audit": "inversion", "source": "strongest_direction"}, "inversion of the gradients"),
        (
            {"audit": "membership", "source": "informed", "selection": "real_records"},
            "membership of messages whose other records are known (real records)",
        ),
        ({"audit": "dp_claim"}, "dp claim"),
    ],
)
def test_a_search_is_named_in_plain_words(finding: dict[str, str], words: str) -> None:
    assert search(Finding(verdict="inconclusive", reason="x", **finding)) == words


@pytest.mark.parametrize("row", ["layer_inputs", "from layer_inputs", "strongest_direction", "gradient_matching"])
def test_rows_of_pictures_name_no_result_of_an_attack(row: str) -> None:
    assert not {"layer", "inputs", "strongest", "direction", "gradient_matching"} & set(row_words(row).split())
    assert row_words("private image") == "private image"


@pytest.mark.parametrize(
    ("source", "verb"),
    [("model", "the model gives"), ("raw", "raw features give"), ("gram_factorization", "factorization, gives")],
)
def test_what_is_one_thing_gives_and_what_are_many_give(source: str, verb: str) -> None:
    finding = Finding(audit="membership", source=source, verdict="inconclusive", reason="x")
    assert f"{verb} away signs of membership" in open_clause(finding, Obstacle(kind="control_missed"))
