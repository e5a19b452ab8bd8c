"""Figure 1 of Yu et al. 2026: two clients, 80 points of the plane, one global round of FedLog and of LG-FedAvg.

    python benchmarks/fedlog_figure1.py figure1.png

Records, bodies and parameters are those of configs/fedlog_figure1.yaml. Accuracies here are those of each
client's model on its own half of the square, mean of both and of all seeds of the plan.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from fedassay.contracts.method import MethodInput, Outcome
from fedassay.data.circle import HALF_SIDE, RADIUS, images_of, points_of
from fedassay.exchange.release import PrivacyTarget
from fedassay.execution.prepare import prepare
from fedassay.methods.baselines.fedavg import FedAvg
from fedassay.methods.fedlog.method import FedLog
from fedassay.methods.shared.local_networks import MeanModel, Scores
from fedassay.plan.schema import Plan, parse_plan, read_yaml
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

PLAN = Path(__file__).resolve().parents[1] / "configs" / "fedlog_figure1.yaml"
ITERATIONS = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30)
SHOWN = 10
"""Local iterations before the pictures of representations."""

Floats = NDArray[np.float64]
_DARK, _LIGHT = ("#1b4f9c", "#2a7f3f"), ("#8db8e8", "#8fd19e")


def main(output: Path) -> None:
    """Draw the figure and print what is in it."""
    plan = parse_plan(read_yaml(PLAN), PLAN.name)
    methods = {label: params for entry in plan.methods for label, params in _labelled(entry)}
    tasks = [_task(plan, seed) for seed in plan.seeds]
    figure, axes = plt.subplots(2, 3, figsize=(11, 7), constrained_layout=True)
    _data(axes[0, 0], tasks[0])
    for axis, kind in ((axes[0, 1], "lg-fedavg"), (axes[0, 2], "fedlog")):
        _representations(axis, kind, _run(kind, methods, SHOWN, tasks[0]), tasks[0])
    curves = {
        kind: np.array([[_accuracies(_run(kind, methods, n, task), task) for n in ITERATIONS] for task in tasks])
        for kind in ("lg-fedavg", "fedlog")
    }
    for column, what in enumerate(("training", "test")):
        axis = axes[1, column]
        for kind, values in curves.items():
            mean, error = values[..., column].mean(axis=0), values[..., column].std(axis=0, ddof=1)
            error = error / np.sqrt(len(tasks))
            axis.errorbar(ITERATIONS, mean, error, label=kind, marker="o", markersize=3, capsize=2)
            for n, value, spread in zip(ITERATIONS, mean, error, strict=True):
                print(f"{kind} {what} accuracy after {n} local iterations: {value:.3f} +- {spread:.3f}")
        axis.set(xlabel="local iterations", ylabel=f"{what} accuracy", ylim=(0.4, 1.02))
        axis.legend()
    _decisions(axes[1, 2], _run("fedlog", methods, ITERATIONS[-1], tasks[0]), tasks[0])
    figure.savefig(output, dpi=80)


def _labelled(entry: dict[str, dict[str, object]]) -> list[tuple[str, dict[str, object]]]:
    ((_, params),) = entry.items()
    return [(str(params["label"]).split()[0], {k: v for k, v in params.items() if k != "label"})]


def _task(plan: Plan, seed: int | None) -> MethodInput:
    ready = prepare(plan, PLAN.parent, seed, "cpu", SILENT)
    private = PrivacyTarget(epsilon=float("inf"), delta=1e-5, adjacency="add_remove")
    return MethodInput(
        clients=ready.clients,
        test=ready.test,
        public=ready.public,
        classes=ready.classes,
        backbone=ready.backbone,
        privacy=private,
        seeds=Seeds(seed),
        device="cpu",
        progress=SILENT,
    )


def _run(kind: str, methods: dict[str, dict[str, object]], iterations: int, task: MethodInput) -> Outcome:
    """One round; a client's 40 records are one minibatch, so an epoch is an iteration."""
    method = FedLog if kind == "fedlog" else FedAvg
    return method.model_validate({**methods[kind], "local_epochs": iterations}).run(task)


def _models(outcome: Outcome) -> tuple[Scores, ...]:
    assert isinstance(outcome.model, MeanModel)
    return tuple(outcome.model.members)


def _head(kind: str, outcome: Outcome) -> tuple[Floats, Floats]:
    """Weights (2, 2) and biases (2,) of the shared head after the round."""
    fields = outcome.transcript.messages[-1].fields
    if kind == "fedlog":
        eta = fields["eta"].values.astype(np.float64)
        return eta[:, 1:], eta[:, 0]
    values = fields["parameters"].values.astype(np.float64)
    return values[:4].reshape(2, 2), values[4:]


def _accuracies(outcome: Outcome, task: MethodInput) -> tuple[float, float]:
    border = _border(task)
    test = points_of(task.test.images)[:, 0] >= border
    found = []
    for client, scores in enumerate(_models(outcome)):
        own, held = task.clients[client], np.flatnonzero(test == client)
        guesses = scores(task.test.images[held]).argmax(axis=1)
        right = (scores(own.images).argmax(axis=1) == own.labels).mean()
        found.append((right, (guesses == task.test.labels[held]).mean()))
    training, tested = np.mean(found, axis=0)
    return float(training), float(tested)


def _border(task: MethodInput) -> float:
    return float(points_of(task.clients[1].images)[:, 0].min())


def _data(axis: plt.Axes, task: MethodInput) -> None:
    for client, colours in zip(task.clients, (_DARK, _LIGHT), strict=True):
        axis.scatter(*points_of(client.images).T, c=[colours[label] for label in client.labels], s=18)
    axis.add_patch(plt.Circle((0, 0), RADIUS, fill=False, linestyle="--"))
    axis.set(title="dark: client 0, light: client 1", xlabel="x1", ylabel="x2", aspect="equal")


def _representations(axis: plt.Axes, kind: str, outcome: Outcome, task: MethodInput) -> None:
    """Two features of every record, from its two scores, and where the shared head draws the line."""
    weight, bias = _head(kind, outcome)
    for client, scores, colours in zip(task.clients, _models(outcome), (_DARK, _LIGHT), strict=True):
        features = np.linalg.solve(weight, (scores(client.images) - bias).T).T
        axis.scatter(*features.T, c=[colours[label] for label in client.labels], s=18)
    limits = axis.get_xlim(), axis.get_ylim()
    normal, offset = weight[1] - weight[0], bias[1] - bias[0]
    across = np.linspace(*limits[0], 2)
    axis.plot(across, -(offset + normal[0] * across) / normal[1], "r--")
    axis.set(title=f"{kind}: features after {SHOWN} iterations", xlim=limits[0], ylim=limits[1])


def _decisions(axis: plt.Axes, outcome: Outcome, task: MethodInput) -> None:
    """What every client's model says of its own half."""
    levels = np.stack(np.meshgrid(np.arange(256), np.arange(256)), axis=-1).reshape(-1, 2)
    images = images_of(levels)
    left = points_of(images)[:, 0] < _border(task)
    said = np.empty(len(levels), dtype=np.int64)
    for mine, scores in zip((left, ~left), _models(outcome), strict=True):
        said[mine] = scores(images[mine]).argmax(axis=1)
    edges = (-HALF_SIDE, HALF_SIDE, -HALF_SIDE, HALF_SIDE)
    axis.imshow(said.reshape(256, 256), origin="lower", extent=edges, cmap="GnBu_r", alpha=0.5)
    axis.axvline(_border(task), color="black", linewidth=0.8)
    axis.add_patch(plt.Circle((0, 0), RADIUS, fill=False, linestyle="--"))
    axis.set(title=f"fedlog: clients' decisions, {ITERATIONS[-1]} iterations", xlabel="x1", ylabel="x2")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
