"""A second run of an unchanged plan works on nothing again, and believes nothing that it would not have found."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from fedassay.execution.kept_cells import ANEW
from fedassay.support.hashing import digest_arrays

PLAN = """
name: again
seeds: [0]
data: {name: digits, limit: 400, split: {private: 0.4, test: 0.2, control: 0.4}}
clients: {count: 2, partition: iid}
backbone: {name: pixels}
methods: [fedcgs: {}]
attacks: [gram_factorization: {iterations: 30, restarts: 2}]
audits: [message: {}, dp_claim: {mechanism_trials: 500}]
privacy: {epsilon: 2, delta: 1.0e-5}
"""

_COUNTED = """
import hashlib
from fedassay.attacks.gram import attack
from fedassay.execution import cell
def counted(what, work):
    def run(*given, **named):
        with open({log!r}, "a") as log:
            log.write(what(*given) + chr(10))
        return work(*given, **named)
    return run
cell.Work.run = counted(lambda work: "cell " + work.job.key, cell.Work.run)
def factored(gram, size, *rest):
    return f"factors of {{size.total}} {{hashlib.sha256(gram.second.tobytes()).hexdigest()}}"
attack.factorize = counted(factored, attack.factorize)
"""


@dataclass(frozen=True)
class Home:
    """A folder with a cache of its own, where runs write down what they work on."""

    folder: Path

    def run(self, name: str, plan: str = PLAN, *options: str, hook: str = "", **environment: str) -> Counter[str]:
        """Run a plan into the folder `name`; gives what was worked on, and how often."""
        log = self.folder / f"{name}.log"
        (self.folder / "plan.yaml").write_text(plan)
        given = {**os.environ, "OMP_NUM_THREADS": "1", "FEDASSAY_CACHE": str(self.cache), ANEW: "", **environment}
        arguments = ("run", str(self.folder / "plan.yaml"), "-o", str(self.folder / name), *options)
        done = forked.fedassay(*arguments, hook=_COUNTED.format(log=str(log)) + hook, environment=given)
        assert done.returncode == 0, done.stderr
        return Counter(log.read_text().splitlines() if log.exists() else ())

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def cells(self) -> list[Path]:
        """The cache's finished cells."""
        found = []
        for path in sorted(self.cache.glob("*/*/*.safetensors")):
            with safe_open(path, framework="np") as entry:
                if any(name.startswith(".cells/") for name in entry.keys()):  # noqa: SIM118
                    found.append(path)
        return found

    def record(self, name: str) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((self.folder / name / "record.json").read_text())
        return read


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def _of(kind: str, worked: Counter[str]) -> Counter[str]:
    return Counter({what: times for what, times in worked.items() if what.startswith(kind)})


def _files(folder: Path) -> dict[str, bytes]:
    """All that a run wrote of its cells."""
    kept = ("transcripts", "artifacts", ".cells")
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for name in kept
        for path in sorted((folder / name).rglob("*"))
        if path.is_file()
    }


@pytest.mark.long
def test_an_unchanged_plan_works_on_nothing_again(home: Home) -> None:
    first = home.run("first")
    assert len(_of("cell", first)) == 1
    assert len(_of("factors", first)) >= 1
    assert home.run("second") == Counter()
    one, two = home.record("first"), home.record("second")
    assert two["cells"] == one["cells"]
    assert "cells_from_cache" not in one["environment"]
    assert two["environment"]["cells_from_cache"] == 1
    assert set(_files(home.folder / "second")) == set(_files(home.folder / "first"))
    transcripts = [name for name in _files(home.folder / "first") if name.startswith("transcripts")]
    assert transcripts
    for name in transcripts:
        assert (home.folder / "second" / name).read_bytes() == (home.folder / "first" / name).read_bytes()
    assert forked.fedassay("verify", home.folder / "second").returncode == 0


@pytest.mark.long
def test_a_plan_with_one_method_more_factors_for_that_one_alone(home: Home) -> None:
    first = home.run("first")
    more = home.run("more", PLAN.replace("[fedcgs: {}]", "[fedcgs: {}, fedcgs: {label: other, counts: exact}]"))
    # Levels are corrected for the number of cells, so that each is judged anew, from what is known already.
    assert len(_of("cell", more)) == 2
    assert len(_of("factors of 80", more)) > 1
    again = _of("factors", more) & _of("factors", first)
    assert all(int(what.split()[2]) < 32 for what in again), again


SMALL = PLAN.partition("attacks:")[0] + "attacks: [message_algebra]\naudits: [message]\n"


def _with(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what an entry holds, and the digest that it states of that."""
    with safe_open(path, framework="np") as entry:
        about = entry.metadata()
        arrays = {name: entry.get_tensor(name) for name in entry.keys()}  # noqa: SIM118
    change(arrays)
    save_file(arrays, path, metadata={**about, "sha256": digest_arrays(arrays)})
    path.chmod(0o600)


def _better(arrays: dict[str, Any]) -> None:
    """A finding's verdict becomes another one."""
    name = next(name for name in arrays if name.startswith(".cells/"))
    text, found = re.subn(rb'"verdict":"leak"', b'"verdict":"no_leak_found"', arrays[name].tobytes())
    assert found
    arrays[name] = np.frombuffer(text, np.uint8)


def _other_message(arrays: dict[str, Any]) -> None:
    name = next(name for name in arrays if name.endswith("00000.safetensors"))
    changed = arrays[name].copy()
    changed[-1] ^= 1
    arrays[name] = changed


def _outside(arrays: dict[str, Any]) -> None:
    arrays["transcripts/../../outside.png"] = np.zeros(3, np.uint8)


@pytest.mark.long
def test_an_edited_cell_is_not_believed(home: Home) -> None:
    plan = SMALL.replace("privacy: {epsilon: 2, delta: 1.0e-5}", "")
    worked = home.run("first", plan)
    assert len(_of("cell", worked)) == 1
    (kept,) = home.cells
    for number, change in enumerate((_better, _other_message, _outside)):
        _with(kept, change)
        assert home.run(f"after{number}", plan) == worked, change
        assert (
            home.record(f"after{number}")["cells"][0]["findings"] == home.record("first")["cells"][0]["findings"]
        )
        assert home.run(f"mended{number}", plan) == Counter(), change
    assert not (home.folder.parent / "outside.png").exists()
    assert not list(home.folder.rglob("outside.png"))


_CODE = "import fedassay.execution.basis as basis\nbasis.code_digest = lambda others=(): '0' * 64\n"
_FOREIGN = """
from fedassay.support.registry import register
from fedassay.contracts.attack import AttackResult
@register("attack", "of_a_notebook")
class OfANotebook: ...
OfANotebook.__module__ = "__main__"
"""


@pytest.mark.long
def test_a_cell_of_anything_else_is_worked_on(home: Home) -> None:
    worked = home.run("first", SMALL)
    assert home.run("second", SMALL) == Counter()
    assert home.run("code", SMALL, hook=_CODE) == worked
    assert home.run("foreign", SMALL, hook=_FOREIGN) == worked
    assert home.run("anew", SMALL, **{ANEW: "1"}) == worked
    assert home.run("data", SMALL.replace("limit: 400", "limit: 401")) == worked
    assert home.run("last", SMALL) == Counter()


@pytest.mark.long
def test_nothing_is_kept_of_redacted_runs_dropped_caches_and_noise_without_a_seed(home: Home) -> None:
    worked = home.run("redacted", PLAN, "--redact")
    assert len(_of("cell", worked)) == 1
    assert not list(home.cache.glob("private/**/*.safetensors"))
    null = SMALL.replace("seeds: [0]", "seeds: [null]")
    for name in ("null", "null again"):
        assert len(_of("cell", home.run(name, null))) == 1
    home.run("first", SMALL)
    assert len(home.cells) == 1
    given = {**os.environ, "FEDASSAY_CACHE": str(home.cache)}
    assert forked.fedassay("cache", "drop", environment=given).returncode == 0
    for name in ("dropped", "dropped again"):
        assert len(_of("cell", home.run(name, SMALL))) == 1
    assert not home.cells
