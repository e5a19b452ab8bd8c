"""Who of a gallery is in a message: the tables of docs/gallery_attack.md, one JSON object a line.

    python benchmarks/gallery_attack.py PART [--data cifar10] [--draws 10]

Parts: `methods` (every method, per client and aggregated, in every type), `large` (12,000 candidates),
`coverage` (share of the members that the gallery holds), `likeness` (the gallery re-encoded, resized or cropped),
`noise` (finite epsilon), `null` (messages of others) and `time` (seconds and memory against candidates).
Features are those of SqueezeNet at 64 pixels; they are kept under --cache. Intervals at 95 % are over draws
(Student's).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import public_data
from numpy.typing import NDArray
from scipy import stats

from fedassay.attacks.gallery.attack import KEY, Gallery
from fedassay.attacks.membership.attack import Membership
from fedassay.audits.membership.ceiling import highest_auc
from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.audits.stats.roc import auc
from fedassay.backbones.base import Backbone
from fedassay.backbones.precomputed import precomputed
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.membership import MembershipGame, visible
from fedassay.contracts.method import Method, MethodInput
from fedassay.data.images import ImageSet
from fedassay.data.records import Records
from fedassay.exchange.ledger import account
from fedassay.exchange.release import PrivacyTarget
from fedassay.exchange.transcript import AGGREGATE
from fedassay.exchange.view import ThreatModel, View
from fedassay.methods.closed_forms.afl import AFL
from fedassay.methods.closed_forms.fed3r import Fed3R
from fedassay.methods.closed_forms.fedcof import FedCOF
from fedassay.methods.closed_forms.fedncm import FedNCM
from fedassay.methods.closed_forms.gh_ofl import GHOFL
from fedassay.methods.closed_forms.one_shot_ridge import OneShotRidge
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedpft.method import FedPFT
from fedassay.support.errors import FedassayError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

CLASSES = 10
CLIENTS = 5
Matrix = NDArray[np.float64]

METHODS: dict[str, Callable[[Any], Method]] = {
    "fedcgs": lambda kind: FedCGS(transport=kind),
    "fedcgs aggregated": lambda kind: FedCGS(transport=kind, secure_aggregation="all"),
    "afl": lambda kind: AFL(transport=kind),
    "fed3r": lambda kind: Fed3R(transport=kind),
    "fed3r aggregated": lambda kind: Fed3R(transport=kind, secure_aggregation="all"),
    "fed3r random features": lambda kind: Fed3R(transport=kind, random_features=400, bandwidth=300.0),
    "gh_ofl diagonal": lambda kind: GHOFL(transport=kind, head="nb", moments="diagonal"),
    "gh_ofl aggregated": lambda kind: GHOFL(transport=kind, sketch=128, secure_aggregation="all"),
    "one_shot_ridge": lambda kind: OneShotRidge(transport=kind),
    "one_shot_ridge aggregated": lambda kind: OneShotRidge(transport=kind, secure_aggregation="all"),
    "fedncm": lambda kind: FedNCM(transport=kind),
    "fedcof": lambda kind: FedCOF(transport=kind),
    "fedpft spherical": lambda kind: FedPFT(components=1, covariance="spherical", transport=kind),
    "fedpft diag": lambda kind: FedPFT(components=1, covariance="diag", transport=kind),
    "fedpft full": lambda kind: FedPFT(components=1, covariance="full", transport=kind),
}


class Pool:
    """Images, labels and features of a data set."""

    def __init__(self, data: str, weights: str, cache: Path, most: int, members: int) -> None:
        self.members = members
        self.images, self.labels = _images(data, most)
        self.backbone = public_data.backbone("squeezenet1_1", weights, public_data.SIZE, self.images, CLASSES)
        of = hashlib.sha256(self.images.tobytes() + self.backbone.fingerprint.encode()).hexdigest()[:16]
        kept = cache / f"linear-{of}.features.npy"
        if not kept.exists():
            np.save(kept, self.backbone.extract(self.images))
        self.features = np.load(kept)
        every = ImageSet(self.images, self.labels, tuple("0123456789"), features=self.features)
        self.known: Backbone = precomputed(every, public_data.called(data), "cpu")

    def records(self, name: str, rows: NDArray[np.int64], features: Any = None) -> Records:
        """Records at some rows, with features of their own where these are given."""
        own = self.features[rows] if features is None else features
        return Records(name, self.images[rows], self.labels[rows], lambda _: own)


def _images(data: str, most: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Training images, and behind them test images: at most so many, in their order."""
    both = public_data.loaded(data)
    parts = [both.train] if both.test is None else [both.train, both.test]
    return (
        np.concatenate([part.images for part in parts])[:most],
        np.concatenate([part.labels for part in parts])[:most],
    )


def drawn(pool: Pool, draw: int, sizes: Sequence[int]) -> list[NDArray[np.int64]]:
    """Disjoint sets of rows."""
    order = np.random.default_rng(draw).permutation(len(pool.labels))
    return np.split(order[: sum(sizes)], np.cumsum(sizes)[:-1])


def sent(
    pool: Pool,
    method: Method,
    members: NDArray[np.int64],
    draw: int,
    epsilon: float = np.inf,
    clients: int = CLIENTS,
) -> tuple[View, list[Records], float | None]:
    """What is seen of a run, the clients, and mu."""
    parts = [pool.records(f"client/{i}", rows) for i, rows in enumerate(np.array_split(members, clients))]
    privacy = PrivacyTarget(epsilon=epsilon, delta=1e-5, adjacency="add_remove")
    task = MethodInput(tuple(parts), parts[0], None, CLASSES, pool.known, privacy, Seeds(draw), "cpu", SILENT)
    outcome = method.run(task)
    mu = account(outcome.transcript, "add_remove", 1e-5, "record").mu if np.isfinite(epsilon) else None
    return visible(outcome, ThreatModel()), parts, mu


def asked(
    pool: Pool, view: View, clients: list[Records], gallery: Records, decoys: Records | None, attack: Any
) -> AttackResult:
    """The attack on a view: everything is one question, asked of each client or of all."""
    senders = {message.sender for message in view.from_clients()} - {AGGREGATE}
    names = [client.name for client in clients]
    nobody = gallery.take(np.zeros(0, np.int64))
    questions = (
        dict.fromkeys(names, gallery) if senders else {names[0]: gallery, **dict.fromkeys(names[1:], nobody)}
    )
    sizes = {client.name: np.bincount(client.labels, minlength=CLASSES) for client in clients}

    def simulate(records: Sequence[Records], seeds: Seeds) -> View:
        raise FedassayError("no shadows")

    game = MembershipGame(questions, sizes, decoys, simulate, Seeds(0), gallery=gallery)
    known = Knowledge(decoys, CLASSES, None, False, Seeds(0), "cpu", SILENT, game=game)
    return attack.run(view, known)


def judged(result: AttackResult, key: str, truth: NDArray[np.bool_]) -> dict[str, Any]:
    """How well members are told; truth and scores are over all questions."""
    scores = np.asarray(result.scores[key], np.float64)
    known = ~np.isnan(scores)
    found: dict[str, Any] = {"n": int(known.sum())}
    if (known & truth).any() and (known & ~truth).any():
        area = auc(scores[known & ~truth], scores[known & truth])
        found["auc"] = area.value
        found["wrong"] = int(((scores > 0.5) != truth)[known].sum())
    if "named" in result.artifacts:
        names = np.asarray(result.artifacts["named"], np.bool_)
        found |= {"named": int(names.sum()), "wrongly_named": int((names & ~truth).sum())}
        found["whole"] = bool(np.asarray(result.artifacts["whole"]).all())
    return found


def truth_of(pool: Pool, clients: list[Records], gallery_rows: NDArray[np.int64], parts: Any, seen: View) -> Any:
    held = [np.isin(gallery_rows, rows) for rows in parts]
    if {message.sender for message in seen.from_clients()} - {AGGREGATE}:
        return np.concatenate(held)
    return np.any(held, axis=0)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means with intervals over draws, and sums of counts."""
    out: dict[str, Any] = {"draws": len(rows)}
    for name in ("auc", "auc_alone", "ceiling"):
        values = [row[name] for row in rows if row.get(name) is not None]
        if values:
            half = 0.0 if len(values) < 2 else stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
            out[name] = [
                round(v, 4) for v in (float(np.mean(values)), np.mean(values) - half, np.mean(values) + half)
            ]
    for name in ("n", "wrong", "named", "wrongly_named"):
        if any(name in row for row in rows):
            out[name] = int(sum(row.get(name, 0) for row in rows))
    if any("whole" in row for row in rows):
        count = sum(bool(row.get("whole")) for row in rows)
        band = clopper_pearson(np.array([count]), len(rows))
        out["whole"] = [count, round(float(band.low[0]), 3), round(float(band.high[0]), 3)]
    return out


def say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def methods(pool: Pool, draws: int) -> None:
    for name, make in METHODS.items():
        for kind in ("float64", "float32", "float16"):
            rows = []
            try:
                method = make(kind)
                for draw in range(draws):
                    members, others, own = drawn(pool, draw, (pool.members, pool.members, pool.members))
                    rows.append(_one(pool, method, members, others, own, draw))
            except (FedassayError, ValueError) as error:
                say(part="methods", method=name, type=kind, refused=str(error).split("\n")[0][:90])
                continue
            say(part="methods", method=name, type=kind, **summary(rows))


def _one(
    pool: Pool,
    method: Method,
    members: Any,
    others: Any,
    own: Any,
    draw: int,
    epsilon: float = np.inf,
    coverage: float = 1.0,
    change: Any = None,
    clients: int = CLIENTS,
    alone: bool = False,
) -> dict[str, Any]:
    seen, parts, mu = sent(pool, method, members, draw, epsilon, clients)
    held = members[: round(coverage * len(members))]
    held = np.random.default_rng(draw).permutation(members)[: len(held)]
    rows = np.random.default_rng(draw + 1).permutation(np.concatenate([held, others]))
    gallery, decoys = pool.records("gallery", rows), pool.records("attacker", own)
    if change is not None:
        gallery, decoys = (
            pool.records(each.name, at, change(pool, at)) for each, at in ((gallery, rows), (decoys, own))
        )
    truth = truth_of(pool, parts, rows, np.array_split(members, clients), seen)
    start = time.perf_counter()
    found = judged(asked(pool, seen, parts, gallery, decoys, Gallery()), KEY, truth)
    found["seconds"] = time.perf_counter() - start
    if alone:
        ratio = Membership(shadows=0, tests=("likelihood_ratio",))
        result = asked(pool, seen, parts, gallery, decoys, ratio)
        found["auc_alone"] = judged(result, "messages/likelihood_ratio", truth)["auc"] if result.scores else None
    if mu is not None:
        found["ceiling"] = highest_auc(mu)
    return found


def large(pool: Pool, draws: int) -> None:
    chosen = {
        "fedcgs aggregated": FedCGS(secure_aggregation="all"),
        "fedncm": FedNCM(transport="float64"),
        "fedpft diag": FedPFT(components=1, covariance="diag", transport="float32"),
    }
    for name, method in chosen.items():
        rows = []
        for draw in range(draws):
            members, others, own = drawn(pool, draw, (5400, 6600, 1000))
            rows.append(_one(pool, method, members, others, own, draw, clients=10 if name[:6] == "fedcgs" else 1))
            say(part="large", method=name, draw=draw, **rows[-1])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        say(
            part="large",
            method=name,
            candidates=12_000,
            **summary(rows),
            seconds=[round(row["seconds"], 1) for row in rows],
            peak_gib=round(peak, 2),
        )


def coverage(pool: Pool, draws: int) -> None:
    for share in (1.0, 0.9, 0.5, 0.1, 0.0):
        rows = []
        for draw in range(draws):
            members, others, own = drawn(pool, draw, (pool.members, pool.members, 2 * pool.members))
            method = FedCGS(secure_aggregation="all")
            rows.append(_one(pool, method, members, others, own, draw, coverage=share, alone=share > 0))
        say(part="coverage", coverage=share, **summary(rows))


def _encoded(change: Callable[[Any], Any]) -> Callable[[Pool, Any], Any]:
    def features(pool: Pool, rows: Any) -> Any:
        return pool.backbone.extract(np.stack([change(image) for image in pool.images[rows]]))

    return features


def _jpeg(quality: int) -> Callable[[Any], Any]:
    from PIL import Image

    def change(image: Any) -> Any:
        stream = io.BytesIO()
        Image.fromarray(image if image.shape[-1] == 3 else image[..., 0]).save(stream, "JPEG", quality=quality)
        return np.asarray(Image.open(stream)).reshape(image.shape)

    return change


def _resized(image: Any) -> Any:
    from PIL import Image

    plain = Image.fromarray(image if image.shape[-1] == 3 else image[..., 0])
    up = plain.resize((48, 48), Image.Resampling.BICUBIC).resize(plain.size, Image.Resampling.BICUBIC)
    return np.asarray(up).reshape(image.shape)


def _cropped(image: Any) -> Any:
    from PIL import Image

    plain = Image.fromarray(image if image.shape[-1] == 3 else image[..., 0])
    side = 0.025 * plain.width
    box = (side, side, plain.width - side, plain.height - side)
    return np.asarray(plain.resize(plain.size, Image.Resampling.BICUBIC, box=box)).reshape(image.shape)


def likeness(pool: Pool, draws: int) -> None:
    changes = {
        "JPEG 98": _jpeg(98),
        "JPEG 90": _jpeg(90),
        "JPEG 75": _jpeg(75),
        "resized by 1.5 and back": _resized,
        "cropped by 5 %": _cropped,
    }
    for name, change in changes.items():
        rows = []
        for draw in range(draws):
            members, others, own = drawn(pool, draw, (pool.members, pool.members, pool.members))
            method = FedCGS(secure_aggregation="all")
            rows.append(_one(pool, method, members, others, own, draw, change=_encoded(change), alone=True))
        say(part="likeness", gallery=name, **summary(rows))


def noise(pool: Pool, draws: int) -> None:
    chosen = {
        "fedcgs": FedCGS(secure_aggregation="all", noise="central"),
        "fedncm": FedNCM(),
        "fedpft diag": FedPFT(components=1, covariance="diag"),
    }
    for name, method in chosen.items():
        for epsilon in (1.0, 8.0, 20.0, 50.0):
            rows = []
            for draw in range(draws):
                members, others, own = drawn(pool, draw, (pool.members, pool.members, pool.members))
                clients = CLIENTS if name == "fedcgs" else 1
                rows.append(_one(pool, method, members, others, own, draw, epsilon, clients=clients, alone=True))
            say(part="noise", method=name, epsilon=epsilon, **summary(rows))


def null(pool: Pool, draws: int) -> None:
    """Messages of others: of strangers, through another backbone, of shuffled labels; nothing may be certified."""
    kinds = {"strangers": 0, "another backbone": 1, "shuffled labels": 2}
    chosen = {
        "fedcgs": FedCGS(secure_aggregation="all"),
        "fedncm": FedNCM(),
        "fedpft diag": FedPFT(components=1, covariance="diag"),
    }
    for name, method in chosen.items():
        for words, kind in kinds.items():
            rows = []
            for draw in range(draws):
                members, others, own = drawn(pool, draw, (40, 100, 100))
                seen, parts, _ = sent(pool, method, members, draw, clients=1)
                rows_of = others if kind == 0 else np.concatenate([members, others[:60]])
                features = pool.features[rows_of]
                rng = np.random.default_rng(draw)
                if kind == 1:
                    features = np.maximum(features @ rng.standard_normal((512, 512)), 0).astype(np.float32) / 20
                gallery = pool.records("gallery", rows_of, features)
                if kind == 2:
                    gallery = gallery.relabelled(rng.permutation(gallery.labels))
                truth = np.isin(rows_of, members)
                found = judged(
                    asked(pool, seen, parts, gallery, pool.records("attacker", own), Gallery()), KEY, truth
                )
                rows.append(found | {"certified": found["whole"] or found["named"] > 0})
            count = sum(row["certified"] for row in rows)
            band = clopper_pearson(np.array([count]), len(rows))
            say(
                part="null",
                method=name,
                gallery=words,
                certified=count,
                galleries=len(rows),
                high=round(float(band.high[0]), 5),
                **summary(rows),
            )


def timing(pool: Pool, draws: int) -> None:
    seconds, sizes = [], [size for size in (1000, 2000, 4000, 8000, 12_000) if size <= len(pool.labels)]
    for size in sizes:
        members, others, own = drawn(pool, 0, (int(0.45 * size), size - int(0.45 * size), 1))
        found = _one(pool, FedCGS(secure_aggregation="all"), members, others, own[:0], 0)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        seconds.append(found["seconds"])
        say(part="time", candidates=size, peak_gib=round(peak, 2), **found)
    slope, _ = np.polyfit(np.log(sizes), np.log(seconds), 1)
    say(part="time", exponent=round(float(slope), 2))


PARTS = {
    "methods": methods,
    "large": large,
    "coverage": coverage,
    "likeness": likeness,
    "noise": noise,
    "null": null,
    "time": timing,
}


def main() -> None:
    """Measure a part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    public_data.add_arguments(parser)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--images", type=int, default=14_500)
    parser.add_argument("--members", type=int, default=750, help="Members, and as many others")
    parser.add_argument("--cache", type=Path, default=Path("/tmp"))
    given = parser.parse_args()
    PARTS[given.part](Pool(given.data, given.weights, given.cache, given.images, given.members), given.draws)


if __name__ == "__main__":
    public_data.ended(main)
