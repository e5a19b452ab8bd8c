"""The one release that evidence speaks of, what was decided on it, and where it stands in the record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedassay.records.record import CellRecord, Finding, RunRecord
from fedassay.reports.answer.answer import Answer, answer
from fedassay.reports.decision.decision import Decision, Option, decide
from fedassay.reports.decision.standard import standard_policy
from fedassay.reports.gate.policy import Policy
from fedassay.reports.words.allowed import known
from fedassay.reports.words.sentences import listed, who
from fedassay.reports.words.summary import attacks_on
from fedassay.support.errors import PlanError


@dataclass(frozen=True)
class Release:
    """A method entry at one epsilon, over its seeds, or the captured messages.

    Attributes:
        record: The run that it is part of.
        policy: Policy that it is held to.
        option: The release, as the policy sees it.
        answer: The answer to it.
        cells: Its cells, each with its place in the record.
    """

    record: RunRecord
    policy: Policy
    option: Option
    answer: Answer
    cells: tuple[tuple[int, CellRecord], ...]

    @property
    def captured(self) -> bool:
        """Whether it consists of messages that were captured elsewhere."""
        return isinstance(self.record.plan, dict) and "transcript" in self.record.plan

    @property
    def name(self) -> str:
        """Name of the release on the pages."""
        return "the captured messages" if self.captured else who(self.option.group)

    def findings(self) -> Iterator[tuple[str, Finding]]:
        """Every finding of an attack on it, with its JSON pointer; what a claim bounds, with that bound."""
        for number, cell in self.cells:
            attacks = attacks_on(cell)
            for place, finding in enumerate(cell.findings):
                if finding in attacks:
                    yield f"/cells/{number}/findings/{place}", known(cell, finding)

    def decided(self) -> dict[str, Any]:
        """Content of a signature for JSON: the answer, the policy and the release."""
        group, asked = self.option.group, self.option.group.asked
        return {
            "answer": self.answer.answer,
            "policy": {"name": self.policy.name, "sha256": self.policy.digest},
            "release": {
                "label": group.label,
                "method": group.method,
                "epsilon": asked.bare,
                "delta": asked.delta,
                "adjacency": asked.adjacency,
                "unit": asked.unit,
            },
        }


def release_of(
    record: RunRecord, policy: Policy | None = None, method: str | None = None, epsilon: float | None = None
) -> Release:
    """The release that is asked for; of a run with several the one that the policy recommends.

    Args:
        record: The run.
        policy: Policy that it is held to; None: the shipped one that fits.
        method: Label or registered name of the method.
        epsilon: The epsilon that it was asked for.

    Raises:
        PlanError: There is no such release, or there are several and none is recommended.
    """
    held = policy or standard_policy(record)
    decision = decide(record, held, method, epsilon)
    option = _one(decision)
    group = option.group
    cells = tuple((number, cell) for number, cell in enumerate(record.cells) if cell in group.cells)
    return Release(record, held, option, answer(record, held, group.label, group.asked.bare), cells)


def _one(decision: Decision) -> Option:
    every = decision.everything
    if len(every) == 1:
        return every[0]
    if decision.recommended is not None:
        return decision.recommended
    if not every:
        raise PlanError("evidence is about one release, and the run has none")
    raise PlanError(
        f"evidence is about one release: name it by --method and --epsilon; the run has "
        f"{listed((who(option.group) for option in every), limit=12)}"
    )
