"""The benchmarks of a GPU, on a machine without one: dry runs, the whole path on the CPU, and what is refused."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from fedassay.data.images import ImageSet, LoadedData
from fedassay.plan.resolve import load_scenario

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
SCRIPT = FOLDER / "gpu_papers.sh"
CARD, LEASE = 139.0, 30.0
"""GiB and minutes that there would be."""


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    # No card that somebody measured into runs/ beside the checkout.
    monkeypatch.chdir(tmp_path)


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


@pytest.mark.long
def test_the_dry_run_tells_every_row_and_needs_no_card(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = script("gpu")
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--dry-run"])
    assert gpu.main() == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["row"] for row in told["rows"]] == list(gpu.ROWS)
    for row in told["rows"]:
        assert 0 < row["memory_gib"] < CARD, row
        assert 0 < row["minutes"] <= 10, row
        assert "nothing measured" in row["rates"]
    assert told["minutes"] <= LEASE


@pytest.mark.long
def test_what_is_counted_is_what_is_computed() -> None:
    """Arithmetic by torch's own counter on real tensors, bytes held by what autograd keeps."""
    from dataclasses import replace

    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    work, place = script("gpu_work"), script("gpu_place").Place("cpu", small=True)
    preset = replace(place.generator, dropout=0.0)
    counted = work.training_step(preset, (8, 8, 3), 10, 4)
    # Of attention's fused kernel on a CPU torch counts nothing; written out, its products are counted.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as expected:
        script("gpu_rows").gradient(preset, place, "cpu")
    assert counted.arithmetic == pytest.approx(expected.get_total_flops(), rel=1e-6)
    twice = work.training_step(preset, (8, 8, 3), 10, 8)
    assert twice.held == pytest.approx(2 * counted.held, rel=0.1)
    assert twice.parameters == counted.parameters
    card = work.Card("a card", 1e12, 1e11, 1e10, 1e-6, 1e9, 0.5)
    assert card.seconds(counted, bf16=True) < card.seconds(counted, bf16=False) < card.seconds(twice, bf16=False)
    assert card.seconds(counted, bf16=True) >= len(counted.operations) * card.launch


def test_a_measured_card_takes_the_place_of_the_assumed_one(tmp_path: Path) -> None:
    work = script("gpu_work")
    assert work.card_of(tmp_path / "none.json") is work.ASSUMED
    measured = work.Card("a card", 1e12, 1e11, 1e10, 1e-6, 1e9, 0.5)
    (tmp_path / "gpu.json").write_text(json.dumps({"card": work.as_json(measured)}))
    assert work.card_of(tmp_path / "gpu.json") == measured


def test_without_a_card_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--output", "rows.json"])
    assert script("gpu").main() == 2
    assert "torch finds no GPU" in capsys.readouterr().err
    assert not Path("rows.json").exists()


def test_an_interrupted_run_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gpu, calls = script("gpu"), []

    def row(name: str, broken: bool) -> Any:
        def run(place: Any) -> dict[str, Any]:
            calls.append((name, place.products))
            if broken:
                raise AssertionError("GPU and CPU differ")
            return {"bf16": 5.0, "card": None}

        return run

    monkeypatch.setitem(gpu.ROWS, "matmul", row("matmul", broken=False))
    monkeypatch.setitem(gpu.ROWS, "ssim", row("ssim", broken=True))
    place, file = script("gpu_place").Place("cpu", small=True), tmp_path / "gpu.json"
    for _ in range(2):
        kept = gpu.measured(["matmul", "ssim"], place, file)
    # What is done is not done again, what failed is; the rate is handed on.
    assert calls == [("matmul", 0.0), ("ssim", 5.0), ("ssim", 5.0)]
    assert kept["rows"]["ssim"]["error"] == "AssertionError: GPU and CPU differ"
    with pytest.raises(SystemExit, match="another --output"):
        gpu.measured(["matmul"], script("gpu_place").Place("cuda", small=False), file)


def test_what_differs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, place = script("gpu_rows"), script("gpu_place").Place("cpu", small=True)
    rows.nearest(place)
    right = rows.top_k_l2
    calls: list[int] = []

    def off(*given: Any, **more: Any) -> Any:
        calls.append(1)
        found = right(*given, **more)
        return found._replace(distances=found.distances + 1e-3 * (len(calls) == 2))

    monkeypatch.setattr(rows, "top_k_l2", off)
    with pytest.raises(AssertionError, match=r"distances: GPU and CPU differ by 0\.001"):
        rows.nearest(place)
    exact = torch.ones(4)
    within = script("gpu_place").within
    assert within(exact * 1.001, exact, 2e-3, "x") == pytest.approx(1e-3, rel=1e-3)
    with pytest.raises(AssertionError, match="x: GPU and CPU differ"):
        within(exact * 1.01, exact, 2e-3, "x")
    with pytest.raises(AssertionError):
        within(exact * torch.nan, exact, 2e-3, "x")


@pytest.mark.slow
def test_the_whole_path_on_a_cpu(tmp_path: Path) -> None:
    output = tmp_path / "gpu.json"
    command = [sys.executable, str(FOLDER / "gpu.py"), "--device", "cpu", "--small", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    kept = json.loads(output.read_text())
    assert done.returncode == 0, (done.stderr, kept)
    assert list(kept["rows"]) == list(script("gpu").ROWS)
    assert not [row for row in kept["rows"].values() if "error" in row]
    assert kept["rows"]["verdicts"]["findings"] > 1
    assert kept["rows"]["verdicts"]["differing"] == []


# The papers' experiments.


@pytest.mark.long
def test_the_dry_run_of_the_papers_steps_fits_a_card_and_half_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    papers = script("gpu_papers")
    rows = papers.dry_run(papers.LEASE)
    assert [row["step"] for row in rows] == list(papers.STEPS)
    for row in rows:
        assert 0 < row["memory_gib"] < CARD, row
        assert row["minutes"] < 10, row
        assert row["bytes_up"] == sum(papers.PACKED[file] for file in row["files"]) > 0
    assert sum(row["minutes"] for row in rows) <= LEASE
    assert sum(papers.PACKED.values()) <= papers.CARRIED


@pytest.fixture
def packed(tmp_path: Path) -> tuple[Path, dict[str, int], LoadedData]:
    """A folder with a few images packed, its files' sizes, and the grey ones."""
    rng = np.random.default_rng(0)

    def some(count: int, shape: tuple[int, ...]) -> ImageSet:
        pixels = rng.integers(0, 256, (count, *shape)).astype(np.uint8)
        return ImageSet(pixels, np.arange(count) % 10, tuple("0123456789"))

    cifar = LoadedData(some(200, (32, 32, 3)), some(40, (32, 32, 3)), "colour")
    fashion = LoadedData(some(300, (28, 28, 1)), some(50, (28, 28, 1)), "grey")
    (tmp_path / "weights").write_bytes(b"weights")
    sizes = script("gpu_papers").pack(tmp_path / "packed", cifar, fashion, tmp_path / "weights")
    return tmp_path / "packed", sizes, fashion


@pytest.mark.parametrize("size", ["LEASE", "FULL"])
def test_every_steps_plan_is_one_that_can_be_run(
    size: str, packed: tuple[Path, dict[str, int], LoadedData], tmp_path: Path
) -> None:
    papers, (folder, sizes, fashion) = script("gpu_papers"), packed
    assert set(sizes) == {papers.CIFAR, papers.FASHION, papers.TRUNK}
    for name, step in papers.STEPS.items():
        assert set(step.files) <= set(sizes)
        (tmp_path / "plan.yaml").write_text(yaml.safe_dump(papers.plan_of(name, getattr(papers, size), folder)))
        scenario = load_scenario(tmp_path / "plan.yaml")
        assert scenario.plan.name == name
        assert Path(scenario.plan.data.path or "").is_file()
        assert len(scenario.cells) == (2 if "reconstruction" in name else 1)
    with np.load(folder / papers.FASHION, allow_pickle=False) as kept:
        assert kept["x_train"].tobytes() == fashion.train.images.tobytes()
    assert (folder / papers.TRUNK).read_bytes() == b"weights"


def test_weights_of_ones_own_are_packed_in_the_place_of_published_ones(tmp_path: Path) -> None:
    assert script("gpu_papers").weights_file(str(tmp_path / "mine.pt")) == tmp_path / "mine.pt"


def test_results_are_a_line_for_every_accuracy_and_finding(tmp_path: Path) -> None:
    from fedassay.records.record import CellRecord, Finding

    finding = {"audit": "reconstruction", "source": "raw", "selection": "oracle", "verdict": "leak",
               "metrics": {"ssim": {"value": 0.5}}}  # fmt: skip
    cell = {"label": "raw_features", "epsilon": "inf", "utility": {"accuracy": 0.9}, "findings": [finding]}
    # Names that a record has.
    assert set(finding) <= set(Finding.model_fields)
    assert set(cell) <= set(CellRecord.model_fields)
    (tmp_path / "first").mkdir()
    record = {"environment": {"gpu": "a card + bf16", "device": "cuda"}, "cells": [cell]}
    (tmp_path / "first" / "record.json").write_text(json.dumps(record))
    assert script("gpu_papers").results(tmp_path) == [
        'first (a card + bf16) raw_features, epsilon inf: {"accuracy": 0.9}',
        'first (a card + bf16) raw_features, epsilon inf: reconstruction raw oracle leak {"ssim": 0.5}',
    ]


STUB = """#!/usr/bin/env bash
# In the place of Python: names the steps, makes plans, and runs nothing.
echo "$@" >>"$CALLS"
case "$*" in
  *"gpu_papers.py steps") printf 'first\\nsecond\\nthird\\n' ;;
  *"-m fedassay run"*)
    mkdir -p "$OUTPUT/$(basename "$4" .yaml)"
    code=$(cat "$CODES/$(basename "$4" .yaml)" 2>/dev/null || echo 0)
    exit "$code" ;;
esac
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_steps_are_skipped_once_done_and_resumed_once_stopped(tmp_path: Path) -> None:
    stub, calls, codes = tmp_path / "python", tmp_path / "calls", tmp_path / "codes"
    stub.write_text(STUB)
    stub.chmod(0o755)
    codes.mkdir()
    (codes / "second").write_text("124")
    given = {**os.environ, "PYTHON": str(stub), "OUTPUT": str(tmp_path / "out"), "CALLS": str(calls),
             "CODES": str(codes)}  # fmt: skip

    def run(*words: str, **more: str) -> tuple[int, str, list[str]]:
        calls.unlink(missing_ok=True)
        done = subprocess.run(
            ["bash", str(SCRIPT), *words], env=given | more, capture_output=True, text=True, check=False
        )
        told = calls.read_text().splitlines() if calls.exists() else []
        return done.returncode, done.stdout + done.stderr, [line for line in told if "fedassay" in line]

    code, said, ran = run()
    assert (code, len(ran)) == (1, 3)
    assert "second: stopped" in said
    assert not any("--resume" in line for line in ran)
    (codes / "second").unlink()
    code, said, ran = run()
    assert (code, len(ran)) == (0, 1)
    assert "first: done before" in said
    assert "--resume" in ran[0]
    assert "--device cuda" in ran[0]
    assert run("fourth")[0] == 2
    assert run("--quickly")[0] == 2
    shutil.rmtree(tmp_path / "out")
    code, said, ran = run("third", MINUTES="0")
    assert (code, ran) == (1, [])
    assert "third: not begun" in said


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_the_shell_script_is_clean() -> None:
    subprocess.run(["shellcheck", str(SCRIPT)], check=True)
