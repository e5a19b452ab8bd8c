"""Makes docs/plans.md: every plan that ships, what it shows, what it needs, and what it takes.

python docs/plans.py                     writes the page
python docs/plans.py --check             exits 1 where the page is not what it would write
python docs/plans.py --measure PLAN ...  runs plans first, and keeps what they took in docs/plans.yaml

A plan is measured in a process of its own, with an empty cache, one thread, and neither FEDASSAY_DATA nor
FEDASSAY_WEIGHTS set. Its stages are kept too, and correct the estimates of other plans. Where nothing was
measured, `fedassay run --dry-run` estimates.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fedassay.contracts.sizes import Sizes
from fedassay.plan import measured, rates
from fedassay.plan.estimate import estimate, stages, timed
from fedassay.plan.published import files_of
from fedassay.plan.rates import in_words
from fedassay.plan.resolve import load_scenario
from fedassay.plan.schema import Scenario
from fedassay.plan.sizes import sizes_of

ROOT = Path(__file__).resolve().parents[1]
CONFIGS, PAGE, KEPT = ROOT / "configs", ROOT / "docs" / "plans.md", ROOT / "docs" / "plans.yaml"

GROUPS = (
    (
        "attacks",
        "One attack each",
        "Each runs on embedded images; its head has the larger form.",
    ),
    (
        "",
        "Questions",
        "`quickstart` is the one to begin with, `sweep` its larger form, `clinic` the one for a hospital.",
    ),
    (
        "papers",
        "As the papers have it",
        "For a GPU; `--scale` makes any of them small. They fetch their data, but for those of unknown time: "
        "their data are unpacked by hand. [The papers' figures](papers.md) says what each shows.",
    ),
)
"""Folder of plans, heading and a word on them."""

_SHOWN = {"attacks": ["what it shows"], "": ["what it shows", "data"], "papers": []}
"""Columns of each group; the page on papers has the figure or table of each plan."""

_HEAD = """# Every plan that ships

For those who look for a plan; by `docs/plans.py`. Time is of one core, memory of one process;
bold was measured, the rest is `--dry-run`'s estimate. ↓: the first run fetches data or weights, unless `--offline`
forbids it.
"""

_CITED = re.compile(r" \((?:the rivals of )?[A-Z]\w+ et al\. [^)]+\)")
"""A citation in the title of a plan; docs/papers.md has them all."""


class Measured(NamedTuple):
    """What a run took: processor seconds and MiB."""

    seconds: float
    mib: float


def plans(folder: str) -> list[Path]:
    """The plans of a folder of configs/, in alphabetical order."""
    return sorted((CONFIGS / folder).glob("*.yaml"))


def name_of(path: Path) -> str:
    """A plan as the page calls it: `attacks/membership`."""
    return path.relative_to(CONFIGS).with_suffix("").as_posix()


def page() -> str:
    """The whole page."""
    kept = {name: Measured(**row) for name, row in yaml.safe_load(KEPT.read_text(encoding="utf-8")).items()}
    parts = [_HEAD]
    for folder, heading, words in GROUPS:
        took = [_takes(path, kept.get(name_of(path))) for path in plans(folder)]
        rows = [_row(path, folder, time) for path, (time, _) in zip(plans(folder), took, strict=True)]
        heads = ["plan", *_SHOWN[folder], "time"]
        note = f"{words} Memory: at most {max(gib for _, gib in took):.1f} GiB."
        table = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
        parts.append("\n".join([f"## {heading}", "", note, "", *table, *rows, ""]))
    return "\n".join(parts)


def _takes(path: Path, measured: Measured | None) -> tuple[str, float]:
    """A plan's time in words, and its GiB; 0 where they are unknown."""
    if measured is not None:
        return f"**{in_words(measured.seconds)}**", measured.mib / 1024
    found = estimate(load_scenario(path))
    return "unknown" if found.seconds is None else in_words(found.seconds), (found.memory or 0) / 2**30


def _row(path: Path, folder: str, time: str) -> str:
    shows = _shown(path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ").rstrip("."))
    own = {"what it shows": shows, "data": _data(load_scenario(path))}
    return f"| {' | '.join([f'`{name_of(path)}`', *(own[column] for column in _SHOWN[folder]), time])} |"


def _shown(title: str) -> str:
    """A plan's title without what its head says more: up to the first question or colon, a bare name left out."""
    name, _, rest = _CITED.sub("", title).partition(": ")
    if rest and len(name.split()) <= 2:
        name = rest[0].upper() + rest[1:]
    return re.split(r"(?<=\?) ", name)[0]


def _data(scenario: Scenario) -> str:
    """The data set, and whether the first run fetches it or weights."""
    files = files_of(scenario.plan)
    return f"`{scenario.plan.data.name}`{'↓' if files else ' (unpacked by hand)' if files is None else ''}"


def measure(path: Path) -> Measured:
    """Run a plan by itself as a stranger would."""
    with tempfile.TemporaryDirectory() as scratch:
        hidden = {"FEDASSAY_DATA", "FEDASSAY_WEIGHTS"}
        environment = {key: value for key, value in os.environ.items() if key not in hidden}
        environment |= {"FEDASSAY_CACHE": f"{scratch}/cache", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "fedassay", "run", str(path), "-o", f"{scratch}/run", "--quiet"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=environment, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        keep_stages(path, json.loads(Path(scratch, "run", "record.json").read_text(encoding="utf-8")), seconds)
    return Measured(round(seconds, 1), round(after.ru_maxrss / 1024))


def keep_stages(path: Path, record: dict[str, Any], seconds: float) -> None:
    """Keep the mean seconds of each unit of a run's work, beside those of its formula."""
    scenario = load_scenario(path)
    sizes = sizes_of(scenario.plan, scenario.base)
    assert isinstance(sizes, Sizes)
    cells = [(cell["method"], cell["epsilon"] not in (None, "inf"), cell["seconds"]) for cell in record["cells"]]
    # What a run takes outside its cells, besides its start and its page, is preparation.
    outside = seconds - sum(sum(took.values()) for *_, took in cells)
    outside -= rates.START + rates.PAGE * len(cells)
    first = next(stages(scenario, sizes))
    prepared = first._replace(took=float(f"{max(0.1, outside / len(scenario.plan.seeds)):.3g}"))
    kept_stages = [prepared._replace(expected=float(f"{first.expected:.3g}")), *timed(scenario, cells)]
    rows = [stage[:-1] for stage in kept_stages]
    kept = json.loads(measured.FILE.read_text(encoding="utf-8")) | {name_of(path.resolve()): rows}
    lines = [f"{json.dumps(name)}: [\n{_lines(kept[name])}\n]" for name in sorted(kept)]
    measured.FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _lines(rows: Sequence[object]) -> str:
    return ",\n".join(json.dumps(row) for row in rows)


def main(arguments: Sequence[str]) -> int:
    """Write, or check."""
    if "--measure" in arguments:
        kept = yaml.safe_load(KEPT.read_text(encoding="utf-8"))
        for given in (Path(each) for each in arguments if not each.startswith("--")):
            # The largest process of several counts from then on: each plan is measured by a call of its own.
            if len(arguments) > 2:
                subprocess.run([sys.executable, __file__, "--measure", str(given)], check=True)
                kept = yaml.safe_load(KEPT.read_text(encoding="utf-8"))
                continue
            kept[name_of(given.resolve())] = measure(given)._asdict()
            text = "# What plans took; kept by docs/plans.py --measure.\n" + yaml.safe_dump(kept, sort_keys=True)
            KEPT.write_text(text, encoding="utf-8")
    made = page()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == made:
        return 0
    if "--check" in arguments:
        print("docs/plans.md: not what docs/plans.py writes; run python docs/plans.py")
        return 1
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
