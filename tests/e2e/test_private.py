"""Private content: what `--redact` leaves of a run is searched for every private image, feature and label."""

from __future__ import annotations

import base64
import io
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import forked
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fedassay.backbones import small_cnn
from fedassay.data.records import Records
from fedassay.execution.prepare import prepare
from fedassay.plan.resolve import load_scenario
from fedassay.records.record import load_record
from fedassay.support.progress import SILENT

pytestmark = pytest.mark.long

PLAN = """
name: private
seeds: [0]
data: {name: digits, limit: 300, split: {private: 0.3, attacker: 0.3, public: 0.2, test: 0.2}}
clients: {count: 2, partition: iid}
backbone: {name: small_cnn, weights: public}
methods: [raw_features: {}]
attacks: [feature_diffusion: {preset: tiny}, message_algebra: {}, label_distribution: {}]
audits: [reconstruction: {}, message: {}]
"""
# Networks are trained for a few steps: what is private is the same, however well they learn it.
FEW_STEPS = """
from dataclasses import replace
from fedassay.backbones import small_cnn
from fedassay.nets import presets
small_cnn._STEPS = (10, 10)
presets.PRESETS["tiny"] = replace(presets.TINY, width=32, blocks=1, embedding=16, steps=10)
"""
_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{24,}={0,2}")
_NUMBER = re.compile(rb"-?\d+\.\d{4,}(?:[eE]-?\d+)?")


def fedassay(*args: str | Path, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line, with a cache and a folder of temporary files of its own."""
    (home / "tmp").mkdir(exist_ok=True)
    given = {**os.environ, "FEDASSAY_CACHE": str(home / "cache"), "TMPDIR": str(home / "tmp"), **environment}
    return forked.fedassay(*args, hook=FEW_STEPS, environment=given)


class Search:
    """Looks for what is private in files: raw bytes, encodings of images, base64 of either, numbers in text."""

    def __init__(self, clients: tuple[Records, ...]) -> None:
        self.images = np.concatenate([client.images for client in clients])
        self.features = np.concatenate([client.features for client in clients])
        self.labels = [client.labels for client in clients]
        # What is all one colour would be found in any page.
        assert all(len(np.unique(image)) > 4 for image in self.images)
        self._tiles = {image[..., 0].tobytes() for image in self.images}
        self._needles: dict[str, list[bytes]] = {"raw": [], "png": [], "jpeg": [], "features": [], "labels": []}
        for image, row in zip(self.images, self.features, strict=True):
            self._needles["raw"] += [image.tobytes(), (image / np.float32(255)).astype(np.float32).tobytes()]
            self._needles["png"] += [encoded(image, "PNG"), encoded(image, "PNG", optimize=True)]
            self._needles["jpeg"] += [encoded(image, "JPEG", quality=quality) for quality in (75, 90, 95)]
            self._needles["features"] += [
                row[:8].astype(kind).tobytes() for kind in (np.float16, np.float32, np.float64)
            ]
        for labels in self.labels:
            self._needles["labels"] += [labels.astype(kind).tobytes() for kind in (np.uint8, np.int32, np.int64)]
        self._numbers = [{f"{value:.5g}" for value in row[:16]} for row in self.features]

    def found(self, folder: Path) -> set[str]:
        """The kinds of private content in the files below a folder."""
        out: set[str] = set()
        for path in (path for path in folder.rglob("*") if path.is_file()):
            for blob in _blobs(path.read_bytes()):
                out |= self._bytes(blob) | self._pictures(blob) | self._text(blob)
        return out

    def _bytes(self, blob: bytes) -> set[str]:
        return {kind for kind, many in self._needles.items() if any(each in blob for each in many)}

    def _pictures(self, blob: bytes) -> set[str]:
        """Private images that lie anywhere in a picture; nearly, where JPEG has blurred it."""
        out = set()
        height, width = self.images.shape[1:3]
        for sheet in _decoded(blob):
            if sheet.shape[0] < height or sheet.shape[1] < width:
                continue
            windows = np.lib.stride_tricks.sliding_window_view(sheet, (height, width)).reshape(-1, height, width)
            if any(window.tobytes() in self._tiles for window in windows):
                out.add("picture")
            rows = windows[:: max(1, len(windows) // 4096)].reshape(-1, 1, height * width).astype(np.int16)
            flat = self.images[..., 0].reshape(1, len(self.images), -1).astype(np.int16)
            if any(np.abs(row - flat[0]).mean(axis=1).min() < 4 for row in rows):
                out.add("like a picture")
        return out

    def _text(self, blob: bytes) -> set[str]:
        numbers = {f"{float(number):.5g}" for number in _NUMBER.findall(blob)}
        found = {"features in text"} if any(len(row & numbers) >= 4 for row in self._numbers) else set()
        for labels in self.labels:
            words = [mark.join(map(str, labels[:30])).encode() for mark in (", ", ",", "\n")]
            if any(each in blob for each in words):
                found.add("labels")
        return found


def encoded(image: NDArray[np.uint8], format: str, **options: object) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image[..., 0]).save(stream, format, **options)
    return stream.getvalue()


def _blobs(content: bytes) -> Iterator[bytes]:
    """A file, and what is base64 in it."""
    yield content
    for found in _BASE64.findall(content):
        for shift in range(4):
            part = found[shift:]
            try:
                yield base64.b64decode(part[: len(part) // 4 * 4])
            except ValueError:
                continue


def _decoded(blob: bytes) -> Iterator[NDArray[np.uint8]]:
    for magic in _MAGIC:
        start = blob.find(magic)
        while start >= 0:
            try:
                with Image.open(io.BytesIO(blob[start:]), formats=["PNG", "JPEG"]) as image:
                    yield np.asarray(image.convert("L"))
            except (UnidentifiedImageError, OSError, ValueError, SyntaxError):
                pass
            start = blob.find(magic, start + 1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("private")
    (folder / "plan.yaml").write_text(PLAN)
    return folder


@pytest.fixture(scope="module")
def search(home: Path) -> Search:
    scenario = load_scenario(home / "plan.yaml", ())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_cnn, "_STEPS", (10, 10))
        return Search(prepare(scenario.plan, scenario.base, 0, "cpu", SILENT).clients)


@pytest.fixture(scope="module")
def whole(home: Path) -> Path:
    done = fedassay("run", home / "plan.yaml", "-o", home / "whole", home=home)
    assert done.returncode == 0, done.stderr
    return home / "whole"


@pytest.fixture(scope="module")
def redacted(home: Path) -> Path:
    """A redacted run with a cache and a temporary folder of its own, which are searched as well."""
    own = home / "redacted"
    own.mkdir()
    done = fedassay("run", home / "plan.yaml", "-o", own / "run", "--redact", home=own)
    assert done.returncode == 0, done.stderr
    return own


def test_the_search_finds_every_kind(search: Search, tmp_path: Path) -> None:
    image, row = search.images[7], search.features[7]
    sheet = np.concatenate([np.zeros_like(image), image], axis=1)
    kinds = {
        "raw": image.tobytes(),
        "png": encoded(image, "PNG"),
        "jpeg": encoded(image, "JPEG", quality=90),
        "features": row.tobytes(),
        "labels": search.labels[1].tobytes(),
        "picture": b"<img src='data:image/png;base64," + base64.b64encode(encoded(sheet, "PNG")) + b"'>",
        "like a picture": base64.b64encode(encoded(image, "JPEG", quality=99)),
        "features in text": ", ".join(str(float(value)) for value in row).encode(),
    }
    for number, (kind, content) in enumerate(kinds.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "file").write_bytes(content)
        assert kind in search.found(folder)
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "file").write_bytes(base64.b64encode(encoded(255 - image, "PNG")) + b"1.2345 0.98765")
    assert search.found(tmp_path / "none") == set()


def test_a_whole_run_holds_private_content_and_says_so_first(whole: Path, search: Search) -> None:
    assert {"picture", "features", "labels"} <= search.found(whole)
    page = (whole / "report.html").read_text()
    body = page[page.index("<body>") :]
    assert body.index("This page contains private images") < body.index("<header")
    assert "features" in search.found(whole.parent / "cache")


def test_a_redacted_run_holds_none_of_it_anywhere(redacted: Path, search: Search) -> None:
    assert search.found(redacted) == set()
    assert not list((redacted / "tmp").iterdir())
    assert not (redacted / "run" / "artifacts").exists()
    assert not (redacted / "run" / "transcripts").exists()
    page = (redacted / "run" / "report.html").read_text()
    assert "Redacted:" in page
    assert "contains private images" not in page


def test_a_redacted_run_has_the_numbers_of_the_whole_one(redacted: Path, whole: Path) -> None:
    ours, theirs = load_record(redacted / "run"), load_record(whole)
    assert ours.redacted
    for one, other in zip(ours.cells, theirs.cells, strict=True):
        assert [(f.verdict, f.metrics, f.controls) for f in one.findings] == [
            (f.verdict, f.metrics, f.controls) for f in other.findings
        ]


def test_a_redacted_run_cannot_be_resumed(redacted: Path, home: Path) -> None:
    done = fedassay("run", home / "plan.yaml", "-o", redacted / "run", "--redact", "--resume", home=redacted)
    assert (done.returncode, "--redact --resume" in done.stderr) == (2, True)
    done = fedassay("run", home / "plan.yaml", "-o", redacted / "run", "--resume", home=redacted)
    assert (done.returncode, "made with --redact" in done.stderr) == (2, True)


@pytest.mark.parametrize("format", ["html", "md", "json", "csv", "sarif", "junit"])
def test_redacted_pages_of_a_whole_run(whole: Path, search: Search, tmp_path: Path, format: str) -> None:
    out = tmp_path / "pages" / "page"
    done = fedassay("report", whole, "--redact", "--format", format, "-o", out, home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert search.found(tmp_path / "pages") == set()
    if format == "html":
        assert "Redacted:" in out.read_text()


def test_a_redacted_page_does_not_replace_the_whole_one(whole: Path, tmp_path: Path) -> None:
    before = (whole / "report.html").read_bytes()
    assert fedassay("report", whole, "--redact", home=tmp_path).returncode == 0
    assert (whole / "report.html").read_bytes() == before
    assert "Redacted:" in (whole / "report.redacted.html").read_text()
    (whole / "report.redacted.html").unlink()


def test_a_redacted_comparison(whole: Path, redacted: Path, search: Search, tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    out = tmp_path / "pages" / "page.html"
    assert fedassay("compare", whole, redacted / "run", "--redact", "-o", out, home=tmp_path).returncode == 0
    assert search.found(tmp_path / "pages") == set()
    assert "Redacted:" in out.read_text()


def test_a_redacted_audit_of_messages(whole: Path, home: Path, search: Search, tmp_path: Path) -> None:
    (transcript,) = (whole / "transcripts").iterdir()
    arguments = ("audit", transcript, "--plan", home / "plan.yaml", "-o")
    assert fedassay(*arguments, tmp_path / "whole" / "run", home=tmp_path).returncode == 0
    # Nobody knows the clients' images there; what is private is what the attack made, and the plan's features.
    assert list((tmp_path / "whole" / "run" / "artifacts").rglob("*.png"))
    assert "features" in search.found(tmp_path / "cache")
    own = tmp_path / "redacted"
    own.mkdir()
    done = fedassay(*arguments, own / "run", "--redact", home=own)
    assert done.returncode == 0, done.stderr
    assert search.found(own) == set()
    assert not list(own.rglob("*.png"))
    assert "Redacted:" in (own / "run" / "report.html").read_text()


def test_what_is_written_is_its_owners_alone_unless_shared(whole: Path, home: Path, tmp_path: Path) -> None:
    assert _modes(whole) == {0o600, 0o700}
    assert _modes(home / "cache") == {0o600, 0o700}
    done = fedassay("report", whole, "-o", tmp_path / "a" / "page.html", "--shared", home=tmp_path)
    assert done.returncode == 0, done.stderr
    mask = os.umask(0o022)
    os.umask(mask)
    assert _modes(tmp_path / "a") == {0o666 & ~mask, 0o777 & ~mask}


def _modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.lstat().st_mode) for path in (folder, *folder.rglob("*"))}


def test_a_cache_that_drops_private_entries(home: Path, search: Search, tmp_path: Path) -> None:
    run = ("run", home / "plan.yaml", "-o", tmp_path / "run", "--force", "--quiet")
    assert fedassay(*run, home=tmp_path).returncode == 0
    assert "features" in search.found(tmp_path / "cache")
    done = fedassay("cache", "drop", home=tmp_path)
    assert (done.returncode, "private entries" in done.stdout) == (0, True)
    assert search.found(tmp_path / "cache") == set()
    assert list((tmp_path / "cache").glob("public/*/*.safetensors"))  # the backbone of public images is kept
    assert fedassay(*run, home=tmp_path).returncode == 0
    assert search.found(tmp_path / "cache") == set()
    assert not list((tmp_path / "tmp").iterdir())
    assert fedassay("cache", "hold", home=tmp_path).returncode == 0
    assert fedassay(*run, home=tmp_path).returncode == 0
    assert "features" in search.found(tmp_path / "cache")
