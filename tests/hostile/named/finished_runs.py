"""A finished run whose files are not what was written, as `verify`, `check`, `--resume` and `--force` meet it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from material import CHECK, FORCE, RESUME, VERIFY, Case, Material, Special, as_json

from named.parts import ESCAPE, FIFO, FOLDER, ZERO, changed

KEYED = (*VERIFY, "--key", "key.pem")


def cases(material: Material) -> Iterator[Case]:
    """Every file replaced by every thing that it is not; then statements and envelopes."""
    yield from _replaced(material)
    yield from _statements(material)
    yield from _envelopes(material)


def _replaced(material: Material) -> Iterator[Case]:
    make = material.run_case
    cell = next(name for name in material.run if name.startswith(".cells/") and name.endswith(".json"))
    sent = next(name for name in material.run if name.endswith(".safetensors"))
    owned = cell.replace(".json", ".files")
    others = ("record.json", "report.html", "statement.json", "statement.dsse.json", "tables/verdicts.csv")
    files = (*others, sent, cell, owned, ".cells/run.files", ".cells/plan.sha256", ".lock")
    restored = ("record.json", "statement.json", sent, cell, owned, ".cells/plan.sha256", ".lock")
    contents: dict[str, bytes | Special | None] = {
        "not there": None,
        "a named pipe": FIFO,
        "a device": ZERO,
        "a folder": FOLDER,
        "a link": Special("link", "/etc/passwd"),
        "20 GB of nothing": Special("sparse", "{", 20 << 30),
        "nothing": b"",
        "no text": b"\xff\xfe\0\xd8",
        "nesting": b'{"a": ' + b"[" * 100_000,
        "a long number": b'{"a": ' + b"9" * 5_000 + b"}",
        "3 million lists": b"[" + b"[]," * 3_000_000 + b"[]]",
    }
    for file in files:
        for what, content in contents.items():
            held: dict[str, bytes | Special | None] = {f"run/{file}": content}
            if content == FOLDER:
                held[f"run/{file}/inside"] = b""
            for args in (VERIFY, CHECK, RESUME, FORCE) if file in restored else (VERIFY,):
                yield make(f"{args[0]} {args[-2]}: {file} is {what}", args, held)
    # A run of a fedassay that noted no files is known by its cells.
    unnoted = {f"run/{name}": None for name in material.run if name.endswith(".files")}
    for what, content in contents.items():
        yield make(f"--force without notes: {cell} is {what}", FORCE, {**unnoted, f"run/{cell}": content})
    yield make("--force without notes", FORCE, {**unnoted})


def _statements(material: Material) -> Iterator[Case]:
    tree = json.loads(material.run["statement.json"])
    large = Special("sparse", "x", 3 << 30)
    values: list[tuple[str, Any]] = [
        ("subject", []),
        ("subject", 5),
        ("subject", [{"name": f"artifacts/{i}.png", "digest": {"sha256": "0"}} for i in range(100_000)]),
        ("subject", [{"name": "./" * i + "artifacts/a.png", "digest": {}} for i in range(2_000)]),
        ("subject", [{"name": "artifacts" + "/" * i + "a.png", "digest": {}} for i in range(1, 2_000)]),
        ("subject.0.digest", {"sha256": 5}),
        ("subject.0.digest", {}),
        ("subject.0.digest", {f"d{i}": "" for i in range(100_000)}),
        ("predicateType", "urn:fedassay:evidence:1"),
        ("predicateType", ESCAPE),
        ("_type", 5),
        ("predicate", [[[]]]),
        ("predicate", {"a" * 50_000: ESCAPE}),
        *(
            ("subject.0.name", name)
            for name in ("", ".", "..", "../x", "/dev/zero", "a\0b", "x" * 5_000, ESCAPE, "a\nb", "record.json/x")
        ),
    ]
    for path, value in values:
        content = as_json(changed(tree, path, value) if "." in path else {**tree, path: value})
        files = {"run/statement.json": content, "run/artifacts/a.png": large}
        for args in (VERIFY, CHECK):
            yield material.run_case(f"{args[0]}: {path} = {str(value)[:30]!r}", args, files)


def _envelopes(material: Material) -> Iterator[Case]:
    key = _public_key()
    payload = base64.b64encode(material.run["statement.json"]).decode()
    sound = {
        "payload": payload,
        "payloadType": "application/vnd.in-toto+json",
        "signatures": [{"keyid": "", "sig": "AAAA"}],
    }
    values: list[tuple[str, Any]] = [
        ("payload", 5),
        ("payload", "äöü"),
        ("payload", "A" * (50 << 20)),
        ("payload", base64.b64encode(b"[" * 100_000).decode()),
        ("payloadType", "text/html"),
        ("payloadType", ESCAPE),
        ("payloadType", None),
        ("signatures", []),
        ("signatures", {}),
        ("signatures", 5),
        ("signatures", ["a"]),
        ("signatures", [{}]),
        ("signatures", [{"sig": 5}]),
        ("signatures", [{"sig": "äöü"}]),
        ("signatures", [{"sig": "A" * 1_000_000}]),
        ("signatures", [{"sig": "AAAA"}] * 100_000),
        ("signatures", [[]]),
    ]
    for path, value in values:
        held = {"run/statement.dsse.json": as_json({**sound, path: value}), "key.pem": key}
        yield material.run_case(f"{path} = {str(value)[:30]!r}", KEYED, held)
    for what, content in {"a list": b"[]", "text": b'"x"', "null": b"null", "nothing": b""}.items():
        yield material.run_case(
            f"an envelope that is {what}", KEYED, {"run/statement.dsse.json": content, "key.pem": key}
        )
    keys: dict[str, bytes | Special | None] = {
        "not there": None,
        "nothing": b"",
        "no text": b"\xff\xfe\0",
        "text": b"text\n",
        "a broken one": b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        "20 GB of nothing": Special("sparse", "-----BEGIN PUBLIC KEY-----\n", 20 << 30),
        "a named pipe": FIFO,
        "a device": ZERO,
        "a folder": FOLDER,
    }
    for what, content in keys.items():
        yield material.run_case(
            f"a key that is {what}", KEYED, {"run/statement.dsse.json": as_json(sound), "key.pem": content}
        )


def _public_key() -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
