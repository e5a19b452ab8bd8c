"""How far `fedassay run --dry-run` is off: estimates of the timed shipped plans beside what they took.

    python benchmarks/dry_run_accuracy.py            a line for each plan, and the row
    python docs/plans.py --measure configs/PLAN.yaml times a plan anew

Each plan is estimated twice: by all timed stages, as for a reader who runs it, and by those of the other plans, as
for a plan of a reader's own. It took what its stages took on one thread with an empty cache, and START and PAGE of
`fedassay.plan.rates`. The row is met where at least nine tenths of the latter lie between a third and three.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedassay.contracts.sizes import Sizes
from fedassay.plan import measured, rates
from fedassay.plan.estimate import stages
from fedassay.plan.measured import Stage, corrected
from fedassay.plan.resolve import load_scenario
from fedassay.plan.sizes import sizes_of

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
Timed = Mapping[str, Sequence[Stage]]


def timed() -> dict[str, list[Stage]]:
    """The timed stages of shipped plans, by plan."""
    kept = json.loads(measured.FILE.read_text(encoding="utf-8"))
    return {
        name: [Stage(*row, load_scenario(CONFIGS / f"{name}.yaml").plan.name) for row in rows]
        for name, rows in kept.items()
    }


def compared(name: str, kept: Timed) -> dict[str, Any]:
    """Seconds that a plan took, and over them its estimates by all stages and by those of other plans."""
    scenario = load_scenario(CONFIGS / f"{name}.yaml")
    sizes = sizes_of(scenario.plan, scenario.base)
    assert isinstance(sizes, Sizes)
    own, outside = list(stages(scenario, sizes)), rates.START + rates.PAGE * len(scenario.cells)
    took = {stage[:3]: stage.took for stage in kept[name]}
    seconds = outside + sum(took.get(stage[:3], 0.0) for stage in own)

    def estimated(of: Timed) -> float:
        every = [stage for rows in of.values() for stage in rows]
        return outside + sum(
            corrected(each, [stage for stage in every if stage.unit == each.unit]) for each in own
        )

    others = {plan: rows for plan, rows in kept.items() if plan != name}
    return {
        "plan": name,
        "seconds": round(seconds, 1),
        "ratio": round(estimated(kept) / seconds, 2),
        "ratio_without_its_own": round(estimated(others) / seconds, 2),
    }


def within(factor: float, ratios: Sequence[float]) -> int:
    """Ratios at most a factor from 1."""
    return sum(1 / factor <= ratio <= factor for ratio in ratios)


def check(ratios: Sequence[float]) -> bool:
    """Whether nine tenths of the estimates are within a factor of three."""
    return within(3, ratios) >= 0.9 * len(ratios)


def run(full: bool = False, repeats: int = 1) -> dict[str, Any]:
    """The row, with a line for each plan."""
    kept = timed()
    plans = [compared(name, kept) for name in kept]
    ratios, apart = ([float(each[key]) for each in plans] for key in ("ratio", "ratio_without_its_own"))
    return {
        "row": f"`--dry-run` on {len(plans)} plans, estimated over measured",
        "ratio": max(apart, key=lambda ratio: max(ratio, 1 / ratio)),
        "target": "1/3 to 3 on nine tenths of the plans",
        "met": check(apart),
        "peer": "none: the worst, by the stages of other plans",
        "within": {str(factor): [within(factor, ratios), within(factor, apart)] for factor in (1.5, 2, 3)},
        "plans": plans,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--full", action="store_true", help="as without it")
    parser.add_argument("--repeats", type=int, default=1, help="as without it")
    parser.parse_args()
    json.dump(run(), sys.stdout, indent=2)
    print()
