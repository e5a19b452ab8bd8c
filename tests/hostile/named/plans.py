"""Plans with values that nobody means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from material import DRY, PLAN, RUN, Case, as_yaml, own_plan

from named.parts import ESCAPE, FOLDER, changed


def cases() -> Iterator[Case]:
    huge = 10**30
    values: list[tuple[str, Any]] = [
        ("data.size", 100_000),
        ("data.size", huge),
        ("data.limit", huge),
        ("data.path", "a\0b"),
        ("data.path", "x" * 5000),
        ("data.root", "a\0b"),
        ("data.name", ESCAPE),
        ("seeds", [huge]),
        ("seeds", [-1]),
        ("seeds", list(range(200_000))),
        ("seeds", [True]),
        ("clients.count", huge),
        ("clients.count", 10**9),
        ("clients.alpha", 1e308),
        ("clients.alpha", 1e-308),
        ("clients.min_records", huge),
        ("clients.dominant", huge),
        ("resources.threads", huge),
        ("resources.threads", 10**9),
        ("resources.memory", 1e-300),
        ("resources.gpus", 1e-300),
        ("privacy.epsilon", 1e308),
        ("privacy.epsilon", 1e-308),
        ("privacy.epsilon", huge),
        ("privacy.epsilon", [float(i) for i in range(1, 100_000)]),
        ("privacy.epsilon", []),
        ("privacy.epsilon", "x"),
        ("privacy.epsilon", None),
        ("privacy.epsilon", [None]),
        ("privacy.delta", 1e-308),
        ("privacy.delta", [[1e-5]]),
        ("privacy.adjacency", {"a": 1}),
        ("threat.rounds", huge),
        ("threat.rounds", -5),
        ("name", "n" * 5000),
        ("methods.0.fedcgs.label", "l" * 300),
        ("methods.0.fedcgs.label", "l" * 100_000),
        ("methods.0.fedcgs.label", ESCAPE),
        ("methods.0.fedcgs.label", "a\0/../../b"),
        ("methods.0.fedcgs.label", {"a": 1}),
        ("methods.0.fedcgs.label", "\ud800"),
        ("methods.0.fedcgs.ridge", huge),
        ("methods.0.fedcgs.epsilon", {"a": 1}),
        ("methods.0.fedcgs.adjacency", ["add_remove"]),
        ("methods.0.fedcgs.adjacency", {"a": 1}),
        ("methods", [{"fedcgs": [1]}]),
        ("methods", [{"fedcgs": 3}]),
        ("methods", [{3: {}}]),
        ("methods", [{None: {}}]),
        ("methods", [{"fedcgs": {3: 4}}]),
        ("methods", [[]]),
        ("methods", "fedcgs"),
        ("methods", {"fedcgs": {}}),
        ("methods", [{"fedcgs": {}}] * 5000),
        ("methods", [{"../../etc/passwd": {}}]),
        ("attacks", [{"label_distribution": {}}] * 5000),
        ("audits", 5),
        ("backbone.name", "__init__"),
        ("backbone.name", 5),
        ("backbone.input_size", huge),
        ("backbone.input_size", 100_000),
        ("similarity", {"lpips": {"trunk": "missing.pth"}}),
        ("similarity", {"lpips": {"trunk": "a\0b"}}),
    ]
    for path, value in values:
        tree = changed(PLAN, path, value) if path != "similarity" else {**PLAN, "similarity": value}
        if path == "data.path":
            tree["data"]["name"] = "npz"
        if path == "data.root":
            tree["data"]["name"] = "mnist"
        content = json.dumps(tree).replace("Infinity", ".inf").encode()
        for args in (DRY, RUN):
            yield Case("plan", f"{path} = {str(value)[:30]!r}, {args[2]}", args, {"plan.yaml": content})
    weights = changed(PLAN, "backbone", {"name": "resnet18", "weights": "/etc/passwd"})
    yield Case("plan", "weights that are a text file", RUN, {"plan.yaml": as_yaml(weights)})
    folder = {"in/a": FOLDER, "in/b": FOLDER}
    yield Case("plan", "an image folder as npz", RUN, {"plan.yaml": own_plan("npz", "in"), **folder})
    for assignment in ("seeds=[1", "a" * 5000, "x=" + "[" * 3000, "seeds=" + "9" * 5000, "data.limit=!!int abc"):
        args = (*DRY, "--set", assignment)
        yield Case("plan", f"--set {assignment[:20]}", args, {"plan.yaml": as_yaml(PLAN)})
    yield Case(
        "plan", "--set through an alias bomb", (*DRY, "--set", "x=[&a [1], *a]"), {"plan.yaml": as_yaml(PLAN)}
    )
    yield Case(
        "plan", "an output with a null byte", ("run", "plan.yaml", "-o", "a" * 300), {"plan.yaml": as_yaml(PLAN)}
    )
