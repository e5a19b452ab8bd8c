"""Dry runs: every shipped plan is valid and estimated without its data; estimates follow the sizes."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fedassay.cli import cli
from fedassay.contracts.registry import ComponentKind, declared
from fedassay.contracts.sizes import Sizes
from fedassay.nets.bodies import BodySpec, build_body
from fedassay.plan.estimate import estimate
from fedassay.plan.here import Here
from fedassay.plan.published import files_of
from fedassay.plan.rates import in_words
from fedassay.plan.resolve import load_scenario
from fedassay.plan.schema import parse_plan
from fedassay.plan.sizes import sizes_of
from fedassay.plan.work import body
from fedassay.support.errors import DataError
from fedassay.support.paths import is_path
from fedassay.support.registry import entries

CONFIGS = Path(str(resources.files("fedassay") / "configs"))
PLANS = sorted(path for path in CONFIGS.rglob("*.yaml") if "policies" not in path.parts)


@pytest.fixture(autouse=True)
def _nothing_there(online: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data, no weights, and no way to fetch any, though a run would be allowed to."""
    monkeypatch.delenv("FEDASSAY_DATA", raising=False)
    monkeypatch.delenv("FEDASSAY_WEIGHTS", raising=False)

    def refuse(*args: object, **more: object) -> None:
        raise AssertionError("a dry run opened a connection")

    monkeypatch.setattr("socket.socket.connect", refuse)


@pytest.mark.parametrize("plan", PLANS, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_every_shipped_plan_passes_a_dry_run_or_says_how_to_get_its_data(
    plan: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Embedded plans pass; of the others one sentence names the file and where it goes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    scenario = load_scenario(plan)
    files = files_of(scenario.plan)
    monkeypatch.setenv("FEDASSAY_OFFLINE", "1")
    weights = scenario.plan.backbone.weights
    if weights is not None and is_path(weights):
        result = CliRunner().invoke(cli, ["run", str(plan), "--dry-run", "--json"], standalone_mode=False)
        assert f"backbone.weights: {weights} does not exist; looked beside the plan" in str(result.exception)
        (tmp_path / weights).touch()
        monkeypatch.setenv("FEDASSAY_WEIGHTS", str(tmp_path))
    result = CliRunner().invoke(cli, ["run", str(plan), "--dry-run", "--json"], standalone_mode=False)
    if files is None:
        assert isinstance(result.exception, DataError)
        assert "folder in data.path" in str(result.exception)
        return
    if files:
        assert isinstance(result.exception, DataError)
        sentence = str(result.exception)
        assert f"place {files[0].file} from {files[0].url} there" in sentence
        assert len(sentence.split()) <= 30
        monkeypatch.delenv("FEDASSAY_OFFLINE")
        result = CliRunner().invoke(cli, ["run", str(plan), "--dry-run", "--json"], standalone_mode=False)
    assert result.exception is None, result.output
    found = json.loads(result.output)
    assert [cell["cell"] for cell in found["cells"]] == [cell.key for cell in scenario.cells]
    assert found["estimated_seconds"] > 0
    assert found["estimated_bytes"] > 2**28
    needed = [remark for remark in found["fetched"] if not remark.startswith("similarity.lpips: ")]
    assert len(needed) == len(files)
    assert scenario.plan.data.path is None, "a file that only its author has"
    # Weights without a download are a published file, and the plan's head says where.
    head = plan.read_text(encoding="utf-8").partition("\nname: ")[0]
    assert "." not in str(weights) or f"{weights} of github.com/" in " ".join(head.replace("\n# ", " ").split())


@pytest.mark.parametrize("plan", sorted((CONFIGS / "attacks").glob("*.yaml")), ids=lambda path: path.stem)
def test_plans_of_attacks_need_no_network(plan: Path) -> None:
    assert files_of(load_scenario(plan).plan) == []


@pytest.mark.parametrize("kind", ["method", "attack", "audit"])
def test_every_component_has_a_cost(kind: ComponentKind) -> None:
    assert not [name for name in entries(kind) if declared(kind, name).facts.cost is None]


def test_the_text_says_that_it_is_an_estimate() -> None:
    result = CliRunner().invoke(cli, ["run", str(CONFIGS / "frontier.yaml"), "--dry-run"], standalone_mode=False)
    assert "\nestimate: " in result.output
    assert "\nrates: measured on one core" in result.output
    assert "method alone about" in result.output
    assert "GiB a job" in result.output
    assert result.output.count("about") == len(load_scenario(CONFIGS / "frontier.yaml").cells)


def _plan(folder: Path, **data: object) -> Path:
    path = folder / "plan.yaml"
    content = {
        "name": "p",
        "data": {"name": "npz", "path": "faces.npz", "split": {"private": 0.5, "test": 0.5}, **data},
        "backbone": {"name": "pixels"},
        "methods": [{"fedavg": {}}],
    }
    path.write_text(json.dumps(content))
    return path


def test_sizes_of_ones_own_images_are_read_from_the_header(tmp_path: Path) -> None:
    images = np.zeros((40, 9, 8, 3), np.uint8)
    np.savez_compressed(tmp_path / "faces.npz", x=images, y=np.arange(40) % 4)
    scenario = load_scenario(_plan(tmp_path))
    found = sizes_of(scenario.plan, scenario.base)
    assert isinstance(found, Sizes)
    assert (found.private, found.test, found.classes, found.image, found.width) == (18, 18, 4, (9, 8, 3), 216)
    half = load_scenario(_plan(tmp_path, limit=20))
    smaller = sizes_of(half.plan, half.base)
    assert isinstance(smaller, Sizes)
    assert smaller.private == 9  # 20 records, half of them private, a tenth of which are controls


@pytest.mark.parametrize("content", [b"", b"no archive at all"])
def test_an_estimate_of_a_file_that_cannot_be_read_says_why_there_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "faces.npz").write_bytes(content)
    found = estimate(load_scenario(_plan(tmp_path)))
    assert found.seconds is None
    assert "no estimate: faces.npz: is" in found.remarks[0]


def test_the_sizes_of_another_packages_data_set_are_not_known(tmp_path: Path) -> None:
    plan = parse_plan(json.loads(_plan(tmp_path, name="theirs", path=None).read_text()), "plan")
    assert "images of theirs is not known without reading them" in str(sizes_of(plan, tmp_path))


def test_a_machine_with_less_memory_than_a_job_takes_is_named_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The candidates' kernel of a gallery is the largest part of it."""
    np.savez_compressed(tmp_path / "faces.npz", x=np.zeros((26_000, 12, 12, 1), np.uint8), y=np.arange(26_000) % 4)
    plan = json.loads(_plan(tmp_path).read_text()) | {"methods": [{"fedcgs": {}}], "audits": [{"membership": {}}]}
    (tmp_path / "plan.yaml").write_text(json.dumps(plan | {"attacks": [{"membership": {}}]}))
    few = estimate(load_scenario(tmp_path / "plan.yaml")).memory
    (tmp_path / "plan.yaml").write_text(json.dumps(plan | {"attacks": [{"gallery": {}}]}))
    scenario = load_scenario(tmp_path / "plan.yaml")
    held = estimate(scenario).memory
    assert few is not None
    assert held is not None
    assert held > few + 8 * 10_000**2
    here = Here(1.0, ())
    monkeypatch.setattr("fedassay.plan.estimate.memory_bytes", lambda: 2**29)
    assert any("this machine has 0.5 GiB" in remark for remark in estimate(scenario, here=here).remarks)
    monkeypatch.setattr("fedassay.plan.estimate.memory_bytes", lambda: 2**40)
    assert not any("this machine has" in remark for remark in estimate(scenario, here=here).remarks)


def test_estimates_grow_with_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    # Formulas alone: timed stages bend them.
    monkeypatch.setattr("fedassay.plan.measured.shipped", dict)
    plan = CONFIGS / "frontier.yaml"

    def cells(*assignments: str) -> dict[str, float | None]:
        return estimate(load_scenario(plan, assignments)).cells

    one, two = cells(), cells("data.split.private=0.06")
    for key, seconds in one.items():
        assert seconds is not None
        assert two[key] >= seconds  # type: ignore[operator]
    assert two["fedavg-epsinf-delta1e-05-seed0"] == pytest.approx(2 * one["fedavg-epsinf-delta1e-05-seed0"])  # type: ignore[operator]


@pytest.mark.parametrize("name", ["linear", "mlp", "mlp_deep", "cnn", "lenet_mnist"])
def test_parameters_of_bodies_are_about_right(name: str) -> None:
    sizes = Sizes(100, 0, 0, 0, 0, 1, 10, (28, 28, 1), 64, 0.0)
    module = build_body(BodySpec.model_validate({"name": name}), (28, 28, 1), 32, 0)
    actual = sum(parameter.numel() for parameter in module.parameters())
    assert 0.4 < body({"name": name}, sizes)[1] / actual < 3


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "1 s"), (89, "89 s"), (600, "10 min"), (7300, "3 h")])
def test_durations_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def _told(device: str) -> dict[str, object]:
    plan = str(CONFIGS / "papers" / "feddiff_table1.yaml")
    result = CliRunner().invoke(
        cli, ["run", plan, "--dry-run", "--json", "--device", device], standalone_mode=False
    )
    assert result.exception is None, result.output
    told: dict[str, object] = json.loads(result.output)
    return told


def test_a_gpu_that_nobody_measured_has_the_rates_of_a_core_and_the_words_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDASSAY_CACHE", str(tmp_path))
    monkeypatch.setattr("fedassay.plan.here.measure", lambda: 1.0)
    here, there = _told("cpu"), _told("cuda")
    assert here["rates"] == "measured on one core without a GPU, corrected by this machine's speed (1)"
    assert there["rates"] == "measured on one core without a GPU, since those of a GPU were never measured"
    assert here["estimated_seconds"] == there["estimated_seconds"]


def test_a_measured_gpu_has_its_own_rates_for_that_estimate_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedassay.plan import rates

    # The kept speed is the fastest of several measurements: beside other work it changes between two estimates.
    monkeypatch.setenv("FEDASSAY_CACHE", str(tmp_path))
    monkeypatch.setattr("fedassay.plan.here.measure", lambda: 1.0)
    here, before = _told("cpu"), rates.UNET_FLOPS
    file = tmp_path / "gpu_rates.json"
    file.write_text(json.dumps({"card": "a card", "rates": {"UNET_FLOPS": 1000 * before}}))
    monkeypatch.setattr(rates, "GPU_FILE", file)
    there = _told("cuda")
    assert there["rates"] == "measured on a card"
    assert 0 < there["estimated_seconds"] < here["estimated_seconds"]  # type: ignore[operator]
    assert before == rates.UNET_FLOPS
    assert _told("cpu") == here


def test_stages_that_a_core_timed_narrow_no_range_of_a_gpu() -> None:
    scenario = load_scenario(CONFIGS / "quickstart.yaml")
    assert [estimate(scenario, device).spread for device in ("cpu", "cuda")] == [1.5, 3.0]


def test_generators_of_pictures_take_memory(tmp_path: Path) -> None:
    held = []
    for attacks in (["message_algebra"], ["message_algebra", {"feature_diffusion": {"preset": "tiny"}}]):
        content = {
            "name": "p",
            "data": {"name": "photographs"},
            "backbone": {"name": "pixels"},
            "methods": [{"fedcgs": {}}],
            "attacks": attacks,
            "audits": ["message"],
        }
        (tmp_path / "plan.yaml").write_text(json.dumps(content))
        found = estimate(load_scenario(tmp_path / "plan.yaml")).memory
        assert found is not None
        held.append(found)
    assert held[1] > held[0] + 2**28
