"""Count false alarms on honest methods at finite epsilon.

    python tests/mutants/specificity.py RESULT.json [--data digits lfw fashion_mnist cifar10 FILE.npz] [--seeds 3]

Runs private methods as they ship, with every attack and audit that applies, and counts their findings. The methods
are intact, so a false alarm is

- `unsound` or `unsupported`, where the ledger adds up to what was asked: the claim holds;
- `leak`, in such a cell at an epsilon of 2 or less, where an attacker gains too little to be told from guessing.

No alarm, but set aside and counted, are findings on cells whose ledger adds up to more (something leaves exactly:
that is honestly a leak, and a claim that covers it is wrong), and leaks of labels where counts leave exactly
because the adjacency makes them public.

Findings that say only that nothing of their kind is sent, such as that of memorization on a method without
generators, do not apply: they are no judgement and leave nothing unjudged, and are counted apart.

    python tests/mutants/specificity.py RESULT.json --compare OLD NEW

Of the findings that read `no_leak_found` in one record, how many are conclusive in another one of the same plan.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from broken import CONCLUSIVE, Said, said_in

METHODS: tuple[dict[str, Any], ...] = (
    {"fedcgs": {}},
    {"fedcgs": {"label": "fedcgs central", "noise": "central", "secure_aggregation": "all"}},
    {"fedpft": {"components": 1}},
    {"fedpft": {"label": "fedpft noised", "components": 1, "counts": "noised", "adjacency": "add_remove"}},
    {"fedpft": {"label": "fedpft em", "components": 2, "counts": "noised", "adjacency": "add_remove"}},
)
"""Methods that compute in features, whose private form is quick on any data set."""

GENERATORS: tuple[dict[str, Any], ...] = (
    {"feddiff": {"steps": 5, "dp_sgd": {"epochs": 5}, "classifier": {"epochs": 1}}},
    {
        "fedcvae": {
            "local_epochs": 3,
            "hidden": 32,
            "latent": 4,
            "classifier": {"bodies": "mlp", "local_epochs": 1, "width": 8},
        }
    },
)
"""Methods that send generators of images, at sizes that one core trains in seconds."""

# fashion_mnist and cifar10 are not embedded: they are fetched on first use.
DATA: dict[str, dict[str, Any]] = {
    "digits": {"data": {"name": "digits"}, "backbone": {"name": "pixels"}},
    "lfw": {"data": {"name": "lfw_subset"}, "backbone": {"name": "pixels", "input_size": 8}},
    "fashion_mnist": {
        "data": {"name": "fashion_mnist", "limit": 1500},
        "backbone": {"name": "pixels", "input_size": 8},
    },
    "cifar10": {
        "data": {"name": "cifar10", "limit": 1500},
        "backbone": {"name": "pixels", "input_size": 8},
    },
}
FILE = ".npz"
"""Ending of files of one's own (x_train, y_train, x_test, y_test), which are read as the public sets are."""
EPSILONS = (1.0, 2.0)
ALARMS = ("leak", "unsound", "unsupported")


def plan_of(name: str, seed: int) -> dict[str, Any]:
    """The plan of one data set, or of a file, at one seed."""
    own = name.endswith(FILE)
    data = {"name": "npz", "path": str(Path(name).resolve()), "limit": 1500} if own else DATA[name]["data"]
    split = {"private": 0.2, "attacker": 0.2, "public": 0.05}
    official = own or name in ("fashion_mnist", "cifar10")
    return {
        "name": f"specificity-{Path(name).stem}",
        "seeds": [seed],
        "data": {**data, "split": split if official else {**split, "test": 0.2}},
        "clients": {"count": 4, "partition": "iid"},
        "backbone": {"name": "pixels", "input_size": 8} if own else DATA[name]["backbone"],
        "privacy": {"epsilon": list(EPSILONS), "delta": 1e-5},
        # Three and a generator a run, in turn: what a run takes grows with the square of its findings.
        "methods": [
            *(METHODS[(2 * seed + number) % len(METHODS)] for number in range(3)),
            GENERATORS[seed % len(GENERATORS)],
        ],
        "attacks": [
            "standard",
            {"membership": {"shadows": 0}},
            {"feature_diffusion": {"steps": 5, "max_vectors": 200}},
            {"feature_inversion": {"steps": 30}},
        ],
        "audits": "standard",
        "resources": {"threads": 1},
    }


def counted(record: dict[str, Any]) -> Iterator[tuple[Said, str]]:
    """The findings of a run, each with what it counts as: `clear`, `alarm`, `undecided`, `idle` or `aside`."""
    findings = iter(said_in(record))
    for cell in record["cells"]:
        accounted = cell["privacy"]["accounted"]
        private = accounted not in (None, "inf") and accounted <= cell["epsilon"] * (1 + 1e-6)
        exact = [row["kind"] for row in cell["ledger"] if row["exact"]]
        for held in cell["findings"]:
            finding, obstacle = next(findings), held.get("obstacle") or {}
            idle = finding.verdict == "not_run" and obstacle.get("kind") == "nothing_to_read"
            yield finding, "idle" if idle else _counts_as(finding, private, exact)


def _counts_as(finding: Said, private: bool, exact: Sequence[str]) -> str:
    if finding.verdict in ("inconclusive", "not_run"):
        return "undecided"
    if finding.verdict not in ALARMS:
        return "clear"
    if finding.verdict == "leak":
        labels = finding.source == "label_histograms" or finding.attack == "label_distribution"
        return "aside" if not private or (labels and exact) else "alarm"
    return "alarm" if private else "aside"


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts by audit, the alarms themselves, and limits of detection."""
    audits: dict[str, dict[str, int]] = {}
    alarms, limits = [], []
    names = {"clear": "clear", "alarm": "alarms", "undecided": "undecided", "idle": "idle", "aside": "aside"}
    for record in runs:
        for finding, kind in counted(record):
            own = audits.setdefault(finding.audit, dict.fromkeys(("findings", *names.values()), 0))
            own["findings"] += 1
            own[names[kind]] += 1
            if kind == "alarm":
                alarms.append({"plan": record["plan"]["name"], "cell": finding.cell, "reason": finding.reason})
            if finding.limit is not None:
                limits.append((finding.audit, *finding.limit))
    total = {key: sum(own[key] for own in audits.values()) for key in ("findings", *names.values())}
    names_of = [f"{run['plan']['name'].removeprefix('specificity-')} {run['plan']['seeds'][0]}" for run in runs]
    return {"audits": audits, "total": total, "alarms": alarms, "limits": limits, "runs": names_of}


def still_conclusive(kept: Sequence[dict[str, str]], now: Sequence[Said]) -> dict[str, Any]:
    """Of the silent findings of an earlier revision (cell, audit, attack, source, selection), which conclude now.

    A test may have been split since: any finding of the same cell, audit and attack whose source agrees counts.
    """
    lost = []
    for old in kept:
        alike = [
            item
            for item in now
            if (item.cell, item.audit, item.attack) == (old["cell"], old["audit"], old["attack"])
            and (not old["source"] or item.source in ("", old["source"]))
            and (not old["selection"] or item.selection in ("", "controlled_sizes", old["selection"]))
        ]
        if not any(item.verdict in CONCLUSIVE for item in alike):
            lost.append({**old, "reason": alike[0].reason if alike else "no such finding"})
    share = math.nan if not kept else 1 - len(lost) / len(kept)
    return {"formerly": len(kept), "still": len(kept) - len(lost), "share": share, "lost": lost}


def silent_in(record: dict[str, Any]) -> list[dict[str, str]]:
    """The findings of a run that read `no_leak_found`, as `still_conclusive` takes them."""
    keys = ("cell", "audit", "attack", "source", "selection")
    return [
        {key: getattr(item, key) for key in keys} for item in said_in(record) if item.verdict == "no_leak_found"
    ]


def main() -> int:
    """Run the sweep, write and print the counts; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path, help="A JSON file for the counts.")
    parser.add_argument("--data", nargs="+", default=["digits"], help=f"{', '.join(sorted(DATA))}, or FILE{FILE}.")
    parser.add_argument("--seeds", type=int, default=3, help="How many.")
    parser.add_argument("--first-seed", type=int, default=0, help="Seeds not used before start here.")
    parser.add_argument("--keep", type=Path, help="A folder for the runs; one that is there is not run again.")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"), help="Two records of one plan.")
    given = parser.parse_args()
    if unknown := [name for name in given.data if name not in DATA and not name.endswith(FILE)]:
        parser.error(f"--data {unknown[0]}: not known; allowed: {', '.join(sorted(DATA))}, or a FILE{FILE}")
    if given.result is not None:
        # Where it goes is seen to before the hours that it takes.
        given.result.parent.mkdir(parents=True, exist_ok=True)
    if given.compare:
        old, new = (json.loads(path.read_text(encoding="utf-8")) for path in given.compare)
        given.result.write_text(json.dumps(still_conclusive(silent_in(old), said_in(new)), indent=1) + "\n")
        return 0
    start, runs = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        for name in given.data:
            for seed in range(given.first_seed, given.first_seed + given.seeds):
                runs.append(_run(plan_of(name, seed), (given.keep or Path(folder)) / f"{Path(name).stem}-{seed}"))
                print(f"{name}, seed {seed}: {summary(runs)['total']}", file=sys.stderr, flush=True)
    found = {**summary(runs), "seconds": round(time.monotonic() - start, 1), "data": given.data}
    given.result.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: found[key] for key in ("total", "alarms", "seconds")}, indent=1))
    return 1 if found["alarms"] else 0


def _run(plan: dict[str, Any], out: Path) -> dict[str, Any]:
    out.parent.mkdir(parents=True, exist_ok=True)
    file = out.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(plan, sort_keys=False), encoding="utf-8")
    if (out / "record.json").exists():
        return cast("dict[str, Any]", json.loads((out / "record.json").read_text(encoding="utf-8")))
    command = [sys.executable, "-m", "fedassay", "run", str(file), "-o", str(out), "--quiet", "--device", "cpu"]
    subprocess.run(command, check=False)
    return cast("dict[str, Any]", json.loads((out / "record.json").read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
