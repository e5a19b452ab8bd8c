"""Sections and words of audits in a report, as each audit declares them.

A record may name an audit that is not installed here, or not any more: it has a section of its own, under its
name.
"""

from __future__ import annotations

from fedassay.contracts.facts import ReportSection
from fedassay.contracts.registry import audit_facts, every_audit

_IMAGES = {"reconstructions", "inversions"}


def place_of(audit: str) -> ReportSection:
    """Section of a report that holds an audit's findings."""
    facts = audit_facts(audit)
    return ReportSection() if facts is None else facts.place


def title_of(audit: str) -> str:
    """Its heading."""
    return place_of(audit).title or audit.replace("_", " ").capitalize()


def image_audit() -> str:
    """The audit that the section of images speaks of."""
    return next((name for name, facts in every_audit().items() if facts.place.section == "images"), "")


def shows_images(audit: str) -> bool:
    """Whether an audit judges images: its reasons repeat its numbers."""
    facts = audit_facts(audit)
    return facts is not None and bool(_IMAGES & set(facts.judges))


def own_sections() -> list[str]:
    """The audits that have a section of their own in every report, in its order."""
    places = {name: facts.place for name, facts in every_audit().items()}
    return [name for name, place in places.items() if place.section == "attacks" and place.always]
