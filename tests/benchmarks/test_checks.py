"""The correctness check of every benchmark, on tiny sizes; nothing is timed."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fedassay.data import DataRequest, load
from fedassay.support.errors import DataError

_FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    # The scripts import each other by name, as they are run.
    monkeypatch.syspath_prepend(str(_FOLDER))


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


def test_every_row_has_a_script_with_a_check() -> None:
    module = script("run_all")
    for name in (*module.SCRIPTS, *module.LONG):
        assert callable(script(name).run)
        assert callable(script(name).check)


def test_ssim_search() -> None:
    images = script("images32").synthetic(9)
    script("ssim_search").check(images[:3], images[3:])


def test_layer_inversion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the peer the row says so, and is no failure."""
    module = script("layer_inversion")
    monkeypatch.setitem(sys.modules, "breaching", None)
    row = module.run()
    assert row["ratio"] is None
    assert row["met"]
    assert row["peer"].startswith("skipped: ")


def test_memorization_search() -> None:
    module, images = script("memorization_search"), script("images32").synthetic(80)
    module.check(images[:5], images[5:])


def test_nearest_streamed() -> None:
    images = script("images32").synthetic(80)
    script("nearest_streamed").check(images[:5], script("images32").crops(images, 200))


def test_lists_that_differ_from_the_peers_are_refused() -> None:
    module, images = script("memorization_search"), script("images32").synthetic(80)
    found = module.top_k_l2(images[:5], images[5:], 50)
    order = found.indices.copy()
    assert module.differing(found, order, images[:5], images[5:]) == 0
    order[:, [3, 40]] = order[:, [40, 3]]
    with pytest.raises(AssertionError):
        module.differing(found, order, images[:5], images[5:])


def test_mixture_fits() -> None:
    module = script("mixture_fits")
    groups = module.data(20)
    module.check(groups, module.COMPONENTS)


def test_mixture_fits_of_overlapping_components() -> None:
    module = script("mixture_fits_overlapping")
    _, ours, theirs = module.check(module.data(3))
    assert min(ours, theirs) >= 0.9 * module.STEPS


def test_mixture_fits_that_are_worse_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("mixture_fits")
    monkeypatch.setattr(module, "peer", lambda groups, components: [1e6] * len(groups))
    with pytest.raises(AssertionError, match="mean log-likelihood"):
        module.check(module.data(2, width=8, sizes=(20, 30)), 2)


def test_fedcgs_statistics() -> None:
    module = script("fedcgs_statistics")
    assert module.check(*module.data(3000, 12, 4), 4) <= module.TOLERANCE


def test_fedcgs_statistics_that_differ_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("fedcgs_statistics")
    features, labels = module.data(500, 6, 3)
    right = module.ours
    monkeypatch.setattr(module, "ours", lambda x, y, c: right(x * np.float32(1 + 1e-6), y, c))
    with pytest.raises(AssertionError, match="differ"):
        module.check(features, labels, 3)


def test_mechanism_reruns() -> None:
    module = script("mechanism_reruns")
    module.check(module.experiment(), 4000, 150)


@pytest.mark.long
def test_sequential_refutation() -> None:
    assert script("sequential_refutation").check(20) < 10


def test_true_claims_that_fall_too_often_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("sequential_refutation")
    monkeypatch.setattr(module, "mechanism", lambda mu, right=module.mechanism: right(2 * mu))
    with pytest.raises(AssertionError, match="true claims fell"):
        module.check(10)


def test_dp_sgd_networks() -> None:
    module = script("dp_sgd_networks")
    assert module.check("perceptron", records=2) < module.TOLERANCE


def test_epsilon_bounds() -> None:
    script("epsilon_bounds").check(1200, 40)


def test_dp_sgd_step() -> None:
    from dataclasses import replace

    module = script("dp_sgd_step")
    preset = replace(module.GENERATORS["small"], multipliers=(1,), attention_levels=(), width=8)
    assert module.check(*module.data(2, 8, 1), preset) < 1e-2


def test_cold_start() -> None:
    script("cold_start").check()


def test_a_failing_script_is_a_row_that_is_not_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("run_all")
    (tmp_path / "broken.py").write_text("raise SystemExit('no such luck')")
    monkeypatch.setattr(module, "HERE", tmp_path)
    row = module.run_script("broken", full=False)
    assert (row["met"], row["error"]) == (False, "no such luck")
    assert "| broken | no such luck | - |" in module.table(module.machine(), [row])


def test_the_instruction_sets_of_the_machine_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("run_all")
    monkeypatch.setattr(module, "instruction_sets", lambda: ("avx2", "vnni"))
    assert "(instruction sets found: avx2, vnni), " in module.table(module.machine(), [])
    assert "found: avx2, vnni; switched off: vnni and later), " in module.table(module.machine("vnni"), [])
    told = "import json, os\nprint(json.dumps({'row': os.environ.get('ONEDNN_MAX_CPU_ISA')}))"
    (tmp_path / "told.py").write_text(told)
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    assert [module.run_script("told", False, off)["row"] for off in (None, "avx512")] == [None, "AVX2"]


@pytest.mark.slow
@pytest.mark.parametrize("off", ["bf16", "vnni", "avx512"])
def test_every_check_passes_without_an_instruction_set(off: str) -> None:
    """The checks above and the searches, in a process that starts without it."""
    without = script("run_all").WITHOUT[off]
    assert set(script("run_all").WITHOUT) == {"bf16", "vnni", "avx512"}
    tests = [str(_FOLDER.parent / "tests" / name) for name in ("benchmarks/test_checks.py", "similarity")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests],
        cwd=_FOLDER.parent,
        env={**os.environ, **without},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_cell_that_measures_something_else_is_refused() -> None:
    from fedassay.records.record import CellPrivacy, CellRecord

    module = script("sweep_sharing")
    privacy = CellPrivacy(claimed=None, accounted=None, verdict="not_run")
    cell = CellRecord(
        method="m", label="m", params={}, params_given={}, epsilon=1.0, delta=1e-5, adjacency="add_remove", seed=0,
        utility={"accuracy": 0.5}, communication={}, privacy=privacy,
    )  # fmt: skip
    module.check(cell, cell)
    with pytest.raises(AssertionError):
        module.check(cell, cell.model_copy(update={"utility": {"accuracy": 0.6}}))


def test_a_cell_that_finds_something_else_at_the_same_level_is_refused() -> None:
    from fedassay.records.record import CellPrivacy, CellRecord, Finding

    module = script("sweep_sharing")
    privacy = CellPrivacy(claimed=None, accounted=None, verdict="not_run")
    finding = Finding(audit="a", attack=None, source=None, selection=None, metrics={}, verdict="leak", reason="so")
    cell = CellRecord(
        method="m", label="m", params={}, params_given={}, epsilon=1.0, delta=1e-5, adjacency="add_remove", seed=0,
        utility={}, communication={}, privacy=privacy, findings=(finding,),
    )  # fmt: skip
    other = cell.model_copy(update={"findings": (finding.model_copy(update={"verdict": "inconclusive"}),)})
    module.check(cell, cell)
    module.check(cell, other, same_level=False)
    with pytest.raises(AssertionError):
        module.check(cell, other)


def test_the_level_of_a_sweep_is_held_for_its_cells(tmp_path: Path) -> None:
    from fedassay.plan.resolve import load_scenario

    module = script("sweep_sharing")
    own, sweep = (module.tests_of(module.plan(each), tmp_path) for each in ([1.0], module.EPSILONS))
    assert sweep == 8 * own
    with module.tests_in_run(sweep):
        assert module.tests_of(module.plan([1.0]), tmp_path) == sweep
    assert module.simulated_source.bounds_in(load_scenario(tmp_path / "tests.yaml", ())) == own


def test_the_standard_battery_is_a_shipped_plan_with_everything(tmp_path: Path) -> None:
    from fedassay.plan.resolve import load_scenario

    module = script("standard_battery")
    (tmp_path / "plan.yaml").write_text(module.plan())
    scenario, shipped = (load_scenario(path, ()) for path in (tmp_path / "plan.yaml", module.PLAN))
    assert [cell.key for cell in scenario.cells] == [cell.key for cell in shipped.cells]
    assert {"membership", "feature_inversion", "feature_diffusion"} <= {each.name for each in scenario.attacks}
    assert {"membership", "inversion", "memorization"} <= {each.name for each in scenario.audits}
    assert module.busier([3.0, 1.0, 1.0, 4.0]) == 6.0


def test_estimates_of_a_timed_plan_are_held_against_what_it_took() -> None:
    module = script("dry_run_accuracy")
    kept = module.timed()
    assert len(kept) >= 30
    # Stages of other plans know nothing of one that is slow by itself.
    name = "attacks/trapped_sums"
    slow = {**kept, name: [stage._replace(took=100 * stage.took) for stage in kept[name]]}
    before, after = module.compared(name, kept), module.compared(name, slow)
    assert after["seconds"] > 20 * before["seconds"]
    assert after["ratio_without_its_own"] < before["ratio_without_its_own"] / 20
    assert module.within(1.5, [0.66, 0.67, 1.0, 1.5, 1.6]) == 3
    assert (module.check([1.0] * 9 + [4.0]), module.check([1.0] * 8 + [4.0] * 2)) == (True, False)


def test_time_to_quality_tells_a_training_by_both_samplers(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedassay.nets import presets

    module = script("time_to_quality")
    tiny = replace(presets.TINY, width=16, blocks=1, embedding=8, batch=8, centres=4, steps=8, warmup=1)
    monkeypatch.setitem(presets.PRESETS, "tiny", tiny)
    rng = np.random.default_rng(0)
    images, features = rng.integers(0, 256, (40, 8, 8, 1), np.uint8), rng.normal(size=(40, 5)).astype(np.float32)
    rows = module.trained(0.5, "tiny", (images, features), (images[:4], features[:4]))
    assert [(row["steps"], row["sampler"]) for row in rows] == [(4, "ddim"), (4, "dpm")]
    assert (module.check(0.70, 0.70), module.check(0.694, 0.70), module.check(0.69, 0.70)) == (True, True, False)


def test_the_sweep_has_24_cells(tmp_path: Path) -> None:
    from fedassay.plan.resolve import load_scenario

    module = script("sweep_sharing")
    (tmp_path / "plan.yaml").write_text(module.plan(module.EPSILONS))
    assert len(load_scenario(tmp_path / "plan.yaml", ()).cells) == 24


@pytest.mark.long
def test_dp_sgd_observed_gives_every_number_and_none_is_above_the_truth() -> None:
    module = script("dp_sgd_observed")
    found = module.observed(1.0, steps=10, canaries=1000, runs=2, repeats=3)
    assert 0 < found["conditional_of_accounted"] <= 1.2
    assert 0 <= found["free"] <= found["accounted"]
    nulls = module.null_runs(canaries=200, runs=3)
    assert set(nulls["above_accounted"]) == {"conditional", "free"}


def test_a_folder_tree_of_pacs_layout_is_read_as_pacs(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 4)
    images = rng.integers(0, 256, (len(labels), 16, 16, 3), dtype=np.uint8)
    module = script("domain_tree")
    assert module.write_tree(images, labels, tmp_path / "tree", 1) == 28
    request = DataRequest("pacs", None, tmp_path / "tree", None, 0, tmp_path)
    data = load(request).train
    assert data.domain_names == ("art_painting", "cartoon", "photo", "sketch")
    assert np.bincount(data.labels).tolist() == [4] * 7
    assert data.domains is not None
    # Photographs are the images themselves, and no image is in two domains.
    photos = data.images[data.domains == data.domain_names.index("photo")]
    assert np.array_equal(photos, images[[4 * label + 2 for label in range(7)]])
    assert len(np.unique(data.images.reshape(28, -1), axis=0)) == 28
    with pytest.raises(ValueError, match="class 0: 4 images given; needed: 8"):
        module.write_tree(images, labels, tmp_path / "more", 2)
    assert module.write_tree(images, labels, tmp_path / "office", 1, module.LAYOUTS["office_home"]) == 28
    office = load(DataRequest("office_home", None, tmp_path / "office", None, 0, tmp_path, size=16)).train
    assert office.domain_names == ("Art", "Clipart", "Product", "Real World")
    assert module.write_tree(images, labels, tmp_path / "tasks", 4, module.LAYOUTS["tasks"]) == 40
    assert len(list((tmp_path / "tasks" / "odd").iterdir())) == 5


def test_benchmarks_take_a_public_data_set_by_its_name_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = script("public_data")
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8), np.arange(12) % 3
    own = tmp_path / "mine.npz"
    np.savez(own, x_train=images[:8], y_train=labels[:8], x_test=images[8:], y_test=labels[8:])
    both = module.in_two(str(own), 5, 3)
    assert np.array_equal(both[0], np.concatenate([images[:5], images[8:11]]))
    assert both[1].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    with pytest.raises(DataError, match="mine has 8 training and 4 test images; needed: 9 and 3"):
        module.in_two(str(own), 9, 3)
    digits, truth = module.training("digits", 7)
    assert digits.shape == (7, 8, 8, 1)
    assert len(truth) == 7
    assert [module.called(each) for each in (str(own), "cifar10")] == ["mine", "cifar10"]
    # What is not there is fetched; without a network the sentence says which file goes where.
    monkeypatch.setenv("FEDASSAY_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(SystemExit, match=r"cifar-10-python\.tar\.gz: not under FEDASSAY_DATA"):
        module.ended(lambda: module.training("cifar10", download=False))
    # The searches do without.
    queries, gallery, source = script("images32").load(3, 5)
    assert (len(queries), len(gallery)) == (3, 5)
    assert source.startswith("synthetic")


def test_nothing_names_a_file_that_no_stranger_has(shared_data: Path, shared_weights: Path) -> None:
    """But tests, which say why they are skipped elsewhere."""
    private = [
        path.name
        for folder in (shared_data, shared_weights)
        for path in folder.iterdir()
        if path.suffix in (".npz", ".pt")
    ]
    assert private
    root = _FOLDER.parent
    found = [
        f"{path.relative_to(root)}: {name}"
        for folder in (
            "attacks",
            "audits",
            "benchmarks",
            "configs",
            "docs",
            "examples",
            "methods",
            "reports",
            "src",
        )
        for path in (root / folder).rglob("*")
        if path.suffix in (".py", ".md", ".yaml", ".sh", ".toml", ".ipynb", ".json", ".txt")
        for name in private
        if name in path.read_text(encoding="utf-8")
    ]
    assert found == []


def test_no_benchmark_looks_for_data_beside_the_checkout() -> None:
    """They find files as plans do: here, or in the folders that FEDASSAY_DATA and FEDASSAY_WEIGHTS name."""
    for path in sorted(_FOLDER.glob("*.py")):
        text = path.read_text()
        assert "parents[2]" not in text, path.name
        assert '"shared"' not in text, path.name
