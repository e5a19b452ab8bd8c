"""How cost grows: clients, classes, feature width, records, candidates, generated images. Seconds and memory.

    OMP_NUM_THREADS=1 python benchmarks/scale_study.py [--full] [--only METHOD] [--output FILE]

Methods run on synthetic images through the very `run` that plans call; records per client are few and fixed, so
that what grows is the messages. Each point is a process of its own; memory is what its peak rose by while
the method ran and its transcript was written. The exponent is the slope of log seconds over log size between the
last two points: 1 is linear growth. Prints Markdown; writes JSON where `--output` says.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import measure
import numpy as np

from fedassay.support.atomic import write_text

RECORDS = 40
"""Records of a client."""

Point = dict[str, Any]


def task(clients: int, classes: int, width: int, each: int = RECORDS) -> Any:
    """A method's task on clients of so many records each, features given and images as small as they may be."""
    from fedassay.backbones.base import Backbone
    from fedassay.contracts.method import MethodInput
    from fedassay.data.records import Records
    from fedassay.exchange.release import PrivacyTarget
    from fedassay.support.progress import SILENT
    from fedassay.support.seeds import Seeds

    rng = np.random.default_rng(0)
    means = rng.normal(size=(classes, width)).astype(np.float32)
    side = math.isqrt(width)

    def records(name: str, number: int) -> Records:
        labels = rng.integers(0, classes, number)
        values = means[labels] + rng.normal(size=(number, width)).astype(np.float32)
        images = np.clip(127 + 40 * values[:, : side * side], 0, 255).astype(np.uint8).reshape(-1, side, side, 1)
        found = Records(name, images, labels, lambda images: images.reshape(len(images), -1) / np.float32(255))
        assert found.features.shape == (number, side * side)  # computed here: a method's input, like the images
        return found

    class Given:
        """A backbone of which the methods read only the width."""

        def __init__(self) -> None:
            self.width, self.image_shape, self.fingerprint = side * side, (side, side, 1), "synthetic"
            self.description = "pixels of synthetic images"

        def features(self, images: np.ndarray) -> np.ndarray:
            return images.reshape(len(images), -1) / np.float32(255)

    backbone: Backbone = Given()  # type: ignore[assignment]
    return MethodInput(
        clients=tuple(records(f"client/{i}", each) for i in range(clients)),
        test=records("test", 500),
        public=records("public", 200),
        classes=classes,
        backbone=backbone,
        privacy=PrivacyTarget(epsilon=math.inf, delta=1e-5, adjacency="add_remove"),
        seeds=Seeds(0),
        device="cpu",
        progress=SILENT,
    )


def work(method: Any, given: Any) -> None:
    """What a run does with every method: keep its messages, account for them, count their bytes, write them."""
    from fedassay.exchange.ledger import account, ledger_rows
    from fedassay.exchange.store import Spool

    with tempfile.TemporaryDirectory() as folder:
        transcript = method.run(replace(given, spool=Spool(Path(folder)))).transcript
        assert transcript.bytes_up > 0
        assert transcript.bytes_down >= 0
        transcript.save(Path(folder) / "transcript")
        account(transcript, "add_remove", 1e-5)
        ledger_rows(transcript, "add_remove")


def fedcgs(clients: int = 100, classes: int = 10, width: int = 64) -> Callable[[], object]:
    from fedassay.methods.fedcgs.method import FedCGS

    given = task(clients, classes, width)
    return lambda: work(FedCGS(), given)


def fedpft(clients: int = 100, classes: int = 10, width: int = 64) -> Callable[[], object]:
    from fedassay.methods.fedpft.method import FedPFT

    given = task(clients, classes, width)
    return lambda: work(FedPFT(components=1), given)


def fedlog(clients: int = 10, classes: int = 10, width: int = 64) -> Callable[[], object]:
    from fedassay.methods.fedlog.method import FedLog

    given = task(clients, classes, width)
    return lambda: work(FedLog(rounds=1), given)


def records_of(name: str) -> Callable[..., Callable[[], object]]:
    """A method's statistics of all records of ten clients."""

    def build(records: int = 10_000) -> Callable[[], object]:
        given = task(10, 10, 64, records // 10)
        return lambda: work(method_of(name), given)

    return build


def method_of(name: str) -> Any:
    from fedassay.methods.fedcgs.method import FedCGS
    from fedassay.methods.fedlog.method import FedLog
    from fedassay.methods.fedpft.method import FedPFT

    return {"FedCGS": FedCGS(), "FedPFT": FedPFT(components=1), "FedLog": FedLog(rounds=1, body="public")}[name]


def gallery_of(name: str) -> Callable[..., Callable[[], object]]:
    """The attack `gallery` on one client's statistics, whose records are a half of the candidates."""

    def build(candidates: int = 1000) -> Callable[[], object]:
        from fedassay.attacks.gallery.attack import Gallery
        from fedassay.contracts.attack import Knowledge
        from fedassay.contracts.membership import MembershipGame, visible
        from fedassay.data.records import joined
        from fedassay.exchange.view import ThreatModel
        from fedassay.support.progress import SILENT
        from fedassay.support.seeds import Seeds

        given = task(2, 10, 64, candidates // 2)
        member, stranger = given.clients
        seen = visible(method_of(name).run(replace(given, clients=(member,))), ThreatModel())
        everybody = joined("candidates", [member, stranger])
        sizes = {member.name: np.bincount(member.labels, minlength=10)}
        game = MembershipGame({member.name: everybody}, sizes, None, lambda *_: seen, Seeds(0), gallery=everybody)
        known = Knowledge(None, 10, given.backbone, True, Seeds(0), "cpu", SILENT, game=game)
        return lambda: Gallery().run(seen, known)

    return build


def memorization(images: int = 1000) -> Callable[[], object]:
    from fedassay.similarity.nearest import stream_top_k_l2

    gallery = np.random.default_rng(0).random((2000, 768), dtype=np.float32)

    def search() -> None:
        blocks = (np.random.default_rng(i).random((500, 768), dtype=np.float32) for i in range(images // 500))
        for _ in stream_top_k_l2(blocks, gallery, 50):
            pass

    return search


CURVES: dict[str, tuple[Callable[..., Callable[[], object]], str, tuple[int, ...], tuple[int, ...]]] = {
    "FedCGS, clients": (fedcgs, "clients", (100, 300, 1000), (3000, 10000)),
    "FedCGS, classes": (fedcgs, "classes", (10, 100, 1000), ()),
    "FedCGS, feature width": (fedcgs, "width", (64, 256, 1024), ()),
    "FedPFT, clients": (fedpft, "clients", (100, 300, 1000), (3000,)),
    "FedPFT, classes": (fedpft, "classes", (10, 30, 100), ()),
    "FedPFT, feature width": (fedpft, "width", (64, 256, 1024), ()),
    "FedLog, clients": (fedlog, "clients", (10, 30, 100), ()),
    "FedCGS, records": (records_of("FedCGS"), "records", (10_000, 100_000), (1_000_000,)),
    "FedPFT, records": (records_of("FedPFT"), "records", (10_000, 100_000), (1_000_000,)),
    "FedLog, records": (records_of("FedLog"), "records", (10_000, 100_000), (1_000_000,)),
    "gallery of FedCGS, candidates": (gallery_of("FedCGS"), "candidates", (1000, 10_000), (100_000,)),
    "gallery of FedPFT, candidates": (gallery_of("FedPFT"), "candidates", (1000, 10_000), (100_000,)),
    "gallery of FedLog, candidates": (gallery_of("FedLog"), "candidates", (1000, 10_000), (100_000,)),
    "memorization search, generated images": (memorization, "images", (1000, 3000, 10000), (30000,)),
}


def point(name: str, size: int) -> Point:
    """One point, in this process."""
    build, axis, _, _ = CURVES[name]
    call = build(**{axis: size})
    before = measure.peak_mib()
    kept: list[object] = []
    timing = measure.seconds(lambda: kept.append(call()))
    return {
        axis: size,
        "cpu_seconds": round(timing.cpu, 3),
        "mib_before": before,
        "mib_more": measure.peak_mib() - before,
    }


def curve(name: str, full: bool) -> dict[str, Any]:
    """All points of a curve, each in a process of its own."""
    _, axis, sizes, more = CURVES[name]
    points = []
    for size in (*sizes, *(more if full else ())):
        command = [sys.executable, __file__, "--point", name, str(size)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        points.append(json.loads(done.stdout))
    a, b = points[-2:]
    exponent = math.log(b["cpu_seconds"] / max(a["cpu_seconds"], 1e-3)) / math.log(b[axis] / a[axis])
    return {"curve": name, "axis": axis, "points": points, "exponent": round(exponent, 2)}


def table(found: dict[str, Any]) -> str:
    """One curve in Markdown."""
    lines = [f"**{found['curve']}** (exponent {found['exponent']})", ""]
    lines += [f"| {found['axis']} | processor seconds | MiB more |", "|---:|---:|---:|"]
    lines += [f"| {p[found['axis']]:,} | {p['cpu_seconds']:.2f} | {p['mib_more']} |" for p in found["points"]]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--point", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.point:
        print(json.dumps(point(given.point[0], int(given.point[1]))))
        return
    curves = []
    for name in CURVES:
        if given.only.lower() in name.lower():
            curves.append(curve(name, given.full))
            print(table(curves[-1]), flush=True)
    if given.output:
        write_text(given.output, json.dumps(curves, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
