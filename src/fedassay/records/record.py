"""The run record: one versioned document that every report is a pure function of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import FailFast, Field, PlainSerializer, ValidationError, field_validator, model_validator

from fedassay.records.basis import Basis, Released
from fedassay.records.facts import ControlFact, Harm, Obstacle, Remedy, TestFact, Thing
from fedassay.records.unfinished import Unfinished
from fedassay.support.adjacency import ADJACENCIES, UNITS, Adjacency, Unit
from fedassay.support.atomic import write_text
from fedassay.support.epsilon import Epsilon
from fedassay.support.errors import DataError
from fedassay.support.reading import read_json, shown_path
from fedassay.support.text import plain_json, shown
from fedassay.support.types import Extended, Finite, Frozen
from fedassay.support.validation import explain

SCHEMA = 3
"""Version of record.json; others are refused."""

FILE = "record.json"

Verdict = Literal[
    "sound", "not_refuted", "unsupported", "unsound", "leak", "no_leak_found", "inconclusive", "not_run"
]


class Metric(Frozen):
    """A measured number with its 95 % interval and sample size.

    Attributes:
        value: The estimate; None where it was not measured, and `reason` says why.
        low: Lower end of the interval; None where there is none (an exact figure).
        high: Upper end.
        n: Number of independent observations behind it.
        unit: `dB`, `bytes`, ...; empty for pure numbers.
        reason: Reason why `value` is None, or a remark on how it was estimated.
    """

    value: Extended | None
    low: Extended | None = None
    high: Extended | None = None
    n: int | None = None
    unit: str = ""
    reason: str = ""


def unmeasured(reason: str) -> Metric:
    """A metric that was not measured."""
    return Metric(value=None, reason=reason)


def epsilon_metric(found: Epsilon | None, n: int | None = None, reason: str = "") -> Metric:
    """Return an epsilon as a metric with its kind in the unit."""
    if found is None:
        return Metric(value=None, n=n, reason=reason)
    return Metric(value=found.bare, n=n, reason=reason, unit=f"for {found.kind.words}")


class PositiveControl(Frozen):
    """A release known to leak in the audited way; it must be caught."""

    release: str
    caught: bool
    value: Extended | None = None
    n: int | None = None
    detail: str = ""


class NegativeControl(Frozen):
    """A release that cannot leak in the audited way; it must not be flagged."""

    release: str
    flagged: bool
    value: Extended | None = None
    n: int | None = None
    detail: str = ""


class Controls(Frozen):
    """The two controls of a finding; None only where the audit could not run at all."""

    positive: PositiveControl | None = None
    negative: NegativeControl | None = None


class PictureColumn(Frozen):
    """One column of a picture grid: a caption and the numbers printed under it."""

    caption: str = ""
    metrics: dict[str, Extended | None] = Field(default_factory=dict)


class Picture(Frozen):
    """A grid of equal tiles in one PNG file.

    Attributes:
        file: Path of the PNG, relative to the run folder.
        title: Title of the grid.
        tile: Height and width of a tile in the file, in pixels.
        rows: Name of each row of tiles, top to bottom.
        columns: One entry a column, left to right.
    """

    file: str
    title: str
    tile: tuple[int, int]
    rows: tuple[str, ...]
    columns: tuple[PictureColumn, ...]


class Series(Frozen):
    """Named columns of equal length behind a figure (a histogram, a ROC curve)."""

    title: str
    columns: dict[str, tuple[Extended | str | None, ...]]

    @model_validator(mode="after")
    def _equal_lengths(self) -> Self:
        lengths = {name: len(values) for name, values in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the columns of a series must have one length, given {lengths}")
        return self


class TapeAnswer(Frozen):
    """The answer to one question put to a run with its tape; see `fedassay.audits.claim.tape`.

    Attributes:
        question: `noise`: was it added? `sensitivity`: is it the declared one? `rest`: does everything else follow
            from the releases alone? `worst_case`: is the largest effect of a record on the messages known?
        status: `failed` disproves the claim.
        field: The field concerned; empty: all of them.
        p: Smallest p-value of the noise, corrected for its blocks, or None.
        words: The reason, or the tests that were made.
    """

    question: Literal["noise", "sensitivity", "rest", "worst_case"]
    status: Literal["passed", "failed", "not_asked", "crashed"]
    field: str = ""
    p: Finite | None = None
    words: str = ""


class Limit(Frozen):
    """The smallest leak that a finding's run would have found.

    Attributes:
        metric: Its measure, such as `share`: the share of records that leak as the positive control does. `shift`:
            a shift of every trial, where the run would have found no leak of a few, however many they are.
        value: The limit, an upper 95 % confidence bound.
        power: Probability of finding such a leak.
        n: Trials of the run, which the limit holds for.
        shift: The smallest common shift of all trials that is found with the same power: a weak leak that affects
            every record. None where no such leak was tried.
        shift_metric: The measure of the shift.
        words: Its meaning, in one clause.
        of: The thing that the limit counts or is a share of; None where it is not stated.
        scope: `run`: it is about the records of this run. `population`: a bound on a rate among further ones.
        planted: The mechanism of the leak that was planted to measure it, an identifier; empty where none was.
    """

    metric: str
    value: Finite
    power: float = Field(default=0.95, gt=0, lt=1)
    n: int = Field(ge=1)
    shift: Finite | None = None
    shift_metric: str = ""
    words: str = ""
    of: Thing | None = None
    scope: Literal["run", "population"] = "run"
    planted: str = ""


class Coverage(Frozen):
    """Whether an attack that applies to a cell's messages was run, and with which outcome.

    Attributes:
        attack: Registered name of the attack, or of an audit that attacks by itself.
        status: `conclusive`: it found a leak, or was silent with controls that held. `inconclusive`: it was run,
            and nothing follows.
        reason: Reason why it was not conclusive; empty where it was.
        would_decide: A change that would make it conclusive; empty where none is known.
        remedy: Such changes of the plan; None where a person has to choose, or a finding states them.
        seconds: Time of a run of this cell alone with that change, without startup; None: unknown.
        further_seconds: Time that this cell would add to such a run of another cell.
    """

    attack: str
    status: Literal["conclusive", "inconclusive", "not_run"]
    reason: str = ""
    would_decide: str = ""
    remedy: Remedy | None = None
    seconds: Finite | None = None
    further_seconds: Finite | None = None


class Finding(Frozen):
    """The result of one audit at one cell.

    Attributes:
        audit: Registered name of the audit.
        attack: Registered name of the attack that was judged, or None.
        source: The vectors or fields that were attacked.
        selection: The targets that were scored (`all`, `attacker`, `oracle`, ...).
        metrics: Measured figures by name.
        baseline: The same figures for an adversary without the attack.
        controls: The positive and the negative control of this very run.
        verdict: See `Verdict`.
        reason: One sentence in plain words: the result, or the reason that there is none.
        assumptions: The assumptions that the verdict depends on.
        pictures: Picture grids, files beside the record.
        series: Data behind figures, by name.
        limit: The smallest leak that this run would have found; None where none was computed.
        tape: The answers of the run's tape, on their way to `CellRecord.tape`, where they are written.
        harm: The leak that was found; None where there is none.
        test: The test behind the verdict; None where none was made.
        all_controls: Every control that was run, each with its role.
        rule: Name of the rule that decided; empty where none did.
        obstacle: The reason that there is no answer; None where there is one.
        remedy: Changes that would give an answer; None where none are known.
        reading: Whether the kinds of the fields that were attacked are the declared ones or were inferred.
    """

    audit: str
    attack: str | None = None
    source: str | None = None
    selection: str | None = None
    metrics: dict[str, Metric] = Field(default_factory=dict)
    baseline: dict[str, Metric] = Field(default_factory=dict)
    controls: Controls = Field(default_factory=Controls)
    verdict: Verdict
    reason: str
    assumptions: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    series: dict[str, Series] = Field(default_factory=dict)
    limit: Limit | None = None
    tape: tuple[TapeAnswer, ...] = Field(default=(), exclude=True, repr=False)
    harm: Harm | None = None
    test: TestFact | None = None
    all_controls: tuple[ControlFact, ...] = ()
    rule: str = ""
    obstacle: Obstacle | None = None
    remedy: Remedy | None = None
    reading: Literal["declared", "inferred"] = "declared"


class LedgerRow(Frozen):
    """One field that leaves the clients, summed over the messages that carry it."""

    field: str
    kind: str
    direction: Literal["up", "down"]
    messages: int
    shape: str
    dtype: str
    nbytes: int
    mechanism: str
    exact: bool
    public_under_adjacency: bool
    secure: bool
    adjacency: Adjacency | None
    unit: str
    sensitivity: tuple[float, float] | None
    noise_scale: tuple[float, float] | None
    group: str | None
    dp_sgd: dict[str, float] | None = None
    note: str = ""


class CellPrivacy(Frozen):
    """The three numbers of a claim, and the fields that leave exactly."""

    claimed: Extended | None
    accounted: Extended | None
    accounted_stated: Extended | None = None
    observed: Finite | None = None
    mu: Extended | None = None
    exact_fields: tuple[str, ...] = ()
    verdict: Verdict
    reason: str = ""
    warnings: tuple[str, ...] = ()


class CellRecord(Frozen):
    """Everything measured on one method entry at one epsilon, delta and seed.

    `tape` answers questions about the releases, `unit` is the unit of privacy, `coverage` the attacks that were
    tried. `key` names its files in the run folder, `basis` has digests of its inputs, `released` is its ledger.
    """

    method: str
    label: str
    params: dict[str, Any]
    params_given: dict[str, Any]
    epsilon: Extended
    delta: Finite
    adjacency: Adjacency
    unit: Unit = "record"
    seed: int | None
    utility: dict[str, Extended | None]
    communication: dict[str, Finite]
    privacy: CellPrivacy
    ledger: tuple[LedgerRow, ...] = ()
    findings: tuple[Finding, ...] = ()
    tape: tuple[TapeAnswer, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: dict[str, Finite] = Field(default_factory=dict)
    key: str = ""
    basis: Basis | None = None
    released: Released | None = None

    @property
    def asked(self) -> Epsilon:
        """The guarantee that the method was asked for; infinite where no noise is added."""
        return Epsilon(self.epsilon, self.delta, self.adjacency, self.unit)

    @property
    def claimed(self) -> Epsilon | None:
        """The claim, of its own kind, which may differ from the cell's where messages were captured."""
        return self._of_claim(self.privacy.claimed)

    @property
    def accounted(self) -> Epsilon | None:
        """The total of the ledger."""
        return None if self.privacy.accounted is None else self.asked.like(self.privacy.accounted)

    @property
    def accounted_stated(self) -> Epsilon | None:
        """Accounted epsilon on the source's own stated sensitivities."""
        stated = self.privacy.accounted_stated
        return None if stated is None else self.asked.like(stated)

    @property
    def observed(self) -> Epsilon | None:
        """The lower bound that an attack shows, of the claim's kind."""
        return self._of_claim(self.privacy.observed)

    def _of_claim(self, bare: float | None) -> Epsilon | None:
        """Return a number with the claim's kind, where the record states that; else with the cell's."""
        said = (self.released.claim if self.released is not None else None) or {}
        delta, adjacency, unit = said.get("delta"), said.get("adjacency"), said.get("unit")
        if bare is None or not isinstance(delta, float) or adjacency not in [*ADJACENCIES] or unit not in [*UNITS]:
            return None if bare is None else self.asked.like(bare)
        return Epsilon(bare, delta, adjacency, unit)


class ErrorRecord(Frozen):
    """Something that failed: where, and the message."""

    cell: str
    stage: str
    message: str


def finite_json(value: Any) -> Any:
    """Replace infinities by the string "inf", as plans and records write them."""
    if isinstance(value, dict):
        return {key: finite_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite_json(item) for item in value]
    return "inf" if isinstance(value, float) and value == float("inf") else value


Plain = Annotated[Any, PlainSerializer(finite_json)]
"""Anything JSON can hold, infinities written as the string "inf"."""


_MAPPINGS = (
    "data",
    "clients",
    "backbone",
    "similarity",
    "privacy",
    "threat",
    "knowledge",
    "resources",
    "transcript",
)
"""Sections of a plan with keys of their own."""
_NESTED: dict[str, tuple[str, ...]] = {
    "data": ("split", "attacker_from", "classes", "domains", "attributes"),
    "clients": (),
    "backbone": ("mean", "std"),
}
"""Sections that pages quote, each with the keys that hold more than one value."""


def _counted(facts: Any) -> Iterator[tuple[str, Any]]:
    """Return the numbers in the facts about the data of one seed, by their names there."""
    persons = facts.get("persons") if isinstance(facts, dict) else None
    for held, key in ((facts, "records"), (persons, "persons")):
        roles = held.get(key) if isinstance(held, dict) else None
        yield from ((f"{key}.{role}", count) for role, count in roles.items()) if isinstance(roles, dict) else ()
    if isinstance(persons, dict) and isinstance(persons.get("persons"), dict):
        yield "persons.most_records", persons.get("most_records")


class RunRecord(Frozen):
    """The document that `fedassay run` writes and that every report reads.

    Attributes:
        schema_: Version of this document.
        plan: The resolved plan, every default filled in.
        environment: Versions, machine facts, git revision, times: not part of the result.
        data: Numbers of records of the roles and clients, and the records dropped, with reasons.
        cells: One entry per method entry, epsilon, delta and seed.
        errors: Failures; other cells are unaffected.
        redacted: Whether pictures, class names and transcripts were left out (`--redact`).
        unfinished: The missing parts of a stopped run; None: it is complete.
    """

    schema_: int = Field(default=SCHEMA, alias="schema")
    plan: Plain
    environment: dict[str, Any]
    data: Plain = Field(default_factory=dict)
    cells: Annotated[tuple[CellRecord, ...], FailFast()]
    errors: tuple[ErrorRecord, ...] = ()
    redacted: bool = False
    unfinished: Unfinished | None = None

    @field_validator("plan")
    @classmethod
    def _sections(cls, plan: Any) -> Any:
        """Check the types of those parts of a plan that pages read: a record may have been written by hand."""
        if not isinstance(plan, dict):
            raise ValueError(f"given {shown(plan)}; must be a mapping")
        for name, kind, words in (
            *((name, dict, "a mapping") for name in _MAPPINGS),
            *((name, list | tuple, "a list") for name in ("methods", "attacks", "audits")),
        ):
            if plan.get(name) is not None and not isinstance(plan[name], kind):
                raise ValueError(f"{name}: given {shown(plan[name])}; must be {words}")
        for name, nested in _NESTED.items():
            for key, value in (plan.get(name) or {}).items():
                if key not in nested and isinstance(value, dict | list | tuple):
                    raise ValueError(f"{name}.{key}: given {shown(value)}; must be a single value")
        return plan

    @field_validator("data")
    @classmethod
    def _counts(cls, data: Any) -> Any:
        """Check that the counts that pages show and add up are whole numbers of records or persons."""
        for facts in data.values() if isinstance(data, dict) else ():
            for name, counts in _counted(facts):
                if type(counts) is not int or counts < 0:
                    raise ValueError(f"{name}: given {shown(counts)}; must be a whole number of 0 or more")
        return data

    @model_validator(mode="after")
    def _alike(self) -> Self:
        """Cells of one record stand on one plan, and those of one seed on the same data and weights."""
        seen: dict[int | None, CellRecord] = {}
        for cell in self.cells:
            if cell.basis is None:
                continue
            for other in (seen.setdefault(cell.seed, cell), next(iter(seen.values()))):
                assert other.basis is not None
                same = ("data", "weights") if other.seed == cell.seed else ()
                for name in ("plan", "cells", *same):
                    if getattr(cell.basis, name) != getattr(other.basis, name):
                        raise ValueError(
                            f"the cells {shown(other.key)} and {shown(cell.key)} stand on unlike {name}: they are "
                            f"of no single run"
                        )
        return self

    def save(self, folder: Path) -> None:
        """Write record.json into `folder`, whole or not at all."""
        write_text(folder / FILE, self.to_json())

    def to_json(self) -> str:
        """The document as it stands on disk."""
        return plain_json(self.model_dump_json(by_alias=True, indent=1)) + "\n"


def load_record(run: Path) -> RunRecord:
    """Read the record of a run folder, or a record.json itself.

    Raises:
        DataError: Missing, truncated, hand-edited out of shape, or of another schema.
    """
    path, named = (run / FILE, False) if os.path.isdir(run) else (run, True)
    if not os.path.lexists(path):
        raise DataError(
            f"{shown_path(run)}: no {FILE} there; RUN is a folder that `fedassay run` wrote, or its {FILE}"
        )
    content = read_json(path, follow=named)
    try:
        record = RunRecord.model_validate_json(content)
    except ValidationError as error:
        version = _version(content)
        if version is not None and version != SCHEMA:
            raise _other(path, version) from None
        raise DataError(explain(error, RunRecord, str(path), whole="not a record")) from None
    if record.schema_ != SCHEMA:
        raise _other(path, record.schema_)
    return record


def _other(path: Path, version: int) -> DataError:
    return DataError(f"{path}: holds schema {version}; allowed: {SCHEMA}, which this fedassay writes")


def _version(content: bytes) -> int | None:
    import json

    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    version = found.get("schema") if isinstance(found, dict) else None
    return version if isinstance(version, int) else None
