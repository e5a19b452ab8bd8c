"""What an audit of captured messages finds where kinds are missing or wrong, and how often it reads too much.

    python benchmarks/captured_kinds.py SECONDS

Part one: messages of other kinds, which are none of those that an inference may name, 200 of them. Part two: the
messages of shipped methods as they declare themselves, renamed without kinds, with kinds declared wrongly at
random, and all as `parameters`: how many fields are then attacked as what they are, and which attacks
find a leak.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from calibration.test_inferred_kinds import CLOSED, TRAINED
from conftest import make_task as _fixture

from fedassay.exchange.inference.infer import infer_kinds, with_inferred
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.execution.captured import AuditOptions, audit_transcript
from fedassay.support.errors import FedassayError

Arrays = dict[str, np.ndarray]
WRONG = ("parameters", "other", "head")


def others(seed: int) -> tuple[str, Arrays]:
    """One message of something that no attack reads: weights, moments of optimisers, pictures, tables."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    inner = int(rng.integers(16, 96))
    net = torch.nn.Sequential(torch.nn.Linear(24, inner), torch.nn.ReLU(), torch.nn.Linear(inner, 10))
    kind = (
        "fresh weights",
        "trained weights",
        "pruned weights",
        "squared moments",
        "factors",
        "noise",
        "centred head",
        "half weights",
        "tied weights",
    )[seed % 9]
    if kind in {"trained weights", "squared moments"}:
        adam = torch.optim.Adam(net.parameters(), 1e-2)
        inputs, labels = torch.randn(300, 24), torch.randint(0, 10, (300,))
        for _ in range(30):
            adam.zero_grad()
            torch.nn.functional.cross_entropy(net(inputs), labels).backward()
            adam.step()
        if kind == "squared moments":
            return kind, {n: adam.state[p]["exp_avg_sq"].numpy() for n, p in net.named_parameters()}
    arrays = {name: part.detach().numpy().copy() for name, part in net.named_parameters()}
    if kind == "pruned weights":
        off = rng.random(inner) < 0.5
        arrays["0.weight"][off], arrays["0.bias"][off] = 0, 0
    if kind == "half weights":
        return kind, {name: part.astype(np.float16) for name, part in arrays.items()}
    if kind == "tied weights":
        table = arrays["0.weight"]
        return kind, {"w": table, "b": arrays["0.bias"], "v": table.T.copy(), "c": rng.normal(size=24)}
    if kind == "factors":
        return kind, {
            "down": rng.normal(size=(4, 24)),
            "up": rng.normal(size=(24, 4)),
            "bias": rng.normal(size=24),
        }
    if kind == "noise":
        return kind, {
            "table": rng.normal(size=(10, 24)),
            "row": rng.normal(size=10),
            "more": rng.normal(size=(24, 24)),
        }
    if kind == "centred head":
        head, row = rng.normal(size=(10, 24)), rng.normal(size=10)
        return kind, {"w": head - head.mean(axis=0), "b": row - row.mean()}
    return kind, arrays


def false_readings(count: int, first: int = 0) -> None:
    wrong: list[str] = []
    for seed in range(first, first + count):
        kind, arrays = others(seed)
        fields = {name: MessageField(a, "parameters", exact()) for name, a in arrays.items()}
        found = infer_kinds(Transcript(kind, 10, (Message(0, "client/0", SERVER, fields),)))
        if any(each.read_as not in (None, "parameters", "head") for each in found):
            wrong.append(f"{kind}: {next(each.text for each in found if each.read_as is not None)}")
    print(f"others: {len(wrong)} of {count} read as something else", *wrong[:5], sep="\n  ", flush=True)


def changed(transcript: Transcript, how: str, rng: np.random.Generator) -> tuple[Transcript, dict[str, str]]:
    names: dict[str, str] = {}
    true: dict[str, str] = {}
    said: dict[str, str] = {}
    messages = []
    for message in transcript.from_clients():
        fields = {}
        for name, item in message.fields.items():
            key = name if how == "declared" else f"t{len(names)}" if name not in names else names[name]
            names.setdefault(name, key)
            kind = {"declared": item.kind, "undeclared": "other", "parameters": "parameters"}.get(how)
            kind = said.setdefault(name, kind or str(rng.choice(WRONG)))
            true[names[name]] = item.kind
            fields[names[name]] = replace(item, kind=kind, release=exact())
        messages.append(replace(message, fields=fields, stored=None))
    return Transcript("captured", transcript.classes, tuple(messages)), true


def main() -> None:
    until = time.monotonic() + float(sys.argv[1])
    false_readings(200)
    false_readings(200, 1000)
    if until < time.monotonic() + 1:
        return
    make_task = _fixture.__wrapped__()
    rng = np.random.default_rng(0)
    cases = [case for pair in zip(CLOSED[::2], TRAINED, strict=False) for case in pair][:30]
    for number, case in enumerate(cases):
        if time.monotonic() > until:
            print(f"stopped after {number} of {len(cases)} transcripts")
            break
        sent = case.transcript(make_task)
        for how in ("declared", "undeclared", "wrong", "parameters"):
            transcript, true = changed(sent, how, rng)
            read = with_inferred(transcript, infer_kinds(transcript)).from_clients()
            kinds = {name: item.kind for message in read for name, item in message.fields.items()}
            right = sum(kinds[name] == kind for name, kind in true.items())
            with tempfile.TemporaryDirectory() as folder:
                try:
                    transcript.save(Path(folder) / "in")
                    options = AuditOptions(quiet=True)
                    record = audit_transcript(Path(folder) / "in", None, Path(folder) / "out", options)[1]
                    leaks = [f for f in record.cells[0].findings if f.verdict == "leak"]
                    worst = ", ".join(sorted({f"{f.attack}/{f.source}" for f in leaks})) or "no leak"
                except FedassayError as error:
                    worst = f"refused: {error}"
            print(f"{number} | {case} | {how} | {right} of {len(true)} | {worst}", flush=True)


if __name__ == "__main__":
    main()
