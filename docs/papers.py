"""Holds the plans under configs/papers against what the papers' authors ran, and writes what differs.

python docs/papers.py                    writes the head of every plan, and the table of docs/papers.md
python docs/papers.py --check            exits 1 where one of them is not what it would write
python docs/papers.py --keep RUN ...     keeps the figures of runs in docs/papers/runs.yaml first

docs/papers/NAME.yaml holds one paper: its plans, their titles and the paper's figures (with `stand_in`, what
the small run had in place of data not at hand), `nearest` (runs of other plans, kept by hand), and `settings`,
each with where the paper says it. The `key` of a setting names values of the resolved plan, defaults filled in:
`clients.count`, `methods.fedpft.head.epochs` of every entry of a method or of the entry with that label,
`methods.*.rounds` of every entry that has it; of a list of keys the first that the plan has (with `every`, all
of them). What is not equal to `value` is listed, and so is what has no key (`here` says what is done instead)
and what the paper does not say (`value: null`).

`says` quotes the paper where it states the value, `means` says how the value follows where the words do not hold
it, `absent` are words that a silent part has not; `sections` says where parts begin and end, `from` and `cells`
which table, and which row of it, a plan's figures are of. tests/plan/test_citations.py looks all of it up.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any

import yaml

from fedassay.plan.resolve import load_scenario
from fedassay.records.record import CellRecord, RunRecord, load_record

ROOT = Path(__file__).resolve().parents[1]
PLANS, TABLES = ROOT / "configs" / "papers", ROOT / "docs" / "papers"
PAGE, RUNS = ROOT / "docs" / "papers.md", TABLES / "runs.yaml"
ORDER = ("fedpft", "fedcgs", "fedlog", "feddiff")
_START, _END = "<!-- made by docs/papers.py: {} -->\n", "<!-- end of what docs/papers.py makes -->\n"
_WIDTH = 115
_UNLEARNED = "nothing learned"
_MISSING = object()
_FILES = (".npz", ".pt", ".pth", ".safetensors")
"""Endings of files of one's own, for data and weights."""
_NO_NEWS = (
    "data.name=npz",
    "data.path=FILE",
    "backbone.weights=FILE",
    "backbone.input_size=",
    "similarity.lpips=",
)
"""Beginnings of keys that say no more than the page's head, data set, backbone and metric."""

CHANCE = 0.15
"""Accuracy on ten classes and a few hundred test images that luck alone may give."""


def papers() -> list[dict[str, Any]]:
    """The tables of settings, in the page's order."""
    return [yaml.safe_load((TABLES / f"{name}.yaml").read_text(encoding="utf-8")) for name in ORDER]


# What differs


def deviations(settings: Sequence[Mapping[str, Any]], name: str, plan: Mapping[str, Any]) -> list[str]:
    """One line for each setting of a plan that is not the paper's.

    Args:
        settings: Of the paper.
        name: Of the plan.
        plan: Resolved, every default filled in.
    """
    lines = []
    for setting in settings:
        if setting["plans"] != "all" and name not in setting["plans"]:
            continue
        line = _missing_methods(setting, plan) if "methods" in setting else _difference(setting, plan)
        if line:
            lines.append(line)
    return lines


def _difference(setting: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """The line of one setting; empty where the plan has the paper's value."""
    words, where = setting["setting"], setting["where"]
    if "here" in setting:
        here = str(setting["here"])
    else:
        values = values_at(plan, setting["key"], every=setting.get("every", False))
        values = [setting["default"] if value is None and "default" in setting else value for value in values]
        if "count" in setting:
            there = len(values[0]) if values and isinstance(values[0], list) else 0
            return (
                ""
                if there == setting["count"]
                else f"{words}: {setting['count']} in the paper ({where}), here {there}."
            )
        if not values:
            return "" if setting.get("optional") else _said(setting, "no key for it")
        if setting["value"] is not None and all(_same(value, setting["value"], values) for value in values):
            return ""
        here = _shown(values)
    return _said(setting, here)


def _said(setting: Mapping[str, Any], here: str) -> str:
    aside = f": {setting['same']}" if "same" in setting else ""
    words, where = setting["setting"], setting["where"]
    if setting["value"] is None:
        return f"{words}: the paper does not say ({where}), here {here}{aside}."
    return f"{words}: {_text(setting['value'])} in the paper ({where}), here {here}{aside}."


def _missing_methods(setting: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """The methods of a table that the plan has not, by their names or labels."""
    known = {
        label for entry in plan["methods"] for name, own in entry.items() for label in (name, own.get("label"))
    }
    absent = [
        there
        for there, names in setting["methods"].items()
        if not known & set([names] if isinstance(names, str) else names)
    ]
    return f"{setting['setting']}: without {', '.join(absent)} ({setting['where']})." if absent else ""


def values_at(plan: Mapping[str, Any], keys: str | Sequence[str], *, every: bool = False) -> list[Any]:
    """The values of a plan at a key, one for each entry that has it; none where there is no such key."""
    found: list[Any] = []
    for key in [keys] if isinstance(keys, str) else keys:
        head, *path = key.split(".")
        if head in ("methods", "attacks", "audits"):
            name, *path = path
            found += [
                value
                for entry in plan[head]
                for own in (next(iter(entry)),)
                if name in ("*", own, entry[own].get("label"))
                if (value := _down(entry[own], path)) is not _MISSING
            ]
        elif (value := _down(plan, [head, *path])) is not _MISSING:
            found.append(value)
        if found and not every:
            break
    return found


def _down(place: Any, path: Sequence[str]) -> Any:
    for part in path:
        if not isinstance(place, Mapping) or part not in place:
            return _MISSING
        place = place[part]
    # A section by its name stands for it: `bodies: [{name: cnn, ...}]`.
    if isinstance(place, list):
        return [each["name"] if isinstance(each, Mapping) and "name" in each else each for each in place]
    return place


def _same(value: Any, wanted: Any, values: Sequence[Any]) -> bool:
    if isinstance(value, (int, float)) and isinstance(wanted, (int, float)):
        return abs(value - wanted) <= 1e-9 * max(abs(value), abs(wanted))
    if isinstance(wanted, list) and not isinstance(value, list):
        # Several values of one key, an entry each.
        return sorted(map(str, wanted)) == sorted({str(each) for each in values})
    if isinstance(wanted, list) and len(wanted) == len(value):
        return all(_same(own, other, ()) for own, other in zip(value, wanted, strict=True))
    return bool(value == wanted)


def _shown(values: Sequence[Any]) -> str:
    return ", ".join(dict.fromkeys(map(_text, values)))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, float):
        return f"{value:g}"
    return "null" if value is None else str(value)


# Heads of plans


def head(paper: Mapping[str, Any], name: str, path: Path) -> str:
    """The comment at the head of a plan."""
    about = paper["plans"][name]
    plan = load_scenario(path).resolved()
    lines = [
        *_wrapped(f"{paper['paper']}, {about['title']}."),
        "#",
        f"#   fedassay run configs/papers/{path.name}{about.get('suffix', '')}",
        f"#   fedassay run configs/papers/{path.name} --scale 0.02     small, as it would be run large",
        "#",
        *_wrapped(f"Needs at full size: {about['needs'].removesuffix(' at full size')}."),
    ]
    if "other" in about:
        lines += ["#", *_wrapped(about["other"])]
    lines += ["#", *_wrapped(f"The paper: {about['results']}")]
    found = deviations(paper["settings"], name, plan)
    lines += ["#", "# What differs from the paper, or is not said there (docs/papers.py):"]
    lines += [line for text in found for line in _wrapped(text, "# - ", "#   ")] or ["# - nothing that is known."]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, first: str = "# ", others: str = "# ") -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        _WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def with_head(text: str, made: str) -> str:
    """A plan file with another head: the lines before the first that is no comment."""
    lines = text.splitlines(keepends=True)
    body = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    return made + "".join(lines[body:])


def planned() -> Iterator[tuple[dict[str, Any], str, Path]]:
    """Every plan that there is and that a table names."""
    for paper in papers():
        for name in paper["plans"]:
            path = PLANS / f"{name}.yaml"
            if path.exists():
                yield paper, name, path


def unnamed() -> list[str]:
    """Plans that no table names."""
    named = {name for _, name, _ in planned()}
    return sorted(path.stem for path in PLANS.glob("*.yaml") if path.stem not in named)


# Runs, and the page


def kept_runs() -> dict[str, dict[str, Any]]:
    """What docs/papers/runs.yaml holds, by plan."""
    return (yaml.safe_load(RUNS.read_text(encoding="utf-8")) or {}) if RUNS.exists() else {}


def digest(record: RunRecord, measured: str) -> dict[str, Any]:
    """What the page says of a run."""
    plan: Mapping[str, Any] = record.plan
    command = [str(part) for part in record.environment.get("command", [])]
    given = [_unnamed(after) for part, after in pairwise(command) if part == "--set"]
    figures: dict[str, list[float]] = {}
    several = {cell.label for cell in record.cells for other in record.cells if _apart(cell, other)}
    for cell in record.cells:
        epsilon = f" at {cell.epsilon:g}" if cell.label in several else ""
        value = _figure(cell, measured)
        if value is not None:
            figures.setdefault(cell.label + epsilon, []).append(float(value))
    return {
        "scale": plan.get("scaled") or 1,
        "set": given,
        "records": sum(next(iter(record.data.values()))["client_records"]) if record.data else None,
        "clients": plan["clients"]["count"],
        "minutes": round(sum(sum(cell.seconds.values()) for cell in record.cells) / 60, 1),
        "measured": measured,
        "figures": {label: round(sum(each) / len(each), 4) for label, each in figures.items()},
        "errors": [f"{error.cell or error.stage}: {error.message}" for error in record.errors],
    }


def _apart(cell: CellRecord, other: CellRecord) -> bool:
    """Whether two cells are one entry at two epsilons."""
    return cell.label == other.label and cell.epsilon != other.epsilon


def _unnamed(assignment: str) -> str:
    """`data.path=/somewhere/mine.npz` as `data.path=FILE.npz`: whoever reads the page has not that file."""
    key, _, value = assignment.partition("=")
    path = PurePath(value)
    if path.suffix in _FILES:
        return f"{key}=FILE{path.suffix}"
    return f"{key}={path.name if key.endswith('path') else value}"


def _figure(cell: CellRecord, measured: str) -> float | None:
    if measured == "ssim":
        chosen = [f for f in cell.findings if f.selection == "oracle" and "ssim" in f.metrics]
        return chosen[0].metrics["ssim"].value if chosen else None
    return cell.utility.get(measured, cell.utility.get("accuracy"))


def agreement(order: Mapping[str, float], figures: Mapping[str, float]) -> str:
    """In how many pairs of methods that differ in the paper ours differ the same way."""
    both = [(label, own) for label, own in order.items() if label in figures]
    pairs = [(a, b) for index, (a, x) in enumerate(both) for b, y in both[index + 1 :] if x != y]
    if not pairs:
        return "nothing to compare"
    right = sum((order[a] - order[b]) * (figures[a] - figures[b]) > 0 for a, b in pairs)
    return f"{right} of {len(pairs)}"


def tables() -> str:
    """What was run beside the papers' values, what learned nothing, and what was not run."""
    runs = kept_runs()
    rows, left = [], []
    unlearned: dict[str, list[str]] = {}
    for paper in papers():
        method = paper["paper"].split(" ", 1)[0]
        for each in paper["nearest"]:
            plan = f"`{each['plan'].removesuffix('.yaml')}`"
            rows.append((f"{method}, {each['what']}, {plan}", each["run"], each["figures"], each["differs"]))
        for name, about in paper["plans"].items():
            # The head of the plan has the rest of its title, and the plan's name begins with the method's.
            title = about["title"].partition(":")[0]
            said, figures, differs = _of_plan(about, runs.get(name))
            if not figures:
                left.append((f"{title}, `{name}`", about["needs"].partition(";")[0]))
            elif differs.startswith(_UNLEARNED):
                unlearned.setdefault(said.partition(",")[0], []).append(f"`{name}`")
            else:
                rows.append((f"{title}, `{name}`", said, figures, differs))
        left += [(f"{method}, {each['what']}", each["why"]) for each in paper["not_planned"]]
    head = ("table or figure, plan", "what was run here", "the paper's/ours", "what differs")
    none = [
        f"At {scale} {_UNLEARNED}, no accuracy above {100 * CHANCE:g} %: {', '.join(names)}.\n"
        for scale, names in unlearned.items()
    ]
    return "\n".join((*_table(head, rows), "", *none, *_table(("not run", "what it needs"), left))) + "\n"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]


def _of_plan(about: Mapping[str, Any], run: Mapping[str, Any] | None) -> tuple[str, str, str]:
    """What was run of a plan, the paper's figures beside ours, and what differs."""
    if run is None:
        return "not run", "", ""
    clients = f"{run['clients']} client{'' if run['clients'] == 1 else 's'}"
    said = f"×{run['scale']:g}, {run['records']:,} records, {clients}, {run['minutes']:g} min"
    differs = [f"`{each}`" for each in run["set"] if not each.startswith(_NO_NEWS)]
    differs += [each.partition(";")[0].rstrip(".") for each in run["errors"]]
    if "stand_in" in about:
        differs.append(" ".join(about["stand_in"].split()).rstrip("."))
    order, figures = about["order"], run["figures"]
    # Of a figure without a table the order is known, and no numbers.
    there = {} if about.get("places") else order
    if run["measured"] != "ssim" and max(figures.values(), default=1.0) < CHANCE:
        differs.insert(0, _UNLEARNED)
        return said, f"none above {100 * CHANCE:g}", "; ".join(differs)
    # Where the paper has figures, those that it has not are left out.
    shown = "; ".join(
        f"{label} {_number(there.get(label))}/{_number(figures.get(label), run['measured'])}"
        for label in order or figures
    )
    compared = agreement(order, figures)
    if compared != "nothing to compare":
        differs.append(f"order {compared}")
    unit = "" if run["measured"] == "accuracy" else f" ({run['measured'].replace('_', ' ')})"
    return said, shown + unit, "; ".join(differs)


def _number(value: float | None, measured: str | None = None) -> str:
    """A figure as the page shows it: the paper's as it stands there, ours in percent where it is no SSIM."""
    if value is None:
        return "-"
    if measured is None:
        return f"{value:g}"
    return f"{value:.3f}" if measured == "ssim" else f"{100 * value:.1f}"


def with_tables(text: str, name: str, made: str) -> str:
    """A page with what stands between its markers replaced."""
    start = _START.format(name)
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(_END)
    return f"{before}{start}\n{made}\n{_END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Write, or check."""
    if "--keep" in arguments:
        _keep([Path(each) for each in arguments if not each.startswith("--")])
    stale = []
    for paper, name, path in planned():
        text = path.read_text(encoding="utf-8")
        stale += _put(path, text, with_head(text, head(paper, name, path)), "--check" in arguments)
    page = PAGE.read_text(encoding="utf-8")
    stale += _put(PAGE, page, with_tables(page, "runs", tables()), "--check" in arguments)
    for path in stale:
        print(f"{path.relative_to(ROOT)}: not what docs/papers.py writes; run make papers")
    return 1 if stale else 0


def _put(path: Path, text: str, made: str, check: bool) -> list[Path]:
    if text == made:
        return []
    if not check:
        path.write_text(made, encoding="utf-8")
        return []
    return [path]


def _keep(folders: Sequence[Path]) -> None:
    """Keep the figures of runs."""
    runs = kept_runs()
    known = {name: about for paper in papers() for name, about in paper["plans"].items()}
    for folder in folders:
        record = load_record(folder)
        name = str(record.plan["name"])
        runs[name] = digest(record, known[name].get("measured", "accuracy"))
    text = "# Runs of the papers' plans; kept by docs/papers.py --keep.\n" + yaml.safe_dump(runs, sort_keys=True)
    RUNS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
