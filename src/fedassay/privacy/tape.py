"""The tape of a run: inputs, draws and outputs of every noise mechanism.

Every noise that protects a message comes from one class (`NoiseMechanism`), which returns outputs only and records
its key, its input, the scale and the output. An audit then puts three questions to the real run of the real
method. Was the noise added? Is the sensitivity the declared one? Does everything else follow from the outputs
alone? The third question is asked by a replay: the method runs again on other records, and every mechanism repeats
its earlier output. A transcript that changes then depends on records in a way that no mechanism covers.

Theorem behind it. Let R (hidden coins included) be independent of data and noise. If for all neighbours D, D' and
all (R, outputs so far) the keys, number and parameters of the mechanisms depend only on public R and earlier
outputs, the sum over mechanisms of ||q_t(D) - q_t(D')||^2 / sigma_t^2 is at most mu^2, and the transcript is a
function of outputs and public R, then the run is mu-GDP.

Assignment of draws to fields. A message of sender s in round r has a field f under a `gaussian` release with some
cells. Its draws are those of `Key.sender` s, `Key.round` r, and `Key.field` the release's group, or f where it has
none. A draw belongs to the release's cell of the same name, and to `all` where the release names no such cell
(DP-EM draws class by class under one joint release). For every release, round and cell:

- there is at least one draw, and the scale of each, times the root of `Release.shares`, is the declared
  `noise_scale`;
- a scale of 0 is allowed of the part `counts` alone, and only where a field of kind `class_counts` in that message
  is declared exact;
- the sum over parts and steps of ||difference of `exact`||^2 for two neighbours, with off-diagonal entries counted
  as the layout says, is at most the declared sensitivity squared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import numpy as np

from fedassay.privacy.overflow import Overflow
from fedassay.privacy.symmetric import symmetric_noise
from fedassay.support.seeds import Seeds
from fedassay.support.types import Matrix

Layout = Literal["entries", "symmetric", "mirrored"]
"""`entries`: independent noise on every entry. `symmetric`: white noise in the isometric vech embedding of
symmetric matrices. `mirrored`: the same scale on every entry, the upper triangle mirrored."""


@dataclass(frozen=True, order=True)
class Key:
    """Names one draw of noise; never its place in an order.

    Attributes:
        sender: The client.
        round: Global round.
        field: Group of the release, or the name of the message's field where it has none.
        cell: The records it speaks of, as in `Release.cells`: `all` or `class/c`. Absent classes make draws too,
            unless the adjacency makes their absence public.
        part: Name of a statistic in a joint release.
        step: Iteration of a mechanism that releases several times.
    """

    sender: str
    round: int
    field: str
    cell: str = "all"
    part: str = ""
    step: int = 0

    def __str__(self) -> str:
        part = f"{self.part} of " if self.part else ""
        cell = "" if self.cell == "all" else f" ({self.cell})"
        step = f", step {self.step}" if self.step else ""
        return f"{part}{self.field}{cell} of {self.sender} in round {self.round}{step}"

    @property
    def path(self) -> tuple[str | int, ...]:
        """The names that the stream of this draw is derived from."""
        return (self.sender, self.round, self.field, self.cell, self.part, self.step)


@dataclass(frozen=True, eq=False)
class Draw:
    """One draw of Gaussian noise: `out` is `exact` plus `scale` times standard normals of the key's stream.

    Attributes:
        key: Name of the draw.
        exact: The input, float64.
        scale: Standard deviation; see `Layout` for the off-diagonal entries of matrices. 0: nothing was drawn.
        layout: See `Layout`.
        grid: Step of the grid that `exact` and the noise were each rounded to before their sum; 0: no rounding.
        out: The output.
    """

    key: Key
    exact: Matrix
    scale: float
    layout: Layout
    grid: float
    out: Matrix

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the input and the output."""
        return self.out.shape


@dataclass(frozen=True, eq=False)
class ExternalMechanism:
    """One output of an external mechanism, which cannot draw its noise again.

    It is recorded and replayed like a draw. Its noise is tested on known inputs. For that the mechanism itself is
    kept in memory: it treats every column by itself, with an equal share of epsilon.

    Attributes:
        key: Name of the output.
        library: The library of the mechanism.
        pure_epsilon: The claimed pure epsilon of `out` as a whole.
        bounds: Lower and upper bound on the input values.
        out: The output.
        mechanism: From values (n, D) to `out`, flattened to (D,); None where a resumed run no longer has it.
        values: The input, (n, D), in memory only; None where a resumed run no longer has it.
    """

    key: Key
    library: str
    pure_epsilon: float
    bounds: tuple[float, float]
    out: Matrix
    mechanism: Callable[[Matrix], Matrix] | None = None
    values: Matrix | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the output."""
        return self.out.shape


TapeEntry = Draw | ExternalMechanism


class Enough(BaseException):
    """Ends a replay that is asked for its draws and messages alone: no method may catch it."""


class TapeFault(NamedTuple):
    """A fault of a tape: the field or release concerned, and the problem in words."""

    field: str
    words: str


@dataclass(eq=False)
class Tape:
    """The draws of one run, by key.

    Attributes:
        draws: The noise drawn, and the outputs of external mechanisms.
        faults: The faults found: a key that was used twice, draws from more than one root, and in a replay draws
            that the first run did not make, or made otherwise, or alone.
        lacks: The parts of its first session that a resumed run no longer has, so that questions cannot be asked.
        answers: In a replay, the tape of the first run, which supplies the outputs.
        root: Root of the streams of the draws, held in memory only; None before the first draw.
        trainings: Private trainings by key; `fedassay.nets.dp_sgd.tape.trainings` reads them.
        arrays: Store of the inputs and outputs.
        messages: Number of messages that the run has handed to its spool.
        brief: In a replay: stop the run (`Enough`) when all draws, trainings and messages of the first have been
            made again. A method that hands no message to its spool runs to its end.
        sent: These messages, in their order, of a brief replay.
    """

    draws: dict[Key, TapeEntry] = field(default_factory=dict)
    faults: list[TapeFault] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)
    answers: Tape | None = None
    root: Seeds | None = None
    trainings: dict[Key, object] = field(default_factory=dict)
    arrays: Overflow = field(default_factory=Overflow)
    messages: int = 0
    brief: bool = False
    sent: list[object] = field(default_factory=list)

    def fault(self, key: Key, words: str) -> None:
        """Note a fault of the draw or the training of a key."""
        self.faults.append(TapeFault(key.field, f"{key}: {words}"))

    def write(self, entry: TapeEntry, root: Seeds | None = None) -> Matrix:
        """Keep an entry; returns the mechanism's output: its own, or the first run's in a replay."""
        if entry.key in self.draws:
            self.fault(entry.key, "noise was drawn twice under one key: name its cell, its part or its step")
        if root is not None:
            if self.root is not None and self.root != root:
                self.fault(entry.key, "its noise comes from another root than that of the draws before it")
            self.root = root
        out = self._answer(entry)
        # The outputs of the first run are kept by its own tape.
        kept = self.arrays.keep(out) if out is entry.out else out
        if isinstance(entry, Draw):
            exact = kept if entry.exact is out else self.arrays.keep(entry.exact)
            self.draws[entry.key] = Draw(entry.key, exact, entry.scale, entry.layout, entry.grid, kept)
        else:
            self.draws[entry.key] = replace(entry, out=kept)
        self.stop_after_last()
        return out

    def send(self, message: object) -> None:
        """Note a message that the run sends."""
        self.messages += 1
        if self.brief:
            self.sent.append(message)
        self.stop_after_last()

    def stop_after_last(self) -> None:
        """In a brief replay, stop the run when it has made all draws, trainings and messages of the first."""
        first = self.answers
        if not self.brief or first is None or not 0 < first.messages <= self.messages:
            return
        if first.draws.keys() <= self.draws.keys() and first.trainings.keys() <= self.trainings.keys():
            raise Enough

    def gives(self, key: Key, shape: tuple[int, ...]) -> bool:
        """Whether this is a replay that repeats the first run's output under a key, for any noise drawn."""
        first = None if self.answers is None else self.answers.draws.get(key)
        return first is not None and first.shape == shape

    def _answer(self, entry: TapeEntry) -> Matrix:
        """Return the output of a mechanism: in a replay the first run's output, where it has one."""
        if self.answers is None:
            return entry.out
        first = self.answers.draws.get(entry.key)
        if first is None:
            self.fault(entry.key, "noise is drawn that the first run did not draw")
            return entry.out
        if _asked(first) != _asked(entry):
            self.fault(entry.key, f"{_parameters(entry)} in the replay, {_parameters(first)} in the first run")
            if first.shape != entry.shape:
                return entry.out
        # An output without noise is covered by no mechanism: it is never replayed.
        return entry.out if isinstance(entry, Draw) and entry.scale == 0 else first.out

    def end(self) -> None:
        """In a replay, name the draws that only the first run has made."""
        if self.answers is not None:
            missing = self.answers.draws.keys() - self.draws.keys()
            for key in sorted(missing):
                self.fault(key, "noise that the first run drew is not drawn")
            untrained = self.answers.trainings.keys() - self.trainings.keys()
            for key in sorted(untrained):
                self.fault(key, "trained by the first run alone")


def _asked(entry: TapeEntry) -> tuple[object, ...]:
    """Return the parameters of an entry that must not depend on records."""
    if isinstance(entry, ExternalMechanism):
        return ("external", entry.library, repr(entry.pure_epsilon), repr(entry.bounds), entry.shape)
    return ("draw", repr(entry.scale), entry.layout, repr(entry.grid) if entry.grid else "", entry.shape)


def _parameters(entry: TapeEntry) -> str:
    """Return these parameters in words."""
    if isinstance(entry, ExternalMechanism):
        return (
            f"{entry.library} at epsilon {entry.pure_epsilon!r} within {entry.bounds} gives out numbers of shape "
            f"{entry.shape}"
        )
    rounded = f", rounded to multiples of {entry.grid!r}" if entry.grid else ""
    return f"noise of scale {entry.scale!r} ({entry.layout}{rounded}) on numbers of shape {entry.shape}"


_TAPE: ContextVar[Tape | None] = ContextVar("tape", default=None)


@contextmanager
def taped(answers: Tape | None = None, *, folder: Path | None = None, brief: bool = False) -> Iterator[Tape]:
    """Keep the draws of this block.

    Args:
        answers: The tape of a first run, which supplies the outputs.
        folder: Folder for arrays that do not fit into `overflow.LIMIT`; None: all stay in memory.
        brief: See `Tape.brief`.
    """
    tape = Tape(answers=answers, arrays=Overflow(folder), brief=brief)
    token = _TAPE.set(tape)
    try:
        yield tape
    except Enough:
        pass
    finally:
        _TAPE.reset(token)
    tape.end()


def running_tape() -> Tape | None:
    """The tape of the block that this is called in, or None where nothing is taped."""
    return _TAPE.get()


def _written(entry: TapeEntry, root: Seeds | None = None) -> Matrix:
    """Return a mechanism's output, read-only, with a line on the running tape if there is one."""
    entry.out.flags.writeable = False
    tape = _TAPE.get()
    return entry.out if tape is None else tape.write(entry, root)


class NoiseSource(Protocol):
    """A source of noise for mechanisms."""

    def add(
        self,
        part: str,
        exact: Matrix,
        scale: float,
        *,
        layout: Layout = "entries",
        grid: float = 0.0,
    ) -> Matrix:
        """`exact` plus noise, arguments as the attributes of `Draw`; `FreeNoise` may add axes in front."""
        ...


def scaled_noise(shape: tuple[int, ...], layout: Layout, scale: float, rng: np.random.Generator) -> Matrix:
    """Normals of a layout and a scale, float64.

    Raises:
        ValueError: The scale is negative or not finite.
    """
    if not (scale >= 0 and np.isfinite(scale)):
        raise ValueError(f"noise scale must be finite and at least 0, got {scale}")
    if layout == "entries":
        noise = np.asarray(rng.standard_normal(shape), dtype=np.float64)
        noise *= scale
        return noise
    return symmetric_noise(shape[-1], scale, rng, size=shape[:-2], isometric=layout == "symmetric")


def on_grid(values: Matrix, grid: float) -> Matrix:
    """Values rounded to multiples of `grid`, a power of two; 0: as they are."""
    return np.asarray(np.rint(values / grid) * grid if grid else values, dtype=np.float64)


@dataclass(frozen=True)
class FreeNoise:
    """Noise from one generator, on no tape: for experiments that release again and again.

    Attributes:
        rng: The generator.
        size: Leading axes of every output, one place for each independent release.
    """

    rng: np.random.Generator
    size: tuple[int, ...] = ()

    def add(
        self,
        part: str,
        exact: Matrix,
        scale: float,
        *,
        layout: Layout = "entries",
        grid: float = 0.0,
    ) -> Matrix:
        """See `NoiseSource`."""
        noise = on_grid(scaled_noise((*self.size, *np.shape(exact)), layout, scale, self.rng), grid)
        noise += on_grid(exact, grid)
        return noise


@dataclass(frozen=True)
class NoiseMechanism:
    """The noise mechanism of one release: noise from the stream of each key, and a line on the tape.

    Attributes:
        root: Root of the noise streams of a run, with a digest of data and parameters in it:
            `MethodInput.noise`.
        key: Key of the release; parts are added to it.
    """

    root: Seeds
    key: Key

    def at(self, *, cell: str | None = None, step: int | None = None) -> NoiseMechanism:
        """The noise mechanism of one cell or step of this release."""
        own = self.key
        named = own.cell if cell is None else cell, own.part, own.step if step is None else step
        return NoiseMechanism(self.root, Key(own.sender, own.round, own.field, *named))

    def add(
        self,
        part: str,
        exact: Matrix,
        scale: float,
        *,
        layout: Layout = "entries",
        grid: float = 0.0,
    ) -> Matrix:
        """See `NoiseSource`; the output is read-only."""
        own = self.key
        key = Key(own.sender, own.round, own.field, own.cell, part, own.step)
        value = on_grid(np.array(exact, dtype=np.float64), grid)
        out, tape = value, _TAPE.get()
        # The outputs of a replay were drawn by the first run: new noise would be drawn in vain.
        if scale and not (tape is not None and tape.gives(key, value.shape)):
            rng = self.root.numpy(*key.path)
            out = np.asarray(value + on_grid(scaled_noise(value.shape, layout, scale, rng), grid))
        return _written(Draw(key, value, float(scale), layout, grid, out), self.root)

    def seal(
        self,
        part: str,
        library: str,
        pure_epsilon: float,
        mechanism: Callable[[Matrix], Matrix],
        values: Matrix,
        bounds: tuple[float, float],
    ) -> Matrix:
        """Return the output of an external mechanism on every column of a table, read-only.

        Args:
            part: As for `add`.
            library: The library of the mechanism.
            pure_epsilon: The claimed pure epsilon of its output as a whole, in equal shares of the columns.
            mechanism: From values (n, D) to one number a column, (D,).
            values: The input, (n, D).
            bounds: Lower and upper bound on these values.
        """
        out = np.array(mechanism(values), dtype=np.float64)
        given = np.array(values, dtype=np.float64)
        return _written(
            ExternalMechanism(replace(self.key, part=part), library, pure_epsilon, bounds, out, mechanism, given)
        )
