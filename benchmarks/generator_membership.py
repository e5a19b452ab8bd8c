"""What signals of a generator that was sent tell members by, at equal shadow releases: docs/membership.md.

    python benchmarks/generator_membership.py PART [--data digits] [--draws 5] [--shadows 8]
    python benchmarks/generator_membership.py table

Parts: `feddiff` (a diffusion model's weights) and `fedcvae` (a decoder's). A draw is a client of 150 records, as
many strangers, and shadow releases by the audit's own game. Every signal is asked of the same releases, and
calibrated by LiRA with the candidates themselves. Gradients are those of a record's loss at the sent weights: the
norm, and the loss's derivative along the weights and along what training has added to them, over that norm.
`former` is what was asked before: losses of one noise at three levels, as a vector. Rows are kept in --rows; the
table gives areas and their gain over `former`, means over draws with Student's intervals at 95 %, and rates at one
threshold for all draws, with Clopper and Pearson's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import public_data
import torch
from kept_rows import Job, kept, key_of, measure, share
from malicious_server import CLASSES, Pool
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn import functional

from fedassay.attacks.membership.scores import lira_online
from fedassay.audits.stats.roc import auc
from fedassay.contracts.membership import is_member, make_game, visible
from fedassay.contracts.method import Method, MethodInput
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyTarget
from fedassay.exchange.view import ThreatModel, View
from fedassay.methods.feddiff.method import FedDiff
from fedassay.methods.feddiff.server import DiffusionGenerator
from fedassay.methods.rivals.fedcvae import FedCVAE
from fedassay.methods.shared.decoders import DecoderGenerator
from fedassay.nets import generators
from fedassay.nets.cvae import build_cvae, one_hot, pixel_rows
from fedassay.nets.denoising import Drawn, build_scheduler, denoising_loss, to_model_range
from fedassay.nets.dp_sgd.record_gradients import RecordGradients
from fedassay.nets.latent_search import best_latents, latent_losses
from fedassay.nets.trained import build_network, load_network
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

Matrix = NDArray[np.float64]
Signals = dict[str, Matrix]

LEVELS, MANY = (0.1, 0.25, 0.5), (0.02, 0.05, 0.1, 0.2, 0.25, 0.35, 0.5, 0.75)
RECORDS = 150
ASKED = Seeds(0).child("asked")


def diffusion_signals(model: DiffusionGenerator, records: Records, started: nn.Module) -> Signals:
    """Every signal of a diffusion model, each (n, k)."""
    one = model.losses(records, LEVELS, ASKED)
    fits = {f"3 levels, {draws} noises each": _fit(model, records, LEVELS, draws) for draws in (1, 4, 8, 16)}
    fits["8 levels, 3 noises each"] = _fit(model, records, MANY, 3)
    network, scheduler = load_network(model.model), build_scheduler(model.model.preset)
    images = to_model_range(torch.from_numpy(records.images)).repeat_interleave(8, dim=0)
    given = torch.from_numpy(generators.one_hot(records.labels, CLASSES)).repeat_interleave(8, dim=0)
    gradients = []
    for place, level in enumerate(LEVELS):
        step = int(level * model.model.preset.timesteps)
        noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(place))

        def loss(of: Any, step: int = step, noise: Tensor = noise) -> Tensor:
            return denoising_loss(
                *(of, scheduler, images, given),
                Drawn(torch.ones(len(images), dtype=torch.bool), torch.full((len(images),), step), noise),
            )

        gradients.append(_gradients(network, started, loss, len(records), 8))
    return {"former": -one, **fits} | _with_gradients(fits["3 levels, 8 noises each"], np.mean(gradients, axis=0))


def _fit(model: DiffusionGenerator, records: Records, levels: Sequence[float], draws: int) -> Matrix:
    return _mean_log(model.losses(records, [level for level in levels for _ in range(draws)], ASKED))


def decoder_signals(model: DecoderGenerator, records: Records, started: nn.Module) -> Signals:
    """Every signal of a decoder, each (n, k); `former`, which there was none of, says nothing."""
    decoder, width = model.network.decoder, model.network.latent
    images, known = pixel_rows(records.images, "cpu"), one_hot(torch.tensor(records.labels), CLASSES)

    def found(draws: int, steps: int) -> Matrix:
        source = torch.Generator().manual_seed(0)
        asked = latent_losses(decoder, images, known, width, source, draws=draws, steps=steps)
        return _mean_log(asked.double().numpy()[:, None])

    fits = {
        f"{draws} draws, {steps} steps": found(draws, steps)
        for draws, steps in ((1024, 0), (1024, 25), (1024, 100))
    }
    fits["mean of 1024 draws"] = _drawn(decoder, images, known, width)
    _, best = best_latents(decoder, images, known, width, torch.Generator().manual_seed(0))

    def loss(of: Any) -> Tensor:
        logits = of(torch.cat([best, known], dim=1))
        return functional.binary_cross_entropy_with_logits(logits, images, reduction="none").sum(dim=1)

    gradients = _gradients(decoder, started, loss, len(records), 1)
    return {"former": np.zeros((len(records), 1)), **fits} | _with_gradients(
        fits["1024 draws, 25 steps"], gradients
    )


@torch.no_grad()
def _drawn(decoder: nn.Module, images: Tensor, known: Tensor, width: int) -> Matrix:
    """Log of the mean likelihood of each record over draws from the prior, (n, 1)."""
    prior = torch.randn(1024, width, generator=torch.Generator().manual_seed(0))
    out = np.empty((len(images), 1))
    for label in range(CLASSES):
        rows = known[:, label] > 0
        logits = decoder(torch.cat([prior, one_hot(torch.full((len(prior),), label), CLASSES)], dim=1))
        fit = images[rows] @ logits.T - functional.softplus(logits).sum(dim=1)
        out[rows.numpy(), 0] = torch.logsumexp(fit.double(), dim=1).numpy()
    return out


def _gradients(
    network: nn.Module, started: nn.Module, loss: Callable[[Any], Tensor], size: int, draws: int
) -> Matrix:
    """Minus log of the norm of each record's gradient, and the loss's two derivatives over the norm, (n, 3)."""
    kept = RecordGradients(network)
    with kept.recording(size, draws):
        (loss(network).sum() / draws).backward()  # type: ignore[no-untyped-call]
    norms = kept.norms().double().numpy()
    weights = {name: value.detach() for name, value in network.named_parameters()}
    added = {name: value - dict(started.named_parameters())[name].detach() for name, value in weights.items()}
    found = [-np.log(norms)]
    for way in (weights, added):
        length = float(sum(float(value.square().sum()) for value in way.values())) ** 0.5

        def moved(of: dict[str, Tensor]) -> Tensor:
            return loss(lambda *given: functional_call(network, of, given))

        slope = jvp(moved, (weights,), (way,))[1]
        found.append(slope.detach().view(size, draws).mean(dim=1).double().numpy() / (length * norms))
    return np.stack(found, axis=1)


def _with_gradients(fit: Matrix, gradients: Matrix) -> Signals:
    alone = {"norm": [0], "along weights": [1], "along training": [2]}
    joint = {f"fit, {name}": columns for name, columns in (alone | {"norm, along training": [0, 2]}).items()}
    return {name: gradients[:, at] for name, at in alone.items()} | {
        name: np.concatenate([fit, gradients[:, at]], axis=1) for name, at in joint.items()
    }


def _mean_log(losses: Matrix) -> Matrix:
    return np.asarray(-np.log(np.maximum(losses, 1e-12)).mean(axis=1, keepdims=True))


def feddiff(epochs: int) -> Method:
    """Whose server learns next to nothing, which no signal looks at."""
    return FedDiff.model_validate({"epochs": epochs, "steps": 1, "classifier": {"epochs": 1}})


def fedcvae(epochs: int) -> Method:
    """As `feddiff`."""
    return FedCVAE.model_validate({"local_epochs": epochs, "classifier": {"local_epochs": 1}})


def _started(part: str, client: Records, seeds: Seeds) -> nn.Module:
    """The weights that a client's training begins with."""
    if part == "feddiff":
        preset, seed = generators.GENERATORS["tiny"], seeds.integer("training", client.name)
        return build_network(preset, client.image_shape, CLASSES, seed=seed)
    sizes = {"latent": 10, "hidden": 256, "kind": "dense", "beta": 1.0}
    return build_cvae(client.image_shape, CLASSES, seed=seeds.integer("autoencoder"), **sizes).decoder  # type: ignore[arg-type]


def _row(part: str, pool: Pool, epochs: int, epsilon: float, shadows: int, draw: int) -> dict[str, Any]:
    """Scores of strangers and of members by signal."""
    own, others, theirs = (
        pool.records(name, rows)
        for name, rows in zip(
            ("client/0", "test", "own"), pool.drawn(draw, RECORDS, 4 * RECORDS, 4 * RECORDS), strict=True
        )
    )
    method, threat = METHODS[part](epochs), ThreatModel()
    privacy = PrivacyTarget(epsilon=epsilon, delta=1e-5, adjacency="add_remove")
    start: dict[int, nn.Module] = {}

    def simulate(clients: Sequence[Records], seeds: Seeds) -> View:
        task = MethodInput(tuple(clients), others, theirs, CLASSES, pool.backbone, privacy, seeds, "cpu", SILENT)
        seen = visible(method.run(task), threat)
        start[id(seen)] = _started(part, clients[0], seeds)
        return seen

    game = make_game((own,), others, theirs, simulate, Seeds(draw).child("game"), classes=CLASSES)
    asked = game.questions[own.name]
    ask: Any = diffusion_signals if part == "feddiff" else decoder_signals
    seen = simulate([own], Seeds(draw))
    target = ask(seen.generators[own.name], asked, start[id(seen)])
    made = game.shadows("online", shadows, lambda done, total: None)
    under = [ask(each.view.generators[own.name], asked, start[id(each.view)]) for each in made]
    included, truth = np.stack([each.included[own.name] for each in made]), is_member(asked, own)
    scores = {}
    for name, values in target.items():
        found = lira_online(values, np.stack([each[name] for each in under]), included)
        scores[name] = [found[~truth].round(4).tolist(), found[truth].round(4).tolist()]
    return {"n": len(asked), "scores": scores}


METHODS: dict[str, Callable[[int], Method]] = {"feddiff": feddiff, "fedcvae": fedcvae}


def jobs(part: str, pool: Pool, given: argparse.Namespace) -> Iterator[Job]:
    """One for each draw."""
    for draw in range(given.draws):
        settings = {"epochs": given.epochs, "epsilon": str(given.epsilon), "shadows": given.shadows, "draw": draw}
        yield Job(settings, partial(_row, part, pool, given.epochs, given.epsilon, given.shadows, draw))


def table(path: Path) -> Iterator[str]:
    """A line for every signal of every setting: AUC and TPR at 1 %, and what they gain over `former`."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in kept(path):
        about = key_of({key: value for key, value in row["settings"].items() if key != "draw"})
        groups.setdefault(about, []).append(row["figures"])
    for about, rows in groups.items():
        yield f"{about}: {len(rows)} draws of {rows[0]['n']} candidates"
        for name in rows[0]["scores"]:
            areas = np.array([[_area(row, each) for each in (name, "former")] for row in rows])
            gain = _interval(areas[:, 0] - areas[:, 1])
            area, rate = _interval(areas[:, 0]), _rate(rows, name)
            yield f"  {name:26} AUC {area}  more than former {gain}  TPR at 1 % {rate}"


def _area(row: dict[str, Any], name: str) -> float:
    outside, inside = (np.array(each) for each in row["scores"][name])
    value = auc(outside, inside).value
    assert value is not None
    return value


def _interval(values: Matrix) -> str:
    half = 0.0 if len(values) < 2 else float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    return f"{values.mean():.3f} [{values.mean() - half:.3f}, {values.mean() + half:.3f}]"


def _rate(rows: list[dict[str, Any]], name: str) -> str:
    """At one threshold for all draws, of their strangers together."""
    outside, inside = (np.concatenate([row["scores"][name][side] for row in rows]) for side in (0, 1))
    above = int((inside > np.sort(outside)[::-1][len(outside) // 100]).sum())
    return "{:.3f} [{:.3f}, {:.3f}]".format(*share(above, len(inside)))


def main() -> None:
    """Measure a part, or say what the rows of a file show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=(*METHODS, "table"))
    public_data.add_arguments(parser, weights=False)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--shadows", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--epsilon", type=float, default=float("inf"))
    parser.add_argument("--images", type=int, default=6_000)
    parser.add_argument("--rows", type=Path, default=Path("/tmp/generator_membership.jsonl"))
    given = parser.parse_args()
    if given.part == "table":
        print("\n".join(table(given.rows)))
        return
    pool = Pool(given.data, given.images)
    about = {"part": given.part, "data": public_data.called(given.data)}
    made = (Job(about | job.settings, job.measure) for job in jobs(given.part, pool, given))
    measure(made, given.rows)


if __name__ == "__main__":
    public_data.ended(main)
