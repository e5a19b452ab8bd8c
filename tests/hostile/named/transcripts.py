"""Manifests of transcripts, and what lies beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from material import Case, Material, Special

from named.parts import ESCAPE, FIFO, FOLDER, ZERO, changed


def _release(**given: Any) -> dict[str, Any]:
    base = {"mechanism": "pure", "adjacency": "replace_one", "cells": ["all"], "pure_epsilon": [1.0]}
    return {**base, **given}


def cases(material: Material) -> Iterator[Case]:
    tree, make = material.transcript, material.transcript_case
    first = tree["messages"][0]
    texts = {"50 MB": "m" * (50 << 20), "an escape": ESCAPE, "100,000 letters": "m" * 100_000}
    for name, text in texts.items():
        yield make(f"a method of {name}", {**tree, "method": text})
        yield make(f"a sender of {name}", changed(tree, "messages.0.sender", text))
    yield make("a note of 50 MB", {**tree, "notes": ["n" * (50 << 20)]})
    yield make("500,000 notes", {**tree, "notes": ["n"] * 500_000})
    field = next(iter(first["fields"]))
    yield make(
        "a field of 100,000 letters", changed(tree, "messages.0.fields", {"f" * 100_000: first["fields"][field]})
    )
    for value in (0, -1, 10**9, 10**5000 if False else 10**400, 2.5, "x", None, True):
        yield make(f"classes = {str(value)[:20]!r}", {**tree, "classes": value})
    for value in (-1, 10**30, 10**400, 1e300, "x"):
        yield make(f"round = {str(value)[:20]!r}", changed(tree, "messages.0.round", value))
    yield make("nesting of 100,000", b'{"messages": ' + b"[" * 100_000)
    yield make("a number of 5,000 digits", b'{"format": 1, "classes": ' + b"9" * 5000 + b"}")
    yield make("20 million brackets", b'{"messages": [' + b"[]," * 20_000_000 + b"[]]}")
    yield make("20 million mappings", b'{"messages": [' + b'{"a":{}},' * 5_000_000 + b"{}]}")
    yield make("keys twice", b'{"format": 1, "format": 1}')
    yield make("200 MB of nothing", Special("sparse", "{", 200 << 20))
    yield make("a manifest that is a named pipe", FIFO)
    yield make("a manifest that is a device", ZERO)
    yield make("a manifest that is a link", Special("link", "/etc/passwd"), {})
    yield make("a manifest that is a link to itself", Special("link", "transcript.json"), {})
    for name in ("../../etc/passwd", "/dev/zero", "a\0b", "x" * 5000, "", ".", "..", "transcript.json", ESCAPE):
        yield make(f"a file named {name[:20]!r}", changed(tree, "messages.0.file", name))
    file = f"in/{first['file']}"
    specials = {
        "a named pipe": FIFO,
        "a device": ZERO,
        "a folder": FOLDER,
        "a link": Special("link", "/etc/passwd"),
    }
    for name, special in specials.items():
        yield make(f"a message that is {name}", tree, {file: special})
        yield make(f"an unlisted file that is {name}", tree, {"in/unlisted.safetensors": special})
        yield make(f"an unlisted text that is {name}", tree, {"in/README": special})
    loop = {"in/sub": Special("link", "."), "in/loop.safetensors": Special("link", "loop.safetensors")}
    yield make("a link to the folder itself, unlisted", tree, loop)
    yield from _many(material)


def _many(material: Material) -> Iterator[Case]:
    """Numbers of releases, cells, clients and messages that make the ledger slow."""
    tree, make = material.transcript, material.transcript_case
    first = tree["messages"][0]
    name = next(iter(first["fields"]))
    for count in (1_000, 50_000):
        cells = {
            "cells": [f"class/{i}" for i in range(count)],
            "pure_epsilon": [1 + i * 1e-6 for i in range(count)],
        }
        claim = {"kind": "claim", "epsilon": 1.0, "delta": 1e-5, "adjacency": "replace_one", "source": "x"}
        fields = {key: {**value, "release": _release(**cells)} for key, value in first["fields"].items()}
        yield make(
            f"{count} cells of pure releases", {**tree, "claim": claim, "messages": [{**first, "fields": fields}]}
        )
        half = {"mechanism": "gaussian", "sensitivity": [1 + i * 1e-6 for i in range(count)]}
        noisy = {**_release(**cells), **half, "noise_scale": [1.0] * count}
        noisy.pop("pure_epsilon")
        mixed = dict(fields)
        mixed[name] = {**first["fields"][name], "release": noisy}
        yield make(
            f"{count} cells, pure and gaussian", {**tree, "claim": claim, "messages": [{**first, "fields": mixed}]}
        )
    many = [{**first, "sender": f"client/{i}", "file": f"{i}.safetensors"} for i in range(60_000)]
    yield make("60,000 messages whose files are not there", {**tree, "messages": many})
    same = [{**first, "sender": f"client/{i}"} for i in range(60_000)]
    yield make("60,000 messages with one file", {**tree, "messages": same})
    sgd = {"mechanism": "dp_sgd", "adjacency": "add_remove", "noise_multiplier": 1.0, "sampling_rate": 0.5}
    claim = {"kind": "claim", "epsilon": 1.0, "delta": 1e-5, "adjacency": "add_remove", "source": "x"}
    for steps in (10**7, 10**30):
        fields = {key: {**value, "release": {**sgd, "steps": steps}} for key, value in first["fields"].items()}
        yield make(
            f"DP-SGD of {steps:g} steps", {**tree, "claim": claim, "messages": [{**first, "fields": fields}]}
        )
    for key, value in (("noise_multiplier", 1e-300), ("noise_multiplier", 1e300), ("sampling_rate", 1e-300)):
        fields = {k: {**v, "release": {**sgd, "steps": 10, key: value}} for k, v in first["fields"].items()}
        yield make(
            f"DP-SGD of {key} {value:g}", {**tree, "claim": claim, "messages": [{**first, "fields": fields}]}
        )
    for epsilon in (1e308, 1e-308):
        fields = {k: {**v, "release": _release(pure_epsilon=[epsilon])} for k, v in first["fields"].items()}
        yield make(
            f"pure releases of {epsilon:g}", {**tree, "claim": claim, "messages": [{**first, "fields": fields}]}
        )
