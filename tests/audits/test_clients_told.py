"""Whole clients and persons swapped by coins: leaks are told, noise is not, and what would suffice is said."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from attacked import by_ratio
from contexts import with_data, with_runs
from scipy.special import ndtr

from fedassay.audits.membership import statistics
from fedassay.audits.membership.client_canaries import canary_clients, canary_guesses
from fedassay.audits.membership.clients import allowed_of_client, client_finding, own_clients
from fedassay.audits.membership.swaps import Guesses, audited_swaps, own_swaps
from fedassay.audits.membership.worst_record import Risk, runs_needed, worst_record_finding
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.methods.baselines.fedavg_heads import FedAvgHeads
from fedassay.methods.closed_forms.fedncm import FedNCM
from fedassay.privacy.gaussian import mu_of
from fedassay.support.errors import NotRunError

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]


def _grouped(records: Records, first: int, each: int = 3) -> Records:
    return replace(records, groups=first + np.arange(len(records)) // each)


@pytest.fixture
def of_unit(make_task: MakeTask, make_context: MakeContext) -> Callable[..., AttackedContext]:
    """A context whose claim is for a unit, on records of persons of three, or of nobody's."""

    def make(
        unit: str, epsilon: float, persons: bool = False, adjacency: str = "replace_one", clients: int = 3
    ) -> AttackedContext:
        task = make_task(clients=clients, records=20 * clients, epsilon=epsilon, adjacency=adjacency)
        if persons:
            owners = tuple(_grouped(client, 1000 * place) for place, client in enumerate(task.clients))
            task = replace(task, clients=owners, test=_grouped(task.test, 9000))
        task = replace(task, privacy=task.privacy.model_copy(update={"unit": unit}))
        return by_ratio(make_context(task, FedNCM(), bounds=20))

    return make


Make = Callable[..., AttackedContext]


def test_a_client_is_swapped_as_a_whole_label_by_label(of_unit: Make) -> None:
    context = of_unit("client", 1.0)
    swaps = own_clients(context, 2)
    assert len(set(swaps.owners)) == 2
    for own, other in zip(swaps.inside, swaps.outside, strict=True):
        assert np.array_equal(np.sort(own.labels), np.sort(other.labels))
        assert not other.among(*context.data.clients).any()
    for included in ([True, False], [False, True]):
        held = {each.name: each for each in swaps.held(np.array(included))}
        for owner, own, other, coin in zip(swaps.owners, swaps.inside, swaps.outside, included, strict=True):
            assert np.array_equal(held[owner].images, (own if coin else other).images)
    questions, sides = swaps.questions()
    assert len(sides) == sum(map(len, questions.values()))


@pytest.mark.parametrize("hold", ["own", "canaries"])
def test_a_leaky_release_of_clients_is_caught_under_a_claim_for_clients(of_unit: Make, hold: str) -> None:
    context = of_unit("client", 0.05)
    loud = of_unit("client", np.inf)
    found = client_finding(with_runs(context, run_on=loud.method.run_on), hold, 3, 60)  # type: ignore[arg-type]
    assert found.verdict == "leak", found.reason
    assert found.metrics["observed"].value > 0.05  # type: ignore[operator]
    assert found.metrics["worst_client_told"].low > found.baseline["worst_client_told"].value  # type: ignore[operator]
    assert found.controls.positive is not None
    assert found.controls.positive.caught
    assert found.controls.negative is not None
    assert not found.controls.negative.flagged


@pytest.mark.long
@pytest.mark.parametrize("hold", ["own", "canaries"])
def test_honest_noise_is_not_flagged(of_unit: Make, hold: str) -> None:
    found = client_finding(of_unit("client", 1.0), hold, 3, 120)  # type: ignore[arg-type]
    assert found.verdict == "no_leak_found", found.reason
    assert found.limit is not None
    assert found.metrics["observed"].value <= 1.0  # type: ignore[operator]


def test_too_few_runs_say_how_many_would_decide(of_unit: Make) -> None:
    context = of_unit("client", 8.0)
    found = client_finding(context, "canaries", 3, 40)
    assert found.verdict == "inconclusive", found.reason
    assert "client_runs" in found.reason
    assert "would decide" in found.reason


@pytest.mark.parametrize(("epsilon", "clients"), [(1.0, 1), (1.0, 5), (4.0, 3)])
def test_the_runs_that_suffice_do_and_fewer_do_not(of_unit: Make, epsilon: float, clients: int) -> None:
    context = of_unit("client", epsilon)
    swaps = own_clients(context, 3)
    risk = Risk("client", "own", swaps, (swaps, ""), allowed_of_client(context, swaps)[0], (), pooled=True)
    error = 0.05 / 20
    needed = runs_needed(risk, clients, error)
    assert needed is not None

    def right(runs: int) -> Guesses:
        included = np.random.default_rng(0).random((runs, clients)) < 0.5
        # As many of either kind: what the bound guesses first are the extremes on both sides.
        included.ravel()[:] = np.arange(included.size) % 2 == 0
        return Guesses(included, included, "test", np.where(included, 1.0, -1.0))

    assert risk.exceeds(right(needed // 2 + 2), error)
    assert not risk.exceeds(right(int(0.9 * needed / 2) - 1), error)


def test_pooled_bounds_hold_for_clients_that_are_told_as_often_as_claimed(of_unit: Make) -> None:
    context = of_unit("client", 1.0)
    swaps = own_clients(context, 3)
    risk = Risk("client", "own", swaps, (swaps, ""), allowed_of_client(context, swaps)[0], (), pooled=True)
    wrong = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        included = rng.random((50, 3)) < 0.5
        guessed = np.where(rng.random(included.shape) < risk.most, included, ~included)
        wrong += risk.exceeds(Guesses(guessed, included, "test", np.where(guessed, 1.0, -1.0)), 0.05)
    assert wrong <= 17


def test_what_a_claim_allows_of_a_client(of_unit: Make) -> None:
    whole = of_unit("client", 1.0)
    assert allowed_of_client(whole, own_clients(whole, 3))[0].epsilon == 1.0  # type: ignore[union-attr]
    twice = of_unit("client", 1.0, adjacency="add_remove")
    assert allowed_of_client(twice, own_clients(twice, 3))[0].epsilon == 2.0  # type: ignore[union-attr]
    records = of_unit("record", 1.0)
    allowed, words = allowed_of_client(records, own_clients(records, 3))
    assert allowed is None
    assert "nothing is claimed of a client of" in words[0]
    few = of_unit("record", 0.1)
    allowed, _ = allowed_of_client(few, own_clients(few, 3))
    steps = max(map(len, own_clients(few, 3).inside))
    assert allowed is not None
    assert allowed.epsilon == pytest.approx(0.1 * steps)
    persons = of_unit("person", 0.1, persons=True)
    allowed, _ = allowed_of_client(persons, own_clients(persons, 3))
    assert allowed is not None
    assert allowed.epsilon < 0.1 * steps


def test_canary_clients_attain_the_sensitivity(of_unit: Make) -> None:
    context = of_unit("client", 1.0)
    swaps = canary_clients(context, [0])
    own, other = swaps.inside[0], swaps.outside[0]
    assert len(np.unique(own.images.reshape(len(own), -1), axis=0)) == 1
    assert own.labels[0] != other.labels[0]
    loud = of_unit("client", 8.0)
    found = canary_guesses(
        loud, loud.method.run_on, canary_clients(loud, [0, 1, 2]), 200, "test", lambda done, of: None
    )
    # Two Gaussians that lie mu apart are told in Phi(mu / 2) of the cases, by whoever knows the direction.
    best = float(ndtr(mu_of(8.0, 1e-5) / 2))
    assert best - 3.5 * math.sqrt(best * (1 - best) / found.included.size) < found.mean
    assert found.mean < best + 3.5 * math.sqrt(best * (1 - best) / found.included.size)
    same = canary_clients(of_unit("client", 1.0, adjacency="replace_one_same_label"), [0])
    assert same.inside[0].labels[0] == same.outside[0].labels[0]


def test_persons_are_swapped_whole_and_the_exposed_ones_are_found(of_unit: Make) -> None:
    context = of_unit("person", np.inf, persons=True)
    swaps = audited_swaps(context, 4)
    for own, other in zip(swaps.inside, swaps.outside, strict=True):
        assert own.groups is not None
        assert other.groups is not None
        assert len(set(own.groups.tolist())) == len(set(other.groups.tolist())) == 1
        owner = next(each for each in context.data.clients if each.name == swaps.owners[0])
        assert len(own) == int((owner.groups == own.groups[0]).sum())
    found = worst_record_finding(context, 4, 60)
    assert found.verdict == "leak", found.reason
    assert found.source == "persons"
    assert found.metrics["worst_person_told"].low > 0.5  # type: ignore[operator]


def test_noise_for_persons_hides_the_person_worst_off(of_unit: Make) -> None:
    found = worst_record_finding(of_unit("person", 1.0, persons=True), 4, 80)
    assert found.verdict == "no_leak_found", found.reason
    most = math.exp(1) / (1 + math.exp(1))
    assert found.baseline["worst_person_told"].value == pytest.approx(most, abs=1e-4)
    assert found.metrics["worst_person_told"].low < most  # type: ignore[operator]


def test_under_fixed_labels_a_person_is_swapped_for_one_with_the_same_labels(of_unit: Make) -> None:
    context = of_unit("person", 1.0, persons=True, adjacency="replace_one_same_label")
    context = with_data(
        context,
        clients=tuple(each.relabelled(np.arange(len(each)) // 3 % 10) for each in context.data.clients),
        test=context.data.test.relabelled(np.arange(len(context.data.test)) // 3 % 10),
    )
    swaps = audited_swaps(context, 4)
    for own, other in zip(swaps.inside, swaps.outside, strict=True):
        assert sorted(own.labels.tolist()) == sorted(other.labels.tolist())


def test_controls_of_each_unit(of_unit: Make) -> None:
    context = of_unit("person", np.inf, persons=True)
    assert {len(each) for each in own_swaps(context).inside} == {1}
    assert {len(each) for each in own_swaps(context, "person").inside} == {2}
    (client,) = own_swaps(context, "client").inside
    assert len(client) == len(np.unique(client.labels))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one", "replace_one_same_label"])
@pytest.mark.parametrize(("unit", "units"), [("person", 7), ("client", 1)])
def test_the_informed_adversary_asks_about_real_units(
    of_unit: Make, unit: str, units: int, adjacency: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = of_unit(unit, 2.0, persons=True, adjacency=adjacency)
    claim = context.outcome.transcript.claim
    pairs = []
    kept = statistics._on
    monkeypatch.setattr(statistics, "_on", lambda experiment, pair: pairs.append(pair) or kept(experiment, pair))
    found = statistics.real_records(context, claim, 7000)  # type: ignore[arg-type]
    assert found.verdict == "no_leak_found", found.reason
    assert f"for {units} of {units} real {unit}s of 3 records each in turn" in found.reason
    assert found.metrics["observed"].value <= 2.0  # type: ignore[operator]
    for pair in pairs:
        assert len(pair.labels1) == 3 * units
        assert len(pair.labels0) == 3 * (units - (adjacency == "add_remove"))
        if adjacency != "add_remove":
            changed = np.flatnonzero((pair.features0 != pair.features1).any(axis=1))
            assert len(set((changed // 3).tolist())) == 1
            assert (pair.labels0 == pair.labels1).all() == (adjacency == "replace_one_same_label")


def test_no_record_is_an_update(make_task: MakeTask, make_context: MakeContext) -> None:
    task = make_task(clients=2, records=40, epsilon=2.0)
    task = replace(task, privacy=task.privacy.model_copy(update={"unit": "client"}))
    context = make_context(task, FedAvgHeads(rounds=2, local_epochs=1))
    assert list(context.outcome.mechanisms) == ["clipped updates of 2 round(s)"]
    with pytest.raises(NotRunError, match="no record is one"):
        statistics.real_records(context, context.outcome.transcript.claim, 100)  # type: ignore[arg-type]
