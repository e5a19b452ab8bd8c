"""Processes that run methods again end with whoever forked them, however many there are."""

from __future__ import annotations

import gc

from fedassay.execution.apart import Apart, Work


def _nothing(_cell: str) -> Work:
    raise AssertionError


def test_several_end_in_any_order() -> None:
    """The second holds a copy of the first's connection, which must not keep the first from ending."""
    first, second, third = (Apart(_nothing) for _ in range(3))
    del first
    gc.collect()
    del third
    gc.collect()
    del second
    gc.collect()
