"""Records of runs, as reports, tables and checks read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from material import REPORT, Case, Material, Special

from named.parts import ESCAPE, changed


def cases(material: Material) -> Iterator[Case]:
    tree, make = material.record, material.record_case
    formats = ("html", "md", "json", "csv", "sarif", "junit")
    values: list[tuple[str, Any]] = [
        ("plan", 5),
        ("plan.audits", 5),
        ("plan.audits", {"a": 1}),
        ("plan.audits", [5, None, [], {"message": 3}]),
        ("plan.attacks", 5),
        ("plan.methods", 5),
        ("plan.methods", [[]]),
        ("plan.data", 5),
        ("plan.data", []),
        ("plan.seeds", 5),
        ("plan.threat", "x"),
        ("plan.transcript", 5),
        ("plan.name", 5),
        ("plan.name", ESCAPE),
        ("plan.name", "```\n<script>"),
        ("plan.privacy", []),
        ("plan.backbone", None),
        ("data", 5),
        ("data", {"3": 5, "x": [1, {}]}),
        ("environment", {}),
        ("environment.started", 5),
        ("environment.started", "9999-99-99"),
        ("environment.command", 5),
        ("environment.command", [5]),
        ("environment.versions", 5),
        ("cells", []),
        ("cells.0.label", ""),
        ("cells.0.label", "l" * 300),
        ("cells.0.label", ESCAPE),
        ("cells.0.label", "=1+1"),
        ("cells.0.seed", 10**40),
        ("cells.0.seed", -(10**400)),
        ("cells.0.epsilon", -1.0),
        ("cells.0.epsilon", 1e308),
        ("cells.0.epsilon", 0),
        ("cells.0.delta", -1e308),
        ("cells.0.delta", 5e-324),
        ("cells.0.communication.bytes_up", -1e308),
        ("cells.0.communication.bytes_up", 1e308),
        ("cells.0.communication", {ESCAPE: 1.0}),
        ("cells.0.utility", {"accuracy": "inf"}),
        ("cells.0.utility", {"accuracy": -1e308}),
        ("cells.0.utility", {}),
        ("cells.0.seconds", {"x": -1e308, "y": 1e308}),
        ("cells.0.params", {"a": [[[[]]]], "b": None}),
        ("cells.0.notes", ["n" * 100_000]),
        ("cells.0.privacy.mu", 1e308),
        ("cells.0.privacy.observed", -1e308),
        ("cells.0.privacy.reason", "<script>alert(1)</script>"),
        ("cells.0.ledger.0.messages", 10**400),
        ("cells.0.ledger.0.nbytes", 10**400),
        ("cells.0.ledger.0.nbytes", -5),
        ("cells.0.ledger.0.sensitivity", [1e308, -1e308]),
        ("cells.0.findings.0.audit", "nobody's"),
        ("cells.0.findings.0.audit", ""),
        ("cells.0.findings.0.audit", "../../x"),
        ("cells.0.findings.0.audit", "a\0b" + "c" * 300),
        ("cells.0.findings.0.metrics", {f"m{i}": {"value": i} for i in range(2000)}),
        ("cells.0.findings.0.metrics", {"psnr": {"value": 1e308, "low": -1e308, "high": "inf", "n": 10**400}}),
        ("cells.0.findings.0.metrics", {"psnr": {"value": 0, "n": -5}}),
        ("cells.0.findings.0.metrics", {ESCAPE: {"value": None}}),
        ("cells.0.findings.0.source", "s" * 300),
        ("cells.0.findings.0.series", {"roc": {"title": "", "columns": {}}}),
        ("cells.0.findings.0.series", {"roc": {"title": "", "columns": {"": []}}}),
        ("cells.0.findings.0.series", {"../../x": {"title": "t", "columns": {"a": ["x", None, 1e308]}}}),
        ("cells.0.findings.0.series", {"s" * 300: {"title": "t", "columns": {"a": [1]}}}),
        ("cells.0.findings.0.series", {"roc": {"title": "t", "columns": {"fpr": ["x"], "tpr": ["y"]}}}),
        (
            "cells.0.findings.0.series",
            {"histogram": {"title": "t", "columns": {"low": [1e308], "high": [-1e308]}}},
        ),
        ("errors", [{"cell": ESCAPE, "stage": "", "message": "m" * 100_000}]),
        ("schema", 3),
        ("schema", 10**400),
        ("schema", -1),
    ]
    for number, (path, value) in enumerate(values):
        tree_of = changed(tree, path, value) if "." in path else {**tree, path: value}
        for form in ("html", formats[1 + number % 5]):
            yield make(f"{path} = {str(value)[:30]!r} as {form}", tree_of, (*REPORT, form))
    yield make("nothing", b"")
    yield make("nesting of 100,000", b'{"plan": ' + b"[" * 100_000)
    yield make(
        "deep parameters",
        json.dumps(tree).replace('"params": {', '"params": {"d": ' + "[" * 150 + "]" * 150 + ", ", 1).encode(),
    )
    yield make(
        "a number of 5,000 digits", json.dumps(tree).replace('"seed": 3', '"seed": ' + "9" * 5000, 1).encode()
    )
    yield make(
        "a number of 4,000 digits", json.dumps(tree).replace('"seed": 3', '"seed": ' + "9" * 4000, 1).encode()
    )
    yield make("an exponent of 10^9", json.dumps(tree).replace('"seed": 3', '"seed": 1e1000000000', 1).encode())
    yield make("20 million brackets", b'{"plan": [' + b"[]," * 20_000_000 + b"[]]}")
    yield make("a text of 50 MB", changed(tree, "cells.0.privacy.reason", "r" * (50 << 20)))
    yield make("50 MB of hidden characters", changed(tree, "cells.0.privacy.reason", "\u202e" * (8 << 20)))
    yield make("20,000 cells", {**tree, "cells": tree["cells"][:1] * 20_000})
    yield make("200 MB of nothing", Special("sparse", "{", 200 << 20))
    yield make("UTF-16", json.dumps(tree).encode("utf-16"))
    yield make("lone surrogates", json.dumps(changed(tree, "cells.0.label", "\ud800")).encode())
    yield make(
        "many curves",
        changed(
            tree,
            "cells.0.findings.0.series",
            {f"s{i}": {"title": "t", "columns": {"a": [1, 2]}} for i in range(3000)},
        ),
    )
    many = changed(tree, "cells.0.findings", tree["cells"][0]["findings"][:1] * 3000)
    check = ("check", "run", "--policy", "policy.yaml", "--sarif", "out/s", "--junit", "out/j")
    yield make(
        "checked: 3,000 findings",
        many,
        check,
    )
    compared = ("compare", "run", "run", "-o", "out/c.html")
    yield make("compared with itself", tree, compared)
    yield make("compared: labels of 300", changed(tree, "cells.0.label", "l" * 300), compared)
