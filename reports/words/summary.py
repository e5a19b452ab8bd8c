"""The verdict strip: one line in plain words per method entry and epsilon, worst finding first."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedassay.contracts.registry import judges_the_claim
from fedassay.records.coverage import not_fully_tested
from fedassay.records.record import CellRecord, Finding, Limit, Metric, PositiveControl, RunRecord, Verdict
from fedassay.reports.words.groups import Group, groups
from fedassay.reports.words.numbers import short, significant
from fedassay.reports.words.verdicts import LOOKS, worst
from fedassay.support.registry import entries

SOURCES = {
    "raw": "raw features",
    "mixture_samples": "features sampled from the mixtures",
    "class_means": "class means",
    "class_sums": "class sums",
}
"""Plain words for the sources that the epsilons names; others are printed as they are."""


SELECTIONS = {
    "all": "all targets",
    "attacker": "the attacker's own pick",
    "oracle": "the best matches",
    "oracle_all": "every private image",
    "controlled_sizes": "clients of sizes that were controlled",
    "larger_clients": "clients larger than any that was controlled",
}
"""Plain words for the reconstruction audit's selections."""

_LIMITS = {
    "share": "{number} % of the records",
    "records": "{number} records",
    "shift": "all records closer by {number} {unit}",
    "messages": "{number} messages",
    "epsilon": "ε = {number}",
}
"""Limits of detection in words, by what they are measured in; the first of them says most of what was sent."""

_ONE = {"records": "a single record", "messages": "a single message"}

_AT_A_GLANCE = 15
"""Lines that are taken in at once, whatever their order."""


_SOURCE = re.compile(r"\([a-z]+(_[a-z]+)*\)")
"""A source in brackets."""

_OUTER = re.compile(r"; (?![^(]*\))")
"""What parts the clauses of a reason: a semicolon outside of brackets."""


@dataclass(frozen=True)
class Line:
    """One line of the strip.

    Attributes:
        group: Whom it speaks of.
        verdict: The heaviest verdict in the group.
        said: What was found, in plain words.
        untested: Which attacks that apply were not conclusive, as a clause; empty where all were.
        further: How many more findings of weight stand below in the report.
        seeds: On how many seeds the verdict was reached, as words; empty for one seed.
        leaks: The largest leaks alone, without what else is to be said; empty where there is none.
    """

    group: Group
    verdict: Verdict
    said: str
    untested: str
    further: int
    seeds: str
    leaks: str = ""

    @property
    def text(self) -> str:
        """What was found, and what was not tested."""
        return "; ".join(part for part in (self.said, self.untested) if part)


def source_words(source: str | None) -> str:
    """What was attacked, in plain words."""
    words = SOURCES.get(source or "", (source or "what is sent").replace("_", " "))
    # What an attack recovered is named after the attack.
    return f"features recovered by {words}" if source in entries("attack") else words


def selection_words(selection: str | None) -> str:
    """Which targets were scored, in plain words; empty where nothing was selected."""
    return SELECTIONS.get(selection or "", (selection or "").replace("_", " "))


def about(finding: Finding) -> str:
    """What a finding speaks of: its source and selection, in plain words; empty where it names neither."""
    source = "" if finding.source is None else source_words(finding.source)
    return ", ".join(part for part in (source, selection_words(finding.selection)) if part)


def strip(record: RunRecord) -> tuple[Line, ...]:
    """The lines of the verdict strip, in the record's order; the worst first where there are many to read."""
    lines = tuple(_line(group) for group in groups(record))
    if len(lines) <= _AT_A_GLANCE:
        return lines
    return tuple(sorted(lines, key=lambda line: -LOOKS[line.verdict].rank))


def lead(record: RunRecord) -> str:
    """One sentence above the strip: how many releases came out how."""
    counts: dict[Verdict, int] = {}
    for line in strip(record):
        counts[line.verdict] = counts.get(line.verdict, 0) + 1
    words: dict[Verdict, tuple[str, str]] = {
        "unsound": ("makes a claim that is disproved", "make claims that are disproved"),
        "leak": ("leaks", "leak"),
        "unsupported": ("claims more than its ledger supports", "claim more than their ledgers support"),
        "inconclusive": ("could not be judged", "could not be judged"),
        "no_leak_found": ("shows no leak", "show no leak"),
        "sound": ("holds its claim", "hold their claims"),
        "not_run": ("was not assessed", "were not assessed"),
    }
    total = sum(counts.values())
    if not total:
        return "No release was audited."
    parts = [f"{counts[verdict]} {words[verdict][counts[verdict] > 1]}" for verdict in LOOKS if verdict in counts]
    return f"Of {total} release{'s' if total != 1 else ''} under audit, {listed(parts, limit=7)}."


def attacks_on(cell: CellRecord) -> tuple[Finding, ...]:
    """A cell's findings without those on its claim, whose result is the cell's own privacy verdict."""
    return tuple(finding for finding in cell.findings if not judges_the_claim(finding.audit))


def verdicts_of(cell: CellRecord) -> list[Verdict]:
    """Every verdict of a cell, the claim's first."""
    return [cell.privacy.verdict, *(finding.verdict for finding in attacks_on(cell))]


def _line(group: Group) -> Line:
    per_seed = [worst(verdicts_of(cell)) for cell in group.cells]
    verdict = worst(per_seed)
    clauses = _clauses(group)
    missing = not_fully_tested(group.cells)
    if missing and verdict == "no_leak_found":
        verdict = "inconclusive"  # silence of some attacks is no answer for those that apply and said nothing
    said = "; ".join(clause for _, clause in clauses[:2])
    further = sum(rank >= LOOKS["unsupported"].rank for rank, _ in clauses[2:])
    seeds = ""
    if 0 < per_seed.count(verdict) < len(per_seed):
        seeds = f"{per_seed.count(verdict)} of {len(per_seed)} seeds"
    leaks = "; ".join(clause for rank, clause in clauses[:2] if rank == LOOKS["leak"].rank)
    return Line(group, verdict, said, missing, further, seeds, leaks)


def _clauses(group: Group) -> list[tuple[int, str]]:
    """What there is to say about a group, each with its weight, heaviest first."""
    found = [_claim(group)]
    findings = [finding for cell in group.cells for finding in attacks_on(cell)]
    leaks = {}
    for audit in dict.fromkeys(finding.audit for finding in findings):
        mine = [finding for finding in findings if finding.audit == audit]
        leaks[audit] = _leaks(mine)
        if not any(f.verdict == "leak" for f in mine):
            unsure = next((f for f in mine if f.verdict == "inconclusive"), None)
            if unsure is not None:
                found.append((LOOKS["inconclusive"].rank, f"{audit} inconclusive: {_meaning(unsure.reason)}"))
    # The largest leak of every audit, then the second: the first two must not be small ones of one audit.
    for place in range(max(map(len, leaks.values()), default=0)):
        found += [(LOOKS["leak"].rank, _leak(own[place])) for own in leaks.values() if place < len(own)]
    attacked = any(cell.privacy.observed is not None for cell in group.cells)
    if all(f.verdict in {"no_leak_found", "sound", "not_run"} for f in findings) and (findings or not attacked):
        found.append(_nothing_found(findings))
    # A stable sort keeps the claim ahead of findings of its own weight.
    return sorted((clause for clause in found if clause[1]), key=lambda clause: -clause[0])


def _leaks(findings: Sequence[Finding]) -> list[Finding]:
    """The largest leak of every source, of findings of one audit, the largest first."""
    leaks = [finding for finding in findings if finding.verdict == "leak"]
    sources = dict.fromkeys(finding.source for finding in leaks)
    largest = [max((leak for leak in leaks if leak.source == source), key=_effect) for source in sources]
    return sorted(largest, key=_effect, reverse=True)


def _claim(group: Group) -> tuple[int, str]:
    cell = max(group.cells, key=lambda item: LOOKS[item.privacy.verdict].rank)
    privacy = cell.privacy
    if privacy.claimed is None or math.isinf(privacy.claimed):
        return 0, "no privacy is claimed"
    rank, claims = LOOKS[privacy.verdict].rank, f"claims ε = {short(privacy.claimed)}"
    # A field without noise disproves any claim; the bound from finitely many releases may lie below it still.
    if privacy.verdict == "unsound" and privacy.observed is not None and privacy.observed > privacy.claimed:
        return rank, f"{claims}, but an attack shows at least {significant(privacy.observed)} (95 % bound)"
    if privacy.verdict in {"unsound", "unsupported"} and privacy.accounted is not None:
        status = "failed" if privacy.verdict == "unsound" else "not_asked"
        answer = next((each for each in cell.tape if each.status == status), None)
        if privacy.accounted <= privacy.claimed * (1 + 1e-6) and answer is not None:
            return rank, f"{claims}, but {answer.words.split('; ')[0]}"
        if not math.isinf(privacy.accounted):
            return rank, f"{claims}, but what leaves adds up to {significant(privacy.accounted)}"
        why = f": {listed(privacy.exact_fields)} exactly" if privacy.exact_fields else ""
        return rank, f"{claims}, but what leaves is unbounded{why}"
    if privacy.verdict == "sound":
        numbers = []
        if privacy.accounted is not None:
            numbers.append(f"accounted {significant(privacy.accounted)}")
        if privacy.observed is not None:
            numbers.append(f"an attack shows at least {significant(privacy.observed)}")
        return rank, f"the claim of ε = {short(privacy.claimed)} holds" + (
            f" ({', '.join(numbers)})" if numbers else ""
        )
    if privacy.verdict == "not_run" and privacy.accounted is not None:
        # No audit judged the claim, but the ledger always adds up.
        adds_up = f"what leaves adds up to {significant(privacy.accounted)}, and no audit tested it"
        rank = LOOKS["unsupported"].rank if privacy.accounted > privacy.claimed * (1 + 1e-6) else 0
        return rank, f"{claims}; {adds_up}"
    return rank, f"{claims}: {LOOKS[privacy.verdict].word.lower()}, {first_sentence(privacy.reason)}"


def _leak(finding: Finding) -> str:
    ssim, baseline = finding.metrics.get("ssim"), finding.baseline.get("ssim")
    if ssim is not None and ssim.value is not None:
        text = f"{source_words(finding.source)} give images back at SSIM {significant(ssim.value)}"
        if baseline is not None and baseline.value is not None:
            text += f" against {significant(baseline.value)} for the baseline"
        return text + _on_what(finding, ssim)
    # Sources are named in brackets; how far the recovered are from the truth stands with the finding.
    return _SOURCE.sub(lambda found: found[0].replace("_", " "), _OUTER.split(first_sentence(finding.reason))[0])


def _on_what(finding: Finding, metric: Metric) -> str:
    """Which targets a figure speaks of, and how many."""
    parts = [
        part
        for part in (selection_words(finding.selection), "" if metric.n is None else f"n = {metric.n:,}")
        if part
    ]
    return f" ({', '.join(parts)})" if parts else ""


def _effect(finding: Finding) -> float:
    for name in ("ssim_gain", "auc", "heldout_gap", "fraction_recovered"):
        metric = finding.metrics.get(name)
        if metric is not None and metric.value is not None:
            return metric.value
    return 0.0


def _nothing_found(findings: Sequence[Finding]) -> tuple[int, str]:
    sought = [finding for finding in findings if finding.verdict == "no_leak_found"]
    if not sought:
        measured = any("noise_share" in finding.metrics for finding in findings)
        return 0, "no attack was run" + ("; the noise of its training was measured" if measured else "")
    caught = []
    for audit in dict.fromkeys(finding.audit for finding in sought):
        controls = [f.controls.positive for f in sought if f.audit == audit and f.controls.positive is not None]
        passed = [control for control in controls if control.caught]
        if passed:
            caught.append(f"{audit} caught its positive control{_power(passed)}")
    power = listed(caught) if caught else "no positive control is on record"
    limits = [finding.limit for finding in sought if finding.limit is not None]
    # What a line is cut to must hold it.
    limit = _smallest(limits) if limits else None
    found = f", while {limit[0]} would have been (power {limit[1]:g}; {power})" if limit else f" ({power})"
    return LOOKS["no_leak_found"].rank, f"no leak found{found}"


def _smallest(limits: Sequence[Limit]) -> tuple[str, float]:
    """The smallest leak that all of some findings would have found, in what says most, and the power of that."""
    kind = next((kind for kind in _LIMITS if any(limit.metric == kind for limit in limits)), limits[0].metric)
    limit = max((limit for limit in limits if limit.metric == kind), key=lambda limit: limit.value)
    number = short(100 * limit.value if kind == "share" else limit.value)
    words = _LIMITS.get(kind, f"{kind.replace('_', ' ')} {{number}}").format(
        number=number, unit=limit.shift_metric
    )
    if kind in _ONE and limit.value == 1:
        words = _ONE[kind]
    return words, limit.power


def _power(controls: Sequence[PositiveControl]) -> str:
    """The weakest of some positive controls that were caught."""
    measured = [control for control in controls if control.value is not None]
    if not measured:
        return ""
    weakest = min(measured, key=lambda control: control.value if control.value is not None else 0.0)
    detail = f" {weakest.detail}" if 0 < len(weakest.detail) <= 40 else ""
    return f" at {significant(weakest.value)}{detail}"


def listed(words: Iterable[str], limit: int = 3) -> str:
    """Words as an English list, cut after `limit`.

    Example:
        >>> listed(["counts"]), listed(["a", "b"]), listed("abcde")
        ('counts', 'a and b', 'a, b, c and 2 more')
    """
    items = list(words)
    if len(items) > limit:
        items = [*items[:limit], f"{len(items) - limit} more"]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def _meaning(reason: str) -> str:
    """The first sentence of a reason without the numbers that it gives in brackets, nested ones too."""
    words, inner = first_sentence(reason), re.compile(r"\s*\([^()]*\)")
    while (shorter := inner.sub("", words)) != words:
        words = shorter
    return words


def first_clause(reason: str) -> str:
    """The first clause of a reason, without what it gives in brackets.

    Example:
        >>> first_clause("the view holds no vectors (width 256); ask for more. Or not.")
        'the view holds no vectors'
    """
    return _meaning(reason).partition("; ")[0]


def first_sentence(reason: str) -> str:
    """The first sentence of a reason, as a clause."""
    sentence = reason.strip().split(". ")[0].rstrip(".")
    return sentence or "no reason is on record"
