"""YAML that costs more than it holds, or that is none; as a plan, and as a policy."""

from __future__ import annotations

from collections.abc import Iterator

from material import Case, Kind, Special

from named.parts import FIFO, FOLDER, ZERO


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


def cases(
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
