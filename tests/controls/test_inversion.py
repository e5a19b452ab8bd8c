"""The inversion audit with attacks whose strength is known, and with the real one on pixels as features."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quick_similarity import psnr

from fedassay.attacks.feature_inversion import FeatureInversion
from fedassay.attacks.gram.attack import GramFactorization
from fedassay.audits.inversion.audit import InversionAudit
from fedassay.audits.inversion.truth import Pool, RecordMatch, image_match, psnr_table
from fedassay.contracts.attack import AttackResult, Knowledge, Reconstruction
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.membership import MembershipGame, no_questions
from fedassay.contracts.method import Method, MethodInput
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource, sources
from fedassay.exchange.view import View
from fedassay.methods.baselines.raw_features import RawFeatures
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.records.record import Finding
from fedassay.support.errors import NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images

Invert = Callable[[VectorSource], Images]
MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]


def exact(source: VectorSource) -> Images:
    """Inverts features that are pixels in [0, 1]."""
    return np.rint(source.vectors.clip(0, 1) * 255).astype(np.uint8).reshape(-1, 1, 8, 8, 1)


def blind(source: VectorSource) -> Images:
    """Looks at nothing."""
    return np.random.default_rng(0).integers(0, 256, (len(source.vectors), 1, 8, 8, 1)).astype(np.uint8)


def by_class(source: VectorSource) -> Images:
    """Knows the class only: the same picture for all of it, whatever the vector."""
    return np.stack([np.random.default_rng(int(c)).integers(0, 256, (1, 8, 8, 1)) for c in source.labels]).astype(
        np.uint8
    )


def findings(
    task: MethodInput, method: Method, invert: Invert, make_context: MakeContext, folder: Path, **changes: Any
) -> dict[str | None, Finding]:
    def attack(
        seen: View, game: MembershipGame | None = None, *, rerun_previous_attacks: bool = False
    ) -> AttackResult:
        made = tuple(Reconstruction(source, invert(source)) for source in sources(seen, np.random.default_rng(0)))
        left = {f"misfit/{item.source.name}": np.zeros(len(item.images)) for item in made}
        return AttackResult("feature_inversion", reconstructions=made, scores=left)

    context = replace(make_context(task, method, bounds=6, folder=folder), **changes)
    own = context.attacked(attack, "test", no_questions())
    found = InversionAudit(permutations=400, pictures=4).assess(attack(context.view), own)
    return {finding.source: finding for finding in found}


def test_an_exact_inversion_of_raw_features_is_a_leak(
    make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    finding = findings(make_task(records=120), RawFeatures(), exact, make_context, tmp_path)["raw"]
    assert finding.verdict == "leak", finding.reason
    assert finding.selection == "own"
    assert finding.metrics["psnr"].value == 100
    assert finding.metrics["ssim"].value == pytest.approx(1)
    assert finding.metrics["lpips"].reason == "not asked for"
    assert finding.metrics["psnr_gain"].low is not None
    assert finding.metrics["psnr_gain"].low > 50
    assert finding.controls.positive is not None
    assert finding.controls.positive.caught
    assert finding.controls.negative is not None
    assert not finding.controls.negative.flagged
    assert abs(finding.controls.negative.value or 0) < 3
    assert (tmp_path / finding.pictures[0].file).is_file()


@pytest.mark.parametrize("invert", [blind, by_class])
@pytest.mark.parametrize("method", [RawFeatures(), FedCGS()])
def test_a_broken_attack_is_inconclusive_never_safe(
    method: Method, invert: Invert, make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    """Pictures of the class alone are no sign of a record either."""
    for finding in findings(make_task(records=60), method, invert, make_context, tmp_path).values():
        assert finding.verdict == "inconclusive"
        assert "too weak" in finding.reason


def test_means_of_many_records_are_not_a_leak_and_of_few_are(
    make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    many = findings(make_task(clients=1, records=600), FedCGS(), exact, make_context, tmp_path)["class_means"]
    assert many.verdict == "no_leak_found", many.reason
    assert many.selection == "nearest"
    assert "positive control was caught" in many.reason
    few = findings(make_task(clients=20, records=100), FedCGS(), exact, make_context, tmp_path)["class_means"]
    assert few.verdict == "leak", few.reason
    each = few.metrics["psnr_each"].value
    assert each is not None
    assert each < (few.metrics["psnr"].value or 0)


def test_pictures_of_other_records_are_not_flagged(
    make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    """The attack works, and what it is held against is somebody else's."""
    task = make_task(records=90)
    client = task.clients[0]
    other = RawFeatures().run(replace(task, clients=(client,)))
    elsewhere = replace(task, clients=(replace(task.clients[1], name=client.name),))

    def attack(seen: View) -> AttackResult:
        made = Reconstruction(source := sources(seen, np.random.default_rng(0))[0], exact(source))
        return AttackResult("", reconstructions=(made,), scores={"misfit/raw": np.zeros(len(made.images))})

    context = make_context(elsewhere, RawFeatures(), outcome=other, folder=tmp_path).attacked(
        attack, "test", no_questions()
    )
    (finding,) = InversionAudit(permutations=400).assess(attack(context.view), context)
    assert finding.verdict == "no_leak_found", finding.reason


def _domains(task: MethodInput) -> MethodInput:
    """One client's images inverted, and every other one of the test's."""

    def inverted(records: Records, step: int) -> Records:
        images = records.images.copy()
        images[::step] = 255 - images[::step]
        return replace(records, images=images)

    one, two = task.clients
    return replace(task, clients=(inverted(one, 1), two), test=inverted(task.test, 2))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("epsilon", [5.0, float("inf")])
def test_clients_of_their_own_domain_are_not_mistaken_for_pictures(
    epsilon: float, seed: int, make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    """Class means of a client's other records are of its domain, as half of the fresh records are not."""
    task = _domains(make_task(clients=2, records=400, epsilon=epsilon, seed=seed))
    released = tuple(client.take(np.arange(1, len(client), 2)) for client in task.clients)
    outcome = FedCGS().run(replace(task, clients=released))
    task = replace(task, clients=tuple(client.take(np.arange(0, len(client), 2)) for client in task.clients))
    seen = make_context(task, outcome=outcome).view
    changes = {"outcome": outcome, "view": seen}
    finding = findings(task, FedCGS(), exact, make_context, tmp_path, **changes)["class_means"]
    assert finding.verdict in {"inconclusive", "no_leak_found"}, finding.reason
    if finding.verdict == "inconclusive":
        assert finding.obstacle is not None
        assert finding.obstacle.kind in {"confounded", "no_power"}
    if finding.obstacle is not None and finding.obstacle.kind == "confounded":
        assert "may differ from fresh ones without any release" in finding.reason
        assert any(each.role == "confounder" and each.detected for each in finding.all_controls)


def test_what_domains_do_not_explain_is_a_leak(
    make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    task = _domains(make_task(clients=2, records=60))
    finding = findings(task, RawFeatures(), exact, make_context, tmp_path)["raw"]
    assert finding.verdict == "leak", finding.reason
    explained, shown = finding.metrics["psnr_gain_others"].value, finding.metrics["psnr_gain"].value
    assert explained is not None
    assert shown is not None
    assert 0 < 2 * explained < shown


def _real(task: MethodInput, context: AuditContext) -> dict[str | None, Finding]:
    known = Knowledge(None, 10, task.backbone, True, Seeds(0), "cpu", SILENT)
    inversion = FeatureInversion(weight=0, steps=100)
    recovered = GramFactorization().run(context.view, known).vectors
    result = inversion.run(context.view, replace(known, recovered=recovered))

    def attack(
        seen: View, game: MembershipGame | None = None, *, rerun_previous_attacks: bool = False
    ) -> AttackResult:
        vectors = GramFactorization().run(seen, known).vectors if rerun_previous_attacks else ()
        return inversion.run(seen, replace(known, recovered=vectors))

    own = context.attacked(attack, "test", no_questions())
    return {finding.source: finding for finding in InversionAudit(permutations=400).assess(result, own)}


@pytest.mark.long
def test_fedcgs_of_few_records_leaks_their_pictures(
    make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    task = make_task(clients=4, records=32, labels_of=[0, 1])
    found = _real(task, make_context(task, FedCGS(), folder=tmp_path))
    assert found["gram_factorization"].verdict == "leak", found["gram_factorization"].reason
    assert (found["gram_factorization"].metrics["psnr"].value or 0) > 20
    assert "from class_means" in found["gram_factorization"].pictures[0].rows


def _dealt_anew(task: MethodInput, seed: int) -> MethodInput:
    """Clients' and test records of classes 0 and 1 dealt out again: exchangeable in every seed, not in one."""
    whole = np.concatenate([client.images for client in (*task.clients, task.test)])
    labels = np.concatenate([client.labels for client in (*task.clients, task.test)])
    usable = np.random.default_rng(seed).permutation(np.flatnonzero(labels <= 1))
    extract = task.test.extract

    def take(name: str, rows: np.ndarray) -> Records:
        return Records(name, whole[rows], labels[rows], extract)

    parts = np.array_split(usable[:48], len(task.clients))
    clients = tuple(take(f"client/{i}", rows) for i, rows in enumerate(parts))
    return replace(task, clients=clients, test=take("test", usable[48:]))


@pytest.mark.long
def test_under_noise_nothing_is_a_leak(make_task: MakeTask, make_context: MakeContext, tmp_path: Path) -> None:
    """Seeds fixed before any was run. One flagged negative control (of six at a level of 0.4 %) is bad luck."""
    verdicts = []
    for seed in range(100, 106):
        task = _dealt_anew(make_task(clients=4, records=400, epsilon=1.0, seed=seed), seed)
        found = _real(task, make_context(task, FedCGS(), bounds=12, folder=tmp_path / str(seed)))
        assert "gram_factorization" not in found
        assert {"class_means", "gram_directions"} & set(found)
        for finding in found.values():
            assert finding.controls.positive is not None
            assert finding.controls.positive.caught
            verdicts.append(finding.verdict)
    assert set(verdicts) <= {"no_leak_found", "inconclusive"}
    assert verdicts.count("no_leak_found") >= 5


@pytest.mark.slow
def test_p_values_of_noised_releases_and_of_negative_controls_are_uniform(
    make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    """Forty deals of the records, the real attack: as many small p-values as there should be."""
    p: dict[str, list[float]] = {"control": [], "means": []}
    for seed in range(200, 240):
        task = _dealt_anew(make_task(clients=4, records=400, epsilon=1.0, seed=seed), seed)
        inversion = FeatureInversion(weight=0, steps=100)
        known = Knowledge(None, 10, task.backbone, True, Seeds(0), "cpu", SILENT)
        found = _real(task, make_context(task, FedCGS(), bounds=1, folder=tmp_path / str(seed)))
        if "class_means" in found:
            said = found["class_means"].metrics["psnr_gain"].reason
            said = found["class_means"].metrics["psnr_gain"].reason
            p["means"].append(float(re.findall(r"p = ([\d.e-]+)", said)[-1]))
        audit = InversionAudit(permutations=400)
        context = make_context(task, FedCGS(), bounds=1).attacked(
            lambda seen, i=inversion, k=known: i.run(seen, k), "test", no_questions()
        )
        pool, _, held_out = audit._records(context)
        p["control"].append(audit._controls(pool, held_out, context)[1].p)
    for values in p.values():
        assert len(values) >= 30
        # 40 draws: a fifth is exceeded by more than 15 with probability 0.3 %.
        assert sum(value <= 0.2 for value in values) <= 15
        assert 0.35 < float(np.mean(values)) < 0.65


def test_senders_without_known_records_are_not_judged(
    make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    task = make_task(records=60)
    renamed = tuple(replace(client, name=f"{client.name}/x") for client in task.clients)
    outcome = RawFeatures().run(replace(task, clients=renamed))
    context = make_context(task, outcome=outcome, folder=tmp_path)
    made = Reconstruction(source := sources(context.view, np.random.default_rng(0))[0], exact(source))
    result = AttackResult("feature_inversion", (made,), scores={"misfit/raw": np.zeros(60)})
    attack = lambda seen: AttackResult(  # noqa: E731
        "",
        (Reconstruction(part := sources(seen, np.random.default_rng(0))[0], exact(part)),),
        scores={"misfit/raw": np.zeros(64)},
    )
    own = context.attacked(attack, "test", no_questions())
    (finding,) = InversionAudit(permutations=400).assess(result, own)
    assert finding.verdict == "not_run"
    assert "0 of 60 images" in finding.reason
    with pytest.raises(NotRunError, match="inverted nothing"):
        InversionAudit().assess(AttackResult("feature_inversion"), own)


def test_p_values_of_images_that_know_nothing_are_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where images are matched with the closest of several records, and some fit everything better."""
    monkeypatch.setattr("fedassay.audits.inversion.truth._TOGETHER", 2_000)
    rng = np.random.default_rng(0)
    small = []
    for seed in range(1000):
        brightness = rng.integers(60, 200, (40, 1, 1, 1))
        pictures = (brightness + rng.integers(-50, 50, (40, 4, 4, 1))).astype(np.uint8)
        pool = Pool(pictures, np.arange(40) % 2, rng.random((40, 6)), 12, seed)
        images = rng.integers(100, 156, (6, 4, 4, 1)).astype(np.uint8)
        sets = [np.array([0, 2, 4]), np.array([1, 3]), np.array([6]), np.array([6]), np.arange(12), np.array([5])]
        for between in (True, False):
            matched = RecordMatch(images, rng.random((6, 6)), sets, pool, between)
            shown = image_match(matched, rng, tests=1, draws=80)
            small.append(shown.p)
    for level in (0.05, 0.2, 0.5):
        assert abs(np.mean(np.array(small) <= level) - level) < 0.03


def test_an_exchange_depends_on_its_number_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 5; records go to others of their class, no two to the same, and every place is as likely."""
    monkeypatch.setattr("fedassay.audits.inversion.truth._TOGETHER", 60)
    pictures, labels = np.zeros((40, 2, 2, 1), np.uint8), np.arange(40) % 2
    pool, slots = Pool(pictures, labels, np.zeros((40, 1)), 12, 3), np.array([0, 1, 4, 7])
    whole = np.concatenate(list(pool.exchanges(slots, 0, 3000)), axis=1)
    parts = [np.concatenate(list(pool.exchanges(slots, *ends)), axis=1) for ends in ((0, 7), (7, 8), (8, 3000))]
    assert whole.shape == (4, 3000)
    assert np.array_equal(np.concatenate(parts, axis=1), whole)
    for slot, places in zip(slots, whole, strict=True):
        assert set(labels[places]) == {labels[slot]}
        reachable = [
            place for place in range(40) if labels[place] == labels[slot] and (place >= 12 or place in slots)
        ]
        counts = np.bincount(places, minlength=40)[reachable]
        assert counts.sum() == 3000
        assert counts.min() > 0.7 * 3000 / len(reachable)
    assert all(len(set(column)) == 4 for column in whole.T.tolist())


def test_the_psnr_table_is_psnr() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 6, 7, 3)).astype(np.uint8)
    table = psnr_table(images[:2], images)
    assert table[0, 0] == table[1, 1] == 100
    np.testing.assert_allclose(table[0, 2], psnr(images[:1], images[2:3])[0], rtol=1e-9)


def _garbage(source: VectorSource) -> Images:
    """Looks at raw features only."""
    return exact(source) if source.name == "raw" else blind(source)


def _class_alone(source: VectorSource) -> Images:
    return exact(source) if source.name == "raw" else by_class(source)


@pytest.mark.parametrize("invert", [_garbage, _class_alone])
@pytest.mark.parametrize("epsilon", [1.0, float("inf")])
def test_garbage_from_the_methods_own_vectors_is_no_answer(
    epsilon: float, invert: Invert, make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    """Raw features are caught, the end-to-end control is not."""
    for finding in findings(make_task(epsilon=epsilon), FedCGS(), invert, make_context, tmp_path).values():
        assert finding.verdict == "inconclusive", finding.reason
        assert "too weak here" in finding.reason
        assert "may decide" in finding.reason
        assert finding.controls.positive is not None
        assert "own release" in finding.controls.positive.release


def test_no_leak_states_what_would_have_been_found(
    make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    finding = findings(make_task(records=600, epsilon=1.0), FedCGS(), exact, make_context, tmp_path)["class_means"]
    assert finding.verdict == "no_leak_found", finding.reason
    assert finding.limit is not None
    assert 0 < finding.limit.value < 1
    assert finding.limit.shift is not None
    assert finding.limit.shift_metric == "dB PSNR"


def test_too_few_control_records_say_how_many_more(
    make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    task = make_task()
    data = make_context(task, FedCGS()).data
    few = replace(data, control=data.control.take(np.arange(3)))
    for finding in findings(task, FedCGS(), blind, make_context, tmp_path, data=few).values():
        assert finding.verdict == "inconclusive"
        assert "give data.split.control at least" in finding.reason
        assert finding.obstacle is not None
        assert (finding.obstacle.role, finding.obstacle.held) == ("control", len(few.control))
    # An attack that found a leak has worked here: raw features show that it can.
    few = replace(few, shared={})
    for finding in findings(task, FedCGS(), exact, make_context, tmp_path, data=few).values():
        assert finding.verdict == "leak", finding.reason
        assert "end_to_end" not in {control.role for control in finding.all_controls}
