"""Some of the domains, and one left out: nothing of it is trained on, everything of it is tested on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedassay.data.domains import leave_out, only_domains
from fedassay.data.images import ImageSet, LoadedData
from fedassay.execution.prepare import prepare
from fedassay.plan.schema import Plan
from fedassay.support.errors import PlanError
from fedassay.support.progress import SILENT


def _loaded(domains: bool = True, names: tuple[str, ...] = ("art", "photo", "empty")) -> LoadedData:
    rng = np.random.default_rng(0)
    images = ImageSet(
        rng.integers(0, 256, (60, 8, 8, 1)).astype(np.uint8),
        np.arange(60) % 3,
        ("a", "b", "c"),
        (np.arange(60) // 20 % 2).astype(np.int64) if domains else None,
        names if domains else (),
    )
    return LoadedData(images, None, "test images")


def test_the_domain_is_the_test_set_and_nothing_else() -> None:
    given = _loaded()
    held = leave_out(given, "photo")
    assert held.test is not None
    assert given.train.domains is not None
    assert np.array_equal(held.test.images, given.train.images[given.train.domains == 1])
    assert np.array_equal(held.train.images, given.train.images[given.train.domains == 0])
    assert "photo held out" in held.source


def test_some_domains_keep_their_order_and_their_records() -> None:
    given = _loaded(names=("art", "photo"))
    assert given.train.domains is not None
    both = only_domains(given, ("photo", "art"))
    assert both.train.digest() == given.train.digest()
    kept = only_domains(replace(given, test=given.train), ("photo",))
    for part in (kept.train, kept.test):
        assert part is not None
        assert part.domain_names == ("photo",)
        assert part.domains is not None
        assert not part.domains.any()
        assert np.array_equal(part.images, given.train.images[given.train.domains == 1])


@pytest.mark.parametrize(
    ("data", "names", "message"),
    [
        (_loaded(domains=False), ("art",), r"data\.domains: art given, but the data set has no domains"),
        (_loaded(), ("art", "sketch"), r"data\.domains: 'sketch' given; allowed: art, photo, empty"),
        (_loaded(), ("art", "empty"), r"data\.domains: empty has no records"),
        (LoadedData(_loaded().train, _loaded(domains=False).train, ""), ("art",), "test set are not known"),
    ],
)
def test_domains_that_are_not_there_are_refused(data: LoadedData, names: tuple[str, ...], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        only_domains(data, names)


@pytest.mark.parametrize(
    ("data", "domain", "message"),
    [
        (_loaded(domains=False), "art", "has no domains"),
        (_loaded(), "sketch", r"'sketch' given; allowed: art, photo, empty"),
        (_loaded(), "empty", "has no records"),
        (LoadedData(_loaded().train, _loaded().train, ""), "art", "test set of its own"),
    ],
)
def test_impossible_ones_are_refused(data: LoadedData, domain: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        leave_out(data, domain)


def test_the_only_domain_cannot_be_left_out() -> None:
    train = _loaded().train.take(np.arange(20))
    with pytest.raises(PlanError, match="only domain"):
        leave_out(LoadedData(train, None, ""), "art")


def test_a_plan_reads_domains_of_an_npz(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "three.npz",
        x=rng.integers(0, 256, (120, 8, 8)).astype(np.uint8),
        y=np.arange(120) % 4,
        domain=np.repeat([7, 8, 9], 40),
    )
    plan = Plan(
        name="domains",
        data={
            "name": "npz",
            "path": "three.npz",
            "test_domain": "8",
            "split": {"private": 0.8, "public": 0.2, "control": 0},
        },  # type: ignore[arg-type]
        clients={"count": 4, "partition": "domains"},  # type: ignore[arg-type]
        backbone={"name": "pixels"},  # type: ignore[arg-type]
        methods=({"centralized": {}},),
    )
    prepared = prepare(plan, tmp_path, 0, "cpu", SILENT)
    assert len(prepared.test) == 40
    assert sum(len(client) for client in prepared.clients) == 64
    assert prepared.facts["source"].endswith("domain 8 held out as the test set")
