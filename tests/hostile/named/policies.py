"""Policies with values that nobody means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from material import CHECK, POLICY, Case, Material, as_json

from named.parts import ESCAPE, changed


def cases(material: Material) -> Iterator[Case]:
    record = {"run/record.json": as_json(material.record)}
    values: list[tuple[str, Any]] = [
        ("name", ESCAPE),
        ("name", "n" * 100_000),
        ("maximum", {"accounted": 10**400}),
        ("maximum", {"accounted": "x"}),
        ("maximum", {ESCAPE: 1.0}),
        ("maximum", {3: 1.0}),
        ("maximum", [1]),
        ("cells", 3),
        ("cells", {ESCAPE: 1}),
        ("cells", {"labels": ["x"] * 20_000}),
        ("must_conclude", ["other:" + ESCAPE]),
        ("must_conclude", [f"other:{i}" for i in range(50_000)]),
        ("forbidden_verdicts", ["leak"] * 20_000),
    ]
    for path, value in values:
        content = json.dumps(changed(POLICY, path, value)).encode()
        yield Case("policy", f"{path} = {str(value)[:30]!r}", CHECK, {"policy.yaml": content, **record})
