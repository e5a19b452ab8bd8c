"""Leave one domain out: train on the others, test on records of a domain that no client has seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedassay.data.images import LoadedData
from fedassay.support.errors import PlanError


def leave_out(data: LoadedData, domain: str) -> LoadedData:
    """Make one domain the official test set, which is how domain generalization is measured.

    All of the domain's records become the test role; private, attacker and public records are drawn
    from the other domains (Guan et al. 2025, tables 2 and 6).

    Args:
        data: Records with domains, without an official test set.
        domain: One of `domain_names`.

    Raises:
        PlanError: The data set has no domains or no such one, has a test set of its own, or nothing is
            left in or outside of the domain.
    """
    train = data.train
    if train.domains is None:
        raise PlanError(
            f"data.test_domain: {domain} given, but the data set has no domains; allowed: an image_folder of "
            f"domain/class folders, or an npz with an array domain"
        )
    if data.test is not None:
        raise PlanError(f"data.test_domain: {domain} given, but the data set has a test set of its own")
    if domain not in train.domain_names:
        raise PlanError(f"data.test_domain: {domain!r} given; allowed: {', '.join(train.domain_names)}")
    held = train.domains == train.domain_names.index(domain)
    if held.all():
        raise PlanError(f"data.test_domain: {domain} is the only domain; there must be another to train on")
    if not held.any():
        raise PlanError(f"data.test_domain: {domain} has no records")
    source = f"{data.source}; domain {domain} held out as the test set"
    return replace(
        data, train=train.take(np.flatnonzero(~held)), test=train.take(np.flatnonzero(held)), source=source
    )
