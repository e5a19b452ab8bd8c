"""The tape of a run: what every noise mechanism took in, drew and gave out.

Every noise that protects a message goes through one door (`Door`), which returns outputs only and writes down its
key, what went in, the scale and what came out. An audit then asks of the real run of the real method: was the noise
added, is the sensitivity what was declared, and does everything else follow from the outputs alone. The third
question is asked by replaying: the method runs again on other records, and every door gives out what it gave out
before. A transcript that changes then depends on records in a way that no mechanism covers.

Theorem behind it. Let R (hidden coins included) be independent of data and noise. If for all neighbours D, D' and
all (R, outputs so far) the keys, number and parameters of the mechanisms depend only on public R and earlier
outputs, the sum over mechanisms of ||q_t(D) - q_t(D')||^2 / sigma_t^2 is at most mu^2, and the transcript is a
function of outputs and public R, then the run is mu-GDP.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedassay.privacy.symmetric import symmetric_noise
from fedassay.support.seeds import Seeds

Floats = NDArray[np.float64]
Layout = Literal["entries", "symmetric", "mirrored"]
"""`entries`: independent noise on every entry. `symmetric`: white noise in the isometric vech embedding of symmetric
matrices. `mirrored`: the same scale on every entry, the upper triangle mirrored."""


@dataclass(frozen=True, order=True)
class Key:
    """Names one draw of noise; never its place in an order.

    Attributes:
        sender: The client, or the sum of all of them.
        round: Global round.
        field: Name of the message's field that carries what was noised, or of the first of a joint release.
        cell: The records it speaks of, as in `Release.cells`: `all` or `class/c`. Absent classes make entries too.
        part: Which part of a joint release.
        step: Iteration of a mechanism that releases several times.
    """

    sender: str
    round: int
    field: str
    cell: str = "all"
    part: str = ""
    step: int = 0

    @property
    def path(self) -> tuple[str | int, ...]:
        """The names that the stream of this draw is derived from."""
        return (self.sender, self.round, self.field, self.cell, self.part, self.step)


@dataclass(frozen=True, eq=False)
class Draw:
    """One draw of Gaussian noise: `out` is `exact` plus `scale` times standard normals of its stream.

    Attributes:
        key: Its name.
        exact: What went in, float64.
        scale: Standard deviation; see `Layout` for the off-diagonal entries of matrices.
        layout: See `Layout`.
        out: What came out.
    """

    key: Key
    exact: Floats
    scale: float
    layout: Layout
    out: Floats


@dataclass(eq=False)
class Tape:
    """The draws of one run, by key.

    Attributes:
        draws: What was drawn.
        faults: What no tape may hold: a key that was used twice, and in a replay draws that the first run did not
            make, or made of another shape or scale.
        answers: In a replay, the tape of the first run, whose outputs are given out.
        trainings: Private trainings by key; `fedassay.nets.training_tape.trainings` reads them.
    """

    draws: dict[Key, Draw] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    answers: Tape | None = None
    trainings: dict[Key, object] = field(default_factory=dict)

    def write(self, draw: Draw) -> Floats:
        """Keep a draw; returns what the door gives out: its output, or the first run's in a replay."""
        if draw.key in self.draws:
            self.faults.append(f"{draw.key}: noise was drawn twice under one key")
        self.draws[draw.key] = draw
        if self.answers is None or draw.scale == 0:
            return draw.out
        first = self.answers.draws.get(draw.key)
        if first is None or first.out.shape != draw.out.shape:
            self.faults.append(f"{draw.key}: the first run drew no noise of this shape under this key")
            return draw.out
        return first.out.copy()


_TAPE: ContextVar[Tape | None] = ContextVar("tape", default=None)


@contextmanager
def taped(answers: Tape | None = None) -> Iterator[Tape]:
    """Keep the draws of this block; with `answers`, replay that tape's outputs."""
    tape = Tape(answers=answers)
    token = _TAPE.set(tape)
    try:
        yield tape
    finally:
        _TAPE.reset(token)


def current_tape() -> Tape | None:
    """The tape of the innermost `taped` block; None outside of all."""
    return _TAPE.get()


class NoiseSource(Protocol):
    """Where mechanisms take their noise from."""

    def add(
        self,
        part: str,
        exact: Floats,
        scale: float,
        *,
        layout: Layout = "entries",
        size: tuple[int, ...] = (),
    ) -> Floats:
        """`exact` plus noise, as (*size, *exact.shape)."""
        ...


def standard_noise(shape: tuple[int, ...], layout: Layout, rng: np.random.Generator) -> Floats:
    """Standard normals of a layout, float64."""
    if layout == "entries":
        return np.asarray(rng.standard_normal(shape), dtype=np.float64)
    return symmetric_noise(shape[-1], 1.0, rng, size=shape[:-2], isometric=layout == "symmetric")


@dataclass(frozen=True)
class FreeNoise:
    """Noise from one generator, on no tape: for experiments that release again and again."""

    rng: np.random.Generator

    def add(
        self, part: str, exact: Floats, scale: float, *, layout: Layout = "entries", size: tuple[int, ...] = ()
    ) -> Floats:
        """See `NoiseSource`."""
        noise = standard_noise((*size, *np.shape(exact)), layout, self.rng)
        noise *= scale
        noise += exact
        return noise


@dataclass(frozen=True)
class Door:
    """The door of one release: noise from the stream of its key, and a line on the tape.

    Attributes:
        seeds: Root of the noise streams of a run, with a digest of the data and of the resolved parameters in it.
        key: Of the release; parts are added to it.
    """

    seeds: Seeds
    key: Key

    def add(
        self, part: str, exact: Floats, scale: float, *, layout: Layout = "entries", size: tuple[int, ...] = ()
    ) -> Floats:
        """See `NoiseSource`; `size` must be empty: a method releases once."""
        if size:
            raise ValueError("a door releases once; experiments that release again take FreeNoise")
        own = self.key
        key = Key(own.sender, own.round, own.field, own.cell, part, own.step)
        noise = standard_noise(np.shape(exact), layout, self.seeds.numpy(*key.path))
        noise *= scale
        noise += exact
        tape = _TAPE.get()
        if tape is None:
            return noise
        return tape.write(Draw(key, np.array(exact, np.float64), float(scale), layout, noise))
