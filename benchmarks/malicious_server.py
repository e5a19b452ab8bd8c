"""What a server gains that chooses what it sends out, and whether its clients can tell: docs/malicious_server.md.

    python benchmarks/malicious_server.py PART [--data digits] [--draws 10]
    python benchmarks/malicious_server.py table

Parts: `gradients` (records that come back exactly from one gradient of FedSGD, per client and of ten under secure
aggregation, against the batch), `map` (a gallery that lacks members, against Fed3R with random features),
`backbone` (records that come back from sums of features under a backbone of cells), `body` (the same of FedLog's
sums, under a body of cells that its clients start from and train), `received` (what `fedassay audit --received`
says of honest layers and maps, and of traps) and `networks` (the same of backbones).
Every row has its honest control: the same attack, or test, on the honest broadcast. Rows are kept in --rows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import public_data
import torch
from kept_rows import Job, kept, measure, summaries
from numpy.typing import NDArray
from torch import nn

from fedassay.attacks.gallery.attack import KEY, Gallery
from fedassay.attacks.gradients.attack import GradientInversion
from fedassay.attacks.trapped_sums import TrappedSums
from fedassay.audits.stats.roc import auc
from fedassay.backbones import build
from fedassay.backbones.base import Backbone, BackboneRequest, renewed, to_input
from fedassay.contracts.attack import Knowledge
from fedassay.contracts.membership import MembershipGame, no_questions, visible
from fedassay.contracts.method import Method, MethodInput
from fedassay.data.images import ImageSet
from fedassay.data.records import Records, joined
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.public_map import fourier_features, separating_bandwidth
from fedassay.exchange.received.features import check_features
from fedassay.exchange.received.layers import check_layer
from fedassay.exchange.received.maps import check_map
from fedassay.exchange.release import PrivacyTarget
from fedassay.exchange.transcript import AGGREGATE
from fedassay.exchange.view import ThreatModel
from fedassay.execution.trapped import records_of_a_class
from fedassay.methods.closed_forms.fed3r import Fed3R
from fedassay.methods.closed_forms.fedncm import FedNCM
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedlog.method import FedLog
from fedassay.methods.fedsgd.method import FedSGD
from fedassay.methods.shared.local_networks import to_inputs
from fedassay.nets.bodies import BodySpec, build_body
from fedassay.nets.cells import Cells, cells_for
from fedassay.nets.traps import set_trap
from fedassay.similarity.ssim import ssim
from fedassay.support.errors import NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

CLASSES = 10
FEATURES = 512
"""Of backbones: as many as those of SqueezeNet or ResNet-18 have."""
WIDTH = 65
"""Of FedLog's bodies: 64 features and the constant, in 8 cells of 8 numbers."""
Matrix = NDArray[np.float64]
Rows = NDArray[np.int64]


class Pool:
    """Images and labels of a data set, and its pixels as features."""

    def __init__(self, data: str, most: int) -> None:
        both = public_data.loaded(data)
        parts = [both.train] if both.test is None else [both.train, both.test]
        self.images = np.concatenate([part.images for part in parts])[:most]
        self.labels = np.concatenate([part.labels for part in parts])[:most]
        height, width, channels = self.images.shape[1:]
        shape = (int(height), int(width), int(channels))
        self.backbone: Backbone = build(
            BackboneRequest("pixels", None, None, shape, CLASSES, None, 0, "cpu", Path.cwd())
        )

    def records(self, name: str, rows: Rows) -> Records:
        """Records at some rows."""
        return Records(name, self.images[rows], self.labels[rows], self.backbone.extract)

    def drawn(self, draw: int, *sizes: int) -> list[Rows]:
        """Disjoint sets of rows."""
        order = np.random.default_rng(draw).permutation(len(self.labels))
        return np.split(order[: sum(sizes)], np.cumsum(sizes)[:-1])


def _sent(
    pool: Pool, method: Method, parts: list[Rows], own: Rows, draw: int, malicious: bool, epsilon: float = np.inf
) -> tuple[MethodInput, Any]:
    clients = tuple(pool.records(f"client/{place}", rows) for place, rows in enumerate(parts))
    privacy = PrivacyTarget(epsilon=epsilon, delta=1e-5, adjacency="add_remove")
    task = MethodInput(
        *(clients, clients[0], None, CLASSES, pool.backbone, privacy, Seeds(draw), "cpu", SILENT),
        adversary=pool.records("attacker", own) if malicious else None,
    )
    return task, method.run(task)


def gradients(pool: Pool, draws: int) -> Iterator[Job]:
    """Records that come back, pixel by pixel, from the gradient of a batch through a layer of 256 units."""
    for view, clients in (("per_client", 1), ("aggregate", 10)):
        for batch in (64, 128, 256, 512):
            for server in ("malicious", "honest"):
                for draw in range(draws):
                    yield Job(
                        {"view": view, "batch": batch, "server": server, "draw": draw},
                        partial(_gradients, pool, view, clients, batch, server == "malicious", draw),
                    )


def _gradients(pool: Pool, view: str, clients: int, batch: int, malicious: bool, draw: int) -> dict[str, Any]:
    members, own = pool.drawn(draw, batch, 500)
    method = FedSGD(body={"name": "mlp", "hidden": 256}, batch=10_000)
    task, outcome = _sent(pool, method, np.array_split(members, clients), own, draw, malicious)
    known = Knowledge(None, CLASSES, pool.backbone, True, Seeds(draw), "cpu", SILENT)
    seen = visible(outcome, ThreatModel.model_validate({"view": view}))
    result = GradientInversion().run(seen, known)
    private = {image.tobytes() for client in task.clients for image in client.images}
    made = {image.tobytes() for each in result.reconstructions for image in each.images[:, 0]}
    # What is nobody's record is a mixture of several.
    return {"n": batch, "named": len(made), "wrongly_named": len(made - private)}


def maps(pool: Pool, draws: int) -> Iterator[Job]:
    """AUC of a gallery of 100 of 1,000 members and 100 others: Fed3R, aggregated, 400 random features."""
    for epsilon in (np.inf, 8.0, 50.0):
        for server in ("malicious", "honest"):
            for draw in range(draws):
                yield Job(
                    {"epsilon": str(epsilon), "server": server, "draw": draw},
                    partial(_map, pool, epsilon, server == "malicious", draw),
                )


def _map(pool: Pool, epsilon: float, malicious: bool, draw: int) -> dict[str, Any]:
    members, others, own = pool.drawn(draw, 1000, 100, 400)
    # The honest bandwidth is the median distance of records.
    some = pool.records("some", own[:200]).features.astype(np.float64)
    apart = np.linalg.norm(some[:, None] - some[None], axis=2)
    method = Fed3R(random_features=400, bandwidth=float(np.median(apart[apart > 0])), secure_aggregation="all")
    parts = np.array_split(members, 5)
    task, outcome = _sent(pool, method, parts, own, draw, malicious, epsilon)
    rows = np.random.default_rng(draw).permutation(np.concatenate([members[:100], others]))
    gallery, nobody = pool.records("gallery", rows), pool.records("nobody", rows[:0])
    names = [client.name for client in task.clients]
    sizes = {client.name: np.bincount(client.labels, minlength=CLASSES) for client in task.clients}
    questions = {names[0]: gallery, **dict.fromkeys(names[1:], nobody)}
    game = MembershipGame(questions, sizes, None, no_questions().simulate, Seeds(0), gallery=gallery)
    held = pool.records("attacker", own)
    known = Knowledge(held, CLASSES, pool.backbone, False, Seeds(draw), "cpu", SILENT, game=game)
    result = Gallery().run(visible(outcome, ThreatModel()), known)
    scores, truth = np.asarray(result.scores[KEY]), np.isin(rows, members)
    found = np.asarray(result.artifacts["named"], np.bool_)
    area = auc(scores[~truth], scores[truth]).value
    named = {"named": int(found.sum()), "wrongly_named": int((found & ~truth).sum())}
    return {"n": len(rows), "members": 100, "auc": area, **named}


def backbones(pool: Pool, draws: int) -> Iterator[Job]:
    """Records out of sums of ten clients, each by itself or all together, under cells in 512 features."""
    for method, view in (("fedcgs", "per_client"), ("fedcgs", "aggregate"), ("fedncm", "per_client")):
        for members, epsilon in ((300, np.inf), (1000, np.inf), (1000, 8.0)):
            for server in ("malicious", "honest"):
                for draw in range(draws):
                    yield Job(
                        {
                            "method": method,
                            "view": view,
                            "members": members,
                            "epsilon": str(epsilon),
                            "server": server,
                            "draw": draw,
                        },
                        partial(_backbone, pool, method, view, members, epsilon, server == "malicious", draw),
                    )


def bodies(pool: Pool, draws: int) -> Iterator[Job]:
    """Records out of FedLog's T of three rounds of ten clients, whose bodies start as cells and are trained."""
    for view, members, epsilon in (
        ("per_client", 300, np.inf),
        ("per_client", 1000, np.inf),
        ("aggregate", 300, np.inf),
        ("aggregate", 1000, np.inf),
        ("per_client", 1000, 8.0),
    ):
        for server in ("malicious", "honest"):
            for draw in range(draws):
                yield Job(
                    {"view": view, "members": members, "epsilon": str(epsilon), "server": server, "draw": draw},
                    partial(_body, pool, view, members, epsilon, server == "malicious", draw),
                )


def _backbone(
    pool: Pool, name: str, view: str, members: int, epsilon: float, malicious: bool, draw: int
) -> dict[str, Any]:
    drawn = pool.drawn(draw, members, 400, 300)
    cells = _cells(pool, view, drawn, FEATURES, draw)
    # The honest backbone has as many features: random ones with a rectifier.
    network = cells if malicious else _honest(pool, draw)
    method: Method = FedCGS(ridge=1e-3) if name == "fedcgs" else FedNCM()
    task = _under(pool, network, FEATURES, drawn, draw, epsilon)
    return _read(pool, method, task, cells, view, drawn[1], images=malicious)


def _body(pool: Pool, view: str, members: int, epsilon: float, malicious: bool, draw: int) -> dict[str, Any]:
    drawn = pool.drawn(draw, members, 400, 300)
    cells = _cells(pool, view, drawn, WIDTH - 1, draw)
    method = FedLog.model_validate({"bodies": "mlp_deep", "width": WIDTH, "rounds": 3, "activation": "relu"})
    task = _under(pool, cells, WIDTH - 1, drawn, draw, epsilon)
    task = replace(task, adversary=pool.records("attacker", drawn[1]) if malicious else None)
    return _read(pool, method, task, cells, view, drawn[1], images=malicious)


def _cells(pool: Pool, view: str, drawn: list[Rows], width: int, draw: int) -> Cells:
    """What the server chooses by its own images, told how many records of a class a sum is over in the mean."""
    private, own, _ = drawn
    parts = [private] if view == "aggregate" else np.array_split(private, 10)
    records = records_of_a_class([pool.records("r", rows) for rows in parts], CLASSES, together=False)
    return cells_for(pool.images[own], pool.labels[own], width, records, Seeds(draw))


def _under(
    pool: Pool, network: nn.Module, width: int, drawn: list[Rows], draw: int, epsilon: float
) -> MethodInput:
    """The task of ten clients whose records have the features of a network."""
    private, own, test = drawn
    backbone = replace(renewed(pool.backbone, network, "", ""), width=width)

    def under(name: str, rows: Rows) -> Records:
        return replace(pool.records(name, rows), extract=backbone.extract)

    clients = tuple(under(f"client/{i}", rows) for i, rows in enumerate(np.array_split(private, 10)))
    privacy = PrivacyTarget(epsilon=epsilon, delta=1e-5, adjacency="add_remove")
    public = under("public", own)
    return MethodInput(
        clients, under("test", test), public, CLASSES, backbone, privacy, Seeds(draw), "cpu", SILENT
    )


def _read(
    pool: Pool, method: Method, task: MethodInput, cells: Cells, view: str, own: Rows, *, images: bool
) -> dict[str, Any]:
    """What is read of sums as if they were of cells; of honest ones, too."""
    outcome = method.run(task)
    members, right = sum(len(client) for client in task.clients), None
    if outcome.model is not None:
        right = float((outcome.model.predict(task.test) == task.test.labels).mean())
    known = Knowledge(None, CLASSES, replace(task.backbone, module=cells), False, task.seeds, "cpu", SILENT)
    try:
        result = TrappedSums().run(visible(outcome, ThreatModel.model_validate({"view": view})), known)
    except NotRunError:
        return {"n": members, "named": 0, "wrongly_named": 0, "accuracy": right}
    (found,) = result.vectors
    held = {client.name: client for client in task.clients} | {AGGREGATE: joined("all", task.clients)}
    nearest = []
    for vector, sender in zip(found.vectors, found.senders, strict=True):
        apart = np.linalg.norm(held[sender].features - vector, axis=1) / np.linalg.norm(vector)
        nearest.append((int(apart.argmin()), float(apart.min())))
    wrong = sum(error > 1e-3 for _, error in nearest)
    figures = {"n": members, "named": len(nearest), "wrongly_named": wrong, "accuracy": right}
    return figures | (_as_images(pool, cells, found, nearest, held, own) if images and nearest else {})


def _as_images(
    pool: Pool,
    cells: Cells,
    found: VectorSource,
    nearest: list[tuple[int, float]],
    held: dict[str, Records],
    own: Rows,
) -> dict[str, Any]:
    """SSIM of what coordinates of at most 50 records show, and of the server's own image nearest to it."""
    some = slice(0, 50)
    truth = np.stack([held[s].images[row] for s, (row, _) in zip(found.senders[some], nearest[some], strict=True)])
    mine = pool.images[own]
    height, width, channels = truth.shape[1:]
    made = cells.images(
        found.vectors[some],
        np.asarray(mine.transpose(0, 3, 1, 2).reshape(len(mine), -1) / 255).mean(axis=0),
        (int(height), int(width), int(channels)),
    )
    flat, rows = mine.reshape(len(mine), -1).astype(float), made.reshape(len(made), -1).astype(float)
    closest = ((flat[None] - rows[:, None]) ** 2).sum(axis=2).argmin(axis=1)
    return {"ssim": float(ssim(truth, made).mean()), "ssim_of_nearest": float(ssim(truth, mine[closest]).mean())}


def _honest(pool: Pool, draw: int) -> nn.Module:
    torch.manual_seed(draw)
    inputs = int(np.prod(pool.images.shape[1:]))
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, FEATURES), nn.ReLU())


def received(pool: Pool, draws: int) -> Iterator[Job]:
    """What the tests find of 100 own records: layers of 64 to 512 units, maps of 100 to 800 features."""
    for kind in ("fresh layer", "trained layer", "trap layer", "honest map", "trap map", "sparse map"):
        for draw in range(draws):
            yield Job({"received": kind, "draw": draw}, partial(_received, pool, kind, draw))


def networks(pool: Pool, draws: int) -> Iterator[Job]:
    """What the tests find of 100 own records and their features under a backbone."""
    for kind in ("fresh backbone", "cells", "trained backbone"):
        for draw in range(draws):
            yield Job({"received": kind, "draw": draw}, partial(_received, pool, kind, draw))


def _received(pool: Pool, kind: str, draw: int) -> dict[str, Any]:
    own, theirs = pool.drawn(draw, 100, 600)
    rng = np.random.default_rng(draw)
    if kind == "cells" or kind.endswith("backbone"):
        made = _received_backbone(pool, kind, theirs, draw)
        with torch.inference_mode():
            features = made(to_input(pool.images[own])).double().numpy()
        first = next(each for each in made.modules() if isinstance(each, nn.Linear))
        tests = [check_features(features, pool.labels[own])]
        if first.in_features == pool.images[own[0]].size:
            rows = to_inputs(pool.images[own], "cpu").flatten(1).double().numpy() / 255
            weights, bias = (part.detach().double().numpy() for part in (first.weight, first.bias))
            tests += check_layer("layer", weights, bias, rows, rng, fresh=False)
    elif kind.endswith("layer"):
        network = _network(pool, kind, theirs, draw)
        layer = next(each for each in network.modules() if isinstance(each, nn.Linear))
        rows = to_inputs(pool.images[own], "cpu").flatten(1).double().numpy() / 127.5 - 1
        weights, bias = (part.detach().double().numpy() for part in (layer.weight, layer.bias))
        tests = check_layer("layer", weights, bias, rows, rng, fresh=kind != "trained layer")
    else:
        mine, others = (pool.records("r", each).features.astype(np.float64) for each in (own, theirs))
        apart = np.linalg.norm(others[:100, None] - others[None, :100], axis=2)
        bandwidth = float(np.median(apart[apart > 0])) * float(rng.choice([0.5, 1, 2]))
        size = int(rng.choice([100, 400, 800]))
        used = separating_bandwidth(others) if kind == "trap map" else bandwidth
        drawn = fourier_features(mine.shape[1], size, used, rng)
        if kind == "sparse map":
            # A tenth of the columns reads single coordinates, at the same length.
            for column in range(size // 10):
                length = float(np.linalg.norm(drawn.matrix[:, column]))
                drawn.matrix[:, column] = 0
                drawn.matrix[int(rng.integers(len(drawn.matrix))), column] = length
        tests = check_map("map", drawn, mine, rng, bandwidth)
    by = {f"found {each.rule}": each.found for each in tests}
    return {"certified": any(each.found for each in tests), **by}


def _received_backbone(pool: Pool, kind: str, theirs: Rows, draw: int) -> nn.Module:
    """Cells for sums of 5 to 100 records of a class, or one of three honest networks, from images to features."""
    if kind == "cells":
        records = float(np.random.default_rng(draw).choice([5, 20, 100]))
        return cells_for(pool.images[theirs], pool.labels[theirs], FEATURES, records, Seeds(draw))
    name = ("mlp", "small_cnn", "small_cnn_rectified")[draw % 3]
    height, width, channels = (int(side) for side in pool.images.shape[1:])
    if name == "mlp":
        network = _network(pool, kind.replace("backbone", "layer"), theirs, draw)
        body = next(network.children())
        assert isinstance(body, nn.Sequential)
        # Bodies take 0 to 255; their features behind a rectifier are what is summed up.
        return nn.Sequential(Scaled(), body, nn.ReLU())
    public = ImageSet(pool.images[theirs], pool.labels[theirs], tuple(map(str, range(CLASSES))))
    weights = "random" if kind == "fresh backbone" else "public"
    shape = (height, width, channels)
    return build(BackboneRequest(name, weights, None, shape, CLASSES, public, draw, "cpu", Path.cwd())).module


class Scaled(nn.Module):
    """Images in [0, 1] to 0 to 255."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(n, channels, height, width) to the same."""
        return images * 255


def _network(pool: Pool, kind: str, theirs: Rows, draw: int) -> nn.Module:
    hidden = int(np.random.default_rng(draw).choice([64, 128, 256, 512]))
    height, width, channels = (int(side) for side in pool.images.shape[1:])
    torch.manual_seed(draw)
    body = build_body(BodySpec(name="mlp", hidden=hidden), (height, width, channels), 31, draw)
    network = nn.Sequential(body, nn.Linear(31, CLASSES))
    images, labels = to_inputs(pool.images[theirs], "cpu"), torch.tensor(pool.labels[theirs])
    if kind == "trap layer":
        set_trap(network, images, Seeds(draw))
    if kind == "trained layer":
        steps = torch.optim.Adam(network.parameters(), 1e-3)
        for _ in range(20):
            for rows in torch.randperm(len(labels)).split(64):
                steps.zero_grad()
                nn.functional.cross_entropy(network(images[rows]), labels[rows]).backward()
                steps.step()
    return network


PARTS = {
    "gradients": gradients,
    "map": maps,
    "backbone": backbones,
    "body": bodies,
    "received": received,
    "networks": networks,
}


def main() -> None:
    """Measure a part, or say what the rows of a file show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=(*PARTS, "table"))
    public_data.add_arguments(parser, weights=False)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--images", type=int, default=6_000)
    parser.add_argument("--rows", type=Path, default=Path("/tmp/malicious_server.jsonl"))
    given = parser.parse_args()
    if given.part == "table":
        for line in summaries(kept(given.rows)):
            print(json.dumps(line))
        return
    pool = Pool(given.data, given.images)
    about = {"part": given.part, "data": public_data.called(given.data)}
    measure((Job(about | job.settings, job.measure) for job in PARTS[given.part](pool, given.draws)), given.rows)


if __name__ == "__main__":
    public_data.ended(main)
