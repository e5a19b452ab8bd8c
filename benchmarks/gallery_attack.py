"""Who of a gallery is in a message: the tables of docs/gallery_attack.md, one JSON object a line.

    python benchmarks/gallery_attack.py PART [--data cifar10] [--draws 10]
    python benchmarks/gallery_attack.py table

A part appends one row a draw to `--rows`, and goes on where it was stopped; `table` sums the rows up.

Parts: `methods` (every method, per client and aggregated, in every type), `components` (mixtures of K components),
`heads` (the published head alone), `large` (12,000 candidates), `coverage` (share of the members that the gallery
holds), `likeness` (the gallery re-encoded, resized or cropped), `noise` (finite epsilon), `null` (messages of
others), `colluding` (k of ten clients tell their parts) and `time` (seconds and memory against candidates).
Features are those of SqueezeNet at 64 pixels; they are kept under --cache. Intervals at 95 % are over draws
(Student's).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import public_data
from kept_rows import Job, Rows, run_parts
from numpy.typing import NDArray
from scipy import stats

from fedassay.attacks.gallery.attack import KEY, Gallery
from fedassay.attacks.gallery.solving import DENSE
from fedassay.attacks.membership.attack import Membership
from fedassay.audits.membership.ceiling import highest_auc
from fedassay.audits.stats.roc import auc
from fedassay.backbones.base import Backbone
from fedassay.backbones.precomputed import precomputed
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.membership import MembershipGame, visible
from fedassay.contracts.method import Method, MethodInput, Outcome
from fedassay.data.images import ImageSet
from fedassay.data.records import Records
from fedassay.exchange.ledger import account
from fedassay.exchange.release import PrivacyTarget
from fedassay.exchange.transcript import AGGREGATE
from fedassay.exchange.view import ThreatModel, View
from fedassay.methods.baselines.centralized import Centralized
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
    threat: ThreatModel | None = None,
) -> tuple[View, list[Records], float | None]:
    """What is seen of a run, the clients, and mu."""
    parts = [pool.records(f"client/{i}", rows) for i, rows in enumerate(np.array_split(members, clients))]
    privacy = PrivacyTarget(epsilon=epsilon, delta=1e-5, adjacency="add_remove")
    task = MethodInput(tuple(parts), parts[0], None, CLASSES, pool.known, privacy, Seeds(draw), "cpu", SILENT)
    outcome = method.run(task)
    mu = account(outcome.transcript, "add_remove", 1e-5, "record").mu if np.isfinite(epsilon) else None
    return visible(outcome, threat or ThreatModel()), parts, mu


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


def methods(pool: Pool, draws: int) -> Iterator[Job]:
    """Every method, per client and aggregated, in every type."""
    for name, make in METHODS.items():
        for kind in ("float64", "float32", "float16"):
            for draw in range(draws):
                yield Job(
                    {"method": name, "type": kind, "members": pool.members, "draw": draw},
                    partial(_of_method, pool, make, kind, draw),
                )


def _of_method(pool: Pool, make: Callable[[Any], Method], kind: str, draw: int) -> dict[str, Any]:
    members, others, own = drawn(pool, draw, (pool.members, pool.members, pool.members))
    return _one(pool, make(kind), members, others, own, draw)


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
    start, used = time.perf_counter(), time.process_time()
    result = asked(pool, seen, parts, gallery, decoys, Gallery())
    gone = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - used}
    found = judged(result, KEY, truth) | {each: round(value, 3) for each, value in gone.items()}
    if alone:
        ratio = Membership(shadows=0, tests=("likelihood_ratio",))
        result = asked(pool, seen, parts, gallery, decoys, ratio)
        found["auc_alone"] = judged(result, "messages/likelihood_ratio", truth)["auc"] if result.scores else None
    if mu is not None:
        found["ceiling"] = highest_auc(mu)
    return found


def _peak() -> dict[str, float]:
    """The most memory that the process has had, in GiB."""
    return {"peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)}


def components(pool: Pool, draws: int) -> Iterator[Job]:
    """Mixtures of several components a class (FedPFT, K), each of which is a sum by itself."""
    for family, kind in (("diag", "float32"), ("diag", "float16"), ("spherical", "float16")):
        for number in (1, 3, 10, 50):
            method = FedPFT.model_validate({"components": number, "covariance": family, "transport": kind})
            for draw in range(draws):
                yield Job(
                    {"family": family, "type": kind, "components": number, "members": pool.members, "draw": draw},
                    partial(_of_components, pool, method, draw),
                )


def _of_components(pool: Pool, method: FedPFT, draw: int) -> dict[str, Any]:
    members, others, own = drawn(pool, draw, (pool.members, pool.members, 1000))
    return _one(pool, method, members, others, own, draw, clients=1, alone=True)


HEADS: dict[str, Method] = {
    "fedcgs": FedCGS(secure_aggregation="all"),
    "fedcgs within": FedCGS(secure_aggregation="all", covariance="within"),
    "one_shot_ridge": OneShotRidge(secure_aggregation="all"),
    "afl": AFL(transport="float64"),
    "softmax": Centralized(),
}


def heads(pool: Pool, draws: int) -> Iterator[Job]:
    """The head that the server sends out and nothing else; of members, or (`null`) of strangers."""
    for name, method in HEADS.items():
        for kind in ("members", "null"):
            for draw in range(draws):
                yield Job(
                    {"method": name, "head": kind, "members": pool.members, "draw": draw},
                    partial(_of_head, pool, method, kind, draw),
                )


def _of_head(pool: Pool, method: Method, kind: str, draw: int) -> dict[str, Any]:
    members, others, further, own = drawn(pool, draw, (pool.members,) * 4)
    made_of = further if kind == "null" else members
    seen, parts, _ = sent(pool, method, made_of, draw, threat=ThreatModel(view="broadcast"))
    rows = np.random.default_rng(draw + 1).permutation(np.concatenate([members, others]))
    gallery, decoys = pool.records("gallery", rows), pool.records("attacker", own)
    truth, used = np.isin(rows, members), time.process_time()
    result = asked(pool, seen, parts, gallery, decoys, Gallery())
    found = judged(result, KEY, truth) | {"cpu_seconds": round(time.process_time() - used, 1)}
    by_loss = asked(pool, seen, parts, gallery, decoys, Membership(shadows=0, tests=("loss",)))
    found["auc_loss"] = judged(by_loss, "model/loss", truth)["auc"]
    # The candidates' scores end with logits; those of a message's sums are weights.
    found["wrong"] = int(((np.asarray(result.scores[KEY]) > 0) != truth).sum())
    return found | {"certified": found["whole"]}


def large(pool: Pool, draws: int) -> Iterator[Job]:
    """12,000 candidates, of which 5,400 are members."""
    chosen = {
        "fedcgs aggregated": FedCGS(secure_aggregation="all"),
        "fedncm": FedNCM(transport="float64"),
        "fedpft diag": FedPFT(components=1, covariance="diag", transport="float32"),
    }

    def one(name: str, method: Method, draw: int) -> dict[str, Any]:
        members, others, own = drawn(pool, draw, (5400, 6600, 1000))
        clients = 10 if name[:6] == "fedcgs" else 1
        return _one(pool, method, members, others, own, draw, clients=clients) | _peak()

    for name, method in chosen.items():
        for draw in range(draws):
            yield Job({"method": name, "candidates": 12_000, "draw": draw}, partial(one, name, method, draw))


def coverage(pool: Pool, draws: int) -> Iterator[Job]:
    """The share of the members that the gallery holds, of which the attack is not told."""

    def one(share: float, draw: int) -> dict[str, Any]:
        members, others, own = drawn(pool, draw, (pool.members, pool.members, 2 * pool.members))
        method = FedCGS(secure_aggregation="all")
        return _one(pool, method, members, others, own, draw, coverage=share, alone=share > 0)

    for share in (1.0, 0.9, 0.5, 0.1, 0.0):
        for draw in range(draws):
            yield Job({"coverage": share, "members": pool.members, "draw": draw}, partial(one, share, draw))


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


def likeness(pool: Pool, draws: int) -> Iterator[Job]:
    """All candidates changed alike."""
    changes = {
        "JPEG 98": _jpeg(98),
        "JPEG 90": _jpeg(90),
        "JPEG 75": _jpeg(75),
        "resized by 1.5 and back": _resized,
        "cropped by 5 %": _cropped,
    }

    def one(change: Callable[[Any], Any], draw: int) -> dict[str, Any]:
        members, others, own = drawn(pool, draw, (pool.members, pool.members, pool.members))
        method = FedCGS(secure_aggregation="all")
        return _one(pool, method, members, others, own, draw, change=_encoded(change), alone=True)

    for name, change in changes.items():
        for draw in range(draws):
            yield Job({"gallery": name, "members": pool.members, "draw": draw}, partial(one, change, draw))


def noise(pool: Pool, draws: int) -> Iterator[Job]:
    """Finite epsilon at delta 1e-5."""
    chosen = {
        "fedcgs": FedCGS(secure_aggregation="all", noise="central"),
        "fedncm": FedNCM(),
        "fedpft diag": FedPFT(components=1, covariance="diag"),
    }

    def one(name: str, method: Method, epsilon: float, draw: int) -> dict[str, Any]:
        members, others, own = drawn(pool, draw, (pool.members, pool.members, pool.members))
        clients = CLIENTS if name == "fedcgs" else 1
        return _one(pool, method, members, others, own, draw, epsilon, clients=clients, alone=True)

    for name, method in chosen.items():
        for epsilon in (1.0, 8.0, 20.0, 50.0):
            for draw in range(draws):
                yield Job(
                    {"method": name, "epsilon": epsilon, "members": pool.members, "draw": draw},
                    partial(one, name, method, epsilon, draw),
                )


def null(pool: Pool, draws: int) -> Iterator[Job]:
    """Messages of others: of strangers, through another backbone, of shuffled labels; nothing may be certified.

    A name at a rate of one in a hundred needs a hundred candidates above all decoys: galleries are of 100
    candidates and of 400 by turns, with as many decoys.
    """
    chosen: dict[str, Method] = {
        "fedcgs": FedCGS(secure_aggregation="all"),
        "fedncm": FedNCM(),
        "fedpft diag": FedPFT(components=1, covariance="diag"),
        "fedpft diag, 10 components": FedPFT(components=10, covariance="diag"),
        "fedpft spherical, 10 components": FedPFT(components=10, covariance="spherical"),
    }
    for name, method in chosen.items():
        for kind in ("strangers", "another backbone", "shuffled labels"):
            for draw in range(draws):
                size = 400 if draw % 2 else 100
                yield Job(
                    {"method": name, "gallery": kind, "candidates": size, "draw": draw},
                    partial(_null, pool, method, kind, size, draw),
                )


def _null(pool: Pool, method: Method, kind: str, size: int, draw: int) -> dict[str, Any]:
    held = 2 * size // 5
    members, others, own = drawn(pool, draw, (held, size, size))
    seen, parts, _ = sent(pool, method, members, draw, clients=1)
    rows = others if kind == "strangers" else np.concatenate([members, others[: size - held]])
    features, rng = pool.features[rows], np.random.default_rng(draw)
    decoys = pool.features[own]
    if kind == "another backbone":
        mixing = rng.standard_normal((features.shape[1],) * 2)
        features, decoys = (np.maximum(each @ mixing, 0).astype(np.float32) / 20 for each in (features, decoys))
    gallery = pool.records("gallery", rows, features)
    if kind == "shuffled labels":
        gallery = gallery.relabelled(rng.permutation(gallery.labels))
    truth = np.isin(rows, members)
    found = judged(asked(pool, seen, parts, gallery, pool.records("attacker", own, decoys), Gallery()), KEY, truth)
    return found | {"certified": bool(found["whole"] or found["named"] > 0)}


def colluding(pool: Pool, draws: int) -> Iterator[Job]:
    """Some of ten clients tell the server their parts of FedCGS's sums; the gallery holds one client's records.

    Of the others that are left it holds nobody. `null` subtracts as many parts of clients of another draw.
    """
    for epsilon in (np.inf, 8.0):
        for kind in ("members", "null"):
            for many in (0, 3, 5, 7, 8, 9):
                for draw in range(draws if many or kind == "members" else 0):
                    yield Job(
                        {"epsilon": str(epsilon), "parts": kind, "colluding": many, "draw": draw},
                        partial(_colluding, pool, many, draw, epsilon, kind),
                    )


def _colluding(pool: Pool, many: int, draw: int, epsilon: float, kind: str) -> dict[str, Any]:
    clients, each = 10, pool.members // 10
    members, others, own = drawn(pool, draw, (10 * each, each, pool.members // 2))
    parts = [
        pool.records(f"client/{place}" if place < clients - many else f"colluder/{place - clients + many}", rows)
        for place, rows in enumerate(np.array_split(members, clients))
    ]
    outcome = _outcome(pool, parts, draw, epsilon)
    if kind == "null":
        # What is subtracted is of other people: the sum of all is as it was, and so is what is left of it not.
        whole = visible(_outcome(pool, _named(parts), draw, epsilon), ThreatModel()).from_clients()[0]
        strangers = drawn(pool, draw + 10_000, (10 * each,))[0]
        theirs = [pool.records(f"client/{place}", rows) for place, rows in enumerate(np.split(strangers, clients))]
        told = _outcome(pool, theirs, draw + 10_000, epsilon).transcript.from_clients()
        wrong = [message for message in told if int(message.sender.partition("/")[2]) >= clients - many]
        seen = visible(outcome, ThreatModel())
        fields = {
            name: replace(item, sent=item.values - sum(message.fields[name].values for message in wrong))
            for name, item in whole.fields.items()
        }
        left = seen.from_clients()[0]
        held = tuple(replace(message, fields=fields) if message is left else message for message in seen.messages)
        seen = replace(seen, messages=held)
    else:
        seen = visible(outcome, ThreatModel(colluding=many))
    rows = np.random.default_rng(draw + 1).permutation(np.concatenate([members[:each], others]))
    gallery = pool.records("gallery", rows)
    result = asked(pool, seen, parts[: clients - many], gallery, pool.records("attacker", own), Gallery())
    found = judged(result, KEY, np.isin(rows, members[:each]))
    if np.isfinite(epsilon):
        mu = account(outcome.transcript, "add_remove", 1e-5, "record").mu
        found["ceiling"] = None if mu is None else highest_auc(mu)
    return found | {"members": each, "certified": bool(found["whole"])}


def _named(parts: Sequence[Records]) -> list[Records]:
    """The same records of clients that do not collude."""
    return [replace(part, name=f"client/{place}") for place, part in enumerate(parts)]


def _outcome(pool: Pool, parts: Sequence[Records], draw: int, epsilon: float) -> Outcome:
    privacy = PrivacyTarget(epsilon=epsilon, delta=1e-5, adjacency="add_remove")
    noise: Any = "central" if np.isfinite(epsilon) else "local"
    method = FedCGS(secure_aggregation="all", noise=noise)
    return method.run(
        MethodInput(tuple(parts), parts[0], None, CLASSES, pool.known, privacy, Seeds(draw), "cpu", SILENT)
    )


def timing(pool: Pool, draws: int) -> Iterator[Job]:
    """Seconds and memory against candidates; what a size is expected to take is said before it starts."""

    def one(size: int, draw: int) -> dict[str, Any]:
        inside = int(0.45 * size)
        members, others, own = drawn(pool, draw, (inside, size - inside, 1))
        return _one(pool, FedCGS(secure_aggregation="all"), members, others, own[:0], draw) | _peak()

    for size in (1000, 2000, 4000, 8000, 12_000, 20_000, 30_000, 50_000):
        for draw in range(draws if size < len(pool.labels) else 0):
            yield Job({"candidates": size, "draw": draw}, partial(one, size, draw))


def exponents(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The slope of log seconds over log candidates, where a kernel is formed, beyond, and over all sizes."""
    sizes = np.array([row["settings"]["candidates"] for row in rows], np.float64)
    seconds = np.array([row["figures"]["cpu_seconds"] for row in rows])
    found = []
    for words, chosen in (("kernel", sizes <= DENSE), ("iterative", sizes > DENSE), ("all", sizes > 0)):
        if len(np.unique(sizes[chosen])) > 1:
            fitted = stats.linregress(np.log(sizes[chosen]), np.log(seconds[chosen]))
            half = float(stats.t.ppf(0.975, max(1, int(chosen.sum()) - 2)) * fitted.stderr)
            low, high = (round(float(fitted.slope) + sign * half, 2) for sign in (-1, 1))
            found.append({"part": "time", "solver": words, "exponent": [round(float(fitted.slope), 2), low, high]})
    return found


PARTS = {
    "methods": methods,
    "components": components,
    "heads": heads,
    "large": large,
    "coverage": coverage,
    "likeness": likeness,
    "noise": noise,
    "null": null,
    "colluding": colluding,
    "time": timing,
}


def pool_of(given: argparse.Namespace) -> Pool:
    """The pool of the options of a command line."""
    return Pool(given.data, given.weights, given.cache, given.images, given.members)


def _timed(rows: Rows) -> Iterable[dict[str, Any]]:
    timed = [row for row in rows if row["settings"]["part"] == "time" and "cpu_seconds" in row["figures"]]
    return exponents(timed) if timed else ()


def main() -> None:
    """Measure a part, or say what the rows of a file show."""
    run_parts(__doc__, "gallery_attack", PARTS, pool_of, draws=10, members=750, further=_timed)


if __name__ == "__main__":
    public_data.ended(main)
