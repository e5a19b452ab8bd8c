"""Components of few records: what is found meets what was sent, and is the records where features go together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedassay.attacks.few_records.attack import FewRecords
from fedassay.attacks.few_records.components import components
from fedassay.attacks.few_records.law import ClassLaw, class_law
from fedassay.attacks.few_records.search import search
from fedassay.contracts.attack import Knowledge
from fedassay.data.records import Records
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.release import Release, exact
from fedassay.exchange.view import ThreatModel, View
from fedassay.support.errors import NothingToReadError, NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

Matrix = NDArray[np.float64]
WIDTH, CLASSES = 48, 2
_MIXING = np.random.default_rng(7).standard_normal((6, WIDTH))


def drawn(n: int, seed: int, *, signed: bool = False) -> Matrix:
    """Features that depend on six hidden parts: rectified, about half of them 0, or signed."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, 6)) @ _MIXING + 0.3 * rng.standard_normal((n, WIDTH))
    return features if signed else np.maximum(features, 0)


def knowledge(features: Matrix) -> Knowledge:
    labels = np.arange(len(features)) % CLASSES
    images = np.zeros((len(features), 1, 1, 1), np.uint8)
    own = Records("attacker", images, labels, lambda _: features.astype(np.float32))
    return Knowledge(own, CLASSES, None, False, Seeds(0), "cpu", SILENT)


def view(groups: list[Matrix], dtype: str = "float64", *, unbiased: bool = False, noise: float = 0.0) -> View:
    """Components with these records, one class each in turn; `unbiased`: variances divide by one less."""
    release = exact()
    if noise:
        release = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(noise,), sensitivity=(1.0,))
    means = np.array([group.mean(axis=0) for group in groups]).astype(dtype)
    variances = np.array([group.var(axis=0, ddof=int(unbiased)) for group in groups]).astype(dtype)
    fields = {
        "class_ids": MessageField(np.arange(len(groups)) % CLASSES, "class_ids", exact()),
        "counts": MessageField(np.array([len(group) for group in groups]), "class_counts", exact()),
        "means": MessageField(means, "mixture_means", release),
        "covariances": MessageField(variances, "mixture_covariances", release),
    }
    return View((Message(0, "client/0", SERVER, fields),), CLASSES, ThreatModel())


def errors(found: Matrix, truth: Matrix) -> Matrix:
    apart = np.linalg.norm(found[:, None] - truth, axis=2) / np.linalg.norm(truth, axis=1)
    rows, columns = linear_sum_assignment(apart)
    return np.asarray(apart[rows, columns])


@pytest.mark.long
@pytest.mark.parametrize(("size", "signed"), [(2, False), (3, False), (2, True)])
def test_records_of_a_component_come_back(size: int, signed: bool) -> None:
    groups = [drawn(size, 10 + seed, signed=signed) for seed in range(4)]
    result = FewRecords(own_components=1).run(view(groups), knowledge(drawn(600, 1, signed=signed)))
    vectors = result.vectors[0].vectors.astype(np.float64).reshape(4, size, WIDTH)
    found = [errors(each, group) for each, group in zip(vectors, groups, strict=True)]
    plain = [errors(np.repeat(group.mean(axis=0)[None], size, axis=0), group) for group in groups]
    assert np.median(found) < 0.5 * np.median(plain)


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_what_is_found_has_the_moments_that_were_sent(size: int, dtype: str) -> None:
    group = drawn(size, 3)
    attack = FewRecords(own_components=1, starts=2, sweeps=4)
    found = attack.run(view([group], dtype), knowledge(drawn(60, 1))).vectors[0].vectors
    tolerance = (
        4 * max(float(np.finfo(dtype).eps), float(np.finfo("float32").eps)) * float((group**2).sum(axis=0).max())
    )
    np.testing.assert_allclose(found.sum(axis=0), group.sum(axis=0), atol=size * tolerance)
    np.testing.assert_allclose((found**2).sum(axis=0), (group**2).sum(axis=0), atol=2 * size * tolerance)
    assert found.min() >= 0


def test_variances_that_divide_by_one_less_are_read_as_such() -> None:
    group = drawn(3, 5)
    biased, unbiased = (components(view([group], unbiased=kind), 8)[0][0] for kind in (False, True))
    np.testing.assert_allclose(biased.squares, unbiased.squares)


def test_the_floor_of_a_variance_is_no_difference_between_records() -> None:
    group = drawn(2, 5)
    group[:, :5] = 1.0
    seen = view([group])
    field = seen.messages[0].fields["covariances"]
    floored = replace(field, sent=np.maximum(field.values, 1e-4))
    fields = {**seen.messages[0].fields, "covariances": floored}
    part = components(replace(seen, messages=(replace(seen.messages[0], fields=fields),)), 8)[0][0]
    assert not part.open[:5].any()


def test_a_law_that_knows_nothing_is_not_trusted() -> None:
    """Images whose features do not go together tell no order, and the attacker's own components say so."""
    rng = np.random.default_rng(0)
    shuffled = rng.permuted(drawn(400, 1), axis=0)
    result = FewRecords(sweeps=10).run(view([drawn(2, 20 + seed) for seed in range(6)]), knowledge(shuffled))
    assert result.scores["trusted"].sum() == 0


def test_what_is_trusted_is_right() -> None:
    groups = [drawn(2, 30 + seed) for seed in range(12)]
    result = FewRecords(sweeps=20).run(view(groups), knowledge(drawn(600, 1)))
    vectors = result.vectors[0].vectors.astype(np.float64).reshape(12, 2, WIDTH)
    found = np.concatenate([errors(each, group) for each, group in zip(vectors, groups, strict=True)])
    trusted = result.scores["trusted"] > 0
    assert trusted.sum() >= 6
    assert np.median(found[trusted]) < 0.25


def test_energy_is_never_above_that_of_a_naive_search() -> None:
    """All orders of a pair in few features, one after the other."""
    law = class_law(drawn(300, 1), np.arange(300) % CLASSES, CLASSES)
    small = ClassLaw(law.means[:, :8], law.precision[:8, :8], law.nonnegative)
    group = drawn(2, 9)[:, :8]
    seen = components(view([np.pad(group, ((0, 0), (0, 0)))]), 8)[0]
    found = search(seen, small, np.random.default_rng(0), starts=4, sweeps=10)[0].records

    def energy(records: Matrix) -> float:
        rest = small.transformed(records) - small.means[0]
        return float(np.einsum("ij,jk,ik->", rest, small.precision, rest))

    least = np.inf
    for number in range(2**8):
        order = (number >> np.arange(8)) & 1
        records = np.stack([np.where(order, group[1], group[0]), np.where(order, group[0], group[1])])
        least = min(least, energy(records))
    assert energy(found) == pytest.approx(least, rel=1e-7)


def test_noise_and_other_families_are_left_alone() -> None:
    with pytest.raises(NothingToReadError, match="noise"):
        FewRecords().run(view([drawn(2, 1)], noise=0.5), knowledge(drawn(60, 1)))
    with pytest.raises(NothingToReadError):
        FewRecords().run(view([drawn(9, 1)]), knowledge(drawn(60, 1)))


def test_an_attacker_without_images_says_how_many_it_needs() -> None:
    with pytest.raises(NotRunError, match="20 are needed") as caught:
        FewRecords().run(view([drawn(2, 1)]), knowledge(drawn(6, 1)))
    assert (caught.value.role, caught.value.held, caught.value.needed) == ("attacker", 6, 20)
