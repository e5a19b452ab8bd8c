"""Memory of an audit of captured messages, by their number: it should not grow with their arrays.

    OMP_NUM_THREADS=1 python benchmarks/captured_scale.py                1,000 to 10,000 messages, 512 features
    OMP_NUM_THREADS=1 python benchmarks/captured_scale.py --width 16 --sizes 25000 100000 --whole --noised

Every message holds the class sums and counts of a client; the transcript is written by one process and read, shown
to an honest-but-curious server and attacked by `message_algebra` in another, whose peak is told beside the bytes
of all arrays. `--noised` declares Gaussian noise, and adds it. `--whole` runs `fedassay audit` on it, controls and
report included. At most 100,000 are read
(`fedassay.support.limits`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import measure
import numpy as np

CLASSES = 10


SENSITIVITY, NOISE = 1.0, 5.0
"""Gaussian noise of sums and counts, where they have any; features have at most this norm."""


def write(folder: Path, messages: int, width: int, noised: bool) -> int:
    """Writes a transcript; the bytes of its arrays."""
    from fedassay.exchange.release import Release, exact
    from fedassay.exchange.store import Spool
    from fedassay.exchange.transcript import Message, MessageField, Transcript

    rng, spool, held = np.random.default_rng(0), Spool(folder), 0
    kept = []
    release = exact()
    if noised:
        release = Release(
            mechanism="gaussian",
            adjacency="add_remove",
            cells=("all",),
            sensitivity=(SENSITIVITY,),
            noise_scale=(NOISE,),
        )
    for number in range(messages):
        counts: np.ndarray = rng.integers(1, 20, CLASSES)
        sums = rng.random((CLASSES, width)) * counts[:, None] / np.sqrt(width)
        if noised:
            counts = counts + rng.normal(0, NOISE, CLASSES)
            sums += rng.normal(0, NOISE, sums.shape)
        sums = sums.astype(np.float32)
        fields = {
            "sums": MessageField(sums, "class_sums", release, additive=True),
            "counts": MessageField(counts, "class_counts", release, additive=True),
        }
        held += sums.nbytes + counts.nbytes
        kept.append(spool.keep(Message(0, f"client/{number}", "server", fields)))
    Transcript("captured", CLASSES, tuple(kept)).save(folder / "transcript")
    return held


def read(folder: Path, whole: bool) -> None:
    """What is measured: the transcript is read and attacked."""
    from fedassay.execution.captured import AuditOptions, audit_transcript

    if whole:
        audit_transcript(folder / "transcript", None, folder / "out", AuditOptions(device="cpu", quiet=True))
        return
    from fedassay.attacks.message_algebra import MessageAlgebra
    from fedassay.contracts.attack import Knowledge
    from fedassay.exchange.transcript import load_transcript
    from fedassay.exchange.view import ThreatModel, view
    from fedassay.support.progress import SILENT
    from fedassay.support.seeds import Seeds

    transcript = load_transcript(folder / "transcript")
    assert len(transcript.messages)
    MessageAlgebra().run(
        view(transcript, ThreatModel()), Knowledge(None, CLASSES, None, True, Seeds(0), "cpu", SILENT)
    )


def point(messages: int, width: int, whole: bool, noised: bool) -> dict[str, Any]:
    """One size: both processes, and the second one's peak and seconds."""
    with tempfile.TemporaryDirectory() as name:
        script = [sys.executable, str(Path(__file__).resolve()), "--width", str(width), "--sizes", str(messages)]
        made = subprocess.run(
            [*script, "--write", name, *["--noised"][: int(noised)]], capture_output=True, text=True, check=True
        )
        done = measure.run_process([*script, "--read", name, *["--whole"][: int(whole)]])
        assert done.code == 0, f"reading ended with exit code {done.code}"
    return {
        "messages": messages,
        "width": width,
        "arrays_mib": round(int(made.stdout) / 2**20, 1),
        "cpu_seconds": round(done.timing.cpu, 1),
        "peak_mib": done.peak_mib,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 3000, 10_000])
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--whole", action="store_true", help="`fedassay audit`, not one attack alone")
    parser.add_argument("--noised", action="store_true", help="Gaussian noise on every field, as declared")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        print(write(given.write, given.sizes[0], given.width, given.noised))
    elif given.read:
        read(given.read, given.whole)
    else:
        for messages in given.sizes:
            print(json.dumps(point(messages, given.width, given.whole, given.noised)), flush=True)


if __name__ == "__main__":
    main()
