"""Hostile input that somebody thought of, each with a name. All of it is refused, or done in bounded time."""

from __future__ import annotations

from collections.abc import Iterator

from material import CHECK, DRY, PLAN, POLICY, Case, Material, as_json, as_yaml

from named import (
    arrays,
    commands,
    finished_runs,
    images,
    label_tables,
    messages,
    plans,
    policies,
    records,
    run_folders,
    transcripts,
    weights,
    yaml_text,
)


def cases(material: Material) -> Iterator[Case]:
    """All of them, by kind."""
    yield from yaml_text.cases("plan", DRY, "plan.yaml", as_yaml(PLAN))
    record = {"run/record.json": as_json(material.record)}
    yield from yaml_text.cases("policy", CHECK, "policy.yaml", as_yaml(POLICY), record)
    yield from plans.cases()
    yield from policies.cases(material)
    yield from transcripts.cases(material)
    yield from messages.cases(material)
    yield from records.cases(material)
    yield from run_folders.cases(material)
    yield from finished_runs.cases(material)
    yield from images.cases()
    yield from label_tables.cases()
    yield from arrays.cases()
    yield from weights.cases(material)
    yield from commands.cases(material)
