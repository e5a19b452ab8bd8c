"""Declared noise that captured messages cannot hold: found where it is missing, silent where it is there."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from fedassay.audits.claim.captured_again import measured_noise
from fedassay.audits.claim.declared_noise import LEVEL, declared_noise
from fedassay.audits.claim.noise_blocks import NoisedArray, noised_arrays
from fedassay.exchange.release import Release, exact
from fedassay.exchange.transcript import Message, MessageField, Transcript
from fedassay.mixtures.packed import pack_lower
from fedassay.privacy.symmetric import project_psd, symmetric_noise
from fedassay.support.errors import DataError

CLASSES, WIDTH = 10, 64
SCALE = 4.0


def release(*scales: float, **more) -> Release:
    scales = scales or (SCALE,)
    return Release(
        mechanism="gaussian", adjacency="add_remove", sensitivity=(1.0,) * len(scales), noise_scale=scales, **more
    )


def captured(kind, arrays, how=None, **more) -> Transcript:
    messages = (
        Message(0, f"client/{number}", "server", {"sent": MessageField(array, kind, how or release(), **more)})
        for number, array in enumerate(arrays)
    )
    return Transcript("captured", CLASSES, tuple(messages))


def only(transcript: Transcript):
    (found,) = declared_noise(transcript)
    return found


def features(rng, n=12):
    raw = np.maximum(rng.standard_normal((n, WIDTH)), 0)
    return raw / np.linalg.norm(raw, axis=1, keepdims=True)


def test_weights_without_noise_are_found() -> None:
    rng = np.random.default_rng(0)
    weights = [0.05 * rng.standard_normal((100, 100)).astype(np.float32) for _ in range(2)]
    assert only(captured("parameters", weights)).outcome == "refuted"
    assert only(captured("parameters", weights)).log10_p <= -10_000


def test_class_means_with_a_hundredth_of_the_noise_are_found() -> None:
    rng = np.random.default_rng(1)
    means = np.stack([features(rng).mean(axis=0) for _ in range(CLASSES)])
    found = only(captured("class_means", [means + SCALE / 100 * rng.standard_normal(means.shape)]))
    assert found.outcome == "refuted"
    assert found.log10_p <= -600


def test_class_sums_with_a_tenth_of_the_noise_are_found() -> None:
    rng = np.random.default_rng(2)
    sums = np.stack([features(rng, 40).sum(axis=0) for _ in range(CLASSES)])
    found = only(captured("class_sums", [sums + SCALE / 10 * rng.standard_normal(sums.shape)]))
    assert found.outcome == "refuted"
    assert found.log10_p <= -32


def test_one_client_of_twenty_or_one_class_of_ten_is_found() -> None:
    rng = np.random.default_rng(3)
    sums = [100 * rng.random((CLASSES, WIDTH)) + SCALE * rng.standard_normal((CLASSES, WIDTH)) for _ in range(20)]
    assert only(captured("class_sums", sums)).outcome == "not_refuted"
    client = [*sums[:-1], 0.1 * rng.standard_normal((CLASSES, WIDTH))]
    found = only(captured("class_sums", client))
    assert found.outcome == "refuted"
    one_class = sums[7].copy()
    one_class[3] = features(rng).sum(axis=0)
    found = only(captured("class_sums", [*sums[:7], one_class, *sums[8:]]))
    assert (found.outcome, found.where) == ("refuted", "row 3 of client/7 (round 0)")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_second_moment_without_noise_is_found_whether_packed_or_not(dtype) -> None:
    rng = np.random.default_rng(4)
    own = features(rng)
    moment = own.T @ own
    assert only(captured("second_moment", [moment.astype(dtype)])).outcome == "refuted"
    assert only(captured("second_moment", [pack_lower(moment).astype(dtype)])).outcome == "refuted"
    little = moment + symmetric_noise(WIDTH, SCALE / 10, rng)
    assert only(captured("second_moment", [little.astype(dtype)])).log10_p <= -32


def test_rows_have_scales_of_their_own() -> None:
    rng = np.random.default_rng(5)
    scales = tuple(float(scale) for scale in np.geomspace(0.01, 100, CLASSES))
    cells = tuple(f"class/{label}" for label in range(CLASSES))
    noise = rng.standard_normal((CLASSES, WIDTH)) * np.array(scales)[:, None]
    how = release(*scales, cells=cells)
    assert only(captured("class_means", [noise], how)).outcome == "not_refuted"
    noise[-1] /= 30
    assert only(captured("class_means", [noise], how)).outcome == "refuted"


def _noise(rng):
    return SCALE * rng.standard_normal((CLASSES, WIDTH))


def _within(rows, radius):
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True) / radius, 1)


HONEST = {
    "nothing beneath": lambda rng: ("class_sums", _noise(rng)),
    "float16": lambda rng: ("class_sums", _noise(rng).astype(np.float16)),
    "small counts": lambda rng: ("class_counts", _noise(rng)[0, :CLASSES]),
    "whole counts": lambda rng: ("class_counts", np.rint(_noise(rng)[0, :CLASSES]).astype(np.int32)),
    "whole sums": lambda rng: ("class_sums", np.rint(_noise(rng))),
    "clamped at zero": lambda rng: ("class_sums", np.maximum(_noise(rng), 0)),
    "counts clamped at zero": lambda rng: ("class_counts", np.maximum(5 + _noise(rng)[0, :CLASSES], 0)),
    "counts of at least a little": lambda rng: ("class_counts", np.maximum(5 + _noise(rng)[0, :CLASSES], 1e-6)),
    "clipped to a box": lambda rng: ("class_sums", np.clip(_noise(rng), -1, 1)),
    "rows of length 1": lambda rng: ("class_means", (x := _noise(rng)) / np.linalg.norm(x, axis=1, keepdims=True)),
    "length 1": lambda rng: ("parameters", (x := _noise(rng)) / np.linalg.norm(x)),
    "rows within a ball, in float16": lambda rng: ("class_means", _within(_noise(rng), 1.0).astype(np.float16)),
    "rows within a ball of 20": lambda rng: ("class_means", _within(_noise(rng), 20.0)),
    "one row within a ball": lambda rng: ("class_means", _within(_noise(rng)[:1], 1.0).astype(np.float32)),
    "shares of one": lambda rng: ("other", (x := np.abs(_noise(rng))) / x.sum(axis=1, keepdims=True)),
    "copied": lambda rng: ("other", np.tile(_noise(rng)[:1, :8], (CLASSES, 30))),
    "second moment": lambda rng: ("second_moment", symmetric_noise(WIDTH, SCALE, rng)),
    "packed second moment": lambda rng: ("second_moment", pack_lower(symmetric_noise(WIDTH, SCALE, rng))),
    "projected second moment": lambda rng: ("second_moment", project_psd(symmetric_noise(WIDTH, SCALE, rng))),
    "covariances": lambda rng: ("class_covariances", 1e-3 * rng.random((CLASSES, WIDTH, WIDTH))),
}


@pytest.mark.long
@pytest.mark.parametrize("law", HONEST)
def test_honest_noise_and_what_is_made_of_it_is_not_refuted(law: str) -> None:
    """At a level of 1e-3, 200 transcripts over values of 0, the worst case: one alarm may be chance, not three."""
    alarms = 0
    for seed in range(200):
        kind, array = HONEST[law](np.random.default_rng([seed, 7]))
        alarms += only(captured(kind, [array])).outcome == "refuted"
    assert alarms <= 2


@pytest.mark.slow
@pytest.mark.parametrize("law", ["nothing beneath", "small counts", "whole counts", "second moment"])
def test_the_level_holds_in_many_transcripts(law: str) -> None:
    alarms = 0
    for seed in range(4000):
        kind, array = HONEST[law](np.random.default_rng([seed, 8]))
        found = declared_noise(captured(kind, [array]), level=0.05)
        alarms += any(each.outcome == "refuted" for each in found)
    assert alarms / 4000 <= 0.05 + 3 * math.sqrt(0.05 / 4000)


def test_arrays_are_tested_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    held, most = [], 0

    def followed(transcript: Transcript) -> Iterator[NoisedArray]:
        nonlocal most
        for array in noised_arrays(transcript):
            held.append(weakref.ref(array))
            most = max(most, sum(other() is not None for other in held))
            yield array

    monkeypatch.setattr("fedassay.audits.claim.declared_noise.noised_arrays", followed)
    rng = np.random.default_rng(12)
    transcript = captured("class_sums", [_noise(rng) / 4 for _ in range(20)])
    every = only(transcript)
    assert (every.outcome, every.where, every.draws) == ("refuted", "all 20 messages", 20 * CLASSES * WIDTH)
    assert most <= 3
    monkeypatch.setattr("fedassay.audits.claim.declared_noise._POOLED", 20 * 320)
    fewer = only(transcript)
    assert (fewer.outcome, fewer.where, fewer.draws) == ("refuted", "all 20 messages", every.draws)
    assert every.log10_p < fewer.log10_p


def test_only_the_sum_of_secure_fields_is_tested() -> None:
    """Each client adds a share of the noise; the sum has it all."""
    rng = np.random.default_rng(9)
    shares = [SCALE / 10 * rng.standard_normal((CLASSES, WIDTH)) for _ in range(100)]
    assert only(captured("class_sums", shares, additive=True, secure=True)).outcome == "not_refuted"
    assert only(captured("class_sums", shares, additive=True)).outcome == "refuted"
    without = [share / 100 for share in shares]
    assert only(captured("class_sums", without, additive=True, secure=True)).outcome == "refuted"


def test_what_was_computed_from_noised_statistics_is_not_tested() -> None:
    rng = np.random.default_rng(10)
    fields = {
        "counts": MessageField(SCALE * rng.standard_normal(CLASSES) + 50, "class_counts", release()),
        "means": MessageField(_noise(rng) / 50, "class_means", release()),
        "exact": MessageField(np.zeros(4), "other", exact()),
    }
    found = {
        each.field: each for each in declared_noise(Transcript("x", CLASSES, (Message(0, "c", "s", fields),)))
    }
    assert set(found) == {"counts", "means"}
    assert found["means"].outcome == "not_tested"
    assert "noised counts" in found["means"].reason


def test_noise_is_measured_between_captures() -> None:
    values = 1000 * np.random.default_rng(11).random((CLASSES, WIDTH))
    outcomes = []
    for seed in range(100):
        rng = np.random.default_rng([seed, 11])
        captures = [captured("class_sums", [values + _noise(rng), values + _noise(rng)]) for _ in range(2)]
        (found,) = measured_noise(captures)
        assert found.draws == 2 * CLASSES * WIDTH
        assert found.low < found.ratio < found.high
        outcomes.append((found.outcome, found.low <= 1 <= found.high))
    assert sum(outcome != "as_declared" for outcome, _ in outcomes) <= 1
    assert np.mean([covered for _, covered in outcomes]) >= 0.88


@pytest.mark.parametrize("captures", [2, 4])
@pytest.mark.parametrize(("share", "outcome"), [(0.0, "too_little"), (0.5, "too_little"), (2.0, "too_much")])
def test_another_amount_of_noise_is_found_between_captures(captures: int, share: float, outcome: str) -> None:
    """Under values of a thousand, where one transcript alone says nothing; one client of five suffices."""
    rng = np.random.default_rng(12)
    values = 1000 * rng.random((CLASSES, WIDTH))
    scales = (1.0, 1.0, share, 1.0, 1.0)
    sets = [captured("class_sums", [values + s * _noise(rng) for s in scales]) for _ in range(captures)]
    assert only(sets[0]).outcome == "not_refuted"
    (found,) = measured_noise(sets)
    assert found.outcome == outcome
    assert "client/2" in found.where or found.where == "all messages"


def test_the_same_noise_again_is_no_noise() -> None:
    rng = np.random.default_rng(13)
    one = captured("class_sums", [1000 + _noise(rng)])
    (found,) = measured_noise([one, one])
    assert found.outcome == "too_little"


@pytest.mark.parametrize("captures", [2, 4])
@pytest.mark.parametrize("common", ["senders", "rows"])
def test_noise_that_two_have_in_common_falls_out_of_their_difference(captures: int, common: str) -> None:
    """Of the declared size everywhere, so that no array and no row shows it by itself."""
    rng = np.random.default_rng(16)
    values = 1000 * rng.random((CLASSES, WIDTH))
    sets = []
    for _ in range(captures):
        own, other = _noise(rng), _noise(rng)
        other = own if common == "senders" else np.concatenate([other[:-1], other[:1]])
        sets.append(captured("class_sums", [values + own, 2 * values + other]))
    (found,) = measured_noise(sets)
    assert found.outcome == "too_little"
    assert "the difference of" in found.where


def test_the_limit_is_found_and_a_quarter_less_noise_is_not_always() -> None:
    values, n = np.full((1, 50), 1e4), 0
    (found,) = measured_noise(
        [captured("other", [values + _noise(np.random.default_rng(s))[:1, :50]]) for s in (0, 1)]
    )
    for seed in range(200):
        rng = np.random.default_rng([seed, 14])
        draw = [captured("other", [values + found.limit * _noise(rng)[:1, :50]]) for _ in range(2)]
        n += measured_noise(draw)[0].outcome == "too_little"
    assert n / 200 >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 200)


def test_clipped_and_rounded_captures_are_not_measured() -> None:
    rng = np.random.default_rng(15)
    clipped = [captured("class_sums", [np.clip(_noise(rng), -1, 1)]) for _ in range(2)]
    assert measured_noise(clipped)[0].outcome == "not_measured"
    coarse = [captured("class_sums", [np.rint(_noise(rng) / 20) * 20]) for _ in range(2)]
    assert measured_noise(coarse)[0].outcome == "not_measured"
    projected = [captured("second_moment", [project_psd(symmetric_noise(WIDTH, SCALE, rng))]) for _ in range(2)]
    assert measured_noise(projected)[0].outcome == "not_measured"


def test_captures_must_match() -> None:
    rng = np.random.default_rng(16)
    one, two = captured("class_sums", [_noise(rng)]), captured("class_sums", [_noise(rng), _noise(rng)])
    with pytest.raises(DataError, match="one capture and not in the other"):
        measured_noise([one, two])
    with pytest.raises(DataError, match="another scale"):
        measured_noise([one, captured("class_sums", [_noise(rng)], release(5.0))])
    with pytest.raises(DataError, match="at least two"):
        measured_noise([one])


def test_the_level_is_that_of_a_transcript() -> None:
    assert LEVEL == 1e-3
