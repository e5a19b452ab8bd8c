"""What became worse since an earlier run: releases are matched by method and settings, whatever their epsilon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fedassay.records.record import CellRecord, RunRecord
from fedassay.reports.words.claims import fault_clause, fault_of
from fedassay.reports.words.groups import Group, asked_words, groups
from fedassay.reports.words.harms import Leak, leaks
from fedassay.reports.words.metrics import utility
from fedassay.reports.words.numbers import beside, short, significant, with_kind
from fedassay.reports.words.sentences import harm_clause, who
from fedassay.support.epsilon import Epsilon, exceeds, largest

_ROUNDING = 1 + 1e-6


@dataclass(frozen=True)
class Difference:
    """How a release differs from its like in the earlier run.

    Attributes:
        worse: Whether it became worse; else it is only to be known.
        words: What changed, in one sentence.
        about: Whether it is about a release, or about the version that made the runs.
    """

    worse: bool
    words: str
    about: Literal["release", "version"] = "release"

    @property
    def line(self) -> str:
        """As it is printed."""
        return f"{'✖ worse' if self.worse else '– changed'}: {self.words}"


def differences(record: RunRecord, old: RunRecord) -> list[Difference]:
    """What changed since an earlier run, what became worse first.

    Args:
        record: The run.
        old: The earlier one.
    """
    found: list[Difference] = []
    ours, theirs = record.environment.get("fedassay"), old.environment.get("fedassay")
    pairs = matched(record, old)
    for new, before in pairs:
        if new is None or before is None:
            there = before if new is None else new
            assert there is not None
            words = f"{who(there)} is {'not part of this run' if new is None else 'new'}"
            found.append(Difference(new is not None and bool(leaks(new.cells)), f"{words}."))
        else:
            found += _differences(new, before)
    found.sort(key=lambda each: not each.worse)
    if ours != theirs:
        found.insert(0, Difference(False, f"fedassay {theirs} made the earlier run, {ours} this one.", "version"))
    return found


def matched(record: RunRecord, old: RunRecord) -> list[tuple[Group | None, Group | None]]:
    """Releases of both runs: those of one label, method and settings; of several epsilons equal ones first."""
    ours, theirs = _by_settings(record), _by_settings(old)
    # An entry whose settings changed is still the entry of its label.
    for key in [key for key in ours if key not in theirs]:
        like = next((other for other in theirs if other[:2] == key[:2] and other not in ours), None)
        if like is not None:
            theirs[key] = theirs.pop(like)
    found: list[tuple[Group | None, Group | None]] = []
    for key in dict.fromkeys([*ours, *theirs]):
        new, before = list(ours.get(key, ())), list(theirs.get(key, ()))
        for group in list(new):
            same = next((other for other in before if other.asked == group.asked), None)
            if same is not None:
                found.append((group, same))
                new.remove(group)
                before.remove(same)
        # Noise that is not there any more is a release of its own, and not one at another epsilon.
        for part in (False, True):
            left = [group for group in new if group.asked.finite is part]
            right = [group for group in before if group.asked.finite is part]
            found += zip(left, right, strict=False)
            found += [(group, None) for group in left[len(right) :]]
            found += [(None, group) for group in right[len(left) :]]
    return found


def _by_settings(record: RunRecord) -> dict[tuple[str, str, str], list[Group]]:
    found: dict[tuple[str, str, str], list[Group]] = {}
    for group in groups(record):
        settings = json.dumps(group.cells[0].params, sort_keys=True, default=str)
        found.setdefault((group.label, group.method, settings), []).append(group)
    return found


def _differences(new: Group, old: Group) -> Iterator[Difference]:
    """What changed in one release."""
    name = who(new)
    ours, theirs = (largest(cell.accounted for cell in group.cells) for group in (new, old))
    if new.asked != old.asked:
        change = f"ε went from {asked_words(old.asked)} to {asked_words(new.asked)}"
        if old.asked.delta != new.asked.delta:
            change += f", δ from {short(old.asked.delta)} to {short(new.asked.delta)}"
        yield Difference(_weaker(new.asked, old.asked), f"{new.name}: {change}.")
    elif ours is not None and theirs is not None and exceeds(ours, theirs, _ROUNDING):
        words = f"what is sent adds up to {with_kind(ours, significant)}, and did to {beside(theirs, ours)}"
        yield Difference(True, f"{name}: {words}.")
    fault, earlier = _fault(new.cells), _fault(old.cells)
    if fault and not earlier:
        yield Difference(True, f"{name} {fault}.")
    elif earlier and not fault:
        yield Difference(False, f"{name}: its claim stands again.")
    leak, before = _worst(new), _worst(old)
    if leak is not None and (before is None or leak.order[:2] < before.order[:2]):
        yield Difference(True, f"{name}: {harm_clause(leak)}.")
    elif before is not None and leak is None:
        yield Difference(False, f"{name}: no leak was found, and one was before.")
    lost = _conclusive(old) - _conclusive(new)
    if lost:
        names = ", ".join(sorted(lost)).replace("_", " ")
        yield Difference(True, f"{name}: {names} said something before, not now.")
    yield from _accuracy(name, new.cells[0], old.cells[0])


def _accuracy(name: str, new: CellRecord, old: CellRecord) -> Iterator[Difference]:
    """A difference whose intervals do not touch."""
    ours, theirs = utility(new, "accuracy"), utility(old, "accuracy")
    ends = (ours.value, theirs.value, ours.high, theirs.low)
    if any(end is None for end in ends) or ours.low is None or theirs.high is None:
        return
    words = f"{name}: accuracy is {significant(ours.value)}, and was {significant(theirs.value)}."
    if float(ours.high or 0.0) < float(theirs.low or 0.0):
        yield Difference(True, words)
    elif ours.low > theirs.high:
        yield Difference(False, words)


def _weaker(new: Epsilon, old: Epsilon) -> bool:
    """Whether a guarantee does not imply the earlier one: it is larger, or of a kind of which nothing follows."""
    if (new.adjacency, new.unit) != (old.adjacency, old.unit) or new.delta > old.delta:
        return True
    return exceeds(new.at_delta(old.delta), old)


def _fault(cells: tuple[CellRecord, ...]) -> str:
    return next((fault_clause(fault) for cell in cells if (fault := fault_of(cell)) is not None), "")


def _worst(group: Group) -> Leak | None:
    return next(iter(leaks(group.cells)), None)


def _conclusive(group: Group) -> set[str]:
    return {row.attack for cell in group.cells for row in cell.coverage if row.status == "conclusive"}
