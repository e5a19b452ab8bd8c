"""Training and sampling of the conditional denoisers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedassay.nets import training
from fedassay.nets.denoising import guided_prediction, ssim
from fedassay.nets.presets import TINY, Preset
from fedassay.nets.sampling import Sampling, sample
from fedassay.nets.trained import build_network, from_arrays, load_network
from fedassay.nets.training import train
from fedassay.support.optimisation import Optimizer

FAST = replace(TINY, width=32, blocks=1, embedding=16, steps=40, batch=16, warmup=5, sampling_steps=4, centres=0)
WARM = replace(FAST, centres=20)
CONVOLUTIONAL = replace(FAST, architecture="unet", width=8, multipliers=(1, 2), attention_levels=(1,))
WARM_CONVOLUTIONAL = replace(CONVOLUTIONAL, centres=20)
ALL = {"film": FAST, "film warm": WARM, "unet": CONVOLUTIONAL, "unet warm": WARM_CONVOLUTIONAL}


def pairs(n: int = 64, shape: tuple[int, int, int] = (5, 6, 1), d: int = 4, seed: int = 0):
    """Images that are a linear function of their conditions."""
    rng = np.random.default_rng(seed)
    conditions = rng.normal(size=(n, d)).astype(np.float32)
    directions = np.random.default_rng(99).normal(size=(d, int(np.prod(shape))))
    images = np.clip(127.5 + 30 * conditions @ directions, 0, 255).round().astype(np.uint8)
    return images.reshape(n, *shape), conditions


def error(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.mean((a.astype(float) - b.astype(float)) ** 2))


@pytest.mark.long
@pytest.mark.parametrize("centres", [0, 50])
def test_reconstructs_fresh_records_far_better_than_the_mean_image(centres: int) -> None:
    images, conditions = pairs(400)
    private, features = pairs(100, seed=1)
    preset = replace(TINY, width=64, blocks=2, embedding=32, steps=150, batch=64, centres=centres, spread=1.0)
    model = train(images, conditions, preset, seed=0)
    found = sample(model, features, Sampling(steps=10), seed=0)
    mean = np.broadcast_to(images.mean(axis=0), private.shape)
    assert error(found, private) < 0.25 * error(mean, private)
    shuffled = sample(model, features[::-1], Sampling(steps=10), seed=0)
    assert error(shuffled, private) > error(mean, private)


@pytest.mark.long
@pytest.mark.parametrize("preset", [FAST, replace(WARM, dropout=0.2), replace(WARM_CONVOLUTIONAL, steps=3)])
def test_same_seed_same_bits(preset: Preset) -> None:
    images, conditions = pairs()
    runs = [train(images, conditions, preset, seed=seed) for seed in (3, 3, 4)]
    first, second, other = (model.to_arrays() for model in runs)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not all(np.array_equal(first[name], other[name]) for name in first)
    drawn = [sample(runs[0], conditions, seed=seed) for seed in (5, 5, 6)]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


@pytest.mark.parametrize(
    "preset",
    [
        replace(WARM, dropout=0.2, held_out=0.0),
        FAST,
        replace(FAST, learning_rate=1e-2, optimizer=Optimizer(name="sgd", momentum=0.9)),
    ],
    ids=["warm", "fast", "sgd"],
)
def test_resumed_run_equals_uninterrupted_run(preset: Preset, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(training, "KEPT_EVERY", 8)

    class Killed(Exception):
        pass

    def kill_at_25(done: int, total: int) -> None:
        if done == 25:
            raise Killed

    images, conditions = pairs()
    whole = train(images, conditions, preset, seed=0).to_arrays()
    path = tmp_path / "state.safetensors"
    with pytest.raises(Killed):
        train(images, conditions, preset, seed=0, checkpoint=path, progress=kill_at_25)
    steps: list[int] = []
    resumed = train(
        images, conditions, preset, seed=0, checkpoint=path, progress=lambda done, total: steps.append(done)
    )
    assert steps[0] == 25  # the last checkpoint was written after step 24
    arrays = resumed.to_arrays()
    assert all(np.array_equal(whole[name], arrays[name]) for name in whole)


@pytest.mark.parametrize("what", ["another seed", "damaged"])
def test_foreign_or_damaged_checkpoint_is_not_used(what: str, tmp_path, caplog, monkeypatch) -> None:
    monkeypatch.setattr(training, "KEPT_EVERY", 8)
    images, conditions = pairs()
    path = tmp_path / "state.safetensors"
    if what == "damaged":
        path.write_bytes(b"\x00" * 100)
    else:
        train(images, conditions, FAST, seed=1, checkpoint=path)
    fresh = train(images, conditions, FAST, seed=0).to_arrays()
    with caplog.at_level("WARNING"):
        found = train(images, conditions, FAST, seed=0, checkpoint=path).to_arrays()
    assert "training starts anew" in caplog.text
    assert all(np.array_equal(fresh[name], found[name]) for name in fresh)


@pytest.mark.parametrize("preset", ALL.values(), ids=ALL.keys())
def test_export_and_import_round_trip(preset: Preset) -> None:
    images, conditions = pairs()
    model = train(images, conditions, replace(preset, steps=3), seed=0)
    again = from_arrays(model.preset, model.image_shape, model.to_arrays())
    assert np.array_equal(sample(model, conditions, seed=0), sample(again, conditions, seed=0))


def test_import_refuses_the_arrays_of_another_model() -> None:
    images, conditions = pairs()
    arrays = train(images, conditions, replace(FAST, steps=1), seed=0).to_arrays()
    with pytest.raises(ValueError, match=r"leave\.weight"):
        from_arrays(FAST, (8, 8, 1), arrays)
    with pytest.raises(ValueError, match=r"whitening\.mean"):
        from_arrays(FAST, (5, 6, 1), {})


def test_guidance_of_one_is_the_conditional_model_and_zero_the_unconditional() -> None:
    import torch

    images, conditions = pairs()
    model = train(images, conditions, FAST, seed=0)
    network = load_network(model)
    noisy = torch.randn((8, 1, 5, 6), generator=torch.Generator().manual_seed(0))
    condition = torch.from_numpy(model.whitening(conditions[:8]))
    timesteps, keep = torch.full((8,), 700), torch.ones(8, dtype=torch.bool)
    with torch.no_grad():
        conditional = network(noisy, timesteps, condition, keep)
        unconditional = network(noisy, timesteps, condition * 0 + 7, ~keep)
        guided = {w: guided_prediction(network, noisy, 700, condition, w) for w in (0, 1, 1 + 1e-9, 3)}
    assert torch.equal(guided[1], conditional)
    assert torch.allclose(guided[1 + 1e-9], conditional, atol=1e-6)
    # Without its condition a row does not depend on the condition's value.
    assert torch.allclose(guided[0], unconditional, atol=1e-6)
    assert torch.allclose(guided[3], unconditional + 3 * (conditional - unconditional), atol=1e-5)


def test_spread_of_zero_is_the_first_prediction_and_one_the_sample() -> None:
    images, conditions = pairs()
    model = train(images, conditions, FAST, seed=0)
    kept = (Sampling(spread=spread) for spread in (0.0, 0.5, 1.0))
    mean, half, full = (sample(model, conditions, each, seed=0).astype(int) for each in kept)
    assert np.array_equal(mean, sample(model, conditions, Sampling(steps=1, spread=1.0), seed=0))
    assert np.abs(mean - full).max() > 2
    assert np.abs(2 * half - mean - full).max() <= 2


@pytest.mark.parametrize("shape", [(32, 28, 1), (8, 8, 3), (5, 6, 1)])
def test_structural_loss_agrees_with_skimage(shape: tuple[int, int, int]) -> None:
    import torch
    from skimage.metrics import structural_similarity

    rng = np.random.default_rng(0)
    a = rng.uniform(-1, 1, size=(3, *shape))
    b = np.clip(a + 0.3 * rng.normal(size=a.shape), -1, 1)
    to_torch = [torch.from_numpy(x).permute(0, 3, 1, 2) for x in (a, b)]
    side = min(7, *shape[:2])
    if side % 2:
        expected = [
            structural_similarity(x, y, data_range=2, channel_axis=-1, win_size=side)
            for x, y in zip(a, b, strict=True)
        ]
        np.testing.assert_allclose(ssim(*to_torch).numpy(), expected, atol=1e-6)


@pytest.mark.long
def test_stops_when_the_records_held_out_are_forgotten() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, size=(40, 6, 6, 1)).astype(np.uint8)
    conditions = rng.normal(size=(40, 8)).astype(np.float32)
    steps: list[int] = []
    preset = replace(WARM, steps=2000, width=64, held_out=0.25)
    train(images, conditions, preset, seed=0, progress=lambda done, total: steps.append(done))
    assert len(steps) < 1500
    assert steps[-1] == 2000


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("preset", ALL.values(), ids=ALL.keys())
def test_gradients_of_every_record_equal_those_of_one_at_a_time(preset: Preset) -> None:
    import torch
    from opacus import GradSampleModule

    shape, n = (6, 5, 1), 3
    channels = 2 if preset.centres else 1
    network = build_network(replace(preset, dropout=0.0), shape, 4, seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            # Outputs start at zero, where most gradients are zero too.
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    noisy = torch.randn((n, channels, *shape[:2]), generator=generator)
    timesteps, condition = torch.tensor([10, 500, 990]), torch.randn((n, 4), generator=generator)
    keep = torch.tensor([True, False, True])
    expected = []
    for i in range(n):
        network.zero_grad()
        row = slice(i, i + 1)
        network(noisy[row], timesteps[row], condition[row], keep[row]).square().mean().backward()
        expected.append({name: p.grad.clone() for name, p in network.named_parameters()})
    network.zero_grad()
    sampled = GradSampleModule(network, loss_reduction="sum")
    sampled(noisy, timesteps, condition, keep).square().flatten(1).mean(dim=1).sum().backward()
    for name, parameter in sampled._module.named_parameters():
        for i in range(n):
            torch.testing.assert_close(parameter.grad_sample[i], expected[i][name], rtol=1e-3, atol=1e-5)


def test_training_leaves_the_global_generator_alone() -> None:
    import torch

    images, conditions = pairs()
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    sample(train(images, conditions, FAST, seed=0), conditions, seed=0)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.long
@pytest.mark.parametrize("preset", ALL.values(), ids=ALL.keys())
@pytest.mark.parametrize("shape", [(2, 3, 1), (8, 8, 1), (25, 25, 1), (14, 11, 3), (32, 28, 1)])
def test_any_image_shape(preset: Preset, shape: tuple[int, int, int]) -> None:
    images, conditions = pairs(20, shape=shape)
    model = train(images, conditions, replace(preset, steps=2), seed=0)
    found = sample(model, conditions[:3], Sampling(steps=2), seed=0)
    assert found.shape == (3, *shape)
    assert found.dtype == np.uint8


def test_wrong_input_is_named() -> None:
    images, conditions = pairs()
    with pytest.raises(ValueError, match=r"\(1, 6\) pixels"):
        train(images[:, :1], conditions, FAST, seed=0)
    with pytest.raises(ValueError, match="float32"):
        train(images.astype(np.float32), conditions, FAST, seed=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\(64, d\)"):
        train(images, conditions[:5], FAST, seed=0)
    model = train(images, conditions, replace(FAST, steps=1), seed=0)
    with pytest.raises(ValueError, match=r"\(n, 4\)"):
        sample(model, conditions[:, :3], seed=0)
    with pytest.raises(ValueError, match="NaN"):
        sample(model, conditions * np.nan, seed=0)
    with pytest.raises(ValueError, match="steps=0"):
        sample(model, conditions, Sampling(steps=0), seed=0)
