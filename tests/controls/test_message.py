"""The message audit: leaks are found, defences are believed, and a broken attack is never mistaken for safety."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contexts import with_data

from fedassay.attacks import message_algebra
from fedassay.attacks.gram import factorization
from fedassay.attacks.gram.attack import GramFactorization
from fedassay.attacks.gram.targets import class_targets
from fedassay.attacks.head_reconstruction.attack import HeadReconstruction
from fedassay.attacks.label_distribution import LabelDistribution
from fedassay.attacks.message_algebra import MessageAlgebra
from fedassay.audits.message.audit import MessageAudit
from fedassay.audits.message.truth import comes_back, plain
from fedassay.contracts.attack import Attack, AttackResult, Knowledge
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.membership import no_questions, visible
from fedassay.contracts.method import Method, MethodInput, Outcome
from fedassay.data.records import Records
from fedassay.exchange import statistics
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.gram import Gram, Size, measure, obstacle
from fedassay.exchange.release import Release, exact
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.exchange.view import ThreatModel, View
from fedassay.heads.linear import FeatureModel
from fedassay.methods.baselines.ensemble import EnsembleOfClients
from fedassay.methods.baselines.raw_features import RawFeatures
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedlog.method import FedLog
from fedassay.methods.fedpft.method import FedPFT
from fedassay.privacy.mechanisms import clip_features
from fedassay.records.facts import Obstacle
from fedassay.records.record import Finding
from fedassay.support.errors import NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]
AUDIT = MessageAudit()


def assessed(
    make_context: MakeContext, task: MethodInput, method: Method, attack: Attack
) -> Mapping[str, Finding]:
    """Findings on a run of a method, by source."""
    return _assessed(make_context(task, method), attack)


def _assessed(context: AuditContext, attack: Attack) -> Mapping[str, Finding]:
    knowledge = Knowledge(context.data.fresh, 10, None, False, Seeds(0), "cpu", SILENT)

    def attacked(seen: View) -> AttackResult:
        return attack.run(seen, knowledge)

    own = context.attacked(attacked, "test", no_questions())
    return {str(finding.source): finding for finding in AUDIT.assess(attacked(context.view), own)}


def controls_hold(finding: Finding) -> bool:
    positive, negative = finding.controls.positive, finding.controls.negative
    return positive is not None and positive.caught and negative is not None and not negative.flagged


@pytest.mark.parametrize("epsilon", [1.0, float("inf")])
def test_signed_features_take_records_of_the_attackers_own(
    make_task: MakeTask, make_context: MakeContext, epsilon: float
) -> None:
    """Without any: not run, with the reason, neither a failed control nor a sign of safety."""
    task = make_task(clients=3, records=60, backbone="small_cnn", epsilon=epsilon)
    assert min(client.features.min() for client in task.clients) < 0
    finding = assessed(make_context, task, FedCGS(), _WithoutImages())["gram_factorization"]
    assert finding.verdict == "not_run"
    assert "signed" in finding.reason


class _WithoutImages:
    """The factorization of an attacker that has no record."""

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        return GramFactorization().run(view, replace(knowledge, attacker=None))


@pytest.mark.parametrize("hidden", ["none", "counts", "all"])
def test_small_clients_of_fedcgs_leak(make_task: MakeTask, make_context: MakeContext, hidden: str) -> None:
    task = make_task(clients=3, records=18)
    method = FedCGS.model_validate({"secure_aggregation": hidden})
    finding = assessed(make_context, task, method, GramFactorization())["gram_factorization"]
    assert finding.verdict == "leak", finding.reason
    assert controls_hold(finding)
    error = finding.metrics["relative_error"]
    assert error.value is not None
    assert error.high is not None
    assert error.value < 1e-6 < error.high + 1e-6
    baseline = finding.baseline["relative_error"].value
    assert baseline is not None
    assert 0.2 < baseline < 1
    share = finding.metrics["fraction_recovered"]
    assert share.value is not None
    assert share.value > 0.9
    assert share.n == 18
    assert finding.metrics["label_accuracy"].value == 1.0
    assert "records' features computed exactly" in finding.reason
    # Every exact vector names its record, where the mean of what was sent names fewer.
    named, of_means = finding.metrics["identified"].value, finding.baseline["identified"].value
    assert named is not None
    assert of_means is not None
    assert named > 0.9
    assert of_means < named


def test_noise_stops_the_factorization(make_task: MakeTask, make_context: MakeContext) -> None:
    task = make_task(clients=3, records=60, epsilon=10.0)
    finding = assessed(make_context, task, FedCGS(), GramFactorization())["gram_factorization"]
    assert finding.verdict == "no_leak_found", finding.reason
    assert controls_hold(finding)
    assert finding.limit is not None
    assert finding.limit.n == 3
    assert "control clients of up to 20 records were recovered" in finding.limit.words
    assert finding.metrics["largest_recovered"].value == 20
    assert finding.metrics["relative_error"].value is None
    assert finding.metrics["relative_error"].reason
    assert finding.metrics["fraction_recovered"].value == 0.0


@pytest.mark.slow
def test_clients_beyond_what_the_attack_recovers_are_not_concluded_about(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    """More records than features hide nothing for sure: where controls fail as well, nothing is concluded."""
    task = make_task(clients=2, records=140)
    method = GramFactorization(iterations=60)
    finding = assessed(make_context, task, FedCGS(), method)["gram_factorization"]
    assert finding.verdict in ("inconclusive", "leak"), finding.reason
    assert finding.verdict == "leak" or "control clients were recovered up to 0 records" in finding.reason


@pytest.mark.long
def test_larger_clients_than_the_control_role_are_not_concluded_about(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    task = make_task(clients=3, records=60, epsilon=10.0)
    context = make_context(task, FedCGS())
    context = with_data(context, control=context.data.control.take(np.arange(14)))
    finding = _assessed(context, GramFactorization())["gram_factorization"]
    assert finding.verdict == "inconclusive"
    assert "give data.split.control at least 6 more" in finding.reason
    task = make_task(clients=3, records=60)
    context = make_context(task, FedCGS())
    context = with_data(context, control=context.data.control.take(np.arange(0)))
    finding = _assessed(context, GramFactorization())["gram_factorization"]
    assert finding.verdict == "leak", "what came back is a leak whatever could be controlled"


@pytest.mark.long
def test_noised_clients_are_concluded_about_by_size(make_task: MakeTask, make_context: MakeContext) -> None:
    """A client too large to be factored without noise leaves open what is known of smaller ones, and is named."""
    task = make_task(clients=3, records=270, epsilon=1.0)
    sizes = (8, 14, 90)
    clients = tuple(client.take(np.arange(size)) for client, size in zip(task.clients, sizes, strict=True))
    context = make_context(replace(task, clients=clients), FedCGS())
    knowledge = Knowledge(context.data.fresh, 10, None, False, Seeds(0), "cpu", SILENT)

    def attacked(view: View) -> AttackResult:
        return GramFactorization().run(view, knowledge)

    own = context.attacked(attacked, "test", no_questions())
    found = {finding.selection: finding for finding in AUDIT.assess(attacked(context.view), own)}
    assert set(found) == {"controlled_sizes", "larger_clients"}
    small, large = found["controlled_sizes"], found["larger_clients"]
    assert small.verdict == "no_leak_found", small.reason
    assert controls_hold(small)
    assert small.limit is not None
    assert small.limit.n == 2
    assert "2 clients of 8 to 14 records" in small.reason
    assert small.metrics["fraction_recovered"].n == 22
    assert large.verdict == "inconclusive"
    assert "1 client of 90 records: " in large.reason
    assert "the largest client has 90" in large.reason
    assert large.metrics["fraction_recovered"].n == 90


def test_noise_on_class_means_is_not_taken_for_signed_features() -> None:
    """A feature that is never active has a noised mean below 0 and a second moment of next to nothing."""
    how = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(1e-3,), sensitivity=(1.0,))
    means, spread = np.array([[0.5, 0.3, 0.2, -1e-3]]), np.zeros((1, 4, 4))
    fields = {
        "means": MessageField(means, "class_means", how),
        "spread": MessageField(spread, "class_covariances", how),
        "counts": MessageField(np.array([1]), "class_counts", how),
        "ids": MessageField(np.array([0]), "class_ids", how),
    }
    targets = list(class_targets(Message(0, "client/0", SERVER, fields), np.array([0])))
    assert targets
    gram = targets[0].candidates[0]
    assert gram.noise > 1e-3
    assert "signed" not in (obstacle(gram, measure(gram)) or "")


def test_a_limit_on_records_is_not_safety(make_task: MakeTask, make_context: MakeContext) -> None:
    task = make_task(clients=2, records=40)
    finding = assessed(make_context, task, FedCGS(), GramFactorization(max_records=10))["gram_factorization"]
    assert finding.verdict == "inconclusive"
    assert "max_records" in finding.reason
    largest = max(map(len, task.clients))
    assert finding.obstacle == Obstacle(kind="too_large", held=10, needed=largest, key="max_records")


def test_a_broken_factorization_is_inconclusive(
    make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its iterations the attack must fail its own positive control."""

    def broken(problem: Any, rng: np.random.Generator, iterations: int, momentum: float) -> Any:
        return 0.0, problem.start(rng)

    monkeypatch.setattr(factorization, "_project", broken)
    task = make_task(clients=3, records=60)
    finding = assessed(make_context, task, FedCGS(), GramFactorization(trust=1e9))["gram_factorization"]
    # Eight records are alone in their classes, and come back without any iteration: those are a leak.
    assert finding.harm is not None
    assert (finding.verdict, finding.harm.kind, finding.harm.count) == ("leak", "exact", 8)
    assert False in [control.detected for control in finding.all_controls if control.role == "attack_only"]
    task = make_task(clients=3, records=60, epsilon=1.0)
    finding = assessed(make_context, task, FedCGS(), GramFactorization(trust=1e9))["gram_factorization"]
    assert finding.verdict == "inconclusive", finding.reason


def test_singletons_and_ranks_of_fedcgs(make_task: MakeTask, make_context: MakeContext) -> None:
    task = make_task(clients=3, records=60)
    found = assessed(make_context, task, FedCGS.model_validate({"secure_aggregation": "counts"}), MessageAlgebra())
    singles = sum(int((np.bincount(client.labels, minlength=10) == 1).sum()) for client in task.clients)
    finding = found["singletons"]
    assert finding.verdict == "leak", finding.reason
    assert controls_hold(finding)
    assert f"{singles} of 60 records' features computed exactly" in finding.reason
    assert finding.metrics["label_accuracy"].value == 1.0
    for name in ("derivable_counts", "rank"):
        assert found[name].verdict == "leak"
        assert controls_hold(found[name])
        assert found[name].metrics["counts_right"].value == 1.0
    assert "which are not sent" in found["derivable_counts"].reason


def test_components_of_fedpft(make_task: MakeTask, make_context: MakeContext) -> None:
    found = assessed(make_context, make_task(clients=2, records=40), FedPFT(), MessageAlgebra())
    finding = found["collapsed_components"]
    assert finding.verdict == "leak", finding.reason
    assert controls_hold(finding)


def test_raw_features_do_not_go_unsaid(make_task: MakeTask, make_context: MakeContext) -> None:
    found = assessed(make_context, make_task(clients=2, records=40), RawFeatures(), MessageAlgebra())
    assert found["raw"].verdict == "leak"
    assert found["raw"].metrics["fraction_recovered"].value == 1.0


def test_large_classes_give_algebra_nothing(make_task: MakeTask, make_context: MakeContext) -> None:
    found = assessed(make_context, make_task(clients=1, records=400), FedCGS(), MessageAlgebra())
    assert set(found) == {"singletons", "exact_counts", "rank"}
    assert found["exact_counts"].verdict == "leak"
    for name, limit in (("singletons", "share"), ("rank", "messages")):
        assert found[name].verdict == "no_leak_found", found[name].reason
        assert controls_hold(found[name])
        assert found[name].limit is not None
        assert found[name].limit.metric == limit
    assert found["singletons"].limit.value == pytest.approx(3 / 400, rel=0.01)


@pytest.mark.parametrize(
    ("adjacency", "verdict"), [("add_remove", "leak"), ("replace_one_same_label", "no_leak_found")]
)
def test_a_histogram_that_leaves_exactly_is_a_leak_of_labels(
    make_task: MakeTask, make_context: MakeContext, adjacency: str, verdict: str
) -> None:
    """However close to the public one it is; unless the adjacency makes labels public."""
    task = make_task(clients=1, records=600, adjacency=adjacency)
    counts = assessed(make_context, task, FedCGS(), MessageAlgebra())["exact_counts"]
    histogram = assessed(make_context, task, FedCGS(), LabelDistribution())["label_histograms"]
    assert histogram.metrics["total_variation"].value == 0
    for finding in (counts, histogram):
        assert finding.verdict == verdict, finding.reason
        assert controls_hold(finding)
        assert (verdict == "leak") != (f"public under {adjacency}" in finding.reason)


def test_vectors_of_other_features_are_not_judged(make_task: MakeTask, make_context: MakeContext) -> None:
    """FedLog's sums are of features of the clients' own bodies: there is no truth to compare them with."""
    task = make_task(clients=2, records=30)
    method = FedLog.model_validate({"rounds": 1, "local_epochs": 1})
    found = assessed(make_context, task, method, MessageAlgebra())
    assert found["exact_counts"].verdict == "leak"
    assert found["singletons"].verdict == "not_run"
    assert "own networks" in found["singletons"].reason


FAULTS = ("redundant_field", "missing_noise", "unprotected_field")


def test_every_rule_that_applies_has_a_finding_and_a_control(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    method = FedCGS.model_validate({"secure_aggregation": "counts"})
    found = assessed(make_context, make_task(clients=3, records=60, epsilon=1.0), method, MessageAlgebra())
    assert set(found) == {"singletons", "exact_counts", "derivable_counts", "rank", *FAULTS}
    for name, finding in found.items():
        assert finding.verdict == "no_leak_found", (name, finding.reason)
        assert controls_hold(finding)
        assert finding.controls.positive is not None
        assert "the method's own messages without privacy" in finding.controls.positive.release


@pytest.mark.parametrize("rule", ["exact_counts", "derivable_counts", "rank", *FAULTS])
def test_a_rule_that_never_fires_is_inconclusive(
    rule: str, make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others go on as they are."""

    def deaf(messages: tuple[Message, ...], classes: int) -> list[statistics.Remark]:
        return [remark for remark in statistics.remarks(messages, classes) if remark.rule != rule]

    monkeypatch.setattr(message_algebra, "remarks", deaf)
    method = FedCGS.model_validate({"secure_aggregation": "counts"})
    found = assessed(make_context, make_task(clients=3, records=60, epsilon=1.0), method, MessageAlgebra())
    for name, finding in found.items():
        assert finding.verdict == ("inconclusive" if name == rule else "no_leak_found"), finding.reason


@pytest.mark.parametrize("size", ["alone", "several"])
def test_counts_that_are_off_by_one_are_not_believed(
    size: str, make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every client, or only in those that hold more than ten records."""

    def wrong(messages: tuple[Message, ...], classes: int) -> list[statistics.Remark]:
        return [
            replace(remark, values=remark.values + (remark.values.sum() > (10 if size == "several" else 0)))
            for remark in statistics.remarks(messages, classes)
        ]

    monkeypatch.setattr(message_algebra, "remarks", wrong)
    method = FedCGS.model_validate({"secure_aggregation": "counts"})
    found = assessed(make_context, make_task(clients=3, records=60), method, MessageAlgebra())
    for name in ("exact_counts", "derivable_counts", "rank"):
        assert found[name].verdict == "inconclusive", found[name].reason


@pytest.mark.parametrize(
    ("rule", "settings"),
    [("singletons", {}), ("collapsed_components", {"components": 1}), ("collapsed_components", {"components": 3})],
)
@pytest.mark.parametrize("epsilon", [1.0, float("inf")])
def test_vector_rules_that_never_fire_are_inconclusive(
    rule: str,
    settings: dict[str, int],
    epsilon: float,
    make_task: MakeTask,
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MessageAlgebra, "_singletons", lambda *_: iter(()))
    monkeypatch.setattr(MessageAlgebra, "_collapsed", lambda *_: iter(()))
    method = FedPFT(**settings) if settings else FedCGS()
    finding = assessed(make_context, make_task(clients=2, records=60, epsilon=epsilon), method, MessageAlgebra())[
        rule
    ]
    assert finding.verdict == "inconclusive", finding.reason


def test_components_with_a_share_of_a_class_are_controlled(
    make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes with one record still give it away where components of larger ones are not seen to collapse."""
    whole = MessageAlgebra._collapsed

    def some(self: MessageAlgebra, message: Message, classes: int) -> Iterator[tuple[Floats, int]]:
        counts, ids = message.of_kind("class_counts"), message.of_kind("class_ids")
        single = set() if counts is None or ids is None else set(ids[counts == 1].tolist())
        yield from ((vector, label) for vector, label in whole(self, message, classes) if label in single)

    monkeypatch.setattr(MessageAlgebra, "_collapsed", some)
    found = assessed(make_context, make_task(clients=2, records=60), FedPFT(components=3), MessageAlgebra())
    finding = found["collapsed_components"]
    assert finding.verdict == "leak", finding.reason
    assert [control.detected for control in finding.all_controls if control.role == "end_to_end"] == [False]


def test_differences_of_two_transcripts_are_controlled(
    make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client whose statistics are sent twice, of which the second knows one record more."""
    task = make_task(clients=2, records=60)
    less = replace(task, clients=tuple(own.take(np.arange(len(own) - 1)) for own in task.clients))
    first, second = (FedCGS().run(each).transcript for each in (less, task))
    messages = (*first.messages, *(replace(message, round=1) for message in second.messages))
    outcome = replace(FedCGS().run(task), transcript=replace(second, messages=messages))
    context = make_context(task, FedCGS(), outcome=outcome)
    found = _assessed(context, MessageAlgebra())
    assert found["differences"].verdict == "leak", found["differences"].reason
    assert controls_hold(found["differences"])
    assert found["differences"].metrics["fraction_recovered"].value == pytest.approx(2 / 60)
    monkeypatch.setattr(MessageAlgebra, "_differences", lambda *_: iter(()))
    assert _assessed(context, MessageAlgebra())["differences"].verdict == "inconclusive"


@pytest.mark.long
@pytest.mark.parametrize("view", ["per_client", "aggregate", "broadcast"])
def test_views_are_controlled_as_they_are(view: str, make_task: MakeTask, make_context: MakeContext) -> None:
    """What is blind to the sum over clients says nothing of it, and nothing is read from what the server sends."""
    task = make_task(clients=3, records=30)
    context = make_context(task, FedCGS())
    threat = ThreatModel.model_validate({"view": view})
    context = replace(context, view=visible(context.outcome, threat))
    if view == "broadcast":
        for attack in (MessageAlgebra(), GramFactorization(), LabelDistribution()):
            with pytest.raises(NotRunError):
                _assessed(context, attack)
        return
    for attack in (MessageAlgebra(), GramFactorization(), LabelDistribution()):
        for finding in _assessed(context, attack).values():
            assert finding.verdict in ("leak", "no_leak_found"), finding.reason
            assert controls_hold(finding)
        blind = _Blind(attack) if view == "aggregate" else None
        if blind is not None:
            for finding in _assessed(context, blind).values():
                assert finding.verdict in ("inconclusive", "not_run"), (finding.source, finding.reason)


class _Blind:
    """An attack that overlooks the sum over the clients where it stands alone."""

    def __init__(self, attack: Attack) -> None:
        self.attack = attack
        self.seen: AttackResult | None = None

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        result = self.attack.run(view, knowledge)
        silent = {name: values[:0] for name, values in result.scores.items() if name.startswith("expected")}
        if "vectors" in result.artifacts:
            artifacts = {**result.artifacts, "vectors": result.artifacts["vectors"][:0]}
        elif "rules" in result.artifacts:
            artifacts = {name: a if name == "applicable" else a[:0] for name, a in result.artifacts.items()}
        else:
            even = np.full_like(result.artifacts["histograms"], 1 / view.classes)
            artifacts = {**result.artifacts, "histograms": even}
        return replace(result, vectors=(), scores={**result.scores, **silent}, artifacts=artifacts)


@pytest.mark.parametrize("fault", ["above 4", "hidden counts", "float16", "uniform"])
def test_broken_attacks_find_no_safety(
    fault: str, make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faults that four records in float64 with counts do not show."""
    method: Method = FedCGS()
    if fault == "above 4":
        _factors_only(monkeypatch, lambda gram, size: size.total <= 4)
    elif fault == "hidden counts":
        method = FedCGS.model_validate({"secure_aggregation": "counts"})
        _factors_only(monkeypatch, lambda gram, size: gram.counts is not None)
    elif fault == "float16":
        method = FedCGS.model_validate({"transport": "float16"})
        _factors_only(monkeypatch, lambda gram, size: gram.unit < 1e-5)
    for epsilon in (1.0, float("inf")):
        task = make_task(clients=4, records=48, epsilon=epsilon)
        attack: Attack = _Blind(LabelDistribution()) if fault == "uniform" else GramFactorization()
        for finding in assessed(make_context, task, method, attack).values():
            assert finding.verdict == "inconclusive", finding.reason


def _factors_only(monkeypatch: pytest.MonkeyPatch, works: Callable[[Gram, Size], bool]) -> None:
    """A factorization that returns garbage unless it works."""
    whole = factorization.factorize

    def some(gram: Gram, size: Size, rng: np.random.Generator, **given: int) -> factorization.Factors:
        found = whole(gram, size, rng, **given)
        return found if works(gram, size) else replace(found, vectors=rng.random(found.vectors.shape) * 1e3)

    monkeypatch.setattr("fedassay.attacks.gram.attack.factorize", some)


def _by_label(task: MethodInput) -> MethodInput:
    """The same records, dealt out so that every client holds a few classes."""
    images, labels = (
        np.concatenate([getattr(own, part) for own in task.clients]) for part in ("images", "labels")
    )
    parts = np.array_split(np.argsort(labels, kind="stable"), len(task.clients))
    dealt = zip(task.clients, parts, strict=True)
    return replace(
        task, clients=tuple(replace(own, images=images[part], labels=labels[part]) for own, part in dealt)
    )


@pytest.mark.parametrize("hidden", ["none", "counts"])
def test_label_histograms_leak_where_clients_differ(
    make_task: MakeTask, make_context: MakeContext, hidden: str
) -> None:
    task = _by_label(make_task(clients=4, records=48))
    method = FedCGS.model_validate({"secure_aggregation": hidden})
    finding = assessed(make_context, task, method, LabelDistribution())["label_histograms"]
    assert finding.verdict == "leak", finding.reason
    assert controls_hold(finding)
    ours, baseline = finding.metrics["total_variation"].value, finding.baseline["total_variation"].value
    assert ours is not None
    assert baseline is not None
    assert ours < 0.3 * baseline


def test_two_histograms_that_are_read_exactly_leak(make_task: MakeTask, make_context: MakeContext) -> None:
    """No interval of two distances is short enough to show it, but nothing is left to chance."""
    task = _by_label(make_task(clients=2, records=48))
    finding = assessed(make_context, task, FedCGS(), LabelDistribution())["label_histograms"]
    assert finding.verdict == "leak", finding.reason
    assert controls_hold(finding)


def test_label_histograms_under_heavy_noise_are_no_leak(make_task: MakeTask, make_context: MakeContext) -> None:
    task = _by_label(make_task(clients=6, records=120))
    release = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(100.0,), sensitivity=(1.0,))
    rng = np.random.default_rng(0)
    messages = tuple(
        Message(0, client.name, SERVER, {"N": MessageField(rng.normal(20, 100, 10), "class_counts", release)})
        for client in task.clients
    )
    outcome = Outcome(Transcript("noised", 10, messages), None)
    finding = _assessed(make_context(task, outcome=outcome), LabelDistribution())["label_histograms"]
    assert finding.verdict == "inconclusive", finding.reason
    assert "there is no method here" in finding.reason


def test_a_captured_transcript_has_no_truth(make_task: MakeTask, make_context: MakeContext) -> None:
    """Without records nothing is matched; what arithmetic says stands, with controls of records at hand."""
    task = make_task(clients=2, records=20)
    outcome = FedCGS.model_validate({"secure_aggregation": "counts"}).run(task)
    context = make_context(replace(task, clients=()), outcome=outcome)
    found = _assessed(context, GramFactorization())
    assert found["gram_factorization"].verdict == "not_run"
    assert "without known records" in found["gram_factorization"].reason
    found = _assessed(context, MessageAlgebra())
    assert found["singletons"].verdict == "not_run"
    assert found["rank"].verdict == "leak"
    assert found["rank"].controls.positive is not None
    assert found["rank"].controls.positive.caught
    with pytest.raises(NotRunError, match="no sender in the view has records"):
        _assessed(context, LabelDistribution())


def test_a_view_without_messages_is_said(make_task: MakeTask, make_context: MakeContext) -> None:
    with pytest.raises(NotRunError):
        assessed(
            make_context,
            make_task(clients=2, records=20),
            RawFeatures(),
            GramFactorization(),
        )


def test_rules_are_tried_out_where_features_are_the_clients_own(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    """FedLog's statistics are of features that nobody else has; the rules' control is its own run all the same."""
    task = make_task(clients=2, records=60, epsilon=10.0)
    found = assessed(make_context, task, FedLog(rounds=1, local_epochs=1, width=5), MessageAlgebra())
    assert found["exact_counts"].verdict == "no_leak_found", found["exact_counts"].reason
    assert controls_hold(found["exact_counts"])


class _TwoRounds:
    """FedCGS under secure aggregation twice: the last client leaves after the first round."""

    def run(self, task: MethodInput) -> Outcome:
        method = FedCGS(secure_aggregation="all")
        first, second = (method.run(replace(task, clients=group)) for group in (task.clients, task.clients[:-1]))
        later = tuple(replace(each, round=1) for each in second.transcript.messages if each.sender != SERVER)
        transcript = replace(first.transcript, messages=(*first.transcript.messages, *later))
        return replace(first, transcript=transcript)


@pytest.mark.long
def test_records_of_a_client_that_leaves_are_attributed_to_it(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    finding = assessed(make_context, make_task(clients=3, records=18), _TwoRounds(), GramFactorization())[
        "gram_factorization"
    ]
    share, right = finding.metrics["attributed"], finding.metrics["attribution_right"]
    # 18 vectors of the first round, 12 of the second and 6 of what changed: the client's that left are told.
    assert share.value == 12 / 36
    assert "4 of 4 records attributed rightly" in share.reason
    assert right.value == 1.0
    assert right.low is not None
    chance = finding.baseline["attribution_right"].value
    assert chance == pytest.approx(1 / 3)
    assert right.value > chance


def test_one_round_under_secure_aggregation_is_not_attributable(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    method = FedCGS(secure_aggregation="all")
    finding = assessed(make_context, make_task(clients=3, records=18), method, GramFactorization())[
        "gram_factorization"
    ]
    assert finding.metrics["attributed"].value == 0
    assert "nothing is seen of single clients" in finding.metrics["attributed"].reason
    assert finding.metrics["attribution_right"].value is None


@pytest.mark.parametrize("epsilon", [1.0, float("inf")])
def test_features_that_are_always_zero_show_no_rank(
    make_task: MakeTask, make_context: MakeContext, epsilon: float
) -> None:
    """Rectified networks have many: a control client larger than the live ones could not be caught by anybody."""

    def masked(records: Records) -> Records:
        images = records.images.copy()
        images.reshape(len(images), -1)[:, 24:] = 0
        return Records(records.name, images, records.labels, lambda given: given.reshape(len(given), -1) / 255)

    task = make_task(clients=3, records=75, epsilon=epsilon)
    context = make_context(replace(task, clients=tuple(masked(own) for own in task.clients)), FedCGS())
    roles = {name: masked(getattr(context.data, name)) for name in ("control", "fresh", "test", "attacker")}
    finding = _assessed(with_data(context, **roles), MessageAlgebra())["rank"]
    assert finding.verdict == "no_leak_found", finding.reason
    assert controls_hold(finding)


@pytest.mark.long
def test_a_noised_sum_over_clients_has_a_control_of_label_histograms(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    """A sum is one histogram, which no test finds by itself under noise: the control is of several runs."""
    method = FedCGS(noise="central", secure_aggregation="all")
    context = make_context(
        make_task(clients=4, records=360, epsilon=1.0, adjacency="add_remove"), method, bounds=200
    )
    context = replace(context, view=visible(context.outcome, ThreatModel(view="aggregate")))
    finding = _assessed(context, LabelDistribution())["label_histograms"]
    assert finding.verdict == "no_leak_found", finding.reason
    assert finding.limit is not None
    assert finding.controls.positive is not None
    assert finding.controls.positive.n == 7
    blind = _assessed(context, _Blind(LabelDistribution()))["label_histograms"]
    assert blind.verdict == "inconclusive", blind.reason


def test_two_classes_have_a_control_of_label_histograms(make_task: MakeTask, make_context: MakeContext) -> None:
    """Control clients of both classes alike had the public histogram: no estimate of them could be caught."""

    def binary(records: Records) -> Records:
        return records.relabelled(records.labels % 2)

    task = make_task(clients=4, records=160, epsilon=1.0)
    task = replace(task, clients=tuple(binary(own) for own in task.clients), classes=2)
    context = make_context(task, FedCGS())
    roles = {name: binary(getattr(context.data, name)) for name in ("control", "fresh", "test", "attacker")}
    finding = _assessed(with_data(context, classes=2, **roles), LabelDistribution())["label_histograms"]
    assert finding.verdict in ("no_leak_found", "leak"), finding.reason
    assert controls_hold(finding)


class _ClipsWhatItSays:
    """FedCGS of clipped features, which sends five records beside its sums that it did not clip."""

    facts = FedCGS.facts

    def run(self, task: MethodInput) -> Outcome:
        outcome = FedCGS().run(task)
        held = {client.name: client.features[:5].astype(float) for client in task.clients}
        added = {name: {"debug": MessageField(rows, "parameters", exact())} for name, rows in held.items()}
        messages = tuple(
            replace(each, fields={**each.fields, **added.get(each.sender, {})})
            for each in outcome.transcript.messages
        )
        model = FeatureModel(outcome.model.head, transform=clip_features)  # type: ignore[union-attr]
        return replace(outcome, transcript=replace(outcome.transcript, messages=messages), model=model)


class _ReadsDebug:
    """Takes the rows of the field for features."""

    facts = MessageAlgebra.facts

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        del knowledge
        held = [each for each in view.from_clients() if "debug" in each.fields]
        found = [(row, each.sender) for each in held for row in each.fields["debug"].values]
        if not found:
            raise NotRunError("no message holds the field")
        vectors, senders = np.array([row for row, _ in found], np.float32), tuple(name for _, name in found)
        rows = np.arange(len(found))
        return AttackResult(
            "debug", vectors=(VectorSource("debug", vectors, np.full(len(rows), -1), senders, rows),)
        )


def test_features_that_the_method_says_it_clips_leak_as_they_are(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    """Held against clipped features alone they are far from every record, and the attack seems to be too weak."""
    task = make_task(clients=3, records=60)
    assert min(np.linalg.norm(client.features, axis=1).min() for client in task.clients) > 1.5
    finding = assessed(make_context, task, _ClipsWhatItSays(), _ReadsDebug())["debug"]
    assert finding.verdict == "leak", finding.reason
    assert finding.harm is not None
    assert (finding.harm.kind, finding.harm.count) == ("exact", 15)
    assert finding.metrics["relative_error"].value == pytest.approx(0.0, abs=1e-6)
    own = next(control for control in finding.all_controls if control.role == "end_to_end")
    assert own.detected
    # What is clipped is found as before, and what no record is stays what it was.
    assert comes_back(clip_features(task.clients[0].features)[:1].astype(float), plain(task.clients[0])) is False


@pytest.mark.long
def test_an_ensembles_heads_are_compared_with_their_records(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    """Its model is of heads over the backbone, so that features of records are known."""
    task = make_task(clients=12, records=36, backbone="small_cnn_rectified")
    context = make_context(task, EnsembleOfClients())
    context = replace(context, view=visible(context.outcome, context.view.threat))
    finding = _assessed(context, HeadReconstruction(starts=8))["head_reconstruction"]
    assert finding.verdict == "leak"
    assert controls_hold(finding)
