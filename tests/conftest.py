"""Small real tasks that tests of every room share."""

from __future__ import annotations

import gc
import importlib.util
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from fedassay.attacks.gram import remembered
from fedassay.contracts.audit import AuditContext, AuditIO, CellData, Replayed, Rerun
from fedassay.contracts.method import Method, MethodInput, Outcome, nonprivate_form
from fedassay.data.records import Records
from fedassay.exchange.ledger import account
from fedassay.exchange.release import PrivacyTarget
from fedassay.exchange.store import Spool
from fedassay.exchange.view import ThreatModel, view
from fedassay.execution.apart import Apart, Work, forget_runs, replied
from fedassay.execution.kept_cells import ANEW
from fedassay.privacy.tape import Tape, taped
from fedassay.support.adjacency import Adjacency
from fedassay.support.errors import NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

# Every run of the tests draws the same examples, and none fails for the time that it takes.
settings.register_profile("seeded", derandomize=True, deadline=None)
settings.load_profile("seeded")

_ROOT = Path(__file__).resolve().parents[1]

# Modules of this folder are imported by name.
sys.path.append(str(Path(__file__).resolve().parent))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Modules and tests stay: the collector of garbage, which would look through them again and again, may not."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests never read or fill the user's caches, fetch nothing that can be left out, and work on every cell."""
    os.environ["FEDASSAY_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["TORCH_HOME"] = str(tmp_path_factory.mktemp("torch"))
    os.environ["FEDASSAY_OFFLINE"] = "1"
    os.environ[ANEW] = "1"


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloads are allowed, of what the test itself publishes."""
    monkeypatch.delenv("FEDASSAY_OFFLINE")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the real data files; skips where it is absent."""
    return _shared("FEDASSAY_DATA", "data")


@pytest.fixture(scope="session")
def shared_weights() -> Path:
    """Folder of the pretrained weights; skips where it is absent."""
    return _shared("FEDASSAY_WEIGHTS", "weights")


@pytest.fixture(scope="session")
def shared_papers() -> Path:
    """Folder of the papers' texts; skips where it is absent."""
    return _shared("FEDASSAY_PAPERS", "papers")


def _shared(variable: str, name: str) -> Path:
    folder = Path(os.environ.get(variable, _ROOT.parent / "shared" / name))
    if not folder.is_dir():
        pytest.skip(f"no folder of real {name}: set {variable}")
    return folder


MakeTask = Callable[..., MethodInput]


@pytest.fixture(scope="session")
def make_task() -> MakeTask:
    """Makes a task on scikit-learn's digits: `make_task(clients=3, epsilon=1.0, ...)`."""
    from sklearn.datasets import load_digits

    from fedassay.backbones import build
    from fedassay.backbones.base import BackboneRequest
    from fedassay.data.images import ImageSet

    digits = load_digits()
    # The set is ordered by writer; roles must be exchangeable.
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[order, ..., None]
    labels = digits.target.astype(np.int64)[order]
    public = ImageSet(images[1200:1500], labels[1200:1500], tuple(str(i) for i in range(10)))

    def make(
        *,
        clients: int = 3,
        records: int = 300,
        epsilon: float = float("inf"),
        delta: float = 1e-5,
        adjacency: Adjacency = "add_remove",
        backbone: str = "pixels",
        seed: int = 0,
        labels_of: list[int] | None = None,
        device: str = "cpu",
        weights: str = "public",
    ) -> MethodInput:
        extractor = build(
            BackboneRequest(
                name=backbone,
                weights=None if backbone == "pixels" else weights,
                input_size=None,
                image_shape=(8, 8, 1),
                classes=10,
                public=public,
                seed=0,
                device=device,
                base=_ROOT,
            )
        )
        rng = np.random.default_rng(seed)
        pool = rng.permutation(1200)
        if labels_of is not None:
            pool = pool[np.isin(labels[pool], labels_of)]
        parts = np.array_split(np.sort(pool[:records]), clients)

        def records_at(name: str, chosen: np.ndarray) -> Records:
            return Records(name, images[chosen], labels[chosen], extractor.extract)

        return MethodInput(
            clients=tuple(records_at(f"client/{i}", part) for i, part in enumerate(parts)),
            test=records_at("test", np.arange(1500, 1797)),
            public=records_at("public", np.arange(1200, 1500)),
            classes=10,
            backbone=extractor,
            privacy=PrivacyTarget(epsilon=epsilon, delta=delta, adjacency=adjacency),
            seeds=Seeds(seed),
            device=device,
            progress=SILENT,
        )

    return make


PretendGpu = Callable[[], AbstractContextManager[Any]]


@pytest.fixture(scope="session")
def pretended_gpu() -> PretendGpu:
    """`with pretended_gpu() as gpu:` makes `cuda` work on a machine without one; see `pretended_gpu.py`."""
    spec = importlib.util.spec_from_file_location("pretended_gpu", Path(__file__).with_name("pretended_gpu.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: PretendGpu = module.pretended_gpu
    return found


MakeContext = Callable[..., AuditContext]

_OTHERS = 160
"""Public records that are the attacker's and fresh ones; the rest serve controls."""


@pytest.fixture(autouse=True)
def _new_process() -> None:
    """Take every test for a process of its own, in which no method has run and nothing was factored."""
    forget_runs()
    remembered.forget()


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> None:
    """And what tests share, which is made before: a private run in it would start an interpreter, for seconds."""
    if fixturedef.scope != "function":
        forget_runs()


@pytest.fixture(scope="session")
def make_context() -> MakeContext:
    """Makes an audit's context: from a method that is run, or from an `outcome`."""

    def make(
        task: MethodInput,
        method: Method | None = None,
        *,
        outcome: Outcome | None = None,
        bounds: int = 2,
        folder: Path = _ROOT,
        shared: dict[str, object] | None = None,
        apart: bool = False,
    ) -> AuditContext:
        def run_on(clients: Sequence[Records], seeds: Seeds) -> Outcome:
            if method is None:
                raise NotRunError("there is no method here")
            return method.run(replace(task, clients=tuple(clients), seeds=seeds, simulated=True))

        def run_nonprivate(clients: Sequence[Records], seeds: Seeds) -> Outcome:
            if method is None:
                raise NotRunError("there is no method here")
            privacy = task.privacy.model_copy(update={"epsilon": math.inf})
            form = nonprivate_form(method, task.privacy.private)
            again = replace(task, clients=tuple(clients), seeds=seeds, privacy=privacy, simulated=True)
            return form.run(again)

        def again(clients: Sequence[Records], other: str | None, seeds: Seeds) -> Outcome:
            if method is None:
                raise NotRunError("there is no method here")
            asked = replace(task, clients=tuple(clients), spool=Spool(), seeds=seeds)
            return method.run(asked if other is None else asked.replayed(other))

        known = (*task.clients, task.test, *(() if task.public is None else (task.public,)))
        work = Work(known, again)
        # A process for every question takes seconds, which only tests of what methods remember need.
        server = Apart(lambda _cell: work) if apart else None

        def rerun(asked: Rerun) -> Replayed:
            if method is None:
                raise NotRunError("there is no method here")
            return replied(work, asked) if server is None else server.ask("cell", known, asked)

        tape = Tape()
        if outcome is None:
            assert method is not None
            with taped() as tape:
                outcome = method.run(task)
        from contexts import Runs
        from quick_similarity import QuickSimilarity

        assert task.public is not None
        privacy = task.privacy
        others = task.public.take(np.arange(_OTHERS))
        return AuditContext(
            data=CellData(
                clients=task.clients,
                test=task.test,
                fresh=others,
                control=task.public.take(np.arange(_OTHERS, len(task.public)), "control"),
                attacker=others,
                backbone=task.backbone,
                classes=task.classes,
                shared={} if shared is None else shared,
            ),
            method=Runs(run_on, run_nonprivate, rerun),
            method_key=repr(method),
            outcome=outcome,
            view=view(outcome.transcript, ThreatModel()),
            accounted=account(outcome.transcript, privacy.adjacency, privacy.delta, privacy.unit),
            tape=tape,
            privacy=privacy,
            num_tests=bounds,
            similarity=QuickSimilarity(None, "not asked for", task.device),
            seeds=task.seeds,
            io=AuditIO(task.device, task.progress, folder, ("cell", "audit")),
        )

    return make
