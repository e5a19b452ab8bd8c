"""Keys of cells: names that are readable and that no two cells of a plan share.

A key names the cell's files (`transcripts/KEY/`, `artifacts/KEY/`), so two keys also differ on file systems that
do not tell capitals from small letters.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fedassay.plan.schema import Cell
from fedassay.support.errors import PlanError
from fedassay.support.text import digest, slug

_LABEL = 60
_LONGEST = 120


def with_keys(cells: Sequence[Cell], where: str) -> tuple[Cell, ...]:
    """The cells of a plan with their keys: what can be read where that is unique, with a digest where it is not.

    Args:
        cells: Every cell of a plan, in its order.
        where: The plan, for the error.

    Raises:
        PlanError: Two cells are equal, so that one would stand for both.
    """
    identities = Counter(map(_identity, cells))
    for cell in cells:
        if identities[_identity(cell)] > 1:
            raise PlanError(
                f"{where}: methods.{cell.method.label}: given {identities[_identity(cell)]} times with epsilon "
                f"{cell.privacy.epsilon!r}, delta {cell.privacy.delta!r} and seed {_seed(cell)}; allowed: each "
                f"cell once"
            )
    names = [_readable(cell) for cell in cells]
    times = Counter(name.lower() for name in names)
    return tuple(
        replace(cell, key=name if times[name.lower()] == 1 and len(name) <= _LONGEST else _marked(name, cell))
        for name, cell in zip(names, cells, strict=True)
    )


def _readable(cell: Cell) -> str:
    label = slug(cell.method.label)[:_LABEL].strip("-.") or "cell"
    # A noise seed that the system draws has no name but its place in the plan.
    seed = f"none-{cell.seed_index}" if cell.seed is None else str(cell.seed)
    unit = "" if cell.privacy.unit == "record" else f"-{cell.privacy.unit}"
    return f"{label}-eps{cell.privacy.epsilon:g}-delta{cell.privacy.delta:g}{unit}-seed{seed}"


def _marked(name: str, cell: Cell) -> str:
    # The x keeps it apart from names without a digest, which all end in the number of a seed.
    return f"{name[:_LONGEST]}-x{digest(_identity(cell))}"


def _identity(cell: Cell) -> str:
    """Everything that makes a cell differ from others: texts as written, numbers at full precision."""
    privacy = cell.privacy
    return json.dumps(
        (
            cell.method.label,
            cell.method.name,
            cell.method.params,
            repr(privacy.epsilon),
            repr(privacy.delta),
            privacy.adjacency,
            privacy.unit,
            privacy.max_records,
            cell.seed,
            cell.seed_index if cell.seed is None else None,
        ),
        sort_keys=True,
    )


def _seed(cell: Cell) -> str:
    return "null" if cell.seed is None else str(cell.seed)
