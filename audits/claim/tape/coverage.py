"""Draws of a tape that protect each field of each message; the rule is in `fedassay.privacy.tape`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from fedassay.exchange.release import Release
from fedassay.exchange.transcript import Message, Transcript
from fedassay.privacy.tape import Draw, ExternalMechanism, Key, Tape, TapeEntry

_SAME = 1e-9


@dataclass(frozen=True)
class Covered:
    """One cell of one release in one message, and the draws that protect it.

    Attributes:
        message: The message.
        fields: Names of the fields of the release.
        release: Their declaration.
        cell: One of its cells.
        place: The number of that cell.
        draws: By the mapping rule.
    """

    message: Message
    fields: tuple[str, ...]
    release: Release
    cell: str
    place: int
    draws: tuple[TapeEntry, ...]

    @property
    def where(self) -> str:
        """In words."""
        cell = "" if self.cell == "all" else f", {self.cell}"
        return f"{', '.join(self.fields)} of {self.message.sender} in round {self.message.round}{cell}"

    @property
    def noise_mechanism(self) -> str:
        """The line of a method that would draw this noise where the tape sees it."""
        name = self.release.group or self.fields[0]
        cell = "" if self.cell == "all" else f'.at(cell="{self.cell}")'
        return f'task.mechanism(client.name, {self.message.round}, "{name}"){cell}.add(part, exact, scale)'

    @property
    def deviation(self) -> float:
        """Declared standard deviation of the noise."""
        return 0.0 if self.release.noise_scale is None else self.release.noise_scale[self.place]

    @property
    def moved(self) -> float:
        """Declared sensitivity."""
        return 0.0 if self.release.sensitivity is None else self.release.sensitivity[self.place]


def coverage(transcript: Transcript, tape: Tape) -> list[Covered]:
    """Every noised cell of every message, with its draws; a joint release counts once."""
    draws: dict[tuple[str, int, str], list[TapeEntry]] = defaultdict(list)
    for key, entry in tape.draws.items():
        draws[key.sender, key.round, key.field].append(entry)
    return [covered for message in transcript.messages for covered in _of_message(message, draws)]


def _of_message(message: Message, draws: dict[tuple[str, int, str], list[TapeEntry]]) -> Iterator[Covered]:
    joint: dict[tuple[str, Release], list[str]] = defaultdict(list)
    for name, item in message.fields.items():
        if item.release.mechanism in ("gaussian", "pure"):
            own = item.release.model_copy(update={"note": ""})
            joint[own.group or name, own].append(name)
    for (group, release), names in joint.items():
        own_draws = draws.get((message.sender, message.round, group), [])
        for place, cell in enumerate(release.cells):
            found = tuple(entry for entry in own_draws if _cell_of(entry.key, release) == cell)
            yield Covered(message, tuple(names), release, cell, place, found)


def _cell_of(key: Key, release: Release) -> str:
    return key.cell if key.cell in release.cells else "all"


def misdeclared(covered: Covered) -> str:
    """In words, how the draws contradict the release of the message; empty: not at all."""
    release = covered.release
    if release.mechanism == "pure":
        assert release.pure_epsilon is not None
        asked = release.pure_epsilon[covered.place]
        total = sum(entry.pure_epsilon for entry in covered.draws if isinstance(entry, ExternalMechanism))
        wrong = total > asked * (1 + _SAME)
        return f"{covered.where}: mechanisms of epsilon {total:.4g} where {asked:.4g} is declared" if wrong else ""
    counts_exact = any(
        item.kind == "class_counts" and item.release.mechanism == "exact"
        for item in covered.message.fields.values()
    )
    for entry in covered.draws:
        if not isinstance(entry, Draw):
            return f"{covered.where}: another library's mechanism where Gaussian noise is declared"
        whole = entry.scale * math.sqrt(release.shares)
        if entry.scale == 0 and entry.key.part == "counts" and counts_exact:
            continue
        if not math.isclose(whole, covered.deviation, rel_tol=_SAME):
            part = f"{entry.key.part} of " if entry.key.part else ""
            return (
                f"{part}{covered.where}: noise of scale {whole:.6g} was asked for where the message declares "
                f"{covered.deviation:.6g}"
            )
    return ""


def field_of(key: Key, cells: list[Covered]) -> str:
    """The field of a message that a draw protects, for a person to find it: names of all where it is several."""
    for covered in cells:
        if any(entry.key == key for entry in covered.draws):
            return named(key, covered.fields)
    return key.field


def named(key: Key, fields: tuple[str, ...]) -> str:
    """The fields of a joint release that the name of the draw's part speaks of; all where it names none."""
    stem = key.part.rstrip("s")
    like = [name for name in fields if stem and stem in name]
    return ", ".join(like or fields)
