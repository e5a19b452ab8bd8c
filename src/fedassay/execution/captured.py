"""Auditing a captured transcript: the messages of a deployed system, with none of our methods.

Analyses that need only messages run always: message algebra, Gram factorization, label histograms, the ledger of
declared releases and the check of the declared claim. Attacks that learn run where a plan gives the adversary
images of its own and a backbone. Everything else says why it cannot run. The record is the same document that
`fedassay run` writes, so that every report and policy reads it.

The private role of the plan's data belongs to no client here: it serves the controls, as records with known
images.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedassay.audits.claim.captured_again import measured_noise
from fedassay.data.class_labels import Classes
from fedassay.data.gallery import gallery_of
from fedassay.data.records import Records
from fedassay.exchange.colluders import colluders_of
from fedassay.exchange.cost import seconds_of
from fedassay.exchange.inference.derived import derived_from
from fedassay.exchange.inference.infer import Inferred, infer_kinds, with_inferred
from fedassay.exchange.inference.populations import populations_of
from fedassay.exchange.message import COLLUDER
from fedassay.exchange.transcript import MANIFEST, Transcript, kinds_in, load_transcript
from fedassay.execution import runfolder
from fedassay.execution.basis import basis_of_messages, key_of_digests
from fedassay.execution.captured_source import job_of_transcript
from fedassay.execution.cell import Work
from fedassay.execution.cell_job import CellJob, Place
from fedassay.execution.kinds_read import with_readings
from fedassay.execution.prepare import Prepared, prepare
from fedassay.execution.run_output import output_folder, write_run
from fedassay.plan.files import check_files
from fedassay.plan.rates import in_words
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import Scenario, parse_plan, read_yaml
from fedassay.recorders.files.reading import Corrections, Read, read_files
from fedassay.records.basis import keyed
from fedassay.records.manifest import note
from fedassay.records.record import RunRecord
from fedassay.records.redacted import redact
from fedassay.support import limits
from fedassay.support.devices import choose_device
from fedassay.support.environment import describe
from fedassay.support.errors import DataError, PlanError
from fedassay.support.progress import console
from fedassay.support.reading import read_regular
from fedassay.support.registry import entries
from fedassay.support.terminal import say
from fedassay.support.text import cut, encodable, shown

_WORTH_SAYING = 30.0
"""Estimated seconds from which on the estimate is printed."""


@dataclass(frozen=True)
class AuditOptions:
    """Options of an audit; `trust_declared` alone changes the result, and `redact` leaves the private part out."""

    device: str = "auto"
    force: bool = False
    redact: bool = False
    quiet: bool = False
    command: list[str] = field(default_factory=list)
    minutes: float = limits.CAPTURED_MINUTES
    """Estimated minutes of attacks on the messages above which nothing is started."""
    again: tuple[Path, ...] = ()
    """Transcripts of the same messages captured again, of the same records: they measure the noise."""
    trust_declared: bool = False
    """Whether fields are read as what they declare, and not as what their arrays are."""
    gallery: Path | None = None
    """Folder or file of candidates that may be in the messages."""
    corrections: Corrections = field(default_factory=Corrections)
    """Corrections to the reading of files that are no transcript."""


def audit_transcript(
    folder: Path, plan: Path | Scenario | None, output: Path | None, options: AuditOptions
) -> tuple[Path, RunRecord]:
    """Audit the transcript in `folder`, or files as a deployed system left them.

    Files are read as a transcript, which is kept in the run folder as transcripts/captured.

    Args:
        folder: Holds transcript.json; see docs/transcript.md. Or a file of arrays, or a folder of such files. Only
            read.
        plan: Gives the attacker's images, the backbone, the threat model and parameters of attacks: a file, or
            what `scenario_of_adversary` made of one; or None.
        output: The run folder; None: runs/<name>-<UTC time>.
        options: Device, overwriting, quietness.

    Returns:
        The run folder, and the record as written there.

    Raises:
        DataError: The transcript, or the plan's data, cannot be used.
        PlanError: The plan is wrong, or the run folder is in use or lies in the transcript's.
    """
    started = datetime.now(UTC)
    read = _read(folder, options)
    sent = load_transcript(folder) if read is None else read.transcript
    _check_claim(sent, folder)
    found = None if options.trust_declared else derived_from(sent, names=False) or populations_of(sent)
    sent = sent if found is None else found.transcript
    inferred = () if options.trust_declared else infer_kinds(sent)
    transcript = with_inferred(sent, inferred)
    _check_cost(transcript, folder, options)
    others = _captured_again(sent, folder, options.again)
    again = tuple(with_inferred(other, inferred) for other in others)
    if isinstance(plan, Path):
        plan = scenario_of_adversary(read_yaml(plan), plan.resolve().parent, str(plan))
    scenario = plan
    device = choose_device(options.device)
    out = output or Path("runs") / f"{'captured' if options.redact else _name(folder)}-{started:%Y%m%dT%H%M%SZ}"
    _must_lie_apart(out, folder)
    with output_folder(out, options.redact) as work, console(options.quiet) as progress:
        prepared = None
        if scenario is not None:
            prepared = prepare(scenario.plan, scenario.base, scenario.plan.seeds[0], device, progress)
            _matches(transcript, prepared, scenario)
        gallery = _candidates(options, transcript, prepared)
        place = Place(work, device, progress)
        job = job_of_transcript(transcript, scenario, prepared, place, again, gallery)
        _check_questions(job, transcript)
        job.similarity()  # wrong weights must be found before anything is written
        resolved = _described(job, transcript, scenario, folder, tuple(zip(options.again, again, strict=True)))
        about = resolved["transcript"]
        if read is not None:
            said = encodable(options.corrections.options)
            about |= {"read": encodable(read.text), "options": said, "sha256": read.sha256}
        if gallery is not None:
            given = options.gallery or (scenario and scenario.plan.knowledge.gallery)
            resolved["candidates"] = {"folder": encodable(str(given)), "count": len(gallery)}
        if not options.trust_declared:
            about["inferred"] = [_said(each) for each in inferred]
        key = key_of_digests() if options.redact else None
        if key is not None:
            for each in (about, *about.get("again", ())):
                each["sha256"] = keyed(each["sha256"], key)
        job = replace(job, basis=basis_of_messages(job, resolved, key))
        with runfolder.claim(out, resolved, resume=False, force=options.force, redact=options.redact):
            if read is not None:
                note(work, job.key, (f"transcripts/{job.key}/{name}" for name in sent.files()))
                read.transcript.save(work / "transcripts" / job.key)
            done = Work(job).run()
            runfolder.drop_scratch(work, job.key)
            cell = with_readings(done.cell, transcript, inferred)
            record = RunRecord(
                plan=resolved,
                environment=describe(device, options.command, started),
                data={} if prepared is None else {"plan": prepared.facts},
                cells=(cell,),
                errors=done.errors,
            )
            record = redact(record) if options.redact else record
            write_run(out, record)
    return out, record


def _must_lie_apart(out: Path, folder: Path) -> None:
    """Refuse a run folder in the messages' own, and the other way round.

    Raises:
        PlanError: One holds the other.
    """
    ours, theirs = out.resolve(), folder.resolve()
    if ours.is_relative_to(theirs) or theirs.is_relative_to(ours):
        raise PlanError(
            f"-o {out}: it lies in the transcript's folder, or holds it; allowed: a folder beside {folder}"
        )


def _candidates(options: AuditOptions, transcript: Transcript, prepared: Prepared | None) -> Records | None:
    """Candidates of the command line, else those of the plan; None where neither names any."""
    if options.gallery is None:
        return None if prepared is None else prepared.gallery
    extract = None if prepared is None or prepared.backbone is None else prepared.backbone.extract
    kinds = kinds_in(transcript.from_clients())
    headed = "head" in kinds
    classes = Classes(transcript.classes, transcript.class_names, headed, headed or "scaler_mean" not in kinds)
    found, again = gallery_of(options.gallery, classes, extract)
    if again and not options.quiet:
        say(f"{again:,} candidates of {options.gallery} are listed more than once, and count once", err=True)
    return found


def _check_questions(job: CellJob, transcript: Transcript) -> None:
    """Refuse more candidates than may be asked about of every sender that is seen by itself.

    Raises:
        DataError: These are too many questions.
    """
    gallery = job.known.gallery
    if gallery is None or job.threat.view != "per_client":
        return
    messages = transcript.from_clients()
    senders = {each.sender for each in messages if not all(item.secure for item in each.fields.values())}
    if len(gallery) * len(senders) > limits.ASKED:
        raise DataError(
            f"the gallery holds {len(gallery):,} candidates for each of {len(senders):,} senders; allowed: "
            f"{limits.ASKED:,} altogether, in fewer candidates or messages"
        )


def _read(path: Path, options: AuditOptions) -> Read | None:
    """Files as a transcript; None where the path is a transcript's folder."""
    if path.is_dir() and os.path.lexists(path / MANIFEST):
        if options.corrections.given:
            given = ", ".join(f"--{each.name}" for each in fields(Corrections))
            raise PlanError(f"{path}: holds a {MANIFEST}, which says what {given} say of other files; edit it")
        return None
    read = read_files(path, options.corrections, candidates=options.gallery is not None)
    if not options.quiet:
        say(read.text, err=True)
    return read


def _said(inferred: Inferred) -> dict[str, Any]:
    """Entry of the record on an inferred kind."""
    return {
        "field": encodable(inferred.field),
        "declared": inferred.declared,
        "kind": inferred.reading.kind,
        "read_as": inferred.read_as or inferred.declared,
        "candidates": list(inferred.reading.kinds),
        "status": inferred.status,
        "messages": inferred.messages,
        "text": encodable(inferred.text),
    }


def _check_claim(transcript: Transcript, folder: Path) -> None:
    """Refuse a claim that speaks of a field that no message has: it would hold of nothing.

    Raises:
        DataError: It does.
    """
    names = {name for message in transcript.from_clients() for name in message.fields}
    for name in getattr(transcript.claim, "covers", ()):
        if name not in names:
            raise DataError(
                f"{folder}: claim.covers: given {shown(name)}; allowed: fields that clients send, "
                f"{cut(', '.join(sorted(names)), 300)}"
            )


def _check_cost(transcript: Transcript, folder: Path, options: AuditOptions) -> None:
    """Say what the attacks on the messages will take, where that is long; refuse what takes too long.

    Raises:
        DataError: The estimate is above what the options allow.
    """
    seconds = seconds_of(transcript, 60 * options.minutes)
    if seconds > 60 * options.minutes:
        raise DataError(
            f"{folder}: attacks on these messages would take {in_words(seconds)} or more on one core, for the "
            f"width of their second moments and covariances and the records that these are made of; allowed: "
            f"{in_words(60 * options.minutes)}, or more with --minutes"
        )
    if seconds > _WORTH_SAYING and not options.quiet:
        say(f"attacks on these messages take about {in_words(seconds)} on one core", err=True)


def scenario_of_adversary(content: Mapping[str, Any], base: Path, where: str) -> Scenario:
    """The plan that captured messages are audited with; its methods are not run, so it may leave them out.

    Args:
        content: Content of the plan file.
        base: Folder that its relative paths are looked up beside.
        where: Names it in errors.

    Raises:
        PlanError: The first thing that is wrong with it.
        DataError: A file of weights is not there.
    """
    plan = parse_plan({"methods": [next(iter(entries("method")))], **content}, where)
    check_files(plan, base)
    return resolve(plan, base, where)


def _captured_again(transcript: Transcript, folder: Path, others: tuple[Path, ...]) -> tuple[Transcript, ...]:
    """Further captures that match the first, each another folder: one given twice would repeat its noise."""
    folders = [path.resolve() for path in (folder, *others)]
    twice = next((path for number, path in enumerate(folders) if path in folders[:number]), None)
    if twice is not None:
        raise PlanError(f"--again {twice}: given twice; allowed: other captures of the same records, each once")
    again = tuple(load_transcript(path) for path in others)
    if again:
        measured_noise((transcript, *again))  # refuses captures that do not match, before anything is run
    return again


def _matches(transcript: Transcript, prepared: Prepared, scenario: Scenario) -> None:
    colluding, known = scenario.plan.threat.colluding, len(colluders_of(transcript.messages))
    if colluding != known:
        raise PlanError(
            f"threat.colluding: {colluding} given, but {known} of the transcript's senders are called {COLLUDER}0 "
            f"and so on; allowed: {known}, or other names of the senders that collude"
        )
    if prepared.classes != transcript.classes:
        raise PlanError(
            f"data.name: {scenario.plan.data.name} has {prepared.classes} classes, the transcript declares "
            f"{transcript.classes}; both must speak of the same classes"
        )


def _described(
    job: CellJob,
    transcript: Transcript,
    scenario: Scenario | None,
    folder: Path,
    again: tuple[tuple[Path, Transcript], ...],
) -> dict[str, Any]:
    """Description of the run for the record: the transcript's identity, and the used parts of the plan."""
    clients = dict.fromkeys(message.sender for message in transcript.from_clients())
    facts: dict[str, Any] = {
        "folder": encodable(str(folder)),
        "method": transcript.method,
        "classes": transcript.classes,
        "messages": len(transcript.messages),
        "clients": len(clients),
        "rounds": len({message.round for message in transcript.messages}),
        "sha256": _digest(folder, transcript) if transcript.sources else "",
    }
    if named := _own_names(clients):
        facts["senders"] = named
    if again:
        facts["again"] = [
            {"folder": encodable(str(path)), "sha256": _digest(path, other)} for path, other in again
        ]
    out: dict[str, Any] = {
        "name": _name(folder),
        "transcript": facts,
        "threat": job.threat.model_dump(mode="json"),
    }
    if scenario is not None:
        resolved = scenario.resolved()
        out |= {
            key: resolved[key]
            for key in ("seeds", "data", "backbone", "similarity", "knowledge")
            if key in resolved
        }
    out["attacks"] = [{part.name: part.params} for part in job.attacks]
    out["audits"] = [{name: {}} for name in entries("audit")]
    return out


def _own_names(senders: Iterable[str]) -> list[str]:
    """The names of senders that are no numbers: they may identify the owners of the records."""
    names = {sender.removeprefix("client/") for sender in senders}
    return sorted(encodable(name) for name in names if not re.fullmatch(r"(colluder/?)?\d*|aggregate", name))


def _name(folder: Path) -> str:
    name = "".join(char if char.isalnum() or char in "._-" else "_" for char in folder.resolve().name)
    return name if name[:1].isalnum() else f"transcript{name}"


def _digest(folder: Path, transcript: Transcript) -> str:
    """SHA-256 over the names and contents of the files that a transcript names: a record says what it is about.

    What else lies in the folder is not part of it, and is not opened.
    """
    whole = hashlib.sha256()
    for name in sorted({MANIFEST, *transcript.sources}):
        part = hashlib.sha256(read_regular(folder / name, limits.MESSAGE_BYTES, follow=False)).hexdigest()
        whole.update(f"{name}:{part};".encode())
    return whole.hexdigest()
