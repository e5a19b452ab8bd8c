"""The noise mechanism, the tape, its replay, and what of it outlives an interruption."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedassay.privacy import tape as tape_module
from fedassay.privacy.overflow import Overflow
from fedassay.privacy.tape import (
    Draw,
    ExternalMechanism,
    FreeNoise,
    Key,
    NoiseMechanism,
    Tape,
    running_tape,
    scaled_noise,
    taped,
)
from fedassay.privacy.tape_checkpoint import keep_draws, restore_draws
from fedassay.support.seeds import Seeds

KEY = Key("client/0", 0, "statistics")
MECHANISM = NoiseMechanism(Seeds(0), KEY)
VALUE = np.arange(6.0).reshape(2, 3)
SYMMETRIC = np.array([[1.0, 2.0], [2.0, 5.0]])


def _whole(answers: Tape | None = None, value: np.ndarray = VALUE) -> tuple[Tape, list[np.ndarray]]:
    """Every kind of entry on one tape; returns it and what came out."""
    with taped(answers) as found:
        outs = [
            MECHANISM.add("sums", value, 2.0),
            MECHANISM.add("second", SYMMETRIC + value.sum(), 2.0, layout="symmetric"),
            MECHANISM.at(cell="class/3").add("second", SYMMETRIC, 2.0, layout="mirrored"),
            MECHANISM.at(step=1).add("count", np.float64(7), 2.0, grid=0.25),
            MECHANISM.add("counts", np.array([1.0]), 0.0),
            MECHANISM.seal("mean", "somebody's", 1.5, lambda values: values[0] + 1, value, (0.0, 1.0)),
        ]
    return found, outs


def test_what_is_written_is_what_was_given_out() -> None:
    tape, outs = _whole()
    assert running_tape() is None
    assert not tape.faults
    assert [entry.out is out for entry, out in zip(tape.draws.values(), outs, strict=True)] == [True] * 6
    with pytest.raises(ValueError, match="read-only"):
        outs[0][0, 0] = 3.0
    assert [key.path for key in tape.draws][3] == ("client/0", 0, "statistics", "all", "count", 1)
    noise = outs[1] - SYMMETRIC - VALUE.sum()
    np.testing.assert_allclose(noise, noise.T, atol=1e-12)
    assert float(outs[3]) % 0.25 == 0
    # The tape keeps what went in, not the caller's array.
    mine = VALUE.copy()
    with taped() as other:
        MECHANISM.add("sums", mine, 2.0)
    mine[:] = 0
    np.testing.assert_array_equal(other.draws[Key("client/0", 0, "statistics", part="sums")].out, outs[0])
    kept = other.draws[Key("client/0", 0, "statistics", part="sums")]
    assert isinstance(kept, Draw)
    np.testing.assert_array_equal(kept.exact, VALUE)


def test_what_does_not_fit_lies_on_the_disk_until_the_tape_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Overflow.__init__, "__defaults__", (None, 100))
    with taped(folder=tmp_path / "new") as tape:
        outs = [MECHANISM.at(step=step).add("sums", VALUE + step, 2.0) for step in range(40)]
    with taped(answers=tape) as replay:
        again = [MECHANISM.at(step=step).add("sums", VALUE, 2.0) for step in range(40)]
    assert not replay.faults
    for step, (out, entry) in enumerate(zip(outs, tape.draws.values(), strict=True)):
        assert isinstance(entry, Draw)
        assert entry.out is out or step > 0
        assert not entry.out.flags.writeable
        np.testing.assert_array_equal(entry.exact, VALUE + step)
        np.testing.assert_array_equal(entry.out, out)
        np.testing.assert_array_equal(again[step], out)
    assert sum(entry.out is out for out, entry in zip(outs, tape.draws.values(), strict=True)) == 1
    # The file has no name: nothing is left where a process is killed.
    assert list((tmp_path / "new").iterdir()) == []


def test_without_a_tape_the_door_gives_out_the_same() -> None:
    _, outs = _whole()
    np.testing.assert_array_equal(MECHANISM.add("sums", VALUE, 2.0), outs[0])


def test_both_sources_of_noise_draw_alike() -> None:
    key = Key("client/0", 0, "statistics", part="second")
    for layout in ("entries", "symmetric", "mirrored"):
        free = FreeNoise(Seeds(0).numpy(*key.path)).add("second", SYMMETRIC, 3.0, layout=layout, grid=2.0**-8)
        np.testing.assert_array_equal(MECHANISM.add("second", SYMMETRIC, 3.0, layout=layout, grid=2.0**-8), free)
    for scale in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="noise scale must be finite"):
            MECHANISM.add("second", SYMMETRIC, scale)


def test_a_replay_gives_out_what_came_out_and_keeps_what_goes_in() -> None:
    first, outs = _whole()
    replay, again = _whole(first, VALUE + 100)
    assert not replay.faults
    assert all(np.array_equal(a, b) for a, b in zip(again, outs, strict=True))
    moved = replay.draws[Key("client/0", 0, "statistics", part="sums")]
    assert isinstance(moved, Draw)
    np.testing.assert_array_equal(moved.exact, VALUE + 100)


def test_a_replay_draws_noise_only_where_the_first_run_gave_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, ...]] = []

    def counted(shape: tuple[int, ...], *given: object) -> np.ndarray:
        drawn.append(shape)
        return scaled_noise(shape, *given)  # type: ignore[arg-type]

    with taped() as first:
        MECHANISM.add("mean", np.ones(3), 0.5)
    monkeypatch.setattr(tape_module, "scaled_noise", counted)
    with taped(first):
        MECHANISM.add("mean", np.zeros(3), 0.5)
        assert not drawn
        MECHANISM.add("another", np.zeros(4), 0.5)
        assert drawn == [(4,)]


def test_what_carries_no_noise_is_never_replayed() -> None:
    with taped() as first:
        MECHANISM.add("counts", np.array([1.0]), 0.0)
    with taped(first) as replay:
        out = MECHANISM.add("counts", np.array([2.0]), 0.0)
    assert out == [2.0]
    assert not replay.faults


@pytest.mark.parametrize(
    ("draw", "fault"),
    [
        (lambda: MECHANISM.add("sums", VALUE, 2.5), "2.5"),
        (lambda: MECHANISM.add("sums", VALUE[:1], 2.0), "(1, 3)"),
        (lambda: MECHANISM.add("sums", VALUE, 2.0, grid=0.5), "0.5"),
        (lambda: MECHANISM.add("sums", VALUE, 0.0), "0.0"),
        (
            lambda: MECHANISM.seal("sums", "their", 1.0, lambda values: values, VALUE, (0.0, 1.0)),
            "their at epsilon 1.0",
        ),
        (lambda: MECHANISM.at(step=1).add("sums", VALUE, 2.0), "noise is drawn that the first run did not draw"),
        (lambda: None, "noise that the first run drew is not drawn"),
    ],
)
def test_a_replay_that_draws_otherwise_is_at_fault(draw: object, fault: str) -> None:
    with taped() as first:
        MECHANISM.add("sums", VALUE, 2.0)
    with taped(first) as replay:
        draw()  # type: ignore[operator]
    assert any(fault in each.words for each in replay.faults)


def test_a_key_used_twice_and_a_second_root_are_faults() -> None:
    with taped() as tape:
        MECHANISM.add("sums", VALUE, 2.0)
        MECHANISM.add("sums", VALUE, 2.0)
    assert any("twice under one key" in fault.words for fault in tape.faults)
    with taped() as tape:
        MECHANISM.add("sums", VALUE, 2.0)
        NoiseMechanism(Seeds(1), KEY).add("second", VALUE, 2.0)
    assert any("another root" in fault.words for fault in tape.faults)


def test_kept_draws_come_back_whole(tmp_path: Path) -> None:
    path = tmp_path / "round.tape.safetensors"
    with taped() as first:
        MECHANISM.add("sums", VALUE, 2.0)
        MECHANISM.add("count", np.float64(3), 2.0, grid=0.5)
        MECHANISM.seal("mean", "somebody's", 1.5, lambda values: values[0], VALUE, (0.0, 1.0))
        NoiseMechanism(Seeds(0), Key("client/0", 1, "statistics")).add("sums", VALUE, 2.0)
        keep_draws(path, "run", Seeds(0), lambda key: key.round == 0)
    with taped() as resumed:
        restore_draws(path, "run", Seeds(0))
    assert not resumed.lacks
    assert set(resumed.draws) == {key for key in first.draws if key.round == 0}
    for key, entry in resumed.draws.items():
        before = first.draws[key]
        assert entry.shape == before.shape
        np.testing.assert_array_equal(entry.out, before.out)
        if isinstance(before, ExternalMechanism):
            assert isinstance(entry, ExternalMechanism)
            assert (entry.library, entry.pure_epsilon) == (before.library, before.pure_epsilon)
        else:
            assert isinstance(entry, Draw)
            np.testing.assert_array_equal(entry.exact, before.exact)
            assert (entry.scale, entry.layout, entry.grid) == (before.scale, before.layout, before.grid)


def test_what_is_lacking_is_said(tmp_path: Path) -> None:
    path = tmp_path / "round.tape.safetensors"
    unseeded = Seeds(None).child("noise")
    with taped():
        NoiseMechanism(unseeded, KEY).add("sums", VALUE, 2.0)
        keep_draws(path, "run", unseeded, lambda key: True)
    for run, root, reason in (
        ("run", Seeds(None).child("noise"), "is not known"),
        ("another", unseeded, "were not kept"),
    ):
        with taped() as resumed:
            restore_draws(path, run, root)
        assert len(resumed.lacks) == 1
        assert reason in resumed.lacks[0]
    with taped() as resumed:
        restore_draws(path, "run", unseeded)
        restore_draws(tmp_path / "absent", "run", unseeded)
    assert len(resumed.lacks) == 1
    path.write_bytes(b"damaged")
    with taped() as resumed:
        restore_draws(path, "run", unseeded)
    assert len(resumed.lacks) == 1
    # The root itself is nowhere in the file.
    assert unseeded.child("x")._root not in path.read_bytes()


def test_nothing_is_kept_where_nothing_is_taped(tmp_path: Path) -> None:
    keep_draws(tmp_path / "tape", "run", Seeds(0), lambda key: True)
    restore_draws(tmp_path / "tape", "run", Seeds(0))
    assert not (tmp_path / "tape").exists()
