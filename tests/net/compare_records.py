"""Compare the records that two versions of the package write, value by value.

    python tests/net/compare_records.py BEFORE [AFTER] [--cases quick] [--keep FOLDER]

BEFORE and AFTER are revisions of this repository; without AFTER it is the working tree, committed or not.
Every version runs from a copy of its own, with its own plans, one thread, and an empty cache for every case, so
that equal code writes equal records, bit by bit. What FOLDER/VERSION/CASE/record.json already holds is not run
again. Prints every difference. Exit code: 0 all records are equal, 1 some differ, 2 a case could not be run.

A change that is meant to move values inside the document (a new schema) is written into `MOVED` or `LEFT_OUT`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

LEFT_OUT = (
    r"environment\b.*",
    r"cells\[.*?\]\.seconds\b.*",
    r"cells\[.*?\]\.coverage\[.*?\]\.(further_)?seconds",
    r"plan\.transcript\.folder",
    r"schema",
    # Digests of the code, and of what is written in other words.
    r"cells\[.*?\]\.basis\b.*",
)
"""Patterns of places whose values differ between any two runs, or that only one version has."""

WORDS = (
    r"cells\[.*?\]\.findings\[.*?\]\.(reason|assumptions)",
    r"cells\[.*?\]\.findings\[.*?\]\.(metrics|baseline)\.[^.]+\.reason",
    r"cells\[.*?\]\.findings\[.*?\]\.limit\.words",
    r"cells\[.*?\]\.findings\[.*?\]\.(controls\.\w+|all_controls\[.*?\])\.(release|detail)",
    r"cells\[.*?\]\.findings\[.*?\]\.(series|pictures)\b.*\.(title|caption)",
    r"cells\[.*?\]\.coverage\[.*?\]\.(reason|would_decide)",
    r"cells\[.*?\]\.tape\[.*?\]\.words",
    r"cells\[.*?\]\.(privacy\.(reason|warnings)|notes)",
)
"""Patterns of places that hold sentences: these decide nothing, and are compared with `--words` alone."""

_RENAMED = {
    "dp_claim.reruns": "dp_claim.mechanism_trials",
    "dp_claim.runs": "dp_claim.method_runs",
    "memorization.factor": "memorization.samples_per_record",
    "memorization.closest": "memorization.pictures",
    "memorization.draws": "memorization.permutations",
    "inversion.draws": "inversion.permutations",
    "reconstruction.draws": "reconstruction.permutations",
    "membership.clients_hold": "membership.client_tests",
    "feature_diffusion.limit": "feature_diffusion.max_vectors",
    "feature_inversion.limit": "feature_inversion.max_vectors",
    "gradient_inversion.limit": "gradient_inversion.max_images",
    "few_records.limit": "few_records.max_components",
}
"""Keys of a plan that have another name since, by the old one."""

MOVED = tuple((rf"^(plan\.\w+\[.*?\])\.{re.escape(old)}$", rf"\1.{new}") for old, new in _RENAMED.items())
"""(pattern, replacement) for places of BEFORE whose values stand somewhere else in AFTER."""


@dataclass(frozen=True)
class Case:
    """One record to compare.

    Attributes:
        plan: File under configs; None for a transcript that is audited without a plan.
        settings: `--set` of the run, chosen so that it takes seconds rather than minutes.
        audited: Case and cell whose transcript is audited; None: the plan is run.
        quick: Whether `--cases quick` runs it.
    """

    plan: str | None
    settings: tuple[str, ...] = ()
    audited: tuple[str, str] | None = None
    quick: bool = True


_DIFFUSION = ("data.limit=900", "data.size=8", "clients.count=6", "attacks.1.feature_diffusion.preset=tiny")
_MEMBERSHIP = (
    "data.limit=500",
    "clients.count=4",
    "methods.3.fedavg.local_epochs=3",
    "attacks.0.membership.shadows=4",
    "audits.0.membership={canaries: 40, trials: 4, releases: 500}",
)
_SWAPS = (
    "data.limit=500",
    "clients.count=3",
    "methods=[{fedcgs: {}}, {fedavg: {local_epochs: 1, rounds: 1}}]",
    "attacks=[{membership: {shadows: 4}}]",
    "audits=[{membership: {canaries: 40, records: 4, record_runs: 16, clients: 2, client_runs: 16}}]",
)
_GENERATOR = (
    "data.limit=500",
    "clients.count=3",
    "methods=[{feddiff: {epochs: 8, steps: 5, classifier: {epochs: 2}}}, {feddiff: {label: private, epsilon: 10, "
    "fmf: gaussian, epochs: 2, steps: 5, classifier: {epochs: 2}, dp_sgd: {epochs: 1, draws: 1}}}]",
    "audits=[{memorization: {control_records: 16}}, {dp_claim: {}}]",
)

_FEW = (
    "methods=[{fedpft: {components: 3, covariance: diag, epsilon: [.inf, 8]}}, {fedpft: {label: one component, "
    "components: 1, covariance: diag}}]",
    "clients.count=4",
    "attacks.0.few_records.sweeps=20",
)
_PARTS = ("methods=[{fedpft: {components: 1, covariance: diag, epsilon: [.inf, 8]}}]",)
_GRADIENTS = (
    "methods=[{fedsgd: {body: {name: mlp, hidden: 256}, batch: 4}}, {fedsgd: {label: private, body: {name: mlp, "
    "hidden: 256}, batch: 4, epsilon: 8}}]",
    "attacks.0.gradient_inversion.rounds=2",
)
_PROPERTY = ("audits.0.membership.client_runs=100", "privacy.epsilon=[.inf, 5]")
_WHITE_BOX = (
    "data.limit=600",
    "methods=[{feddiff: {epochs: 8, steps: 2, classifier: {epochs: 1}}}, {fedcvae: {local_epochs: 10, classifier: "
    "{local_epochs: 1}}}]",
    "attacks.0.membership={shadows: 2, tests: [loss, lira_online], draws: 2}",
    "privacy.epsilon=.inf",
)
_COLLUDING = (
    "data.limit=800",
    "clients.count=5",
    "threat={view: aggregate, colluding: 3}",
    "methods=[{fedcgs: {}}]",
)
_LABELS = (
    "clients.count=12",
    "methods=[{fedncm: {}}, {average: {}}]",
    "attacks=[{attribute_likelihood: {}}, {head_inversion: {}}]",
    "audits=[{attribute_inference: {attribute: label}}, {message: {}}, {ledger: {}}]",
)
_EVERYTHING = (
    "data.limit=600",
    "clients.count=3",
    "backbone={name: small_cnn_rectified, weights: public}",
    "privacy.epsilon=[.inf, 4]",
    "methods=[{fedcgs: {}}, {fedlog: {}}, {fedlog: {label: as released, mechanism: released_code}}]",
    "attacks=standard",
    "audits=standard",
)

CASES = {
    "digits": Case("digits.yaml"),
    "captured": Case(None, audited=("digits", "fedcgs-epsinf-delta1e-05-seed0")),
    "captured_plan": Case("digits.yaml", audited=("digits", "fedpft-epsinf-delta1e-05-seed0")),
    "feature_diffusion": Case("attacks/feature_diffusion.yaml", _DIFFUSION),
    "feature_inversion": Case("attacks/feature_inversion.yaml", ("attacks.1.feature_inversion.steps=20",)),
    "gram_factorization": Case("attacks/gram_factorization.yaml", ("data.limit=1000", "clients.count=10")),
    "label_distribution": Case("attacks/label_distribution.yaml", ("data.limit=2000",)),
    "membership": Case("attacks/membership.yaml", _MEMBERSHIP),
    "message_algebra": Case("attacks/message_algebra.yaml", ("data.limit=2000",)),
    "canaries_and_swaps": Case("attacks/membership.yaml", _SWAPS),
    "few_records": Case("attacks/few_records.yaml", _FEW),
    "head_reconstruction": Case("attacks/head_reconstruction.yaml"),
    "partial_reconstruction": Case("attacks/partial_reconstruction.yaml", _PARTS),
    "gallery": Case("attacks/gallery.yaml", ("data.limit=900",)),
    "colluding": Case("attacks/gallery.yaml", _COLLUDING),
    "malicious_server": Case("attacks/trapped_sums.yaml", ("data.limit=900",)),
    "surrogate_bodies": Case("attacks/surrogate_bodies.yaml", ("attacks.0.surrogate_bodies.surrogates=2",)),
    "gradient_inversion": Case("attacks/gradient_inversion.yaml", _GRADIENTS),
    "property": Case("attacks/property.yaml", _PROPERTY),
    "white_box_generators": Case("attacks/generator_membership.yaml", _WHITE_BOX),
    "labels_and_heads": Case("digits.yaml", _LABELS),
    "everything": Case("digits.yaml", _EVERYTHING),
    "persons": Case("persons.yaml", ("audits.1.membership.releases=200",), quick=False),
    "generator": Case("feddiff_digits.yaml", _GENERATOR, quick=False),
    "captured_claim": Case(None, audited=("generator", "private-eps10-delta1e-05-seed0"), quick=False),
    "claims": Case("claims.yaml", quick=False),
}


def version_of(revision: str | None) -> str:
    """The commit of a revision; for the working tree `tree-` and the git tree of all that is not ignored."""
    if revision is not None:
        return _git("rev-parse", "--short=12", "--verify", f"{revision}^{{commit}}").decode().strip()
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        _git("read-tree", "HEAD", **index)
        _git("add", "--all", ".", **index)
        return f"tree-{_git('write-tree', **index).decode().strip()[:12]}"


def records_of(version: str, cases: Sequence[str], keep: Path) -> dict[str, dict[str, Any]]:
    """The record of each case; runs what `keep` does not hold.

    Raises:
        RuntimeError: A case failed, as a whole or in a part.
    """
    home = keep / version
    with tempfile.TemporaryDirectory() as tree:
        for name in cases:
            if (home / name / "record.json").is_file():
                continue
            if not Path(tree, "src").is_dir():
                with tarfile.open(fileobj=io.BytesIO(_git("archive", version.removeprefix("tree-")))) as archive:
                    archive.extractall(tree, filter="data")
            _run(name, Path(tree), home)
    return {name: json.loads((home / name / "record.json").read_text()) for name in cases}


def _run(name: str, tree: Path, home: Path) -> None:
    case, out = CASES[name], home / name
    # A plan that a revision has not is that of the working tree.
    theirs = tree / "configs" / (case.plan or "")
    plan = [] if case.plan is None else [str(theirs if theirs.is_file() else ROOT / "configs" / case.plan)]
    if case.audited:
        wanted = ["audit", str(home / case.audited[0] / "transcripts" / case.audited[1])]
        wanted += ["--plan", *plan] if plan else []
    else:
        settings = ("resources.threads=1", *case.settings)
        wanted = ["run", *plan, *(word for setting in settings for word in ("--set", setting))]
    wanted += ["-o", str(out), "--device", "cpu", "--quiet", "--force"]
    shared = {f"FEDASSAY_{kind.upper()}": str(ROOT.parent / "shared" / kind) for kind in ("data", "weights")}
    with tempfile.TemporaryDirectory() as cache:
        own = {"PYTHONPATH": str(tree / "src"), "FEDASSAY_CACHE": cache, "OMP_NUM_THREADS": "1"}
        code = _fedassay(wanted, tree, shared | dict(os.environ) | own)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{home.name}: {name} ({spent.ru_utime + spent.ru_stime:.0f} s so far)", file=sys.stderr, flush=True)
    if code:
        # A record of a run in which something failed is no baseline.
        shutil.rmtree(out, ignore_errors=True)
        raise RuntimeError(f"{home.name}: {name} ended with exit code {code}")


def _fedassay(wanted: Sequence[str], folder: Path, environment: dict[str, str]) -> int:
    command = [sys.executable, "-m", "fedassay", *wanted]
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def _git(*arguments: str, **environment: str) -> bytes:
    env = dict(os.environ) | environment
    done = subprocess.run(["git", *arguments], cwd=ROOT, env=env, check=False, capture_output=True)
    if done.returncode:
        raise RuntimeError(done.stderr.decode().strip())
    return done.stdout


def values(record: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a record with its place, such as `cells[fedcgs inf 0].findings[message raw].verdict`.

    Entries of a list that say what they are stand under that name, so that one entry more does not shift the
    others; the order of the names is a value of its own.
    """
    if isinstance(record, dict) and record:
        for key, value in record.items():
            yield from values(value, f"{place}.{key}" if place else key)
    elif isinstance(record, list) and any(isinstance(item, dict | list) for item in record):
        names: list[str] = []
        for item in record:
            name = _name(item)
            again = sum(other.split("#")[0] == name for other in names)
            names.append(f"{name}#{again}" if again or not name else name)
            yield from values(item, f"{place}[{names[-1]}]")
        yield f"{place}[]", names
    else:
        yield place, record


def _name(item: Any) -> str:
    keys = ("label", "epsilon", "delta", "seed", "audit", "attack", "source", "selection", "field", "direction")
    keys += ("question", "role")
    return " ".join(str(item[key]) for key in keys if item.get(key) is not None) if isinstance(item, dict) else ""


def differences(before: Any, after: Any, *, words: bool = True) -> list[str]:
    """One line for every place whose value differs, or that only one of the records has; sentences if asked."""
    left_out = LEFT_OUT if words else (*LEFT_OUT, *WORDS)
    old, new = _compared(before, MOVED, left_out), _compared(after, (), left_out)
    lines = []
    for place in dict.fromkeys([*old, *new]):
        was, now = old.get(place, "(absent)"), new.get(place, "(absent)")
        if was != now:
            lines.append(f"{place}: {was[:400]} -> {now[:400]}")
    return lines


def _compared(record: Any, moved: Sequence[tuple[str, str]], left_out: Sequence[str]) -> dict[str, str]:
    """Place and JSON of every value that counts; of 1, 1.0 and true, JSON makes three."""
    found = {}
    for written, value in values(record):
        place = written
        for pattern, replacement in moved:
            place = re.sub(pattern, replacement, place)
        if not any(re.fullmatch(pattern, place) for pattern in left_out):
            found[place] = json.dumps(value, ensure_ascii=False)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    default = Path(tempfile.gettempdir(), "fedassay-net")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="a revision")
    parser.add_argument("after", nargs="?", help="a revision; without it, the working tree")
    parser.add_argument("--cases", nargs="+", default=["all"], choices=["all", "quick", *CASES])
    parser.add_argument("--words", action="store_true", help="compare sentences as well")
    parser.add_argument("--keep", type=Path, default=default, help=f"where records are kept; {default}")
    given = parser.parse_args(arguments)
    groups = {"all": list(CASES), "quick": [name for name, case in CASES.items() if case.quick]}
    chosen = {name for part in given.cases for name in groups.get(part, [part])}
    chosen |= {audited[0] for name in chosen if (audited := CASES[name].audited)}
    cases = [name for name in CASES if name in chosen]
    try:
        old, new = (
            records_of(version_of(revision), cases, given.keep.resolve())
            for revision in (given.before, given.after)
        )
    except RuntimeError as error:
        print(f"compare_records: {error}", file=sys.stderr)
        return 2
    equal = True
    for name in cases:
        lines, cells = differences(old[name], new[name], words=given.words), new[name]["cells"]
        size = f"{len(cells)} cells, {sum(len(cell['findings']) for cell in cells)} findings"
        print(f"{name}: {f'{len(lines)} differences' if lines else 'equal'} ({size})")
        print("".join(f"  {line}\n" for line in lines), end="")
        equal = equal and not lines
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
