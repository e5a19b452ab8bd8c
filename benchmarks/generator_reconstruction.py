"""Whether climbing a membership test rebuilds records from a generator that was sent: docs/membership.md.

    python benchmarks/generator_reconstruction.py PART [--data digits] [--draws 6] [--epochs 30] [--epsilon inf]
    python benchmarks/generator_reconstruction.py table

Parts: `feddiff` (a diffusion model's weights) and `fedcvae` (a decoder's). A draw is a client of 150 records, and
as many held-out ones of the same classes. An adversary with records of its own trains four reference generators on
them, by the same method and under the same epsilon. Each row gives 200 images:

- `samples`: drawn from the generator; `ranked`: the best of four times as many, by the likelihood ratio;
- `modes`: samples that follow the denoising loss downhill, to a mode (of diffusion models alone);
- `climbed`: samples that follow the likelihood ratio uphill, the target's log-likelihood less the references';
- `settled`: the same with the references' weight falling to 0 on the way (of diffusion models alone);
- `own`: the adversary's records; `null`: `climbed` from a fifth reference, which has seen no record of the client.

Figures: area under the curve of training against held-out records by the distance to the nearest image; records
that are given back (the memorization audit's score under 1); records that an image is nearer to than any record of
the adversary's is; and of the first 20 records that images name, the likelihood ratio's best first, how many are
training records. Held-out records show what of these is chance. Intervals at 95 % are over draws (Student's).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import public_data
import torch
from generator_membership import METHODS
from kept_rows import Job, kept, key_of, measure
from malicious_server import CLASSES, Pool
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor
from torch.nn import functional

from fedassay.audits.stats.roc import auc
from fedassay.contracts.method import Method, MethodInput
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyTarget
from fedassay.methods.feddiff.server import DiffusionGenerator
from fedassay.methods.shared.decoders import TRUNCATION, DecoderGenerator
from fedassay.nets import generators
from fedassay.nets.cvae import one_hot, pixel_rows, truncated_normal
from fedassay.nets.denoising import Drawn, build_scheduler, denoising_loss, to_model_range, to_uint8
from fedassay.nets.latent_search import best_latents
from fedassay.nets.trained import load_network
from fedassay.similarity.memorization import memorization_scores
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images, Ints

Matrix = NDArray[np.float64]

IMAGES, REFERENCES, STEPS, NAMED = 200, 4, 40, 20
LEVELS = (0.1, 0.25, 0.5)
_RATE = 0.05


@dataclass(frozen=True, eq=False)
class Made:
    """Images of one row, their labels, and what the likelihood ratio says of each."""

    images: Images
    labels: Ints
    ratios: Matrix


class Denoisers:
    """A target and its references: climbing is in pixels, by the mean log of the loss at three levels."""

    def __init__(self, target: DiffusionGenerator, references: Sequence[DiffusionGenerator]) -> None:
        self.target, self.scheduler = target, build_scheduler(target.model.preset)
        self.networks = [load_network(each.model) for each in (target, *references)]

    def drawn(self, labels: Ints, seeds: Seeds) -> Images:
        """One sample of each label."""
        return self.target.decode(labels, seeds, SILENT)

    def ratios(self, images: Images, labels: Ints) -> Matrix:
        """The likelihood ratio of each image, over 8 noises at each level."""
        with torch.no_grad():
            losses = [self._losses(one, _range(images), labels, 0, 8) for one in self.networks]
        return (torch.stack(losses[1:]).mean(dim=0) - losses[0]).double().numpy()

    def climbed(self, images: Images, labels: Ints, weights: Sequence[float]) -> Images:
        """The images moved down the target's loss less the references', which count so much at each step."""
        place = _range(images).requires_grad_()
        optimizer = torch.optim.Adam([place], lr=_RATE)
        for step, weight in enumerate(weights):
            loss = self._losses(self.networks[0], place, labels, step + 1, 1)
            if weight:
                others = [self._losses(one, place, labels, step + 1, 1) for one in self.networks[1:]]
                loss = loss - weight * torch.stack(others).mean(dim=0)
            (place.grad,) = torch.autograd.grad(loss.sum(), [place])
            for group in optimizer.param_groups:
                group["lr"] = _RATE * (1 - step / len(weights))
            optimizer.step()
            place.data.clamp_(-1, 1)
        return to_uint8(place.detach())

    def _losses(self, network: Any, images: Tensor, labels: Ints, seed: int, draws: int) -> Tensor:
        given, source = torch.from_numpy(generators.one_hot(labels, CLASSES)), torch.Generator().manual_seed(seed)
        found = []
        for level in LEVELS:
            step = torch.full((len(images),), int(level * self.target.model.preset.timesteps))
            for _ in range(draws):
                noise = torch.randn(images.shape, generator=source)
                keep = torch.ones(len(images), dtype=torch.bool)
                scheme = Drawn(keep, step, noise)
                found.append(denoising_loss(network, self.scheduler, images, given, scheme).clamp(min=1e-12).log())
        return torch.stack(found).mean(dim=0)

    def rows(self, labels: Ints, samples: Images) -> dict[str, Images]:
        """The images of every row that optimisation makes."""
        return {
            "modes": self.climbed(samples, labels, [0.0] * STEPS),
            "climbed": self.climbed(samples, labels, [1.0] * STEPS),
            "settled": self.climbed(samples, labels, np.linspace(1, 0, STEPS).tolist()),
        }


class Decoders:
    """A target and its references: climbing is in latent vectors, by what the best ones of the references cost."""

    def __init__(self, target: DecoderGenerator, references: Sequence[DecoderGenerator]) -> None:
        self.target, self.width = target, target.network.latent
        self.decoders = [each.network.decoder for each in (target, *references)]

    def drawn(self, labels: Ints, seeds: Seeds) -> Images:
        """One sample of each label."""
        return self.target.decode(labels, seeds)

    def ratios(self, images: Images, labels: Ints) -> Matrix:
        """The likelihood ratio of each image in nats, at the best latent vector that is found under each."""
        pixels, known = pixel_rows(images, "cpu"), one_hot(torch.tensor(labels), CLASSES)
        costs = [
            best_latents(one, pixels, known, self.width, torch.Generator().manual_seed(0))[0]
            for one in self.decoders
        ]
        return (torch.stack(costs[1:]).mean(dim=0) - costs[0]).double().numpy()

    def rows(self, labels: Ints, samples: Images) -> dict[str, Images]:
        """The images of every row that optimisation makes; latent vectors are drawn anew."""
        del samples
        known = one_hot(torch.tensor(labels), CLASSES)
        place = truncated_normal(
            len(labels), self.width, TRUNCATION, torch.Generator().manual_seed(1)
        ).requires_grad_()
        shown = torch.sigmoid(self.decoders[0](torch.cat([place, known], dim=1))).detach()
        theirs = [
            best_latents(one, shown, known, self.width, torch.Generator().manual_seed(0))[1].requires_grad_()
            for one in self.decoders[1:]
        ]
        climbing, following = torch.optim.Adam([place], lr=_RATE), torch.optim.Adam(theirs, lr=2 * _RATE)
        for step in range(STEPS):
            shown = torch.sigmoid(self.decoders[0](torch.cat([place, known], dim=1)))
            costs = torch.stack(
                [self._cost(one, shown, z, known) for one, z in zip(self.decoders[1:], theirs, strict=True)]
            )
            found = torch.autograd.grad(costs.sum(), theirs, retain_graph=True)
            for latent, slope in zip(theirs, found, strict=True):
                latent.grad = slope
            own = entropy(shown) + place.square().sum(dim=1) / 2
            (place.grad,) = torch.autograd.grad((own - costs.mean(dim=0)).sum(), [place])
            for group in climbing.param_groups:
                group["lr"] = _RATE * (1 - step / STEPS)
            climbing.step()
            following.step()
        with torch.no_grad():
            shown = torch.sigmoid(self.decoders[0](torch.cat([place, known], dim=1)))
        height, width, channels = self.target.image_shape
        planes = shown.reshape(-1, channels, height, width).permute(0, 2, 3, 1)
        return {"climbed": planes.mul(255).round().to(torch.uint8).numpy()}

    @staticmethod
    def _cost(decoder: Any, shown: Tensor, latent: Tensor, known: Tensor) -> Tensor:
        logits = decoder(torch.cat([latent, known], dim=1))
        error = functional.binary_cross_entropy_with_logits(logits, shown, reduction="none").sum(dim=1)
        return error + latent.square().sum(dim=1) / 2


def entropy(shown: Tensor) -> Tensor:
    """Sum of the pixels' own entropies in nats, (n,), which no decoder's cost goes below."""
    inside = shown.clamp(1e-6, 1 - 1e-6)
    return -(torch.xlogy(inside, inside) + torch.xlogy(1 - inside, 1 - inside)).sum(dim=1)


def _range(images: Images) -> Tensor:
    return to_model_range(torch.from_numpy(images))


def figures(made: Made, own: Records, held: Records, theirs: Records) -> dict[str, Any]:
    """What a row shows of training and of held-out records, as the module says."""
    gallery, size = np.concatenate([own.images, held.images]), len(own)
    distances = _distances(made.images, gallery)
    closest, nearest = distances.min(axis=0), distances.argmin(axis=1)
    found = memorization_scores(made.images, gallery)
    smallest = np.full(len(gallery), 2.0)
    np.minimum.at(smallest, found.nearest, found.scores)
    given, nearer = smallest < 1, closest < _distances(theirs.images, gallery).min(axis=0)
    _, first = np.unique(nearest[np.argsort(-made.ratios, kind="stable")], return_index=True)
    named = nearest[np.argsort(-made.ratios, kind="stable")][np.sort(first)[:NAMED]]
    area = auc(-closest[size:], -closest[:size]).value
    return {
        "auc": area,
        "given": [int(given[:size].sum()), int(given[size:].sum())],
        "nearer": [int(nearer[:size].sum()), int(nearer[size:].sum())],
        "named": [int((named < size).sum()), len(named)],
        "median": [float(np.median(closest[:size])), float(np.median(closest[size:]))],
        "n": size,
    }


def _distances(images: Images, gallery: Images) -> Matrix:
    first, second = (each.reshape(len(each), -1).astype(np.float64) / 255 for each in (images, gallery))
    squares = np.square(first).sum(axis=1)[:, None] + np.square(second).sum(axis=1) - 2 * first @ second.T
    return np.sqrt(np.maximum(squares, 0))


def _of_histogram(pool: Pool, name: str, rows: Any, wanted: Any, rng: np.random.Generator) -> Records:
    """Records of some rows, so many of each class, or as many as there are."""
    labels = pool.labels[rows]
    chosen = [rng.permutation(rows[labels == label])[:count] for label, count in enumerate(wanted)]
    return pool.records(name, np.concatenate(chosen))


def _row(part: str, pool: Pool, method: Method, epsilon: float, records: int, draw: int) -> dict[str, Any]:
    rng, seeds = np.random.default_rng(draw), Seeds(draw)
    mine, rest, others = pool.drawn(draw, records, max(600, 5 * records), max(600, 10 * records))
    own, theirs = pool.records("client/0", mine), pool.records("own", others)
    counts = np.bincount(own.labels, minlength=CLASSES)
    held = _of_histogram(pool, "held", rest, counts, rng)
    privacy = PrivacyTarget(epsilon=epsilon, delta=1e-5, adjacency="add_remove")

    def sent(records: Records, number: int) -> Any:
        random = seeds.child("release", number)
        task = MethodInput((records,), held, theirs, CLASSES, pool.backbone, privacy, random, "cpu", SILENT)
        return method.run(task).generators[records.name]

    target = sent(own, 0)
    made = [sent(_of_histogram(pool, own.name, others, counts, rng), 1 + k) for k in range(REFERENCES + 1)]
    kind: Any = Denoisers if part == "feddiff" else Decoders
    asked, blank = kind(target, made[:REFERENCES]), kind(made[REFERENCES], made[:REFERENCES])
    labels = rng.choice(CLASSES, 4 * IMAGES, p=counts / counts.sum())
    many = asked.drawn(labels, seeds.child("samples"))
    best = np.argsort(-asked.ratios(many, labels), kind="stable")[:IMAGES]
    few, samples = labels[:IMAGES], many[:IMAGES]
    rows = {"samples": (samples, few), "ranked": (many[best], labels[best])}
    rows |= {name: (images, few) for name, images in asked.rows(few, samples).items()}
    rows["own"] = (theirs.images[:IMAGES], theirs.labels[:IMAGES])
    found = {name: figures(Made(*row, asked.ratios(*row)), own, held, theirs) for name, row in rows.items()}
    of_null = blank.rows(few, blank.drawn(few, seeds.child("samples")))["climbed"]
    found["null"] = figures(Made(of_null, few, blank.ratios(of_null, few)), own, held, theirs)
    return {"rows": found}


def jobs(part: str, pool: Pool, given: argparse.Namespace) -> Iterator[Job]:
    """One for each draw."""
    make: Callable[[int], Method] = METHODS[part]
    method = make(given.epochs)
    if np.isfinite(given.epsilon):
        method = method.model_validate(
            method.model_dump()
            | {"dp_sgd": {"epochs": 5, "draws": 1} if part == "feddiff" else {"sampling_rate": 0.2}}
        )
    for draw in range(given.draws):
        settings = {"epochs": given.epochs, "epsilon": str(given.epsilon), "records": given.records, "draw": draw}
        yield Job(settings, partial(_row, part, pool, method, given.epsilon, given.records, draw))


def table(path: Path) -> Iterator[str]:
    """A line for every row of every setting: means over draws, with what held-out records show behind."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in kept(path):
        about = key_of({key: value for key, value in row["settings"].items() if key != "draw"})
        groups.setdefault(about, []).append(row["figures"]["rows"])
    for about, rows in groups.items():
        yield f"{about}: {len(rows)} draws of {rows[0]['own']['n']} training and as many held-out records"
        for name in rows[0]:
            each = [row[name] for row in rows]
            area = _interval(np.array([one["auc"] for one in each]))
            gaps = {
                key: np.array([(one[key][0] - one[key][1]) / one["n"] for one in each])
                for key in ("given", "nearer")
            }
            more = _interval(
                np.array([one["auc"] - row["samples"]["auc"] for one, row in zip(each, rows, strict=True)])
            )
            named = _interval(np.array([one["named"][0] / one["named"][1] for one in each]))
            sums = {key: "/".join(str(sum(one[key][side] for one in each)) for side in (0, 1)) for key in gaps}
            away = "/".join(f"{np.mean([one['median'][side] for one in each]):.2f}" for side in (0, 1))
            back, near = (f"{sums[key]} {_interval(gaps[key])}" for key in ("given", "nearer"))
            yield (
                f"  {name:8} AUC {area} more than samples {more}  given back {back}  "
                f"nearer than own {near}  named {named}  distance {away}"
            )


def _interval(values: Matrix) -> str:
    half = 0.0 if len(values) < 2 else float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    return f"{values.mean():.3f} [{values.mean() - half:.3f}, {values.mean() + half:.3f}]"


def main() -> None:
    """Measure a part, or say what the rows of a file show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=(*METHODS, "table"))
    public_data.add_arguments(parser, weights=False)
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--epsilon", type=float, default=float("inf"))
    parser.add_argument(
        "--records", type=int, default=150, help="Of a client; few, and many epochs, are a control"
    )
    parser.add_argument("--images", type=int, default=6_000)
    parser.add_argument("--rows", type=Path, default=Path("/tmp/generator_reconstruction.jsonl"))
    given = parser.parse_args()
    if given.part == "table":
        print("\n".join(table(given.rows)))
        return
    pool = Pool(given.data, given.images)
    about = {"part": given.part, "data": public_data.called(given.data)}
    measure((Job(about | job.settings, job.measure) for job in jobs(given.part, pool, given)), given.rows)


if __name__ == "__main__":
    public_data.ended(main)
