"""Properties of whole clients: told where a message shows them, by whoever knows none of the records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from attacked import by_ratio
from contexts import with_runs

from fedassay.audits.membership.audit import MembershipAudit
from fedassay.audits.membership.clients import allowed_of_client, property_finding
from fedassay.audits.membership.properties import Pool, Property, property_of
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.contracts.method import Method, MethodInput
from fedassay.methods.closed_forms.fedncm import FedNCM
from fedassay.methods.closed_forms.one_shot_ridge import OneShotRidge
from fedassay.support.errors import NotRunError

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]


@pytest.fixture
def make(make_task: MakeTask, make_context: MakeContext) -> Callable[..., AttackedContext]:
    def made(
        epsilon: float, *, method: Method | None = None, unit: str = "client", adjacency: str = "replace_one"
    ) -> AttackedContext:
        task = make_task(clients=3, records=60, epsilon=epsilon, adjacency=adjacency)
        task = replace(task, privacy=task.privacy.model_copy(update={"unit": unit}))
        return by_ratio(make_context(task, method or FedNCM(), bounds=20))

    return made


Make = Callable[..., AttackedContext]


def test_clients_of_either_kind_differ_in_the_class_alone(make: Make) -> None:
    asked = property_of(make(1.0), 2, None, 0.3)
    assert asked.special == (6, 6)
    for pool in (asked.tested, asked.known):
        with_it, without = (
            pool.client("client/0", 20, 6, held, np.random.default_rng(0)) for held in (True, False)
        )
        assert (with_it.labels == asked.label).sum() == 6
        assert (without.labels == asked.label).sum() == 0
        assert len(with_it) == len(without) == 20
        assert with_it.among(without).sum() == 14
    context = make(1.0)
    assert not asked.tested.inside.among(*context.data.clients).any()
    assert not asked.known.inside.among(asked.tested.inside).any()


@pytest.mark.parametrize("method", [FedNCM(), OneShotRidge()], ids=["counts are sent", "no counts are sent"])
def test_a_property_is_told_from_messages_without_noise(make: Make, method: Method) -> None:
    context, loud = make(0.05, method=method), make(np.inf, method=method)
    context = with_runs(context, run_on=loud.method.run_on)
    found = property_finding(context, property_of(context, 3, None, 0.5), 80)
    assert found.verdict == "leak", found.reason
    # What a client's records are like, which says nothing of who takes part.
    assert found.harm is not None
    assert found.harm.kind == "attributes"
    assert found.metrics["auc_swaps"].low > 0.9  # type: ignore[operator]
    assert found.metrics["observed"].value > 0.05  # type: ignore[operator]
    assert found.controls.positive is not None
    assert found.controls.positive.caught
    assert found.controls.negative is not None
    assert not found.controls.negative.flagged


def test_honest_noise_is_not_flagged(make: Make) -> None:
    context = make(1.0)
    found = property_finding(context, property_of(context, 3, None, 0.5), 120)
    assert found.verdict == "no_leak_found", found.reason
    assert found.limit is not None
    assert found.metrics["observed"].value <= 1.0  # type: ignore[operator]


def test_where_the_control_is_not_told_silence_is_inconclusive(make: Make) -> None:
    """The method's own release without privacy says nothing of the property either."""
    context = make(1.0)
    quiet = make(0.01)
    context = with_runs(context, run_nonprivate=quiet.method.run_on)
    found = property_finding(context, property_of(context, 3, None, 0.5), 60)
    assert found.verdict == "inconclusive", found.reason


def test_a_property_that_nobody_has_is_not_told(make: Make) -> None:
    """Both kinds of clients are made of the same records: exact messages show nothing."""
    context, flagged, areas = make(np.inf), 0, []
    asked = property_of(context, 3, None, 0.5)
    for seed in range(12):
        order = np.random.default_rng(seed).permutation(len(asked.tested.outside))
        pools = [Pool(pool.outside, pool.outside) for pool in (asked.tested, asked.known)]
        tested = Pool(pools[0].inside.take(order), pools[0].outside.take(order))
        same = Property(asked.label, asked.sizes, asked.special, tested, pools[1], asked.swaps)
        guesses = same.guesses(context, context.method.run_on, same.swaps, 48, f"seed {seed}", lambda *_: None)
        flagged += guesses.lower(0.05).max() > 0.5
        areas.append(float((guesses.guessed == guesses.included).mean()))
    assert flagged <= 2
    assert abs(np.mean(areas) - 0.5) < 3 * np.sqrt(0.25 / (12 * 3 * 24))


def test_a_claim_for_records_allows_as_many_steps_as_records_differ(make: Make) -> None:
    context = make(0.1, unit="record")
    asked = property_of(context, 3, None, 0.1)
    assert asked.special == (2, 2, 2)
    allowed, _ = allowed_of_client(context, asked.swaps)
    assert allowed is not None
    assert allowed.epsilon == pytest.approx(0.2)
    whole = make(0.1)
    assert allowed_of_client(whole, property_of(whole, 3, None, 0.5).swaps)[0].epsilon == 0.1  # type: ignore[union-attr]


def test_what_cannot_be_asked_is_said(make: Make) -> None:
    public = make(1.0, adjacency="replace_one_same_label", unit="record")
    with pytest.raises(NotRunError, match="labels are public"):
        property_of(public, 3, None, 0.5)
    with pytest.raises(NotRunError, match="of class 99 cannot be made"):
        property_of(make(1.0), 3, 99, 0.5)


def test_the_audit_asks_when_its_plan_does(make: Make) -> None:
    audit = MembershipAudit(
        trials=0, releases=0, clients=2, client_tests=("property",), client_runs=32, property_label=3
    )
    (found,) = [
        each for each in audit.assess(AttackResult("membership"), make(1.0)) if each.selection == "property"
    ]
    assert "class 3" in " ".join(found.assumptions)
    assert found.source == "clients"
    (missing,) = [
        each
        for each in audit.model_copy(update={"property_label": 99}).assess(AttackResult("membership"), make(1.0))
        if each.selection == "property"
    ]
    assert missing.verdict == "not_run"
