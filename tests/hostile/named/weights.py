"""Files of weights."""

from __future__ import annotations

import io
import os
import pickle
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from material import RUN, Case, Material, Special, weights_plan

from named.parts import FIFO, FOLDER, ZERO, header, zipped


class _Reduced:
    """Pickles as a call."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


def cases(material: Material) -> Iterator[Case]:
    from collections import OrderedDict

    import torch

    def saved(content: Any, **options: Any) -> bytes:
        stream = io.BytesIO()
        torch.save(content, stream, **options)
        return stream.getvalue()

    state = {name: torch.tensor(array) for name, array in _load(material.weights["safetensors"]).items()}
    sound = material.weights["torch"]
    contents: dict[str, bytes | Special] = {
        "nothing wrong": sound,
        "/etc/passwd": Special("link", "/etc/passwd"),
        "nothing": b"",
        "one letter": b"x",
        "text": b"text\n" * 100,
        "a pickle": pickle.dumps({"a": 1}),
        "a pickle of code": pickle.dumps(_Reduced(os.system, "touch owned")),
        "code in a file of torch's": saved({"a": _Reduced(os.system, "touch owned")}),
        "code in the old format": saved(
            {"a": _Reduced(os.system, "touch owned")}, _use_new_zipfile_serialization=False
        ),
        "the old format": saved(state, _use_new_zipfile_serialization=False),
        "the old format cut short": saved(state, _use_new_zipfile_serialization=False)[:3000],
        "cut short": sound[:-100],
        "cut in half": sound[: len(sound) // 2],
        "a list": saved([1, 2]),
        "a tensor": saved(torch.zeros(3)),
        "an empty mapping": saved({}),
        "keys that are numbers": saved({1: torch.zeros(3)}),
        "values that are text": saved({"a": "b"}),
        "a state dict of a state dict": saved({"state_dict": state}),
        "another network": saved({"a": torch.zeros(3)}),
        "NaN": saved({**state, "conv1.weight": state["conv1.weight"] * float("nan")}),
        "whole numbers": saved({**state, "conv1.weight": state["conv1.weight"].long()}),
        "complex numbers": saved({**state, "conv1.weight": state["conv1.weight"].to(torch.complex64)}),
        "a sparse tensor": saved({**state, "conv1.weight": state["conv1.weight"].to_sparse()}),
        "a quantised tensor": saved(
            {**state, "conv1.weight": torch.quantize_per_tensor(state["conv1.weight"], 0.1, 0, torch.qint8)}
        ),
        "a tensor on meta": saved({**state, "conv1.weight": state["conv1.weight"].to("meta")}),
        "a head without sides": saved({**state, "linear.weight": torch.tensor(3.0)}),
        "a head of 10^9 classes": saved(
            {
                **state,
                "linear.weight": torch.zeros(1, 64).expand(10**9, 64),
                "linear.bias": torch.zeros(1).expand(10**9),
            }
        ),
        "a head of 10^9 classes and no features": saved({**state, "linear.weight": torch.zeros(10**9, 0)}),
        "a huge view": saved({**state, "conv1.weight": torch.zeros(1).expand(10**12)}),
        "a bytearray of 10 GB": saved({"a": _Reduced(bytearray, 10**10)}),
        "an ordered dict of bytes": saved(OrderedDict(a=_Reduced(bytearray, 10**6))),
        "nesting": pickle.dumps(_nested(400), protocol=2),
        "a zip of nothing": zipped({}),
        "a zip bomb": zipped({"archive/data.pkl": bytes(300 << 20)}),
        "a named pipe": FIFO,
        "a device": ZERO,
        "a folder": FOLDER,
        "a link to itself": Special("link", "in.weights"),
        "20 GB of nothing": Special("sparse", "PK", 20 << 30),
        "20 GB without a name": Special("sparse", "", 20 << 30),
    }
    for name, content in contents.items():
        yield Case("weights", name, RUN, {"plan.yaml": weights_plan(), "in.weights": content})
    tensors = {
        "nothing wrong": material.weights["safetensors"],
        "cut short": material.weights["safetensors"][:-10],
        "nothing": b"",
        "a header longer than the file": struct.pack("<Q", 2**63) + b"{}",
        "a header that is a list": header([]),
        "a shape of 2^62": header({"f": {"dtype": "U8", "shape": [2**62], "data_offsets": [0, 1]}}, 1),
        "nesting": header('{"f": ' + "[" * 100_000),
        "a named pipe": FIFO,
        "a device": ZERO,
        "20 GB of nothing": Special("sparse", "", 20 << 30),
        "a head of 10^9 classes": header(
            {"linear.weight": {"dtype": "F32", "shape": [10**9, 0], "data_offsets": [0, 0]}}
        ),
    }
    for name, content in tensors.items():
        plan = weights_plan().replace(b"in.weights", b"in.safetensors")
        yield Case("weights", f"safetensors: {name}", RUN, {"plan.yaml": plan, "in.safetensors": content})


def _nested(depth: int) -> list[Any]:
    out: list[Any] = []
    for _ in range(depth):
        out = [out]
    return out


def _load(data: bytes) -> dict[str, np.ndarray]:
    from safetensors.numpy import load

    return load(data)
