"""Hostile input of every kind: no traceback, no hang, no write outside; refusals in one message."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from attempt import Server
from generators import described, generated
from material import KINDS, Kind, Material, make
from named import cases
from survey import tried

from fedassay.exchange.transcript import load_transcript
from fedassay.records.record import load_record
from fedassay.support import limits
from fedassay.support.errors import DataError, PlanError
from fedassay.support.reading import read_json, read_regular
from fedassay.support.yaml_text import parse_yaml

CASES = 2_000
"""Generated cases of all kinds together."""

WRONG = {
    "a date that is none": ("x: !!timestamp 2026-02-30", "timestamp"),
    "a list as a key": ("? [1]\n: 2", "no key"),
    "a number that is none": ("x: !!int abc", "'abc' is no int"),
    "a boolean that is none": ("x: !!bool abc", "'abc' is no bool"),
    "a long number": (f"x: {'9' * 5000}", "5,000 characters"),
    "a long hexadecimal number": (f"x: !!int 0x{'f' * 5000}", "5,002 characters"),
    "nesting": (f"x: {'[' * 2000}", "nested more than 40 deep"),
    "an alias bomb": (
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdef", "bcdefg", strict=True)),
        "50,000 values",
    ),
    "an alias to itself": ("x: &a [*a]", "stands for what it is in"),
    "a code point that is none": ('x: "\\UFFFFFFFF"', "not valid YAML"),
    "a set": ("x: !!set {a}", "set"),
}


@pytest.mark.parametrize(("text", "says"), WRONG.values(), ids=WRONG)
def test_wrong_yaml_is_one_message(text: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        parse_yaml(text, "plan.yaml")


def test_plain_yaml_is_read_as_ever() -> None:
    text = "a: &a {x: 1e-5, y: [1, .inf, null, true]}\nb: {<<: *a, z: 2026-01-02}\n"
    assert parse_yaml(text, "plan.yaml") == {
        "a": {"x": 1e-5, "y": [1, float("inf"), None, True]},
        "b": {"x": 1e-5, "y": [1, float("inf"), None, True], "z": "2026-01-02"},
    }


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "device", "loop", "name"])
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "record.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "name":
        path = tmp_path / ("x" * 5000)
    else:
        path.symlink_to({"link": "/etc/hostname", "device": "/dev/zero", "loop": "record.json"}[kind])
    with pytest.raises(DataError):
        read_regular(path, 100, follow=kind == "device")


def test_a_small_file_takes_little_memory_whatever_its_limit_is(tmp_path: Path) -> None:
    """A machine that has less memory than the limit of a message reads a small one all the same."""
    (tmp_path / "message").write_bytes(b"x" * 1000)
    tracemalloc.start()
    try:
        assert len(read_regular(tmp_path / "message", limits.MESSAGE_BYTES)) == 1000
        assert tracemalloc.get_traced_memory()[1] < limits.MIB
    finally:
        tracemalloc.stop()


def test_a_file_that_has_more_than_its_size_says_is_read_to_its_limit() -> None:
    """Those of the system have no size, and others may grow while they are read."""
    path = Path("/proc/self/status")
    if not path.is_file():
        pytest.skip("no /proc here")
    assert b"Pid:" in read_regular(path, limits.MIB)
    with pytest.raises(DataError, match="allowed: 10"):
        read_regular(path, 10)


JSON = {
    "lists": (b"[" + b"[]," * limits.JSON_CONTAINERS + b"1]", "lists and mappings"),
    "digits": (b'{"x": ' + b"9" * 50 + b"}", "50 digits"),
    "text": (b'{"x": "' + b"a" * limits.TEXT_LENGTH + b'"}', "a text of"),
}


@pytest.mark.parametrize(("content", "says"), JSON.values(), ids=JSON)
def test_json_that_is_dear_to_parse_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(DataError, match=says):
        read_json(tmp_path / "x.json")


def test_digits_inside_a_text_are_none_of_a_number(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b'{"x": "' + b"9" * 64 + b'", "y": "\\"' + b"1" * 64 + b'"}')
    assert read_json(tmp_path / "x.json")


def test_a_record_inside_a_run_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "record.json").symlink_to("/etc/hostname")
    with pytest.raises(DataError, match="it is a link"):
        load_record(tmp_path)
    with pytest.raises(DataError, match=r"no transcript\.json there"):
        load_transcript(tmp_path)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def material(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Material:
    return make(server, tmp_path_factory.mktemp("material"))


@pytest.mark.long
def test_what_watches_the_cases_works(server: Server, material: Material, tmp_path: Path) -> None:
    """The cases themselves are slow tests; that a run is let through, and a case met, is seen by long ones."""
    fault, code = tried(server, next(iter(cases(material))), tmp_path / "case")
    assert (fault, code) == ("", 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_named_cases(server: Server, material: Material, tmp_path: Path, kind: Kind) -> None:
    faults = {
        case.name: fault
        for case in cases(material)
        if case.kind == kind and (fault := tried(server, case, tmp_path / "case")[0])
    }
    assert not faults


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_generated_cases(server: Server, material: Material, tmp_path: Path, kind: Kind) -> None:
    faults = {
        described(case): fault
        for case in generated(material, -(-CASES // len(KINDS)), 0, kind)
        if (fault := tried(server, case, tmp_path / "case")[0])
    }
    assert not faults, "\n".join(f"{fault}\n{what}" for what, fault in faults.items())
