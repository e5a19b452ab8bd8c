"""What is done otherwise on a GPU: nothing of it on a CPU, and all of it from one module."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sources import parsed

from fedassay.nets.presets import PRESETS, preset_named
from fedassay.nets.trained import build_network
from fedassay.support import devices
from fedassay.support.environment import describe
from fedassay.support.errors import PlanError
from fedassay.support.numerics import numerics

ROOT = Path(__file__).resolve().parents[2]
Pretend = Callable[[], AbstractContextManager[Any]]
GIB = 2**30


def unet() -> torch.nn.Module:
    preset = preset_named("paper", width=8, multipliers=(1, 2), attention_levels=(1,), blocks=1)
    return build_network(preset, (8, 8, 3), 5, seed=0)


def inputs(rows: int = 4) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    noisy = torch.randn(rows, 3, 8, 8, generator=generator)
    condition = torch.randn(rows, 5, generator=generator)
    return noisy, torch.arange(rows) * 100, condition, torch.ones(rows, dtype=torch.bool)


def test_nothing_changes_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(devices.VARIABLE, "bf16,compile")
    network, tensors = unet(), [torch.ones(2)]
    weights = [weight.clone() for weight in network.parameters()]
    assert devices.placed(network, "cpu") is network
    assert devices.quickened(network, "cpu") is network
    assert devices.resident(tensors, "cpu") is tensors
    assert devices.times_the_cpu("cpu") == 1
    assert devices.batch_for(512, 1e12, "cpu") == 512
    assert devices.gpu_name("cpu") is None
    assert all(weight.is_contiguous() for weight in network.parameters())
    assert all(torch.equal(*pair) for pair in zip(weights, network.parameters(), strict=True))


@pytest.mark.parametrize(
    ("device", "expected"), [("cpu", False), ("cuda", True), ("cuda:1", True), ("meta", False), ("mps", False)]
)
def test_which_device_is_a_gpu(device: str, expected: bool) -> None:
    assert devices.is_gpu(device) is expected
    assert devices.is_gpu(torch.device(device)) is expected


@pytest.mark.parametrize(
    ("given", "expected"), [("", ()), ("bf16", ("bf16",)), (" compile , bf16,", ("bf16", "compile"))]
)
def test_options(given: str, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(devices.VARIABLE, given)
    assert devices.gpu_options() == expected


def test_an_unknown_option_is_one_message_before_the_run(
    monkeypatch: pytest.MonkeyPatch, pretended_gpu: Pretend
) -> None:
    monkeypatch.setenv(devices.VARIABLE, "fp8,bf16")
    assert devices.choose_device("cpu") == "cpu"
    with pretended_gpu():
        for asked in ("cuda", "auto"):
            with pytest.raises(PlanError, match=r"^FEDASSAY_GPU: 'fp8' given; allowed: bf16, compile, or both$"):
                devices.choose_device(asked)


def test_options_are_part_of_what_results_are_kept_under(
    monkeypatch: pytest.MonkeyPatch, pretended_gpu: Pretend
) -> None:
    from datetime import UTC, datetime

    def said() -> tuple[str, str, Any]:
        return numerics("cpu"), numerics("cuda"), describe("cuda", [], datetime.now(UTC))["gpu"]

    with pretended_gpu():
        plain = said()
        monkeypatch.setenv(devices.VARIABLE, "bf16")
        asked = said()
    assert plain[0] == asked[0]
    assert plain[1] != asked[1]
    assert (plain[2], asked[2]) == ("a GPU that is not there", "a GPU that is not there + bf16")


@pytest.mark.parametrize(
    ("memory", "times", "batch"),
    [(2 * GIB, 1, 128), (16 * GIB, 4, 1024), (24 * GIB, 4, 1024), (80 * GIB, 16, 4096), (10**15, 32, 4096)],
)
def test_blocks_follow_the_cards_whole_memory(memory: int, times: int, batch: int, pretended_gpu: Pretend) -> None:
    with pretended_gpu() as gpu:
        gpu.memory, gpu.free = memory, 0
        assert devices.times_the_cpu("cuda") == times
        assert devices.times_the_cpu("cuda", 2) == min(2, times)
        assert devices.batch_for(512, 4 * 2**20, "cuda") == batch


def test_training_data_stay_on_the_card_where_a_quarter_of_it_is_enough(pretended_gpu: Pretend) -> None:
    tensors = [torch.zeros(100, dtype=torch.uint8), torch.ones(25)]
    with pretended_gpu() as gpu:
        gpu.free = 4 * 200
        assert [each.is_cuda for each in devices.resident(tensors, "cuda")] == [True, True]
        gpu.free -= 1
        assert devices.resident(tensors, "cuda") is tensors


def test_convolutions_are_channels_last_on_a_gpu_and_compute_the_same(pretended_gpu: Pretend) -> None:
    here, seen = unet()(*inputs()), []
    with pretended_gpu():
        network = devices.placed(unet(), "cuda")
        kernels = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d) and m.kernel_size != (1, 1)]
        for layer in kernels:
            assert layer.weight.is_contiguous(memory_format=torch.channels_last)
            layer.register_forward_hook(
                lambda _, given, __: seen.append(given[0].is_contiguous(memory_format=torch.channels_last))
            )
        there = network(*(each.to("cuda") for each in inputs())).cpu()
    assert len(seen) >= len(kernels) > 5
    assert all(seen)
    torch.testing.assert_close(there, here, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("architecture", ["film", "unet"])
def test_bfloat16_is_of_the_products_alone(architecture: str) -> None:
    preset = PRESETS["tiny"] if architecture == "film" else None
    network = unet() if preset is None else build_network(preset, (8, 8, 3), 5, seed=0)
    kinds: set[torch.dtype] = set()
    for module in network.modules():
        if isinstance(module, torch.nn.Linear | torch.nn.Conv2d):
            module.register_forward_hook(lambda _, __, made: kinds.add(made.dtype))
    given = inputs()
    if preset is not None:
        given = (torch.cat([given[0], given[0]], dim=1), *given[1:])
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    network.eval()
    exact, rounded = network(*given), devices.in_bfloat16(network, "cpu")(*given)
    assert kinds == {torch.float32, torch.bfloat16}
    assert rounded.dtype == torch.float32
    away = torch.linalg.vector_norm(rounded - exact) / torch.linalg.vector_norm(exact)
    assert 1e-5 < away < 0.03
    rounded.square().mean().backward()
    assert {weight.grad.dtype for weight in network.parameters() if weight.grad is not None} == {torch.float32}


def test_options_reach_the_networks_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []

    def made(network: Any) -> Any:
        compiled.append(network)
        return network

    monkeypatch.setattr(torch, "compile", made)
    monkeypatch.setattr(devices, "in_bfloat16", lambda network, device: ("in bfloat16", network, device))
    network = unet()
    assert devices.quickened(network, "cuda") is network
    monkeypatch.setenv(devices.VARIABLE, "compile,bf16")
    assert devices.quickened(network, "cuda") == ("in bfloat16", network, "cuda")
    assert compiled == [network]


def test_a_random_state_is_left_as_it_was(pretended_gpu: Pretend) -> None:
    with pretended_gpu():
        before = torch.cuda.get_rng_state(), torch.get_rng_state()
        with devices.random_state_kept("cuda"):
            torch.rand(3, device="cuda")
            torch.rand(3)
        after = torch.cuda.get_rng_state(), torch.get_rng_state()
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_no_other_module_names_the_device() -> None:
    """But for the choices of the command line, and docstrings."""
    named = []
    rooms = ("src/fedassay", "methods", "attacks", "audits", "reports")
    for path, tree in parsed("cuda", *(ROOT / room for room in rooms)):
        if path.name in {"devices.py", "cli.py"}:
            continue
        for node in ast.walk(tree):
            literal = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if literal and re.fullmatch(r"cuda(:\d+)?", node.value):  # type: ignore[union-attr]
                named.append(f"{path.relative_to(ROOT)}:{node.lineno}")
            if isinstance(node, ast.Attribute) and node.attr == "cuda":
                named.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not named


@pytest.mark.long
def test_searches_find_the_same_with_a_gpus_blocks(pretended_gpu: Pretend) -> None:
    from fedassay.similarity import nearest, ssim_search

    images = np.random.default_rng(0).integers(0, 256, (16, 4, 4, 3)).repeat(3, axis=1).repeat(3, axis=2)
    images = images.astype(np.uint8)
    images[13:] = images[:3]  # ties, of which the lowest index must win
    here = ssim_search.top_k(images, images, 3, exclude_self=True, query_block=5, gallery_block=7)
    near = nearest.top_k_l2(images, images, 3)
    with pretended_gpu() as gpu:
        for memory in (4 * GIB, 139 * GIB):
            gpu.memory = memory
            there = ssim_search.top_k(
                images, images, 3, exclude_self=True, query_block=5, gallery_block=7, device="cuda"
            )
            np.testing.assert_array_equal(there.indices, here.indices)
            np.testing.assert_allclose(there.values, here.values, rtol=0, atol=1e-12)
            np.testing.assert_array_equal(nearest.top_k_l2(images, images, 3, device="cuda").indices, near.indices)
