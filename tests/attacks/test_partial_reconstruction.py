"""Partial reconstruction: of many candidates, membership inference keeps those that are real records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.attacks.partial_reconstruction import NAME, PartialReconstruction
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.release import exact
from fedassay.exchange.view import ThreatModel, View
from fedassay.support.errors import NothingToReadError, NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

Matrix = NDArray[np.float64]
WIDTH = 24
_MEAN = np.random.default_rng(3).standard_normal(WIDTH)
FLOOR = 1e-6


def drawn(n: int, seed: int) -> Matrix:
    return np.asarray(_MEAN + np.random.default_rng(seed).standard_normal((n, WIDTH)))


def knowledge(width: int = WIDTH) -> Knowledge:
    features = drawn(400, 1)[:, :width].astype(np.float32)
    own = Records("attacker", np.zeros((400, 1, 1, 1), np.uint8), np.zeros(400, np.int64), lambda _: features)
    return Knowledge(own, 1, None, False, Seeds(0), "cpu", SILENT)


def mixture(groups: list[Matrix]) -> View:
    """One class of a client, with one component a group."""
    counts = np.array([len(group) for group in groups])
    variances = np.array([np.maximum(group.var(axis=0), FLOOR) for group in groups])
    fields = {
        "class_ids": MessageField(np.array([0]), "class_ids", exact()),
        "counts": MessageField(np.array([counts.sum()]), "class_counts", exact()),
        "components": MessageField(np.array([len(groups)]), "component_counts", exact()),
        "weights": MessageField(counts / counts.sum(), "mixture_weights", exact()),
        "means": MessageField(np.array([group.mean(axis=0) for group in groups]), "mixture_means", exact()),
        "covariances": MessageField(variances, "mixture_covariances", exact()),
    }
    return View((Message(0, "client/0", SERVER, fields),), 1, ThreatModel())


def nearest(result: AttackResult, truth: Matrix) -> Matrix:
    """How far each kept vector is from the nearest of these records, relative to the record's length."""
    found = result.vectors[0].vectors.astype(np.float64)
    gaps = np.linalg.norm(found[:, None] - truth, axis=2) / np.linalg.norm(truth, axis=1)
    return np.asarray(gaps.min(axis=1))


def test_samples_that_are_records_are_kept_and_the_others_left() -> None:
    alone, crowd = [drawn(1, 10 + seed) for seed in range(4)], drawn(60, 5)
    result = PartialReconstruction(at_least=3, share=0.01).run(mixture([*alone, crowd]), knowledge())
    # About one sample a lone record, at the floor's distance; sixty of the crowd, which are nobody's.
    assert len(result.vectors[0].vectors) == 3
    assert nearest(result, np.concatenate(alone)).max() < 0.02
    assert nearest(result, drawn(64, 99)).min() > 0.5
    assert (np.diff(result.scores["evidence"]) <= 0).all()


def test_what_other_attacks_recovered_is_chosen_from_too() -> None:
    crowd = drawn(6, 5)
    others = drawn(40, 77)
    vectors = np.concatenate([others, crowd]).astype(np.float32)
    rows = np.full(len(vectors), -1)
    offered = VectorSource("few_records", vectors, np.zeros(len(vectors), np.int64), ("client/0",) * 46, rows)
    one = mixture([crowd])
    (sent,) = one.from_clients()
    fields = {name: item for name, item in sent.fields.items() if item.kind in {"class_ids", "class_counts"}}
    fields["sums"] = MessageField(crowd.sum(axis=0)[None], "class_sums", exact())
    view = View((Message(0, "client/0", SERVER, fields),), 1, ThreatModel())
    result = PartialReconstruction(at_least=6, share=0.01).run(view, replace(knowledge(), recovered=(offered,)))
    assert (nearest(result, crowd) < 1e-3).sum() >= 5
    assert "6 of 46 candidates are kept: 6 of few_records" in result.notes


def test_no_two_kept_vectors_show_one_record() -> None:
    alone = drawn(1, 10)
    vectors = np.repeat(alone, 30, axis=0).astype(np.float32)
    rows = np.full(30, -1)
    offered = VectorSource("few_records", vectors, np.zeros(30, np.int64), ("client/0",) * 30, rows)
    result = PartialReconstruction().run(mixture([alone]), replace(knowledge(), recovered=(offered,)))
    assert len(result.vectors[0].vectors) == 1
    assert result.attack == result.vectors[0].name == NAME


def test_a_view_without_candidates_is_nothing_to_read() -> None:
    with pytest.raises(NothingToReadError, match="no mixtures"):
        PartialReconstruction().run(View((), 1, ThreatModel()), knowledge())


def test_what_is_missing_is_named() -> None:
    seen = mixture([drawn(4, 2)])
    with pytest.raises(NotRunError, match="no records"):
        PartialReconstruction().run(seen, replace(knowledge(), attacker=None))
    with pytest.raises(NotRunError, match="width 8"):
        PartialReconstruction().run(seen, knowledge(8))
