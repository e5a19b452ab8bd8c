"""From how well members are told, in a release and in its controls, to a verdict and its reason."""

from __future__ import annotations

from fedassay.audits.membership_roc import Allowed, Told
from fedassay.record import Verdict


def judge(ours: Told, positive: Told | None, negative: Told, allowed: Allowed | None) -> tuple[Verdict, str]:
    """A verdict and its reason.

    Args:
        ours: The audited release.
        positive: A release that leaks; None where the test does not apply to it.
        negative: One that cannot.
        allowed: What a claim allows; None: nothing is claimed, and any better than chance is a leak.
    """
    shown = f"AUC {ours.value:.3f} [{ours.area.low:.3f}, {ours.area.high:.3f}]"
    if negative.beats:
        return "inconclusive", (
            f"the negative control was flagged (AUC {negative.value:.3f}): members and strangers differ "
            f"without any release; {shown}"
        )
    if positive is None or not positive.beats:
        seen = "it could not be attacked" if positive is None else f"AUC {positive.value:.3f}"
        return "inconclusive", f"the positive control was not caught ({seen}): the attack is too weak; {shown}"
    power = f"the positive control was caught at AUC {positive.value:.3f}"
    if allowed is None:
        if ours.beats:
            return "leak", f"members are told from strangers: {shown}, p = {ours.p:.2g}"
        return "no_leak_found", f"members are not told from strangers: {shown}; {power}"
    corrected = ours.corrected.epsilon or 0.0
    if corrected > allowed.epsilon:
        return "leak", (
            f"members are told better than the claim allows: {shown}, epsilon at least {corrected:.3g} at the "
            f"corrected level, and {allowed.words} is claimed"
        )
    if not ours.beats:
        return "no_leak_found", f"members are not told from strangers: {shown}; {power}"
    if ours.reach <= allowed.epsilon:
        return "inconclusive", (
            f"members are told from strangers ({shown}), but so many trials cannot show more than epsilon "
            f"{ours.reach:.3g}, below what is claimed: {allowed.words}"
        )
    return "no_leak_found", (
        f"members are told from strangers, but no better than {allowed.words} allows: {shown}, epsilon at least "
        f"{corrected:.3g}; {power}"
    )
