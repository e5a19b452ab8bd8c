"""Optimizations for GPUs, all in one place.

Nothing here changes anything on a CPU. On a GPU, convolutional networks use the layout that its kernels want
(channels last), and training data stay on the card where there is room. Searches and frozen networks work on
blocks sized by its memory. None of that changes a result by more than rounding.

Changes with larger effects are off unless the environment variable FEDASSAY_GPU asks for them: `bf16`, `compile`,
or both with a comma between them. `bf16` computes products of U-Nets in bfloat16 where they are sampled, or
trained without DP-SGD; `compile` applies `torch.compile` to the same. Both are part of the keys of cached results
(`fedassay.support.numerics`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fedassay.support.errors import PlanError
from fedassay.support.processor import named_in

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

GPU = "cuda"
VARIABLE = "FEDASSAY_GPU"
OPTIONS = ("bf16", "compile")
"""The values that FEDASSAY_GPU may name."""

_UNIT = 4 * 2**30
"""Bytes of a card's memory for each CPU-sized working set that a search may take there."""
_MOST = 32
_SHARE = 4
"""Divisor of a card's memory: the share for a batch, and for training data."""

Device = Literal["auto", "cpu", "cuda"]
"""The values that a caller may ask for."""

Call = TypeVar("Call", bound=Callable[..., Any])


def choose_device(asked: str) -> str:
    """`auto` is cuda where there is one, else cpu.

    Raises:
        PlanError: cuda was asked for and there is none, or FEDASSAY_GPU names what is no option.
    """
    import torch

    if asked == GPU and not torch.cuda.is_available():
        raise PlanError("--device: given cuda, but torch finds none; allowed here: auto, cpu")
    chosen = (GPU if torch.cuda.is_available() else "cpu") if asked == "auto" else asked
    if is_gpu(chosen):
        gpu_options()
    return chosen


def is_gpu(device: str | torch.device) -> bool:
    """Whether torch's name of a device, as `cuda` or `cuda:0`, is that of a GPU."""
    return str(device).partition(":")[0] == GPU


def gpu_options() -> tuple[str, ...]:
    """Return the options that FEDASSAY_GPU asks for, in the order of `OPTIONS`.

    Raises:
        PlanError: It names something else.
    """
    return named_in(VARIABLE, OPTIONS)


def gpu_facts() -> dict[str, Any]:
    """Return the facts that change the last bits of a result on this GPU: the card, its libraries, the options."""
    import torch

    return {
        "name": torch.cuda.get_device_name(),
        "cuda": torch.version.cuda,
        "tf32": [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32],
        "cudnn": [torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark],
        "options": gpu_options(),
    }


def gpu_name(device: str) -> str | None:
    """Name of the card, with the options that are on; None for a CPU."""
    if not is_gpu(device):
        return None
    import torch

    return " + ".join((torch.cuda.get_device_name(), *gpu_options()))


@contextmanager
def random_state_kept(device: str | torch.device) -> Iterator[None]:
    """Restore torch's global generators, of the CPU and of this device, after the block."""
    import torch

    with torch.random.fork_rng(devices=[device] if is_gpu(device) else []):
        yield


def seed_draws(seed: int, device: str | torch.device) -> None:
    """Seed the global generators of torch, of the CPU and of this device.

    For a CPU, `torch.manual_seed` would write its caller's stack down for each kind of device that is not there: a
    millisecond or two below a deep one, and memory that is not given back.
    """
    import torch

    if is_gpu(device):
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def times_the_cpu(device: str | torch.device, most: int = _MOST) -> int:
    """Return the multiple of a CPU's working set for a search: 1 on a CPU, else a power of two by memory."""
    if not is_gpu(device):
        return 1
    return _power_of_two(min(most, _memory(device) // _UNIT))


def batch_for(usual: int, bytes_each: float, device: str | torch.device) -> int:
    """Rows computed at a time: `usual` on a CPU; on a GPU what fits a quarter of its memory, up to 8 times that.

    Args:
        usual: Number of rows on a CPU.
        bytes_each: Largest memory of a row on the device, in bytes.
        device: Device of the computation. The card's whole memory decides, not its free memory, so that the same
            card always takes the same batches.
    """
    if not is_gpu(device):
        return usual
    fit = int(_memory(device) / _SHARE / max(1.0, bytes_each))
    return min(8 * usual, _power_of_two(fit))


def resident(tensors: list[Tensor], device: str | torch.device) -> list[Tensor]:
    """Training data where it is best kept: on the GPU if it takes no more than a quarter of what is free there.

    Otherwise, and on a CPU, the very tensors that were given.
    """
    import torch

    if not is_gpu(device):
        return tensors
    free, _ = torch.cuda.mem_get_info(torch.device(device))
    if _SHARE * sum(each.numel() * each.element_size() for each in tensors) > free:
        return tensors
    return [each.to(device) for each in tensors]


def placed(network: nn.Module, device: str | torch.device) -> nn.Module:
    """Move a network to the device; on a GPU, lay out the weights of its convolutions channels last.

    Not for DP-SGD: its per-record gradients were derived and checked for the usual layout.
    """
    import torch

    if not is_gpu(device):
        return network.to(device)
    return network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def quickened(network: Call, device: str | torch.device) -> Call:
    """The same function as FEDASSAY_GPU asks for it on a GPU; on a CPU itself.

    Args:
        network: Called with tensors of the device; gives one tensor.
        device: Device of its parameters.
    """
    if not is_gpu(device):
        return network
    import torch

    made: Any = network
    if "compile" in gpu_options():
        made = torch.compile(made)
    found: Call = in_bfloat16(made, device) if "bf16" in gpu_options() else made
    return found


def in_bfloat16(network: Call, device: str | torch.device) -> Call:
    """The same function with its products in bfloat16 (torch's autocast); weights and result stay float32."""
    import torch

    def call(*inputs: Tensor) -> Tensor:
        with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
            found: Tensor = network(*inputs)
        return found.float()

    return call  # type: ignore[return-value]


def _memory(device: str | torch.device) -> int:
    """Bytes of a GPU's memory."""
    import torch

    return int(torch.cuda.mem_get_info(torch.device(device))[1])


def _power_of_two(number: int) -> int:
    """The largest power of two that is not above `number`; at least 1."""
    return 1 << (max(1, number).bit_length() - 1)
