"""A step of DP-SGD on networks that are not ours, against a plain step and Opacus's two ways.

    python benchmarks/dp_sgd_networks.py            batch 32, eight steps each
    python benchmarks/dp_sgd_networks.py --full     batch 128

ResNet-18 of torchvision with group normalisation, a vision transformer of four blocks (patches of 4, width 128),
and a perceptron 3072-512-256-10, on 32x32x3 images. A step is forward, backward, clipping, noise and SGD. Ours
is `fedassay.nets.dp_sgd.clipped_sums`; the peers are Opacus's hooks (GradSampleModule, DPOptimizer) and its
ghost clipping (GradSampleModuleFastGradientClipping and its loss and optimiser). Before anything is timed every
contender's clipped sum is compared with that of autograd's gradients of one record at a time. Steps alternate.

The row's `ratio` is the smallest over networks of the better peer's time over ours; `times_the_plain_step` is the
largest over networks. The normals of a step alone are timed beside it: no private step can do without them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

import measure
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedassay.nets.dp_sgd.clipped_sums import ClippedSums, Objective, RecordStreams
from fedassay.support.torchvision import import_torchvision

TARGET, PLAIN = 1.0, 1.2
CLASSES, NORM, RATE = 10, 1.0, 0.05
TOLERANCE = 1e-3
Step = Callable[[], None]
Sums = dict[str, Tensor]


class Block(nn.Module):
    """Attention and a perceptron, each after a normalisation and added to what comes in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mixed, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(n, tokens, width) to the same."""
        n, tokens, width = x.shape
        parts = self.mixed(self.norms[0](x)).view(n, tokens, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(n, tokens, width)
        x = x + self.joined(seen)
        added: Tensor = self.narrow(functional.gelu(self.wide(self.norms[1](x))))
        return x + added


class Transformer(nn.Module):
    """Patches of 4x4 pixels, four blocks, and a head on the mean token."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.places = nn.Embedding(64, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(4)))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, 32, 32) to logits."""
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = tokens + self.places(torch.arange(64).repeat(len(x), 1))
        out: Tensor = self.head(self.blocks(tokens).mean(dim=1))
        return out


def resnet18() -> nn.Module:
    """torchvision's, but that nothing is computed in place: Opacus's hooks do not bear it."""
    resnet = import_torchvision().models.resnet

    class Residual(resnet.BasicBlock):  # type: ignore[misc, name-defined]
        def forward(self, x: Tensor) -> Tensor:
            out = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
            total: Tensor = functional.relu(out + (x if self.downsample is None else self.downsample(x)))
            return total

    network: nn.Module = resnet.ResNet(
        Residual, [2, 2, 2, 2], num_classes=CLASSES, norm_layer=lambda channels: nn.GroupNorm(8, channels)
    )
    for module in network.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
    return network


def perceptron() -> nn.Module:
    sizes = (3072, 512, 256)
    hidden = [each for a, b in pairwise(sizes) for each in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(sizes[-1], CLASSES))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "ResNet-18, group norm": resnet18,
    "transformer": Transformer,
    "perceptron": perceptron,
}


def built(name: str) -> nn.Module:
    torch.manual_seed(0)
    return NETWORKS[name]().train()


def batch(records: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn((records, 3, 32, 32), generator=generator), torch.arange(records) % CLASSES


def plain(network: nn.Module, x: Tensor, y: Tensor) -> Step:
    optimizer = torch.optim.SGD(network.parameters(), lr=RATE)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def normals(network: nn.Module, x: Tensor, y: Tensor) -> Step:
    """The noise of a step and nothing else."""
    parameters = list(network.parameters())
    return lambda: [torch.randn_like(parameter) for parameter in parameters].clear()


def clipped_sums(network: nn.Module, records: int) -> Callable[[Tensor, Tensor], Sums]:
    def losses(given: Callable[..., Any], rows: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(given(rows), labels, reduction="none")

    objective = Objective(lambda x, y, streams: (x, y), losses, together=records)
    sums = ClippedSums(network, objective, NORM, known=True)
    streams = RecordStreams(0, torch.arange(records).numpy())
    return lambda x, y: sums(x, y, streams)


def ours(network: nn.Module, x: Tensor, y: Tensor, noise: float = 1.0) -> Step:
    sums = clipped_sums(network, len(x))
    parameters = dict(network.named_parameters())

    def step() -> None:
        for name, total in sums(x, y).items():
            noised = total.add_(torch.randn_like(total), alpha=noise * NORM)
            parameters[name].data.add_(noised, alpha=-RATE / len(x))

    return step


def by_hooks(network: nn.Module, x: Tensor, y: Tensor, noise: float = 1.0) -> Step:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    module = GradSampleModule(network)
    optimizer = DPOptimizer(
        torch.optim.SGD(module.parameters(), lr=RATE),
        noise_multiplier=noise, max_grad_norm=NORM, expected_batch_size=len(x),
    )  # fmt: skip

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def by_ghosts(network: nn.Module, x: Tensor, y: Tensor, noise: float = 1.0) -> Step:
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    module = GradSampleModuleFastGradientClipping(network, max_grad_norm=NORM, use_ghost_clipping=True)
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(module.parameters(), lr=RATE),
        noise_multiplier=noise, max_grad_norm=NORM, expected_batch_size=len(x),
    )  # fmt: skip
    criterion = DPLossFastGradientClipping(module, optimizer, nn.CrossEntropyLoss(reduction="mean"))

    def step() -> None:
        optimizer.zero_grad()
        criterion(module(x), y).backward()
        optimizer.step()

    return step


PEERS: dict[str, Callable[..., Step]] = {"Opacus hooks": by_hooks, "Opacus ghost clipping": by_ghosts}


def expected_sums(name: str, x: Tensor, y: Tensor) -> Sums:
    """The clipped sum by autograd, one record at a time."""
    network = built(name)
    sums = {key: torch.zeros_like(parameter) for key, parameter in network.named_parameters()}
    for row in range(len(x)):
        loss = functional.cross_entropy(network(x[row : row + 1]), y[row : row + 1])
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        size = torch.linalg.vector_norm(torch.cat([each.flatten() for each in gradients]))
        for total, each in zip(sums.values(), gradients, strict=True):
            total.add_(each * (NORM / size.clamp(min=NORM)))
    return sums


def check(name: str, records: int = 4) -> float:
    """Asserts every contender's step without noise; the largest relative error."""
    x, y = batch(records)
    expected = expected_sums(name, x, y)
    size = float(torch.linalg.vector_norm(torch.cat([each.flatten() for each in expected.values()])))
    worst = 0.0
    for make in (ours, *PEERS.values()):
        network = built(name)
        before = {key: parameter.detach().clone() for key, parameter in network.named_parameters()}
        step = make(network, x, y, 0.0)
        step()
        away = 0.0
        for (key, old), new in zip(before.items(), network.parameters(), strict=True):
            moved = (old - new.detach()) * (records / RATE)
            away += float((moved - expected[key]).square().sum())
        worst = max(worst, away**0.5 / size)
        assert worst < TOLERANCE, f"{make.__name__} on {name}: off by {worst:.2g}, relatively"
    return worst


def timed(name: str, records: int, repeats: int) -> dict[str, measure.Timing]:
    """Median seconds of a step of each contender, on networks of their own."""
    x, y = batch(records)
    makers = {"plain": plain, "ours": ours, **PEERS, "noise alone": normals}
    steps = {kind: make(built(name), x, y) for kind, make in makers.items()}
    for step in steps.values():
        step()
    return dict(zip(steps, measure.alternate(*steps.values(), repeats=repeats), strict=True))


def run(full: bool = False, repeats: int = 3) -> measure.Row:
    """Times all and returns the row of the performance table."""
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    records = 128 if full else 32
    for name in NETWORKS:
        ours(built(name), *batch(records))()
    peak = measure.peak_mib()
    error = max(check(name) for name in NETWORKS)
    found = {name: timed(name, records, max(5, 2 * repeats)) for name in NETWORKS}
    table = {
        name: {
            kind: [round(each.elapsed / times["plain"].elapsed, 2), round(each.cpu / times["plain"].cpu, 2)]
            for kind, each in times.items()
        }
        for name, times in found.items()
    }
    ahead, ahead_cpu = (
        min(min(times[peer][at] for peer in PEERS) / times["ours"][at] for times in table.values())
        for at in (0, 1)
    )
    over = max(times["ours"][at] for times in table.values() for at in (0, 1))
    return {
        "row": "DP-SGD step of three networks that are not ours",
        "ratio": round(ahead, 2),
        "target": TARGET,
        "met": min(ahead, ahead_cpu) >= TARGET and over <= PLAIN,
        "ratio_of_cpu": round(ahead_cpu, 2),
        "peer": "the faster of Opacus's hooks and its ghost clipping",
        "times_the_plain_step": over,
        "times_the_plain_step_target": PLAIN,
        "times_the_plain_step_elapsed_and_of_cpu": table,
        "largest_error": error,
        "median_plain_seconds": round(median(times["plain"].elapsed for times in found.values()), 4),
        "batch": records,
        "peak_mib": peak,
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    measure.main(run, __doc__)
