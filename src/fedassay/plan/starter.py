"""The plan that `fedassay init` writes."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from fedassay.data.account import SAID
from fedassay.plan.schema import override
from fedassay.support.atomic import chosen_by_user, write_text
from fedassay.support.errors import PlanError


def write_starter(
    file: Path, data: Path | None, label_column: str | None = None, assignments: Sequence[str] = ()
) -> list[str]:
    """Write a commented plan; of the user's own images, one that fits them, and return their account in lines.

    Raises:
        PlanError: The file exists or cannot be written, or there is nothing at `data`.
        DataError: `data` holds no data set.
    """
    if file.exists():
        raise PlanError(f"{file}: it exists and is not overwritten; allowed: another name")
    plan = (resources.files("fedassay") / "starter.yaml").read_text(encoding="utf-8")
    if data is not None:
        from fedassay.plan.fitted import fitted_plan

        keys = override({"data": {}}, assignments)
        if set(keys) - {"data"}:
            raise PlanError(
                f"--set: {', '.join(assignments)} given; allowed: keys of data, as data.layout=class/image"
            )
        plan = fitted_plan(data, file, plan, label_column, keys["data"])
    elif label_column is not None or assignments:
        raise PlanError("--label-column, --set: say how your own data is read; allowed beside --data only")
    with chosen_by_user(file, "name another"):
        write_text(file, plan, private=False)
    words = [line[2:].rstrip(".") for line in plan.partition("\n\n")[0].splitlines() if line.startswith("# ")]
    return [line for line in words if line.startswith(SAID)]
