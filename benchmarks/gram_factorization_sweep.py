"""Where Gram factorization works and where it stops, on FedCGS messages of real CIFAR-10 images.

    python benchmarks/gram_factorization_sweep.py [--parts size zeros ...] [--data cifar10]

Sweeps the number of records a client, the share of exact zeros (by input size and backbone), the transport,
what is hidden, the number of clients summed up, and privacy noise; prints a Markdown table a part, or JSON
(`--json`). The messages hold what the method `fedcgs` sends (without its server's head, which noise on so few
records would stop), the attack is the registered `gram_factorization`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import public_data

from fedassay.attacks.gram.attack import GramFactorization
from fedassay.audits.message.truth import match
from fedassay.contracts.attack import Knowledge
from fedassay.data.records import Records
from fedassay.exchange.release import Release, exact
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.exchange.view import ThreatModel, view
from fedassay.mixtures.packed import Transport, pack_lower, to_transport
from fedassay.privacy.gaussian import calibrate_sigma
from fedassay.privacy.mechanisms import clip_features, release_shared_sums, shared_sums
from fedassay.privacy.sensitivities import shared_sums as shared_sums_sensitivity
from fedassay.privacy.tape import FreeNoise
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds
from fedassay.support.types import Matrix

POOL = 1200
"""Training images that clients are drawn from; the class means of the baseline are those of the next 1200."""

SCALE = 128.0
"""Features are divided by it: SqueezeNet's have norm 100 to 140, whose squares float16 cannot hold."""

ALL = "all but the sum over clients"

WEIGHTS = {"squeezenet1_1": "imagenet", "cifar_resnet20": "cifar10"}
"""Of the backbones, by the names that plans have for them."""


@dataclass(frozen=True)
class Case:
    """One row of the sweep."""

    records: int
    backbone: str = "squeezenet1_1"
    input_size: int | None = 64
    classes: int = 10
    clients: int = 3
    transport: Transport = "float64"
    epsilon: float = math.inf
    hidden: str = "nothing"


@dataclass(frozen=True)
class Row:
    """A case with what was measured."""

    case: Case
    zeros: float
    recovered: int
    total: int
    error: float | None
    largest: float | None
    expected: float | None
    labels: float | None
    baseline: float
    seconds: float
    note: str


def cases(part: str) -> Iterator[Case]:
    """The rows of a part."""
    if part == "size":
        for transport in TRANSPORTS:
            for records in (4, 8, 16, 32, 64, 128):
                clients = 3 if records < 64 else 1
                if records <= 64:
                    yield Case(records, transport=transport, clients=clients, classes=1)
                yield Case(records, transport=transport, clients=clients)
    elif part == "zeros":
        for size in (32, 64, 96, 128):
            for records in (8, 32, 64):
                yield Case(records, input_size=size)
        for records in (4, 8, 16, 32):
            yield Case(records, backbone="cifar_resnet20", input_size=None)
    elif part == "hidden":
        for records in (16, 32, 64):
            for classes in (1, 10):
                for hidden in ("nothing", "counts", "counts and class sums"):
                    yield Case(records, classes=classes, clients=3 if records < 64 else 1, hidden=hidden)
    elif part == "aggregation":
        for records in (4, 8, 16):
            for clients in (2, 5, 20):
                yield Case(records, clients=clients, hidden=ALL)
        yield Case(16, clients=40, hidden=ALL)
        for transport in TRANSPORTS[1:]:
            yield Case(8, clients=20, transport=transport, hidden=ALL)
    elif part == "noise":
        for epsilon in (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6):
            yield Case(8, epsilon=epsilon)
            yield Case(16, epsilon=epsilon)


TRANSPORTS: tuple[Transport, ...] = ("float64", "float32", "float16")

PARTS = ("size", "zeros", "hidden", "aggregation", "noise")


def measure(case: Case, pool: Records) -> Row:
    """Run method and attack, join the truth."""
    rng = np.random.default_rng(case.records)
    wanted = rng.permutation(10)[: case.classes]
    order = rng.permutation(np.flatnonzero(np.isin(pool.labels[:POOL], wanted)))
    clients = tuple(
        pool.take(np.sort(order[i * case.records : (i + 1) * case.records]), f"client/{i}")
        for i in range(case.clients)
    )
    messages = tuple(_message(client, case, Seeds(0).numpy("noise", client.name)) for client in clients)
    seen = view(Transcript("fedcgs", 10, messages), ThreatModel())
    knowledge = Knowledge(None, 10, None, False, Seeds(0), "cpu", SILENT)
    start = time.perf_counter()
    result = GramFactorization(max_records=512).run(seen, knowledge)
    seconds = time.perf_counter() - start

    def encoded(records: Records) -> Matrix:
        features = records.features.astype(np.float64)
        return clip_features(features) if math.isfinite(case.epsilon) else features

    senders = np.array(result.vectors[0].senders if result.vectors else [])
    labels = result.vectors[0].labels if result.vectors else np.zeros(0, np.int64)
    truth = [(np.flatnonzero(senders == client.name), encoded(client), client.labels) for client in clients]
    if case.hidden == ALL:
        truth = [
            (np.arange(len(senders)), np.concatenate([t[1] for t in truth]), np.concatenate([t[2] for t in truth]))
        ]
    rest = pool.take(np.arange(POOL, len(pool)))
    means = np.stack([encoded(rest)[rest.labels == label].mean(axis=0) for label in range(10)])
    found = match(np.asarray(result.artifacts["vectors"], np.float64), labels, truth, means)
    everything, known = np.concatenate([part[1] for part in truth]), np.concatenate([part[2] for part in truth])
    some = len(found.errors) > 0
    return Row(
        case=case,
        zeros=float((everything == 0).mean()),
        recovered=found.exact,
        total=found.records,
        error=float(np.median(found.errors)) if some else None,
        largest=float(found.errors.max()) if some else None,
        expected=float(np.median(result.scores["expected_error"])) if some else None,
        labels=float(found.label_right[found.labelled].mean()) if found.labelled.any() else None,
        baseline=float(
            np.median(np.linalg.norm(means[known] - everything, axis=1) / np.linalg.norm(everything, axis=1))
        ),
        seconds=seconds,
        note="; ".join(str(reason) for reason in dict.fromkeys(result.artifacts["reasons"]) if str(reason)),
    )


def _message(client: Records, case: Case, rng: np.random.Generator) -> Message:
    """What the method `fedcgs` sends: exact, or under one joint Gaussian mechanism on clipped features."""
    features, width = client.features.astype(np.float64), client.features.shape[1]
    release = exact()
    sums = shared_sums(features, client.labels, 10)
    if math.isfinite(case.epsilon):
        sensitivity = shared_sums_sensitivity(
            width, adjacency="add_remove", classes=10, nonnegative=False, weights=(1.0, 1.0, 1.0)
        ).sensitivity
        sigma = calibrate_sigma(case.epsilon, 1e-5, sensitivity)
        noise = FreeNoise(rng)
        sums = release_shared_sums(features, client.labels, 10, sigmas=(sigma, sigma, sigma), noise=noise)
        release = Release(
            mechanism="gaussian", adjacency="add_remove", noise_scale=(sigma,), sensitivity=(sensitivity,)
        )
    counts = sums.counts if math.isfinite(case.epsilon) else sums.counts.astype(np.int32)
    together = case.hidden == ALL
    fields = {
        "B": MessageField(
            to_transport(pack_lower(sums.second), case.transport, "B"), "second_moment", release, True, together
        )
    }
    if case.hidden != "counts and class sums":
        fields["A"] = MessageField(
            to_transport(sums.sums, case.transport, "A"), "class_sums", release, True, together
        )
    if case.hidden in {"nothing", ALL}:
        fields["N"] = MessageField(counts, "class_counts", release, True, together)
    return Message(0, client.name, SERVER, fields)


def load(data: str, weights: dict[str, str], backbone: str, input_size: int | None) -> Records:
    """The pool's records under a backbone."""
    images, labels = public_data.training(data, 2 * POOL)
    made = public_data.backbone(backbone, weights[backbone], input_size, images, 10)
    features = made.features(images) / np.float32(SCALE)
    return Records("pool", images, labels, lambda _images: features)


def table(rows: list[Row]) -> str:
    """Rows as a Markdown table; columns that never change are left out."""
    varying = [
        name
        for name in ("backbone", "input_size", "records", "classes", "clients", "transport", "hidden", "epsilon")
        if len({getattr(row.case, name) for row in rows}) > 1 or name == "records"
    ]
    head = [*varying, "zeros", "recovered", "median error", "largest", "expected", "labels", "class mean", "s"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        case = [str(getattr(row.case, name)) for name in varying]
        figures = [_short(row.error), _short(row.largest), _short(row.expected)]
        right = "-" if row.labels is None else f"{row.labels:.0%}"
        measured = [f"{row.zeros:.0%}", f"{row.recovered}/{row.total}", *figures, right]
        lines.append("| " + " | ".join([*case, *measured, f"{row.baseline:.2f}", f"{row.seconds:.1f}"]) + " |")
    return "\n".join(lines)


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.0e}" if value < 0.01 else f"{value:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    public_data.add_arguments(parser, weights=False)
    for name, word in WEIGHTS.items():
        parser.add_argument(f"--{name}", default=word, metavar="NAME|FILE", help="weights of this backbone")
    given = parser.parse_args()
    weights = {name: str(getattr(given, name)) for name in WEIGHTS}
    kept: dict[tuple[str, int | None], Records] = {}
    for part in given.parts:
        rows = []
        for case in cases(part):
            key = (case.backbone, case.input_size)
            if key not in kept:
                kept[key] = load(given.data, weights, *key)
            rows.append(measure(case, kept[key]))
        print(
            json.dumps([asdict(row) for row in rows]) if given.json else f"\n### {part}\n\n{table(rows)}",
            flush=True,
        )
        for note in dict.fromkeys(row.note for row in rows if row.note and not given.json):
            print(f"\n- {note}")


if __name__ == "__main__":
    public_data.ended(main)
