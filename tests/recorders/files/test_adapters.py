"""Adapters under PEFT's and diffusers' names: the change of weights that they make, as gradients are read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fedassay.attacks.gradients.targets import targets
from fedassay.exchange.view import ThreatModel, View
from fedassay.recorders.files.reading import Corrections, read_files

WIDTH, UNITS, RANK = 48, 32, 4


def _trained(
    images: torch.Tensor, labels: torch.Tensor
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The adapter of a linear layer as it was sent, with B = 0, and after one step on some records."""
    torch.manual_seed(0)
    frozen = torch.nn.Linear(WIDTH, UNITS)
    down = torch.nn.Linear(WIDTH, RANK, bias=False)
    up = torch.nn.Linear(RANK, UNITS, bias=False)
    torch.nn.init.zeros_(up.weight)
    start = {"A": down.weight.detach().clone(), "B": up.weight.detach().clone()}
    torch.nn.functional.cross_entropy(frozen(images) + up(down(images)), labels).backward()
    torch.optim.SGD([*down.parameters(), *up.parameters()], 0.5).step()
    return start, {"A": down.weight.detach(), "B": up.weight.detach()}


def _named(pair: dict[str, torch.Tensor], names: str) -> dict[str, torch.Tensor]:
    return {names.format(key, {"A": "down", "B": "up"}[key]): values.clone() for key, values in pair.items()}


NAMES = (
    "base_model.model.encoder.q_proj.lora_{0}.weight",
    "base_model.model.encoder.q_proj.lora_{0}.default.weight",
    "encoder.q_proj.lora_{1}.weight",
    "encoder.q_proj.lora_{0}",
)


@pytest.mark.parametrize("names", NAMES)
def test_a_pair_is_the_change_of_its_layer(names: str, tmp_path: Path) -> None:
    image = torch.rand(1, WIDTH)
    start, after = _trained(image, torch.tensor([3]))
    save_file(_named(after, names), tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": RANK, "lora_alpha": 8}))
    read = read_files(tmp_path, Corrections())
    assert "Left out: adapter_config.json" in read.text
    assert "--downlink FILE" in read.text
    (message,) = read.transcript.messages
    ((name, item),) = message.fields.items()
    assert name.endswith("encoder.q_proj.low_rank")
    assert item.kind == "gradient"
    (target,) = targets(View(read.transcript.messages, 2, ThreatModel()))
    (change,) = target.arrays.values()
    # One record and one step: what is left of its input lies in the rows that A had.
    seen = np.linalg.svd(change)[2][0]
    rows = np.linalg.qr(start["A"].numpy().T)[0]
    # The first step moves B alone, whose rows are A x: A' A x is what the change has of the record.
    wanted = start["A"].numpy().T @ (start["A"].numpy() @ image.numpy()[0])
    assert abs(seen @ wanted) / np.linalg.norm(wanted) == pytest.approx(1, abs=1e-4)
    assert np.linalg.norm(rows.T @ seen) == pytest.approx(1, abs=1e-4)


def test_adapters_that_were_sent_before_are_taken_off(tmp_path: Path) -> None:
    first = _trained(torch.rand(2, WIDTH), torch.tensor([3, 5]))[1]
    rng = np.random.default_rng(0)
    second = {
        key: values + torch.from_numpy(rng.normal(size=values.shape)).float() for key, values in first.items()
    }
    save_file(_named(first, NAMES[0]), tmp_path / "before.safetensors")
    save_file(_named(second, NAMES[1]), tmp_path / "client_1.safetensors")
    read = read_files(tmp_path / "client_1.safetensors", Corrections(downlink=tmp_path / "before.safetensors"))
    (target,) = targets(View(read.transcript.messages, 2, ThreatModel()))
    (change,) = target.arrays.values()
    np.testing.assert_allclose(change, (first["B"] @ first["A"] - second["B"] @ second["A"]).numpy(), atol=1e-5)
    assert target.changed


def test_a_pair_that_does_not_fit_stays_as_it_is(tmp_path: Path) -> None:
    save_file(
        {"x.lora_A.weight": torch.ones(4, 6), "x.lora_B.weight": torch.ones(6, 3)}, tmp_path / "a.safetensors"
    )
    (message,) = read_files(tmp_path / "a.safetensors", Corrections()).transcript.messages
    assert sorted(message.fields) == ["x.lora_A.weight", "x.lora_B.weight"]
