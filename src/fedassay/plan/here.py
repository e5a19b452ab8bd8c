"""Stages that this machine timed in earlier runs, and its speed: they correct the estimates that a reader sees.

Both are kept in the cache, stages by number of threads; nothing in a record depends on them.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedassay.plan.measured import Stage, corrected, known
from fedassay.plan.resources import threads_limited
from fedassay.support.cache import Entry, entry_of
from fedassay.support.numerics import threads_now

_MOST_KEPT = 5000
"""Stages that are kept, the latest ones: some hundred runs."""
_REFERENCE = (0.0060, 0.0310, 0.0125)
"""Seconds that the three pieces of work of `_pieces` take on the machine of `measured.json`."""
_REPEATS = 15
_SPEEDS = 5
"""Measurements of the speed that are kept: the fastest counts, since other work only ever slows one down."""


class Here(NamedTuple):
    """This machine.

    Attributes:
        speed: Its speed, in units of that of the machine on which shipped plans were timed.
        stages: Stages that it timed itself.
    """

    speed: float
    stages: tuple[Stage, ...]

    @property
    def words(self) -> str:
        """Corrections by this machine, for a reader."""
        timed = f" and {len(self.stages):,} stages timed here" if self.stages else ""
        return f"corrected by this machine's speed ({self.speed:.2g}){timed}"

    def seconds(self, stage: Stage) -> float:
        """Return the seconds of a stage here.

        Stages of the same plan come first, then those that were timed here, then those of other shipped plans.
        """
        own = self._own(stage)
        if own and (known(stage, own) or not known(stage)):
            return corrected(stage, own)
        return corrected(stage) / self.speed

    def known(self, stage: Stage) -> bool:
        """Whether this stage of this plan was timed, here or among the shipped plans."""
        return known(stage) or known(stage, self._own(stage))

    def _own(self, stage: Stage) -> list[Stage]:
        return [each for each in self.stages if each[:3] == stage[:3]]


def this_machine(threads: int | None) -> Here:
    """Return this machine's speed and timed stages; each of the first calls measures the speed, in a second.

    Args:
        threads: Those of the plan.
    """
    with threads_limited(threads):
        rows = _kept(_stages_entry())
    entry = _entry("speed", 1)
    speeds = _kept(entry)
    if len(speeds) < _SPEEDS:
        with threads_limited(1):
            speeds.append(measure())
        _keep(entry, speeds)
    return Here(max(speeds), tuple(Stage(*row) for row in rows))


def keep(stages: Sequence[Stage]) -> None:
    """Keep timed stages of a run, with the threads of now, for the estimates of further ones."""
    if not stages:
        return
    entry = _stages_entry()
    _keep(entry, [*_kept(entry), *map(list, stages)][-_MOST_KEPT:])


def _stages_entry() -> Entry:
    return _entry("timed stages", threads_now())


def _entry(what: str, threads: int) -> Entry:
    # Libraries set variables that choose kernels when they are imported, and a dry run imports fewer of them.
    return entry_of({"what": what, "edition": 1, "threads": threads}, numbers=False)


def _kept(entry: Entry) -> list[Any]:
    kept = entry.read()
    return [] if kept is None else list(json.loads(kept["rows"].tobytes()))


def _keep(entry: Entry, rows: Sequence[object]) -> None:
    entry.write({"rows": np.frombuffer(json.dumps(rows).encode(), np.uint8)})


def measure() -> float:
    """Measure this machine's speed: the geometric mean over a product of matrices, a sort and plain Python."""
    took = [min(_timed(piece) for _ in range(_REPEATS)) for piece in _pieces()]
    ratios = [there / here for here, there in zip(took, _REFERENCE, strict=True)]
    return float(np.clip(math.exp(sum(map(math.log, ratios)) / len(ratios)), 0.1, 10.0))


def _timed(piece: Callable[[], object]) -> float:
    began = time.process_time()
    piece()
    return max(1e-6, time.process_time() - began)


def _pieces() -> tuple[Callable[[], object], ...]:
    values: NDArray[np.float32] = np.random.default_rng(0).random((512, 512), np.float32)
    return (
        lambda: [values @ values for _ in range(3)],
        lambda: np.argsort(values, axis=None, kind="stable"),
        lambda: sum(number * number for number in range(200_000)),
    )
