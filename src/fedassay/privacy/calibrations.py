"""Transfer of calibrated noise between processes: it takes seconds to compute, and follows from public numbers.

Processes that run a method again are forked from one that never ran it, so each would calibrate anew. One of them
returns its calibrations as plain numbers; the parent process then repeats them once, by itself.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from fedassay.privacy.accounting import CALIBRATED, Calibration, calibrate_noise_multiplier
from fedassay.privacy.events import Event, GaussianEvent, PureEvent
from fedassay.support.errors import PlanError

_MOST = 64
"""Calibrations of one run that are done beforehand."""


def calibrated() -> bytes:
    """Return the calibrations of this process with only Gaussian and pure other releases; for `calibrate`."""
    known = (GaussianEvent, PureEvent)
    plain = [each for each in CALIBRATED if all(isinstance(other, known) for other in each.others)]
    return json.dumps([_plain(each) for each in plain]).encode()


def calibrate(asked: bytes) -> None:
    """Repeat the calibrations of another process; those without a solution are left to the code that needs them.

    Args:
        asked: The result of `calibrated` there. Nothing of it is executed.

    Raises:
        ValueError: It is not of that form.
    """
    for epsilon, delta, rate, steps, adjacency, others, tolerance in json.loads(asked)[:_MOST]:
        with contextlib.suppress(PlanError, ValueError):
            calibrate_noise_multiplier(
                epsilon,
                delta,
                sampling_rate=rate,
                steps=steps,
                adjacency=adjacency,
                others=[_event(kind, number) for kind, number in others],
                tolerance=tolerance,
            )


def _plain(asked: Calibration) -> list[Any]:
    others = [
        ("gaussian", event.mu) if isinstance(event, GaussianEvent) else ("pure", event.epsilon)
        for event in asked.others
        if isinstance(event, GaussianEvent | PureEvent)
    ]
    return list(asked._replace(others=others))  # type: ignore[arg-type]


def _event(kind: str, number: float) -> Event:
    return GaussianEvent(number) if kind == "gaussian" else PureEvent(number)
