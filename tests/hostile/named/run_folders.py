"""What lies in a run folder beside its record."""

from __future__ import annotations

from collections.abc import Iterator

from material import PLAN, REPORT, Case, Material, Special, as_json, as_yaml, picture

from named.parts import ESCAPE, FIFO, FOLDER, ZERO, bomb_png, changed


def cases(material: Material) -> Iterator[Case]:
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
        yield make(f"a picture named {name[:20]!r}", changed(tree, f"{where}.file", name))
    for value in ([0, 0], [-1, -1], [10**9, 10**9], [10**400, 1], [1, 10**9]):
        yield make(f"a tile of {str(value)[:20]}", changed(tree, f"{where}.tile", value))
    yield make("no rows", changed(tree, f"{where}.rows", []))
    yield make("a million rows", changed(tree, f"{where}.rows", ["r"] * 1_000_000))
    yield make("a picture of a million columns", changed(tree, f"{where}.columns", [{}] * 1_000_000))
    bomb = {"run/artifacts/c/p.png": bomb_png(8000)}
    yield make("a picture that unpacks to 64 MB", changed(tree, f"{where}.tile", [4000, 4000]), html, **bomb)
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
