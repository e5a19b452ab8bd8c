"""Evidence is about one release; every line of it stands in the record, or is left to a person."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from fedassay.contracts.registry import every_audit, judges_the_claim
from fedassay.records.facts import HARMS, Harm, Obstacle
from fedassay.records.record import Coverage, Finding, Limit, Metric, RunRecord
from fedassay.reports import write_report
from fedassay.reports.answer.answer import answer
from fedassay.reports.evidence.form import form
from fedassay.reports.evidence.lines import NOT_TESTED, PERSON, Line
from fedassay.reports.evidence.page import ATTRIBUTE, pages
from fedassay.reports.evidence.registry import entries
from fedassay.reports.evidence.release import Release, release_of
from fedassay.reports.evidence.risk import risks
from fedassay.reports.evidence.verify import is_evidence, verify_evidence
from fedassay.reports.gate.policy import Policy
from fedassay.reports.words.groups import groups
from fedassay.reports.words.harms import kind_sought
from fedassay.reports.words.sentences import sees_little
from fedassay.reports.words.untested import not_sought, not_tested
from fedassay.support.errors import DataError, PlanError

STRICT = Policy(name="ours", maximum={"accounted": 3.0})


def resolved(document: Any, pointer: str) -> Any:
    """What a JSON pointer points at.

    Raises:
        KeyError: Nothing stands there.
    """
    for part in _parts(pointer):
        if isinstance(document, list):
            if not part.isdigit() or int(part) >= len(document):
                raise KeyError(pointer)
            document = document[int(part)]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        else:
            raise KeyError(pointer)
    return document


def _parts(pointer: str) -> Iterator[str]:
    for part in pointer.split("/")[1:]:
        yield part.replace("~1", "/").replace("~0", "~")


def every(record: RunRecord) -> list[Release]:
    return [release_of(record, None, group.label, group.asked.bare) for group in groups(record)]


def lines(release: Release) -> list[Line]:
    return [*pages(release).tested, *(line for source in form(release) for line in source.lines)]


def without(release: Release, audit: str) -> Release:
    """The same release of a run whose plan lacked an audit."""
    cells = tuple(
        cell.model_copy(update={"findings": tuple(f for f in cell.findings if f.audit != audit)})
        for cell in release.record.cells
    )
    record = release.record.model_copy(update={"cells": cells})
    group = release.option.group
    return release_of(record, release.policy, group.label, group.asked.bare)


def _traced(value: Any) -> list[dict[str, Any]]:
    """Every value of a registry entry with its places."""
    if isinstance(value, dict) and set(value) == {"value", "record"}:
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [found for part in parts for found in _traced(part)]


def _untraced(value: Any) -> list[Any]:
    """Whatever of a registry entry stands outside a value with its places."""
    if isinstance(value, dict) and set(value) == {"value", "record"}:
        return []
    if isinstance(value, dict):
        return [found for part in value.values() for found in _untraced(part)]
    return [found for part in value for found in _untraced(part)] if isinstance(value, list) else [value]


def test_nothing_in_the_registry_is_said_without_its_place_or_a_person(record: RunRecord) -> None:
    assert [found for each in every(record) for entry in entries(each) for found in _untraced(entry)] == []


def test_every_line_stands_in_the_record_or_is_for_a_person_or_was_not_tested(record: RunRecord) -> None:
    document = json.loads(record.to_json())
    for release in every(record):
        own = {number for number, _ in release.cells}
        for line in lines(release):
            # What was not tested has a place where an attack was tried in vain, or left out.
            assert line.status == "not tested" or bool(line.pointers) == (line.status != "for a person"), line
            assert (line.found is None) <= (line.shown == line.status)
            for pointer in line.pointers:
                resolved(document, pointer)
                if pointer.startswith("/cells/"):
                    assert int(pointer.split("/")[2]) in own
        for risk in risks(release):
            assert risk.pointers
            assert all(resolved(document, pointer)["verdict"] == "leak" for pointer in risk.pointers)


@pytest.mark.long
def test_every_sentence_is_short_and_whole(record: RunRecord) -> None:
    for release in every(record):
        for line in lines(release):
            assert line.answer.endswith("."), line
            if line.status == "for a person":
                assert all(len(each.split()) <= 30 for each in re.split(r"(?<=\.) ", line.answer)), line


@pytest.mark.long
@pytest.mark.parametrize("audit", [name for name in every_audit() if not judges_the_claim(name)])
def test_an_audit_that_is_removed_leaves_rows_that_say_not_tested(record: RunRecord, audit: str) -> None:
    removed = 0
    for release in every(record):
        bare = without(release, audit)
        kept = [finding for _, finding in bare.findings()]
        for before, after in zip(pages(release).tested, pages(bare).tested, strict=True):
            assert before.question == after.question
        sought = {kind_sought(f) for _, f in release.findings() if f.verdict != "not_run"}
        left = {kind_sought(f) for f in kept if f.verdict != "not_run"}
        said = dict(zip(HARMS, pages(bare).tested, strict=False))
        for kind in sought - left:
            assert said[kind].status == "not tested"
            removed += 1
    present = {finding.audit for cell in record.cells for finding in cell.findings}
    assert removed or audit not in present or audit in ("inversion", "memorization", "reconstruction")


def test_a_run_without_audits_answers_nothing_that_an_attack_would(record: RunRecord) -> None:
    bare = record.model_copy(
        update={"cells": tuple(cell.model_copy(update={"findings": ()}) for cell in record.cells)}
    )
    for release in every(bare):
        asked = [line for line in lines(release) if re.search("possible[?]|Can a|list of cand", line.question)]
        assert len(asked) == 9
        assert {line.status for line in asked} == {"not tested"}
        risk = next(line for line in lines(release) if "risks to the people" in line.question)
        assert risk.status == "not tested"


def test_the_rows_of_attributes_are_of_the_audit_that_tests_them(build_cell: Any) -> None:
    """Of a run whose audit of attributes is removed they are not tested, whatever is known of label histograms."""
    histograms = Finding(
        audit="message", source="label_histograms", verdict="no_leak_found", reason="x",
        metrics={"senders_told": Metric(value=0.0, n=5)},
    )  # fmt: skip
    harm = Harm(
        kind="attributes", of="record", total=90, metric="attribute_advantage", value=0.25, mechanism="messages"
    )
    own = Finding(
        audit="attribute_inference", attack="attribute_likelihood", source="messages", selection="sex",
        verdict="leak", reason="x", harm=harm,
    )  # fmt: skip
    cell = build_cell(None, "fedcgs", "fedcgs", math.inf, 0).model_copy(update={"findings": (histograms, own)})
    release = release_of(RunRecord(plan={"name": "t"}, environment={}, cells=(cell,)))
    rows = ("Is attribute inference possible?", "Can an attribute of a person be deduced?", ATTRIBUTE)
    for question in rows:
        (line,) = [line for line in lines(release) if line.question == question]
        assert line.status == "answered"
        assert "25 points" in line.answer
        assert line.pointers == ("/cells/0/findings/1",)
        (bare,) = [line for line in lines(without(release, "attribute_inference")) if line.question == question]
        assert bare.status == "not tested"
    assert [risk.level for risk in risks(release)] == ["serious"]
    (takes,) = [risk.takes for risk in risks(release)]
    assert takes == "a copy of each record that is asked about"


ROWS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    (
        "membership",
        {"attack": "membership", "source": "model", "metrics": {"auc": Metric(value=0.8, n=90)}},
        ("Likely members", "Is membership inference possible?", "Can a record that somebody holds be linked"),
    ),
    (
        "membership",
        {"attack": "gallery", "source": "messages", "metrics": {"records_named": Metric(value=7.0, n=90)}},
        ("Persons named as members", "Is membership inference possible?", "Could an intruder with a list"),
    ),
    (
        "reconstruction",
        {"attack": "feature_diffusion", "source": "raw", "metrics": {"ssim": Metric(value=0.9, n=90)}},
        ("Images of people rebuilt", "Is reconstruction of training data possible?", "Can a person's record be"),
    ),
    (
        "inversion",
        {"attack": "gradient_inversion", "source": "gradient", "metrics": {"psnr": Metric(value=40.0, n=9)}},
        (
            "Images of people rebuilt",
            "Is model inversion possible?",
            "Is reconstruction of training data possible?",
        ),
    ),
    (
        "memorization",
        {"source": "generated", "metrics": {"under_threshold": Metric(value=3.0, n=9)}},
        ("Images of people rebuilt", "Is regurgitation of training data possible?"),
    ),
    (
        "message",
        {
            "attack": "gram_factorization",
            "source": "raw",
            "metrics": {"fraction_recovered": Metric(value=0.5, n=90)},
        },
        ("Exact features or records", "Is reconstruction of training data possible?"),
    ),
    (
        "message",
        {"attack": "message_algebra", "source": "rank", "metrics": {"rules_met": Metric(value=1.0, n=5)}},
        ("How many records there are", "What did adversarial testing find?"),
    ),
    (
        "message",
        {"attack": "label_distribution", "source": "x", "metrics": {"senders_told": Metric(value=5.0, n=5)}},
        ("Labels and traits of clients",),
    ),
]
"""An audit, a finding of it, and the questions that it alone answers."""


@pytest.mark.parametrize(("audit", "found", "questions"), ROWS)
@pytest.mark.parametrize("verdict", ["leak", "no_leak_found", "inconclusive"])
def test_without_its_audit_a_row_is_not_tested(
    build_cell: Any, audit: str, found: dict[str, Any], questions: tuple[str, ...], verdict: Any
) -> None:
    named = Harm(kind="named", of="record", count=7, total=90, mechanism="messages")
    harm = named if verdict == "leak" and found.get("attack") == "gallery" else None
    finding = Finding(audit=audit, verdict=verdict, reason="x", harm=harm, **found)
    cell = build_cell(None, "fedcgs", "fedcgs", math.inf, 0).model_copy(update={"findings": (finding,)})
    release = release_of(RunRecord(plan={"name": "t"}, environment={}, cells=(cell,)))
    bare = without(release, audit)
    for question in questions:
        (line,) = [line for line in lines(release) if line.question.startswith(question)]
        assert line.pointers == ("/cells/0/findings/0",), line
        expected = {"leak": "found", "no_leak_found": "nothing found", "inconclusive": "not decided"}
        assert line.shown == expected[verdict], line
        (gone,) = [line for line in lines(bare) if line.question.startswith(question)]
        assert (gone.shown, gone.pointers) == ("not tested", ()), gone


def test_attacks_that_apply_and_were_left_out_are_named_in_their_rows(build_cell: Any) -> None:
    left_out = [
        Coverage(attack=name, status="not_run", reason="x")
        for name in ("feature_diffusion", "gallery", "membership")
    ]
    cell = build_cell(None, "fedcgs", "fedcgs", math.inf, 0).model_copy(
        update={"findings": (), "coverage": tuple(left_out)}
    )
    found = pages(release_of(RunRecord(plan={"name": "t"}, environment={}, cells=(cell,))))
    said = {line.question: line for line in found.tested}
    for place, question, name in (
        (0, "Images of people rebuilt", "feature_diffusion"),
        (1, "Persons named as members", "gallery"),
        (2, "Likely members", "membership"),
    ):
        assert said[question].answer == f"The attack {name} applies, but was not part of the run."
        assert said[question].pointers == (f"/cells/0/coverage/{place}",)
    assert said["How many records there are"].answer == NOT_TESTED
    assert found.further == ""


def test_what_could_not_be_attacked_says_so(build_cell: Any) -> None:
    finding = Finding(
        audit="inversion", attack="gradient_inversion", verdict="not_run", reason="x",
        obstacle=Obstacle(kind="not_possible"),
    )  # fmt: skip
    cell = build_cell(None, "fedcgs", "fedcgs", math.inf, 0).model_copy(update={"findings": (finding,)})
    found = pages(release_of(RunRecord(plan={"name": "t"}, environment={}, cells=(cell,))))
    line = next(line for line in found.tested if line.question == "Images of people rebuilt")
    assert (line.status, line.pointers) == ("not tested", ("/cells/0/findings/0",))
    assert line.answer == "No attack could be made: what it needs is not sent, or not at hand."


def test_what_nobody_knows_of_a_captured_system_is_for_a_person(build_cell: Any) -> None:
    """Its noise may come from a seed, and no network was given: the messages show neither."""
    cell = build_cell(None, "fedcgs", "fedcgs", 1.0, 0).model_copy(update={"seed": None})
    threat = {"view": "per_client", "backbone": "white_box", "attacker_share": 1.0, "rounds": "all"}
    for plan, status, network in (
        ({"name": "t", "threat": threat}, "answered", True),
        ({"name": "t", "threat": threat, "transcript": {}}, "for a person", False),
    ):
        release = release_of(RunRecord(plan=plan, environment={}, cells=(cell,)))
        secret = next(line for line in lines(release) if line.question == "Is the noise secret?")
        assert secret.status == status
        seen = next(line for line in lines(release) if line.question == "Who is assumed to see what?")
        assert seen.answer.startswith("The server, or whoever reads what each client sends, in every round.")
        assert ("network" in seen.answer) == network


@pytest.mark.parametrize(
    ("threat", "answer"),
    [
        (
            {"view": "aggregate", "backbone": "black_box", "rounds": "last"},
            "sums over all clients.*last round.*query",
        ),
        (
            {"view": "broadcast", "backbone": "white_box", "rounds": 2},
            "what the server sends out.*round 2.*has the",
        ),
        ({"view": "of another version"}, "Say who can read"),
        (None, "Say who can read"),
    ],
)
def test_who_sees_what_is_said_in_words(build_cell: Any, threat: dict[str, Any] | None, answer: str) -> None:
    cell = build_cell(None, "fedcgs", "fedcgs", math.inf, 0)
    release = release_of(RunRecord(plan={"name": "t", "threat": threat}, environment={}, cells=(cell,)))
    line = next(line for line in lines(release) if line.question == "Who is assumed to see what?")
    assert re.search(answer, line.answer)
    assert "_" not in line.answer


@pytest.mark.long
def test_the_second_page_says_nothing_that_the_first_says(record: RunRecord) -> None:
    for release in every(record):
        found = pages(release)
        every_mark = (
            "found",
            "sent openly",
            "not decided",
            "not tested",
            "bounded by the claim",
            "nothing found",
        )
        order = [every_mark.index(row.shown) for row in found.worst_first]
        assert order == sorted(order)
        assert len(found.worst_first) == len(found.tested) == 7
        for source in found.sources:
            for line in source.lines:
                if line.status in ("answered", "not decided"):
                    assert all(row.answer not in found.brief(line) for row in found.tested)


def test_what_was_tried_without_an_answer_is_not_called_answered(build_cell: Any) -> None:
    finding = Finding(audit="membership", source="messages", verdict="inconclusive", reason="x")
    cell = build_cell(None, "fedcgs", "fedcgs", math.inf, 0).model_copy(update={"findings": (finding,)})
    release = release_of(RunRecord(plan={"name": "t"}, environment={}, cells=(cell,)))
    line = next(line for line in lines(release) if line.question == "Is membership inference possible?")
    assert line.status == "not decided"
    assert line.answer.startswith("We cannot say yet")


def test_a_worse_leak_answers_what_a_lesser_one_would(build_cell: Any) -> None:
    """Whoever can take records out exactly can link one that they hold."""
    finding = Finding(audit="message", attack="message_algebra", source="class_sums", verdict="leak", reason="x")
    cell = build_cell(None, "fedcgs", "fedcgs", math.inf, 0).model_copy(update={"findings": (finding,)})
    release = release_of(RunRecord(plan={"name": "t"}, environment={}, cells=(cell,)))
    linked = next(line for line in lines(release) if line.clause == "linkability")
    assert linked.status == "answered"
    membership = next(line for line in lines(release) if line.question == "Is membership inference possible?")
    assert membership.status == "not tested"


def test_the_motivated_intruder_s_line_has_the_numbers_of_a_gallery(build_cell: Any) -> None:
    def line(**metrics: Metric) -> Line:
        finding = Finding(
            audit="membership", attack="gallery", source="messages", verdict="leak", reason="x", metrics=metrics
        )
        cell = build_cell(None, "fedcgs", "fedcgs", math.inf, 0).model_copy(update={"findings": (finding,)})
        release = release_of(RunRecord(plan={"name": "t"}, environment={}, cells=(cell,)))
        return next(line for line in lines(release) if "list of candidates" in line.question)

    told = line(
        records_named=Metric(value=200.0, n=1000),
        wrongly_named=Metric(value=0.01, n=200),
        auc=Metric(value=0.91),
        auc_allowed=Metric(value=0.993),
    )
    assert told.status == "answered"
    assert told.answer.endswith(
        "Of 1,000 answers on candidates 200 name one, 2 of these wrongly; the AUC is 0.910 where the noise allows "
        "0.993."
    )
    assert line(records_named=Metric(value=0.0, n=40)).answer.endswith("Of 40 answers on candidates 0 name one.")
    assert line().answer.endswith("The number of named candidates was not measured.")


@pytest.mark.long
def test_fields_that_a_guarantee_declares_public_are_named(record: RunRecord) -> None:
    for release in every(record):
        line = next(line for line in lines(release) if "sent without noise" in line.question)
        exact = {
            row.field.replace("_", " ")
            for _, cell in release.cells
            for row in cell.ledger
            if row.exact and row.direction == "up" and row.kind != "public"
        }
        assert (line.answer == "Nothing is.") == (not exact)
        assert sum(name.lower() in line.answer.lower() for name in exact) >= min(len(exact), 6)


@pytest.mark.long
def test_the_levels_of_risk_follow_the_ranked_harms(record: RunRecord) -> None:
    order = ("severe", "serious", "limited")
    seen = set()
    for release in every(record):
        levels = [order.index(risk.level) for risk in risks(release)]
        assert levels == sorted(levels)
        seen |= {risk.level for risk in risks(release)}
        line = next(line for line in lines(release) if "risks to the people" in line.question)
        if risks(release):
            assert line.answer.startswith(risks(release)[0].level.capitalize())
            assert risks(release)[0].found in line.answer
    assert {"severe", "serious"} <= seen


def test_registry_entries_are_of_private_releases_alone_and_traced(record: RunRecord) -> None:
    document = json.loads(record.to_json())
    for release in every(record):
        found = entries(release)
        private = math.isfinite(release.option.group.asked.bare)
        assert len(found) == (len(release.cells) if private else 0)
        for entry in found:
            values = _traced(entry)
            assert len(values) > 15
            for value in values:
                assert (value["value"] == PERSON) == (not value["record"])
                for pointer in value["record"]:
                    resolved(document, pointer)
            claimed = entry["parameters"]["epsilon_claimed"]
            assert claimed["value"] == resolved(document, claimed["record"][0])


def test_several_releases_need_a_choice(record: RunRecord, tmp_path: Path) -> None:
    impossible = Policy(name="impossible", maximum={"accounted": 1e-6})
    with pytest.raises(PlanError, match="--method and --epsilon; the run has raw_features without noise"):
        release_of(record, impossible)
    with pytest.raises(PlanError, match="method"):
        release_of(record, None, "nobody", None)
    with pytest.raises(PlanError, match="md is about the whole run"):
        write_report(record, tmp_path, "md", None, None, "fedcgs", None)


def test_the_answer_and_the_statement_are_of_the_release_and_its_policy(record: RunRecord, tmp_path: Path) -> None:
    folder = write_report(record, tmp_path, "evidence", None, STRICT, "fedcgs", 10.0)
    said = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    assert said == json.loads(json.dumps(answer(record, STRICT, "fedcgs", 10.0).as_dict()))
    predicate = json.loads((folder / "statement.json").read_text(encoding="utf-8"))["predicate"]
    assert predicate["decision"]["answer"] == said["answer"]
    assert predicate["decision"]["policy"] == {"name": "ours", "sha256": STRICT.digest}
    assert predicate["decision"]["release"]["label"] == "fedcgs"
    assert predicate["decision"]["release"]["epsilon"] == 10.0
    assert predicate["plan"]


def test_the_folder_holds_what_its_digests_say(record: RunRecord, tmp_path: Path) -> None:
    folder = write_report(record, tmp_path, "evidence", None, None, "fedcgs", 1.0)
    assert folder == tmp_path / "evidence"
    sums = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in sums)}
    names = {"record.json", "registry.json", "crosswalk.md", "answer.json", "policy.json", "evidence.html"}
    assert set(listed) == names
    statement = json.loads((folder / "statement.json").read_text(encoding="utf-8"))
    for subject in statement["subject"]:
        content = (folder / subject["name"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == subject["digest"]["sha256"] == listed[subject["name"]]
    assert (folder / "record.json").read_text(encoding="utf-8") == record.to_json()


def _consistent(folder: Path) -> None:
    """Write the digests of an edited folder again, as a forger would."""
    statement = json.loads((folder / "statement.json").read_text(encoding="utf-8"))
    for subject in statement["subject"]:
        subject["digest"]["sha256"] = hashlib.sha256((folder / subject["name"]).read_bytes()).hexdigest()
    (folder / "statement.json").write_text(json.dumps(statement), encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize("resealed", [False, True])
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("evidence.html", "No: ", "Yes: "),
        ("crosswalk.md", "not tested", "answered"),
        ("answer.json", '"answer": "no"', '"answer": "yes"'),
        ("policy.json", '"accounted": 3.0', '"accounted": 30.0'),
        ("record.json", '"verdict": "leak"', '"verdict": "no_leak_found"'),
        ("statement.json", '"answer": "no"', '"answer": "yes"'),
        ("statement.json", '"epsilon": 10.0', '"epsilon": 1.0'),
    ],
)
def test_an_edited_folder_is_refused(
    record: RunRecord, tmp_path: Path, name: str, before: str, after: str, resealed: bool
) -> None:
    folder = write_report(record, tmp_path, "evidence", None, STRICT, "fedcgs", 10.0)
    assert is_evidence(folder)
    assert verify_evidence(folder).problems == ()
    text = (folder / name).read_text(encoding="utf-8")
    assert before in text
    (folder / name).write_text(text.replace(before, after), encoding="utf-8")
    if resealed:
        _consistent(folder)
    try:
        assert verify_evidence(folder).problems
    except DataError:
        assert name == "record.json"


def test_a_folder_without_its_statement_or_signature_is_refused(record: RunRecord, tmp_path: Path) -> None:
    folder = write_report(record, tmp_path, "evidence", None, STRICT, "fedcgs", 10.0)
    (folder / "statement.json").unlink()
    assert "statement.json is not there" in verify_evidence(folder).problems


OFFICIAL = ("eur-lex.europa.eu", "edpb.europa.eu", "csrc.nist.gov", "www.iso.org", "ico.org.uk")
"""Where the publishers of the sources publish."""


@pytest.mark.long
def test_a_source_is_its_publisher_s_own_page_or_the_document_alone(record: RunRecord) -> None:
    for release in every(record):
        for source in form(release):
            assert not source.read or urlparse(source.read).hostname.endswith(OFFICIAL), source.name  # type: ignore[union-attr]


@pytest.mark.long
def test_an_impact_assessment_asks_what_article_35_asks(record: RunRecord) -> None:
    """Advice, people, recipients, severity, likelihood, residual risk, views and review: USERS ask for each."""
    for release in every(record):
        impact = form(release)[0]
        assert {line.clause for line in impact.lines} == {
            *("(2)", "(9)", "(11)"),
            *(f"(7)({letter})" for letter in "abcd"),
        }
        asked = {line.question: line for line in impact.lines}
        people, likely = asked["How many people's data are they?"], asked["How likely are they?"]
        remains = asked["Which risk remains after these measures?"]
        assert people.status == ("for a person" if release.captured else "answered")
        assert remains.status in ("answered", "not tested")
        found = risks(release)
        assert (likely.found is True) == bool(found)
        if found:
            assert likely.answer.lower().startswith(found[0].likelihood)
            assert found[0].found in remains.answer
        if (unsought := not_tested(not_sought(release.option.group.cells))) and not found:
            assert unsought in remains.answer
            assert remains.status == "not tested"


def test_only_an_artificial_worst_record_makes_a_harm_conceivable(build_cell: Any) -> None:
    levels = {}
    for of in ("record", "worst_neighbours"):
        harm = Harm(kind="members", of=of, metric="auc", value=0.9)
        leak = Finding(audit="membership", attack="membership", verdict="leak", reason="told", harm=harm)
        cell = build_cell(None, "fedcgs", "fedcgs", math.inf, 0).model_copy(update={"findings": (leak,)})
        run = RunRecord(plan={"name": "t"}, environment={}, cells=(cell,))
        levels[of] = [(risk.level, risk.likelihood) for risk in risks(release_of(run))]
    assert levels == {"record": [("serious", "shown")], "worst_neighbours": [("limited", "conceivable")]}


@pytest.mark.long
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium on this machine")
def test_every_release_is_printed_on_a_page_to_sign_and_two_of_the_form(record: RunRecord, tmp_path: Path) -> None:
    release = max(every(record), key=lambda each: sum(len(line.answer) for line in lines(each)))
    group = release.option.group
    folder = write_report(record, tmp_path, "evidence", None, None, group.label, group.asked.bare)
    page = (folder / "evidence.html").read_text(encoding="utf-8")
    alone = tmp_path / "first.html"
    alone.write_text(page[: page.index('<section class="form">')], encoding="utf-8")
    assert _printed(alone, tmp_path) == 1
    assert _printed(folder / "evidence.html", tmp_path) == 3


def _printed(page: Path, folder: Path) -> int:
    """On how many sheets Chromium prints a page."""
    printed = folder / "printed.pdf"
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer")
    subprocess.run(
        ["chromium", *flags, f"--user-data-dir={folder / 'profile'}", f"--print-to-pdf={printed}", page.as_uri()],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return len(re.findall(rb"/Type\s*/Page[^s]", printed.read_bytes()))


@pytest.mark.parametrize("pointer", ["/cells/99", "/nothing", "/cells/x", "/plan/name/deeper"])
def test_a_pointer_to_nothing_is_an_error(record: RunRecord, pointer: str) -> None:
    with pytest.raises(KeyError):
        resolved(json.loads(record.to_json()), pointer)


@pytest.mark.parametrize("of", ["record", "training_record", "person", "client", "message"])
def test_one_half_of_those_asked_or_more_is_not_decided(of: str) -> None:
    """What counts is the number that is stated: fewer than 3 of 5 is 3 of 5, whatever share it was made of."""

    def little(value: float, n: int, metric: str = "share") -> bool:
        limit = Limit(metric=metric, value=value, n=n, of=of)  # type: ignore[arg-type]
        return sees_little(Finding(audit="message", verdict="no_leak_found", reason="why", limit=limit))

    assert little(0.451, 5)
    assert little(0.776, 2)
    assert not little(0.39, 5)
    assert not little(0.2, 2), "the first one would have been found"
    assert not little(0.45, 400)
    assert little(0.5, 400)
    assert little(3, 5, "messages")
    assert not little(2, 5, "messages")
    assert not little(1, 2, "messages")
