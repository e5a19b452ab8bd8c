"""Sampling: one stream of noise on a CPU, counted noise on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedassay.nets.denoising import ancestral_step, build_scheduler, solver_step
from fedassay.nets.generators import GENERATORS, one_hot
from fedassay.nets.presets import TINY, Prediction, Preset, Sampler
from fedassay.nets.sampling import Sampling, sample
from fedassay.nets.trained import TrainedDenoiser
from fedassay.nets.training import train

Pretend = Callable[[], AbstractContextManager[Any]]
FILM = replace(TINY, width=16, blocks=1, embedding=8, batch=8, centres=0, steps=4, warmup=1)
UNET = replace(GENERATORS["small"], width=8, multipliers=(1, 2), attention_levels=(1,), batch=4, steps=2, warmup=1)
CONDITIONS = one_hot(np.arange(11) % 3, 3)


def trained(preset: Preset) -> TrainedDenoiser:
    images = np.random.default_rng(0).integers(0, 256, (11, 8, 8, 3)).astype(np.uint8)
    return train(images, CONDITIONS, preset, seed=0)


@pytest.mark.parametrize("sampler", ["ddim", "ddpm", "dpm"])
@pytest.mark.parametrize("preset", [FILM, UNET], ids=["film", "unet"])
def test_counted_noise_is_the_same_in_any_batch(preset: Preset, sampler: Sampler) -> None:
    if sampler == "dpm":
        # What an untrained network takes for noise leaves clean images that are clipped everywhere.
        preset = replace(preset, prediction="v_prediction")
    model = trained(preset)

    def drawn(seed: int, batch: int) -> Any:
        sampling = Sampling(sampler, steps=3, spread=1.0)
        return sample(model, CONDITIONS, sampling, seed=seed, batch=batch, counted=True)

    whole = drawn(7, 11)
    # Rounding may move a pixel over the border of two values.
    assert np.count_nonzero(drawn(7, 4) != whole) <= whole.size // 100
    assert np.mean(drawn(8, 11) != whole) > 0.5
    assert (
        np.mean(sample(model, CONDITIONS, Sampling(steps=3, spread=1.0, sampler=sampler), seed=7) != whole) > 0.5
    )


@pytest.mark.parametrize("sampler", ["ddim", "ddpm", "dpm"])
def test_a_cpu_draws_from_one_stream_and_a_gpu_counts(sampler: Sampler, pretended_gpu: Pretend) -> None:
    model = trained(FILM)

    def drawn(**given: Any) -> Any:
        return sample(model, CONDITIONS, Sampling(sampler, steps=3), seed=7, **given)

    np.testing.assert_array_equal(drawn(), drawn(counted=False))
    counted, streamed = drawn(counted=True), drawn()
    with pretended_gpu() as gpu:
        np.testing.assert_array_equal(drawn(device="cuda"), counted)
        np.testing.assert_array_equal(drawn(device="cuda", counted=False), streamed)
    assert not gpu.drawn


@pytest.mark.parametrize("prediction", ["sample", "v_prediction", "epsilon"])
@pytest.mark.parametrize("steps", [1, 4, 1000])
def test_the_ancestral_step_is_diffusers_step_with_the_noise_given(prediction: Prediction, steps: int) -> None:
    scheduler = build_scheduler(replace(UNET, prediction=prediction), "ddpm")
    scheduler.set_timesteps(steps)
    generator = torch.Generator().manual_seed(0)
    for timestep in {int(scheduler.timesteps[at]) for at in (0, steps // 2, -1)}:
        predicted, noisy = (torch.randn(2, 3, 4, 4, generator=generator) for _ in range(2))
        asked = torch.Generator().manual_seed(5)
        expected = scheduler.step(predicted, timestep, noisy, generator=asked)
        noise = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(5)) if timestep > 0 else None
        clean, following = ancestral_step(scheduler, predicted, timestep, noisy, noise)
        torch.testing.assert_close(clean, expected.pred_original_sample, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(following, expected.prev_sample, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("prediction", ["sample", "v_prediction", "epsilon"])
def test_the_solver_converges_faster_than_ddim(prediction: Prediction) -> None:
    """Of normal images of one deviation the best denoiser is known, and so is where the equation ends."""
    deviation, first = 0.3, torch.randn(4, 1, 4, 4, generator=torch.Generator().manual_seed(1)).clamp(-2, 2)
    preset = replace(UNET, prediction=prediction, beta_schedule="squaredcos_cap_v2")
    kept = float(build_scheduler(preset).alphas_cumprod[-1])
    solution = first * deviation / (kept * deviation**2 + 1 - kept) ** 0.5

    def error(sampler: Sampler, steps: int) -> float:
        scheduler = build_scheduler(preset, sampler)
        scheduler.set_timesteps(steps)
        image = first
        for timestep in scheduler.timesteps.tolist():
            kept = float(scheduler.alphas_cumprod[timestep])
            clean = kept**0.5 * deviation**2 / (kept * deviation**2 + 1 - kept) * image
            noise = (image - kept**0.5 * clean) / (1 - kept) ** 0.5
            velocity = kept**0.5 * noise - (1 - kept) ** 0.5 * clean
            said = {"sample": clean, "epsilon": noise, "v_prediction": velocity}[prediction]
            if sampler == "dpm":
                shown, image = solver_step(scheduler, prediction, said, timestep, image)
                torch.testing.assert_close(shown, clean, rtol=1e-3, atol=1e-4)
            else:
                image = scheduler.step(said, timestep, image).prev_sample
        return float((image - solution).abs().max())

    assert error("dpm", 10) < 0.7 * error("ddim", 10)
    assert error("dpm", 25) < 0.3 * error("ddim", 25)
    assert error("dpm", 50) < 0.02 * error("ddim", 50)


def test_the_solver_takes_ten_steps_where_none_are_given() -> None:
    model = trained(FILM)
    ten = sample(model, CONDITIONS, Sampling(steps=10, spread=1.0, sampler="dpm"), seed=7)
    np.testing.assert_array_equal(sample(model, CONDITIONS, Sampling(spread=1.0, sampler="dpm"), seed=7), ten)


def test_a_batch_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="batch=0 given"):
        sample(trained(FILM), CONDITIONS, seed=0, batch=0)
