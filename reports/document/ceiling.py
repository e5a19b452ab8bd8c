"""The theoretical ceiling on reconstruction, printed beside the epsilons."""

from __future__ import annotations

import math

from fedassay.reports.words.allowed import KAPPA

EXPLAINED = (
    f"A reconstruction event that the best guess without the release gets right {KAPPA:.0%} of the time succeeds "
    "against one record no more often than this, for the stated adjacency and whatever the attack "
    "(Hayes et al. 2023, Kaissis et al. 2023). It bounds that event's rate, not a mean SSIM."
)


def ceiling(mu: float | None) -> float | None:
    """Highest success rate of a reconstruction event of prior `KAPPA` under a mu-GDP release.

    Args:
        mu: Total Gaussian-DP parameter of the release; infinite where something leaves exactly, None
            where not everything that leaves is Gaussian and no closed form exists.
    """
    if mu is None:
        return None
    if math.isinf(mu):
        return 1.0
    # Imported late: SciPy is not needed to render a run without a Gaussian release.
    from fedassay.privacy.gaussian import reconstruction_ceiling

    return float(reconstruction_ceiling(KAPPA, mu))
