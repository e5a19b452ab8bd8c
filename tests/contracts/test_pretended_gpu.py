"""The pretended GPU itself: it computes as the CPU does, and refuses what a real one refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fedassay.support.devices import choose_device
from fedassay.support.environment import describe


@pytest.fixture
def gpu(pretended_gpu: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
    with pretended_gpu() as found:
        yield found


def _network(channels: int = 2) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Conv2d(4, channels, 3, groups=2), nn.SiLU()]
    return nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.Flatten(), nn.Linear(36 * channels, 3))


def _batch(device: str) -> tuple[Tensor, Tensor]:
    images = torch.rand((5, 1, 8, 8), generator=torch.Generator().manual_seed(1))
    return images.to(device), torch.tensor([0, 1, 2, 0, 1], device=device)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_tensors_come_to_the_gpu_and_back(name: str) -> None:
    kept = np.arange(6.0).reshape(2, 3)
    there = [
        torch.tensor(kept, device=name),
        torch.as_tensor(kept, device=torch.device(name)),
        torch.from_numpy(kept).to(name),
        torch.from_numpy(kept).cuda(),
        torch.arange(6.0, dtype=torch.float64, device=name).reshape(2, 3),
    ]
    for tensor in there:
        assert (tensor.device, tensor.is_cuda, tensor.get_device()) == (torch.device("cuda", 0), True, 0)
        assert tensor.to(name) is tensor
        assert tensor.to(torch.float32).is_cuda
        assert torch.zeros(1).to(tensor).is_cuda
        assert torch.empty_like(tensor).is_cuda
        assert tensor.new_zeros(2).is_cuda
        assert not tensor.cpu().is_cuda
        assert np.array_equal(tensor.cpu().numpy(), kept)
        assert tensor.tolist() == kept.tolist()
        assert tensor[1, 2].item() == 5.0
    # A copy: what is written on the GPU is not written on the host.
    there[1].zero_()
    assert kept[1, 2] == 5.0


@pytest.mark.usefixtures("gpu")
def test_tensors_of_two_devices_do_not_mix() -> None:
    there, here = torch.ones(2, 2, device="cuda"), torch.ones(2, 2)
    for mixed in (
        lambda: there + here,
        lambda: here.add_(there),
        lambda: there @ here,
        lambda: torch.cat([there, here]),
        lambda: functional.conv2d(there[None, None], here[None, None]),
        lambda: nn.Linear(2, 2)(there),
        lambda: torch.where(here > 0, there, there),
        lambda: there.index_select(0, torch.tensor([0])),
        lambda: there.index_put_((torch.tensor([0]),), here[:1]),
        # A number of the CPU may take part, but not be written to, and not in a product of matrices.
        lambda: torch.ones(()).add_(there[0, 0]),
        lambda: torch.cat([there.flatten(), torch.ones(()).expand(1)]),
    ):
        with pytest.raises(RuntimeError, match="same device"):
            mixed()
    with pytest.raises(RuntimeError, match="indices should be either on cpu"):
        here[torch.tensor([0], device="cuda")]
    assert (there * torch.tensor(2.0)).tolist() == [[2, 2], [2, 2]]
    assert there[torch.tensor([0])].shape == (1, 2)
    assert there[[0, 1], [1, 1]].tolist() == [1, 1]
    there[0] = torch.zeros(2)
    here.copy_(there)
    assert here.tolist() == [[0, 0], [1, 1]]


@pytest.mark.usefixtures("gpu")
def test_numpy_does_not_read_the_gpu() -> None:
    there = torch.ones(2, device="cuda")
    for read in (there.numpy, lambda: np.asarray(there), lambda: np.stack([there, there])):
        with pytest.raises(TypeError, match="can't convert cuda:0"):
            read()


@pytest.mark.usefixtures("gpu")
def test_what_a_gpu_has_no_kernel_for() -> None:
    whole = torch.ones(2, 2, dtype=torch.int64, device="cuda")
    with pytest.raises(RuntimeError, match="not implemented for"):
        whole @ whole
    with pytest.raises(NotImplementedError, match="CUDA"):
        torch.histogram(torch.ones(3, device="cuda"), 2)


def test_generators_belong_to_a_device(gpu: Any) -> None:
    there, here = torch.Generator("cuda").manual_seed(3), torch.Generator().manual_seed(3)
    assert (there.device, here.device) == (torch.device("cuda", 0), torch.device("cpu"))
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.randn(2, device="cuda", generator=here)
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"):
        torch.randperm(2, generator=there)
    with pytest.raises(RuntimeError, match="Expected a 'cuda'"):
        torch.empty(2, device="cuda").normal_(generator=here)
    drawn = torch.empty(2, device="cuda").normal_(generator=there)
    assert drawn.tolist() == torch.randn(2, generator=here).tolist()
    assert not gpu.drawn
    # The GPU has a global generator of its own, which `torch.manual_seed` seeds as well.
    torch.manual_seed(4)
    with torch.random.fork_rng(devices=["cuda"]):
        first = torch.rand(2, device="cuda").tolist()
    assert first == torch.rand(2, device="cuda").tolist() == torch.rand(2).tolist()
    assert first != torch.rand(2, device="cuda").tolist()
    assert functional.dropout(torch.ones(3, device="cuda")).is_cuda
    assert sum(gpu.drawn.values()) == 4


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("before", [True, False], ids=["optimizer-first", "network-first"])
@pytest.mark.parametrize(
    ("optimizer", "options"),
    [(torch.optim.Adam, {}), (torch.optim.AdamW, {"fused": True}), (torch.optim.LBFGS, {"max_iter": 4})],
    ids=["adam", "fused-adamw", "lbfgs"],
)
def test_training_gives_what_the_cpu_gives(optimizer: Any, options: dict[str, Any], before: bool) -> None:
    def trained(device: str) -> dict[str, Tensor]:
        network = _network()
        made = optimizer(network.parameters(), **options) if before else None
        network.to(device)
        made = made or optimizer(network.parameters(), **options)
        images, labels = _batch(device)

        def loss() -> Tensor:
            made.zero_grad()
            found = functional.cross_entropy(network(images), labels)
            found.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            return found

        for _ in range(3):
            made.step(loss)
        assert {p.device.type for p in network.parameters()} == {device}
        # The copy is no alias, and is on the same device.
        kept = copy.deepcopy(network).state_dict()
        nn.utils.vector_to_parameters(torch.zeros(10_000, device=device), network.parameters())
        assert all(not p.any() for p in network.parameters())
        network.load_state_dict({name: value.cpu() for name, value in kept.items()})
        assert {value.device.type for value in network.state_dict().values()} == {device}
        return {name: value.cpu() for name, value in network.cpu().state_dict().items()}

    here, there = trained("cpu"), trained("cuda")
    assert here.keys() == there.keys()
    assert all(torch.equal(here[name], there[name]) for name in here)


def test_gradients_of_every_record_and_products_of_groups(gpu: Any) -> None:
    def computed(device: str) -> list[Tensor]:
        network = nn.Linear(3, 2)
        with torch.no_grad():
            nn.utils.vector_to_parameters(torch.arange(8.0), network.parameters())
        network.to(device)
        rows = torch.arange(12.0, device=device).reshape(4, 3)
        each = vmap(grad(lambda p, row: functional_call(network, p, (row,)).square().sum()), in_dims=(None, 0))(
            dict(network.named_parameters()), rows
        )
        stacked = rows[:, :, None] @ rows[:, None, :]
        inner = torch.einsum("nij,nj->ni", stacked, rows)
        factors = torch.linalg.cholesky(stacked + torch.eye(3, device=device))
        image = rows.reshape(1, 1, 4, 3).expand(-1, 2, -1, -1)
        larger = functional.interpolate(image, size=(8, 6), mode="bilinear", antialias=True)
        with torch.inference_mode():
            seen = network(rows).softmax(dim=1)
        return [part.cpu() for part in (*each.values(), inner, factors, larger, seen)]

    here = computed("cpu")
    assert gpu.share() == 0
    there = computed("cuda")
    assert 0.4 < gpu.share() < 0.6
    assert all(torch.equal(x, y) for x, y in zip(here, there, strict=True))


def test_views_share_their_numbers_and_keep_their_gradients(gpu: Any) -> None:
    def computed(device: str) -> list[list[Any]]:
        source = torch.arange(6.0, device=device, requires_grad=True)
        image = source.clone().view(2, 3)
        image[:, 1:].mul_(2)
        image.t()[0] += 1
        image.squeeze_().square().sum().backward()  # type: ignore[no-untyped-call]
        windows = source.detach().as_strided((4, 3), (1, 1))
        windows[0] = 7.0
        assert source.grad is not None
        return [source.grad.tolist(), source.tolist(), windows.tolist(), image.tolist()]

    assert computed("cpu") == computed("cuda")


@pytest.mark.usefixtures("gpu")
def test_the_command_line_finds_it() -> None:
    from datetime import UTC, datetime

    assert choose_device("cuda") == choose_device("auto") == "cuda"
    assert describe("cuda", [], datetime.now(UTC))["gpu"] == "a GPU that is not there"


def test_nothing_is_left_of_it(pretended_gpu: Callable[[], AbstractContextManager[Any]]) -> None:
    names = ("Generator", "cuda.is_available", "cuda._lazy_init")
    found = [_attribute(name) for name in names]
    with pretended_gpu():
        inside = [_attribute(name) for name in names]
        there = torch.ones(1, device="cuda")
    assert all(x is not y for x, y in zip(found, inside, strict=True))
    assert [_attribute(name) for name in names] == found
    assert not torch.__future__.get_swap_module_params_on_conversion()
    with pytest.raises(RuntimeError, match="outside of its context"):
        there + there


def _attribute(name: str) -> Any:
    parent, _, leaf = name.rpartition(".")
    return getattr(torch.cuda if parent else torch, leaf)
