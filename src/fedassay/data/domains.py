"""Some of a data set's domains, or one left out: train on the others, test on one that no client has seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedassay.data.images import ImageSet, LoadedData
from fedassay.support.errors import PlanError

_NO_DOMAINS = (
    "the data set has no domains; allowed: an image_folder of domain/class folders, or an npz with an array domain"
)
"""The words where domains are asked for and there are none."""


def only_domains(data: LoadedData, names: tuple[str, ...]) -> LoadedData:
    """Return the records of some domains, which keep their order.

    Raises:
        PlanError: The data set has no domains or none of one of these names, one has no records, or those of its
            test set are not known.
    """
    known = data.train.domain_names
    if data.train.domains is None:
        raise PlanError(f"data.domains: {', '.join(names)} given, but {_NO_DOMAINS}")
    if data.test is not None and data.test.domains is None:
        raise PlanError(f"data.domains: {', '.join(names)} given, but the domains of the test set are not known")
    if unknown := next((name for name in names if name not in known), None):
        raise PlanError(f"data.domains: {unknown!r} given; allowed: {', '.join(known)}")
    kept = np.array([number for number, name in enumerate(known) if name in names], dtype=np.int64)
    if empty := next((known[number] for number in kept if not (data.train.domains == number).any()), None):
        raise PlanError(f"data.domains: {empty} has no records")

    def of(records: ImageSet) -> ImageSet:
        assert records.domains is not None
        found = records.take(np.flatnonzero(np.isin(records.domains, kept)))
        assert found.domains is not None
        places = np.searchsorted(kept, found.domains).astype(np.int64)
        return replace(found, domains=places, domain_names=tuple(known[number] for number in kept))

    return replace(data, train=of(data.train), test=None if data.test is None else of(data.test))


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
        raise PlanError(f"data.test_domain: {domain} given, but {_NO_DOMAINS}")
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
