"""Instruction sets: what is found, and what one variable switches off."""

from __future__ import annotations

import pytest
import torch

from fedassay.support.errors import PlanError
from fedassay.support.processor import VARIABLE, instruction_sets


@pytest.mark.parametrize(
    ("off", "left"),
    [
        ("", ("avx2", "avx512", "vnni", "bf16")),
        ("vnni", ("avx2", "avx512", "bf16")),
        (" bf16 , vnni", ("avx2", "avx512")),
    ],
)
def test_what_the_variable_names_is_not_there(
    off: str, left: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for function in ("avx2", "avx512", "vnni", "avx512_bf16"):
        monkeypatch.setattr(torch.cpu, f"_is_{function}_supported", lambda: True, raising=False)
    monkeypatch.setenv(VARIABLE, off)
    assert instruction_sets() == left


def test_a_torch_that_cannot_say_has_found_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "_is_vnni_supported", raising=False)
    monkeypatch.setattr(torch.cpu, "_is_avx2_supported", lambda: False, raising=False)
    assert not {"vnni", "avx2"} & set(instruction_sets())


def test_another_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "vnni,sse9")
    with pytest.raises(PlanError, match="FEDASSAY_WITHOUT: 'sse9' given; allowed: vnni, bf16, or both"):
        instruction_sets()
