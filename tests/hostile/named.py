"""Hostile input that somebody thought of, each with a name. All of it is refused, or done in bounded time."""

from __future__ import annotations

import copy
import io
import json
import pickle
import struct
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from material import (
    AUDIT,
    CHECK,
    DRY,
    PLAN,
    POLICY,
    REPORT,
    RUN,
    Case,
    Kind,
    Material,
    Special,
    archive,
    as_json,
    as_yaml,
    image_folder,
    images_npz,
    own_plan,
    picture,
    weights_plan,
)
from safetensors.numpy import save as save_tensors

FIFO, FOLDER = Special("fifo"), Special("folder")
ZERO, LOOP = Special("link", "/dev/zero"), Special("link", "loop.yaml")
ESCAPE = "\x1b[2J\u202e"


def cases(material: Material) -> Iterator[Case]:
    """All of them, by kind."""
    yield from _yaml("plan", DRY, "plan.yaml", as_yaml(PLAN))
    yield from _yaml(
        "policy", CHECK, "policy.yaml", as_yaml(POLICY), {"run/record.json": as_json(material.record)}
    )
    yield from _plans()
    yield from _policies(material)
    yield from _transcripts(material)
    yield from _messages(material)
    yield from _records(material)
    yield from _run_folders(material)
    yield from _images()
    yield from _npz()
    yield from _weights(material)


def _bomb(levels: int = 9, width: int = 9) -> str:
    lines = ["b0: &b0 [x]"]
    for level in range(1, levels):
        lines.append(f"b{level}: &b{level} [{', '.join([f'*b{level - 1}'] * width)}]")
    return "\n".join(lines) + "\n"


def _merge_bomb(levels: int = 12) -> str:
    lines = ["m0: &m0 {a: 1}"]
    for level in range(1, levels):
        lines.append(f"m{level}: &m{level} {{<<: [{', '.join([f'*m{level - 1}'] * 9)}]}}")
    return "\n".join(lines) + "\n"


def _yaml(
    kind: Kind, args: tuple[str, ...], file: str, sound: bytes, beside: dict[str, bytes | Special] | None = None
) -> Iterator[Case]:
    texts: dict[str, str] = {
        "a date that is none": "x: 2026-02-30\n",
        "a list as a key": "? [1]\n: 2\n",
        "a mapping as a key": "? {a: 1}\n: 2\n",
        "a number that is none": "x: !!int abc\n",
        "a float that is none": "x: !!float abc\n",
        "a boolean that is none": "x: !!bool abc\n",
        "a timestamp that is none": "x: !!timestamp abc\n",
        "binary that is none": "x: !!binary äöü\n",
        "a set": "x: !!set {a, b}\n",
        "an ordered map": "x: !!omap [a, b]\n",
        "a python object": "x: !!python/object/apply:os.system [ls]\n",
        "a number of 5,000 digits": f"x: {'9' * 5000}\n",
        "a number of 4,000 digits": f"x: {'9' * 4000}\n",
        "a hexadecimal number of 5,000 digits": f"x: 0x{'f' * 5000}\n",
        "a sexagesimal number": f"x: 1{':59' * 2000}\n",
        "nesting of 2,000": f"x: {'[' * 2000}{']' * 2000}\n",
        "nesting of 100,000": f"x: {'[' * 100_000}\n",
        "nested mappings": f"x: {'{a: ' * 900}1{'}' * 900}\n",
        "nested blocks": "".join(f"{' ' * i}a:\n" for i in range(900)),
        "a bomb of aliases": _bomb(),
        "a bomb of merges": _merge_bomb(),
        "an alias to itself": "x: &a [*a]\n",
        "a mapping that merges itself": "x: &a {<<: *a}\n",
        "an alias of nothing": "x: *nothing\n",
        "a merge of a number": "<<: 3\nx: 1\n",
        "a value tag": "x: {=: 3}\n",
        "a key twice": "x: 1\nx: 2\n",
        "a key that is null": "~: 1\n",
        "a key that is a number": "1: 1\n",
        "a key that is not a number": ".nan: 1\n",
        "two documents": "x: 1\n---\nx: 2\n",
        "a directive": "%YAML 9.9\n---\nx: 1\n",
        "an unknown tag": "x: !foo bar\n",
        "a lone surrogate": 'x: "\\ud800"\n',
        "an escape out of range": 'x: "\\UFFFFFFFF"\n',
        "a control character": "x: \x01\n",
        "tabs": "x:\n\t- 1\n",
        "only a number": "3\n",
        "only null": "~\n",
        "a long key": f"{'k' * 100_000}: 1\n",
        "an escape in a key": 'x: {"\\e[2J\\u202e": 1}\n',
        "200,000 entries": f"x: [{'a, ' * 200_000}]\n",
        "many mappings": f"x: [{'{a: b}, ' * 50_000}]\n",
    }
    for name, text in texts.items():
        for where, content in (("alone", text.encode()), ("in a sound one", sound + text.encode())):
            yield Case(kind, f"{name}, {where}", args, {file: content, **(beside or {})})
    contents: dict[str, bytes | Special] = {
        "nothing": b"",
        "bytes that are no text": b"\xff\xfe\x00\xd8",
        "UTF-16": "x: 1\n".encode("utf-16"),
        "a null byte": b"x: \0\n",
        "100 MB": Special("sparse", "x: 1\n", 100 << 20),
        "20 MB of text": b"x: " + b"a" * (20 << 20),
        "5 MB of comments": b"# comment\n" * 500_000,
        "a named pipe": FIFO,
        "a folder": FOLDER,
        "an endless device": ZERO,
        "a link to itself": Special("link", file.rpartition("/")[2]),
        "a link to nothing": Special("link", "nothing"),
    }
    for name, content in contents.items():
        yield Case(kind, name, args, {file: content, **(beside or {})})


def _set(tree: Any, path: str, value: Any) -> Any:
    """A copy of a tree with one value replaced."""
    out = copy.deepcopy(tree)
    *parents, last = path.split(".")
    place = out
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place[part]
    place[int(last) if isinstance(place, list) else last] = value
    return out


def _plans() -> Iterator[Case]:
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
        tree = _set(PLAN, path, value) if path != "similarity" else {**PLAN, "similarity": value}
        if path == "data.path":
            tree["data"]["name"] = "npz"
        if path == "data.root":
            tree["data"]["name"] = "mnist"
        content = json.dumps(tree).replace("Infinity", ".inf").encode()
        for args in (DRY, RUN):
            yield Case("plan", f"{path} = {str(value)[:30]!r}, {args[2]}", args, {"plan.yaml": content})
    weights = _set(PLAN, "backbone", {"name": "resnet18", "weights": "/etc/passwd"})
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


def _policies(material: Material) -> Iterator[Case]:
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
        content = json.dumps(_set(POLICY, path, value)).encode()
        yield Case("policy", f"{path} = {str(value)[:30]!r}", CHECK, {"policy.yaml": content, **record})


def _release(**given: Any) -> dict[str, Any]:
    base = {"mechanism": "pure", "adjacency": "replace_one", "cells": ["all"], "pure_epsilon": [1.0]}
    return {**base, **given}


def _transcripts(material: Material) -> Iterator[Case]:
    tree, make = material.transcript, material.transcript_case
    first = tree["messages"][0]
    texts = {"50 MB": "m" * (50 << 20), "an escape": ESCAPE, "100,000 letters": "m" * 100_000}
    for name, text in texts.items():
        yield make(f"a method of {name}", {**tree, "method": text})
        yield make(f"a sender of {name}", _set(tree, "messages.0.sender", text))
    yield make("a note of 50 MB", {**tree, "notes": ["n" * (50 << 20)]})
    yield make("500,000 notes", {**tree, "notes": ["n"] * 500_000})
    field = next(iter(first["fields"]))
    yield make(
        "a field of 100,000 letters", _set(tree, "messages.0.fields", {"f" * 100_000: first["fields"][field]})
    )
    for value in (0, -1, 10**9, 10**5000 if False else 10**400, 2.5, "x", None, True):
        yield make(f"classes = {str(value)[:20]!r}", {**tree, "classes": value})
    for value in (-1, 10**30, 10**400, 1e300, "x"):
        yield make(f"round = {str(value)[:20]!r}", _set(tree, "messages.0.round", value))
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
        yield make(f"a file named {name[:20]!r}", _set(tree, "messages.0.file", name))
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


def _one(kind: str, values: np.ndarray, name: str, classes: int = 10, **more: tuple[str, np.ndarray]) -> Case:
    """A transcript of one message with these fields."""
    held = {"f": (kind, values), **more}
    fields = {key: {"kind": what, "release": {"mechanism": "exact"}} for key, (what, _) in held.items()}
    message = {"round": 0, "sender": "client/0", "file": "0.safetensors", "fields": fields}
    tree = {"format": 1, "method": "m", "classes": classes, "messages": [message]}
    data = save_tensors({key: np.ascontiguousarray(array) for key, (_, array) in held.items()})
    return Case("transcript", name, AUDIT, {"in/transcript.json": as_json(tree), "in/0.safetensors": data})


def _header(head: Any, size: int = 0) -> Special | bytes:
    """A safetensors file of a header and so many zero bytes, which take no room."""
    text = head if isinstance(head, str) else json.dumps(head)
    start = struct.pack("<Q", len(text.encode())).decode("latin1")
    if not start.isascii():
        return struct.pack("<Q", len(text.encode())) + text.encode() + bytes(size)
    return Special("sparse", start + text, len(start) + len(text) + size)


def _messages(material: Material) -> Iterator[Case]:
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(512, 512)).astype(np.float32)
    yield _one("second_moment", wide @ wide.T, "a moment of width 512")
    yield _one("second_moment", np.zeros((6000, 6000), np.uint8), "a moment of width 6,000, of zeros")
    yield _one(
        "second_moment", np.zeros(24_506_000, np.uint8)[: 7000 * 7001 // 2], "a packed moment of width 7,000"
    )
    yield _one("class_sums", rng.normal(size=(2, 200_000)), "sums of width 200,000", classes=2)
    yield _one("features", rng.normal(size=(200_000, 8)), "200,000 features")
    yield _one(
        "class_means",
        rng.normal(size=(60, 160)),
        "60 covariances of width 160",
        60,
        c=("class_covariances", np.ones((60, 160, 160))),
        n=("class_counts", np.full(60, 5.0)),
    )
    yield _one("mixture_means", np.zeros((0, 0)), "a mixture of nothing")
    yield _one("class_sums", np.zeros((10, 0)), "sums of width 0")
    yield _one("second_moment", np.zeros((0, 0)), "a moment of width 0")
    yield _one("second_moment", np.full((4, 4), 1e308), "a moment that overflows")
    yield _one("class_sums", np.full((10, 4), 1e308), "sums that overflow", n=("class_counts", np.ones(10)))
    yield _one("class_counts", np.full(10, -5.0), "negative counts")
    yield _one("labels", np.full(10, 2**62), "labels of 2^62")
    yield _one("component_counts", np.full(10, 2**62), "component counts of 2^62")
    yield _one("features", np.zeros((3, 4), bool), "features that are booleans")
    yield _one("magnitude_mean", np.zeros(3), "a magnitude of one side")
    yield _one("class_counts", np.float64(3.0), "counts without a side")
    yield _one("class_counts", np.ones(100_000), "100,000 classes", classes=100_000)
    tree, make = material.transcript, material.transcript_case
    first = tree["messages"][0]
    file, names = f"in/{first['file']}", [*first["fields"]]

    def tensor(shape: list[int], size: int, dtype: str = "U8") -> dict[str, Any]:
        return {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}

    big = 60_000**2
    only = {
        **tree,
        "messages": [{**first, "fields": {"f": {"kind": "second_moment", "release": {"mechanism": "exact"}}}}],
    }
    yield make("a moment of width 60,000", only, {file: _header({"f": tensor([60_000, 60_000], big)}, big)})
    yield make(
        "a message of 3 GiB that declares little", tree, {file: _header({names[0]: tensor([1], 1)}, 3 << 30)}
    )
    yield make("a shape of 2^62", only, {file: _header({"f": tensor([2**62], 1)}, 1)})
    yield make("a shape whose product overflows", only, {file: _header({"f": tensor([2**32, 2**32], 0)}, 0)})
    yield make("a shape of a million sides", only, {file: _header({"f": tensor([1] * 1_000_000, 1)}, 1)})
    yield make("a shape of 100 sides", only, {file: _header({"f": tensor([1] * 100, 1)}, 1)})
    yield make("a type that NumPy has not", only, {file: _header({"f": tensor([2], 2, "F8_E4M3")}, 2)})
    yield make("bfloat16", only, {file: _header({"f": tensor([2, 2], 8, "BF16")}, 8)})
    yield make("an unknown type", only, {file: _header({"f": tensor([2], 2, "X9")}, 2)})
    yield make("a header that is a list", only, {file: _header([])})
    yield make("a header that is no JSON", only, {file: _header("{")})
    yield make("a header of nesting", only, {file: _header('{"f": ' + "[" * 100_000)})
    many = {f"t{i}": tensor([0], 0) for i in range(300_000)}
    yield make("300,000 arrays", only, {file: _header(many)})
    yield make(
        "metadata of 20 MB", only, {file: _header({"__metadata__": {"a": "x" * (20 << 20)}, "f": tensor([0], 0)})}
    )
    yield make("a header longer than the file", tree, {file: struct.pack("<Q", 2**63) + b"{}"})
    yield make("a pickle", tree, {file: pickle.dumps({"a": 1})})
    yield make("an empty message", tree, {file: b""})
    yield make("NaN", only, {file: save_tensors({"f": np.full((4, 4), np.nan)})})


def _records(material: Material) -> Iterator[Case]:
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
        tree_of = _set(tree, path, value) if "." in path else {**tree, path: value}
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
    yield make("a text of 50 MB", _set(tree, "cells.0.privacy.reason", "r" * (50 << 20)))
    yield make("50 MB of hidden characters", _set(tree, "cells.0.privacy.reason", "\u202e" * (8 << 20)))
    yield make("20,000 cells", {**tree, "cells": tree["cells"][:1] * 20_000})
    yield make("200 MB of nothing", Special("sparse", "{", 200 << 20))
    yield make("UTF-16", json.dumps(tree).encode("utf-16"))
    yield make("lone surrogates", json.dumps(_set(tree, "cells.0.label", "\ud800")).encode())
    yield make(
        "many curves",
        _set(
            tree,
            "cells.0.findings.0.series",
            {f"s{i}": {"title": "t", "columns": {"a": [1, 2]}} for i in range(3000)},
        ),
    )
    check = ("check", "run", "--policy", "policy.yaml", "--sarif", "out/s", "--junit", "out/j")
    yield make(
        "checked: 3,000 findings", _set(tree, "cells.0.findings", tree["cells"][0]["findings"][:1] * 3000), check
    )
    compared = ("compare", "run", "run", "-o", "out/c.html")
    yield make("compared with itself", tree, compared)
    yield make("compared: labels of 300", _set(tree, "cells.0.label", "l" * 300), compared)


def _run_folders(material: Material) -> Iterator[Case]:
    tree, make = material.record, material.record_case
    html = (*REPORT, "html")
    specials = {
        "a named pipe": FIFO,
        "a device": ZERO,
        "a folder": FOLDER,
        "a loop": Special("link", "record.json"),
    }
    for name, special in specials.items():
        yield make(f"a record that is {name}", special)
        yield make(f"a picture that is {name}", tree, html, **{"run/artifacts/c/p.png": special})
        yield make(f"an unlisted picture that is {name}", tree, html, **{"run/artifacts/c/q.png": special})
        yield make(f"a table that is {name}", tree, html, **{"run/tables/verdicts.csv": special})
    yield make(
        "a picture that is a link outside", tree, html, **{"run/artifacts/c/p.png": Special("link", "/etc/passwd")}
    )
    where = "cells.0.findings.0.pictures.0"
    for name in ("/dev/zero", "../../../etc/passwd", "a\0b", "x" * 5000, "", ".", ESCAPE):
        yield make(f"a picture named {name[:20]!r}", _set(tree, f"{where}.file", name))
    for value in ([0, 0], [-1, -1], [10**9, 10**9], [10**400, 1], [1, 10**9]):
        yield make(f"a tile of {str(value)[:20]}", _set(tree, f"{where}.tile", value))
    yield make("no rows", _set(tree, f"{where}.rows", []))
    yield make("a million rows", _set(tree, f"{where}.rows", ["r"] * 1_000_000))
    yield make("a picture of a million columns", _set(tree, f"{where}.columns", [{}] * 1_000_000))
    bomb = {"run/artifacts/c/p.png": _bomb_png(8000)}
    yield make("a picture that unpacks to 64 MB", _set(tree, f"{where}.tile", [4000, 4000]), html, **bomb)
    yield make("a picture that is text", tree, html, **{"run/artifacts/c/p.png": b"text"})
    yield make("a picture cut short", tree, html, **{"run/artifacts/c/p.png": picture(16, 16)[:60]})
    yield make("a picture of another format", tree, html, **{"run/artifacts/c/p.png": picture(16, 16, form="BMP")})
    audit = ("run", "plan.yaml", "-o", "run", "--resume", "--quiet")
    for name, special in specials.items():
        held: dict[str, bytes | Special] = {"plan.yaml": as_yaml(PLAN), "run/record.json": special}
        yield Case("record", f"--resume where the record is {name}", audit, held)
        held = {"plan.yaml": as_yaml(PLAN), "run/record.json": as_json(tree), "run/.cells/plan.sha256": special}
        yield Case("record", f"--resume where the digest is {name}", audit, held)
    yield Case("record", "a run that is not there", html, {})
    yield Case("record", "a run with a null byte in its name", ("report", "r" * 300), {})


def _bomb_png(side: int) -> bytes:
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pressed = zlib.compressobj(9)
    row = bytes(side + 1)
    data = b"".join(pressed.compress(row) for _ in range(side)) + pressed.flush()
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def _images() -> Iterator[Case]:
    def make(name: str, **files: bytes | Special) -> Case:
        plan = {"plan.yaml": own_plan("image_folder", "in")}
        return Case("image", name, RUN, {**plan, **image_folder(), **files})

    odd = "in/a/00.png"
    yield make("nothing wrong")
    yield make("a bomb of 20,000 pixels a side", **{odd: _bomb_png(20_000)})
    yield make("a bomb of 12,000 pixels a side", **{odd: _bomb_png(12_000)})
    yield make("a picture cut short", **{odd: picture()[:50]})
    yield make("text", **{odd: b"text"})
    yield make("nothing", **{odd: b""})
    yield make("2 GB", **{odd: Special("sparse", "x", 2 << 30)})
    yield make(
        "PostScript named png", **{odd: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n"}
    )
    yield make("a named pipe", **{odd: FIFO})
    yield make("a device", **{odd: ZERO})
    yield make("a link to itself", **{odd: Special("link", "00.png")})
    yield make("a folder named png", **{odd: FOLDER})
    yield make("class folders that link to themselves", **{"in/c": Special("link", "c")})
    yield make("a class folder that links to its parent", **{"in/c": Special("link", ".")})
    for form in ("GIF", "BMP", "TIFF", "PPM", "WEBP", "JPEG"):
        sound = picture(form=form)
        yield make(f"{form} named png", **{odd: sound})
        yield make(f"{form} cut short", **{odd: sound[: len(sound) * 2 // 3]})
    names = {"\udcff\udcfe": "not UTF-8", ESCAPE: "an escape", "n" * 255: "255 letters", "=1+1": "a formula"}
    for name, what in names.items():
        files = {f"in/{name}/{i}.png": picture(seed=i + 50) for i in range(8)}
        yield make(f"a class folder whose name is {what}", **files)
    yield make("a domain whose name is not UTF-8", **{f"in/\udcff/a/{i}.png": picture(seed=i) for i in range(4)})
    gif = io.BytesIO()
    frames = [picture(seed=i) for i in range(3)]
    from PIL import Image

    opened = [Image.open(io.BytesIO(frame)) for frame in frames]
    opened[0].save(gif, "GIF", save_all=True, append_images=opened[1:])
    yield make("a film", **{odd: gif.getvalue()})
    many = {f"in/c{i}/0.png": picture(seed=i) for i in range(1500)}
    yield make("1,500 classes of one image", **many)


def _npy(head: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = head.encode("latin1") + b"\n"
    length = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    return b"\x93NUMPY" + version + length + text + data


def _zip(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as made:
        for name, data in members.items():
            made.writestr(name, data)
    return stream.getvalue()


def _npz() -> Iterator[Case]:
    def make(name: str, content: bytes | Special) -> Iterator[Case]:
        for args in (DRY, RUN):
            yield Case(
                "npz", f"{name}, {args[2]}", args, {"plan.yaml": own_plan("npz", "in.npz"), "in.npz": content}
            )

    sound = images_npz()
    held = archive(**sound)
    y = _npy("{'descr': '<i8', 'fortran_order': False, 'shape': (4,), }", bytes(32))
    heads = {
        "a shape of 10^12": "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000, 8, 8), }",
        "a shape of 10^400": f"{{'descr': '|u1', 'fortran_order': False, 'shape': (1{'0' * 400},), }}",
        "a negative shape": "{'descr': '|u1', 'fortran_order': False, 'shape': (-4, 8, 8), }",
        "a shape that is text": "{'descr': '|u1', 'fortran_order': False, 'shape': 'x', }",
        "a shape of booleans": "{'descr': '|u1', 'fortran_order': False, 'shape': (True, 8, 8), }",
        "a shape of 1,000 sides": f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({'1, ' * 1000}), }}",
        "a type that is none": "{'descr': 'spam', 'fortran_order': False, 'shape': (4,), }",
        "a type of nothing": "{'descr': '|V0', 'fortran_order': False, 'shape': (4, 8, 8), }",
        "a structured type": "{'descr': [('a', '<i4'), ('b', '<f8')], 'fortran_order': False, 'shape': (4,), }",
        "a type with a bad tuple": "{'descr': ('a', 3, 5, 'x'), 'fortran_order': False, 'shape': (4,), }",
        "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (4,), }",
        "dates": "{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (4,), }",
        "code": "__import__('os').system('touch owned')",
        "nesting": "(" * 3000,
        "a key too many": "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), 'x': 1}",
        "a long header": "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }" + " " * 60_000,
    }
    for name, head in heads.items():
        yield from make(name, _zip({"x.npy": _npy(head, bytes(256)), "y.npy": y}))
        yield from make(
            f"labels: {name}", _zip({"x.npy": held[:0] + _member(sound["x"][:4]), "y.npy": _npy(head, bytes(32))})
        )
    long = _npy("{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }" + " " * 10_000_000, b"", b"\x02\x00")
    yield from make("a header of 10 MB", _zip({"x.npy": long, "y.npy": y}))
    zeros = np.zeros((3000, 512, 512), np.uint8)
    yield from make(
        "a bomb that unpacks to 750 MB", _zip({"x.npy": _member(zeros), "y.npy": _member(np.arange(3000) % 2)})
    )
    yield from make("nothing", b"")
    yield from make("text", b"text")
    yield from make("cut short", held[:-30])
    yield from make("a broken checksum", held.replace(sound["x"].tobytes()[:20], b"\1" * 20, 1))
    yield from make("200,000 members", _zip({f"m{i}": b"" for i in range(60_000)}, zipfile.ZIP_STORED))
    yield from make("an array twice", _twice())
    yield from make("an array .npy of its own", _member(sound["x"]))
    yield from make("3 GB of nothing", Special("sparse", "PK", 3 << 30))
    yield from make("a named pipe", FIFO)
    yield from make("a device", ZERO)
    yield from make("a folder", FOLDER)
    yield from make("a link to itself", Special("link", "in.npz"))
    arrays: dict[str, dict[str, Any]] = {
        "floats": {"x": sound["x"] / 255.0},
        "NaN": {"x": np.full((40, 8, 8), np.nan)},
        "no images": {"x": sound["x"][:0], "y": sound["y"][:0]},
        "no pixels": {"x": sound["x"][:, :0]},
        "images of one side": {"x": sound["x"][:, 0]},
        "5 channels": {"x": np.zeros((40, 8, 8, 5), np.uint8)},
        "labels of 2^64": {"y": np.full(40, 2**64 - 1, np.uint64)},
        "labels that are text": {"y": np.array(["a", "b"] * 20)},
        "labels of two sides": {"y": np.zeros((40, 2), int)},
        "fewer labels": {"y": sound["y"][:3]},
        "every record a class": {"y": np.arange(40)},
        "one class": {"y": np.zeros(40, int)},
        "x_train too": {"x_train": sound["x"]},
        "x_test alone": {"x_test": sound["x"]},
        "domains that are text": {"domain": np.array(["a"] * 40)},
        "Fortran order": {"x": np.asfortranarray(sound["x"])},
        "a scalar": {"x": np.uint8(3)},
        "labels that are a scalar": {"y": np.int64(3)},
    }
    for name, given in arrays.items():
        yield from make(name, archive(**{**sound, **given}))


def _member(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array)
    return stream.getvalue()


def _twice() -> bytes:
    import warnings

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            made.writestr("x.npy", _member(np.zeros((4, 8, 8), np.uint8)))
    return stream.getvalue()


class _Reduced:
    """Pickles as a call."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


def _weights(material: Material) -> Iterator[Case]:
    import os
    from collections import OrderedDict

    import torch

    def saved(content: Any, **options: Any) -> bytes:
        stream = io.BytesIO()
        torch.save(content, stream, **options)
        return stream.getvalue()

    state = {name: torch.tensor(array) for name, array in _load(material.weights["safetensors"]).items()}
    sound = material.weights["torch"]
    contents: dict[str, bytes | Special] = {
        "nothing wrong": sound,
        "/etc/passwd": Special("link", "/etc/passwd"),
        "nothing": b"",
        "one letter": b"x",
        "text": b"text\n" * 100,
        "a pickle": pickle.dumps({"a": 1}),
        "a pickle of code": pickle.dumps(_Reduced(os.system, "touch owned")),
        "code in a file of torch's": saved({"a": _Reduced(os.system, "touch owned")}),
        "code in the old format": saved(
            {"a": _Reduced(os.system, "touch owned")}, _use_new_zipfile_serialization=False
        ),
        "the old format": saved(state, _use_new_zipfile_serialization=False),
        "the old format cut short": saved(state, _use_new_zipfile_serialization=False)[:3000],
        "cut short": sound[:-100],
        "cut in half": sound[: len(sound) // 2],
        "a list": saved([1, 2]),
        "a tensor": saved(torch.zeros(3)),
        "an empty mapping": saved({}),
        "keys that are numbers": saved({1: torch.zeros(3)}),
        "values that are text": saved({"a": "b"}),
        "a state dict of a state dict": saved({"state_dict": state}),
        "another network": saved({"a": torch.zeros(3)}),
        "NaN": saved({**state, "conv1.weight": state["conv1.weight"] * float("nan")}),
        "whole numbers": saved({**state, "conv1.weight": state["conv1.weight"].long()}),
        "complex numbers": saved({**state, "conv1.weight": state["conv1.weight"].to(torch.complex64)}),
        "a sparse tensor": saved({**state, "conv1.weight": state["conv1.weight"].to_sparse()}),
        "a quantised tensor": saved(
            {**state, "conv1.weight": torch.quantize_per_tensor(state["conv1.weight"], 0.1, 0, torch.qint8)}
        ),
        "a tensor on meta": saved({**state, "conv1.weight": state["conv1.weight"].to("meta")}),
        "a head without sides": saved({**state, "linear.weight": torch.tensor(3.0)}),
        "a head of 10^9 classes": saved(
            {
                **state,
                "linear.weight": torch.zeros(1, 64).expand(10**9, 64),
                "linear.bias": torch.zeros(1).expand(10**9),
            }
        ),
        "a head of 10^9 classes and no features": saved({**state, "linear.weight": torch.zeros(10**9, 0)}),
        "a huge view": saved({**state, "conv1.weight": torch.zeros(1).expand(10**12)}),
        "a bytearray of 10 GB": saved({"a": _Reduced(bytearray, 10**10)}),
        "an ordered dict of bytes": saved(OrderedDict(a=_Reduced(bytearray, 10**6))),
        "nesting": pickle.dumps(_nested(400), protocol=2),
        "a zip of nothing": _zip({}),
        "a zip bomb": _zip({"archive/data.pkl": bytes(300 << 20)}),
        "a named pipe": FIFO,
        "a device": ZERO,
        "a folder": FOLDER,
        "a link to itself": Special("link", "in.weights"),
        "20 GB of nothing": Special("sparse", "PK", 20 << 30),
        "20 GB without a name": Special("sparse", "", 20 << 30),
    }
    for name, content in contents.items():
        yield Case("weights", name, RUN, {"plan.yaml": weights_plan(), "in.weights": content})
    tensors = {
        "nothing wrong": material.weights["safetensors"],
        "cut short": material.weights["safetensors"][:-10],
        "nothing": b"",
        "a header longer than the file": struct.pack("<Q", 2**63) + b"{}",
        "a header that is a list": _header([]),
        "a shape of 2^62": _header({"f": {"dtype": "U8", "shape": [2**62], "data_offsets": [0, 1]}}, 1),
        "nesting": _header('{"f": ' + "[" * 100_000),
        "a named pipe": FIFO,
        "a device": ZERO,
        "20 GB of nothing": Special("sparse", "", 20 << 30),
        "a head of 10^9 classes": _header(
            {"linear.weight": {"dtype": "F32", "shape": [10**9, 0], "data_offsets": [0, 0]}}
        ),
    }
    for name, content in tensors.items():
        plan = weights_plan().replace(b"in.weights", b"in.safetensors")
        yield Case("weights", f"safetensors: {name}", RUN, {"plan.yaml": plan, "in.safetensors": content})


def _nested(depth: int) -> list[Any]:
    out: list[Any] = []
    for _ in range(depth):
        out = [out]
    return out


def _load(data: bytes) -> dict[str, np.ndarray]:
    from safetensors.numpy import load

    return load(data)
