"""The command line. Nothing here imports torch before a command needs it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import click

from fedassay.support import limits
from fedassay.support.errors import (
    DataError,
    FedassayError,
    PlanError,
    first_line,
    is_of_a_library,
    is_out_of_memory,
    unexpected,
)
from fedassay.support.signals import Stopped, stop_in_order
from fedassay.support.terminal import (
    LONGEST_MESSAGE,
    Amount,
    Output,
    guard_standard_error,
    is_stream,
    say,
    say_json,
    say_lines,
    say_problem,
)
from fedassay.support.text import cut, encodable
from fedassay.support.version import __version__

_F = TypeVar("_F", bound=Callable[..., Any])

_TRACEBACK = "FEDASSAY_TRACEBACK"
"""Environment variable that lets unforeseen errors through, with their traceback."""
_LISTED = ("methods", "attacks", "audits", "datasets", "backbones", "configs")
_DIFFERENCES = 5
"""Differences from a baseline that `check` has room for on one screen."""
_FORMATS = ("html", "md", "latex", "json", "csv", "sarif", "junit", "evidence")


def main() -> None:
    """Entry point: user errors end in one message and exit code 2, failed work in 1, signals in 128 and theirs."""
    guard_standard_error()
    stop_in_order()
    stream = sys.stdout
    try:
        plain = False if "NO_COLOR" in os.environ else None
        code = cli.main(prog_name="fedassay", standalone_mode=False, color=plain)
    except FedassayError as error:
        say(cut(f"fedassay: {error}", LONGEST_MESSAGE), err=True)
        sys.exit(2)
    except click.exceptions.Abort:
        say(f"fedassay: stopped; {_kept()}", err=True)
        sys.exit(130)
    except Stopped as stopped:
        say(f"fedassay: stopped by {stopped.name}; {_kept()}", err=True)
        sys.exit(128 + stopped.number)
    except click.ClickException as error:
        say_problem(error)
        sys.exit(2)
    except SystemExit:
        # Click prints help itself; where its reader has had enough, it wraps the stream and ends with 1.
        if sys.stdout is stream:
            raise
        sys.exit(0)
    except BaseException as error:
        # Panics of libraries in Rust are none of Exception.
        if not (isinstance(error, Exception) or is_of_a_library(error)) or os.environ.get(_TRACEBACK):
            raise
        say(cut(f"fedassay: {_failure(error)}; {_kept()}", LONGEST_MESSAGE), err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _failure(error: BaseException) -> str:
    """Words on an error that no part of a command turned into words."""
    if is_out_of_memory(error):
        return f"out of memory ({first_line(error)})"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    return f"a part of it broke off, {unexpected(error)}; {_TRACEBACK}=1 prints where"


def _kept() -> str:
    """Words on the work that a command finished before it was stopped."""
    command = sys.argv[1:2]
    if "--redact" in sys.argv and command in (["run"], ["audit"]):
        return "nothing private is kept; a run with --redact starts again"
    return "what was finished is kept" + (", continue with --resume" if command == ["run"] else "")


def _quiet(function: _F) -> _F:
    return click.option("--quiet", is_flag=True, help="Print nothing but errors and what was asked for.")(function)


def _json(function: _F) -> _F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def _switch(name: str, variable: str, words: str) -> Callable[[_F], _F]:
    """An option that sets an environment variable, which worker processes inherit."""

    def turn_on(_context: click.Context, _option: click.Parameter, given: bool) -> None:
        if given:
            os.environ[variable] = "1"

    return click.option(name, is_flag=True, expose_value=False, is_eager=True, callback=turn_on, help=words)


_shared = _switch("--shared", "FEDASSAY_SHARED", "Let others read what is written, as far as your umask does.")
_offline = _switch("--offline", "FEDASSAY_OFFLINE", "Download nothing: what is missing is an error.")
_REDACT = "Leave out every private picture, transcript, class name and path, and say so on the page."


def _redact(function: _F) -> _F:
    return click.option("--redact", is_flag=True, help=_REDACT)(function)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Meanings of words in reports and plans: docs/glossary.md.",
)
@click.version_option(__version__, prog_name="fedassay")
def cli() -> None:
    """Assay what a one-shot federated learning method gives away."""


@cli.command(short_help="Run PLAN: every method, attacked and audited.")
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=Output(folder=True), help="Run folder; default runs/<name>-<UTC time>.")
@click.option("--set", "assignments", multiple=True, metavar="A.B=C", help="Override a key of the plan.")
@click.option(
    "--scale",
    type=float,
    default=1.0,
    show_default=True,
    help="Make the plan smaller by one factor: records, clients, seeds, epochs, steps (docs/papers.md).",
)
@click.option(
    "--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True, help="Where cells run."
)
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Cells at once.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--resume", is_flag=True, help="Continue the run in OUTPUT; finished cells are kept.")
@click.option("--force", is_flag=True, help="Replace the run in OUTPUT.")
@click.option("--dry-run", is_flag=True, help="Check the plan and print its cells; run nothing.")
@_redact
@_shared
@_offline
@_quiet
@_json
def run(
    plan: Path,
    output: Path | None,
    assignments: tuple[str, ...],
    scale: float,
    engine: str,
    jobs: int,
    device: str,
    resume: bool,
    force: bool,
    dry_run: bool,
    redact: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Run PLAN: every method, attacked and audited, into one record and report."""
    from fedassay.console import plan_file, print_outcome
    from fedassay.plan.files import check_files
    from fedassay.plan.own_images import check_images
    from fedassay.plan.published import check_published, trunk_remarks
    from fedassay.plan.resolve import load_plan, load_scenario
    from fedassay.plan.scale import scaled

    plan = plan_file(plan)
    # Before the components are looked at, which import torch: a wrong path is reported at once.
    named, base = load_plan(plan, assignments), plan.resolve().parent
    check_files(named, base)
    check_images(scaled(named, scale, base, str(plan)), base)
    scenario = load_scenario(plan, assignments, scale)
    to_fetch = check_published(scenario.plan, scenario.base)
    if dry_run:
        from fedassay.console import print_cells

        print_cells(scenario, as_json, device, [*(each.remark for each in to_fetch), *trunk_remarks(scenario)])
        return 0
    from fedassay.execution.runner import RunOptions, run_scenario
    from fedassay.plan.estimate import foreseen

    options = RunOptions(
        device=device,
        jobs=jobs,
        engine="ray" if engine == "ray" else "local",
        resume=resume,
        force=force,
        redact=redact,
        quiet=quiet,
        command=_command(),
    )
    for warning in () if quiet else (*foreseen(scenario), *scenario.warnings):
        say(f"warning: {warning}", err=True)
    folder, record = run_scenario(scenario, output, options)
    return print_outcome(record, folder, quiet, as_json)


@cli.command(short_help="Audit messages of your own system.")
@click.argument("transcript", type=click.Path(path_type=Path), required=False)
@click.option(
    "--kinds",
    multiple=True,
    metavar="NAME=KIND",
    help="Of files: what an array means (docs/transcript.md lists kinds). May be repeated.",
)
@click.option(
    "--clients", type=click.IntRange(min=1), help="Of files: how many clients sent them; 1: all are one message."
)
@click.option("--classes", type=click.IntRange(min=1), help="Of files: the number of classes.")
@click.option("--aggregate", is_flag=True, help="Of files: they hold sums over all clients.")
@click.option(
    "--scale",
    type=click.FloatRange(min=0, min_open=True),
    help="Of files: whole numbers are others times this, rounded, as secure aggregation sends them.",
)
@click.option(
    "--modulus", type=click.IntRange(min=2, max=1 << 64), help="Of files: whole numbers are remainders of this."
)
@click.option(
    "--downlink", type=click.Path(path_type=Path), help="Of files: the model that the server had sent to clients."
)
@click.option(
    "--received",
    type=click.Path(path_type=Path),
    help="Instead of a transcript: a file (safetensors) that a server sent you. Is it a trap? Exit 0 or 1.",
)
@click.option(
    "--own",
    type=click.Path(path_type=Path),
    help="With --received: your records, an array x in an .npz, and of a backbone their features f and labels y.",
)
@click.option(
    "--fresh",
    is_flag=True,
    help="With --received: layers are said to be freshly drawn, by any initialisation that has a name.",
)
@click.option(
    "--bandwidth", type=click.FloatRange(min=0, min_open=True), help="With --received: of a map, as it is stated."
)
@click.option("--plan", type=click.Path(path_type=Path), help="Gives the attacker's images and the backbone.")
@click.option(
    "--again",
    type=click.Path(path_type=Path),
    multiple=True,
    help="The same messages captured again, of the same records: measures their noise. May be repeated.",
)
@click.option(
    "--gallery",
    type=click.Path(path_type=Path),
    help="Candidates that may be in the messages: .npz of features and labels, or with --plan a folder of images.",
)
@click.option(
    "--trust-declared", is_flag=True, help="Read fields as what they declare, and not as what their arrays are."
)
@click.option("-o", "--output", type=Output(folder=True), help="Run folder; default runs/<name>-<UTC time>.")
@click.option(
    "--minutes",
    type=Amount(1e9),
    default=limits.CAPTURED_MINUTES,
    show_default=True,
    help="Refuse messages whose attacks are estimated to take longer.",
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--force", is_flag=True, help="Replace the run in OUTPUT.")
@_redact
@_shared
@_offline
@_quiet
@_json
def audit(
    transcript: Path | None,
    received: Path | None,
    own: Path | None,
    fresh: bool,
    bandwidth: float | None,
    plan: Path | None,
    again: tuple[Path, ...],
    gallery: Path | None,
    trust_declared: bool,
    output: Path | None,
    minutes: float,
    device: str,
    force: bool,
    redact: bool,
    quiet: bool,
    as_json: bool,
    **corrections: Any,
) -> int:
    """Audit TRANSCRIPT: messages of your own system.

    It is a folder with a transcript.json (docs/transcript.md), or what a system left on disk: a file of arrays
    (.npz, .npy, .safetensors, .pt, .pth, .json, .csv), or a folder of such files, one a client or a round. The
    first line says how they were read; --kinds, --clients, --classes, --aggregate, --scale, --modulus and
    --downlink correct it.

    With --received and --own instead: test what a server sent you on your own records.
    """
    from fedassay.console import plan_file, print_outcome

    if received is not None:
        return _received(transcript, received, own, fresh, bandwidth, quiet, as_json)
    if own is not None or fresh or bandwidth is not None:
        raise PlanError("audit: --own, --fresh and --bandwidth go with --received; allowed: all of them with it")
    if transcript is None:
        raise click.UsageError("Missing argument 'TRANSCRIPT'.")
    if not transcript.exists():
        raise DataError(
            f"{transcript}: no such file or folder; TRANSCRIPT is a folder with a transcript.json "
            f"(docs/transcript.md), as `fedassay run` writes into RUN/transcripts, or a file of arrays"
        )
    plan = None if plan is None else plan_file(plan)
    # It imports torch: a wrong path is reported before.
    from fedassay.execution.captured import AuditOptions, audit_transcript
    from fedassay.recorders.files.reading import Corrections

    options = AuditOptions(
        device=device,
        force=force,
        redact=redact,
        quiet=quiet,
        command=_command(),
        again=again,
        trust_declared=trust_declared,
        gallery=gallery,
        minutes=minutes,
        corrections=Corrections(**{**corrections, "kinds": _kinds(corrections["kinds"])}),
    )
    folder, record = audit_transcript(transcript, plan, output, options)
    return print_outcome(record, folder, quiet, as_json)


def _kinds(given: tuple[str, ...]) -> dict[str, str]:
    """Kinds of arrays, from `--kinds NAME=KIND`."""
    found = {}
    for words in given:
        name, equals, kind = words.rpartition("=")
        if not equals or not name:
            raise PlanError(f"--kinds {words}: allowed: NAME=KIND, such as sums=class_sums")
        found[name] = kind
    return found


def _received(
    transcript: Path | None,
    received: Path,
    own: Path | None,
    fresh: bool,
    bandwidth: float | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """`fedassay audit --received`."""
    from fedassay.exchange.received.check import check_received

    if transcript is not None:
        raise PlanError(f"audit: {transcript} and --received {received} given; allowed: one of them")
    if own is None:
        raise PlanError(f"audit: --received {received} needs your records to test it on; allowed: --own FILE.npz")
    found = check_received(received, own, fresh=fresh, bandwidth=bandwidth)
    if as_json:
        say_json(json.dumps(found.as_dict(), indent=1))
    elif not quiet:
        say_lines("\n".join(found.lines()))
    return int(found.found)


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--format", "format_", type=click.Choice(_FORMATS), default="html", show_default=True)
@click.option(
    "-o",
    "--output",
    type=Output(),
    help="File, or - for standard output (for csv and evidence: folder); default beside the record.",
)
@click.option("--policy", type=click.Path(path_type=Path), help="Policy of the decision; default strict.yaml.")
@click.option("--method", help="The method entry that evidence is about: its label or its name.")
@click.option("--epsilon", help="The epsilon that evidence is about; inf: without noise.")
@_redact
@_shared
@_quiet
@_json
def report(
    run: Path,
    format_: str,
    output: Path | None,
    policy: Path | None,
    method: str | None,
    epsilon: str | None,
    redact: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Render the record of RUN again."""
    from fedassay.console import load_named
    from fedassay.records.record import load_record
    from fedassay.records.redacted import redact as redacted
    from fedassay.reports import default_name, write_report

    held = None if policy is None else load_named(policy)
    _not_the_record(run, output)
    record = load_record(run)
    folder = run if run.is_dir() else run.parent
    if redact and not record.redacted:
        record = redacted(record)
        output = output or folder / default_name(format_, redacted=True)
    _no_json_beside(as_json, output)
    asked = None if epsilon is None else _epsilon(epsilon)
    _written(write_report(record, folder, format_, output, held, method, asked, pdf=True), quiet, as_json)
    return 0


@cli.command(short_help="Hold reconstructions of any tool against private images.")
@click.argument("private", type=click.Path(path_type=Path))
@click.argument("reconstructed", type=click.Path(path_type=Path))
@click.option("--lookalikes", type=click.Path(path_type=Path), help="Images that the attacker has anyway.")
@click.option(
    "--pairs",
    type=click.Choice(["auto", "matched", "assigned"]),
    default="auto",
    show_default=True,
    help="Matched by name or order, or assigned one to one by SSIM.",
)
@click.option("--lpips", default="auto", show_default=True, help="auto, alex, squeeze, none, or a trunk file.")
@click.option(
    "-o", "--output", type=Output(), help="The page, default similarity.html; CSV and LaTeX go beside it."
)
@click.option("--force", is_flag=True, help="Replace the files of OUTPUT.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@_shared
@_offline
@_quiet
@_json
def similarity(
    private: Path,
    reconstructed: Path,
    lookalikes: Path | None,
    pairs: str,
    lpips: str,
    output: Path | None,
    force: bool,
    device: str,
    quiet: bool,
    as_json: bool,
) -> int:
    """Hold RECONSTRUCTED against PRIVATE images: PSNR, SSIM and LPIPS of each pair, look-alikes, permutations.

    Each is a folder of images, an .npz or an .npy.
    """
    from fedassay.api.similarity import similarity_report

    if output is not None and not force:
        _nothing_there(output, *(output.with_suffix(ending) for ending in (".csv", ".tex") if output.name))
    found = similarity_report(
        private,
        reconstructed,
        lookalikes=lookalikes,
        pairs=pairs,  # type: ignore[arg-type]
        lpips=None if lpips == "none" else lpips,
        device=device,
    )
    if as_json:
        say_json(json.dumps(found.as_dict(), indent=1))
        return 0
    written = found.save(output or Path("similarity.html"))
    if not quiet and not is_stream(output):
        say_lines("\n".join(found.lines()))
        say(str(written))
    return 0


@cli.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "format_",
    type=click.Choice(["html", "md", "latex", "csv"]),
    default="html",
    show_default=True,
    help="The page, or methods by epsilon of all runs in one table.",
)
@click.option("-o", "--output", type=Output(), help="The file; default compare.html (.md, .tex, .csv).")
@_redact
@_shared
@_quiet
@_json
def compare(
    runs: tuple[Path, ...], format_: str, output: Path | None, redact: bool, quiet: bool, as_json: bool
) -> int:
    """Put several RUNS on one page, side by side."""
    from fedassay.records.record import load_record
    from fedassay.records.redacted import redact as redacted
    from fedassay.reports.document.compare import FORMATS, as_dict, write_comparison
    from fedassay.reports.gate.baseline import difference_lines, differences

    if len(runs) < 2:
        raise click.UsageError("compare needs at least two runs")
    _no_json_beside(as_json, output)
    place = Path(FORMATS[format_]) if output is None and not as_json else output
    for run in runs:
        _not_the_record(run, place)
    records = [(run, load_record(run)) for run in runs]
    if redact:
        records = [(run, redacted(record)) for run, record in records]
    if place is not None:
        write_comparison(records, place, format_)
    if as_json:
        written = {} if place is None else {"written": str(place)}
        say_json(json.dumps({**written, **as_dict(records)}, indent=1))
    elif place is not None:
        if not quiet:
            changed = differences(records[-1][1], records[0][1])
            say_lines("\n".join(difference_lines(changed, _DIFFERENCES, "on the page")), err=is_stream(place))
        _written(place, quiet, as_json)
    return 0


@cli.command(short_help="One page over all runs of FOLDER.")
@click.argument("folder", type=click.Path(path_type=Path), default=Path("runs"))
@click.option("-o", "--output", type=Output(), help="The page; default index.html in FOLDER.")
@click.option("--open", "show", is_flag=True, help="Open it in a browser.")
@_shared
@_quiet
@_json
def view(folder: Path, output: Path | None, show: bool, quiet: bool, as_json: bool) -> int:
    """Write one static page over all runs below FOLDER: name, date, answer, worst finding, links to reports."""
    from fedassay.reports.document.index import write_index

    written = write_index(folder, output)
    _written(written, quiet, as_json, show)
    return 0


@cli.command(short_help="Show what is read of a folder of images or of a plan's data.")
@click.argument("data", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=Output(), help="The page, - for standard output; default look-NAME.html.")
@click.option("--force", is_flag=True, help="Replace OUTPUT.")
@click.option("--set", "assignments", multiple=True, metavar="data.KEY=VALUE", help="Say how DATA is read.")
@click.option("--open", "show", is_flag=True, help="Open it in a browser.")
@_shared
@_offline
@_quiet
@_json
def look(
    data: Path,
    output: Path | None,
    force: bool,
    assignments: tuple[str, ...],
    show: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Write one page of thumbnails over DATA, a plan, a folder or an .npz file: what is read and what is left out.

    By class, site and part: counts, persons, sizes, brightness, and what looks odd. The page holds private images.
    """
    from fedassay.data.sheet import contact
    from fedassay.execution.listed import listed_at
    from fedassay.reports.document.look import page
    from fedassay.reports.document.output import write_page

    _no_json_beside(as_json, output)
    if output is not None and not force:
        _nothing_there(output)
    listed = listed_at(data, assignments)
    found = contact(listed)
    written = output or Path(f"look-{data.resolve().stem}.html")
    write_page(page(found, listed.account), written)
    if not (quiet or as_json):
        for warning in found.sheet.warnings:
            say(f"warning: {warning}", err=True)
    _written(written, quiet, as_json, show)
    return 0


@cli.command(short_help="Whether RUN is what was written.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--key", type=click.Path(path_type=Path), help="Public key (PEM, OpenSSH) of whoever must have signed the run."
)
@click.option("--policy", type=click.Path(path_type=Path), help="Policy that the pages in RUN were made with.")
@_quiet
@_json
def verify(run: Path, key: Path | None, policy: Path | None, quiet: bool, as_json: bool) -> int:
    """Whether RUN is what was written: files, tables and pages, and with --key its signature. Exit 0 or 1.

    RUN may be a folder of evidence as well, whose pages and decision are made again, or an archive of either.
    """
    from fedassay.console import load_named
    from fedassay.records.packed import opened
    from fedassay.reports.evidence.verify import is_evidence, verify_evidence
    from fedassay.reports.gate.verify import verify as verified

    with opened(run) as folder:
        if is_evidence(folder):
            if policy is not None:
                raise PlanError(f"--policy {policy}: evidence holds its own policy; allowed: no --policy")
            found = verify_evidence(folder, key)
        else:
            found = verified(folder, key, None if policy is None else load_named(policy))
    if as_json:
        say_json(json.dumps(found.as_dict(), indent=1))
    elif not quiet:
        say_lines(found.text())
    elif found.problems:
        say_lines("\n".join(found.problems), err=True)
    return 1 if found.problems else 0


@cli.command("sign", short_help="Sign RUN with a key.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--key",
    required=True,
    type=click.Path(path_type=Path),
    help="Your private key (PEM, or of OpenSSH); FEDASSAY_KEY_PASSWORD opens one that has a password.",
)
@_quiet
@_json
def sign_(run: Path, key: Path, quiet: bool, as_json: bool) -> int:
    """Sign what RUN vouches for, or a folder of evidence, so that `verify` and `check` can demand it with --key.

    The signature is a DSSE envelope of the run's statement, beside it. What does not hold is not signed.
    """
    from fedassay.execution.packing import sign_run

    signer = sign_run(run, key)
    if as_json:
        say_json(json.dumps({"signed": str(run), "signer": signer}))
    elif not quiet:
        say(
            f"signed by the key with SHA-256 {signer}; whoever has the public one: fedassay verify {run} --key KEY"
        )
    return 0


@cli.command("pack", short_help="One archive of RUN, redacted, to be kept.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=Output(), help="The archive; default: RUN.zip beside the folder.")
@click.option("--whole", is_flag=True, help="Pictures, transcripts and names go along.")
@click.option("--key", type=click.Path(path_type=Path), help="Private key that signs what is packed; see sign.")
@_quiet
@_json
def pack_(run: Path, output: Path | None, whole: bool, key: Path | None, quiet: bool, as_json: bool) -> int:
    """Write one archive of RUN, or of a folder of evidence; `check` and `verify` take it as it is.

    It holds what the run wrote and its evidence, and is redacted unless --whole is given.
    """
    from fedassay.execution.packing import pack

    if is_stream(output):
        raise PlanError(f"-o {output}: an archive is a file; allowed: the path of one")
    _written(pack(run, output, whole=whole, key=key), quiet, as_json)
    return 0


@cli.command(short_help="Hold RUN against a policy, for CI.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--policy",
    required=True,
    type=click.Path(path_type=Path),
    help="Policy: strict, research, messages or demonstration, which ship, or a file (docs/policy.md).",
)
@click.option(
    "--baseline", type=click.Path(path_type=Path), help="An earlier run: exit 1 where anything became worse."
)
@click.option(
    "--key", type=click.Path(path_type=Path), help="Public key (PEM, OpenSSH) of whoever must have signed the run."
)
@click.option(
    "--unverified", is_flag=True, help="Decide although nothing vouches for the run, such as a bare record."
)
@click.option("--method", help="Only this method entry: its label or its name.")
@click.option("--sarif", type=Output(), help="Also write SARIF here; - for standard output.")
@click.option("--junit", type=Output(), help="Also write JUnit XML here; - for standard output.")
@click.option("--verbose", is_flag=True, help="Print what every rule says of every release.")
@_quiet
@_json
def check(
    run: Path,
    policy: Path,
    baseline: Path | None,
    key: Path | None,
    unverified: bool,
    method: str | None,
    sarif: Path | None,
    junit: Path | None,
    verbose: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Hold RUN against a policy: exit 0 pass, 1 policy broken or worse than the baseline, 2 could not decide."""
    from fedassay.console import load_named, print_answer
    from fedassay.records.packed import opened
    from fedassay.records.record import load_record
    from fedassay.reports.answer.answer import answer as answer_to
    from fedassay.reports.decision.decision import asked_for
    from fedassay.reports.document.output import write_page
    from fedassay.reports.gate.check import check_run
    from fedassay.reports.gate.junit import junit as junit_text
    from fedassay.reports.gate.sarif import sarif as sarif_text

    _no_json_beside(as_json, sarif, junit)
    _not_the_record(run, sarif, junit)
    held = load_named(policy)
    with opened(run) as folder, nullcontext() if baseline is None else opened(baseline) as before:
        record = load_record(folder)
        old = None if before is None else load_record(before)
        if method is not None:
            held = held.put_to(group.label for group in asked_for(record, method, None))
        outcome = check_run(folder, held, key=key, unverified=unverified, baseline=old, method=method)
        if sarif is not None:
            write_page(sarif_text(record, outcome, held), sarif)
        if junit is not None:
            write_page(junit_text(record, outcome), junit)
        found = answer_to(record, held, method, judgements=outcome.judgements)
    if as_json:
        say_json(json.dumps({**outcome.as_dict(), "answer": found.as_dict()}, indent=1))
    elif not quiet:
        # A page that goes to standard output is all that stands there.
        aside = is_stream(sarif) or is_stream(junit)
        say_lines("\n".join(outcome.first_lines(None if verbose else _DIFFERENCES)), err=aside)
        print_answer(found, run, policy, err=aside)
        below = [*(outcome.details() if verbose else ()), outcome.provenance]
        say_lines("\n".join(filter(None, below)), err=aside)
    return outcome.exit_code


@cli.command("answer", short_help="Whether a method of RUN may be deployed, and why not.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--method", help="Only this method entry: its label or its name.")
@click.option("--epsilon", help="Only at this epsilon; inf: without noise.")
@click.option(
    "--policy", type=click.Path(path_type=Path), help="Policy by name or file; default: the one that fits."
)
@_quiet
@_json
def answer_(
    run: Path, method: str | None, epsilon: str | None, policy: Path | None, quiet: bool, as_json: bool
) -> int:
    """Say of RUN, or of a METHOD at an EPSILON, yes, no or not yet: the worst first, and what to do next."""
    from fedassay.console import load_named, print_answer
    from fedassay.records.record import load_record
    from fedassay.reports.answer.answer import answer as answer_to

    held = None if policy is None else load_named(policy)
    asked = None if epsilon is None else _epsilon(epsilon)
    found = answer_to(load_record(run), held, method, asked)
    if as_json:
        say_json(json.dumps(found.as_dict(), indent=1))
    elif quiet:
        say(found.headline)
    else:
        print_answer(found, run, policy)
    return 0


@cli.command("next", short_help="Print the plan of RUN with the change that decides most.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--method", help="Ask about this method entry: its label or its name.")
@click.option("--epsilon", help="Ask about this epsilon; inf: without noise.")
@click.option(
    "--policy", type=click.Path(path_type=Path), help="Policy by name or file; default: the one that fits."
)
def next_(run: Path, method: str | None, epsilon: str | None, policy: Path | None) -> int:
    """Print the plan of RUN with the change that decides most: `fedassay next RUN > next.yaml`."""
    from fedassay.console import load_named
    from fedassay.reports.answer.next_plan import next_plan

    held = None if policy is None else load_named(policy)
    asked = None if epsilon is None else _epsilon(epsilon)
    say_lines(next_plan(run, held, method, asked).removesuffix("\n"))
    return 0


@cli.command("list", short_help="List what a plan can name, and its keys.")
@click.argument("what", type=click.Choice(_LISTED))
@click.argument("name", required=False)
@click.option("--quiet", is_flag=True, help="Print the names only.")
@_json
def list_(what: str, name: str | None, quiet: bool, as_json: bool) -> int:
    """List what a plan can name; with the NAME of a method, attack or audit, its keys."""
    from fedassay.console import component_keys, listing, print_keys, print_problems

    if name is not None:
        print_keys(component_keys(what, name), name, quiet, as_json)
        return 0
    rows = listing(what)
    print_problems()
    if as_json:
        say_json(json.dumps([{"name": listed, "summary": summary} for listed, summary in rows], indent=1))
    else:
        width = max((len(listed) for listed, _ in rows), default=0)
        for listed, summary in rows:
            say(listed if quiet else f"{listed:<{width}}  {summary}".rstrip())
    return 0


@cli.command()
@click.argument("what", type=click.Choice(["plan", "policy", "record"]))
def schema(what: str) -> int:
    """Print the JSON schema of plans, policies or records, for editors and other programs."""
    from fedassay.console import json_schema, print_problems

    print_problems()
    say_json(json.dumps(json_schema(what), indent=1))
    return 0


@cli.command(short_help="Check plans or policies, without running anything.")
@click.argument("what", type=click.Choice(["plan", "policy"]))
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@_quiet
@_json
def validate(what: str, files: tuple[Path, ...], quiet: bool, as_json: bool) -> int:
    """Check FILES, which are plans or policies; no data is looked at. Exit 2 where one is wrong."""
    from fedassay.console import problem_in

    problems = {str(file): problem_in(what, file) for file in files}
    if as_json:
        say_json(json.dumps(problems, indent=1))
    for file, problem in problems.items():
        if problem is not None:
            say(f"fedassay: {problem}", err=True)
        elif not (quiet or as_json):
            say(f"{file}: a {what} that can be run" if what == "plan" else f"{file}: a policy")
    return 2 if any(problem is not None for problem in problems.values()) else 0


@cli.command()
@click.argument("file", type=Output(), default=Path("plan.yaml"))
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Your own images, a folder or an .npz file: the plan fits what is there.",
)
@click.option(
    "--label-column", help="Column of the labels: its name in a CSV, or its number in an array of several."
)
@click.option("--set", "assignments", multiple=True, metavar="data.KEY=VALUE", help="Say how --data is read.")
@_quiet
@_json
def init(
    file: Path,
    data: Path | None,
    label_column: str | None,
    assignments: tuple[str, ...],
    quiet: bool,
    as_json: bool,
) -> int:
    """Write a commented plan to start from."""
    from fedassay.console import time_of
    from fedassay.plan.starter import write_starter

    account = write_starter(file, data, label_column, assignments)
    if as_json:
        _written(file, quiet, as_json)
    elif not quiet:
        say_lines("\n".join(account))
        say(f"{file}: written; {time_of(file)}; try `fedassay run {file} --dry-run`")
    return 0


@cli.command()
@click.argument("action", type=click.Choice(["info", "clear", "hold", "drop"]), default="info")
@click.option("--limit", type=Amount(1e9), help="Remove what was unused longest, down to so many GiB.")
@_quiet
@_json
def cache(action: str, limit: float | None, quiet: bool, as_json: bool) -> int:
    r"""Show or empty the cache of features and attacker models.

    \b
    info   where it is and what it holds
    clear  remove every entry
    drop   remove all that is not of public records alone, and keep none of it from now on
    hold   keep private entries again, which is how it starts
    """
    from dataclasses import asdict

    from fedassay.support import cache as store

    if action != "info" and limit is not None:
        raise click.UsageError(f"{action} takes no --limit; it goes with info")
    if limit is None:
        facts = asdict({"clear": store.clear, "drop": store.drop, "hold": store.hold}.get(action, store.info)())
    else:
        facts = asdict(store.trim(int(limit * 2**30)))
    if as_json:
        say_json(json.dumps(facts, indent=1, default=str))
        return 0
    if action == "drop":
        facts = {name: facts[name] for name in ("folder", "private_entries", "private_bytes")}
    if action in {"clear", "drop"}:
        if quiet:
            return 0
        say("removed:")
    for name, value in facts.items():
        if value == "":
            continue
        words = name.replace("_", " ")
        say(f"{words}: {value:,}" if isinstance(value, int) else f"{words}: {value}")
    return 0


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    r"""Print a script that completes commands and options in SHELL.

    \b
    bash:  fedassay completion bash > ~/.local/share/bash-completion/completions/fedassay
    zsh:   fedassay completion zsh > ~/.zfunc/_fedassay     (a folder of your fpath)
    fish:  fedassay completion fish > ~/.config/fish/completions/fedassay.fish
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    say_lines(made(cli, {}, "fedassay", "_FEDASSAY_COMPLETE").source())
    return 0


def _epsilon(words: str) -> float:
    """An epsilon as it is typed.

    Raises:
        PlanError: It is no number above 0.
    """
    try:
        value = float(words)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise PlanError(f"--epsilon: given {words!r}; allowed: a number above 0, or inf")
    return value


def _no_json_beside(as_json: bool, *outputs: Path | None) -> None:
    """Refuse two documents on standard output."""
    streams = [str(output) for output in outputs if is_stream(output)]
    if len(streams) + as_json > 1:
        asked = " and ".join([*streams, *(["--json"] if as_json else [])])
        raise PlanError(f"{asked}: each writes to standard output; allowed: one of them, the others to files")


def _nothing_there(*outputs: Path) -> None:
    """Refuse to replace a file that the user may need."""
    for output in outputs:
        if output.is_file():
            raise PlanError(f"-o {output}: it is there already; allowed: another file, or --force to replace it")


def _not_the_record(run: Path, *outputs: Path | None) -> None:
    """Refuse to replace the record that is read."""
    from fedassay.records.record import FILE

    record = run / FILE if run.is_dir() else run
    for output in outputs:
        if output is not None and output.is_file() and record.is_file() and output.samefile(record):
            raise PlanError(f"{output}: it is the record that is read; allowed: another file")


def _written(path: Path, quiet: bool, as_json: bool, show: bool = False) -> None:
    """Say what was written, unless it was written to standard output itself, and open it in a browser if asked."""
    if is_stream(path):
        return
    if as_json:
        say_json(json.dumps({"written": str(path)}))
    elif not quiet:
        say(str(path))
    if show:
        click.launch(path.resolve().as_uri())


def _command() -> list[str]:
    return ["fedassay", *(encodable(word) for word in sys.argv[1:])]


from fedassay.execution.account import account  # noqa: E402 - a group of its own

cli.add_command(account)


@account.command("run")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--cells", multiple=True, help="Only these cells, by key or label; give it once for each.")
@_json
def account_run(run: Path, cells: tuple[str, ...], as_json: bool) -> int:
    """Account for the private cells of RUN together, if all of them are published on the same records."""
    from fedassay.exchange.run_ledger import chosen, together
    from fedassay.records.record import load_record

    totals = together(chosen(load_record(run), cells))
    if as_json:
        say_json(json.dumps([each.as_dict() for each in totals], indent=1))
        return 0
    for each in totals:
        say(each.text)
    if not totals:
        say("fewer than two of these cells claim a finite epsilon, or the record does not hold what was released")
    return 0
