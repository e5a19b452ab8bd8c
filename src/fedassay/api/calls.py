"""The commands of the command line as functions: the same work and messages, a `Run` instead of an exit code."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedassay.api.inputs import as_policy, as_scenario
from fedassay.api.run import Run
from fedassay.support import limits
from fedassay.support.devices import Device
from fedassay.support.errors import DataError, PlanError

if TYPE_CHECKING:
    import pandas

    from fedassay.api.comparison import Comparison
    from fedassay.plan.schema import Plan
    from fedassay.reports.gate.judging import Outcome
    from fedassay.reports.gate.policy import Policy

Where = str | os.PathLike[str]
"""A path."""

_LOG = logging.getLogger("fedassay")


def run(
    plan: Where | Mapping[str, Any] | Plan,
    output: Where | None = None,
    *,
    overrides: Sequence[str] = (),
    base: Where | None = None,
    scale: float = 1.0,
    engine: Literal["local", "ray"] = "local",
    jobs: int = 1,
    device: Device = "auto",
    resume: bool = False,
    force: bool = False,
    redact: bool = False,
    progress: bool = True,
) -> Run:
    """Run a plan: every method, attacked and audited, into one record and report.

    An odd plan that can still be run is logged as a warning of the logger `fedassay`. A cell that fails raises no
    exception: see `Run.errors`.

    Args:
        plan: A file, one that ships with fedassay (`configs/quickstart.yaml`), the same as a mapping, or a `Plan`.
        output: The run folder; None: `runs/<name>-<UTC time>`.
        overrides: Keys to change, as `--set` takes them: `"data.limit=300"`.
        base: Folder that relative paths are looked up in, for a plan that is not a file; None: the current one.
        scale: Make the plan smaller by one factor: records, clients, seeds, epochs, steps (`fedassay.plan.scale`).
        engine: The engine that runs cells.
        jobs: Cells at once.
        device: Device of the computation.
        resume: Continue the run in `output`; finished cells are kept.
        force: Replace the run in `output`.
        redact: Leave out every private picture, transcript and class name.
        progress: Show how far the run is: bars on a terminal, a line in a notebook, a line a minute in a log.

    Returns:
        The run, also where cells failed.

    Raises:
        PlanError: The plan is wrong, or the run folder is in use.
        DataError: The data, or a file that the plan names, cannot be used.
    """
    from fedassay.execution.runner import RunOptions, run_scenario

    scenario = as_scenario(plan, overrides, base, scale)
    for warning in scenario.warnings:
        _LOG.warning("%s", warning)
    options = RunOptions(
        device=device, jobs=jobs, engine=engine, resume=resume, force=force, redact=redact, quiet=not progress
    )
    folder, record = run_scenario(scenario, None if output is None else Path(output), options)
    return Run(record, folder)


def audit(
    transcript: Where,
    output: Where | None = None,
    *,
    plan: Where | Mapping[str, Any] | None = None,
    again: Sequence[Where] = (),
    kinds: Mapping[str, str] | None = None,
    clients: int | None = None,
    classes: int | None = None,
    aggregate: bool = False,
    scale: float | None = None,
    modulus: int | None = None,
    downlink: Where | None = None,
    gallery: Where | None = None,
    trust_declared: bool = False,
    base: Where | None = None,
    minutes: float = limits.CAPTURED_MINUTES,
    device: Device = "auto",
    force: bool = False,
    redact: bool = False,
    progress: bool = True,
) -> Run:
    """Audit messages of your own system, as `fedassay.record` or a transcript of your own making holds them.

    Args:
        transcript: Folder with a transcript.json; or a file of arrays as a system left it, or a folder of them.
        output: The run folder; None: `runs/<name>-<UTC time>`.
        plan: Source of the attacker's images and the backbone: a file, or the same as a mapping. None: attacks
            that learn are not run.
        again: The same messages captured again, of the same records: they measure the noise.
        kinds: For files: kinds of arrays, by name.
        clients: For files: number of clients that sent them; 1: all are one message.
        classes: For files: the number of classes.
        aggregate: For files: they hold sums over all clients.
        scale: For files: whole numbers are numbers times this, rounded, as secure aggregation sends them.
        modulus: For files: whole numbers are remainders modulo this.
        downlink: For files: the model that the server had sent to clients.
        gallery: Candidates that may be in the messages: an `.npz` file of features and labels, or a folder.
        trust_declared: Trust the declared kinds of fields, instead of inferring them from the arrays.
        base: As in `run`.
        minutes: Refuse messages if the attacks on them are estimated to take longer.
        device: As in `run`.
        force: As in `run`.
        redact: As in `run`.
        progress: As in `run`.

    Raises:
        DataError: The transcript, or the plan's data, cannot be used.
        PlanError: The plan is wrong, or the run folder is in use or lies in the transcript's.
    """
    from fedassay.console import plan_file
    from fedassay.execution.captured import AuditOptions, audit_transcript, scenario_of_adversary
    from fedassay.plan.schema import Scenario
    from fedassay.recorders.files.reading import Corrections

    folder = Path(transcript)
    if not folder.exists():
        raise DataError(
            f"{folder}: no such file or folder; allowed: a folder with a transcript.json, a file of arrays, or a "
            "folder of such files"
        )
    options = AuditOptions(
        device=device,
        force=force,
        redact=redact,
        quiet=not progress,
        minutes=minutes,
        again=tuple(Path(other) for other in again),
        trust_declared=trust_declared,
        gallery=None if gallery is None else Path(gallery),
        corrections=Corrections(
            dict(kinds or {}),
            clients,
            aggregate,
            None if downlink is None else Path(downlink),
            classes,
            scale,
            modulus,
        ),
    )
    adversary: Path | Scenario | None = None
    if isinstance(plan, Mapping):
        adversary = scenario_of_adversary(plan, Path(base or ".").resolve(), "plan")
    elif plan is not None:
        adversary = plan_file(Path(plan))
    out, record = audit_transcript(folder, adversary, None if output is None else Path(output), options)
    return Run(record, out)


def load(run: Where) -> Run:
    """A run that was made before, of any version.

    Args:
        run: Its folder, or its record.json.

    Raises:
        DataError: There is no record, or it cannot be read.
    """
    from fedassay.records.record import load_record

    path = Path(run)
    return Run(load_record(path), path if path.is_dir() else path.parent, path)


def runs(folder: Where = "runs") -> pandas.DataFrame:
    """All runs below a folder as one table, the latest first; `fedassay view` makes a page of the same rows.

    `run` is the folder of a run, to be given to `load`; `answer`, `headline` and `worst` are those of the shipped
    policy that fits; of a record that cannot be read, `problem` says why.

    Args:
        folder: Holds run folders, or is one.

    Raises:
        DataError: There is no such folder, or no run in it.
        MissingExtraError: pandas is not installed.
    """
    from fedassay.api.frames import RUNS, frame, run_rows

    return frame(run_rows(Path(folder)), RUNS, "runs")


def check(
    run: Where | Run,
    policy: Where | Mapping[str, Any] | Policy,
    *,
    key: Where | None = None,
    unverified: bool = False,
) -> Outcome:
    """Check a run against a policy.

    Args:
        run: A run, its folder, or its record.json. Files that were changed since they were written are refused; a
            run made by this process is taken as it is.
        policy: A file, the name of one that ships (`strict`, `research`, `messages`), the same as a mapping, or a
            `Policy`.
        key: Public key (PEM) of the required signer of the run; None: no signature is required.
        unverified: Decide on an unverifiable run, such as a bare record.json; without it the outcome is that this
            could not be decided.

    Returns:
        The outcome: `exit_code` is 0 where the run passes, 1 where it breaks the policy, 2 where that could not be
        decided; `judgements` and `text()` say why.

    Raises:
        PlanError: The policy is wrong.
        DataError: There is no record, it was altered, or `key` did not sign it.
    """
    held = as_policy(policy)
    return (run if isinstance(run, Run) else load(run)).check(held, key=key, unverified=unverified)


def compare(*runs: Where | Run) -> Comparison:
    """Put several runs side by side.

    Raises:
        PlanError: Fewer than two runs.
        DataError: One of them cannot be read.
    """
    from fedassay.api.comparison import Comparison

    if len(runs) < 2:
        raise PlanError(f"compare: given {len(runs)} run(s); two or more are needed")
    return Comparison(tuple(run if isinstance(run, Run) else load(run) for run in runs))


def read_plan(plan: Where) -> dict[str, Any]:
    """The contents of a plan file, to be changed and run.

    Args:
        plan: A file, or one that ships with fedassay.

    Raises:
        PlanError: There is no such file, or it is no mapping.

    Example:
        >>> plan = read_plan("configs/quickstart.yaml")
        >>> plan["name"]
        'quickstart'
        >>> plan["data"]["limit"] = 300
    """
    from fedassay.console import plan_file
    from fedassay.plan.schema import read_yaml

    return read_yaml(plan_file(Path(plan)))
