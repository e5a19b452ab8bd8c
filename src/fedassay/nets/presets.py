"""Sizes of the denoising model: its network, its training and its sampling.

Each number that is not the papers' was chosen by measuring, on two CPU cores, the mean SSIM of
private images reconstructed from raw features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from fedassay.support.errors import PlanError
from fedassay.support.optimisation import Optimizer

Architecture = Literal["film", "unet"]
"""`film`: residual perceptron on the flattened image. `unet`: convolutional U-Net."""

Prediction = Literal["sample", "v_prediction", "epsilon"]
"""The output of the network: the clean image x0, v (Salimans & Ho 2022), or the noise."""

Sampler = Literal["ddim", "ddpm", "dpm"]
"""`ddim`: deterministic given the first noise (Song et al. 2021). `ddpm`: ancestral (Ho et al. 2020). `dpm`: a
second-order solver of the same equation as `ddim`, which needs fewer steps (DPM-Solver++ 2M; Lu et al. 2022)."""

BetaSchedule = Literal["linear", "scaled_linear", "squaredcos_cap_v2"]
"""Names as in diffusers; the last is the cosine schedule (Nichol & Dhariwal 2021)."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """All settings of a training run, apart from data and seed.

    Defaults are the settings that all presets share, without this project's additions to the papers' model.

    Attributes:
        name: Its name in plans.
        architecture: The kind of network.
        width: Units of a `film` layer; channels of the U-Net's first level.
        blocks: Residual blocks (`film`), or residual blocks in each level (`unet`).
        multipliers: Channels of each U-Net level as multiples of `width`; unused by `film`.
        attention_levels: U-Net levels, counted from 0 at full size, that have self-attention.
        embedding: Columns of the embedding of time and condition.
        whiten: Decorrelate the condition (see `fedassay.nets.whitening`) instead of only scaling it.
        direct: Give the condition to the first layer too, beside the noisy image.
        dropout: Dropout probability of a hidden unit in training.
        steps: Optimiser steps.
        batch: Images in a step.
        learning_rate: Peak of the optimiser's learning rate; linear warm-up, then cosine decay to 0.
        warmup: Steps of the warm-up.
        weight_decay: AdamW's, where there is no `optimizer`.
        optimizer: The optimiser; None: AdamW.
        clip: Largest norm of a step's gradient.
        ema: Decay of the moving average of the weights; its final value is the model.
        condition_dropout: Share of training rows without condition, for classifier-free guidance.
        prediction: The output of the network.
        beta_schedule: Noise schedule.
        timesteps: Length of the training chain.
        sampling_steps: DDIM steps.
        guidance: Weight w of classifier-free guidance, x_u + w (x_c - x_u); 1 is the plain
            conditional model.
        centres: Most centres of the regression that makes first guesses (see
            `fedassay.nets.warm_start`); 0 for none.
        spread: Share of a sample's deviation from the conditional mean that is kept; 1 keeps the sample. A smaller
            share is nearer to the truth in SSIM and PSNR, and blurrier.
        held_out: Share of the training records that only decide which weights are kept; 0 keeps the last.
        ssim_weight: Weight of 1 - SSIM in the loss, beside the squared error; for `sample` only.
        rows: Number of pairs up to which an adversary with the backbone adds blends of its own images (see
            `fedassay.nets.blends`); 0 for none.
    """

    name: str
    architecture: Architecture
    width: int
    blocks: int
    multipliers: tuple[int, ...] = ()
    attention_levels: tuple[int, ...] = ()
    embedding: int
    whiten: bool = False
    direct: bool = False
    dropout: float = 0.0
    steps: int
    batch: int
    learning_rate: float
    warmup: int
    weight_decay: float = 0.0
    optimizer: Optimizer | None = None
    clip: float = 1.0
    ema: float
    condition_dropout: float = 0.1
    prediction: Prediction
    beta_schedule: BetaSchedule = "squaredcos_cap_v2"
    timesteps: int = 1000
    sampling_steps: int
    guidance: float
    centres: int = 0
    spread: float = 1.0
    held_out: float = 0.0
    ssim_weight: float = 0.0
    rows: int = 0


TINY = Preset(
    name="tiny",
    architecture="film",
    width=256,
    blocks=4,
    embedding=128,
    whiten=True,
    direct=True,
    dropout=0.1,
    steps=600,
    batch=128,
    learning_rate=1.5e-3,
    warmup=50,
    ema=0.999,
    prediction="sample",
    sampling_steps=25,
    guidance=1.0,
    centres=2000,
    spread=0.25,
    held_out=0.1,
    ssim_weight=0.3,
    rows=5000,
)
"""8x8 to 28x28 in well under a minute on two cores."""

QUICK = replace(
    TINY, name="quick", width=128, blocks=2, embedding=64, steps=100, batch=64, warmup=20, centres=500, rows=0
)
"""8x8 in seconds on one core, for plans of many cells: the first guess does nearly all of the work.

On digits under `small_cnn`, with 449 images of its own, it comes to a mean SSIM of .955 of raw features. It
blends no images, so that one model serves every release.
"""

SMALL = replace(TINY, name="small", width=512, embedding=256, steps=2500, centres=4000)
"""28x28 to 64x64 grey and 32x32 colour, in minutes on two cores.

A perceptron here too: in the same time a U-Net with the same first guess was behind it on Fashion-MNIST,
CIFAR-10 and faces (its step costs ten times as much).
"""

PAPER = Preset(
    name="paper",
    architecture="unet",
    width=128,
    blocks=2,
    multipliers=(1, 2, 2, 2),
    attention_levels=(1,),
    embedding=512,
    dropout=0.1,
    steps=100_000,
    batch=128,
    learning_rate=2e-4,
    warmup=5000,
    ema=0.9999,
    prediction="v_prediction",
    sampling_steps=100,
    guidance=2.0,
)
"""32x32 colour on a GPU, in hours: the attack as Beitollahi et al. 2024, appendix E.3, describe it.

The paper gives neither sizes nor settings: these are the U-Net, dropout, rate and batch of Ho et al. 2020
for CIFAR-10, with scale-and-shift conditioning. None of this project's additions is on.
"""

PAPER_SHORT = replace(PAPER, name="paper_short", steps=5000, warmup=250, ema=0.999)
"""The paper's network, rate and batch, trained for minutes on a data-centre GPU; never measured."""

PRESETS: dict[str, Preset] = {preset.name: preset for preset in (QUICK, TINY, SMALL, PAPER, PAPER_SHORT)}
"""Every preset by name."""


def preset_named(name: str, **changes: Any) -> Preset:
    """Look a preset up, with some of its attributes changed.

    Raises:
        PlanError: No preset has this name.
    """
    if name not in PRESETS:
        raise PlanError(f"preset: {name!r} given; allowed: {', '.join(PRESETS)}")
    return replace(PRESETS[name], **changes)
