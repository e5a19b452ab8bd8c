"""Changes for the worse since an earlier run: releases are matched by method and settings.

Neither another epsilon nor another label makes a release a new one. Where the runs share no release, nothing is
compared, and no release counts as no worse.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

from fedassay.records.record import CellRecord, RunRecord
from fedassay.reports.words.claims import fault_clause, fault_of
from fedassay.reports.words.groups import Group, asked_words, groups
from fedassay.reports.words.harm_words import harm_clause
from fedassay.reports.words.harms import Leak, leaks
from fedassay.reports.words.metrics import utility
from fedassay.reports.words.numbers import beside, short, significant, with_kind
from fedassay.reports.words.sentences import who
from fedassay.reports.words.untested import happened
from fedassay.support.epsilon import Epsilon, exceeds, largest

_ROUNDING = 1 + 1e-6


@dataclass(frozen=True)
class Difference:
    """Difference of a release from its counterpart in the earlier run.

    Attributes:
        worse: Whether it became worse; otherwise the difference is only for information.
        words: The change, in one sentence.
        about: The subject: a release; the version that made the runs; their data; or nothing, since they share no
            release and were not compared.
    """

    worse: bool
    words: str
    about: Literal["release", "version", "data", "nothing"] = "release"

    @property
    def line(self) -> str:
        """The difference as a printed line."""
        mark = "✖ worse" if self.worse else "? undecided" if self.about == "nothing" else "– changed"
        return f"{mark}: {self.words}"


def differences(record: RunRecord, old: RunRecord, method: str | None = None) -> list[Difference]:
    """Differences from an earlier run: the version, the data, and then the changes for the worse.

    Args:
        record: The run.
        old: The earlier one.
        method: Only the entries of this label or registered name; None: all.
    """
    found: list[Difference] = []
    ours, theirs = record.environment.get("fedassay"), old.environment.get("fedassay")
    pairs = [
        (new, before)
        for new, before in matched(record, old)
        if method is None or any(method in (each.label, each.method) for each in (new, before) if each)
    ]
    for new, before in pairs:
        if new is None or before is None:
            there = before if new is None else new
            assert there is not None
            words = f"{who(there)} is {'not part of this run' if new is None else 'new'}"
            found.append(Difference(new is not None and bool(leaks(new.cells)), f"{words}."))
        else:
            found += _differences(new, before)
    found.sort(key=lambda each: not each.worse)
    if not any(new and before for new, before in pairs):
        words = "No release of this run is in the earlier one, so nothing was compared."
        found.insert(0, Difference(False, words, "nothing"))
    if _on_other_data(record, old):
        found.insert(0, Difference(False, "The earlier run was made on other data.", "data"))
    if ours != theirs:
        found.insert(0, Difference(False, f"fedassay {theirs} made the earlier run, {ours} this one.", "version"))
    return found


def difference_lines(found: Sequence[Difference], most: int | None, rest: str) -> Iterator[str]:
    """Differences as they are printed.

    Args:
        found: As `differences` gives them.
        most: Number of lines at most; None: all.
        rest: Place of the others.
    """
    yield from (each.line for each in found[:most])
    if most is not None and len(found) > most:
        yield f"  {len(found) - most} more differences, {rest}"
    if not found:
        yield "Nothing became worse than in the earlier run."


def _on_other_data(record: RunRecord, old: RunRecord) -> bool:
    """Whether some seed of both runs stands on unlike data; no where a record does not say or keeps it secret."""
    if record.redacted or old.redacted:
        return False
    ours, theirs = (
        {cell.seed: cell.basis.data for cell in run.cells if cell.basis is not None and cell.basis.data}
        for run in (record, old)
    )
    return any(ours[seed] != theirs[seed] for seed in ours.keys() & theirs.keys())


def matched(record: RunRecord, old: RunRecord) -> list[tuple[Group | None, Group | None]]:
    """Releases of both runs: those of one label, method and settings; of several epsilons equal ones first."""
    ours, theirs = _by_settings(record), _by_settings(old)
    # An entry with changed settings is still the entry of its label, and a renamed one is no new one.
    for alike in (itemgetter(0, 1), itemgetter(1, 2), itemgetter(1)):
        for key in [key for key in ours if key not in theirs]:
            like = [other for other in theirs if alike(other) == alike(key) and other not in ours]
            if like and (len(like) == 1 or alike(key) != key[1]):
                theirs[key] = theirs.pop(like[0])
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
    """Differences in one release."""
    name = who(new)
    if new.label != old.label:
        yield Difference(False, f"{new.label} was called {old.label} in the earlier run.")
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
    yield from _no_longer_tested(name, new, old)
    yield from _accuracy(name, new.cells[0], old.cells[0])


def _no_longer_tested(name: str, new: Group, old: Group) -> Iterator[Difference]:
    """Verdicts of the earlier run that this run lacks, since the question was no longer asked."""
    if _tested(old) and not _tested(new) and not _fault(new.cells):
        yield Difference(True, f"{name}: its claim was tested before, and now it was not.")
    elif _observed(old) and not _observed(new):
        yield Difference(True, f"{name}: an attack on its claim was measured before, and now none was.")
    lost = _conclusive(old) - _conclusive(new)
    became = {row.attack: happened(row) for cell in new.cells for row in cell.coverage if row.attack in lost}
    for attack in sorted(lost):
        became_of_it = became.get(attack, "does not apply any more")
        words = f"{name}: {attack} was conclusive before, and now it {became_of_it}."
        yield Difference(True, words)


def _tested(group: Group) -> bool:
    """Whether its claim was asked, in every seed, and not refuted."""
    return all(cell.privacy.verdict == "sound" for cell in group.cells)


def _observed(group: Group) -> bool:
    return any(cell.observed is not None for cell in group.cells)


def _accuracy(name: str, new: CellRecord, old: CellRecord) -> Iterator[Difference]:
    """Difference between accuracies with disjoint intervals."""
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
    """Whether a guarantee does not imply the earlier one: it is larger, or of a kind that implies nothing."""
    if (new.adjacency, new.unit) != (old.adjacency, old.unit) or new.delta > old.delta:
        return True
    return exceeds(new.at_delta(old.delta), old)


def _fault(cells: tuple[CellRecord, ...]) -> str:
    return next((fault_clause(fault) for cell in cells if (fault := fault_of(cell)) is not None), "")


def _worst(group: Group) -> Leak | None:
    return next(iter(leaks(group.cells)), None)


def _conclusive(group: Group) -> set[str]:
    return {row.attack for cell in group.cells for row in cell.coverage if row.status == "conclusive"}
