"""Products of float32 matrices at full precision, where a proven bound depends on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_float32() -> Iterator[None]:
    """Switches reduced-precision float32 products (TF32, bfloat16) off inside, and restores the setting."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
