"""The facts of a finding: kinds, counts and names, without a sentence.

An audit states these facts where they arise. Verdicts, decisions, ranks and remedies read them; `reports/words`
alone turns them into sentences.
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
"""The things that a number can count, or be a share of.

`sum`: all clients together, seen only as a sum. `worst_neighbours`: an artificial pair of neighbours, no record of
    the run.
"""

HarmKind = Literal["pictures", "exact", "named", "members", "attributes", "counts"]
"""The kinds of leak from a release, the worst first.

`pictures`: images of the private records are rebuilt. `exact`: features or records come back exactly. `named`: the
attacker names who took part. `members`: some are likelier to have taken part than chance allows. `attributes`:
attributes or labels of records or clients. `counts`: how many records there are.
"""

HARMS: tuple[HarmKind, ...] = get_args(HarmKind)
"""Every harm, the worst first: the only ranking of harms."""


MEANS: frozenset[HarmKind] = frozenset({"pictures", "exact"})
"""Harms with a figure that is a mean over the counted records; that of the others is a mean over runs or pairs."""

NEAREST = "identified"
"""The metric of images that are nearest to a record of their sender; which record is unknown to the attacker."""


class Harm(Frozen):
    """A leak that an attack found in a release.

    Attributes:
        kind: Its place among the ranked harms.
        of: The thing that is harmed.
        count: Number of things harmed; None where no attack separates them (a shift of a mean).
        total: Size of the very set that `value` and its baseline are over; None where it was not counted.
        among: Size of the set from which those of `total` were selected or recovered; None where they are all of
            it, or where it was not counted.
        share: Share that is harmed, where it is known or estimated; None elsewhere.
        low: Lower end of its 95 % interval.
        high: Upper end.
        metric: Declared metric of the audit that measures the severity; empty where the count expresses it.
        value: The measured value of that metric.
        mechanism: The property of the release that causes the leak, an identifier such as `second_moment`.
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
        """Number of things that could have been harmed, selected or not; None where they were not counted."""
        return self.total if self.among is None else self.among


class TestFact(Frozen):
    """The test behind a verdict.

    Attributes:
        statistic: Declared metric that it uses.
        value: Its value.
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
        role: Role of the control.
        release: The release, in words.
        detected: Whether the audit's own test found a leak in it; of a confounder, whether it explains the result.
        value: The figure that is recorded.
        n: Observations behind it.
        detail: Meaning of the figure.
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
"""Reason why a finding says nothing. `records_missing`: of `role` there are `held` where `needed` would do.
`no_power`: a total leak would not have been found. `unstated`: an older record or a third party says it in words
only.
"""


class Obstacle(Frozen):
    """The reason that an audit gave no answer.

    Attributes:
        kind: See `ObstacleKind`.
        role: Owner of the missing records: a data role (`private`, `attacker`, `control`, `test`, `public`),
            `clients`, or empty.
        held: Number of records that there are.
        needed: Number of records that would suffice.
        key: The attack parameter that is too small, or empty; `held` is then its value.
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
    """Changes of the plan that would decide an inconclusive finding, and the time of a run with them.

    Attributes:
        changes: Changes to make together.
        seconds: Estimated time of a run of this cell with them, on one core; None where it cannot be estimated.
    """

    changes: tuple[Change, ...]
    seconds: Finite | None = None
