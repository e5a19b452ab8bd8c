"""Findings on the rules of message algebra, each against the method's own messages of known records."""

from __future__ import annotations

from collections.abc import Callable

from fedassay.audits.features import encoder
from fedassay.audits.message import nonprivate
from fedassay.audits.message.controls import control_records
from fedassay.audits.message.rules import NUMBERS, rule_finding
from fedassay.audits.message.truth import (
    plain,
)
from fedassay.audits.nonprivate_releases import summed_only
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext
from fedassay.data.records import Records, joined
from fedassay.exchange.kinds import facts_of
from fedassay.exchange.ridge import square
from fedassay.exchange.transcript import AGGREGATE
from fedassay.records.record import Finding
from fedassay.support.errors import NotRunError


def known_clients(context: AttackedContext, sizes: bool) -> tuple[nonprivate.Reading, ...]:
    """The method's own messages of known records; with `sizes` of a client as large as an audited one, too."""
    readings = nonprivate.singletons(context)
    largest = _largest_below(context) if sizes else []
    return readings + nonprivate.alike(context, largest) if largest else readings


def remark_finding(
    rule: str,
    result: AttackResult,
    context: AttackedContext,
    known: Callable[[bool], tuple[nonprivate.Reading, ...]],
) -> Finding:
    """Against the method's own messages of known records; made by hand where these cannot be had, and said so."""
    missing = ""
    try:
        readings = known(rule in NUMBERS)
    except NotRunError as error:
        readings = (nonprivate.by_hand(context, control_records(context), encoder(context) or plain, rule),)
        missing = error.why
    return rule_finding(rule, result, context, readings, missing)


def _largest_below(context: AttackedContext) -> list[Records]:
    """The largest client with a number of records that a second moment can show: under half its live features.

    A feature that is zero for every record adds nothing to a rank, and rectified networks have many.
    """
    widths = [
        len(square(item.values))
        for message in context.view.from_clients()
        for item in message.fields.values()
        if facts_of(item.kind).square == 2
    ]
    encode = encoder(context)
    if widths and encode is not None and len(context.data.control):
        widths.append(int((encode(context.data.control) != 0).any(axis=0).sum()))
    most = min(widths) // 2 if widths else len(context.data.control)
    owners = (joined(AGGREGATE, context.data.clients),) if summed_only(context.view) else context.data.clients
    return sorted((client for client in owners if 0 < len(client) <= most), key=len)[-1:]
