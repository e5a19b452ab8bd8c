"""Clients that collude with the server: the records that they hold, and the protection that they undo.

They give the server their messages, and it subtracts these from every sum. Where noise is divided over the senders
of a sum, it subtracts their shares: of n shares of variance s^2 / n each, those of k colluders are known, and (n -
k) / n of the variance is left to hide the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedassay.exchange.message import COLLUDER, Message
from fedassay.exchange.release import Release


def colluders_of(messages: Sequence[Message]) -> tuple[str, ...]:
    """Names of the senders that collude with the server, each once."""
    return tuple(dict.fromkeys(each.sender for each in messages if each.sender.startswith(COLLUDER)))


def without_shares(release: Release, colluding: int) -> Release:
    """A release with noise divided over its senders, after so many of them gave away their shares."""
    left = release.shares - colluding
    if not colluding or release.noise_scale is None or release.shares == 1 or left < 1:
        return release
    scales = tuple(scale * math.sqrt(left / release.shares) for scale in release.noise_scale)
    return release.model_copy(update={"noise_scale": scales, "shares": left})


def with_senders(release: Release, senders: int) -> Release:
    """A release with noise divided over more clients than send it: a sum carries their shares alone."""
    if release.noise_scale is None or senders >= release.shares:
        return release
    scales = tuple(scale * math.sqrt(senders / release.shares) for scale in release.noise_scale)
    return release.model_copy(update={"noise_scale": scales, "shares": senders})
