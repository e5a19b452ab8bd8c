"""Many small tensor operations on several cores: one core per task rather than all cores per operation.

Torch splits every operation over its threads and waits for the last. With operations of some tens of microseconds
the waiting costs more than it gains. On a shared machine, where a thread is sometimes not running, it costs a
hundred times as much. Tasks that each keep to one thread wait for nothing, and add up in the same order on any
number of cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from fedassay.support.numerics import at_threads

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(
    function: Callable[[Item], Result], items: Iterable[Item], device: str | torch.device = "cpu"
) -> list[Result]:
    """Calls a function on every item, on as many threads as torch is set to use.

    Meanwhile torch itself is set to one thread, process-wide; the setting is restored.

    Args:
        function: Independent of the order; it spends its time in torch or NumPy.
        items: Its arguments.
        device: On any other device than a CPU the calls are made one after the other.

    Returns:
        The results in the order of the items.
    """
    threads = torch.get_num_threads()
    if torch.device(device).type != "cpu" or threads == 1:
        return [function(item) for item in items]
    with at_threads(1), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, items))
