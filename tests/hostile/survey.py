"""How every kind of hostile input is met: tried, handled, failed. `python tests/hostile/survey.py --cases 20000`.

The package that is tried is the one that Python imports, so `PYTHONPATH` can name another revision's `src`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from attempt import Server
from material import KINDS, Case, make


@dataclass
class Tally:
    """What came of the cases of one kind."""

    tried: int = 0
    refused: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


def survey(server: Server, cases: Iterable[Case], folder: Path, keep: Path | None = None) -> dict[str, Tally]:
    """Try cases one after the other.

    Args:
        server: Runs them.
        cases: The cases.
        folder: Where their files are laid out; emptied each time.
        keep: Where the files of those that fail are kept.
    """
    tallies = {kind: Tally() for kind in KINDS}
    for number, case in enumerate(cases):
        tally = tallies[case.kind]
        fault, code = tried(server, case, folder)
        tally.tried += 1
        tally.refused += code == 2 and not fault
        if fault:
            tally.failed.append((case.name, fault))
            print(
                f"{case.kind}: {case.name}: {fault}"[:300].encode("ascii", "backslashreplace").decode(), flush=True
            )
            if keep is not None:
                kept = keep / f"{case.kind}-{number}"
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(folder, kept, symlinks=True, ignore=_unusual)
                (kept / "WHY").write_text(f"{case.name}\n{case.args}\n{fault}\n", "utf-8", "backslashreplace")
    return tallies


def tried(server: Server, case: Case, folder: Path) -> tuple[str, int]:
    """Lay out a case, run its command, and say what is wrong with how it was met; and the exit code."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    case.lay_out(folder)
    changes_run = not {"--resume", "--force"}.isdisjoint(case.args)
    met = server.attempt(folder, case.args, ("out", "run") if changes_run else ("out",))
    return met.fault, met.code


def _unusual(folder: str, names: list[str]) -> list[str]:
    inside = [Path(folder) / name for name in names]
    return [path.name for path in inside if not (path.is_dir() or path.is_file()) or path.stat().st_size > 1 << 20]


def main() -> None:
    """Try the named cases, or so many generated ones, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=0, help="generated cases; 0: the named ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--match", default="")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="hostile-"))
    with Server(base) as server:
        (base / "material").mkdir()
        material = make(server, base / "material")
        if given.cases:
            from generators import generated

            cases: Iterable[Case] = generated(material, given.cases, given.seed, given.kind)
        else:
            from named import cases as named

            cases = (
                case for case in named(material) if given.kind in {None, case.kind} and given.match in case.name
            )
        tallies = survey(server, cases, base / "case", given.keep)
    shutil.rmtree(base, ignore_errors=True)
    for kind, tally in tallies.items():
        print(
            f"{kind:<11} tried {tally.tried:>6}  handled {tally.tried - len(tally.failed):>6}"
            f"  failed {len(tally.failed)}"
        )
    if given.json:
        table = {kind: {"tried": t.tried, "refused": t.refused, "failed": t.failed} for kind, t in tallies.items()}
        given.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
