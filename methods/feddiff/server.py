"""FedDiff's server: sampling the clients' generators, the global classifier, and results that outlive a kill.

Membership inference on diffusion models uses a denoiser's losses on single records, at chosen noise levels
(Carlini et al., "Extracting Training Data from Diffusion Models", 2023, section 5; Duan et al., "Are Diffusion
Models Vulnerable to Membership Inference Attacks?", 2023).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import nn

from fedassay.backbones.base import initialised
from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.methods.shared.local_heads import head_loss
from fedassay.methods.shared.local_networks import LocalNetwork, local_network, outputs
from fedassay.nets.bodies import BodySpec, build_body
from fedassay.nets.denoising import Drawn, build_scheduler, denoising_loss, to_model_range
from fedassay.nets.generators import one_hot
from fedassay.nets.local_training import train
from fedassay.nets.presets import Sampler
from fedassay.nets.resnet import build_resnet16
from fedassay.nets.sampling import SOLVER_STEPS, Sampling, sample
from fedassay.nets.trained import TrainedDenoiser, load_network
from fedassay.support.atomic import write_bytes
from fedassay.support.optimisation import Minibatches, OptimizerKey
from fedassay.support.progress import Progress
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Frozen, Images, Ints, Matrix

_FEATURES = 64
_log = logging.getLogger(__name__)


def steps_of(sampler: Sampler, steps: int | None) -> int:
    """Steps of a sampler, those given or its own: 40 for `ddim`, 1000 for `ddpm`, 10 for `dpm`."""
    return steps or {"ddim": 40, "ddpm": 1000, "dpm": SOLVER_STEPS}[sampler]


class GlobalClassifier(Frozen):
    """The classifier that the server trains on the generated images.

    Attributes:
        preset: `small`: two convolutions and two layers, for small images. `resnet16`: that of Mendieta et al.
            2025, 6.4 million parameters, for 32x32.
        epochs: Passes over the generated images.
        batch: Minibatch size.
        learning_rate: Learning rate of the optimiser.
        optimizer: None: Adam. AdamW in the paper.
    """

    preset: Literal["small", "resnet16"] = "small"
    epochs: int = Field(default=50, ge=1)
    batch: int = Field(default=64, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    optimizer: OptimizerKey = None

    def fit(self, records: Records, task: MethodInput, purpose: str) -> LocalNetwork:
        """A classifier trained on `records`; `purpose` names its random streams."""
        network = local_network(purpose, self._build(records, task, purpose), records, task.device)
        with task.progress.step("global classifier") as advance:
            train(
                network.module,
                network.inputs,
                network.labels,
                head_loss,
                Minibatches(self.epochs, self.batch, self.learning_rate, self.optimizer),
                torch.Generator().manual_seed(task.seeds.integer(purpose, "training")),
                advance=advance,
            )
        return network

    def _build(self, records: Records, task: MethodInput, purpose: str) -> nn.Module:
        seed = task.seeds.integer(purpose, "initialisation")
        if self.preset == "resnet16":
            return build_resnet16(records.image_shape[2], task.classes, seed)
        body = build_body(BodySpec(name="cnn"), records.image_shape, _FEATURES, seed)
        return nn.Sequential(body, nn.ReLU(), initialised(lambda: nn.Linear(_FEATURES, task.classes), seed))


@dataclass(frozen=True, eq=False)
class DiffusionGenerator:
    """A received denoiser as a generator: a `fedassay.exchange.models.Generator`.

    Attributes:
        model: The denoiser, with the received weights.
        counts: The sender's label histogram, shape (C,), at least one of them positive.
        sampling: Settings of the sampling.
        device: Device of the computation.
    """

    model: TrainedDenoiser
    counts: Ints
    sampling: Sampling
    device: str

    def sample(self, count: int, seeds: Seeds, progress: Progress) -> Images:
        """`count` images, labels drawn by the histogram."""
        labels = seeds.numpy("labels").choice(len(self.counts), count, p=self.counts / self.counts.sum())
        return self.decode(labels, seeds, progress)

    def decode(self, labels: Ints, seeds: Seeds, progress: Progress) -> Images:
        """One image of each label, (n,) to (n, H, W, C)."""
        with progress.step("sampling") as advance:
            return sample(
                self.model,
                one_hot(labels, len(self.counts)),
                self.sampling,
                seed=seeds.integer("noise"),
                device=self.device,
                progress=advance,
            )

    def losses(self, records: Records, levels: Sequence[float], seeds: Seeds) -> NDArray[np.float64]:
        """Loss of each record at each noise level: a `fedassay.exchange.models.ScoringGenerator`."""
        conditions = one_hot(records.labels, len(self.counts))
        return record_losses(self.model, records.images, conditions, levels, seeds, device=self.device)


def kept(
    folder: Path | None, name: str, run: str, make: Callable[[], dict[str, NDArray[Any]]]
) -> dict[str, NDArray[Any]]:
    """Arrays that an interrupted run has left in a folder, or that are made and left there now.

    Args:
        folder: None: nothing is kept.
        name: Name of the file, without ending.
        run: Fingerprint of the arrays' inputs; a file of another run, or a damaged one, counts as absent.
        make: Makes them.
    """
    if folder is None:
        return make()
    path = folder / f"{name}.safetensors"
    if path.exists():
        try:
            with safe_open(path, framework="numpy") as file:
                if (file.metadata() or {}).get("run") == run:
                    return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            _log.warning("%s cannot be read and is made anew: %s", path, error)
    arrays = make()
    write_bytes(
        path, save({key: np.ascontiguousarray(value) for key, value in arrays.items()}, metadata={"run": run})
    )
    return arrays


def correct(network: LocalNetwork, records: Records) -> NDArray[np.bool_]:
    """Return which records a classifier gets right, shape (n,)."""
    return np.asarray(outputs(network.module, records.images).argmax(axis=1) == records.labels)


def drawn(generator: DiffusionGenerator, sender: str, run: str, task: MethodInput) -> Records:
    """As many images as a client's histogram says: drawn once, also over interruptions."""
    labels = np.repeat(np.arange(len(generator.counts)), generator.counts)
    seeds = task.seeds.child("samples", sender)
    name = f"{sender.replace('/', '-')}.samples"
    made = kept(task.scratch, name, run, lambda: {"images": generator.decode(labels, seeds, task.progress)})
    return Records(sender, np.asarray(made["images"], dtype=np.uint8), labels, task.backbone.extract)


def joined(parts: Sequence[Records], name: str, task: MethodInput) -> Records:
    """Several sets of records as one, in order."""
    images = np.concatenate([part.images for part in parts])
    return Records(name, images, np.concatenate([part.labels for part in parts]), task.backbone.extract)


@torch.no_grad()
def record_losses(
    model: TrainedDenoiser,
    images: Images,
    conditions: Floats,
    levels: Sequence[float],
    seeds: Seeds,
    *,
    batch: int = 256,
    device: str = "cpu",
) -> Matrix:
    """Mean squared error of the predicted noise, for each record and noise level.

    The noise of a level is drawn from `seeds` alone: models that are asked with the same seeds are asked the same.
    The condition is always given.

    Args:
        model: Without warm start.
        images: Shape (n, height, width, channels).
        conditions: Shape (n, d), in the units of the training conditions.
        levels: Shares of the noise schedule, in (0, 1).
        seeds: Random streams of the noise.
        batch: Images computed at a time; does not change their noise.
        device: Device of the computation.

    Returns:
        Shape (n, len(levels)).

    Raises:
        ValueError: A level out of range, or a model with warm start.
    """
    if model.warm_start is not None or not all(0 < level < 1 for level in levels):
        raise ValueError(f"record_losses: levels {tuple(levels)}; allowed: above 0, below 1, and no warm start")
    preset = model.preset
    network, scheduler = load_network(model).to(device), build_scheduler(preset)
    inputs, given = to_model_range(torch.from_numpy(images)), torch.from_numpy(model.whitening(conditions))
    found = np.empty((len(images), len(levels)))
    for column, level in enumerate(levels):
        step = min(preset.timesteps - 1, int(level * preset.timesteps))
        generator = torch.Generator().manual_seed(seeds.integer("level", column))
        noise = torch.randn(inputs.shape, generator=generator)
        kept = float(scheduler.alphas_cumprod[step])
        # From the error of the network's prediction to that of the noise, both exact given the noisy image.
        unit = {"epsilon": 1.0, "v_prediction": kept, "sample": kept / (1 - kept)}[preset.prediction]
        for first in range(0, len(images), batch):
            part = slice(first, first + batch)
            size = len(inputs[part])
            losses = denoising_loss(
                network,
                scheduler,
                inputs[part].to(device),
                given[part].to(device),
                Drawn(
                    torch.ones(size, dtype=torch.bool, device=device),
                    torch.full((size,), step, device=device),
                    noise[part].to(device),
                ),
            )
            found[part, column] = unit * losses.double().cpu().numpy()
    return found
