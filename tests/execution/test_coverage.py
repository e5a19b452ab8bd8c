"""Which attacks apply follows from what is seen and what they declare; what they said, from findings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from fedassay.contracts.facts import AttackFacts
from fedassay.exchange.message import Message, MessageField
from fedassay.exchange.release import exact
from fedassay.exchange.view import ThreatModel, View
from fedassay.execution.coverage import coverage, seen_kinds
from fedassay.plan.next_run import NextRun
from fedassay.records.record import Controls, Finding, NegativeControl, PositiveControl


def view_of(*kinds: str, sender: str = "client/0") -> View:
    fields = {kind: MessageField(np.ones((1, 3)), kind, exact()) for kind in kinds}  # type: ignore[arg-type]
    return View((Message(0, sender, "server", fields),), 2, ThreatModel())


def test_an_alternative_needs_all_of_its_parts() -> None:
    facts = AttackFacts(gives=("vectors",), reads=("features", ("class_sums", "class_counts")))
    assert facts.applies({"features"})
    assert facts.applies({"class_sums", "class_counts", "labels"})
    assert not facts.applies({"class_sums"})
    assert not AttackFacts(gives=("vectors",)).applies({"features"})


def test_what_clients_send_and_weights_that_anybody_sends_are_seen() -> None:
    assert seen_kinds(view_of("features", "labels")) == {"features", "labels"}
    assert seen_kinds(view_of("class_means", "parameters", sender="server")) == {"parameters"}


def test_attacks_that_apply_and_are_not_in_the_plan_are_named_with_what_would_decide() -> None:
    rows = {row.attack: row for row in coverage(view_of("class_counts"), [], attacks=(), audits=())}
    assert set(rows) == {"label_distribution", "message_algebra"}
    assert {row.status for row in rows.values()} == {"not_run"}
    assert rows["label_distribution"].would_decide == "add label_distribution to attacks and message to audits"
    assert "membership" in {row.attack for row in coverage(view_of("features"), [], attacks=(), audits=())}
    assert coverage(view_of("other"), [], attacks=(), audits=()) == ()


def test_what_only_a_malicious_server_sends_is_untested_of_no_honest_one() -> None:
    seen = view_of("class_sums", "class_counts")
    assert "trapped_sums" not in {row.attack for row in coverage(seen, [], attacks=(), audits=())}
    trapped = View(seen.messages, 2, ThreatModel(server="malicious"))
    assert "trapped_sums" in {row.attack for row in coverage(trapped, [], attacks=(), audits=())}


def test_an_attack_that_found_nothing_to_read_does_not_apply() -> None:
    """Second moments may be expected of covariances, and only full ones hold any."""
    seen = view_of("mixture_means", "mixture_covariances", "class_counts")
    assert "gram_factorization" in {row.attack for row in coverage(seen, [], attacks=(), audits=())}
    rows = coverage(seen, [], attacks=(), audits=(), idle={"gram_factorization"})
    assert "gram_factorization" not in {row.attack for row in rows}


def test_attacks_on_the_backbone_do_not_apply_to_features_of_other_networks() -> None:
    """Of the view's width, or with one constant beside, vectors may be the backbone's; captures may lack it."""
    seen = view_of("class_means")
    inverts = {"feature_inversion", "feature_diffusion"}

    def named(width: int | None, another: NextRun | None) -> dict[str, str]:
        rows = coverage(seen, [], attacks=(), audits=(), another=another, width=width)
        return {row.attack: row.reason for row in rows if row.attack in inverts}

    run_here = cast(NextRun, SimpleNamespace(unmet=lambda facts: [], seconds=lambda parts: None))
    assert set(named(3, run_here)) == set(named(2, run_here)) == set(named(None, run_here)) == inverts
    assert named(9, run_here) == {}
    assert set(named(9, None).values()) == {
        "the vectors that are sent have width 3, and the backbone's features 9"
    }


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        (["leak", "inconclusive"], "conclusive"),
        (["no_leak_found", "no_leak_found"], "conclusive"),
        (["no_leak_found", "not_run"], "conclusive"),
        (["no_leak_found", "inconclusive"], "inconclusive"),
        (["not_run"], "not_run"),
    ],
)
def test_silence_is_an_answer_where_all_of_it_is(verdicts: list[str], status: str) -> None:
    class Message:
        name = "message"

    positive = PositiveControl(release="r", caught=False)
    controls = Controls(positive=positive, negative=NegativeControl(release="r", flagged=False))
    findings = [
        Finding(audit="message", attack="label_distribution", verdict=verdict, reason="why", controls=controls)  # type: ignore[arg-type]
        for verdict in verdicts
    ]
    rows = coverage(view_of("class_counts"), findings, attacks=(), audits=(Message(),))  # type: ignore[arg-type]
    (row,) = (row for row in rows if row.attack == "label_distribution")
    assert row.status == status
    assert bool(row.reason) == (status != "conclusive")
    assert bool(row.would_decide) == (status == "inconclusive")
