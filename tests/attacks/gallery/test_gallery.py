"""The gallery attack on what methods send: who is in is solved for, and known to be."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.attacks.gallery import answers, solving
from fedassay.attacks.gallery.attack import KEY, Gallery
from fedassay.attacks.gallery.certificate import named, whole
from fedassay.attacks.gallery.solving import _Pivoted, exact_weights
from fedassay.attacks.gallery.system import System, system_of
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.membership import MembershipGame, is_member, make_game, visible
from fedassay.contracts.method import Method, MethodInput
from fedassay.contracts.sizes import Load, Sizes
from fedassay.data.records import Records
from fedassay.exchange.blocks import LinearBlock
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.exchange.view import ThreatModel, View
from fedassay.methods.baselines.raw_features import RawFeatures
from fedassay.methods.closed_forms.afl import AFL
from fedassay.methods.closed_forms.fed3r import Fed3R
from fedassay.methods.closed_forms.fedcof import FedCOF
from fedassay.methods.closed_forms.fedncm import FedNCM
from fedassay.methods.closed_forms.gh_ofl import GHOFL
from fedassay.methods.closed_forms.one_shot_ridge import OneShotRidge
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.feddiff.method import FedDiff
from fedassay.methods.fedlog.method import FedLog
from fedassay.methods.fedpft.method import FedPFT
from fedassay.nets.bodies import BodySpec
from fedassay.support.errors import NothingToReadError, NotRunError
from fedassay.support.progress import SILENT, Progress
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
Matrix = NDArray[np.float64]


def attacked(
    method: Method, task: MethodInput, threat: ThreatModel | None = None, attack: Gallery | None = None
) -> tuple[AttackResult, NDArray[np.bool_]]:
    """The attack on a run of a method, and the truth of every candidate."""
    game = game_of(task)
    seen = visible(method.run(task), threat or ThreatModel())
    result = (attack or Gallery()).run(seen, knowledge(task, game))
    clients = {client.name: client for client in task.clients}
    return result, np.concatenate([is_member(each, clients[name]) for name, each in game.questions.items()])


def game_of(task: MethodInput) -> MembershipGame:
    def simulate(clients: Sequence[Records], seeds: Seeds) -> View:
        raise NotRunError("no shadow is asked for")

    return make_game(task.clients, task.test, task.public, simulate, Seeds(1), classes=10)


def knowledge(task: MethodInput, game: MembershipGame | None) -> Knowledge:
    return Knowledge(task.public, 10, task.backbone, True, Seeds(0), "cpu", SILENT, game=game)


METHODS: dict[str, Method] = {
    "fedcgs": FedCGS(),
    "fedcgs, summed": FedCGS(secure_aggregation="all"),
    "fedcgs, float32": FedCGS(transport="float32"),
    "afl": AFL(transport="float64"),
    "fed3r": Fed3R(),
    "fed3r, random features": Fed3R(random_features=40),
    "gh_ofl": GHOFL(),
    "one_shot_ridge": OneShotRidge(secure_aggregation="all"),
    "fedncm": FedNCM(),
    "fedcof": FedCOF(),
    "fedpft, diag": FedPFT(components=1, covariance="diag", transport="float32"),
    "fedpft, full": FedPFT(components=1, covariance="full", transport="float32"),
    "fedpft, spherical": FedPFT(components=1, covariance="spherical", transport="float32"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_members_are_named_exactly(name: str, make_task: MakeTask) -> None:
    result, truth = attacked(METHODS[name], make_task())
    scores = result.scores[KEY]
    assert np.array_equal(scores > 0.5, truth)
    assert np.array_equal(result.artifacts["named"] == 1, truth)
    assert result.artifacts["whole"].all()


@pytest.mark.parametrize(
    "name", ["fedcgs", "fedcgs, summed", "fedncm", "fedpft, diag", "fedpft, full", "gh_ofl", "afl", "fed3r"]
)
def test_noised_messages_are_solved_without_a_certificate(name: str, make_task: MakeTask) -> None:
    result, _truth = attacked(METHODS[name], make_task(epsilon=8.0))
    assert np.isfinite(result.scores[KEY]).all()
    assert not result.artifacts["whole"].any()


# The solver against dense least squares; tests/calibration/test_gallery_optimum.py has enumeration and ceiling.

WIDTH, LABELS = 12, 3


def drawn(rng: np.random.Generator, count: int) -> tuple[Matrix, NDArray[np.int64]]:
    """Non-negative features and labels of candidates."""
    return np.maximum(rng.standard_normal((count, WIDTH)), 0), rng.integers(0, LABELS, count)


def sums(
    features: Matrix, labels: NDArray[np.int64], inside: NDArray[np.bool_], noise: float = 0.0, seed: int = 0
) -> list[LinearBlock]:
    """Class sums and a second moment as FedCGS has them, with isometric noise."""
    rng, own = np.random.default_rng(seed), features * inside[:, None]
    first = np.stack([own[labels == label].sum(axis=0) for label in range(LABELS)])
    first = first + noise * rng.standard_normal(first.shape)
    lower = np.tril(rng.standard_normal((WIDTH, WIDTH)), -1) / np.sqrt(2)
    second = own.T @ own + noise * (lower + lower.T + np.diag(rng.standard_normal(WIDTH)))
    exactly = np.full(LABELS, 1e-15)
    return [
        LinearBlock("A", "features", 1, True, first, np.full(LABELS, noise), exactly),
        LinearBlock("B", "features", 2, False, second, np.full(1, noise), exactly[:1]),
    ]


def solved(features: Matrix, labels: NDArray[np.int64], blocks: list[LinearBlock]) -> Matrix:
    system = system_of(blocks, features, np.zeros((len(labels), 1, 1, 1), np.uint8), labels, missing=0)
    assert system is not None
    return exact_weights(system).weights


def dense(features: Matrix, labels: NDArray[np.int64], noise: float = 1.0) -> Matrix:
    """Every candidate's numbers as the message has them, off-diagonal products once and times sqrt 2, (p, N)."""
    rows, columns = np.tril_indices(WIDTH)
    factor = np.where(rows == columns, 1.0, np.sqrt(2.0))
    products = features[:, rows] * features[:, columns] * factor
    classes = (labels[:, None] == np.arange(LABELS))[:, :, None] * features[:, None]
    return np.concatenate([classes.reshape(len(labels), -1), products], axis=1).T / noise


@pytest.mark.parametrize("count", [20, 60, 110])
def test_weights_are_those_of_dense_least_squares(count: int) -> None:
    rng = np.random.default_rng(count)
    features, labels = drawn(rng, count)
    inside = rng.random(count) < 0.4
    design = dense(features, labels)
    naive = np.linalg.lstsq(design, design @ inside, rcond=None)[0]
    assert np.abs(solved(features, labels, sums(features, labels, inside)) - naive).max() < 1e-8


def test_boxes_go_on_where_equations_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """114 equations: without boxes nothing is told of 130 candidates, and nothing is certified."""
    rng = np.random.default_rng(0)
    features, labels = drawn(rng, 130)
    inside = rng.random(130) < 0.5
    system = system_of(
        sums(features, labels, inside), features, np.zeros((130, 1, 1, 1), np.uint8), labels, missing=0
    )
    assert system is not None
    found = exact_weights(system)
    assert found.rank == system.equations == 114
    assert found.boxed
    assert found.unique.all()
    assert np.abs(found.weights - inside).max() < 1e-6
    assert whole(system, found, np.ones(130, np.int64))
    design = dense(features, labels)
    assert np.abs(np.linalg.lstsq(design, design @ inside, rcond=None)[0] - inside).max() > 0.25
    monkeypatch.setattr("fedassay.attacks.gallery.solving.BOXED", 0)
    assert not whole(system, exact_weights(system), np.ones(130, np.int64))


def test_weights_that_are_not_unique_are_not_certified(make_task: MakeTask) -> None:
    """Two equal images of one label, of which one is in: one weight stands for both, and names neither."""
    task = make_task(clients=1, records=40)
    twin = task.clients[0].take(np.array([0]))
    game = game_of(task)
    assert game.gallery is not None
    both = Records(
        "gallery",
        np.concatenate([game.gallery.images, twin.images ^ 1]),
        np.concatenate([game.gallery.labels, twin.labels]),
        lambda _: np.concatenate([game.gallery.features, twin.features]),  # type: ignore[union-attr]
    )
    place = next(iter(game.questions.values()))
    row = int(np.flatnonzero(place.among(twin))[0])
    result = Gallery().run(
        visible(FedCGS().run(task), ThreatModel()), knowledge(task, replace(game, gallery=both))
    )
    assert result.artifacts["whole"].all()
    assert result.artifacts["named"][row] == 0
    assert int(result.artifacts["named"].sum()) == 39


def test_conjugate_gradients_give_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    features, labels = drawn(rng, 70)
    inside = rng.random(70) < 0.5
    monkeypatch.setattr("fedassay.attacks.gallery.solving.DENSE", 10)
    assert np.abs(solved(features, labels, sums(features, labels, inside)) - inside).max() < 1e-5


def test_what_is_solved_step_by_step_says_how_long_before_it_starts(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, said = make_task(clients=1, records=60), list[str]()
    monkeypatch.setattr("fedassay.attacks.gallery.cost.DENSE", 100)
    known = replace(knowledge(task, game_of(task)), progress=Progress(tells=said.append))
    Gallery().run(visible(FedCGS().run(task), ThreatModel()), known)
    assert len(said) == 1
    assert "candidates, about " in said[0]


def test_one_class_is_factored_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of ten thousand candidates takes 800 MB: as many as there are classes do not fit in memory."""
    kept: list[weakref.ref[object]] = []
    most, factored = 0, _Pivoted.of

    def followed(kernel: Matrix) -> _Pivoted:
        nonlocal most
        found = factored(kernel)
        kept.append(weakref.ref(found))
        most = max(most, sum(other() is not None for other in kept))
        return found

    monkeypatch.setattr(_Pivoted, "of", staticmethod(followed))
    rng = np.random.default_rng(0)
    features, labels = drawn(rng, 24)
    inside = rng.random(24) < 0.5
    blocks = [block for block in sums(features, labels, inside) if block.by_class]
    system = system_of(blocks, features, np.zeros((24, 1, 1, 1), np.uint8), labels, missing=0)
    assert system is not None
    assert np.array_equal(np.rint(exact_weights(system).weights), inside)
    assert len(kept) == len(np.unique(labels)) > 1
    assert most == 1


def test_a_gallery_without_decoys_is_solved_once(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    solves, weights = [], answers.posterior_weights

    def counted(system: System, share: Matrix) -> Matrix:
        solves.append(system.size)
        return weights(system, share)

    monkeypatch.setattr(answers, "posterior_weights", counted)
    task = make_task(epsilon=8.0)
    attacked(FedCGS(), task, attack=Gallery(decoys=0))
    assert len(solves) == len(task.clients)


def test_the_dry_run_expects_no_kernel_of_many_candidates() -> None:
    def seconds(private: int) -> float:
        sizes = Sizes(private, 0, 0, 0, 0, 10, 10, (8, 8, 1), 512, 0.0)
        assert Gallery.facts.cost is not None
        return Gallery.facts.cost({}, sizes, Load(1, 0.0, 0.0))

    assert seconds(7_001) < 2 * seconds(7_000)
    assert seconds(50_000) < 1_800  # a kernel of 100,000 candidates would take 80 GB, and its factor 2 hours


def test_the_dry_run_counts_the_smaller_kernel_or_the_columns_of_steps() -> None:
    def held(private: int, width: int) -> float:
        assert Gallery.facts.holds is not None
        return Gallery.facts.holds({}, Sizes(private, 0, 0, 0, 0, 10, 10, (8, 8, 1), width, 0.0))

    assert held(5_000, 512) > 8 * 10_000**2
    # Of 64 features there are 2,730 equations, whatever the number of candidates.
    assert 8 * 2_730**2 < held(50_000, 64) < 2**29
    assert 1.6e9 < held(50_000, 512) < 8 * 100_000**2 / 10


def test_a_kernel_is_factored_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    given, factored = list[Matrix](), solving.cho_factor

    def followed(kernel: Matrix, **more: Any) -> Any:
        found = factored(kernel, **more)
        given.append(found[0] if np.shares_memory(kernel, found[0]) else np.zeros(0))
        return found

    monkeypatch.setattr(solving, "cho_factor", followed)
    features, labels = drawn(np.random.default_rng(0), 30)
    blocks = sums(features, labels, labels > 0, noise=1.0)
    system = system_of(blocks, features, np.zeros((30, 1, 1, 1), np.uint8), labels, missing=0)
    assert system is not None
    solving.posterior_weights(system, np.full(30, 0.5))
    assert [len(each) for each in given] == [30]


def area(scores: Matrix, inside: NDArray[np.bool_]) -> float:
    above = (scores[inside][:, None] > scores[~inside]).mean() + (
        scores[inside][:, None] == scores[~inside]
    ).mean() / 2
    return float(above)


def test_decoys_bound_false_names() -> None:
    rng = np.random.default_rng(0)
    decoys = np.arange(3000) >= 2000
    for _ in range(50):
        assert not named(rng.standard_normal(3000), decoys).any()
    found = named(rng.standard_normal(3000) + 6.0 * (np.arange(3000) < 1000), decoys)
    assert found[:1000].mean() > 0.9
    assert found[1000:2000].sum() <= 0.02 * found.sum()


def test_a_stranger_s_message_is_not_certified(make_task: MakeTask) -> None:
    """Members absent from the gallery, and a gallery that another backbone has seen."""
    task = make_task(clients=1, records=60)
    game = game_of(task)
    assert game.gallery is not None
    others = game.gallery.without(*task.clients)
    seen = visible(FedCGS().run(task), ThreatModel())
    for gallery in (others, Records("gallery", game.gallery.images, game.gallery.labels, _another)):
        result = Gallery().run(seen, knowledge(task, replace(game, gallery=gallery)))
        assert not result.artifacts["whole"].any()
        assert not result.artifacts["named"].any()


def _another(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    mixed = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    return np.maximum(images.reshape(len(images), -1).astype(np.float32) / 255 @ mixed, 0)


def test_a_declaration_of_its_own_is_read(make_task: MakeTask) -> None:
    """A stranger's method whose fields no kind describes: cubes of features, summed over all records."""
    task = make_task(clients=1, records=30)
    game, total = game_of(task), (task.clients[0].features.astype(np.float64) ** 3).sum(axis=0)

    def enters(message: Message, classes: int) -> list[LinearBlock]:
        none = np.zeros(1)
        return [LinearBlock("cubes", lambda rows: np.asarray(rows, np.float64) ** 3, 1, False, total, none, none)]

    few = game.gallery.take(
        np.flatnonzero(game.gallery.among(*task.clients) | (np.arange(len(game.gallery)) < 15))
    )  # type: ignore[union-attr]
    message = Message(0, "client/0", SERVER, {"cubes": MessageField(total, "other", exact())})
    seen = View((message,), 10, ThreatModel(), enters=enters)
    result = Gallery(decoys=0).run(seen, knowledge(task, replace(game, gallery=few)))
    members = is_member(game.questions["client/0"], task.clients[0])
    known = ~np.isnan(result.scores[KEY])
    assert result.artifacts["whole"][known].all()
    assert np.array_equal(result.artifacts["named"][known] == 1, members[known])


def test_half_a_gallery_ranks_members_above_others(make_task: MakeTask) -> None:
    result, truth = attacked(FedCGS(), make_task(clients=1, records=300), attack=Gallery(coverage=0.6))
    scores = result.scores[KEY]
    known = ~np.isnan(scores)
    assert 0.4 < known.mean() < 0.8
    assert not result.artifacts["whole"].any()
    assert area(scores[known], truth[known]) > 0.65


def test_nothing_to_read_is_said(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=30)
    with pytest.raises(NotRunError, match="no message is a sum"):
        Gallery().run(
            View((Message(0, "client/0", SERVER, {}),), 10, ThreatModel()), knowledge(task, game_of(task))
        )


def test_features_that_are_sent_name_their_records(make_task: MakeTask) -> None:
    result, truth = attacked(RawFeatures(), make_task(clients=2, records=60))
    assert np.array_equal(result.artifacts["named"] == 1, truth)


def test_magnitudes_are_solved_for_beside_a_network_that_is_sent(make_task: MakeTask) -> None:
    """64 pixels tell 34 numbers, fewer than the 40 candidates: boxes still name who is in."""
    task = make_task(clients=2, records=20)
    result, truth = attacked(FedDiff(epochs=1, steps=2, fmf="gaussian"), task, attack=Gallery(candidates="asked"))
    assert np.array_equal(result.artifacts["named"] == 1, truth)


def test_public_bodies_are_no_secret_and_each_round_adds_equations(make_task: MakeTask) -> None:
    """Who holds public records trains the bodies again; T of one round has fewer numbers than candidates."""
    task = make_task(clients=2, records=120, epsilon=1e8)
    for rounds in (1, 5):
        result, truth = attacked(FedLog(rounds=rounds), task)
        assert np.array_equal(result.scores[KEY] > 0.5, truth) == (rounds == 5)
        assert not result.artifacts["whole"].any()


def test_a_sum_over_clients_is_solved_where_all_have_one_public_body(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=120, epsilon=1e8)
    central = FedLog(rounds=2, noise="central")
    result, _ = attacked(central, task)
    assert "630 equations" in result.notes[0]
    two = central.model_copy(update={"bodies": (BodySpec(name="mlp"),) * 2})
    with pytest.raises(NothingToReadError):
        attacked(two, task)


def test_bodies_of_private_records_stay_unknown(make_task: MakeTask) -> None:
    with pytest.raises(NothingToReadError, match="clients' own networks"):
        attacked(FedLog(rounds=1, local_epochs=1), make_task(clients=2, records=60))
