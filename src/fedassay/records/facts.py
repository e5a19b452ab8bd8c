"""What a finding is made of: kinds, counts and names, and no sentence among them.

An audit states these where it knows them. Verdicts, decisions, ranks and remedies read them; `reports/words` alone
turns them into sentences.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from fedassay.support.types import Extended, Finite, Frozen

Thing = Literal[
    "record",
    "person",
    "client",
    "message",
    "canary",
    "training_record",
    "class",
    "release",
    "sum",
    "worst_neighbours",
]
"""What a number can be a count or a share of.

`sum`: all clients together, of whom a sum alone is seen. `worst_neighbours`: an artificial pair of neighbours,
no record of the run.
"""

HarmKind = Literal["pictures", "exact", "named", "members", "attributes", "counts"]
"""What a release can give away, the worst first.

`pictures`: images of the private records are rebuilt. `exact`: features or records come back exactly. `named`: the
attacker names who took part. `members`: some are likelier to have taken part than chance allows. `attributes`:
attributes or labels of records or clients. `counts`: how many records there are.
"""

HARMS: tuple[HarmKind, ...] = get_args(HarmKind)
"""Every harm, the worst first: the one list by which harms are ranked."""


MEANS: frozenset[HarmKind] = frozenset({"pictures", "exact"})
"""Harms whose figure is a mean over those that were counted; that of the others is one over runs or pairs."""

NEAREST = "identified"
"""The metric of what is nearest to a record of its sender, of which nobody knows the record: it is no name."""


class Harm(Frozen):
    """What an attack took from a release.

    Attributes:
        kind: Which of the ranked harms it is.
        of: What is harmed.
        count: How many are; None where no attack tells one from another (a shift of a mean).
        total: Of how many: of the very set that `value` and its baseline are over; None where nobody counted.
        among: How many there are from which those of `total` were selected or recovered; None where they are all,
            or nobody counted.
        share: Share that is harmed, where it is known or estimated; None elsewhere.
        low: Lower end of its 95 % interval.
        high: Upper end.
        metric: Declared metric of the audit that measures how much; empty where the count says it.
        value: What it measured.
        mechanism: Which property of the release gives it away, an identifier such as `second_moment`.
    """

    kind: HarmKind
    of: Thing
    count: int | None = None
    total: int | None = None
    among: int | None = None
    share: Finite | None = None
    low: Finite | None = None
    high: Finite | None = None
    metric: str = ""
    value: Extended | None = None
    mechanism: str = ""

    @model_validator(mode="after")
    def _is_of_one_set(self) -> Self:
        sizes = [size for size in (self.count, self.total, self.among) if size is not None]
        if sizes != sorted(sizes):
            raise ValueError(f"a harm counts {self.count} of {self.total} of {self.among}: none exceeds the next")
        return self

    @property
    def whole(self) -> int | None:
        """How many could have been harmed, selected or not; None where nobody counted."""
        return self.total if self.among is None else self.among


class TestFact(Frozen):
    """The test behind a verdict.

    Attributes:
        statistic: Declared metric that it uses.
        value: What it came to.
        p: Its p-value; None where nothing is left to chance, or a bound is used.
        level: Level corrected for the tests of the run.
        rejects: Whether it rejects at that level.
        rejects_alone: Whether it rejects as if it were the only test.
    """

    __test__ = False

    statistic: str
    value: Extended | None = None
    p: Finite | None = None
    level: Finite | None = None
    rejects: bool
    rejects_alone: bool


ControlRole = Literal["end_to_end", "attack_only", "negative", "confounder"]
"""`end_to_end`: a known leak, through the method's own release, or through messages of the form of captured ones.
`attack_only`: the attack on raw features.
`negative`: a release that cannot leak. `confounder`: other records that explain as much."""


class ControlFact(Frozen):
    """One control that was run.

    Attributes:
        role: What it is for.
        release: What was released, in words.
        detected: Whether the audit's own test found a leak in it; of a confounder, whether it explains the result.
        value: The figure that is recorded.
        n: Observations behind it.
        detail: What the figure is.
    """

    role: ControlRole
    release: str
    detected: bool
    value: Extended | None = None
    n: int | None = None
    detail: str = ""


ObstacleKind = Literal[
    "records_missing",
    "control_missed",
    "control_faint",
    "control_flagged",
    "confounded",
    "worse_than_baseline",
    "between_levels",
    "no_power",
    "nothing_to_read",
    "other_features",
    "not_in_plan",
    "not_judged",
    "signed_features",
    "too_large",
    "asked_elsewhere",
    "not_possible",
    "crashed",
    "unstated",
]
"""Why a finding says nothing. `records_missing`: of `role` there are `held` where `needed` would do.
`no_power`: a total leak would not have been found. `unstated`: an older record or a third party says it in words
only.
"""


class Obstacle(Frozen):
    """What stood between an audit and an answer.

    Attributes:
        kind: See `ObstacleKind`.
        role: Whose records are missing: a data role (`private`, `attacker`, `control`, `test`, `public`),
            `clients`, or empty.
        held: How many there are.
        needed: How many would do.
        key: The parameter of the attack that is too small, or empty: `held` is its value then.
    """

    kind: ObstacleKind
    role: str = ""
    held: int | None = None
    needed: int | None = None
    key: str = ""


class Change(Frozen):
    """One key of a plan that would be changed.

    Attributes:
        key: Path of the key, such as `data.split.control`; `attacks` or `audits` for one that is added.
        before: Its present value; None where it is not set.
        after: The proposed value, or the name of the attack or audit.
    """

    key: str
    before: Annotated[Extended | str | bool | None, Field()] = None
    after: Extended | str | bool


class Remedy(Frozen):
    """What would decide an inconclusive finding: changes of the plan, and what a run with them takes.

    Attributes:
        changes: To be made together.
        seconds: Estimated time of a run of this cell with them, on one core; None where nobody can estimate it.
    """

    changes: tuple[Change, ...]
    seconds: Finite | None = None
