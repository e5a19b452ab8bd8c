"""The memorization audit with generators whose memory is known: all of it, none of it, a little of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from contexts import with_data

from fedassay.audits.memorization import scores as memorization_scores
from fedassay.audits.memorization.audit import MemorizationAudit
from fedassay.audits.memorization.controls import halves
from fedassay.audits.memorization.facts import MOST_SAMPLES
from fedassay.audits.memorization.samples import MostAlike, pictured, sample_metrics
from fedassay.audits.memorization.scores import Search, deal, distinct, match_classes, score
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.data.records import Records
from fedassay.exchange.models import Generator
from fedassay.exchange.transcript import Transcript
from fedassay.exchange.view import ThreatModel
from fedassay.records.record import Finding
from fedassay.similarity.memorization import MemorizationScores
from fedassay.similarity.metrics import make_similarity
from fedassay.similarity.reported import reported_ssim as ssim_of_pairs
from fedassay.support.errors import NothingToReadError
from fedassay.support.progress import SILENT, Progress
from fedassay.support.registry import lookup
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]
QUICK = MemorizationAudit(control_records=24, permutations=500)


@dataclass(frozen=True, eq=False)
class Drawing:
    """Gives back the images it holds, in turn from a random start, with noise of the given spread."""

    images: Images
    spread: float = 0.0

    def sample(self, count: int, seeds: Seeds, progress: Progress) -> Images:
        rng = seeds.numpy("drawing")
        chosen = self.images[(np.arange(count) + rng.integers(len(self.images))) % len(self.images)]
        noisy = chosen + rng.normal(0, self.spread, chosen.shape)
        return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)


@dataclass(frozen=True)
class Recalling:
    """A method whose generators give back what they are overfitted to, by a sampler that may be broken."""

    sampler: Callable[[Images], Generator] = Drawing

    def run(self, task: MethodInput) -> Outcome:
        generators = {client.name: self.sampler(client.images) for client in task.clients}
        return Outcome(Transcript("drawing", 10, ()), None, generators=generators)


@pytest.fixture(scope="module")
def shared() -> dict[str, object]:
    """Control results, which tests of one sampler share."""
    return {}


@pytest.fixture
def assess(
    make_task: MakeTask, make_context: MakeContext, tmp_path: Path, shared: dict[str, object]
) -> Callable[[Mapping[str, Generator]], Finding]:
    task = make_task()

    def run(generators: Mapping[str, Generator]) -> Finding:
        outcome = Outcome(Transcript("drawing", 10, ()), None, generators=generators)
        context = make_context(task, Recalling(), outcome=outcome, bounds=12, folder=tmp_path, shared=shared)
        (finding,) = QUICK.assess(None, context)
        return finding

    return run


def _generators(task: MethodInput, make: Callable[[Records], Generator]) -> dict[str, Generator]:
    return {client.name: make(client) for client in task.clients}


@pytest.mark.long
def test_copies_are_a_leak(assess: Callable[..., Finding], make_task: MakeTask, tmp_path: Path) -> None:
    finding = assess(_generators(make_task(), lambda own: Drawing(own.images)))
    assert finding.verdict == "leak"
    assert finding.metrics["min_distance"].value == 0
    assert finding.metrics["under_threshold"].value == 1500
    assert finding.metrics["copied"].value > 0.5
    assert finding.controls.positive is not None
    assert finding.controls.positive.caught
    assert finding.controls.negative is not None
    assert not finding.controls.negative.flagged
    picture, samples = finding.pictures
    assert (tmp_path / picture.file).exists()
    assert len(picture.columns) == 30
    assert samples.rows == ("private image", "attacker's image", "nearest sample")
    assert [column.metrics["ssim"] for column in samples.columns] == [1.0] * 12
    assert [column.metrics["score"] for column in picture.columns] == [0.0] * 30
    series = finding.series["scores"].columns
    assert len(series["generated"]) == len(series["heldout"]) == 1500
    assert finding.series["clients"].columns["client"] == ("client/0", "client/1", "client/2")


@pytest.mark.long
def test_generators_of_a_domain_of_their_own_do_not_remember(
    make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    """Both are closer to a client's domain, generated and training images; none has seen the other."""

    def inverted(records: Records, step: int) -> Records:
        images = records.images.copy()
        images[::step] = 255 - images[::step]
        return replace(records, images=images)

    task = make_task(clients=2, records=300)
    assert task.public is not None
    domains = (inverted(task.clients[0], 1), task.clients[1])
    generators = {own.name: Drawing(own.images[1::2], 20.0) for own in domains}
    task = replace(
        task,
        clients=tuple(own.take(np.arange(0, len(own), 2)) for own in domains),
        test=inverted(task.test, 2),
        public=inverted(task.public, 2),
    )
    outcome = Outcome(Transcript("drawing", 10, ()), None, generators=generators)
    context = make_context(task, Recalling(), outcome=outcome, bounds=12, folder=tmp_path)
    (finding,) = QUICK.assess(None, context)
    assert finding.verdict == "inconclusive", finding.reason


@pytest.mark.long
def test_a_few_copies_among_fresh_images_are_found(assess: Callable[..., Finding], make_task: MakeTask) -> None:
    """A fifth of a client's images with a little noise, and for the rest images that are not digits at all."""
    task = make_task()

    def some(own: Records) -> Generator:
        rng = np.random.default_rng(0)
        odd = rng.integers(0, 256, (80, *own.images.shape[1:]), dtype=np.uint8)
        return Drawing(np.concatenate([own.images[:20], odd]), spread=5.0)

    finding = assess(_generators(task, some))
    assert finding.verdict == "leak"
    assert finding.metrics["copied"].value == pytest.approx(0.2, abs=0.05)


@pytest.mark.long
def test_images_of_nobody_are_no_leak(assess: Callable[..., Finding], make_task: MakeTask) -> None:
    def noise(own: Records) -> Generator:
        return Drawing(np.random.default_rng(1).integers(0, 256, own.images.shape, dtype=np.uint8))

    finding = assess(_generators(make_task(), noise))
    assert finding.verdict == "no_leak_found"
    assert finding.metrics["under_threshold"].value == 0
    assert "no generated image is a copy" in finding.reason
    assert finding.limit is not None
    assert finding.limit.metric == "share"
    assert 0 < finding.limit.value < 0.2
    assert finding.limit.n > 200


@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "verdict"), [(float("inf"), "leak"), (10.0, "no_leak_found")])
def test_being_closer_without_copies_is_a_leak_where_no_claim_allows_it(
    epsilon: float,
    verdict: str,
    make_task: MakeTask,
    make_context: MakeContext,
    tmp_path: Path,
    shared: dict[str, object],
) -> None:
    """Training images under so much noise that no score counts as a copy, yet each is nearest to its own."""
    task = make_task(epsilon=epsilon)
    outcome = Outcome(
        Transcript("drawing", 10, ()),
        None,
        generators=_generators(task, lambda own: Drawing(own.images, spread=120.0)),
    )
    context = make_context(task, Recalling(), outcome=outcome, bounds=12, folder=tmp_path, shared=shared)
    (finding,) = QUICK.assess(None, context)
    assert finding.metrics["under_threshold"].value == 0
    assert finding.verdict == verdict, finding.reason
    assert "training records lie closer" in finding.reason


@pytest.mark.long
def test_low_scores_alone_are_no_leak(assess: Callable[..., Finding], make_task: MakeTask) -> None:
    """Other clients' digits are near this client's too: many scores under 1, none of them from memory."""
    task = make_task()
    others = {client.name: task.clients[(number + 1) % 3] for number, client in enumerate(task.clients)}
    finding = assess({name: Drawing(other.images) for name, other in others.items()})
    assert finding.metrics["under_threshold"].value > 100
    assert finding.verdict == "inconclusive"
    assert "not of training records more than of others" in finding.reason


def test_methods_without_generators_are_not_audited(assess: Callable[..., Finding]) -> None:
    """That leaves nothing untested, and is said as data."""
    with pytest.raises(NothingToReadError, match="sends no generator") as raised:
        assess({})
    assert raised.value.why.kind == "nothing_to_read"


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedcvae", {"hidden": 32, "local_epochs": 2, "classifier": {"local_epochs": 1}}),
        ("feddiff", {"epochs": 2, "steps": 2, "classifier": {"epochs": 1}}),
    ],
)
def test_every_method_with_a_generator_can_be_asked(
    name: str, settings: dict[str, object], assess: Callable[..., Finding], make_task: MakeTask
) -> None:
    """Hardly trained generators: nothing is given back."""
    outcome = lookup("method", name)(**settings).run(make_task())
    finding = assess(outcome.generators)
    assert finding.metrics["share_under_threshold"].n == 1500
    assert finding.verdict in {"no_leak_found", "inconclusive"}


def constant(images: Images) -> Generator:
    return Drawing(np.full_like(images, 7))


def mean(images: Images) -> Generator:
    return Drawing(np.broadcast_to(images.mean(axis=0).astype(np.uint8), images.shape).copy())


def noise(images: Images) -> Generator:
    return Drawing(np.random.default_rng(1).integers(0, 256, images.shape, dtype=np.uint8))


def wrong_range(images: Images) -> Generator:
    return Drawing((images.astype(np.float64) / 255).astype(np.uint8))


@pytest.mark.long
@pytest.mark.parametrize("sampler", [constant, mean, noise, wrong_range])
def test_a_broken_sampler_is_inconclusive(
    sampler: Callable[[Images], Generator], make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    """What the audited generators remember does not show, and neither does what the control's does."""
    task = make_task()
    context = make_context(task, Recalling(sampler), bounds=12, folder=tmp_path)
    (finding,) = QUICK.assess(None, context)
    assert finding.verdict == "inconclusive", finding.reason
    assert finding.controls.positive is not None
    assert not finding.controls.positive.caught
    assert "24 control records by heart" in finding.reason


@pytest.mark.long
@pytest.mark.parametrize("fault", ["random neighbour", "scale"])
def test_a_broken_search_is_inconclusive(
    fault: str,
    make_task: MakeTask,
    make_context: MakeContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = memorization_scores.memorization_scores
    rng = np.random.default_rng(0)

    def broken(generated: Images, training: Images, **given: object) -> MemorizationScores:
        found = search(generated, training, **given)  # type: ignore[arg-type]
        if fault == "scale":
            return replace(found, scores=255 * found.scores + 2)
        return replace(found, nearest=rng.integers(0, len(training), len(generated)))

    monkeypatch.setattr(memorization_scores, "memorization_scores", broken)
    task = make_task()
    context = make_context(task, Recalling(), bounds=12, folder=tmp_path)
    (finding,) = QUICK.assess(None, context)
    assert finding.verdict == "inconclusive", finding.reason


@pytest.mark.long
@pytest.mark.parametrize("size", [0, 4])
def test_a_small_control_role_is_said(
    size: int, make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    """Silence is no answer then; copies are found all the same."""
    task = make_task()
    for images, verdict in ((noise, "inconclusive"), (Drawing, "leak")):
        context = make_context(task, Recalling(images), bounds=12, folder=tmp_path)
        context = with_data(context, control=context.data.control.take(np.arange(size)))
        (finding,) = QUICK.assess(None, context)
        assert finding.verdict == verdict, finding.reason
        if verdict == "inconclusive":
            assert "data.split.control" in finding.reason
            assert f"at least {8 - size} more" in finding.reason


def test_a_view_without_generators_is_not_audited(
    make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    context = make_context(make_task(), Recalling(), folder=tmp_path)
    context = replace(context, view=replace(context.view, threat=ThreatModel(view="broadcast")))
    with pytest.raises(NothingToReadError, match="broadcast view shows no client's generator"):
        QUICK.assess(None, context)


@pytest.mark.long
def test_generators_of_a_method_are_overfitted_through_its_own_run(
    make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    """FedDiff's smallest generator, trained long enough on a few control records, is caught."""
    task = make_task(clients=2, records=120)
    settings = {"epochs": 500, "label_dropout": 0.0, "steps": 10, "classifier": {"epochs": 1}}
    method = lookup("method", "feddiff")(**settings)
    outcome = Outcome(
        Transcript("drawing", 10, ()), None, generators=_generators(task, lambda own: noise(own.images))
    )
    context = make_context(task, method, outcome=outcome, bounds=12, folder=tmp_path)
    (finding,) = MemorizationAudit(control_records=16, permutations=200).assess(None, context)
    assert finding.controls.positive is not None
    assert finding.controls.positive.caught, finding.reason
    assert finding.verdict == "no_leak_found", finding.reason


def test_the_sample_most_like_each_record_is_measured_beside_records_that_were_never_seen(
    make_task: MakeTask,
) -> None:
    """Block by block as all at once; no more samples are looked at than the audit says."""
    task = make_task(clients=2, records=80)
    similarity = make_similarity(None, Path(), "cpu")
    clients = [MostAlike(own.images[:20], own.images[20:40], "cpu") for own in task.clients]
    drawn = [np.concatenate([own.images[:10], task.test.images[:30]]) for own in task.clients]
    for each, images in zip(clients, drawn, strict=True):
        for start in range(0, 40, 7):
            each.add(images[start : start + 7])
    metrics, baseline = sample_metrics(clients, similarity)
    expected = [
        [ssim_of_pairs(np.repeat(record[None], 40, axis=0), images).max() for record in own.images[:40]]
        for own, images in zip(task.clients, drawn, strict=True)
    ]
    assert metrics["ssim"].value == pytest.approx(np.mean([each[:20] for each in expected]), abs=1e-4)
    assert baseline["ssim"].value == pytest.approx(np.mean([each[20:] for each in expected]), abs=1e-4)
    assert metrics["psnr"].value is not None
    assert metrics["psnr"].value > 50
    assert metrics["lpips"].reason == "similarity.lpips is switched off"
    one = MostAlike(task.clients[0].images[:2], task.clients[0].images[2:4], "cpu")
    one.add(np.concatenate([np.zeros((MOST_SAMPLES, 8, 8, 1), np.uint8), task.clients[0].images[:2]]))
    assert one.measured(similarity)[0]["ssim"].max() < 0.99


def test_half_of_the_pictured_records_are_the_same_whatever_the_samples(make_task: MakeTask) -> None:
    own = make_task(clients=1, records=80).clients[0].images
    similarity = make_similarity(None, Path(), "cpu")
    shown = []
    for samples in (own[:5], own[40:45]):
        alike = MostAlike(own[:60], own[60:], "cpu")
        alike.add(samples)
        rows, columns = pictured([alike], own[60:], 12, similarity)
        assert len(columns) == 12
        for private, sample, column in zip(rows["private image"], rows["nearest sample"], columns, strict=True):
            values = ssim_of_pairs(np.repeat(private[None], 5, axis=0), samples)
            assert column.metrics["ssim"] == pytest.approx(values.max(), abs=1e-4)
            assert np.array_equal(sample, samples[values.argmax()])
        # The records that the samples are copies of come first.
        assert {image.tobytes() for image in rows["private image"][:5]} == {image.tobytes() for image in samples}
        shown.append({image.tobytes() for image in rows["private image"]})
    assert len(shown[0] & shown[1]) >= 6
    rows, _ = pictured([alike], own[:0], 3, similarity)
    assert [(row, len(images)) for row, images in rows.items()] == [("private image", 3), ("nearest sample", 3)]


def test_scores_are_those_of_a_naive_search(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=80)
    own = distinct(task.clients[0])
    unseen = distinct(task.test).without(own)
    matched, held = match_classes(own, unseen, np.random.default_rng(0))
    heldout = unseen.take(held)
    images = np.random.default_rng(2).integers(0, 256, (30, 8, 8, 1), dtype=np.uint8)
    images[:5] = own.images[:5]
    found = score(_Fixed(images), 30, own, matched, heldout, Search(50, 0.5, "cpu", 6), Seeds(0), SILENT)

    def naive(image: np.ndarray, gallery: np.ndarray) -> tuple[float, int]:
        distances = np.sqrt((((image - gallery) / 255.0) ** 2).sum(axis=(1, 2, 3)))
        return distances.min() / (0.5 * np.sort(distances)[:50].mean()), int(distances.argmin())

    floats = images.astype(np.float64)
    expected = [naive(image, own.images)[0] for image in floats]
    np.testing.assert_allclose(found.training, expected, atol=1e-5)
    gallery = np.concatenate([own.images[matched], heldout.images])
    closeness = np.full(len(gallery), 2.0)
    for image in floats:
        value, nearest = naive(image, gallery)
        closeness[nearest] = min(closeness[nearest], value)
    np.testing.assert_allclose(np.concatenate([found.closeness, found.heldout_closeness]), closeness, atol=1e-5)
    np.testing.assert_allclose(found.smallest, np.sort(expected)[:6], atol=1e-5)
    assert np.array_equal(found.nearest[:5], found.generated[:5])


def test_images_are_drawn_and_scored_in_blocks(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more images than a block at a time, and the same scores as all at once."""
    task = make_task(clients=1, records=80)
    own = distinct(task.clients[0])
    unseen = distinct(task.test).without(own)
    matched, held = match_classes(own, unseen, np.random.default_rng(0))
    images = np.random.default_rng(3).integers(0, 256, (35, 8, 8, 1), dtype=np.uint8)
    found = []
    for block in (100, 10):
        monkeypatch.setattr(memorization_scores, "_BLOCK", block)
        source = _InTurn(images)
        search = Search(50, 0.5, "cpu", 6)
        found.append(score(source, 35, own, matched, unseen.take(held), search, Seeds(0), SILENT))
        assert max(source.asked) == min(block, 35)
        assert sum(source.asked) == 35
    whole, parts = found
    np.testing.assert_allclose(parts.training, whole.training, atol=1e-6)
    np.testing.assert_allclose(parts.closeness, whole.closeness, atol=1e-6)
    np.testing.assert_allclose(parts.smallest, whole.smallest, atol=1e-6)
    assert np.array_equal(parts.generated, whole.generated)
    assert np.array_equal(parts.nearest, whole.nearest)


class _InTurn:
    """Gives out its images one after the other, and remembers how many were asked for."""

    def __init__(self, images: Images) -> None:
        self.images = images
        self.asked: list[int] = []

    def sample(self, count: int, seeds: Seeds, progress: Progress) -> Images:
        start = sum(self.asked)
        self.asked.append(count)
        return self.images[start : start + count]


@dataclass(frozen=True, eq=False)
class _Fixed:
    images: Images

    def sample(self, count: int, seeds: Seeds, progress: Progress) -> Images:
        return self.images[:count]


def test_classes_and_halves_match(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=100)
    own, unseen = distinct(task.clients[0]), distinct(task.test)
    rng = np.random.default_rng(0)
    ours, theirs = match_classes(own, unseen, rng)
    assert np.array_equal(np.bincount(own.labels[ours]), np.bincount(unseen.labels[theirs]))
    held = unseen.take(theirs)
    first, second = halves(held, rng)
    assert not np.intersect1d(first, second).size
    assert np.array_equal(np.bincount(held.labels[first]), np.bincount(held.labels[second]))
    assert len(held) / 2 - 5 <= len(first) <= len(held) / 2


@pytest.mark.parametrize("records", [90, 900])
def test_a_held_out_record_is_held_against_one_generator(records: int, make_task: MakeTask) -> None:
    """As many as a client has of each class where there are enough, in proportion otherwise."""
    task = make_task(clients=3, records=records)
    unseen = distinct(task.test)
    dealt = deal(task.clients, unseen, np.random.default_rng(0))
    images = [image.tobytes() for part in dealt for image in part.images]
    assert len(images) == len(set(images)) <= len(unseen)
    if records == 90:
        for own, part in zip(task.clients, dealt, strict=True):
            assert np.array_equal(np.bincount(own.labels, minlength=10), np.bincount(part.labels, minlength=10))
    else:
        assert len(images) > 0.95 * len(unseen)
        assert max(map(len, dealt)) - min(map(len, dealt)) < 25


def test_duplicates_are_dropped(make_task: MakeTask) -> None:
    own = make_task(clients=1, records=30).clients[0]
    twice = own.take(np.concatenate([np.arange(30), np.arange(10)]))
    assert len(distinct(twice)) == len(distinct(own))
    assert len(own.without(own.take(np.arange(5)))) == len(own) - 5
