"""What an audit of captured messages finds where kinds are missing or wrong, and how often it reads too much.

    python benchmarks/captured_kinds.py SECONDS

Part one: messages of other kinds, which are none of those that an inference may name: 200 as they are, and 200
turned, flattened or joined. Part two: the messages of shipped methods as they declare themselves, renamed without
kinds, with kinds declared wrongly at random, all as `parameters`, and twice laid out otherwise: turned, packed,
flattened, joined, in other types, beside arrays that are no part of them. Which attacks find a leak is compared
with what they find of the declared messages; what is not found has to be said. The seed of the layouts may be
given as a second argument: cases that nobody has seen.
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
from fedassay.mixtures.packed import pack_lower, unpack_lower
from fedassay.reports.answer.answer import answer
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


def false_readings(count: int, moved: bool) -> None:
    wrong: list[str] = []
    for seed in range(count):
        kind, arrays = others(seed)
        rng = np.random.default_rng(seed)
        if moved:
            turned = {name: a.T if a.ndim == 2 else a for name, a in arrays.items()}
            rows = {name: a.ravel() for name, a in arrays.items()}
            whole = {"all": np.concatenate([a.ravel() for a in arrays.values()])}
            arrays = (turned, rows, whole)[seed // 9 % 3]
            arrays = {name: a.astype(rng.choice(["float16", "float32", "float64"])) for name, a in arrays.items()}
        fields = {name: MessageField(a, "parameters", exact()) for name, a in arrays.items()}
        found = infer_kinds(Transcript(kind, 10, (Message(0, "client/0", SERVER, fields),)))
        if any(each.read_as not in (None, "parameters", "head") for each in found):
            wrong.append(f"{kind}: {next(each.text for each in found if each.read_as is not None)}")
    how = "turned, flattened or joined" if moved else "as they are"
    print(f"others, {how}: {len(wrong)} of {count} read as something else", *wrong[:5], sep="\n  ", flush=True)


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


def laid_out(transcript: Transcript, rng: np.random.Generator) -> Transcript:
    """The messages without kinds, their arrays laid out in another way, the same one for all messages."""
    seed, names = int(rng.integers(2**31)), [f"v{place}" for place in rng.permutation(40)]
    messages = []
    for message in transcript.from_clients():
        arrays = _moved(
            [(item.kind, item.values) for item in message.fields.values()], np.random.default_rng(seed)
        )
        named = zip(names, arrays, strict=False)
        fields = {name: MessageField(a, "other", exact()) for name, a in named}
        messages.append(replace(message, fields=fields, stored=None))
    return Transcript("captured", transcript.classes, tuple(messages))


def _moved(sent: list[tuple[str, np.ndarray]], rng: np.random.Generator) -> list[np.ndarray]:
    """Arrays of a message laid out otherwise: joined, or each in its own way; then shuffled, with a stranger."""
    kinds = [kind for kind, _ in sent]
    network = {"parameters", "gradient", "head"} & set(kinds)
    join, beside, stranger = rng.random(3)
    if not network and join < 0.3 and {"second_moment"} <= set(kinds) and "class_ids" not in kinds:
        out = [np.concatenate([a.astype(np.float64).ravel() for _, a in sent])]
    else:
        left, out = dict(sent), []
        counts, table = (
            left.get("class_counts"),
            next((left[k] for k in ("class_sums", "class_means") if k in left), None),
        )
        if network:
            out = [a.T if a.ndim == 2 and join < 0.5 else a for _, a in sent]
        else:
            if counts is not None and table is not None and len(counts) == len(table) and beside < 0.5:
                left = {k: a for k, a in left.items() if a is not counts and a is not table}
                out.append(np.column_stack([counts, table] if beside < 0.25 else [table, counts]))
            out += [_one(kind, a, rng) for kind, a in left.items()]
    if stranger < 0.3:
        out.append(np.array([rng.random()]))
    return [out[place] for place in rng.permutation(len(out))] if not network else out


def _one(kind: str, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One array of statistics in a layout that its shape allows."""
    way = int(rng.integers(5))
    if kind in {"second_moment", "regularised_gram", "inverse_gram"}:
        whole = unpack_lower(values) if values.ndim == 1 else values
        upper = whole[np.triu_indices(len(whole))]
        return (whole, pack_lower(whole), upper, whole.ravel(), whole[None])[way]
    if kind in {"class_covariances", "class_second_moments"} and values.ndim == 3:
        below, last = values.reshape(-1, values.shape[2]), np.moveaxis(values, 0, -1)
        return (values, pack_lower(values), below, values.reshape(len(values), -1), last)[way]
    if values.ndim == 2:
        return (values, values.T, values[:, None], values, values.T)[way]
    return values[:, None] if way == 0 and values.ndim == 1 else values


def typed(transcript: Transcript, rng: np.random.Generator) -> Transcript:
    """The messages as declared, each field in another type, the same one in all messages."""
    types: dict[str, str] = {}
    messages = []
    for message in transcript.from_clients():
        fields = {}
        for name, item in message.fields.items():
            kind = types.setdefault(name, str(rng.choice(["sent", "float16", "float32", "float64"])))
            fields[name] = replace(item, sent=_typed(item.values, kind), release=exact())
        messages.append(replace(message, fields=fields, stored=None))
    return Transcript("captured", transcript.classes, tuple(messages))


def _typed(values: np.ndarray, kind: str) -> np.ndarray:
    if kind == "sent" or values.dtype.kind != "f" or np.abs(values).max(initial=0) > np.finfo(kind).max:
        return values
    return values.astype(kind)


def audited(transcript: Transcript) -> tuple[set[str], list[str]]:
    """The attacks that find a leak, and what the answer says was not attacked."""
    with tempfile.TemporaryDirectory() as folder:
        transcript.save(Path(folder) / "in")
        record = audit_transcript(Path(folder) / "in", None, Path(folder) / "out", AuditOptions(quiet=True))[1]
    leaks = {f"{f.attack}/{f.source}" for f in record.cells[0].findings if f.verdict == "leak"}
    return leaks, [each for each in answer(record).sentences if each.startswith("Not attacked")]


def main() -> None:
    until = time.monotonic() + float(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    false_readings(200, moved=False)
    false_readings(200, moved=True)
    if until < time.monotonic() + 1:
        return
    make_task = _fixture.__wrapped__()
    rng = np.random.default_rng(seed)
    cases = [case for pair in zip(CLOSED[::2], TRAINED[seed % 2 :: 1 + (seed > 0)], strict=False) for case in pair]
    found: dict[str, list[str]] = {}
    misread: list[str] = []
    for number, case in enumerate(cases[:30]):
        if time.monotonic() > until:
            print(f"stopped after {number} transcripts")
            break
        sent = case.transcript(make_task)
        worst: set[str] = set()
        for how in ("declared", "undeclared", "wrong", "parameters", "laid out", "laid out again"):
            moved = how.startswith("laid")
            if moved:
                # What is left of a leak after rounding is what the declared messages show in these types.
                rounded = typed(sent, rng)
                worst, transcript, true = audited(rounded)[0], laid_out(rounded, rng), {}
            else:
                transcript, true = changed(sent, how, rng)
            read = with_inferred(transcript, infer_kinds(transcript)).from_clients()
            told = {each.read_as for each in infer_kinds(transcript)} - {None}
            strange = told - {item.kind for message in sent.from_clients() for item in message.fields.values()}
            if strange:
                misread.append(f"{number} {how}: {', '.join(sorted(map(str, strange)))}")
            kinds = [(name, item.kind) for message in read for name, item in message.fields.items()]
            held = sum(
                kind not in {"other", "parameters"} if moved else true[name] == kind for name, kind in kinds
            )
            try:
                leaks, said = audited(transcript)
            except FedassayError as error:
                leaks, said = set(), [f"refused: {error}"]
            worst = leaks if how == "declared" else worst
            lost = sorted(worst - leaks)
            state = "found" if not lost else "said" if said else "MISSED"
            found.setdefault(how, []).append(state)
            detail = ", ".join(sorted(leaks)) if not lost else f"without {', '.join(lost)}; {' '.join(said)}"
            print(
                f"{number} | {case} | {how} | {held} of {len(kinds)} | {state} | {detail or 'no leak'}", flush=True
            )
    for how, states in found.items():
        counted = {state: states.count(state) for state in ("found", "said", "MISSED")}
        print(how, counted, flush=True)
    print(f"{len(misread)} read as a kind that was not sent", *misread, sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
