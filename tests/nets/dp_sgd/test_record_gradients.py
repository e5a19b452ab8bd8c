"""Gradients of single records: every kind of layer, in both of its forms, against autograd of one record alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedassay.nets.dp_sgd import record_factors
from fedassay.nets.dp_sgd.record_factors import Each, Outer
from fedassay.nets.dp_sgd.record_gradients import RecordGradients

# A kernel of even height needs more padding below than above.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Twice(nn.Module):
    """One convolution at two sizes of the image, and one linear layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        self.out = nn.Linear(2, 2)

    def forward(self, images: Tensor) -> Tensor:
        large = self.conv(images)
        small = self.conv(functional.avg_pool2d(large.tanh(), 2))
        hidden = (large.mean(dim=(2, 3)) + small.mean(dim=(2, 3))).tanh()
        found: Tensor = self.out(self.out(hidden).tanh())
        return found


class Tied(nn.Module):
    """An embedding whose table is the weight of the last layer, as in language models."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Embedding(5, 4)
        self.leave = nn.Linear(4, 5, bias=False)
        self.leave.weight = self.enter.weight

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.leave(self.enter(tokens).tanh())
        return found


class Unused(nn.Module):
    """A layer that is never called, and one whose output has no part in the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle, self.aside = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, given: Tensor) -> Tensor:
        found: Tensor = self.used(given.tanh())
        self.aside(found)
        return found


class Strided(nn.Module):
    """Convolutions behind what attention does: a transposed tensor, channels-last."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 2, 3, stride=2)
        self.mix = nn.Linear(4, 4)

    def forward(self, images: Tensor) -> Tensor:
        seen = self.first(images)
        mixed = self.mix(seen.flatten(2).transpose(1, 2)).transpose(1, 2).reshape_as(seen)
        found: Tensor = self.second(mixed.to(memory_format=torch.channels_last))
        return found


def _in_place() -> nn.Module:
    """Activations that overwrite the output of the first layer and of a later one."""
    layers = [nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 2), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(12, 3))


def _half_frozen() -> nn.Module:
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    network[0].bias.requires_grad_(False)
    network[2].weight.requires_grad_(False)
    return network


LAYERS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "conv": (lambda: nn.Conv2d(2, 3, 3), _random(4, 2, 5, 7)),
    "conv-stride-padding": (lambda: nn.Conv2d(2, 3, 3, stride=2, padding=(1, 2)), _random(4, 2, 6, 7)),
    "conv-leftover": (lambda: nn.Conv2d(2, 3, (2, 3), stride=(3, 2)), _random(4, 2, 7, 8)),
    "conv-dilation": (lambda: nn.Conv2d(2, 3, (2, 3), dilation=(2, 1), bias=False), _random(4, 2, 6, 5)),
    "conv-groups": (lambda: nn.Conv2d(6, 9, 3, groups=3, padding=1), _random(4, 6, 4, 5)),
    "conv-depthwise": (lambda: nn.Conv2d(3, 6, (3, 1), groups=3, stride=2), _random(4, 3, 5, 5)),
    "conv-1x1": (lambda: nn.Conv2d(3, 5, 1), _random(4, 3, 3, 2)),
    "conv-1x1-stride": (lambda: nn.Conv2d(3, 5, 1, stride=2), _random(4, 3, 5, 4)),
    "conv-same": (lambda: nn.Conv2d(2, 3, (2, 4), padding="same"), _random(4, 2, 5, 6)),
    "conv-valid": (lambda: nn.Conv2d(2, 3, 2, padding="valid"), _random(4, 2, 5, 6)),
    "conv-few-positions": (lambda: nn.Conv2d(24, 48, 3, padding=1), _random(4, 24, 2, 2)),
    "conv-one-position": (lambda: nn.Conv2d(8, 6, 3, groups=2), _random(4, 8, 3, 3)),
    "conv-channels-last": (
        lambda: nn.Conv2d(3, 4, 3, padding=1),
        _random(4, 3, 5, 6).to(memory_format=torch.channels_last),
    ),
    "conv-expanded": (lambda: nn.Conv2d(3, 4, 3), _random(4, 1, 5, 1).expand(4, 3, 5, 6)),
    "linear": (lambda: nn.Linear(5, 3), _random(4, 5)),
    "linear-no-bias": (lambda: nn.Linear(5, 3, bias=False), _random(4, 5)),
    "linear-tokens": (lambda: nn.Linear(5, 3), _random(4, 7, 5)),
    "linear-few-tokens": (lambda: nn.Linear(60, 50), _random(4, 2, 60)),
    "linear-grid": (lambda: nn.Linear(5, 3), _random(4, 2, 3, 5)),
    "linear-transposed": (lambda: nn.Linear(5, 3), _random(4, 5, 7).transpose(1, 2)),
    "group-norm": (lambda: nn.GroupNorm(2, 6), _random(4, 6, 3, 5)),
    "group-norm-tokens": (lambda: nn.GroupNorm(3, 6), _random(4, 6, 7)),
    "group-norm-flat": (lambda: nn.GroupNorm(2, 6), _random(4, 6)),
    "layer-norm": (lambda: nn.LayerNorm(6), _random(4, 6)),
    "layer-norm-tokens": (lambda: nn.LayerNorm(6), _random(4, 5, 6)),
    "layer-norm-images": (lambda: nn.LayerNorm((3, 5)), _random(4, 2, 3, 5)),
    "layer-norm-no-bias": (lambda: nn.LayerNorm(6, bias=False), _random(4, 6)),
    "norm-without-parameters": (
        lambda: nn.Sequential(nn.LayerNorm(6, elementwise_affine=False), nn.Linear(6, 2)),
        _random(4, 6),
    ),
    "embedding": (lambda: nn.Embedding(4, 3), torch.tensor([1, 3, 1, 0])),
    "embedding-tokens": (lambda: nn.Embedding(4, 3), torch.tensor([[1, 1, 3], [0, 2, 2], [3, 3, 3], [0, 1, 2]])),
    "twice": (Twice, _random(4, 2, 6, 4)),
    "tied": (Tied, torch.tensor([[1, 1, 3], [0, 2, 2], [3, 3, 3], [0, 1, 4]])),
    "unused": (Unused, _random(4, 3)),
    "strided": (Strided, _random(4, 3, 6, 5)),
    "in-place": (_in_place, _random(4, 3, 5, 6)),
    "frozen": (_half_frozen, _random(4, 3)),
}


def _fresh(name: str) -> tuple[nn.Module, Tensor]:
    make, given = LAYERS[name]
    network = make().double()
    with torch.no_grad():
        for index, parameter in enumerate(network.parameters()):
            parameter.copy_(_random(*parameter.shape, seed=index + 1))
    return network, given


def _loss(network: nn.Module, given: Tensor) -> Tensor:
    """A sum over rows, which differ, of something that is linear in no output."""
    outputs: Tensor = network(given)
    return (outputs * _random(*outputs.shape[1:], seed=9)).sin().sum() + outputs.square().sum()


def _alone(network: nn.Module, given: Tensor, draws: int = 1) -> dict[str, Tensor]:
    """By autograd, of one record after the other: by name, (n, *shape)."""
    trained = {name: p for name, p in network.named_parameters() if p.requires_grad}
    found: dict[str, list[Tensor]] = {name: [] for name in trained}
    for rows in given.split(draws):
        gradients = torch.autograd.grad(_loss(network, rows), list(trained.values()), allow_unused=True)
        for (name, parameter), gradient in zip(trained.items(), gradients, strict=True):
            found[name].append(torch.zeros_like(parameter) if gradient is None else gradient)
    return {name: torch.stack(each) for name, each in found.items()}


def _recorded(network: nn.Module, given: Tensor, draws: int = 1) -> RecordGradients:
    gradients = RecordGradients(network)
    with gradients.recording(len(given) // draws, draws):
        _loss(network, given).backward()
    return gradients


def _assert_all(gradients: RecordGradients, expected: dict[str, Tensor]) -> None:
    records = len(next(iter(expected.values())))
    squares = torch.zeros(records, dtype=torch.float64)
    weights = _random(records, seed=5)
    sums = gradients.weighted_sums(weights)
    for name, each in expected.items():
        torch.testing.assert_close(gradients.each(name), each, rtol=1e-9, atol=1e-10)
        weighted = torch.einsum("n,n...->...", weights, each)
        torch.testing.assert_close(sums.get(name, torch.zeros_like(weighted)), weighted, rtol=1e-9, atol=1e-9)
        squares += each.flatten(1).square().sum(dim=1)
    torch.testing.assert_close(gradients.norms(), squares.sqrt(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("pays", [0, record_factors._GRAM_PAYS, 10**9], ids=["factors", "chosen", "written"])
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_norms_and_sums_are_those_of_autograd(
    name: str, pays: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_factors, "_GRAM_PAYS", pays)
    network, given = _fresh(name)
    expected = _alone(network, given)
    gradients = _recorded(network, given)
    _assert_all(gradients, expected)
    assert any(bool(each.any()) for each in expected.values())
    gradients.check(lambda own: _loss(network, given[own]))


@pytest.mark.parametrize("pays", [0, 10**9], ids=["factors", "written"])
@pytest.mark.parametrize("name", LAYERS)
def test_rows_of_one_record_are_added_up_before_norms(
    name: str, pays: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_factors, "_GRAM_PAYS", pays)
    network, given = _fresh(name)
    _assert_all(_recorded(network, given, draws=2), _alone(network, given, draws=2))


@pytest.mark.parametrize("name", LAYERS)
def test_a_batch_of_one(name: str) -> None:
    network, given = _fresh(name)
    _assert_all(_recorded(network, given[2:3]), _alone(network, given[2:3]))


@pytest.mark.parametrize("pays", [0, 10**9], ids=["factors", "written"])
@pytest.mark.parametrize("name", LAYERS)
def test_an_empty_batch_adds_nothing(name: str, pays: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_factors, "_GRAM_PAYS", pays)
    network, given = _fresh(name)
    gradients = _recorded(network, given[:0])
    assert gradients.norms().shape == (0,)
    for found in gradients.weighted_sums(torch.zeros(0, dtype=torch.float64)).values():
        assert not found.any()


def test_both_forms_are_chosen() -> None:
    network, given = _fresh("conv-few-positions")
    assert isinstance(_recorded(network, given)._parts["weight"], Outer)
    network, given = _fresh("conv")
    assert isinstance(_recorded(network, given)._parts["weight"], Each)


def test_positions_that_cancel_do_not_shorten_a_norm() -> None:
    """A flat image before a normalisation: float32 Gram matrices say 0 here for some records."""
    inputs = 100 + 1e-3 * _random(1, 30, 4, 40).float()
    gradients = _random(1, 30, 4, 30).float()
    gradients = gradients - gradients.mean(dim=2, keepdim=True)
    part = Outer(gradients, inputs)
    exact = (gradients.double().mT @ inputs.double()).flatten(2).norm(dim=2)[0]
    torch.testing.assert_close(part.norms().double(), exact, rtol=1e-5, atol=0)
    single = (gradients @ gradients.mT * (inputs @ inputs.mT)).sum(dim=(0, 2, 3)).clamp(min=0).sqrt()
    assert (single < 0.5 * exact).any()


def test_afterwards_the_network_is_as_before() -> None:
    network, given = _fresh("frozen")
    before = [p.requires_grad for p in network.parameters()]
    _recorded(network, given)
    assert [p.requires_grad for p in network.parameters()] == before
    assert all(p.grad is None for p in network.parameters())
    assert not any(module._forward_hooks for module in network.modules())
    with pytest.raises(ZeroDivisionError), RecordGradients(network).recording(4):
        _ = 1 / 0
    assert [p.requires_grad for p in network.parameters()] == before


class Bare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, given: Tensor) -> Tensor:
        return self.scale * given


class Doubled(nn.Linear):
    def forward(self, given: Tensor) -> Tensor:
        return 2 * super().forward(given)


def _extra() -> nn.Module:
    layer = nn.Linear(3, 3)
    layer.register_parameter("scale", nn.Parameter(torch.ones(3)))
    return layer


@pytest.mark.parametrize(
    "make",
    [
        Bare,
        _extra,
        lambda: Doubled(3, 3),
        lambda: nn.ConvTranspose2d(3, 3, 3),
        lambda: nn.Conv1d(3, 3, 3),
        lambda: nn.Conv2d(3, 3, 3, padding=1, padding_mode="circular"),
        lambda: nn.Embedding(3, 3, padding_idx=0),
        lambda: nn.Embedding(3, 3, max_norm=1.0),
        lambda: nn.Embedding(3, 3, scale_grad_by_freq=True),
        lambda: nn.LSTM(3, 3),
        lambda: nn.MultiheadAttention(4, 2),
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
        lambda: nn.BatchNorm2d(3),
        lambda: nn.BatchNorm2d(3, affine=False),
    ],
)
def test_layers_that_are_not_known_are_refused(make: Callable[[], nn.Module]) -> None:
    with pytest.raises(TypeError, match="DP-SGD"):
        RecordGradients(nn.Sequential(nn.Linear(3, 3), make()))


def test_frozen_layers_of_any_kind_pass() -> None:
    frozen = nn.ConvTranspose2d(2, 2, 2).double().requires_grad_(False)
    network = nn.Sequential(nn.Conv2d(2, 2, 2).double(), frozen)
    given = _random(4, 2, 5, 5)
    _assert_all(_recorded(network, given), _alone(network, given))


class Bypassed(nn.Module):
    """Hooks do not see the second use of the weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, given: Tensor) -> Tensor:
        found: Tensor = self.layer(functional.linear(given, self.layer.weight).tanh())
        return found


def test_a_parameter_used_past_its_layer_is_found() -> None:
    network, given = Bypassed().double(), _random(4, 3)
    gradients = _recorded(network, given)
    with pytest.raises(RuntimeError, match=r"layer\.weight do not add up"):
        gradients.check(lambda own: _loss(network, given[own]))


@pytest.mark.parametrize("damage", ["norms", "weighted", "each"])
@pytest.mark.parametrize("value", [0.5, float("nan")])
@pytest.mark.parametrize("pays", [0, 10**9], ids=["factors", "written"])
def test_wrong_norms_and_sums_are_found(
    damage: str, value: float, pays: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_factors, "_GRAM_PAYS", pays)
    network, given = _fresh("linear-tokens")
    gradients = _recorded(network, given)
    kind = type(gradients._parts["weight"])
    original = getattr(kind, damage)
    monkeypatch.setattr(kind, damage, lambda self, *rest: value * original(self, *rest))
    with pytest.raises(RuntimeError, match="do not add up"):
        gradients.check(lambda own: _loss(network, given[own]))


class _OverTheBatch(nn.Module):
    """Batch normalisation as a function: no layer shows that records are mixed, and their sum does not either."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, given: Tensor) -> Tensor:
        found: Tensor = self.last(functional.batch_norm(self.first(given), None, None, training=True).tanh())
        return found


class _OverItsNeighbour(nn.Module):
    """Every record is given a share of the one before it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, given: Tensor) -> Tensor:
        hidden = self.first(given)
        found: Tensor = self.last((hidden + 0.5 * hidden.roll(1, dims=0)).tanh())
        return found


@pytest.mark.parametrize(
    ("make", "says"),
    [(_OverTheBatch, "cannot be computed alone"), (_OverItsNeighbour, "has another gradient alone")],
)
def test_a_layer_that_mixes_records_is_refused(make: Callable[[], nn.Module], says: str) -> None:
    torch.manual_seed(0)
    network, given = make().double(), _random(5, 3)
    gradients = _recorded(network, given)
    ordinary = torch.autograd.grad(_loss(network, given), list(network.parameters()))
    for (name, _), total in zip(network.named_parameters(), ordinary, strict=True):
        torch.testing.assert_close(gradients.each(name).sum(dim=0), total)  # the sums say nothing
    with pytest.raises(RuntimeError, match=says):
        gradients.check(lambda own: _loss(network, given[own]))


def test_an_input_that_is_changed_in_place_is_refused() -> None:
    layer, given = nn.Linear(3, 3), torch.ones(4, 3)
    with RecordGradients(layer).recording(4):
        found = layer(given).sum()
    given.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"):
        found.backward()


def test_a_second_backward_pass_is_refused() -> None:
    layer = nn.Linear(3, 3)
    with RecordGradients(layer).recording(4):
        found = layer(torch.ones(4, 3)).sum()
        found.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="more than one backward"):
            found.backward()


@pytest.mark.parametrize("rows", [3, 5])
def test_a_wrong_number_of_rows_is_refused(rows: int) -> None:
    layer = nn.Linear(3, 3)
    with pytest.raises(ValueError, match="a row for each of 4"), RecordGradients(layer).recording(2, 2):
        layer(torch.ones(rows, 3))


def test_an_input_by_keyword_is_refused() -> None:
    layer = nn.Linear(3, 3)
    with pytest.raises(ValueError, match="one tensor"), RecordGradients(layer).recording(4):
        layer(input=torch.ones(4, 3))
