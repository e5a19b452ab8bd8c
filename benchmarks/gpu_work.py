"""What a computation asks of a card, counted without one: arithmetic, memory traffic, launches, memory held.

The computation runs on torch's `meta` device, where tensors have sizes and no numbers, and every operation that
would be a kernel is counted. `Card.seconds` makes a time of it: an operation takes as long as its arithmetic at
the share of the peak that kernels reach, its bytes at the memory's bandwidth, or its launch, whichever is longest.
That is an estimate and no measurement; until `benchmarks/gpu.py` has measured a card, `ASSUMED` says what it is
made from.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from fedassay.nets.denoising import Drawn, build_scheduler, denoising_loss
from fedassay.nets.presets import Preset
from fedassay.nets.trained import build_network


@dataclass(frozen=True)
class Card:
    """What is known of a card.

    Attributes:
        name: Of the card, or where the numbers come from.
        products: Multiplications and additions a second of a large bfloat16 product.
        float32: The same of float32 convolutions (TF32, torch's default for these).
        bandwidth: Bytes a second of a large copy, read and written.
        launch: Seconds between the starts of two kernels from Python.
        memory: Bytes.
        reached: Share of the rates above that convolutions of useful sizes reach.
    """

    name: str
    products: float
    float32: float
    bandwidth: float
    launch: float
    memory: float
    reached: float

    def seconds(self, work: Work, *, bf16: bool) -> float:
        """Of one pass through what was counted."""
        rate = self.reached * (self.products if bf16 else self.float32)
        size = 0.5 if bf16 else 1.0
        return sum(max(n / rate, size * b / self.bandwidth, self.launch) for n, b in work.operations)


ASSUMED = Card("assumed: H200, data sheet; nothing measured", 8.0e14, 2.5e14, 4.0e12, 8.0e-6, 139 * 2**30, 0.3)
"""TF32 reaches 494e12 on paper, bandwidth is 4.8e12; a launch from Python through autograd is taken as 8 us."""


@dataclass
class Work:
    """What was counted.

    Attributes:
        operations: (multiplications and additions, bytes read and written) of every kernel, in order.
        held: Bytes kept for the backward pass.
        parameters: Bytes of weights, gradients, AdamW's moments and the moving average.
    """

    operations: list[tuple[float, float]] = field(default_factory=list)
    held: float = 0.0
    parameters: float = 0.0

    @property
    def arithmetic(self) -> float:
        """Multiplications and additions of products and convolutions."""
        return sum(n for n, _ in self.operations)

    @property
    def memory(self) -> float:
        """Bytes on the card at most, roughly: what is held, once more for what is in work, and the parameters."""
        return 2 * self.held + self.parameters


class _Counter(TorchDispatchMode):
    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func.is_view:
            return found
        count = 0.0
        if func.overloadpacket in flop_registry:
            count = float(flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=found))
        moved = sum(bytes_of(each) for each in tree_leaves((args, kwargs, found)) if isinstance(each, Tensor))
        self.work.operations.append((count, float(moved)))
        return found


def bytes_of(tensor: Tensor) -> int:
    """Of the numbers that a tensor shows."""
    return tensor.numel() * tensor.element_size()


def count(call: Callable[[], object]) -> Work:
    """Counts what a call does on the `meta` device."""
    work, seen = Work(), set()

    def keep(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() == 0 and id(tensor) not in seen and not isinstance(tensor, nn.Parameter):
            seen.add(id(tensor))
            work.held += bytes_of(tensor)
        return tensor

    with _Counter(work), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        call()
    return work


def training_step(preset: Preset, image: tuple[int, int, int], width: int, batch: int) -> Work:
    """A step of `fedassay.nets.training`: forward, backward, AdamW, moving average."""
    network, inputs = _inputs(preset, image, width, batch)
    noisy, condition, keep = inputs
    scheduler = build_scheduler(preset)
    optimizer = torch.optim.AdamW(network.parameters(), foreach=True)
    average = [torch.empty_like(weight) for weight in network.parameters()]

    def step() -> None:
        timesteps = torch.zeros(batch, dtype=torch.long, device="meta")
        given = Drawn(keep, timesteps, noisy)
        denoising_loss(network, _OnMeta(scheduler), noisy, condition, given).mean().backward()  # type: ignore[arg-type]
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(average, list(network.parameters()), 0.1)

    work = count(step)
    work.parameters = 5.0 * sum(bytes_of(weight) for weight in network.parameters())
    return work


def sampling_step(preset: Preset, image: tuple[int, int, int], width: int, batch: int, *, guided: bool) -> Work:
    """A step of `fedassay.nets.sampling` on one batch: one forward pass or two, and the sampler's own."""
    network, (noisy, condition, keep) = _inputs(preset, image, width, batch)
    timesteps = torch.zeros(batch, dtype=torch.long, device="meta")

    @torch.no_grad()
    def step() -> None:
        for _ in range(2 if guided else 1):
            made = network(noisy, timesteps, condition, keep)
        for _ in range(8):
            made = made * 0.5

    work = count(step)
    work.parameters = sum(bytes_of(weight) for weight in network.parameters())
    height, across, _ = image
    work.held = 4.0 * batch * height * across * preset.width * 12
    return work


class _OnMeta:
    """A noise schedule for tensors without numbers."""

    def __init__(self, scheduler: Any) -> None:
        self.config = scheduler.config

    def add_noise(self, images: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
        """Of the shape and cost of the scheduler's own."""
        return images * 0.5 + noise * 0.5

    get_velocity = add_noise


def _inputs(
    preset: Preset, image: tuple[int, int, int], width: int, batch: int
) -> tuple[nn.Module, tuple[Tensor, Tensor, Tensor]]:
    with torch.device("meta"):
        network = build_network(preset, image, width, seed=0).train()
    height, across, channels = image
    noisy = torch.empty(batch, channels, height, across, device="meta")
    return network, (
        noisy,
        torch.empty(batch, width, device="meta"),
        torch.empty(batch, dtype=torch.bool, device="meta"),
    )


def card_of(path: Path) -> Card:
    """The card that `benchmarks/gpu.py` has measured into a file, else the assumed one."""
    if not path.is_file():
        return ASSUMED
    kept = json.loads(path.read_text(encoding="utf-8")).get("card")
    return Card(**kept) if kept else ASSUMED


def as_json(card: Card) -> dict[str, Any]:
    """The inverse of what `card_of` reads."""
    return asdict(card)
