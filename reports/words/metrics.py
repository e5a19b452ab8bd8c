"""The names of measured figures: how they are headed, in which unit, and which way is worse."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from fedassay.contracts import metrics as declared
from fedassay.contracts.registry import metrics
from fedassay.records.record import CellRecord, Metric, RunRecord

UTILITY = ("accuracy", "personalized_accuracy", "balanced_accuracy", "sensitivity", "specificity")
COMMUNICATION = ("bytes_up", "bytes_down")
PRIVACY = tuple(metric.name for metric in declared.CLAIM)
EPSILONS = tuple(metric.name for metric in declared.EPSILONS)


def title(name: str) -> str:
    """Column header of a metric."""
    known = metrics().get(name)
    return known.title if known else name.replace("_", " ").capitalize()


def title_in(record: RunRecord, name: str) -> str:
    """Column header of a metric in a run: that of LPIPS names the file where its trunk is one of the user's."""
    asked = record.plan.get("similarity") if isinstance(record.plan, dict) else None
    spec = asked.get("lpips") if name == declared.LPIPS.name and isinstance(asked, dict) else None
    trunk = spec.get("trunk") if isinstance(spec, dict) else None
    return f"{title(name)} (trunk {PurePath(str(trunk)).name})" if trunk else title(name)


def hint(name: str) -> str:
    """Explanation of a metric, empty for names that no audit declares."""
    known = metrics().get(name)
    return known.about if known else ""


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Names once each: those that audits declare in their order, then the others as they come."""
    given, known = list(dict.fromkeys(names)), metrics()
    return tuple([name for name in known if name in given] + [name for name in given if name not in known])


def utility_names(cells: Iterable[CellRecord]) -> tuple[str, ...]:
    """Names of the utility figures; `x_low`, `x_high` and `x_n` belong to `x`."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.utility))
    owned = {f"{name}_{part}" for name in names for part in ("low", "high", "n")}
    kept = [name for name in names if name not in owned]
    return tuple(sorted(kept, key=lambda name: UTILITY.index(name) if name in UTILITY else len(UTILITY)))


def utility(cell: CellRecord, name: str) -> Metric:
    """A utility figure of a cell, with its interval where the record holds one."""
    value = cell.utility.get(name)
    if value is None:
        return Metric(value=None, reason=f"this method gives no {name.replace('_', ' ')}")
    count = cell.utility.get(f"{name}_n")
    return Metric(
        value=value,
        low=cell.utility.get(f"{name}_low"),
        high=cell.utility.get(f"{name}_high"),
        n=None if count is None else round(count),
    )
