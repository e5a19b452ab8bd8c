"""Reads a world as `init` and a run do, answers what is asked, and holds what is loaded against the truth."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import published  # noqa: F401 - adds its layouts, and those of archives.py
import yaml
from faults import FAULTS, Effect
from worlds import LAYOUTS, World

from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.loading import load
from fedassay.data.spellings import one_form
from fedassay.plan.fitted import fitted_plan
from fedassay.plan.own_images import data_seeds, request_of
from fedassay.plan.schema import DataSpec
from fedassay.support.errors import FedassayError

_STARTER = (resources.files("fedassay") / "starter.yaml").read_text(encoding="utf-8")
_QUESTIONS = 5


@dataclass(frozen=True)
class Outcome:
    """What came of one world: `read`, `asked`, `misread` or `stuck`, and what was said."""

    kind: str
    words: tuple[str, ...]


def made(layout: str, faults: tuple[str, ...], seed: int, base: Path) -> tuple[World, Effect] | None:
    """A world with faults, written to disk; None where a fault does not apply to its layout."""
    rng = np.random.default_rng(seed)
    world = LAYOUTS[layout](rng, base)
    whole = Effect()
    for name in faults:
        effect = FAULTS[name](world, rng)
        if effect is None:
            return None
        whole.gone |= effect.gone
        whole.answers |= effect.answers
    world.table = [row for row in world.table if row] if world.table else []
    world.write()
    if "labels" in whole.answers:
        # It may have been saved in another format since.
        whole.answers["labels"] = world.table_at.name
    return world, whole


def outcome(world: World, effect: Effect, base: Path) -> Outcome:
    """Read it; where it is refused, give those answers that the message names, and read it again."""
    answers = {**world.answers, **effect.answers}
    given: dict[str, Any] = {}
    words: list[str] = []
    for _ in range(_QUESTIONS):
        try:
            plan = fitted_plan(world.root, base / "plan.yaml", _STARTER, None, dict(given))
            section = yaml.safe_load(plan)["data"]
            spec = DataSpec.model_validate(section)
            found = load(request_of(spec, base, data_seeds(0)))
        except FedassayError as error:
            words.append(str(error))
            named = {
                key: value for key, value in answers.items() if f"data.{key}" in str(error) and key not in given
            }
            if not named:
                return Outcome("stuck", tuple(words))
            given |= named
            continue
        wrong = different(world, effect, found)
        return Outcome("misread" if wrong else "asked" if words else "read", (*words, *([wrong] if wrong else [])))
    return Outcome("stuck", tuple(words))


def different(world: World, effect: Effect, found: LoadedData) -> str:
    """In what the loaded data differ from the truth; empty: in nothing."""
    truth = {record.number: record for record in world.records if record.number not in effect.gone}
    sets: list[tuple[str, ImageSet]] = [("train", found.train)]
    sets += [] if found.test is None else [("test", found.test)]
    seen: dict[int, tuple[str, str, str, str]] = {}
    brightness: dict[int, int] = {}
    for part, records in sets:
        for place in range(len(records)):
            high, low = (int(value) for value in records.images[place, 0, :2, 0])
            brightness[256 * high + low] = int(records.images[place, 5, 5, 0])
            seen[256 * high + low] = (
                one_form(records.class_names[records.labels[place]]),
                str(records.groups[place]) if records.groups is not None else "",
                records.domain_names[records.domains[place]] if records.domains is not None else "",
                part,
            )
    if seen.keys() != truth.keys():
        return f"{len(truth.keys() - seen.keys())} records are missing, {len(seen.keys() - truth.keys())} too many"
    if sum(len(records) for _, records in sets) != len(truth) or not truth:
        return "records are there twice"
    if brightness != {number: record.brightness for number, record in truth.items()}:
        return "images have another brightness"
    labels = {number: seen[number][0] for number in truth}
    same = {one_form(record.label) for record in truth.values()} == set(labels.values())
    if not same and not {*labels.values()} <= {"true", "false", "0", "1"}:
        return f"classes are {sorted(set(labels.values()))}"
    for what, place, told in (
        ("labels", 0, lambda r: r.label),
        ("persons", 1, lambda r: r.person if "person" in world.tells or "groups" in world.answers else ""),
        ("sites", 2, lambda r: r.site if "site" in world.tells else ""),
        ("parts", 3, lambda r: r.part if "part" in world.tells else "train"),
    ):
        pairs = {(told(record), seen[number][place]) for number, record in truth.items()}
        wanted, got = ({pair[side] for pair in pairs} for side in (0, 1))
        if not len(pairs) == len(wanted) == len(got):
            return f"{what} differ: {len(got)} read, {len(wanted)} true ({sorted(pairs)[:6]})"
    return ""
