"""Membership attack: formulas against naive ones, scores on real releases, and what happens when it is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import multivariate_normal, norm

from fedassay.attacks.membership.attack import Membership
from fedassay.attacks.membership.scores import lira_offline, lira_online, rmia
from fedassay.attacks.membership.tracing import class_sum_ratio, range_evidence
from fedassay.audits.membership.controls import MemorizedDiffusion
from fedassay.audits.stats.roc import auc
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.membership import MembershipGame, is_member, make_game, visible
from fedassay.contracts.method import Method, MethodInput
from fedassay.data.records import Records
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import MessageField
from fedassay.exchange.view import ThreatModel, View
from fedassay.methods.baselines.fedavg import FedAvg
from fedassay.methods.baselines.raw_features import RawFeatures
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedlog.method import FedLog
from fedassay.methods.fedpft.method import FedPFT
from fedassay.mixtures.population import Population, population_of
from fedassay.support.errors import NotRunError
from fedassay.support.progress import SILENT, Progress
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
Matrix = NDArray[np.float64]
QUICK = Membership(shadows=8)


def asked(
    method: Method, task: MethodInput, *, threat: ThreatModel | None = None, attack: Membership = QUICK
) -> tuple[AttackResult, NDArray[np.bool_], MembershipGame]:
    """The attack on a run of a method, and the truth of every candidate."""
    threat = threat or ThreatModel()

    def simulate(clients: Sequence[Records], seeds: Seeds) -> View:
        return visible(method.run(replace(task, clients=tuple(clients), seeds=seeds, simulated=True)), threat)

    game = make_game(task.clients, task.test, task.public, simulate, Seeds(1), classes=10)
    result = attack.run(visible(method.run(task), threat), knowledge(task, game))
    return result, truth_of(game, task), game


def knowledge(task: MethodInput, game: MembershipGame | None) -> Knowledge:
    return Knowledge(task.public, 10, task.backbone, True, Seeds(0), "cpu", SILENT, game=game)


def truth_of(game: MembershipGame, task: MethodInput) -> NDArray[np.bool_]:
    clients = {client.name: client for client in task.clients}
    return np.concatenate([is_member(each, clients[name]) for name, each in game.questions.items()])


def areas(result: AttackResult, truth: NDArray[np.bool_]) -> Mapping[str, float]:
    found = {}
    for name, scores in result.scores.items():
        known = ~np.isnan(scores)
        value = auc(scores[known & ~truth], scores[known & truth]).value
        assert value is not None
        found[name] = value
    return found


# The law of class sums.


def people_of(dim: int, seed: int, errors: float = 0.0) -> Population:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((dim, dim))
    values, vectors = np.linalg.eigh(root @ root.T + 0.1 * np.eye(dim))
    return Population(rng.standard_normal((2, dim)), np.full(2, errors), values, vectors)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(2, 40), noise=st.floats(0.01, 3), seed=st.integers(0, 1000), errors=st.floats(0, 0.2))
def test_the_likelihood_ratio_is_that_of_two_gaussians(n: int, noise: float, seed: int, errors: float) -> None:
    people, rng = people_of(4, seed, errors), np.random.default_rng(seed)
    sums, features, labels = (
        rng.standard_normal((2, 4)) * n,
        rng.standard_normal((5, 4)),
        np.array([0, 1, 0, 1, 1]),
    )
    found = class_sum_ratio(np.full(2, float(n)), sums, np.full(2, noise**2), features, labels, people)
    for row, (feature, label) in enumerate(zip(features, labels, strict=True)):
        mean, known = people.means[label], errors * people.covariance
        white = noise**2 * np.eye(4)
        outside = multivariate_normal(n * mean, n * people.covariance + n**2 * known + white)
        inside = multivariate_normal(
            feature + (n - 1) * mean, (n - 1) * people.covariance + (n - 1) ** 2 * known + white
        )
        naive = inside.logpdf(sums[label]) - outside.logpdf(sums[label])
        assert found[row] == pytest.approx(naive, rel=1e-6, abs=1e-6)


@pytest.mark.long
def test_a_likelihood_ratio_has_mean_one_for_strangers() -> None:
    """E[exp(score)] is 1 under the law without the record, whatever the record: no ratio that is off passes."""
    people, n, rng = people_of(3, 0), 6, np.random.default_rng(0)
    root = people.vectors * np.sqrt(people.values)
    feature, scores = people.means[0] + 0.7 * root.sum(axis=1), np.empty(20_000)
    for trial in range(len(scores)):
        total = n * people.means[0] + np.sqrt(n) * root @ rng.standard_normal(3) + 0.5 * rng.standard_normal(3)
        scores[trial] = class_sum_ratio(
            np.full(2, float(n)), np.tile(total, (2, 1)), np.full(2, 0.25), feature[None], np.array([0]), people
        )[0]
    ratios = np.exp(scores)
    assert abs(ratios.mean() - 1) < 4 * ratios.std() / np.sqrt(len(ratios))


def test_a_record_alone_in_its_class_is_told_with_certainty() -> None:
    people = people_of(4, 0)
    features = np.random.default_rng(0).standard_normal((6, 4))
    scores = class_sum_ratio(
        np.array([1.0, 0.0]), np.stack([features[0], np.zeros(4)]), np.full(2, 1e-20), features,
        np.array([0, 0, 0, 0, 1, 1]), people,
    )  # fmt: skip
    assert scores[0] > 20
    assert (scores[1:4] < -1e6).all()
    assert scores[4] == scores[5] == scores[1:4].min()


def test_the_population_is_its_own_law() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 4000)
    features = rng.standard_normal((4000, 3)) * [1, 2, 3] + 5 * labels[:, None]
    people = population_of(features, labels, 3)
    np.testing.assert_allclose(people.covariance, np.diag([1, 4, 9]), atol=0.6)
    np.testing.assert_allclose(people.means[:2], [[0, 0, 0], [5, 5, 5]], atol=0.3)
    np.testing.assert_allclose(people.means[2], features.mean(axis=0))


def test_records_of_a_second_moment_lie_in_its_range() -> None:
    rng = np.random.default_rng(0)
    inside, outside = rng.random((10, 30)), rng.random((10, 30))
    both = np.concatenate([inside, outside])
    found = range_evidence(MessageField(inside.T @ inside, "second_moment", exact()), both)
    assert found["span"][:10].min() > 10
    assert found["span"][10:].max() < 2
    # A record's leverage in its own second moment is at most 1.
    assert found["leverage"][:10].min() >= -1e-6
    assert found["leverage"][10:].max() < -5
    many = rng.random((60, 30))
    full = range_evidence(MessageField(many.T @ many, "second_moment", exact()), both)
    assert "span" not in full
    naive = np.einsum("nd,de,ne->n", both, np.linalg.inv(many.T @ many), both)
    np.testing.assert_allclose(full["leverage"], -np.log10(naive), rtol=1e-5, atol=1e-6)


# Scores from shadows.


def shadow_signals(
    n: int, count: int, shift: float, seed: int = 0
) -> tuple[Matrix, Matrix, NDArray[np.bool_], NDArray[np.bool_]]:
    """Target and shadow signals of candidates that differ widely in difficulty, and who was in."""
    rng = np.random.default_rng(seed)
    hardness, members = 5 * rng.standard_normal(n), rng.random(n) < 0.5
    included = rng.random((count, n)) < 0.5
    shadows = hardness + shift * included + rng.standard_normal((count, n))
    target = hardness + shift * members + rng.standard_normal(n)
    return target[:, None], shadows[..., None], included, members


def test_lira_with_many_shadows_is_carlinis_ratio() -> None:
    target, shadows, included, _ = shadow_signals(20, 200, 1.0)
    found = lira_online(target, shadows, included)
    for i in range(20):
        inside, outside = shadows[included[:, i], i, 0], shadows[~included[:, i], i, 0]
        naive = norm.logpdf(target[i, 0], inside.mean(), inside.std(ddof=1)) - norm.logpdf(
            target[i, 0], outside.mean(), outside.std(ddof=1)
        )
        assert found[i] == pytest.approx(naive, rel=0.02, abs=0.02)


def test_lira_with_few_shadows_pools_variances() -> None:
    target, shadows, included, _ = shadow_signals(400, 8, 1.0)
    found = lira_online(target, shadows, included)
    usable = (included.sum(axis=0) >= 2) & ((~included).sum(axis=0) >= 2)
    assert (found[~usable] == 0).all()
    i = int(np.flatnonzero(usable)[0])
    inside, outside = shadows[included[:, i], i, 0].mean(), shadows[~included[:, i], i, 0].mean()
    naive = norm.logpdf(target[i, 0], inside, 1) - norm.logpdf(target[i, 0], outside, 1)
    assert found[i] == pytest.approx(naive, abs=0.3)


@pytest.mark.parametrize("test", ["lira_online", "lira_offline", "rmia"])
def test_shadows_beat_one_threshold_for_all(test: str) -> None:
    target, shadows, included, members = shadow_signals(2000, 16, 2.0)
    rng = np.random.default_rng(1)
    without = shadows - 2.0 * included[..., None]
    if test == "lira_online":
        scores = lira_online(target, shadows, included)
    elif test == "lira_offline":
        scores = lira_offline(target, without)
    else:
        hardness = 5 * rng.standard_normal(300)
        scores = rmia(
            target[:, 0], without[..., 0], hardness + rng.standard_normal(300),
            hardness + rng.standard_normal((16, 300)),
        )  # fmt: skip
    ours, plain = auc(scores[~members], scores[members]), auc(target[~members, 0], target[members, 0])
    assert plain.high is not None
    assert ours.low is not None
    assert plain.high < 0.7 < 0.8 < ours.low


def test_lira_breaks_when_inclusions_are_wrong() -> None:
    target, shadows, included, members = shadow_signals(2000, 16, 2.0)
    shuffled = np.random.default_rng(0).permutation(included, axis=1)
    wrong = lira_online(target, shadows, shuffled)
    inverted = lira_online(target, shadows, ~included)
    assert auc(inverted[~members], inverted[members]).high < 0.2  # type: ignore[operator]
    assert abs(auc(wrong[~members], wrong[members]).value - 0.5) < 0.06  # type: ignore[operator]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.floats(0.1, 10), move=st.floats(-5, 5))
def test_lira_does_not_depend_on_the_unit_of_signals(seed: int, scale: float, move: float) -> None:
    target, shadows, included, _ = shadow_signals(30, 8, 1.0, seed)
    first = lira_online(target, shadows, included)
    second = lira_online(scale * target + move, scale * shadows + move, included)
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), gamma=st.floats(1, 4), scale=st.one_of(st.none(), st.floats(0, 1)))
def test_rmia_is_the_share_of_population_records_beaten(seed: int, gamma: float, scale: float | None) -> None:
    rng = np.random.default_rng(seed)
    chances = [rng.random(shape) for shape in (12, (5, 12), 40, (5, 40))]
    logs = [np.log(each) for each in chances]
    found = rmia(logs[0], logs[1], logs[2], logs[3], gamma=gamma, offline_scale=scale)
    for i in range(12):
        beaten = 0
        for j in range(40):
            priors = [chances[1][:, i].mean(), chances[3][:, j].mean()]
            if scale is not None:
                priors = [((1 + scale) * prior + 1 - scale) / 2 for prior in priors]
            beaten += (chances[0][i] / priors[0]) / (chances[2][j] / priors[1]) > gamma
        assert found[i] == pytest.approx(beaten / 40, abs=0.5 / 40)


# The whole attack on real releases.


def test_small_clients_of_exact_statistics_are_caught(make_task: MakeTask) -> None:
    result, truth, _ = asked(FedCGS(), make_task(clients=3, records=75))
    found = areas(result, truth)
    assert found["messages/likelihood_ratio"] > 0.99
    assert found["messages/lira_online"] > 0.99
    assert found["model/lira_online"] > 0.7
    assert result.artifacts["clients"].shape == truth.shape


def test_statistics_of_many_records_are_still_told_by_leverage(make_task: MakeTask) -> None:
    result, truth, _ = asked(FedCGS(), make_task(clients=2, records=240))
    assert areas(result, truth)["messages/likelihood_ratio"] > 0.65


@pytest.mark.parametrize("components", [1, 5])
def test_mixtures_are_caught(make_task: MakeTask, components: int) -> None:
    result, truth, _ = asked(FedPFT(components=components), make_task(clients=2, records=80))
    assert areas(result, truth)["messages/likelihood_ratio"] > 0.85


def test_features_are_caught_without_shadows(make_task: MakeTask) -> None:
    attack = Membership(shadows=0)
    result, truth, _ = asked(RawFeatures(), make_task(clients=2, records=80), attack=attack)
    assert areas(result, truth)["messages/likelihood_ratio"] == 1.0
    assert areas(result, truth)["messages/joint"] == 1.0
    assert set(result.scores) == {"messages/likelihood_ratio", "messages/joint", "model/loss"}
    assert any("needs at least 4 shadow releases" in note for note in result.notes)


def test_noise_hides_members(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=160, epsilon=1.0, adjacency="replace_one_same_label")
    result, truth, _ = asked(FedPFT(components=1), task)
    assert all(abs(area - 0.5) < 0.14 for area in areas(result, truth).values())


@pytest.mark.long
def test_networks_are_caught_and_the_average_less_so(make_task: MakeTask) -> None:
    task = make_task(clients=3, records=150)
    attack = Membership(shadows=8, tests=("loss", "lira_online"))
    own = areas(*asked(FedAvg(local_epochs=30), task, attack=attack)[:2])
    average = areas(*asked(FedAvg(local_epochs=30), task, threat=ThreatModel(view="broadcast"), attack=attack)[:2])
    assert own["model/lira_online"] > max(0.7, own["model/loss"])
    assert average["model/lira_online"] < own["model/lira_online"]


def test_shuffled_shadows_break_lira(make_task: MakeTask) -> None:
    """The attack's strength is the shadows': with the wrong inclusions it is no better than chance."""
    task = make_task(clients=3, records=75)
    _, truth, game = asked(FedCGS(), task)
    rng = np.random.default_rng(0)
    for key, shadow in game.kept.items():
        wrong = {name: rng.permutation(included) for name, included in shadow.included.items()}
        game.kept[key] = replace(shadow, included=wrong)
    seen = visible(FedCGS().run(task), ThreatModel())
    found = areas(Membership(shadows=8, tests=("lira_online",)).run(seen, knowledge(task, game)), truth)
    assert abs(found["model/lira_online"] - 0.5) < 0.15


def test_an_aggregate_answers_for_all_clients(make_task: MakeTask) -> None:
    task = make_task(clients=3, records=45)
    result, truth, _ = asked(FedCGS(secure_aggregation="all"), task)
    assert areas(result, truth)["messages/likelihood_ratio"] > 0.95
    assert not np.isnan(result.scores["messages/likelihood_ratio"]).any()


@pytest.mark.parametrize(("without", "left"), [(2, True), (6, False)])
def test_shadows_that_hold_no_model_are_left_out(make_task: MakeTask, without: int, left: bool) -> None:
    """A server that can fit no head on half of the records, under noise, broadcasts none."""
    task = make_task(clients=2, records=40)
    attack = Membership(shadows=8, tests=("loss", "lira_online"))
    game = asked(FedCGS(), task, attack=attack)[2]
    for key, shadow in sorted(game.kept.items(), key=repr)[:without]:
        seen = [message for message in shadow.view.messages if message.sender != "server"]
        game.kept[key] = replace(shadow, view=replace(shadow.view, messages=tuple(seen), models={}))
    result = attack.run(visible(FedCGS().run(task), ThreatModel()), knowledge(task, game))
    assert set(result.scores) == {"messages/lira_online", "model/loss"} | (
        {"model/lira_online"} if left else set()
    )
    assert not any(np.isnan(scores).any() for scores in result.scores.values())
    says = "model, lira_online: 2 of 8 shadow releases hold what server sends; at least 4 are needed"
    assert (says in result.notes) != left


def test_generators_that_memorized_are_caught(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=60)

    def simulate(clients: Sequence[Records], seeds: Seeds) -> View:
        del seeds
        models = {
            client.name: MemorizedDiffusion(
                client.images.reshape(len(client), -1) / 127.5 - 1, client.images.shape[1:]
            )
            for client in clients
        }
        return View((), 10, ThreatModel(), generators=models)

    game = make_game(task.clients, task.test, task.public, simulate, Seeds(1), classes=10)
    result = QUICK.run(simulate(task.clients, Seeds(0)), knowledge(task, game))
    found = areas(result, truth_of(game, task))
    assert set(found) == {f"generator/{test}" for test in ("loss", "lira_online", "lira_offline", "rmia")}
    assert min(found.values()) > 0.95


@dataclass(frozen=True, eq=False)
class Counting:
    """A generator that counts how often it is asked for losses."""

    inner: MemorizedDiffusion
    calls: Counter[int]

    def sample(self, count: int, seeds: Seeds, progress: Progress) -> NDArray[np.uint8]:
        raise AssertionError

    def losses(self, records: Records, levels: Sequence[float], seeds: Seeds) -> Matrix:
        self.calls[id(self)] += 1
        return self.inner.losses(records, levels, seeds)


@pytest.mark.parametrize("kind", ["online", "offline"])
def test_every_shadow_is_made_once_and_read_once(make_task: MakeTask, kind: str) -> None:
    task, calls = make_task(clients=1, records=60), Counter[int]()

    def simulate(clients: Sequence[Records], seeds: Seeds) -> View:
        del seeds
        kept = clients[0].images.reshape(len(clients[0]), -1) / 127.5 - 1
        model = Counting(MemorizedDiffusion(kept, clients[0].images.shape[1:]), calls)
        return View((), 10, ThreatModel(), generators={clients[0].name: model})

    game = make_game(task.clients, task.test, task.public, simulate, Seeds(1), classes=10)
    tests = ("loss", "lira_online", "lira_offline", "rmia") if kind == "online" else ("lira_offline", "rmia")
    attack, seen = Membership(tests=tests, shadows=8), simulate(task.clients, Seeds(0))
    first = attack.run(seen, knowledge(task, game))
    # The candidates and the population, each of the release and of eight shadows.
    assert {made for made, _ in game.kept} == {kind}
    assert sorted(calls.values()) == [2] * 9
    again = attack.run(simulate(task.clients, Seeds(0)), knowledge(task, game))
    assert sorted(calls.values()) == [2] * 10
    for name, scores in first.scores.items():
        np.testing.assert_array_equal(scores, again.scores[name])
    # Other signals are not taken for these.
    Membership(tests=tests, shadows=8, draws=2).run(seen, knowledge(task, game))
    assert sorted(calls.values()) == [2] + [4] * 9


def test_what_a_shadow_does_to_all_signals_tells_no_candidate() -> None:
    target, shadows, included, _ = shadow_signals(40, 8, 1.0)
    moved = shadows + 100 * np.random.default_rng(0).standard_normal((8, 1, 1))
    found = lira_offline(target, moved, included) - lira_offline(target, shadows, included)
    np.testing.assert_allclose(found, found[0], atol=1e-9)


@pytest.mark.parametrize("count", [12, 80])
def test_lira_offline_compares_with_what_a_candidate_has_where_it_is_out(count: int) -> None:
    target, shadows, included, _ = shadow_signals(30, count, 1.0)
    shadows -= shadows.mean(axis=1, keepdims=True)
    outside = [shadows[~included[:, i], i, 0] for i in range(30)]
    spread = np.array([each.std(ddof=1) for each in outside])
    if count < 64:
        # One number for what being in does, and one mean a candidate: least squares over all signals.
        design = np.concatenate([np.tile(np.eye(30), (count, 1)), included.reshape(-1, 1)], axis=1)
        added = np.linalg.lstsq(design, shadows.reshape(-1), rcond=None)[0][-1]
        outside = [shadows[:, i, 0] - added * included[:, i] for i in range(30)]
        spread[:] = np.sqrt(np.mean([each.var(ddof=1) for each in outside]))
    naive = [(target[i, 0] - each.mean()) / spread[i] for i, each in enumerate(outside)]
    np.testing.assert_allclose(lira_offline(target, shadows, included), naive, rtol=2e-3)


def test_lira_offline_says_nothing_of_who_is_in_every_shadow() -> None:
    target, shadows, included, _ = shadow_signals(30, 12, 1.0)
    included[:, 0], included[1:, 1] = True, True
    found = lira_offline(target, shadows, included)
    assert np.isnan(found[:2]).all()
    assert not np.isnan(found[2:]).any()


def test_generators_that_cannot_score_records_are_left_out(make_task: MakeTask) -> None:
    class Mute:
        def sample(self, count: int, seeds: Seeds, progress: object) -> NDArray[np.uint8]:
            raise AssertionError

    task = make_task(clients=2, records=60)
    game = make_game(
        task.clients, task.test, task.public, lambda c, s: View((), 10, ThreatModel()), Seeds(1), classes=10
    )
    seen = View((), 10, ThreatModel(), generators={"client/0": Mute()})  # type: ignore[dict-item]
    result = QUICK.run(seen, knowledge(task, game))
    assert not result.scores
    assert "speak of single records" in result.notes[0]


def test_nobody_asks(make_task: MakeTask) -> None:
    with pytest.raises(NotRunError, match="no candidates"):
        QUICK.run(View((), 10, ThreatModel()), knowledge(make_task(), None))


def test_statistics_of_private_bodies_cannot_be_asked(make_task: MakeTask) -> None:
    result, _, _ = asked(FedLog(rounds=1, local_epochs=1), make_task(clients=2, records=60))
    assert not result.scores
    assert "clients' own networks" in result.notes[0]


def test_without_records_of_its_own_the_adversary_says_what_it_leaves_out(make_task: MakeTask) -> None:
    task = replace(make_task(clients=2, records=60), public=None)
    result, truth, _ = asked(FedCGS(), task)
    assert set(result.scores) == {
        "messages/likelihood_ratio",
        "messages/joint",
        "messages/lira_online",
        "model/loss",
        "model/lira_online",
        "model/lira_offline",
    }
    assert areas(result, truth)["messages/likelihood_ratio"] > 0.9
    assert any("rmia" in note for note in result.notes)
