"""Who of a gallery is in sums of images, and of people: rows of docs/gallery_attack.md, one JSON object a line.

    python benchmarks/gallery_images.py PART [--data cifar10] [--draws 10]
    python benchmarks/gallery_attack.py table --rows FILE

A part appends one row a draw to `--rows`, and goes on where it was stopped.

Parts: `magnitudes` (FedDiff's mean Fourier magnitudes), `fedlog` (bodies that public records train, without noise
and at finite epsilon, one round and five), `null` (both, of strangers) and `persons` (AT&T's faces: the gallery
has the photographs that were sent, or others of the same people; `--data att_faces`).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import public_data
from gallery_attack import CLASSES, CLIENTS, Pool, asked, drawn, judged, truth_of
from kept_rows import Job, key_of, measure
from numpy.typing import NDArray

from fedassay.attacks.gallery.attack import KEY, Gallery
from fedassay.attacks.membership.attack import Membership
from fedassay.audits.membership.ceiling import highest_auc
from fedassay.audits.stats.roc import auc
from fedassay.contracts.membership import visible
from fedassay.contracts.method import Method, MethodInput, Outcome
from fedassay.data.records import Records
from fedassay.exchange.blocks import OfImages
from fedassay.exchange.ledger import account
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.release import PrivacyTarget, exact
from fedassay.exchange.view import ThreatModel, View
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.feddiff.magnitudes import mean_magnitude
from fedassay.methods.fedlog.method import FedLog
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

PUBLIC = 1000
"""Images that train FedLog's bodies."""
PERSONS, PICTURES, SHOWN = 40, 10, 5
"""AT&T's people, the pictures of each, and how many of these the gallery has where they are others."""
SAME, OTHERS = "the same photographs", "other photographs of the same people"
INSIDE, OUTSIDE = 16, 16
"""People who are in the message, and others whom the gallery has; the rest are the attacker's."""


def outcome_of(
    pool: Pool, method: Method, parts: Sequence[Records], public: Records | None, draw: int, epsilon: float
) -> Outcome:
    """A run of a method."""
    privacy = PrivacyTarget(epsilon=epsilon, delta=1e-5, adjacency="add_remove")
    seeds = Seeds(draw)
    return method.run(
        MethodInput(tuple(parts), parts[0], public, CLASSES, pool.known, privacy, seeds, "cpu", SILENT)
    )


def gallery_of(pool: Pool, draw: int, members: Any, others: Any, own: Any) -> tuple[Any, Records, Records]:
    """Rows of the candidates, and candidates and decoys."""
    rows = np.random.default_rng(draw + 1).permutation(np.concatenate([members, others]))
    return rows, pool.records("gallery", rows), pool.records("attacker", own)


def parts_of(pool: Pool, members: NDArray[np.int64], clients: int) -> list[Records]:
    """The members, by client."""
    return [pool.records(f"client/{i}", rows) for i, rows in enumerate(np.array_split(members, clients))]


def magnitudes(pool: Pool, draws: int) -> Iterator[Job]:
    """The part of FedDiff's message that FMF adds; the network beside it is not trained here, nor attacked."""

    def one(draw: int) -> dict[str, Any]:
        members, others, own = drawn(pool, draw, (pool.members,) * 3)
        parts = parts_of(pool, members, CLIENTS)
        seen = View(tuple(_magnitudes(part) for part in parts), CLASSES, ThreatModel())
        rows, gallery, decoys = gallery_of(pool, draw, members, others, own)
        truth = truth_of(pool, parts, rows, np.array_split(members, CLIENTS), seen)
        return judged(asked(pool, seen, parts, gallery, decoys, Gallery()), KEY, truth)

    for draw in range(draws):
        yield Job({"method": "feddiff fmf", "members": pool.members, "draw": draw}, partial(one, draw))


def _magnitudes(client: Records) -> Message:
    counts = np.bincount(client.labels, minlength=CLASSES)
    mean = mean_magnitude(client.images).astype(np.float32)
    fields = {
        "class_counts": MessageField(counts, "class_counts", exact("labels")),
        "magnitude_mean": MessageField(mean, "magnitude_mean", exact()),
    }
    return Message(0, client.name, SERVER, fields)


def fedlog(pool: Pool, draws: int) -> Iterator[Job]:
    """One client, as with FedNCM's noise; without noise the sums of what its public bodies make of its records."""

    def one(rounds: int, epsilon: float, draw: int) -> dict[str, Any]:
        members, others, own, public = drawn(pool, draw, (*(pool.members,) * 3, PUBLIC))
        parts = parts_of(pool, members, 1)
        of_bodies = pool.records("public", public)
        outcome = outcome_of(pool, FedLog(rounds=rounds), parts, of_bodies, draw, min(epsilon, 50.0))
        seen = visible(outcome, ThreatModel())
        if np.isinf(epsilon):
            seen = without_noise(seen, parts[0])
        rows, gallery, decoys = gallery_of(pool, draw, members, others, own)
        found = judged(asked(pool, seen, parts, gallery, decoys, Gallery()), KEY, np.isin(rows, members))
        if np.isfinite(epsilon):
            mu = account(outcome.transcript, "add_remove", 1e-5, "record").mu
            found["ceiling"] = None if mu is None else highest_auc(mu)
        return found

    for rounds in (1, 5):
        for epsilon in (np.inf, 50.0, 20.0, 8.0, 1.0):
            for draw in range(draws):
                settings = {"method": "fedlog", "rounds": rounds, "epsilon": str(epsilon), "members": pool.members}
                yield Job(settings | {"draw": draw}, partial(one, rounds, epsilon, draw))


def without_noise(seen: View, client: Records) -> View:
    """What the same bodies sum up, in float32: FedLog sends it with noise wherever its bodies are public."""
    assert seen.enters is not None
    messages = []
    for message in seen.messages:
        fields = dict(message.fields)
        for block in seen.enters(message, CLASSES) if message.sender == client.name else ():
            if isinstance(block.of, OfImages):
                vectors = block.of.vectors(client.images)
                sums = np.stack([vectors[client.labels == label].sum(axis=0) for label in range(CLASSES)])
                fields["sums"] = _exactly(fields["sums"], sums.astype(np.float32))
                counts = np.bincount(client.labels, minlength=CLASSES).astype(np.int32)
                fields["counts"] = _exactly(fields["counts"], counts)
        messages.append(Message(message.round, message.sender, message.receiver, fields))
    return replace(seen, messages=tuple(messages))


def _exactly(item: MessageField, values: NDArray[Any]) -> MessageField:
    return MessageField(values, item.kind, exact(), additive=item.additive, secure=item.secure)


def null(pool: Pool, draws: int) -> Iterator[Job]:
    """Messages of strangers without noise, 100 and 400 candidates by turns; none may be certified."""

    def one(method: str, size: int, draw: int) -> dict[str, Any]:
        members, others, own, public = drawn(pool, draw, (size // 2, size, size, PUBLIC))
        parts = parts_of(pool, members, 1)
        if method == "fedlog":
            brief = FedLog(rounds=5, local_epochs=1)
            outcome = outcome_of(pool, brief, parts, pool.records("public", public), draw, 50.0)
            seen = without_noise(visible(outcome, ThreatModel()), parts[0])
        else:
            seen = View((_magnitudes(parts[0]),), CLASSES, ThreatModel())
        gallery, decoys = pool.records("gallery", others), pool.records("attacker", own)
        found = judged(asked(pool, seen, parts, gallery, decoys, Gallery()), KEY, np.zeros(size, np.bool_))
        return found | {"certified": bool(found["whole"] or found["named"] > 0)}

    for method in ("feddiff fmf", "fedlog"):
        for draw in range(draws):
            size = 400 if draw % 2 else 100
            yield Job({"method": method, "candidates": size, "draw": draw}, partial(one, method, size, draw))


def persons(pool: Pool, draws: int) -> Iterator[Job]:
    """Are people found by photographs of theirs that were not sent? FedCGS, under secure aggregation."""

    def one(kind: str, sent: int, draw: int) -> dict[str, Any]:
        rng = np.random.default_rng(draw)
        order = rng.permutation(PERSONS)
        pictures = np.array([person * PICTURES + rng.permutation(PICTURES) for person in range(PERSONS)])
        inside, outside = order[:INSIDE], order[INSIDE : INSIDE + OUTSIDE]
        own = pictures[order[INSIDE + OUTSIDE :]].ravel()
        parts = parts_of(pool, rng.permutation(pictures[inside, :sent].ravel()), CLIENTS)
        method = FedCGS(secure_aggregation="all")
        seen = visible(outcome_of(pool, method, parts, None, draw, np.inf), ThreatModel())
        shown = slice(0, sent) if kind == SAME else slice(PICTURES - SHOWN, PICTURES)
        held = pictures[inside, shown].ravel(), pictures[outside, shown].ravel()
        rows, gallery, decoys = gallery_of(pool, draw, *held, own)
        result = asked(pool, seen, parts, gallery, decoys, Gallery())
        found = judged(result, KEY, np.isin(rows // PICTURES, inside))
        ratio = asked(pool, seen, parts, gallery, decoys, Membership(shadows=0, tests=("likelihood_ratio",)))
        scores = result.scores[KEY], ratio.scores["messages/likelihood_ratio"]
        for name, each in zip(("", "_alone"), scores, strict=True):
            values = np.asarray(each, np.float64)
            means = [
                np.array([values[rows // PICTURES == who].mean() for who in group]) for group in (outside, inside)
            ]
            found[f"auc{name}_of_people"] = auc(*means).value
        found["auc_alone"] = judged(ratio, "messages/likelihood_ratio", np.isin(rows // PICTURES, inside))["auc"]
        return found

    for sent in (SHOWN, 1):
        for kind in (SAME, OTHERS):
            for draw in range(draws):
                settings = {"gallery": kind, "sent of each": sent, "people": INSIDE, "draw": draw}
                yield Job(settings, partial(one, kind, sent, draw))


PARTS = {"magnitudes": magnitudes, "fedlog": fedlog, "null": null, "persons": persons}


def main() -> None:
    """Measure a part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    public_data.add_row_arguments(parser, draws=10, members=400)
    given = parser.parse_args()
    pool = Pool(given.data, given.weights, given.cache, given.images, given.members)
    about = {"part": given.part, "data": public_data.called(given.data)}
    jobs = (Job(about | job.settings, job.measure) for job in PARTS[given.part](pool, given.draws))
    jobs = (job for job in jobs if re.search(given.only, key_of(job.settings)))
    measure(jobs, given.rows or given.cache / "gallery_images.jsonl")


if __name__ == "__main__":
    public_data.ended(main)
