"""Calibrated noise is computed once in a process, and again where another process asks for the same."""

from __future__ import annotations

import json

import pytest

from fedassay.privacy import accounting
from fedassay.privacy.accounting import calibrate_noise_multiplier
from fedassay.privacy.calibrations import calibrate, calibrated
from fedassay.privacy.events import GaussianEvent, PureEvent, SubsampledGaussianEvent


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What is computed, in a process that has calibrated nothing."""
    monkeypatch.setattr(accounting, "CALIBRATED", {})
    monkeypatch.setattr("fedassay.privacy.calibrations.CALIBRATED", accounting.CALIBRATED)
    compute, done = accounting._calibrated, []

    def counted(*arguments: object) -> float:
        done.append(arguments)
        return compute(*arguments)

    monkeypatch.setattr(accounting, "_calibrated", counted)
    return done


def _some() -> list[float]:
    beside = [GaussianEvent(0.1), PureEvent(0.2)]
    return [
        calibrate_noise_multiplier(2.0, 1e-5, sampling_rate=1.0, steps=3),
        calibrate_noise_multiplier(2.0, 1e-5, sampling_rate=1.0, steps=3, adjacency="replace_one"),
        calibrate_noise_multiplier(2.0, 1e-5, sampling_rate=1.0, steps=3, others=beside, tolerance=0.01),
    ]


def test_what_was_calibrated_is_looked_up(asked: list[tuple[object, ...]]) -> None:
    first = _some()
    assert len(asked) == len(set(first)) == 3
    assert _some() == first
    assert len(asked) == 3


def test_another_process_computes_the_same_before_it_is_asked(asked: list[tuple[object, ...]]) -> None:
    first, said = _some(), calibrated()
    accounting.CALIBRATED.clear()
    calibrate(said)
    assert len(asked) == 6
    assert asked[3:] == asked[:3]
    assert _some() == first
    assert len(asked) == 6


def test_numbers_alone_are_said_and_what_they_say_is_not_believed(asked: list[tuple[object, ...]]) -> None:
    _some()
    sampled = [SubsampledGaussianEvent(5.0, 1.0, 1)]
    calibrate_noise_multiplier(3.0, 1e-5, sampling_rate=1.0, steps=1, others=sampled)
    said = json.loads(calibrated())
    assert len(said) == 3
    assert said[2] == [2.0, 1e-5, 1.0, 3, "add_remove", [["gaussian", 0.1], ["pure", 0.2]], 0.01]
    accounting.CALIBRATED.clear()
    impossible = [1.0, 1e-5, 1.0, 1, "add_remove", [["gaussian", 100.0]], 0.001]
    calibrate(json.dumps([impossible, [-1.0, *said[0][1:]], said[0]]).encode())
    assert [each.epsilon for each in accounting.CALIBRATED] == [2.0]
