"""Audits foreseen to be inconclusive from a plan's size alone: too few releases, whatever is found.

Too few releases decide nothing about a claim, or cannot even be distinguished from chance.

An audit declares it by `AuditFacts.foresee`. The conditions are necessary ones, for the largest run that a plan
allows: where nothing is foreseen, a run may be too small all the same, which its findings then say.
"""

from __future__ import annotations

from collections.abc import Iterable

from fedassay.contracts.sizes import Planned

_MOST = 1_000_000
"""Releases a side beyond which none are proposed."""


def joined_words(parts: Iterable[str]) -> str:
    """Several in one sentence; empty where there are none."""
    return "; ".join(part for part in parts if part)


def few_controls(planned: Planned, least: int) -> str:
    """Whether the control role is too small for an end-to-end control, without which silence says nothing."""
    held = planned.sizes.control
    if held >= least:
        return ""
    return f"its control takes {least} records or more, and data.split.control holds {held}"


def few_images(planned: Planned) -> str:
    """Whether so few images are asked about, by `max_vectors` of an attack, that no test can show a gain."""
    from fedassay.audits.stats.paired import smallest_pairs
    from fedassay.audits.stats.resampling import level_of

    needed = smallest_pairs(level_of(planned.tests))
    return joined_words(
        f"{name}.max_vectors is {given['max_vectors']}, and {needed} images are the fewest that can show a gain "
        f"in a run of {planned.tests} tests"
        for name, given in planned.attacks
        if given.get("max_vectors") is not None and given["max_vectors"] < needed
    )


def few_releases(planned: Planned, key: str, releases: int) -> str:
    """Whether so many releases of either neighbour refute no epsilon up to twice a claim."""
    from fedassay.audits.stats.refuted import refuted_epsilon
    from fedassay.audits.stats.resampling import level_of

    def refuted(claim: tuple[float, float], n: int) -> float | None:
        return refuted_epsilon(claim[0], delta=claim[1], n=n, confidence=1 - level_of(planned.tests)).smallest

    def decides(claim: tuple[float, float], n: int) -> bool:
        least = refuted(claim, n)
        return least is not None and least <= 2 * claim[0]

    found = []
    for claim in planned.claims:
        if 0 < releases < _MOST and not decides(claim, releases):
            enough = next((n for n in _doubled(releases) if decides(claim, n)), None)
            would = "no number of them would" if enough is None else f"{enough} would do"
            found.append(f"{key} is {releases}, which refutes nothing up to twice epsilon {claim[0]:g}; {would}")
    return joined_words(found)


def _doubled(start: int) -> Iterable[int]:
    while start < _MOST:
        start *= 2
        yield start
