"""Persons and clients: what leaves keeps the claim by its own tape, and what does not is caught there."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from contexts import with_runs

from fedassay.audits.claim.audit import DpClaimAudit
from fedassay.audits.claim.outliers import outliers_of
from fedassay.audits.claim.reruns import LEAST, observe_reruns
from fedassay.audits.claim.tape.fillings import fillings
from fedassay.audits.claim.tape.neighbours import labels_at, neighbours, unit_at
from fedassay.audits.claim.tape.questions import TapeAnswers, ask
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import Method, MethodInput, Outcome
from fedassay.data.records import Records
from fedassay.exchange.transcript import SERVER
from fedassay.heads.gaussian import Statistics, statistics
from fedassay.methods.baselines.average import Average
from fedassay.methods.baselines.ensemble import EnsembleOfClients
from fedassay.methods.baselines.fedavg_heads import FedAvgHeads
from fedassay.methods.closed_forms.afl import AFL
from fedassay.methods.closed_forms.fed3r import Fed3R
from fedassay.methods.closed_forms.fedncm import FedNCM
from fedassay.methods.closed_forms.gh_ofl import GHOFL
from fedassay.methods.closed_forms.one_shot_ridge import OneShotRidge
from fedassay.methods.fedcgs import method as fedcgs
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedlog.method import FedLog
from fedassay.methods.fedpft.chain import FedPFTChain
from fedassay.methods.fedpft.method import FedPFT
from fedassay.methods.rivals.knowledge_distillation import KnowledgeDistillation
from fedassay.methods.shared.dp_sgd import DpSgd
from fedassay.methods.shared.heads import HeadTraining
from fedassay.methods.shared.local_heads import HeadDpSgd
from fedassay.support.errors import DataError, NotRunError, PlanError
from fedassay.support.seeds import Seeds

SUMS: dict[str, Method] = {
    "fedcgs": FedCGS(),
    "fedcgs central": FedCGS(noise="central", secure_aggregation="all"),
    "afl": AFL(),
    "fed3r": Fed3R(),
    "fed3r assembled": Fed3R(mechanism="assembled"),
    "gh_ofl": GHOFL(moments="diagonal", head="nb"),
    "one_shot_ridge": OneShotRidge(),
    "fedncm": FedNCM(),
    "fedpft": FedPFT(components=1, counts="noised"),
}

Make = Callable[..., MethodInput]
Context = Callable[..., AuditContext]


@pytest.fixture
def of_persons(make_task: Make) -> Make:
    """A task whose persons have three records each, of several classes."""

    def make(unit: str = "person", most: int | None = None, **given: object) -> MethodInput:
        task = make_task(**{"clients": 2, "records": 30, "epsilon": 4.0, "adjacency": "replace_one", **given})
        sizes = np.cumsum([0, *map(len, task.clients)])
        clients = tuple(
            replace(client, groups=(start + np.arange(len(client))) // 3)
            for start, client in zip(sizes - sizes % 3 + np.arange(len(sizes)) * 3, task.clients, strict=False)
        )
        privacy = task.privacy.model_copy(update={"unit": unit, "max_records": most})
        return replace(task, clients=clients, privacy=privacy)

    return make


def asked_of(context: AuditContext) -> TapeAnswers:
    return ask(context.outcome.transcript.claim, context.accounted, context)  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", ["person", "client"])
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_units_keep_their_claim(of_persons: Make, make_context: Context, name: str, unit: str) -> None:
    context = make_context(of_persons(unit, 2 if unit == "person" else None), SUMS[name])
    claim = context.outcome.transcript.claim
    assert claim.unit == unit  # type: ignore[union-attr]
    assert context.accounted.epsilon == pytest.approx(4.0, rel=1e-3)
    asked = asked_of(context)
    assert [answer.status for answer in asked.answers] == ["passed"] * 4, asked.rows
    noised = [
        item.release for message in context.outcome.transcript.from_clients() for item in message.fields.values()
    ]
    assert {release.unit for release in noised if release.mechanism == "gaussian"} == {unit}


@pytest.mark.parametrize("adjacency", ["replace_one_same_label", "add_remove"])
def test_other_relations_keep_it_too(of_persons: Make, make_context: Context, adjacency: str) -> None:
    context = make_context(of_persons(adjacency=adjacency), FedCGS())
    assert [answer.status for answer in asked_of(context).answers] == ["passed"] * 4


def test_exact_counts_of_persons_are_public_where_labels_are(of_persons: Make, make_context: Context) -> None:
    context = make_context(of_persons(adjacency="replace_one_same_label", most=2), FedCGS(counts="exact"))
    counts = context.outcome.transcript.messages[0].fields["N"].values
    assert counts.sum() == pytest.approx(5.0)
    assert (counts != np.rint(counts)).any()
    assert [answer.status for answer in asked_of(context).answers] == ["passed"] * 4


def test_clipping_each_statistic_by_itself_is_caught(
    of_persons: Make, make_context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_by_one(features: np.ndarray, labels: np.ndarray, classes: int, weights: object) -> Statistics:
        own = statistics(features, labels, classes)
        parts = (own.counts, own.sums, own.second)
        return Statistics(*(part / max(1.0, float(np.linalg.norm(part))) for part in parts))

    monkeypatch.setattr(fedcgs, "statistics", one_by_one)
    asked = asked_of(make_context(of_persons("client"), FedCGS()))
    assert "pairs of opposite records" in asked.failed
    assert "above the declared sensitivity of 2.449" in asked.failed


def test_records_that_count_one_by_one_are_caught(
    of_persons: Make, make_context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MethodInput, "weights", lambda self, client: None)
    asked = asked_of(make_context(of_persons(), FedNCM()))
    assert "above the declared sensitivity" in asked.failed


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("fedcgs", "person"),
        ("fedcgs", "client"),
        ("fedpft_chain", "person"),
        ("fedpft_chain", "client"),
        ("fedavg_heads", "client"),
        ("average", "client"),
        ("ensemble", "client"),
        ("knowledge_distillation", "client"),
    ],
)
def test_the_observed_bound_is_near_what_is_accounted(
    of_persons: Make, make_context: Context, name: str, unit: str
) -> None:
    context = make_context(of_persons(unit), WHOLE[name])
    (finding,) = DpClaimAudit(mechanism_trials=40_000).assess(None, context)
    assert finding.verdict == "sound", finding.reason
    assert f"one {unit}" in finding.assumptions[0]
    observed = finding.metrics["observed"].value
    assert observed is not None
    assert observed >= 0.9 * context.accounted.epsilon


@pytest.mark.long
@pytest.mark.parametrize("name", ["average", "fedavg_heads"])
@pytest.mark.parametrize(("unit", "mechanism"), [("person", "dp_sgd"), ("client", "gaussian")])
def test_dp_sgd_of_persons_and_updates_of_clients_keep_their_claim(
    of_persons: Make, make_context: Context, unit: str, mechanism: str, name: str
) -> None:
    context = make_context(of_persons(unit, adjacency="add_remove"), WHOLE[name])
    release = context.outcome.transcript.messages[0].fields["head_weights"].release
    assert (release.mechanism, release.unit) == (mechanism, unit)
    assert context.accounted.epsilon == pytest.approx(4.0, rel=1e-2)
    asked = asked_of(context)
    assert [answer.status for answer in asked.answers] == ["passed"] * 4, asked.rows


@pytest.mark.long
def test_fedlog_of_persons(of_persons: Make, make_context: Context) -> None:
    context = make_context(of_persons(), FedLog(rounds=1, local_epochs=1))
    assert context.accounted.epsilon == pytest.approx(4.0, rel=1e-3)
    assert [answer.status for answer in asked_of(context).answers] == ["passed"] * 4
    (experiment,) = context.outcome.mechanisms.values()
    assert len(experiment.neighbours.labels0) == 9


def test_what_a_method_cannot_give_is_said_by_name(of_persons: Make) -> None:
    with pytest.raises(PlanError, match=r"privacy.unit person with mechanism paper.*allowed: mechanism tight"):
        FedPFT(components=1, mechanism="paper").run(of_persons(adjacency="replace_one_same_label"))
    task = of_persons()
    twice = replace(task.clients[1], groups=np.zeros(len(task.clients[1]), np.int64))
    with pytest.raises(DataError, match=r"person 0 has records at client/0 and at client/1"):
        FedNCM().run(replace(task, clients=(task.clients[0], twice)))


def test_neighbours_of_units(of_persons: Make) -> None:
    client = of_persons().clients[0]
    assert unit_at(client, 4, "person").tolist() == [3, 4, 5]
    assert unit_at(client, 4, "record").tolist() == [4]
    assert len(unit_at(client, 4, "client")) == len(client)
    assert neighbours(labels_at(client, 0, "person"), None, "add_remove")
    assert not neighbours((1, 2, 3), (1, 2, 4), "replace_one_same_label")
    assert len(fillings("replace_one", "person")) == len(fillings("replace_one")) + 2


def test_reruns_of_the_whole_method_differ_in_one_person(of_persons: Make, make_context: Context) -> None:
    task = of_persons()
    context, client = make_context(task, outcome=FedNCM().run(task)), task.clients[0]
    for adjacency in ("replace_one", "replace_one_same_label", "add_remove"):
        for outlier in outliers_of(context, client, adjacency, "person"):
            changed = [
                place for place in range(len(client)) if (outlier.within.images != client.images)[place].any()
            ]
            assert set(changed) <= set(unit_at(client, changed[0], "person").tolist())
            assert len(outlier.without) == len(client) - (3 if adjacency == "add_remove" else 0)
            moved = outlier.within.labels != client.labels
            assert moved.any() == (adjacency == "replace_one")
    assert len(outliers_of(context, client, "add_remove", "client")[0].without) == 0


HEAD = HeadTraining(solver="adam", epochs=1)
ROUNDS = FedAvgHeads(rounds=2, local_epochs=1, dp_sgd=DpSgd(sampling_rate=1.0))


@pytest.mark.long
@pytest.mark.parametrize("unit", ["person", "client"])
@pytest.mark.parametrize("adjacency", ["replace_one", "replace_one_same_label", "add_remove"])
@pytest.mark.parametrize("method", ["fedpft", "fedpft_chain"])
def test_several_components_and_the_chain_keep_their_claim(
    of_persons: Make, make_context: Context, method: str, adjacency: str, unit: str
) -> None:
    counts = "exact" if adjacency == "replace_one_same_label" else "noised"
    for components in (1, 3) if method == "fedpft_chain" else (3,):
        given = {"components": components, "covariance": "diag", "counts": counts, "dp_steps": 3, "head": HEAD}
        chosen = (FedPFT if method == "fedpft" else FedPFTChain).model_validate(given)
        context = make_context(of_persons(unit, 2 if unit == "person" else None, adjacency=adjacency), chosen)
        assert context.outcome.transcript.claim.unit == unit  # type: ignore[union-attr]
        assert context.accounted.epsilon == pytest.approx(4.0, rel=1e-3)
        asked = asked_of(context)
        assert [answer.status for answer in asked.answers] == ["passed"] * 4, asked.rows


@pytest.mark.long
def test_components_that_count_records_one_by_one_are_caught(
    of_persons: Make, make_context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MethodInput, "weights", lambda self, client: None)
    chosen = FedPFT(components=3, covariance="diag", counts="noised", dp_steps=3)
    assert "above the declared sensitivity" in asked_of(make_context(of_persons(), chosen)).failed


WHOLE: dict[str, Method] = {
    **SUMS,
    "average": Average(dp_sgd=HeadDpSgd(epochs=1, sampling_rate=1.0)),
    "ensemble": EnsembleOfClients(dp_sgd=HeadDpSgd(epochs=1, sampling_rate=1.0)),
    "knowledge_distillation": KnowledgeDistillation(
        epochs=1, head=HEAD, dp_sgd=HeadDpSgd(epochs=1, sampling_rate=1.0)
    ),
    "fedlog": FedLog(rounds=1, local_epochs=1),
    "fedavg_heads": ROUNDS,
    "fedpft of several components": FedPFT(
        components=2, covariance="diag", counts="noised", dp_steps=2, head=HEAD
    ),
    "fedpft_chain": FedPFTChain(components=1, covariance="diag", counts="noised", head=HEAD),
}


@pytest.mark.long
@pytest.mark.parametrize("name", WHOLE)
def test_a_client_there_or_not_is_rerun_within_its_claim(
    of_persons: Make, make_context: Context, name: str
) -> None:
    context = make_context(of_persons("client", adjacency="add_remove"), WHOLE[name])
    claim = context.outcome.transcript.claim
    seen = observe_reruns(context, claim, runs=LEAST, seeds=Seeds(0))  # type: ignore[arg-type]
    assert "or nobody" in seen.about
    assert "those of one client" in seen.assumptions[0]
    assert seen.bounds.judged <= 4.0
    assert seen.positive.above, seen.positive
    assert not seen.negative.above


@pytest.mark.parametrize("leak", ["no noise", "no message"])
def test_a_client_that_is_given_away_is_told_by_reruns(of_persons: Make, make_context: Context, leak: str) -> None:
    context = make_context(of_persons("client", adjacency="add_remove", epsilon=0.05), FedNCM())
    claim = context.outcome.transcript.claim
    again = context.method.run_on
    if leak == "no noise":
        again = make_context(of_persons("client", adjacency="add_remove", epsilon=np.inf), FedNCM()).method.run_on

    def without_the_empty(clients: Sequence[Records], seeds: Seeds) -> Outcome:
        outcome = again(clients, seeds)
        there = {client.name for client in clients if len(client)} | {SERVER}
        sent = tuple(each for each in outcome.transcript.messages if leak == "no noise" or each.sender in there)
        return replace(outcome, transcript=replace(outcome.transcript, messages=sent))

    seen = observe_reruns(with_runs(context, run_on=without_the_empty), claim, runs=60, seeds=Seeds(0))  # type: ignore[arg-type]
    assert seen.bounds.judged > claim.epsilon  # type: ignore[union-attr]


def test_a_federation_of_one_client_cannot_lose_it(of_persons: Make, make_context: Context) -> None:
    context = make_context(of_persons("client", adjacency="add_remove", clients=1), FedCGS())
    with pytest.raises(NotRunError, match=r"federation without client/0, and no other client has a record"):
        observe_reruns(context, context.outcome.transcript.claim, runs=LEAST, seeds=Seeds(0))  # type: ignore[arg-type]
