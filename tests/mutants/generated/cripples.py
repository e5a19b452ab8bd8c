"""Is an attack crippled? Its raw score on the truth, by a few lines that the audits do not know.

Each target is a release of the shape that the attack is for: a method without noise on digits at a few clients. An
attack is crippled where its score, 1 for all and 0 for nothing, falls to half or less of what the shipped attack
reaches. One that raises an error is not: whoever runs it is told.

Images are scored by the squared error of pixels, the nearest image of its sender for each record, as a share of
the error that records of strangers have to the same images: what shows nobody, or everybody alike, gains nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from catalogue import BASE
from cells import digits, pixels
from numpy.typing import NDArray

EXACT = 0.05
"""Relative error up to which a record is found."""
PUBLIC = slice(1200, 1500)
STRANGERS = slice(1500, 1797)
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """One attack on its target, and the plan that audits it.

    Attributes:
        attack: Registered name.
        audit: The audit that judges it.
        method: Registered name and parameters.
        clients: Their number.
        records: Of all clients.
        score: Which of `SCORES`.
        parameters: Of the attack.
        audited: Parameters of the audit.
        attributes: Attributes that the plan names.
        planned: Records of all clients in the plan; 0: about as many as here.
    """

    attack: str
    audit: str
    method: tuple[str, dict[str, Any]]
    clients: int
    records: int
    score: str
    parameters: dict[str, Any] = field(default_factory=dict)
    audited: dict[str, Any] = field(default_factory=dict)
    attributes: tuple[str, ...] = ()
    planned: int = 0

    @property
    def plan(self) -> dict[str, Any]:
        """The plan that audits it."""
        name, parameters = self.method
        split = {
            "private": round((self.planned or self.records) / 1797, 3),
            "attacker": 0.2,
            "public": 0.05,
            "test": 0.25,
        }
        data = {**BASE["data"], "split": {**split, "control": 0.15}}
        return {
            **BASE,
            "data": {**data, **({"attributes": list(self.attributes)} if self.attributes else {})},
            "clients": {"count": self.clients, "partition": "iid"},
            "privacy": {"epsilon": [float("inf")]},
            "methods": [{name: parameters}],
            "attacks": [{self.attack: self.parameters}],
            "audits": [{self.audit: self.audited}],
        }


_GAME = {"trials": 0, "releases": 0}
HIDDEN = ("fedcgs", {"secure_aggregation": "counts"})
_STEP = ("fedsgd", {"body": {"name": "mlp", "hidden": 128}, "batch": 2})
CELLS: dict[str, Cell] = {
    "gram": Cell("gram_factorization", "message", ("fedcgs", {}), 6, 72, "vectors"),
    "algebra-sums": Cell("message_algebra", "message", HIDDEN, 6, 90, "vectors"),
    "algebra-mixtures": Cell(
        "message_algebra", "message", ("fedpft", {"components": 10, "covariance": "diag"}), 3, 90, "vectors"
    ),
    "labels": Cell("label_distribution", "message", HIDDEN, 8, 360, "labels"),
    "membership": Cell("membership", "membership", ("fedcgs", {}), 3, 360, "members", {"shadows": 0}, _GAME),
    "membership-means": Cell(
        "membership", "membership", ("fedpft", {"components": 1}), 3, 360, "members", {"shadows": 0}, _GAME
    ),
    "gallery": Cell("gallery", "membership", ("fedcgs", {}), 3, 360, "members", {}, _GAME),
    "gallery-ridge": Cell("gallery", "membership", ("one_shot_ridge", {}), 3, 360, "members", {}, _GAME),
    "attributes": Cell(
        "attribute_likelihood", "attribute_inference", ("fedcgs", {}), 4, 180, "members", attributes=("label",)
    ),
    "inversion": Cell("feature_inversion", "inversion", ("raw_features", {}), 3, 60, "images", planned=360),
    "inversion-means": Cell("feature_inversion", "inversion", ("fedcgs", {}), 6, 60, "images", planned=540),
    "gradients": Cell("gradient_inversion", "inversion", _STEP, 8, 24, "images", {"rounds": 4}, planned=360),
    "diffusion": Cell(
        "feature_diffusion", "reconstruction", ("raw_features", {}), 3, 60, "images", {"steps": 5}, planned=270
    ),
}


def ready(cell: Cell) -> Callable[[], tuple[float, str]]:
    """Runs the attack on its target: the score, and a digest of all that the attack returns.

    The target is made once, by the package as it is.
    """
    from fedassay.contracts.attack import Knowledge
    from fedassay.contracts.membership import make_game, visible
    from fedassay.contracts.method import MethodInput
    from fedassay.data.records import Records
    from fedassay.exchange.release import PrivacyTarget
    from fedassay.exchange.view import ThreatModel
    from fedassay.support.progress import SILENT
    from fedassay.support.registry import lookup
    from fedassay.support.seeds import Seeds

    held, extractor = digits(), pixels()

    def records(name: str, where: Any) -> Records:
        return Records(name, held.images[where], held.labels[where], extractor.extract)

    parts = np.array_split(np.arange(cell.records), cell.clients)
    clients = tuple(records(f"client/{place}", part) for place, part in enumerate(parts))
    name, parameters = cell.method
    task = MethodInput(
        clients=clients,
        test=records("test", STRANGERS),
        public=records("public", PUBLIC),
        classes=10,
        backbone=extractor,
        privacy=PrivacyTarget(epsilon=float("inf"), delta=1e-5, adjacency="add_remove"),
        seeds=Seeds(0),
        device="cpu",
        progress=SILENT,
    )
    seen = visible(lookup("method", name)(**parameters).run(task), ThreatModel())

    def nobody(*_: Any) -> Any:
        raise RuntimeError("no shadow is asked for")

    game = make_game(clients, task.test, task.public, nobody, Seeds(1), classes=10)
    known = Knowledge(task.public, 10, extractor, True, Seeds(0), "cpu", SILENT, game=game)
    attack = lookup("attack", cell.attack)(**cell.parameters)

    def run() -> tuple[float, str]:
        result = attack.run(seen, known)
        return SCORES[cell.score](result, clients, game, seen), _digest(result)

    return run


def _digest(result: Any) -> str:
    import hashlib

    said = hashlib.sha256()
    arrays = {**result.scores, **result.artifacts, **{each.name: each.vectors for each in result.vectors}}
    arrays |= {f"image/{each.source.name}": each.images for each in result.reconstructions}
    for name, values in sorted(arrays.items()):
        said.update(f"{name}{np.shape(values)}".encode() + np.ascontiguousarray(values).tobytes())
    return said.hexdigest()


def _errors(truth: Vector, found: Vector) -> Vector:
    """Relative error of the nearest vector, for each record."""
    if not len(found):
        return np.full(len(truth), np.inf)
    apart = np.linalg.norm(truth[:, None] - found[None], axis=2)
    return np.asarray(apart.min(axis=1) / np.linalg.norm(truth, axis=1))


def _features(clients: Sequence[Any]) -> Vector:
    return np.concatenate([np.asarray(each.features, np.float64) for each in clients])


def _found(result: Any) -> Vector:
    parts = [np.asarray(each.vectors, np.float64) for each in result.vectors]
    return np.concatenate(parts) if parts else np.zeros((0, 1))


def _vectors(result: Any, clients: Sequence[Any], game: Any, seen: Any) -> float:
    """Share of records that are found."""
    return float(np.mean(_errors(_features(clients), _found(result)) < EXACT))


def _labels(result: Any, clients: Sequence[Any], game: Any, seen: Any) -> float:
    """What of the distance between a client's histogram and a flat one is gone."""
    gained = []
    for client in clients:
        counts = np.bincount(client.labels, minlength=10) / len(client.labels)
        rows = [
            values
            for name, values in zip(result.artifacts["senders"], result.artifacts["histograms"], strict=True)
            if str(name) == client.name
        ]
        apart = np.abs(rows[0] - counts).sum() if rows else np.inf
        gained.append(1 - apart / np.abs(counts - 0.1).sum())
    return float(np.mean(np.clip(gained, -1, 1)))


def _truth(clients: Sequence[Any], game: Any) -> NDArray[np.bool_]:
    """Whether a client holds a candidate, by its image."""
    held = {each.name: {image.tobytes() for image in each.images} for each in clients}
    asked = game.questions.items()
    return np.array([image.tobytes() in held[name] for name, each in asked for image in each.images])


def _members(result: Any, clients: Sequence[Any], game: Any, seen: Any) -> float:
    """Twice the area under the curve beyond one half, of the best score; what has no number is no evidence."""
    truth = _truth(clients, game)
    return max(_area(np.asarray(values, np.float64), truth) for values in result.scores.values())


def _area(values: Vector, truth: NDArray[np.bool_]) -> float:
    values = np.nan_to_num(values, nan=float(np.nanmedian(values)) if np.isfinite(values).any() else 0.0)
    inside, outside = values[truth], values[~truth]
    above = (inside[:, None] > outside).mean() + (inside[:, None] == outside).mean() / 2
    return float(2 * above - 1)


def _images(result: Any, clients: Sequence[Any], game: Any, seen: Any) -> float:
    """What of the squared error that strangers' records have is gone; images of all sources count alike."""
    strangers = digits().images[STRANGERS]
    gained = []
    for client in clients:
        parts = [
            each.images[np.flatnonzero([sender == client.name for sender in each.source.senders])]
            for each in result.reconstructions
        ]
        made = np.concatenate([part.reshape(-1, strangers[0].size) for part in parts]) if parts else np.zeros(0)
        own, others = (_squared(images, made) for images in (client.images, strangers)) if len(made) else (1, 1)
        gained.append(1 - own / others if others else 0.0)
    return float(np.mean(gained))


def _squared(images: Any, made: Any) -> float:
    """Mean squared error of the nearest that was made, over images (n, H, W, C); `made` is (m, H * W * C)."""
    flat = images.reshape(len(images), 1, -1).astype(np.float64)
    return float(np.mean((flat - made[None].astype(np.float64)) ** 2, axis=2).min(axis=1).mean())


SCORES: dict[str, Callable[..., float]] = {
    "images": _images,
    "vectors": _vectors,
    "labels": _labels,
    "members": _members,
}
