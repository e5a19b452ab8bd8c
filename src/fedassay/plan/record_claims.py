"""Claims for records in a plan with several records of one person: their meaning for that person.

Before a run the method's noise mechanism is unknown, so two figures are given. Gaussian noise that just meets the
target has a parameter mu, and m identical records have m mu: that is attained, so a claim for such a person cannot
be smaller. The claimed pair alone gives a guarantee whatever the mechanism is (`fedassay.privacy.conversions`).
After a run the ledger has the releases, and the cell's warnings give the exact total.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fedassay.data.outline import Outline
from fedassay.exchange.release import PrivacyTarget
from fedassay.privacy.conversions import for_person
from fedassay.privacy.gaussian import epsilon_of, mu_of
from fedassay.privacy.units import most_records
from fedassay.support.epsilon import Epsilon, ascending, of_kind

_NAMED = 3
"""Targets that are written out; the others follow the same rule."""


def most_of_a_person(found: Outline | None) -> int:
    """The most records that one person has, from the outline of the data; 0 where that does not tell."""
    groups = None if found is None else found.data.train.groups
    return 0 if groups is None else most_records([groups])


def record_claims(targets: Iterable[tuple[str, PrivacyTarget]], most: int) -> str:
    """Convert claims for one record to a person with `most` of them, in one line.

    Args:
        targets: Methods by label, with their privacy targets.
        most: Records of the person with the most.

    Returns:
        Empty where no person is known to have several, or no claim is made for records.
    """
    asked = [(name, each) for name, each in targets if each.private and each.unit == "record" and each.delta > 0]
    if most < 2 or not asked:
        return ""
    kinds = of_kind(dict.fromkeys(each.guarantee for _, each in asked))
    claims = [each for alike in kinds.values() for each in ascending(alike)]
    # The relation does not move the figure, and two methods may be asked for the same under another one.
    words = list(dict.fromkeys(_for_person(each, most) for each in claims))
    more = f"; {len(words) - _NAMED} more likewise" if len(words) > _NAMED else ""
    methods = ", ".join(dict.fromkeys(name for name, _ in asked))
    return (
        f"a person has up to {most:,} records, and the guarantee of {methods} is for one record. "
        f"For that person {'; '.join(words[:_NAMED])}{more}. privacy.unit: person protects persons"
    )


def _for_person(claim: Epsilon, most: int) -> str:
    generic, delta = for_person(claim, most), claim.delta
    attained = epsilon_of(most * mu_of(claim.bare, delta), delta)
    alone = f"({generic.bare:.4g}, {generic.delta:.3g})" if generic.finite else "nothing"
    figure = "no finite ε" if math.isinf(attained) else f"ε = {attained:.4g}"
    return f"ε = {claim.bare:g} (δ = {delta:g}) is {figure} under Gaussian noise, and {alone} by the claim alone"
