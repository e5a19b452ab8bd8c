"""Unit of a claim's privacy, and the remarks that its reader needs besides the numbers.

A patient has several images, and all of them are there or none is. So epsilon for one record, sold as the
patient's, is too small. Where the number of records of one person is known, a claim for records is converted to
that person (`fedassay.privacy.conversions`), and the real guarantee stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedassay.exchange.ledger import account
from fedassay.exchange.release import PrivacyClaim, PrivacyTarget
from fedassay.exchange.transcript import Transcript
from fedassay.privacy.conversions import for_person
from fedassay.support.epsilon import Epsilon, exceeds


def warnings_of(transcript: Transcript, target: PrivacyTarget, units: int) -> tuple[str, ...]:
    """Remarks that a reader of the claim needs besides the numbers.

    Args:
        transcript: The transcript.
        target: The guarantee that was asked for.
        units: Number of protected units that the largest client holds (for clients: how many there
            are); 0 where the number is not known.
    """
    claim = transcript.claim
    if not isinstance(claim, PrivacyClaim):
        return ()
    found = []
    if units and claim.delta >= 1 / units:
        whose = "for the clients of the run" if claim.unit == "client" else "for the largest client"
        found.append(
            f"delta = {claim.delta:g} is at least 1/n {whose} (n = {units}): such a claim "
            f"allows a {claim.unit} to be published outright"
        )
    if claim.adjacency != target.adjacency:
        found.append(f"claimed under {claim.adjacency}, audited under {target.adjacency}")
    if claim.unit == "person" and units and transcript.most_records is None:
        found.append(
            "the persons of the records are not known (data.groups): each was taken for a person of its own"
        )
    if mistaken := record_as_person(transcript):
        found.append(mistaken.words)
    return tuple(found)


@dataclass(frozen=True)
class UnitMismatch:
    """A claim for records on data in which one person has several.

    Attributes:
        records: The most records of one person.
        total: The accounted total for that person, at the delta of the claim: an upper bound.
        generic: The guarantee that the claimed pair alone implies for that person, whatever the mechanism;
            infinite: none.
        words: All that in one sentence.
    """

    records: int
    total: Epsilon
    generic: Epsilon
    words: str


def record_as_person(transcript: Transcript) -> UnitMismatch | None:
    """Convert a claim for one record to the person with the most records.

    A client that is one person is the case where all of its records are one person's.

    Args:
        transcript: Its claim, its releases, and the most records of one person.

    Returns:
        None where no person is known to have several, or what leaves keeps the claim for persons as well.
    """
    claim, most = transcript.claim, transcript.most_records
    if not isinstance(claim, PrivacyClaim) or claim.unit != "record" or most is None or most < 2:
        return None
    generic = for_person(claim.guarantee, most)
    mu, total = None, generic
    if claim.delta:
        accounted = account(transcript, claim.adjacency, claim.delta, "person")
        mu, total = accounted.mu, accounted.total
        # As if the claim were for persons: what leaves may keep it for them as well.
        if not exceeds(total, replace(claim.guarantee, unit="person"), 1 + 1e-6):
            return None
    how = f"a conversion, an upper bound: loose unless its {most:,} records are all alike"
    if not total.finite:
        how = "no guarantee, for what leaves is unbounded"
    elif mu is not None:
        how = f"a conversion, mu = {mu:.4g}: attained where its {most:,} records are all alike, loose elsewhere"
    alone = f"epsilon {generic.bare:.4g} at delta {generic.delta:.4g}" if generic.finite else "no guarantee"
    words = (
        f"epsilon {claim.epsilon:g} at delta {claim.delta:g} under {claim.adjacency} is claimed for one record, "
        f"but one person has up to {most:,} records at a client: for that person it is epsilon {total.bare:.4g} "
        f"({how}; the claimed pair alone gives {alone}); privacy.unit person bounds persons"
    )
    return UnitMismatch(most, total, generic, words)
