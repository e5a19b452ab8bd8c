"""Membership of generators that were sent: one log-likelihood of many draws, and what it is worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fedassay.attacks.membership.attack import Membership
from fedassay.attacks.membership.scores import lira_online
from fedassay.attacks.membership.signals import generator_signals
from fedassay.audits.stats.roc import auc
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.membership import Kind, MembershipGame, Shadow, is_member, make_game, visible
from fedassay.contracts.method import Method, MethodInput
from fedassay.data.records import Records
from fedassay.exchange.models import ScoringGenerator
from fedassay.exchange.view import ThreatModel, View
from fedassay.methods.feddiff.method import FedDiff
from fedassay.methods.rivals.fedcvae import FedCVAE
from fedassay.support.progress import SILENT, Progress
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images

pytestmark = pytest.mark.long

MakeTask = Callable[..., MethodInput]
Matrix = NDArray[np.float64]
LEVELS = (0.1, 0.25, 0.5)


@dataclass(frozen=True, eq=False)
class Planted:
    """A generator whose log-losses have a known law.

    A record's hardness, less `gap` where it was trained on, with noise of the training, and at every column with
    noise of training and column together: what only several draws take away.

    Attributes:
        held: The records that it was trained on.
        gap: What training lowers the log-loss of a record by.
        alone: Standard deviation of the noise of a column.
        seeds: Of the training.
    """

    held: Records
    gap: float
    alone: float
    seeds: Seeds

    def sample(self, count: int, seeds: Seeds, progress: Progress) -> Images:
        raise AssertionError

    def losses(self, records: Records, levels: Sequence[float], seeds: Seeds) -> Matrix:
        hardness = 3 * records.images.mean(axis=(1, 2, 3)) / 255
        rng = self.seeds.numpy("losses")
        shift = 0.3 * rng.standard_normal(len(records)) - self.gap * is_member(records, self.held)
        noise = self.alone * rng.standard_normal((len(records), len(levels)))
        return np.asarray(np.exp((hardness + shift)[:, None] + 4 * np.array(levels) + noise))


def _simulated(gap: float, alone: float) -> Callable[[Sequence[Records], Seeds], View]:
    def simulate(clients: Sequence[Records], seeds: Seeds) -> View:
        models = {client.name: Planted(client, gap, alone, seeds.child(client.name)) for client in clients}
        return View((), 10, ThreatModel(), generators=models)

    return simulate


def _asked(
    task: MethodInput, simulate: Callable[[Sequence[Records], Seeds], View], attack: Membership, seed: int = 1
) -> tuple[AttackResult, NDArray[np.bool_], MembershipGame]:
    game = make_game(task.clients, task.test, task.public, simulate, Seeds(seed), classes=10)
    known = Knowledge(task.public, 10, task.backbone, True, Seeds(0), "cpu", SILENT, game=game)
    clients = {client.name: client for client in task.clients}
    truth = np.concatenate([is_member(each, clients[name]) for name, each in game.questions.items()])
    return attack.run(simulate(task.clients, Seeds(seed).child("target")), known), truth, game


def _run(method: Method, task: MethodInput) -> Callable[[Sequence[Records], Seeds], View]:
    def simulate(clients: Sequence[Records], seeds: Seeds) -> View:
        outcome = method.run(replace(task, clients=tuple(clients), seeds=seeds, simulated=True))
        return visible(outcome, ThreatModel())

    return simulate


def _area(scores: Mapping[str, NDArray[np.floating]], truth: NDArray[np.bool_], test: str) -> float:
    found = auc(scores[f"generator/{test}"][~truth], scores[f"generator/{test}"][truth]).value
    assert found is not None
    return found


# The signal.


def test_it_is_the_mean_log_likelihood_a_pixel_of_all_levels_and_draws(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=40)
    model = Planted(task.clients[0], 0.5, 1.0, Seeds(3))
    seen = View((), 10, ThreatModel(), generators={"client/0": model})
    found = generator_signals(seen, "client/0", task.test, LEVELS, 4, Seeds(0))
    assert found.shape == (len(task.test), 1)
    asked = [level for level in LEVELS for _ in range(4)]
    naive = [-0.5 * np.mean(np.log(row)) for row in model.losses(task.test, asked, Seeds(0))]
    np.testing.assert_allclose(found[:, 0], naive)


def test_losses_that_are_nothing_are_no_infinity(make_task: MakeTask) -> None:
    class Perfect(Planted):
        def losses(self, records: Records, levels: Sequence[float], seeds: Seeds) -> Matrix:
            return np.zeros((len(records), 1))

    task = make_task(clients=1, records=40)
    seen = View((), 10, ThreatModel(), generators={"client/0": Perfect(task.clients[0], 0, 0, Seeds(0))})
    found = generator_signals(seen, "client/0", task.test, LEVELS, 2, Seeds(0))
    assert np.isfinite(found).all()
    assert found.min() > 10


# What it is worth.


def test_strangers_to_the_release_have_uniform_p_values(make_task: MakeTask) -> None:
    task, values = make_task(clients=1, records=60), []
    attack = Membership(shadows=8, tests=("lira_online",), draws=2)
    for seed in range(150):
        result, truth, _ = _asked(task, _simulated(0.0, 1.0), attack, seed)
        scores = result.scores["generator/lira_online"]
        values.append(stats.mannwhitneyu(scores[truth], scores[~truth], alternative="greater").pvalue)
    assert stats.kstest(values, "uniform").pvalue > 0.01


def test_draws_take_away_the_noise_of_a_column(make_task: MakeTask) -> None:
    """AUC Phi(gap / sqrt(2 (own + alone / columns))) but for means that few shadows know badly."""
    task = make_task(clients=1, records=300)
    found = {}
    for draws in (1, 16):
        attack = Membership(shadows=24, tests=("lira_online",), draws=draws)
        result, truth, _ = _asked(task, _simulated(0.6, 1.5), attack)
        best = stats.norm.cdf(0.6 / np.sqrt(2 * (0.3**2 + 1.5**2 / (3 * draws))))
        found[draws] = _area(result.scores, truth, "lira_online")
        assert best - 0.08 < found[draws] < best + 0.04
    assert found[16] > found[1] + 0.1


class Asked(NamedTuple):
    """Who is in a generator was asked.

    Attributes:
        task: Its data.
        run: From records of every client and seeds to what a run sends.
        sent: What was asked about.
        result: Of the attack.
        truth: Which candidates are members.
        game: With its shadows.
    """

    task: MethodInput
    run: Callable[[Sequence[Records], Seeds], View]
    sent: View
    result: AttackResult
    truth: NDArray[np.bool_]
    game: MembershipGame

    def again(
        self, sent: View, *tests: str, shadows: dict[tuple[Kind, int], Shadow] | None = None
    ) -> AttackResult:
        """The attack on something else that was sent, by the same shadows, or by others."""
        game = self.game if shadows is None else replace(self.game, kept=shadows)
        known = Knowledge(self.task.public, 10, self.task.backbone, True, Seeds(0), "cpu", SILENT, game=game)
        return Membership(shadows=8, tests=tests).run(sent, known)


def _over_trained(make_task: MakeTask, method: Method, records: int) -> Asked:
    task = make_task(clients=1, records=records)
    run, sent = _run(method, task), []

    def simulate(clients: Sequence[Records], seeds: Seeds) -> View:
        found = run(clients, seeds)
        if clients is task.clients:
            sent.append(found)
        return found

    result, truth, game = _asked(task, simulate, Membership(shadows=8))
    return Asked(task, run, sent[0], result, truth, game)


@pytest.fixture(scope="module")
def denoiser(make_task: MakeTask) -> Asked:
    method = FedDiff.model_validate({"epochs": 50, "steps": 1, "classifier": {"epochs": 1}})
    return _over_trained(make_task, method, 100)


@pytest.fixture(scope="module")
def decoder(make_task: MakeTask) -> Asked:
    method = FedCVAE.model_validate({"local_epochs": 150, "classifier": {"local_epochs": 1}})
    return _over_trained(make_task, method, 80)


def test_an_over_trained_generator_is_told_better_than_by_a_noise_a_level(denoiser: Asked) -> None:
    """At equal shadow releases; what was asked before is losses of one noise at three levels, as a vector."""
    game, truth = denoiser.game, denoiser.truth
    asked, noise = game.questions["client/0"], Seeds(0).child("levels", "client/0")

    def former(seen: View) -> Matrix:
        model = seen.generators["client/0"]
        assert isinstance(model, ScoringGenerator)
        return -model.losses(asked, LEVELS, noise)

    shadows = list(game.kept.values())
    included = np.stack([shadow.included["client/0"] for shadow in shadows])
    before = lira_online(former(denoiser.sent), np.stack([former(shadow.view) for shadow in shadows]), included)
    area = auc(before[~truth], before[truth]).value
    assert area is not None
    assert _area(denoiser.result.scores, truth, "lira_online") > max(0.8, area + 0.03)


@pytest.mark.parametrize("kind", ["denoiser", "decoder"])
def test_who_is_in_no_generator_is_not_told(kind: str, request: pytest.FixtureRequest) -> None:
    told: Asked = request.getfixturevalue(kind)
    assert told.task.public is not None
    size = len(told.task.clients[0])
    held = told.task.public.take(np.arange(size), "client/0")
    result = told.again(told.run((held,), Seeds(1).child("target")), "loss", "lira_online")
    # Three standard deviations of as many on either side.
    for test in ("lira_online", "loss"):
        assert abs(_area(result.scores, told.truth, test) - 0.5) < 3 / np.sqrt(6 * size)


def test_decoders_are_told_by_the_search_for_their_latent_vectors(decoder: Asked) -> None:
    result, truth = decoder.result, decoder.truth
    assert set(result.scores) == {f"generator/{test}" for test in ("loss", "lira_online", "lira_offline", "rmia")}
    assert _area(result.scores, truth, "lira_online") > 0.75
    assert _area(result.scores, truth, "rmia") > 0.6
    # With what was in which release mixed up, nothing is left of it.
    rng = np.random.default_rng(0)
    mixed = {}
    for key, shadow in decoder.game.kept.items():
        wrong = {name: rng.permutation(included) for name, included in shadow.included.items()}
        mixed[key] = replace(shadow, included=wrong)
    broken = decoder.again(decoder.sent, "lira_online", shadows=mixed)
    assert abs(_area(broken.scores, truth, "lira_online") - 0.5) < 0.15
