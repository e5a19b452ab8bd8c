"""Hypothesis generators of hostile input: sound input of every kind, broken in one to three places."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from material import (
    CHECK,
    DRY,
    FORCE,
    KINDS,
    PLAN,
    POLICY,
    RELEASES,
    REPORT,
    RESUME,
    RUN,
    VERIFY,
    Case,
    Kind,
    Material,
    Special,
    archive,
    as_json,
    as_yaml,
    features_npz,
    features_plan,
    image_folder,
    images_npz,
    own_plan,
    picture,
    weights_plan,
)
from safetensors.numpy import save as save_tensors

_WORDS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            "",
            "inf",
            "nan",
            "null",
            "../x",
            "/dev/zero",
            "a\0b",
            "\x1b[2J",
            "\u202e",
            "=1+1",
            "<script>",
            "|`](x)",
            "l" * 400,
        ]
    ),
)
_NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.integers(),
    st.sampled_from([2**31, 2**63, 2**64, 10**30, 10**39, -(10**18)]),
    st.floats(allow_nan=False),
    st.sampled_from([1e308, -1e308, 5e-324, 0.0, 1.0]),
)
_ODD = st.one_of(
    st.none(),
    st.booleans(),
    _NUMBERS,
    _WORDS,
    st.just([]),
    st.just({}),
    st.lists(_NUMBERS | _WORDS, max_size=3),
    st.dictionaries(_WORDS, _NUMBERS | _WORDS, max_size=2),
)
_TOKENS = st.sampled_from(
    [
        b"!!int abc",
        b"!!float x",
        b"2026-02-30",
        b"? [1]",
        b"&a [*a]",
        b"*b",
        b"<<: *c",
        b"[[[[",
        b"}}",
        b"\t",
        b"\0",
        b"\xff",
        b"%YAML 3",
        b"---",
        b"...",
        b"!!set {a}",
        b"!!binary x",
        b"!x",
        b"0x",
        b"1e999",
        b"9" * 60,
        b'"\\ud800"',
        b"'",
        b"|",
        b">",
        b"- - - -",
        b": :",
        b"\xe2\x80\xae",
        b"\x1b[2J",
        b"[" * 300,
        b"{a: " * 200,
        b"\n\n\n",
        b",",
        b"null",
    ]
)


def _places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a tree, its root apart."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in pairs:
        yield (*path, key)
        yield from _places(value, (*path, key))


@st.composite
def _changed(draw: st.DrawFn, tree: Any) -> Any:
    """A tree in which one to three values are replaced, dropped, repeated, renamed or moved elsewhere."""
    out = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(out))
        if not places:
            break
        *parents, last = draw(st.sampled_from(places))
        place = out
        for part in parents:
            place = place[part]
        what = draw(st.sampled_from(["replace", "replace", "replace", "drop", "add", "rename", "repeat", "move"]))
        if what == "replace":
            place[last] = draw(_ODD)
        elif what == "drop":
            del place[last]
        elif what == "add" and isinstance(place, dict):
            place[draw(_WORDS)] = draw(_ODD)
        elif what == "rename" and isinstance(place, dict):
            place[draw(_WORDS)] = place.pop(last)
        elif what == "repeat" and isinstance(place, list):
            place += [place[last]] * draw(st.sampled_from([1, 2, 50]))
        elif what == "move":
            place[last] = copy.deepcopy(out)
    return out


@st.composite
def _bytes_changed(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes with one to six changes: flipped, cut out, repeated, replaced by what means something, cut short."""
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 6))):
        # Headers are at the start, or at the end.
        at = draw(
            st.one_of(
                st.integers(0, min(len(out), 300)),
                st.integers(max(0, len(out) - 300), len(out)),
                st.integers(0, len(out)),
            )
        )
        what = draw(st.sampled_from(["flip", "flip", "put", "number", "cut", "repeat", "end"]))
        if what == "flip" and at < len(out):
            out[at] ^= draw(st.integers(1, 255))
        elif what == "put":
            out[at:at] = draw(_TOKENS)
        elif what == "number":
            out[at : at + 4] = draw(
                st.sampled_from([b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff", b"\0\0\0\x80", b"\1\0\0\0"])
            )
        elif what == "cut":
            del out[at : at + draw(st.integers(1, 64))]
        elif what == "repeat":
            out[at:at] = out[at : at + draw(st.integers(1, 64))]
        elif what == "end":
            del out[at:]
    return bytes(out)


_SPECIALS = st.one_of(
    st.just(Special("fifo")),
    st.just(Special("folder")),
    st.builds(
        lambda target: Special("link", target), st.sampled_from(["/dev/zero", "/etc/passwd", "nothing", "."])
    ),
    st.builds(lambda size: Special("sparse", "PK", size), st.sampled_from([0, 1 << 20, 5 << 30])),
)


def _mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Now and then something that is no regular file."""
    return st.integers(0, 24).flatmap(lambda n: _SPECIALS if n == 0 else usual)


def _text_file(tree: Any, dump: Any) -> st.SearchStrategy[Any]:
    """A tree that is changed and written, or one that is written and whose text is changed."""
    changed = _changed(tree).map(dump)
    return _mostly(st.one_of(changed, changed, _bytes_changed(dump(tree))))


def _dumped(tree: Any) -> bytes:
    """A changed tree as YAML; JSON is YAML too, and holds what YAML's own writer refuses."""
    try:
        return as_yaml(tree)
    except Exception:  # noqa: BLE001 - YAML writes no lone surrogates, and more that it does not
        return as_json(tree)


def _plans(material: Material) -> st.SearchStrategy[Case]:
    args = st.integers(0, 9).map(lambda n: RUN if n == 0 else DRY)
    return st.builds(
        lambda a, text: Case("plan", "generated", a, {"plan.yaml": text}), args, _text_file(PLAN, _dumped)
    )


def _policies(material: Material) -> st.SearchStrategy[Case]:
    record = {"run/record.json": as_json(material.record)}
    return _text_file(POLICY, _dumped).map(
        lambda text: Case("policy", "generated", CHECK, {"policy.yaml": text, **record})
    )


def _transcripts(material: Material) -> st.SearchStrategy[Case]:
    tree = _text_file(material.transcript, as_json).map(lambda text: material.transcript_case("generated", text))
    name = next(iter(material.messages))
    data = _mostly(st.one_of(_bytes_changed(material.messages[name]), _arrays(material)))
    file = data.map(
        lambda content: material.transcript_case("generated", material.transcript, {f"in/{name}": content})
    )
    return st.one_of(tree, file)


@st.composite
def _arrays(draw: st.DrawFn, material: Material) -> bytes:
    """A sound message of other shapes, types and values under the names that the manifest declares."""
    names = [*material.transcript["messages"][0]["fields"]]
    made = {}
    for name in names:
        shape = draw(st.lists(st.integers(0, 12), max_size=3))
        dtype = draw(st.sampled_from(["f2", "f4", "f8", "i1", "i8", "u1", "u8", "?"]))
        value = draw(st.sampled_from([0, 1, 3, 100, -1, 2**40, 1e300, float("inf"), float("nan")]))
        with np.errstate(all="ignore"):
            made[name] = np.asarray(np.full(shape, value, np.float64)).astype(dtype)
    return save_tensors(made)


def _records(material: Material) -> st.SearchStrategy[Case]:
    form = st.sampled_from(["html", "html", "md", "json", "csv", "sarif", "junit"]).map(
        lambda name: (*REPORT, name)
    )
    args = st.one_of(form, st.just(CHECK), st.just(("compare", "run", "run", "-o", "out/c.html")))
    picture_file = _mostly(_bytes_changed(picture(16, 16)))
    return st.one_of(
        st.builds(
            lambda a, text: material.record_case("generated", text, a), args, _text_file(material.record, as_json)
        ),
        st.builds(
            lambda data: material.record_case(
                "generated", material.record, (*REPORT, "html"), **{"run/artifacts/c/p.png": data}
            ),
            picture_file,
        ),
    )


def _runs(material: Material) -> st.SearchStrategy[Case]:
    # Tables and messages are only compared; `--force` runs the plan again.
    names = sorted(name for name in material.run if not name.startswith(("tables/", "transcripts/")))
    args = st.sampled_from([VERIFY, CHECK, RESUME, VERIFY, CHECK, RESUME, FORCE])
    return st.sampled_from(names).flatmap(
        lambda name: st.builds(
            lambda a, data: material.run_case("generated", a, {f"run/{name}": data}),
            args,
            _mostly(_bytes_changed(material.run[name])),
        )
    )


def _lists(material: Material) -> st.SearchStrategy[Case]:
    args = st.sampled_from(["1e-5", "1e-300", "0.5"]).map(
        lambda delta: ("account", "compose", "list.yaml", "--delta", delta)
    )
    return st.builds(
        lambda a, text: Case("command", "generated", a, {"list.yaml": text}), args, _text_file(RELEASES, _dumped)
    )


def _tables() -> st.SearchStrategy[Case]:
    names = [f"{i:02d}.png" for i in range(16)]
    pictures = {f"in/{name}": picture(seed=i) for i, name in enumerate(names)}
    sound = ("file,label\n" + "".join(f"{name},{i % 2}\n" for i, name in enumerate(names))).encode()
    plan = own_plan("image_folder", "in").replace(b"path: in", b"path: in\n  labels: labels.csv")
    return _mostly(_bytes_changed(sound)).map(
        lambda table: Case("image", "generated", RUN, {"plan.yaml": plan, **pictures, "in/labels.csv": table})
    )


def _images(material: Material) -> st.SearchStrategy[Case]:
    sound = [picture(form=form) for form in ("PNG", "GIF", "BMP", "TIFF", "PPM", "WEBP", "JPEG")]
    data = _mostly(st.sampled_from(sound).flatmap(_bytes_changed))
    plan = {"plan.yaml": own_plan("image_folder", "in"), **image_folder()}
    pictures = data.map(lambda content: Case("image", "generated", RUN, {**plan, "in/a/00.png": content}))
    return st.one_of(pictures, pictures, _tables())


@st.composite
def _odd_arrays(draw: st.DrawFn, sound: dict[str, Any], names: Sequence[str]) -> bytes:
    """Sound arrays, some of which, or of other names, have other shapes and types."""
    arrays = dict(sound)
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=2)):
        shape = draw(st.lists(st.integers(0, 12), max_size=4))
        dtype = draw(st.sampled_from(["u1", "i8", "u8", "f4", "f8", "?", "U3", "S2", "M8[s]", "c8", "V3"]))
        arrays[name] = np.zeros(shape, dtype)
    return archive(**arrays)


def _archives(kind: Kind, plan: bytes, sound: dict[str, Any], names: Sequence[str]) -> st.SearchStrategy[Case]:
    data = _mostly(st.one_of(_bytes_changed(archive(**sound)), _odd_arrays(sound, names)))
    return st.builds(
        lambda a, content: Case(kind, "generated", a, {"plan.yaml": plan, "in.npz": content}),
        st.sampled_from([DRY, RUN]),
        data,
    )


def _npz(material: Material) -> st.SearchStrategy[Case]:
    names = ["x", "y", "x_test", "y_test", "domain", "x_train"]
    return _archives("npz", own_plan("npz", "in.npz"), images_npz(12), names)


def _features(material: Material) -> st.SearchStrategy[Case]:
    names = ["features", "labels", "images", "groups", "test_features", "test_labels", "other"]
    return _archives("features", features_plan(), features_npz(12), names)


def _weights(material: Material) -> st.SearchStrategy[Case]:
    def case(name: str, content: bytes | Special) -> Case:
        plan = weights_plan().replace(b"in.weights", name.encode())
        return Case("weights", "generated", RUN, {"plan.yaml": plan, name: content})

    return st.one_of(
        _mostly(_bytes_changed(material.weights["torch"])).map(lambda data: case("in.weights", data)),
        _mostly(_bytes_changed(material.weights["safetensors"])).map(lambda data: case("in.safetensors", data)),
    )


STRATEGIES = {
    "plan": _plans,
    "policy": _policies,
    "transcript": _transcripts,
    "record": _records,
    "run": _runs,
    "image": _images,
    "npz": _npz,
    "features": _features,
    "weights": _weights,
    "command": _lists,
}


def generated(material: Material, count: int, number: int, kind: Kind | None = None) -> list[Case]:
    """So many cases in all or a few more, as many of each kind, or of one kind.

    Args:
        material: What is broken.
        count: Number of cases.
        number: Seed.
        kind: None: all kinds.
    """
    found: list[Case] = []
    for name in KINDS if kind is None else (kind,):
        each = -(-count // len(KINDS)) if kind is None else count

        # A class apart for each kind: Hypothesis counts examples by test.
        @seed(number)
        @settings(
            max_examples=each,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(STRATEGIES[name](material))
        def collect(case: Case) -> None:
            found.append(case)

        collect()
    return found


def described(case: Case) -> str:
    """What a case holds, for a message."""
    shown = {
        name: content if isinstance(content, Special) else f"{len(content)} bytes: {content[:300]!r}"
        for name, content in case.files.items()
        if name
        in {"plan.yaml", "policy.yaml", "in.npz", "in.weights", "in.safetensors", "in/a/00.png", "run/record.json"}
        or name.startswith("in/")
    }
    return json.dumps({"args": case.args, "files": {name: str(text) for name, text in shown.items()}}, indent=1)
