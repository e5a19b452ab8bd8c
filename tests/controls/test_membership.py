"""The membership audit: leaks are found, claims bound them, and a broken attack is never mistaken for safety."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from contexts import with_data, with_runs

from fedassay.attacks.membership.attack import Membership
from fedassay.audits.membership import statistics
from fedassay.audits.membership.audit import MembershipAudit
from fedassay.audits.membership.controls import MemorizedDiffusion, leaking, memorize
from fedassay.contracts.attack import AttackResult, Knowledge, Note
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.membership import MembershipGame, is_member, make_game, no_questions, visible
from fedassay.contracts.method import Method, MethodInput, Outcome
from fedassay.data.records import Records
from fedassay.exchange.models import label_logits
from fedassay.exchange.release import PrivacyClaim
from fedassay.exchange.view import ThreatModel, View
from fedassay.methods.baselines.fedavg import FedAvg
from fedassay.methods.baselines.raw_features import RawFeatures
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedlog.method import FedLog
from fedassay.methods.fedpft.method import FedPFT
from fedassay.privacy.variants import with_mu
from fedassay.records.record import Finding
from fedassay.support.errors import NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]
Attacker = Callable[[View, Knowledge], AttackResult]

QUICK = Membership(shadows=4, tests=("likelihood_ratio", "lira_online"))
RATIO = Membership(shadows=0, tests=("likelihood_ratio",))
AUDIT = MembershipAudit(trials=0, releases=0)


def assessed(
    context: AuditContext,
    attack: Attacker = QUICK.run,
    audit: MembershipAudit = AUDIT,
    population: Records | None = None,
) -> Mapping[str, Finding]:
    """Findings by source and selection, as the runner would get them."""

    def simulate(clients: Sequence[Records], seeds: Seeds) -> View:
        return visible(context.method.run_on(clients, seeds), context.view.threat)

    own = context.data.attacker
    game = make_game(context.data.clients, context.data.test, population or own, simulate, Seeds(1), classes=10)
    known = Knowledge(own, 10, None, True, Seeds(0), "cpu", SILENT, game=game)

    def ask(view: View, other: MembershipGame | None = None) -> AttackResult:
        return attack(view, known if other is None else replace(known, game=other))

    context = replace(context, view=visible(context.outcome, context.view.threat)).attacked(ask, "test", game)
    return {f"{found.source}/{found.selection}": found for found in audit.assess(ask(context.view), context)}


def controls_hold(finding: Finding) -> bool:
    positive, negative = finding.controls.positive, finding.controls.negative
    return positive is not None and positive.caught and negative is not None and not negative.flagged


def claiming(context: AuditContext, epsilon: float, adjacency: str = "add_remove") -> AuditContext:
    """The same outcome with a claim on it."""
    claim = PrivacyClaim.model_validate(
        {"epsilon": epsilon, "delta": 1e-5, "adjacency": adjacency, "source": "somebody says so"}
    )
    return replace(
        context, outcome=replace(context.outcome, transcript=replace(context.outcome.transcript, claim=claim))
    )


@pytest.mark.parametrize("method", [FedCGS(), FedPFT(components=1), RawFeatures()], ids=lambda m: type(m).__name__)
def test_small_clients_without_noise_leak(make_task: MakeTask, make_context: MakeContext, method: Method) -> None:
    found = assessed(make_context(make_task(clients=2, records=80), method, bounds=50), RATIO.run)
    finding = found["messages/likelihood_ratio"]
    assert finding.verdict == "leak", finding.reason
    assert controls_hold(finding)
    area = finding.metrics["auc"]
    assert area.value is not None
    assert area.low is not None
    assert area.low > 0.75
    assert finding.baseline["auc"].value == pytest.approx(0.5, abs=1e-3)
    assert finding.metrics["tpr_at_0.1pct"].value is None
    assert set(finding.series["roc"].columns) == {"fpr", "tpr", "tpr_low", "tpr_high"}


@pytest.mark.long
def test_noise_at_epsilon_1_stays_under_the_curve(make_task: MakeTask, make_context: MakeContext) -> None:
    task = make_task(clients=2, records=200, epsilon=1.0, adjacency="replace_one_same_label")
    context = make_context(task, FedPFT(components=1), bounds=20)
    found = assessed(context, audit=MembershipAudit(trials=0, releases=2000))
    assert {
        "messages/likelihood_ratio",
        "model/lira_online",
        "informed/worst_case",
        "informed/real_records",
    } <= set(found)
    for finding in found.values():
        assert finding.verdict == "no_leak_found", finding.reason
        assert controls_hold(finding)
    worst, real = (
        found["informed/worst_case"].metrics["auc"].value,
        found["informed/real_records"].metrics["auc"].value,
    )
    assert worst is not None
    assert real is not None
    # What (1, 1e-5) allows at most is 0.73; the tight mechanism's worst neighbours come to 0.57.
    assert 0.5 < real < worst < 0.62
    assert found["informed/worst_case"].baseline["auc"].value == pytest.approx(0.731, abs=1e-3)


def test_a_false_claim_is_exceeded(make_task: MakeTask, make_context: MakeContext) -> None:
    context = claiming(make_context(make_task(clients=2, records=200), FedCGS(), bounds=4), 0.5)
    finding = assessed(context)["messages/likelihood_ratio"]
    assert finding.verdict == "leak", finding.reason
    assert "better than the claim allows" in finding.reason
    assert "two steps" in finding.reason
    observed = finding.metrics["observed"].value
    assert observed is not None
    assert observed > 1


def test_a_loose_claim_cannot_be_tested_with_few_candidates(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    context = claiming(make_context(make_task(clients=2, records=80), FedCGS(), bounds=50), 10.0)
    finding = assessed(context, RATIO.run)["messages/likelihood_ratio"]
    assert finding.verdict == "inconclusive"
    assert "cannot show more than epsilon" in finding.reason


def test_a_guessing_attack_is_inconclusive(make_task: MakeTask, make_context: MakeContext) -> None:
    def guessing(view: View, knowledge: Knowledge) -> AttackResult:
        result = QUICK.run(view, knowledge)
        rng = np.random.default_rng(0)
        return replace(result, scores={name: rng.random(len(each)) for name, each in result.scores.items()})

    for finding in assessed(
        make_context(make_task(clients=2, records=80), FedCGS(), bounds=50), guessing
    ).values():
        assert finding.verdict == "inconclusive"
        assert finding.controls.positive is not None
        assert not finding.controls.positive.caught
        assert "positive control was not caught" in finding.reason


def test_strangers_of_another_kind_are_inconclusive(make_task: MakeTask, make_context: MakeContext) -> None:
    """If strangers look different, candidates are told apart without any release: the fresh release shows it."""
    task = make_task(clients=2, records=160)
    inverted = Records("test", 255 - task.test.images, task.test.labels, task.backbone.extract)
    context = make_context(replace(task, test=inverted), FedCGS(), bounds=20)
    finding = assessed(context)["messages/likelihood_ratio"]
    assert finding.verdict == "inconclusive", finding.reason
    assert finding.controls.negative is not None
    assert finding.controls.negative.flagged


def test_the_truth_is_shuffled_where_nothing_is_fresh_or_halved(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    task = make_task(clients=2, records=80)
    # A client of one record has no halves.
    task = replace(task, clients=(task.clients[0], task.clients[1].take(np.arange(1))))
    context = with_data(make_context(task, FedCGS(), bounds=20), fresh=task.test.take(np.arange(3)))
    finding = assessed(context)["messages/likelihood_ratio"]
    assert finding.verdict == "leak"
    assert finding.controls.negative is not None
    assert "shuffled" in finding.controls.negative.release
    assert not finding.controls.negative.flagged


@pytest.mark.slow
def test_overfitted_networks_leak(make_task: MakeTask, make_context: MakeContext) -> None:
    attack = Membership(shadows=8, tests=("lira_online",))
    context = make_context(make_task(clients=2, records=100), FedAvg(local_epochs=30), bounds=20)
    found = assessed(context, attack.run)
    assert found["model/lira_online"].verdict == "leak", found["model/lira_online"].reason
    assert all(controls_hold(finding) for finding in found.values())


def test_what_cannot_be_scored_is_not_run(make_task: MakeTask, make_context: MakeContext) -> None:
    context = make_context(make_task(clients=2, records=60), FedLog(rounds=1, local_epochs=1))
    found = assessed(context)
    assert found["None/None"].verdict == "not_run"
    assert "clients' own networks" in found["None/None"].reason


def test_without_a_game_nothing_is_run(make_task: MakeTask, make_context: MakeContext) -> None:
    context = make_context(make_task(clients=2, records=60), FedCGS())
    with pytest.raises(NotRunError, match="no candidates"):
        AUDIT.assess(AttackResult("membership"), context.attacked(Membership().run, "test", no_questions()))


@pytest.mark.parametrize("epsilon", [1.0, float("inf")])
def test_clients_of_their_own_domain_are_not_mistaken_for_members(
    make_task: MakeTask, make_context: MakeContext, epsilon: float
) -> None:
    """Whatever is released of a client whose images are inverted tells them from test images that are not."""
    task = make_task(clients=2, records=400, epsilon=epsilon, adjacency="replace_one_same_label")

    def inverted(records: Records, rows: np.ndarray) -> Records:
        images = records.images.copy()
        images[rows] = 255 - images[rows]
        return replace(records, images=images)

    one, two = task.clients
    assert task.public is not None
    mixed = [inverted(part, np.arange(0, len(part), 2)) for part in (task.test, task.public)]
    task = replace(task, clients=(inverted(one, np.arange(len(one))), two), test=mixed[0], public=mixed[1])
    finding = assessed(make_context(task, FedPFT(components=1), bounds=20), RATIO.run)["messages/likelihood_ratio"]
    assert finding.verdict == "inconclusive", finding.reason
    assert "differ without any release" in finding.reason


# The informed adversary.


def test_exact_sums_are_differenced(make_task: MakeTask, make_context: MakeContext) -> None:
    context = make_context(make_task(clients=2, records=60), FedCGS(), bounds=20)
    finding = assessed(context, RATIO.run, MembershipAudit(trials=24))["informed/differencing"]
    assert finding.verdict == "leak", finding.reason
    assert finding.metrics["auc"].value == 1.0
    assert controls_hold(finding)


@pytest.mark.long
def test_too_little_noise_is_caught_on_the_worst_neighbours(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    task = make_task(clients=2, records=60, epsilon=1.0, adjacency="replace_one_same_label")
    context = make_context(task, FedPFT(components=1), bounds=20)
    honest = context.outcome.mechanisms["mixtures"]
    weak: Outcome = replace(context.outcome, mechanisms={"mixtures": with_mu(honest, 2.5 * honest.mu)})
    audit = MembershipAudit(trials=0, releases=4000)
    assert assessed(context, RATIO.run, audit)["informed/worst_case"].verdict == "no_leak_found"
    finding = assessed(replace(context, outcome=weak), RATIO.run, audit)["informed/worst_case"]
    assert finding.verdict == "leak", finding.reason


@pytest.mark.long
def test_records_that_weigh_differently_do_not_fail_the_negative_control(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    task = make_task(clients=2, records=100, epsilon=10.0, adjacency="replace_one_same_label")
    audit = MembershipAudit(trials=0, releases=20_000)
    context = make_context(task, FedPFT(components=1), bounds=20)
    finding = assessed(context, RATIO.run, audit)["informed/real_records"]
    assert finding.verdict == "no_leak_found", finding.reason
    assert controls_hold(finding)


@pytest.mark.long
def test_many_real_records_are_held_against_the_claim_by_the_one_that_is_protected_least(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    """A twentieth of the releases bounds nothing near the claim: that record is asked about as often by itself."""
    task = make_task(clients=2, records=80, epsilon=2.0, adjacency="add_remove")
    context = make_context(task, FedCGS(), bounds=200)
    claim = context.outcome.transcript.claim
    found = statistics.real_records(context, claim, 4000)  # type: ignore[arg-type]
    assert "for 20 of 40 real records in turn" in found.reason
    assert found.metrics["auc"].low > 0.5  # type: ignore[operator]
    assert found.verdict == "no_leak_found", found.reason
    assert found.limit is not None
    assert found.limit.n == 8000
    assert 2.0 < found.limit.value < 4.0
    (name, honest), *_ = context.outcome.mechanisms.items()
    weak = replace(context.outcome, mechanisms={name: with_mu(honest, 10 * honest.mu)})
    leaking = statistics.real_records(replace(context, outcome=weak), claim, 4000)  # type: ignore[arg-type]
    assert leaking.verdict == "leak", leaking.reason


def test_fedlog_is_judged_on_its_worst_neighbours(make_task: MakeTask, make_context: MakeContext) -> None:
    context = make_context(
        make_task(clients=2, records=60, epsilon=1.0), FedLog(rounds=2, local_epochs=1), bounds=20
    )
    found = assessed(context, RATIO.run, MembershipAudit(releases=3000))
    assert found["informed/worst_case"].verdict == "no_leak_found", found["informed/worst_case"].reason
    assert found["informed/real_records"].verdict == "not_run"
    assert "clients' own networks" in found["informed/real_records"].reason


# Canaries.


@pytest.mark.slow
def test_canaries_of_unprotected_training_disprove_a_claim(make_task: MakeTask, make_context: MakeContext) -> None:
    method = FedAvg(local_epochs=80, learning_rate=3e-3)
    context = claiming(make_context(make_task(clients=1, records=30), method, bounds=4), 0.5)
    audit = MembershipAudit(trials=0, releases=0, canaries=200)
    finding = assessed(context, Membership(shadows=0, tests=("loss",)).run, audit)["canaries/one_run"]
    assert finding.verdict == "leak", finding.reason
    assert controls_hold(finding)
    observed = finding.metrics["observed"].value
    assert observed is not None
    assert observed > 0.5
    assert finding.metrics["claimed"].value == 0.5


@pytest.mark.long
def test_canaries_of_private_training_stay_below_the_claim(make_task: MakeTask, make_context: MakeContext) -> None:
    method = FedAvg.model_validate({"local_epochs": 4, "dp_sgd": {"sampling_rate": 0.25}})
    context = make_context(make_task(clients=1, records=60, epsilon=3.0), method, bounds=20)
    audit = MembershipAudit(trials=0, releases=0, canaries=200)
    finding = assessed(context, Membership(shadows=0, tests=("loss",)).run, audit)["canaries/one_run"]
    assert finding.verdict == "no_leak_found", finding.reason
    assert controls_hold(finding)
    observed, accounted = finding.metrics["observed"].value, finding.metrics["accounted"].value
    assert observed is not None
    assert accounted is not None
    assert observed <= accounted <= 3.0 * (1 + 1e-6)
    positive = finding.controls.positive
    assert positive is not None
    assert positive.value is not None
    assert positive.value > 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "adjacency", "epsilon", "why"),
    [
        (FedCGS(), "add_remove", 5.0, "sends no whole classifier"),
        (FedCGS(), "add_remove", float("inf"), "no claim"),
        (FedPFT(components=1), "replace_one_same_label", 5.0, "does not speak of"),
    ],
)
def test_where_canaries_cannot_be_planted(
    make_task: MakeTask, make_context: MakeContext, method: Method, adjacency: str, epsilon: float, why: str
) -> None:
    task = make_task(clients=1, records=60, epsilon=epsilon, adjacency=adjacency)
    audit = MembershipAudit(trials=0, releases=0, canaries=50)
    finding = assessed(make_context(task, method), Membership(shadows=0).run, audit)["canaries/one_run"]
    assert finding.verdict == "not_run"
    assert why in finding.reason


# The controls themselves.


def test_a_memorizer_knows_its_records_and_nothing_else(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=80)
    client = task.clients[0]
    labels = np.random.default_rng(0).integers(0, 10, len(client))
    held = Records("held", client.images, labels, lambda _: client.features)
    model = memorize(held, 10)
    assert (model.scores(held).argmax(axis=1) == labels).all()
    others = label_logits(model, task.test)
    assert label_logits(model, held).min() > 3 > others.mean()


def test_memorized_diffusion_has_no_loss_on_what_it_holds(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=80)
    client = task.clients[0]
    model = MemorizedDiffusion(client.images.reshape(80, -1) / 127.5 - 1, client.images.shape[1:])
    own = model.losses(client, (0.1, 0.25), Seeds(0))
    other = model.losses(task.test.without(client), (0.1, 0.25), Seeds(0))
    assert np.median(own) < 0.05 < 0.5 < np.median(other)
    assert model.sample(3, Seeds(0), SILENT).shape == (3, 8, 8, 1)
    assert is_member(Records("s", model.sample(3, Seeds(0), SILENT), np.zeros(3, np.int64), lambda _: own),
                     Records("c", client.images, np.zeros(80, np.int64), lambda _: own)).all()  # fmt: skip


def test_controls_ask_the_same_questions(make_task: MakeTask, make_context: MakeContext) -> None:
    task = make_task(clients=2, records=60)
    game = make_game(
        task.clients, task.test, task.public, lambda c, s: View((), 10, ThreatModel()), Seeds(1), classes=10
    )
    context = make_context(task, FedCGS()).attacked(RATIO.run, "test", game)
    for source in ("messages", "model", "generator"):
        _, control = leaking(source, context)
        for name, asked in game.questions.items():
            np.testing.assert_array_equal(control.questions[name].images, asked.images)
    _, control = leaking("model", context)
    assert (control.questions["client/0"].labels != game.questions["client/0"].labels).mean() > 0.7


# End-to-end controls, and limits of detection.


def private(
    make_task: MakeTask, make_context: MakeContext, method: FedCGS | None = None, **shared: object
) -> AuditContext:
    """FedCGS at epsilon 1, which gives no members away."""
    task = make_task(clients=2, records=200, epsilon=1.0)
    return make_context(task, method or FedCGS(), bounds=20, **shared)


@pytest.mark.long
def test_silence_comes_with_the_smallest_leak_that_would_have_been_found(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    found = assessed(private(make_task, make_context))
    for finding in found.values():
        assert finding.verdict == "no_leak_found", finding.reason
        assert finding.limit is not None
        assert finding.limit.metric in {"tpr_at_1pct", "tpr_at_10pct"}
        assert 0.01 < finding.limit.value < 1
        assert finding.limit.shift is not None
        assert 0.5 < finding.limit.shift < 0.9
        assert finding.controls.positive is not None
        assert "the method's own run without privacy" in finding.controls.positive.release


@pytest.mark.parametrize("kind", ["class_sum", "span"])
def test_evidence_the_wrong_way_round_is_no_answer(
    make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The features themselves are still told, which alone says nothing of sums and second moments."""
    from fedassay.attacks.membership import signals
    from fedassay.attacks.membership.tracing import evidence

    def flipped(*given: object) -> dict[str, np.ndarray]:
        found = evidence(*given)  # type: ignore[arg-type]
        return {name: -values if name == kind else values for name, values in found.items()}

    monkeypatch.setattr(signals, "evidence", flipped)
    finding = assessed(private(make_task, make_context), RATIO.run)["messages/likelihood_ratio"]
    assert finding.verdict == "inconclusive", finding.reason
    assert "without privacy" in finding.reason
    assert finding.controls.positive is not None
    assert not finding.controls.positive.caught


def _scoring(change: Callable[[np.ndarray, MembershipGame], np.ndarray]) -> Attacker:
    """The attack with its scores changed, wherever it is asked."""

    def run(view: View, knowledge: Knowledge) -> AttackResult:
        result = RATIO.run(view, knowledge)
        assert knowledge.game is not None
        scores = {name: change(np.array(values), knowledge.game) for name, values in result.scores.items()}
        return replace(result, scores=scores)

    return run


def test_every_client_of_the_control_must_be_told(make_task: MakeTask, make_context: MakeContext) -> None:
    """One client's members that are told very well hide that another's are not."""

    def last_client_alike(values: np.ndarray, game: MembershipGame) -> np.ndarray:
        names = np.concatenate([[name] * len(asked) for name, asked in game.questions.items()])
        return np.where(names == max(game.questions), 0.0, values)

    finding = assessed(private(make_task, make_context), _scoring(last_client_alike))["messages/likelihood_ratio"]
    assert finding.verdict == "inconclusive", finding.reason
    assert "but not those of client/" in finding.reason


@pytest.mark.long
def test_a_sum_over_several_clients_must_be_told(make_task: MakeTask, make_context: MakeContext) -> None:
    """Where only a sum is seen, the control asks of several clients at once, as the audit does."""

    def silent_for_several(values: np.ndarray, game: MembershipGame) -> np.ndarray:
        return values if len(game.questions) == 1 else np.zeros_like(values)

    method = FedCGS(secure_aggregation="all")
    context = private(make_task, make_context, method)
    found = assessed(context, _scoring(silent_for_several))["messages/likelihood_ratio"]
    assert found.verdict == "inconclusive", found.reason
    intact = assessed(private(make_task, make_context, method), RATIO.run)["messages/likelihood_ratio"]
    assert intact.verdict == "no_leak_found", intact.reason


@pytest.mark.long
def test_a_source_that_only_the_control_answers_is_said(make_task: MakeTask, make_context: MakeContext) -> None:
    """The audited release is passed over without a word; control records are not."""
    calls: list[View] = []

    def passed_over(view: View, knowledge: Knowledge) -> AttackResult:
        result = QUICK.run(view, knowledge)
        calls.append(view)
        kept = {name: values for name, values in result.scores.items() if name.startswith("model")}
        return replace(result, scores=kept) if len(calls) == 1 else result

    findings = assessed(private(make_task, make_context), passed_over)
    assert findings["messages/None"].verdict == "inconclusive"
    assert "no answer" in findings["messages/None"].reason


@pytest.mark.long
def test_a_source_that_nothing_answers_is_said(make_task: MakeTask, make_context: MakeContext) -> None:
    """The attack gives a source up on every release, as it does where a condition is its opposite."""

    def gives_up(view: View, knowledge: Knowledge) -> AttackResult:
        result = QUICK.run(view, knowledge)
        kept = {name: values for name, values in result.scores.items() if name.startswith("model")}
        return replace(result, scores=kept, notes=(*result.notes, Note("messages: nothing is there", "messages")))

    findings = assessed(private(make_task, make_context), gives_up)
    assert findings["model/lira_online"].verdict != "not_run"
    assert findings["messages/None"].verdict == "not_run"
    assert findings["messages/None"].reason == "messages: nothing is there"
    assert "messages/None" not in assessed(private(make_task, make_context))


def test_an_area_below_one_half_is_no_answer_even_under_noise(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    """The attack works on controls, and is misled on the release."""
    context = private(make_task, make_context)
    calls: list[View] = []

    def misled(view: View, knowledge: Knowledge) -> AttackResult:
        result = RATIO.run(view, knowledge)
        calls.append(view)
        if len(calls) > 1 or knowledge.game is None:  # the audited release comes first
            return result
        owners = {client.name: client for client in context.data.clients}
        truth = np.concatenate(
            [is_member(asked, owners[name]) for name, asked in knowledge.game.questions.items()]
        )
        return replace(result, scores={name: values - 1e6 * truth for name, values in result.scores.items()})

    finding = assessed(context, misled)["messages/likelihood_ratio"]
    assert finding.verdict == "inconclusive", finding.reason
    assert "worse than chance" in finding.reason


def test_too_few_control_records_leave_silence_undecided_and_say_how_many_are_missing(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    context = private(make_task, make_context)
    few = context.data.control.take(np.arange(15))
    finding = assessed(with_data(context, control=few), RATIO.run)["messages/likelihood_ratio"]
    assert finding.verdict == "inconclusive", finding.reason
    assert "45 more in data.split.control would decide" in finding.reason
    exact = make_context(make_task(clients=2, records=80), FedCGS(), bounds=20)
    leak = assessed(with_data(exact, control=few), RATIO.run)["messages/likelihood_ratio"]
    assert leak.verdict == "leak", leak.reason


@pytest.mark.long
def test_cells_that_differ_in_epsilon_share_the_control(make_task: MakeTask, make_context: MakeContext) -> None:
    runs, shared = [], dict[str, object]()
    for epsilon in (1.0, 4.0):
        context = make_context(
            make_task(clients=2, records=120, epsilon=epsilon), FedCGS(), bounds=20, shared=shared
        )

        def counted(clients: Sequence[Records], seeds: Seeds, context: AuditContext = context) -> Outcome:
            runs.append(sum(map(len, clients)))
            return context.method.run_nonprivate(clients, seeds)

        assessed(with_runs(context, run_nonprivate=counted), RATIO.run)
    assert runs == [20, 20]


@pytest.mark.long
def test_exact_releases_are_differenced_against_their_own_shape(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    """Networks of unknown random streams are not told by their distance: raw features would hide that."""
    method = FedAvg(local_epochs=2)
    context = make_context(make_task(clients=2, records=60), method, bounds=20)
    finding = assessed(context, Membership(shadows=0, tests=("loss",)).run, MembershipAudit(trials=10))
    informed = finding["informed/differencing"]
    assert informed.verdict in {"inconclusive", "leak"}, informed.reason


def of_persons(context: AuditContext, each: int = 5) -> AuditContext:
    """The same with persons of so many records, whatever their labels."""

    def owned(records: Records, first: int) -> Records:
        return replace(records, groups=first + np.arange(len(records)) // each)

    clients = tuple(owned(client, 1000 * (1 + place)) for place, client in enumerate(context.data.clients))
    return with_data(context, clients=clients, test=owned(context.data.test, 0))


def test_persons_are_told_from_persons(make_task: MakeTask, make_context: MakeContext) -> None:
    context = of_persons(make_context(make_task(clients=2, records=100), FedCGS(), bounds=13))
    finding = assessed(context, RATIO.run)["messages/likelihood_ratio"]
    assert finding.verdict == "leak", finding.reason
    assert controls_hold(finding)
    persons = finding.metrics["auc"].n
    assert persons is not None
    assert 8 <= persons <= 40
    assert finding.metrics["auc_records"].n == persons
    assert finding.metrics["persons_above_all"].value is not None
    assert "auc_clients" not in finding.metrics
    assert any("persons are distinguished" in line and "up to 5" in line for line in finding.assumptions)


def test_a_score_of_the_person_alone_is_no_leak(make_task: MakeTask, make_context: MakeContext) -> None:
    context = of_persons(make_context(make_task(clients=1, records=150), RawFeatures(), bounds=13), each=15)
    for seed in range(4):

        def by_person(view: View, knowledge: Knowledge, seed: int = seed) -> AttackResult:
            del view
            game = knowledge.game
            assert game is not None
            asked = [
                np.arange(len(each)) if each.groups is None else each.groups for each in game.questions.values()
            ]
            people = np.concatenate(asked)
            scores = [Seeds(seed).numpy("person", int(person)).standard_normal() for person in people]
            return AttackResult("blind", scores={"messages/likelihood_ratio": np.array(scores)})

        assert assessed(context, by_person)["messages/likelihood_ratio"].verdict != "leak"


def test_a_claim_on_records_that_says_nothing_of_persons_is_no_claim(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    context = of_persons(claiming(make_context(make_task(clients=2, records=100), RawFeatures(), bounds=13), 8.0))
    finding = assessed(context, RATIO.run)["messages/likelihood_ratio"]
    assert finding.verdict == "leak", finding.reason
    assert any("nothing is claimed of a person: (80, 1)" in line for line in finding.assumptions)


@pytest.mark.long
@pytest.mark.parametrize("few", [False, True])
def test_a_control_that_few_members_leave_open_is_asked_of_more(
    make_task: MakeTask, make_context: MakeContext, few: bool
) -> None:
    """An attack that tells four pairs of five misses a control of 20 members."""
    rng = np.random.default_rng(2)

    def blurred(values: np.ndarray, game: MembershipGame) -> np.ndarray:
        del game
        return values.argsort().argsort() / len(values) + rng.normal(0, 0.4, len(values))

    context = private(make_task, make_context)
    control = context.data.control
    if few:
        context = with_data(context, control=control.take(np.arange(80)))
    finding = assessed(context, _scoring(blurred))["messages/likelihood_ratio"]
    own = [each for each in finding.all_controls if each.role == "end_to_end"]
    assert (finding.rule == "positive_control_missed") is few
    assert {each.n for each in own} == ({40} if few else {60, 80})


@pytest.mark.long
@pytest.mark.parametrize("method", [FedPFT(components=1), FedAvg(local_epochs=1)], ids=["from sums", "of clients"])
def test_a_model_that_follows_from_seen_messages_is_no_question_of_its_own(
    make_task: MakeTask, make_context: MakeContext, method: Method
) -> None:
    """Where the attack tells nobody by the model alone: clients' own networks hold what is seen nowhere else."""
    rng = np.random.default_rng(2)

    def blind(view: View, knowledge: Knowledge) -> AttackResult:
        result = QUICK.run(view, knowledge)
        scores = {
            name: rng.normal(size=len(values)) if name.startswith("model/") else values
            for name, values in result.scores.items()
        }
        return replace(result, scores=scores)

    context = make_context(make_task(clients=2, records=80), method, bounds=20)
    finding = assessed(context, blind)["model/lira_online"]
    follows = isinstance(method, FedPFT)
    assert finding.verdict == ("not_run" if follows else "inconclusive"), finding.reason
    assert ("follows from the seen messages" in finding.reason) is follows
    assert finding.metrics["auc"].value is not None
