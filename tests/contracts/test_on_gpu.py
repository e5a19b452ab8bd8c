"""Every learning step runs on `cuda`, and gives what the CPU gives: on the pretended GPU of `pretended_gpu.py`.

A method, an attack or an audit that ignores the device is found by where its matrix products and convolutions
ran; one that mixes devices, by the error a GPU would raise. Random numbers come from generators of the host, or
are counted, so that the results are the same; where they do not, the shapes are.

Not here: several processes on one GPU (`--jobs`), Ray, the backbones that need published weights (torchvision's
networks have the same code path as `squeezenet1_1`), and what a GPU rounds otherwise.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import fedassay
from fedassay.attacks.feature_inversion import FeatureInversion
from fedassay.backbones import build, small_cnn, vision_transformer
from fedassay.backbones.base import BackboneRequest
from fedassay.backbones.vision_transformer import Shape, VisionTransformer
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import every_audit
from fedassay.data.images import ImageSet
from fedassay.exchange.view import ThreatModel, view
from fedassay.execution.apart import forget_runs
from fedassay.execution.runner import RunOptions, run_scenario
from fedassay.heads.linear import train_head
from fedassay.methods.feddiff.server import record_losses
from fedassay.mixtures import fit_mixtures
from fedassay.nets import presets, sampling
from fedassay.nets.dp_sgd.generators import PrivateTraining, train_generator_privately
from fedassay.nets.dp_sgd.mechanism import TrainingMechanism
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.nets.generators import GENERATORS, Computation, one_hot, train_generator
from fedassay.nets.presets import TINY, Preset
from fedassay.nets.sampling import Sampling, sample
from fedassay.nets.training import train
from fedassay.plan.resolve import load_scenario
from fedassay.plan.wiring import message_attacks
from fedassay.privacy.tape import Key
from fedassay.similarity import nearest, ssim_search
from fedassay.similarity.groups import group_agreement
from fedassay.similarity.lpips import Lpips, load_lpips
from fedassay.similarity.memorization import memorization_scores
from fedassay.similarity.ssim import ssim
from fedassay.support.optimisation import Minibatches
from fedassay.support.progress import SILENT
from fedassay.support.registry import entries, lookup
from fedassay.support.seeds import Seeds
from fedassay.support.torchvision import import_torchvision

MakeTask = Callable[..., MethodInput]
Pretend = Callable[[], AbstractContextManager[Any]]
OnBoth = Callable[[Callable[[str], Any]], tuple[Any, Any, Any]]

HEAD = {"dp_sgd": {"epochs": 1, "sampling_rate": 0.5}}
NETWORKS = {"local_epochs": 1, "dp_sgd": {"sampling_rate": 0.5}}
ROUNDS = {"rounds": 2, **NETWORKS}
FEDDIFF = {
    "epochs": 1,
    "steps": 2,
    "classifier": {"epochs": 1},
    "dp_sgd": {"epochs": 1, "sampling_rate": 0.5, "draws": 2},
}
FEDCVAE = {"hidden": 16, "classifier": NETWORKS, **NETWORKS}
SMALL: list[tuple[str, dict[str, Any]]] = [
    ("average", HEAD),
    ("ccvr", {"fedavg": NETWORKS}),
    ("centralized", {}),
    ("centralized", {"head": {"solver": "adam", "epochs": 2}}),
    ("co_boosting", {"networks": NETWORKS, "rounds": 2, "generator_steps": 2, "student_steps": 2}),
    ("dense", {"networks": NETWORKS, "rounds": 2, "generator_steps": 2, "student_steps": 2}),
    ("ensemble", HEAD),
    ("ensemble", {"networks": NETWORKS}),
    ("fedavg", ROUNDS),
    ("fedavg", {"share": "body", "fine_tune": {"epochs": 1}, **ROUNDS}),
    ("fedavg", {"share": "head", "start": "backbone", **NETWORKS}),
    ("fedavg", {"share": "body", "schedule": "body", "proximal": 0.1, **NETWORKS}),
    ("fedavg_heads", {"server": {}, **ROUNDS}),
    ("fedbe", {"epochs": 1, **HEAD}),
    ("fedcgs", {"generated": {}}),
    ("fedcgs", {"personalize": {"epochs": 1}}),
    ("fedcgs", {"personalize": {"epochs": 1, "head": "fresh"}, "secure_aggregation": "all"}),
    ("fedcvae", FEDCVAE),
    ("fedcvae", {"server": "distill", "distillation_epochs": 1, "decoder": "convolutions", **FEDCVAE}),
    ("feddiff", FEDDIFF),
    ("feddiff", {"fmf": "gaussian", "gamma": 20.0, **FEDDIFF}),
    ("fedkt", {"partitions": 1, "teachers": 2}),
    ("fedlog", ROUNDS),
    ("fedlog", {"variant": "c", "body": "dp_sgd", "bodies": ["mlp", "cnn"], **ROUNDS}),
    ("fedlog", {"body": "private", "initialization": "own", "clip_gradient": "zero", **ROUNDS}),
    ("fedpft", {"components": 2}),
    ("fedpft", {"components": 2, "covariance": "full", "densities": True, "guarantee": True}),
    ("fedpft", {"components": 2, "covariance": "spherical", "restarts": 2, "counts": "noised"}),
    ("fedpft_chain", {"components": 2}),
    ("fedproto", ROUNDS),
    ("fedproto", {"body": "private", **ROUNDS}),
    ("knowledge_distillation", {"epochs": 1, **HEAD}),
    ("raw_features", {"head": {"solver": "adam", "epochs": 1}}),
]
"""Settings under which a method takes seconds; one that is not named here runs with its defaults."""

METHODS = [*SMALL, *((name, {}) for name in entries("method") if name not in dict(SMALL))]


@pytest.fixture
def on_both(pretended_gpu: Pretend, monkeypatch: pytest.MonkeyPatch) -> OnBoth:
    """Runs something on either device: its results, and the pretended GPU that one of them ran on.

    What is sampled starts from the same noise on both: the CPU counts it as well.
    """
    monkeypatch.setattr(sampling, "is_gpu", lambda device: True)

    def run(computed: Callable[[str], Any]) -> tuple[Any, Any, Any]:
        here = computed("cpu")
        with pretended_gpu() as gpu:
            there = computed("cuda")
        return here, there, gpu

    return run


def same(here: Any, there: Any) -> None:
    """Numbers, arrays and whatever holds them are equal, up to the last digits of float32."""
    if isinstance(here, Mapping):
        assert here.keys() == there.keys()
        for key in here:
            same(here[key], there[key])
    elif isinstance(here, list | tuple):
        for x, y in zip(here, there, strict=True):
            same(x, y)
    else:
        x, y = np.asarray(here), np.asarray(there)
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        if x.dtype.kind == "f":
            largest = float(np.nanmax(np.abs(x), initial=1.0, where=np.isfinite(x)))
            np.testing.assert_allclose(y, x, rtol=1e-5, atol=1e-5 * largest)
        else:
            # A pixel on the border of two values may fall to either side.
            assert np.count_nonzero(x != y) <= (x.size // 100 if x.dtype == np.uint8 else 0)


def messages(outcome: Outcome) -> list[dict[str, Any]]:
    return [{name: f.values for name, f in message.fields.items()} for message in outcome.transcript.messages]


@pytest.mark.long
@pytest.mark.parametrize("private", [False, True], ids=["plain", "private"])
@pytest.mark.parametrize(("name", "given"), METHODS, ids=lambda x: x if isinstance(x, str) else "-".join(x))
def test_methods(name: str, given: dict[str, Any], private: bool, make_task: MakeTask, on_both: OnBoth) -> None:
    factory = lookup("method", name)
    if private and not factory.facts.private_form:
        pytest.skip(f"{name} has no private form")
    asked: dict[str, Any] = {"clients": 2, "records": 40}
    if private:
        asked |= {"epsilon": 20.0, "adjacency": factory.facts.adjacency}
    needs_network = "personalize" in given or given.get("start") == "backbone"
    asked |= {"backbone": "small_cnn" if needs_network else "pixels", "weights": "random"}

    def run(device: str) -> tuple[Any, ...]:
        task = make_task(device=device, **asked)
        outcome = factory.model_validate(given).run(task)
        predicted = None if outcome.model is None else outcome.model.predict(task.test)
        return messages(outcome), dict(outcome.utility), predicted

    here, there, gpu = on_both(run)
    for x, y in zip(here[:2], there[:2], strict=True):
        same(x, y)
    if here[2] is not None:
        assert np.mean(here[2] == there[2]) > 0.98
    # Mixtures under differential privacy are refined on the host, in a step or two; closed forms are solved there,
    # in float64, whole.
    ours = not entries("method")[name].package and "closed_forms" not in lookup("method", name).__module__
    assert gpu.share() == 1 or (private and "fedpft" in name and gpu.share() > 0.99) or not (ours or gpu.work)
    assert not gpu.drawn, "no seed of the task governs the GPU's own generator"


def _two_blocks(shape: Shape) -> Shape:
    return replace(shape, layers=2)


@pytest.mark.parametrize("name", sorted(entries("backbone")))
def test_backbones(name: str, make_task: MakeTask, on_both: OnBoth, tmp_path: Path, monkeypatch: Any) -> None:
    public = make_task().public
    assert public is not None
    # Transformers take images of one size only, whose positions they have learned.
    size, count = (None, 2) if "_vit_" in name else (32, 40)
    images = ImageSet(public.images[:count], public.labels[:count], tuple("0123456789"))
    weights = {"pixels": None, "small_cnn": "public"}.get(name, "random")
    monkeypatch.setattr(small_cnn, "_STEPS", (3, 3))
    # Two blocks are as good a test as twelve, which are alike.
    monkeypatch.setattr(
        vision_transformer, "VisionTransformer", lambda shape: VisionTransformer(_two_blocks(shape))
    )

    def features(device: str) -> tuple[Any, ...]:
        # Nothing is taken from what the other device has computed.
        monkeypatch.setenv("FEDASSAY_CACHE", str(tmp_path / device))
        asked = BackboneRequest(name, weights, size, (8, 8, 1), 10, images, 0, device, Path())
        backbone = build(asked)
        return backbone.features(images.images), backbone.fingerprint

    here, there, gpu = on_both(features)
    # Group norm takes its inputs in another memory layout there, and rounds otherwise; Adam's first steps turn
    # that into signs.
    np.testing.assert_allclose(there[0], here[0], rtol=1e-5, atol=0.02 if name == "small_cnn" else 1e-5)
    assert name == "small_cnn" or here[1] == there[1]
    assert gpu.share() == 1 or name == "pixels"
    assert not gpu.drawn


@pytest.mark.parametrize("family", ["spectrum", "pixels", "deep_image_prior"])
@pytest.mark.parametrize("backbone", ["pixels", "small_cnn"])
def test_feature_inversion(family: str, backbone: str, make_task: MakeTask, on_both: OnBoth) -> None:
    def inverted(device: str) -> list[Any]:
        task = make_task(clients=1, records=6, backbone=backbone, weights="random", device=device)
        known = Knowledge(None, 10, task.backbone, True, Seeds(0), device, SILENT)
        seen = view(lookup("method", "raw_features")().run(task).transcript, ThreatModel())
        result: AttackResult = FeatureInversion.model_validate({"family": family, "steps": 4}).run(seen, known)
        return [*(made.images for made in result.reconstructions), *result.scores.values()]

    here, there, gpu = on_both(inverted)
    if (family, backbone) == ("deep_image_prior", "small_cnn"):
        # Group norm rounds otherwise in the memory layout there, on some processors, and Adam amplifies it.
        for x, y in zip(here, there, strict=True):
            np.testing.assert_allclose(
                np.float64(y), np.float64(x), rtol=0.01, atol=2.0 if x.dtype == np.uint8 else 0
            )
    else:
        same(here, there)
    assert gpu.share() > 0.9


UNET = replace(GENERATORS["small"], width=8, multipliers=(1, 2), attention_levels=(1,), batch=8, dropout=0.0)
FILM = replace(TINY, width=16, blocks=2, embedding=8, batch=8, centres=8, steps=6, dropout=0.0)


@pytest.mark.long
@pytest.mark.parametrize("preset", [FILM, UNET], ids=["film", "unet"])
def test_the_denoiser(preset: Preset, make_task: MakeTask, on_both: OnBoth, tmp_path: Path) -> None:
    records = make_task(clients=1, records=24).clients[0]
    conditions = one_hot(records.labels, 10)

    def learnt(device: str) -> tuple[Any, ...]:
        model = train(
            records.images,
            conditions,
            replace(preset, steps=3),
            seed=0,
            device=device,
            checkpoint=tmp_path / f"{device}.safetensors",
        )
        asked = (Sampling("ddim", 2), Sampling("ddpm", 2))
        images = [sample(model, conditions[:3], each, seed=1, device=device) for each in asked]
        if not preset.centres:
            images.append(record_losses(model, records.images, conditions, (0.2, 0.6), Seeds(3), device=device))
        return images, dict(model.weights)

    here, there, gpu = on_both(learnt)
    same(here, there)
    assert gpu.share() == 1
    assert {kind for _, kind in gpu.work} == {torch.float32}
    # The run is over: its checkpoint holds the last step, and is read to the same device.
    _, again, _ = on_both(learnt)
    same(there, again)


@pytest.mark.long
def test_dropout_draws_on_the_gpu(make_task: MakeTask, on_both: OnBoth) -> None:
    """From the device's own generator, seeded in every step; a caller finds that generator as it was."""
    records = make_task(clients=1, records=24).clients[0]

    def learnt(device: str) -> Any:
        before = torch.cuda.get_rng_state() if device == "cuda" else torch.get_rng_state()
        model = train(records.images, records.features, replace(FILM, dropout=0.5), seed=0, device=device)
        after = torch.cuda.get_rng_state() if device == "cuda" else torch.get_rng_state()
        assert torch.equal(before, after)
        return model.weights

    here, there, gpu = on_both(learnt)
    assert gpu.drawn
    same(here, there)
    _, again, _ = on_both(learnt)
    same(there, again)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(GENERATORS))
@pytest.mark.parametrize("private", [False, True], ids=["plain", "private"])
def test_generators(name: str, private: bool, make_task: MakeTask, on_both: OnBoth) -> None:
    records = make_task(clients=1, records=8).clients[0]
    preset = replace(GENERATORS[name], width=8, batch=4, embedding=8)  # type: ignore[index]
    if preset.multipliers:
        # 8x8 images are halved twice at most.
        preset = replace(preset, multipliers=(1, 2))
    steps = PrivateSteps(noise_multiplier=1.0, sampling_rate=0.5, steps=2, norm=1.0, batch=4.0)

    def learnt(device: str) -> Any:
        given = (records.images, records.labels, 10, preset)
        if private:
            training = PrivateTraining(steps, draws=2, average=0.5)
            mechanism = TrainingMechanism(
                Seeds(0).child("noise"), Seeds(0).child("coins"), Key("client/0", 0, "weights")
            )
            return train_generator_privately(*given, training, mechanism, Computation(0, device)).weights
        return train_generator(*given, 2, Computation(0, device)).weights

    here, there, gpu = on_both(learnt)
    # Adam's first steps divide by gradients that are next to nothing.
    for key in here:
        np.testing.assert_allclose(there[key], here[key], atol=1e-3)
    assert gpu.share() == 1
    # Private noise is added in float64; whether that is work that counts depends on the network.
    assert {kind for _, kind in gpu.work} - ({torch.float64} if private else set()) == {torch.float32}


@pytest.fixture(scope="module")
def pictures() -> np.ndarray:
    smooth = np.random.default_rng(0).integers(0, 256, (40, 4, 4, 3)).repeat(4, axis=1).repeat(4, axis=2)
    return smooth.astype(np.uint8)


SEARCHES: dict[str, Callable[[np.ndarray, str], Any]] = {
    "ssim": lambda x, on: ssim(x[:20], x[20:], device=on),
    "most_similar": lambda x, on: tuple(ssim_search.most_similar(x[:9], x[9:], device=on)),
    "top_k": lambda x, on: tuple(ssim_search.top_k(x, x, 3, exclude_self=True, device=on)),
    "group_agreement": lambda x, on: group_agreement(x.reshape(8, 5, 16, 16, 3), device=on),
    "top_k_l2": lambda x, on: tuple(nearest.top_k_l2(x[:9], x, 3, device=on)),
    "memorization": lambda x, on: list(vars(memorization_scores(x[:9], x[5:], n=4, device=on)).values()),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_searches(name: str, pictures: np.ndarray, on_both: OnBoth) -> None:
    here, there, gpu = on_both(lambda device: SEARCHES[name](pictures, device))
    same(here, there)
    # Plain SSIM is made of sums alone.
    assert gpu.share() == 1 or (name in {"ssim", "group_agreement"} and not gpu.work)


@pytest.mark.long
@pytest.mark.parametrize("net", ["alex", "squeeze"])
def test_lpips(net: str, pictures: np.ndarray, on_both: OnBoth, tmp_path: Path) -> None:
    """With a trunk of random weights."""
    models = import_torchvision().models
    made = models.alexnet if net == "alex" else models.squeezenet1_1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        torch.save(made(weights=None).state_dict(), tmp_path / "trunk.pt")

    def scored(device: str) -> Any:
        found = load_lpips(net, tmp_path / "trunk.pt", device=device)  # type: ignore[arg-type]
        assert isinstance(found, Lpips)
        return found.score(pictures[:3], pictures[3:6])

    here, there, gpu = on_both(scored)
    same(here, there)
    assert gpu.share() == 1


@pytest.mark.parametrize("family", ["diag", "spherical", "full"])
def test_mixtures(family: str, on_both: OnBoth) -> None:
    rng = np.random.default_rng(0)
    groups = [rng.normal(size=(n, 5)).astype(np.float32) for n in (30, 8, 1)]

    def fitted(device: str) -> tuple[Any, ...]:
        generators = [np.random.default_rng(seed) for seed in range(3)]
        mixtures, report = fit_mixtures(groups, 3, family, generators, restarts=2, device=device)  # type: ignore[arg-type]
        return mixtures.weights, mixtures.means, mixtures.covariances, report.log_likelihood

    here, there, gpu = on_both(fitted)
    same(here, there)
    assert gpu.share() == 1


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_heads(solver: str, make_task: MakeTask, on_both: OnBoth) -> None:
    client = make_task(clients=1, records=60).clients[0]

    def fitted(device: str) -> tuple[Any, ...]:
        minibatches = Minibatches(2, 128, 1e-4) if solver == "adam" else None
        drawn = torch.Generator().manual_seed(0)
        given = (client.features, client.labels)
        head = train_head(*given, minibatches=minibatches, generator=drawn, device=device)
        return head.weights, head.bias

    here, there, gpu = on_both(fitted)
    same(here, there)
    assert gpu.share() == 1


PLAN = """
name: on-gpu
seeds: [3]
data: {name: digits, limit: 300, split: {private: 0.3, attacker: 0.3, public: 0.1, test: 0.3}}
clients: {count: 2, partition: iid}
backbone: {name: small_cnn, weights: random}
similarity: {lpips: {net: squeeze, trunk: TRUNK}}
methods:
  - raw_features: {transport: float32}
  - feddiff: {epochs: 2, steps: 2, classifier: {epochs: 1}}
  - fedpft: {components: 1, epsilon: 5}
attacks:
  - feature_diffusion: {samples: 2, steps: 2}
  - feature_inversion: {steps: 2, max_vectors: 8}
  - gram_factorization: {iterations: 5}
  - label_distribution: {}
  - membership: {shadows: 2}
  - message_algebra: {}
audits:
  - dp_claim: {mechanism_trials: 1000}
  - ledger: {}
  - inversion: {control_records: 8, fresh_records: 20, permutations: 200}
  - membership: {trials: 0, releases: 0}
  - memorization: {neighbours: 5, control_records: 8, permutations: 200}
  - message: {}
  - reconstruction: {control_records: 30, permutations: 200}
resources: {threads: 1}
"""


def plan_of_everything() -> dict[str, Any]:
    """The plan above, with every attack and audit that is registered and not named there, at its defaults."""
    plan: dict[str, Any] = yaml.safe_load(PLAN)
    for kind, key in (("attack", "attacks"), ("audit", "audits")):
        named = {next(iter(item)) for item in plan[key]}
        plan[key] += [{name: {}} for name in entries(kind) if name not in named]  # type: ignore[arg-type]
    return plan


@pytest.mark.long
def test_attacks_and_audits_of_messages(on_both: OnBoth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that need nothing but messages, of other packages too: a quick run with the same record."""
    plan = plan_of_everything()
    attacks = [{name: {}} for name in message_attacks()]
    judges = [{name: {}} for name, facts in every_audit().items() if set(facts.judges) & {"vectors", "counts"}]
    plan |= {"similarity": {}, "methods": [{"fedcgs": {}}], "attacks": attacks, "audits": judges}
    plan["backbone"] = {"name": "pixels"}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    scenario = load_scenario(tmp_path / "plan.yaml")

    def run(device: str) -> dict[str, Any]:
        monkeypatch.setenv("FEDASSAY_CACHE", str(tmp_path / "cache" / device))
        _, record = run_scenario(scenario, tmp_path / device, RunOptions(device=device, quiet=True))
        return record.model_dump(mode="json")

    here, there, _ = on_both(run)
    assert not there["errors"]
    found = [[_verdict(finding) for finding in record["cells"][0]["findings"]] for record in (here, there)]
    assert found[0] == found[1]
    assert len(found[0]) >= len(message_attacks())


@pytest.mark.slow
def test_a_whole_run_of_every_attack_and_audit(
    on_both: OnBoth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From `--device` to the record, in this process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        torch.save(import_torchvision().models.squeezenet1_1(weights=None).state_dict(), tmp_path / "trunk.pt")
    plan = plan_of_everything()
    plan["similarity"]["lpips"]["trunk"] = str(tmp_path / "trunk.pt")
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    scenario = load_scenario(tmp_path / "plan.yaml")
    monkeypatch.setitem(presets.PRESETS, "tiny", FILM)

    def run(device: str) -> dict[str, Any]:
        monkeypatch.setenv("FEDASSAY_CACHE", str(tmp_path / "cache" / device))
        # What runs a second time runs in a worker, which has no pretended GPU.
        forget_runs()
        _, record = run_scenario(scenario, tmp_path / device, RunOptions(device=device, quiet=True))
        return record.model_dump(mode="json")

    here, there, gpu = on_both(run)
    assert there["environment"]["device"] == "cuda"
    assert not there["errors"]
    assert gpu.share() > 0.9999
    assert not gpu.drawn
    for x, y in zip(here["cells"], there["cells"], strict=True):
        assert [_verdict(finding) for finding in x["findings"]] == [_verdict(finding) for finding in y["findings"]]
        for before, after in zip(x["findings"], y["findings"], strict=True):
            for metric, found in before["metrics"].items():
                if found["value"] not in {None, "inf"}:
                    assert after["metrics"][metric]["value"] == pytest.approx(found["value"], rel=0.01, abs=0.01)


def _verdict(finding: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(finding[key] for key in ("audit", "source", "selection", "verdict"))


@pytest.mark.long
def test_nobody_forgets_to_say_where() -> None:
    """A function that computes on the CPU unless told otherwise is told, wherever it is called in the package."""
    forgotten = []
    for path in (path for part in fedassay.__path__ for path in _sources(Path(part))):
        tree = ast.parse(path.read_text())
        imported = {
            (name.asname or name.name): (node.module, name.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedassay.")
            for name in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in imported:
                given = {keyword.arg for keyword in node.keywords}
                if not given & {"device", None} and _has_a_default_device(*imported[node.func.id], len(node.args)):
                    forgotten.append(f"{path.name}:{node.lineno} {node.func.id}")
    assert not forgotten


def _sources(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir():
            yield from _sources(path)
        elif path.suffix == ".py":
            yield path


@cache
def _has_a_default_device(module: str, name: str, positional: int) -> bool:
    """Whether a call with so many positional arguments leaves the device to a default."""
    found = getattr(importlib.import_module(module), name)
    # Exceptions and some types of the standard library say nothing of what they take.
    try:
        parameters = list(inspect.signature(found).parameters.values())
    except (TypeError, ValueError):
        return False
    return any(
        parameter.name == "device"
        and parameter.default is not inspect.Parameter.empty
        and (parameter.kind is inspect.Parameter.KEYWORD_ONLY or number >= positional)
        for number, parameter in enumerate(parameters)
    )


def test_it_would_be_noticed() -> None:
    assert _has_a_default_device("fedassay.similarity.ssim_search", "most_similar", 2)
    assert _has_a_default_device("fedassay.mixtures", "fit_mixtures", 4)
    assert _has_a_default_device("fedassay.backbones.base", "to_input", 1)
    assert not _has_a_default_device("fedassay.backbones.base", "to_input", 2)
