"""Policies: what a run must show before its method may be deployed.

A policy is a YAML file; `docs/policy.md` describes it. `fedassay.reports.gate.judging` puts its rules to a
run.

Exit codes: 0 all pass, 1 something is broken, 2 nothing is broken but something is undecided.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from fedassay.contracts.registry import every_audit, metrics
from fedassay.plan.json_schema import DescribedSchema
from fedassay.plan.schema import read_yaml
from fedassay.records.basis import text_digest
from fedassay.records.record import Verdict
from fedassay.reports.words.metrics import COMMUNICATION, UTILITY
from fedassay.support.adjacency import Adjacency, Unit
from fedassay.support.errors import PlanError
from fedassay.support.types import Frozen
from fedassay.support.validation import explain


def bounded_metrics() -> tuple[str, ...]:
    """The metrics that a policy can bound: those that some installed audit declares, and those of every cell."""
    return tuple(dict.fromkeys((*metrics(), *UTILITY, *COMMUNICATION)))


def demanded_audits() -> tuple[str, ...]:
    """The audits that a policy can demand; one that is not installed here may be demanded as `other:NAME`."""
    return tuple(every_audit())


EPSILON_LIMIT = "epsilon"
"""The key of the bound on limits of detection that are an epsilon: the others are shares, and of another kind."""

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""A SHA-256, in hexadecimal."""


def _number(given: object) -> object:
    if isinstance(given, bool):
        raise ValueError(f"given {str(given).lower()}; allowed: a number")
    return given


Bound = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
"""Bound on a figure: an infinite one is kept, or broken, by every run, and would be no rule."""


class Scope(Frozen):
    """Cells that the rules are put to.

    Attributes:
        labels: Labels of method entries; all where empty.
        epsilon: `finite`: only cells asked for a finite epsilon. `all`: every cell.
    """

    labels: tuple[str, ...] = ()
    epsilon: Literal["all", "finite"] = "all"


class EpsilonOf(Frozen):
    """Kind of the bounded epsilons; a cell with a guarantee of another kind cannot be decided.

    Attributes:
        adjacency: The relation; None: each cell's own.
        unit: The unit of privacy; None: each cell's own.
    """

    adjacency: Adjacency | None = None
    unit: Unit | None = None

    @property
    def words(self) -> str:
        """Unit and adjacency in words."""
        return ", ".join(part.replace("_", " ") for part in (self.unit, self.adjacency) if part)


class Requires(Frozen):
    """Requirements on a run, so that another one cannot be shown in its place.

    Attributes:
        plan: Digests of the allowed plans (`fedassay verify` prints them).
        data: Digests of the allowed data of a run.
        days: Largest age of the run, in days since its end.
        versions: Allowed versions of fedassay.
        signers: SHA-256 of the allowed signers' public keys (DER); `check` is to be given the signer's key.
    """

    plan: tuple[Digest, ...] = ()
    data: tuple[Digest, ...] = ()
    days: Bound | None = Field(default=None, gt=0)
    versions: tuple[str, ...] = ()
    signers: tuple[Digest, ...] = ()

    @property
    def demands(self) -> bool:
        """Whether it demands anything."""
        return bool(self.plan or self.data or self.versions or self.signers) or self.days is not None


class Policy(Frozen):
    """A policy.

    Attributes:
        name: Printed with every judgement.
        description: Purpose of the policy.
        deployment: Whether what passes may be deployed; a demonstration says that it may not.
        cells: Cells that the rules are applied to.
        maximum: Highest allowed value by metric; over a cell's findings the worst counts.
        minimum: Lowest allowed value by metric; likewise.
        epsilon_of: Kind of the bounds on epsilons (claimed, accounted, observed); else each cell's kind.
        above_majority: Whether accuracy must lie above the share of the largest class of the test records, which a
            model reaches that learned nothing.
        exact_fields: `forbidden`: nothing that the adjacency does not make public may leave exactly.
        claims: `sound`: every cell makes a claim and it is sound. `not_disproved`: no claim is unsound
            or unsupported; a cell without a claim passes. `any`: no rule.
        delta: `one_in_n`: delta is at most 1 / n, n the units that the claim protects (records, persons) of the
            largest client, or the clients of the run where it protects these. `any`: no rule.
        must_conclude: Audits that must have run and reached a verdict in every cell to which they apply.
        coverage: `attacked`: where attacks apply to what a cell sends, one at least must have been run.
            `complete`: each of them must have been conclusive. `any`: no rule but the one that always holds: a
            cell in which nothing concluded does not pass.
        limit_of_detection: By audit, the largest leak that it may have missed: where it found none, the smallest
            leak that it would have found must be at most that; above it the policy cannot decide. These bounds are
            shares; `epsilon` bounds what the same audits may have missed where that is an epsilon.
        forbidden_verdicts: Verdicts that no cell and no finding may have.
        requires: Requirements on the run; age and signer are checked by `fedassay check` alone.
    """

    name: str = Field(min_length=1)
    description: str = ""
    cells: Scope = Scope()
    maximum: dict[str, Bound] = Field(default_factory=dict)
    minimum: dict[str, Bound] = Field(default_factory=dict)
    epsilon_of: EpsilonOf = EpsilonOf()
    above_majority: bool = False
    exact_fields: Literal["allowed", "forbidden"] = "allowed"
    claims: Literal["sound", "not_disproved", "any"] = "any"
    delta: Literal["any", "one_in_n"] = "any"
    must_conclude: tuple[str, ...] = ()
    coverage: Literal["any", "attacked", "complete"] = "attacked"
    limit_of_detection: dict[str, Bound] = Field(default_factory=dict)
    forbidden_verdicts: tuple[Verdict, ...] = ()
    requires: Requires = Requires()
    deployment: bool = True

    @property
    def digest(self) -> str:
        """SHA-256 of the rules, by which a statement names the policy."""
        return text_digest(self.model_dump(mode="json"))

    @field_validator("maximum", "minimum")
    @classmethod
    def _known_metrics(cls, bounds: dict[str, float]) -> dict[str, float]:
        known = bounded_metrics() if bounds else ()
        for name in bounds:
            if name not in known:
                raise ValueError(f"given the metric {name!r}; allowed: {', '.join(known)}")
        return bounds

    @field_validator("limit_of_detection")
    @classmethod
    def _known_limits(cls, bounds: dict[str, float]) -> dict[str, float]:
        known = (*demanded_audits(), EPSILON_LIMIT) if bounds else ()
        for name, bound in bounds.items():
            if name not in known:
                raise ValueError(f"given the audit {name!r}; allowed: {', '.join(known)}")
            if bound <= 0:
                raise ValueError(f"the bound on what {name} may miss is {bound}; allowed: a number above 0")
        return bounds

    @field_validator("must_conclude")
    @classmethod
    def _known_audits(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        known = demanded_audits() if names else ()
        for name in names:
            if name not in known and not name.startswith("other:"):
                raise ValueError(
                    f"given the audit {name!r}; allowed: {', '.join(known)}, or other:NAME for one that is not "
                    f"installed here"
                )
        return names

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        rules = (
            *(self.maximum, self.minimum, self.must_conclude, self.forbidden_verdicts, self.limit_of_detection),
            self.coverage == "complete",
            self.requires.demands,
            self.above_majority,
            self.delta != "any",
        )
        if not any(rules) and self.exact_fields == "allowed" and self.claims == "any":
            raise ValueError("the policy has no rule, so every run would pass")
        return self

    def put_to(self, labels: Iterable[str]) -> Self:
        """The same rules, put to method entries of these labels alone."""
        return self.model_copy(update={"cells": self.cells.model_copy(update={"labels": tuple(sorted(labels))})})


def policy_schema() -> dict[str, Any]:
    """The JSON schema of a policy file, with the metrics and audits that are installed."""
    schema = Policy.model_json_schema(schema_generator=DescribedSchema)
    for side in ("maximum", "minimum"):
        schema["properties"][side]["propertyNames"] = {"enum": list(bounded_metrics())}
    names = [{"enum": list(demanded_audits())}, {"type": "string", "pattern": "^other:"}]
    schema["properties"]["must_conclude"]["items"] = {"anyOf": names}
    schema["properties"]["limit_of_detection"]["propertyNames"] = {"enum": [*demanded_audits(), EPSILON_LIMIT]}
    return {"$schema": DescribedSchema.schema_dialect, **schema}


def load_policy(path: Path) -> Policy:
    """Read a policy file.

    Raises:
        PlanError: Missing, not YAML, an unknown key or metric, a wrong type, or no rule at all.
    """
    return parse_policy(read_yaml(path), str(path))


def parse_policy(content: object, where: str) -> Policy:
    """Validate the contents of a policy file.

    Args:
        content: Content of the file.
        where: Names it in errors.

    Raises:
        PlanError: An unknown key or metric, a wrong type, or no rule at all.
    """
    try:
        return Policy.model_validate(content)
    except ValidationError as error:
        raise PlanError(explain(error, Policy, where, whole="policy")) from None
