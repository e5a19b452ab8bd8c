"""Contexts of audits with other records, or with another way to run the method again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedassay.contracts.audit import AuditContext, Replayed, Rerun
from fedassay.contracts.method import Outcome
from fedassay.data.records import Records
from fedassay.support.seeds import Seeds


@dataclass(frozen=True)
class Runs:
    """A `RunMethod` made of functions."""

    run_on: Callable[[Sequence[Records], Seeds], Outcome]
    run_nonprivate: Callable[[Sequence[Records], Seeds], Outcome]
    rerun: Callable[[Rerun], Replayed]


def with_data(context: AuditContext, **data: Any) -> Any:
    """The context with other records."""
    return replace(context, data=replace(context.data, **data))


def with_runs(context: AuditContext, **runs: Any) -> Any:
    """The context with other runs of the method."""
    return replace(context, method=replace(context.method, **runs))  # type: ignore[type-var]
