"""What sums of FedLog's private bodies tell a server that knows none of them: docs/fedlog.md.

    python benchmarks/fedlog_surrogates.py [--data digits] [--draws 5] [--body mlp] [--bodies ...]
    python benchmarks/fedlog_surrogates.py table

Clients have 12 records of one class, 8 of another and one of a third, and train a body (`--body`) in five rounds
of five epochs. The server trains surrogates of several architectures on images of its own. It ranks the record
that is alone among 49 others of its class that nobody holds, and the 8 among 42. Figures are named by the
surrogates that are taken: of the body's own architecture (`known`), of that whose sums are nearest (`guessed`), of
all, or of all but the body's own (`unlisted`). The null asks of one of the 49 in the record's place.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import public_data
from kept_rows import Job, kept, measure
from malicious_server import CLASSES, Pool, Rows
from numpy.typing import NDArray
from scipy import stats

from fedassay.attacks.surrogate_bodies.attack import Sent, SurrogateBodies, Surrogates, score, seen
from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.audits.stats.roc import auc
from fedassay.contracts.attack import Knowledge
from fedassay.contracts.method import MethodInput
from fedassay.exchange.release import PrivacyTarget
from fedassay.exchange.view import ThreatModel, view
from fedassay.methods.fedlog.method import FedLog
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

HELD = (12, 8, 1)
STRANGERS = 49
USED = ("known", "guessed", "all", "unlisted")


def jobs(
    pool: Pool, draws: int, body: str, bodies: tuple[str, ...], clients: int, surrogates: int
) -> Iterator[Job]:
    """Every draw once with a public seed, and once with a secret one."""
    for start in ("public", "secret"):
        for draw in range(draws):
            yield Job(
                {"body": body, "of": ",".join(bodies), "start": start, "surrogates": surrogates, "draw": draw},
                partial(_draw, pool, body, bodies, start == "public", draw, clients, surrogates),
            )


def _draw(
    pool: Pool, body: str, bodies: tuple[str, ...], public: bool, draw: int, clients: int, surrogates: int
) -> dict[str, Any]:
    rng = np.random.default_rng(draw)
    order = rng.permutation(len(pool.labels))
    left = {label: list(order[pool.labels[order] == label]) for label in range(CLASSES)}
    parts, classes = [], []
    for _ in range(clients):
        classes.append(rng.permutation(CLASSES)[: len(HELD)])
        parts.append(np.array([left[c].pop() for c, n in zip(classes[-1], HELD, strict=True) for _ in range(n)]))
    strangers = {label: np.array([rows.pop() for _ in range(STRANGERS)]) for label, rows in left.items()}
    own = pool.records("attacker", np.concatenate([np.array(rows) for rows in left.values()]))
    seed = draw if public else None
    task = MethodInput(
        tuple(pool.records(f"client/{place}", rows) for place, rows in enumerate(parts)),
        *(own.take(np.arange(20)), None, CLASSES, pool.backbone),
        *(PrivacyTarget(epsilon=np.inf, delta=1e-5, adjacency="add_remove"), Seeds(draw), "cpu", SILENT),
    )
    outcome = FedLog.model_validate({"bodies": (body,), "public_seed": seed}).run(task)
    shown = view(outcome.transcript, ThreatModel())
    attack = SurrogateBodies.model_validate({"bodies": bodies, "public_seed": seed, "surrogates": surrogates})
    names = [each.name for each in attack.bodies]
    known = Knowledge(own, CLASSES, None, True, Seeds(draw + 1000), "cpu", SILENT)
    ranks: dict[str, list[float]] = {used: [] for used in (*USED, "null")}
    areas: dict[str, list[float]] = {used: [] for used in USED}
    guessed = 0
    for place, (rows, (_, several, alone)) in enumerate(zip(parts, classes, strict=True)):
        sent = seen(shown, f"client/{place}")
        assert sent is not None
        asked = np.concatenate([rows[-1:], strangers[alone], rows[-9:-1], strangers[several][:42]])
        records = pool.records("asked", asked)
        made = [attack.surrogates_of(each, sent, own, records, known) for each in range(len(names))]
        nearest = int(np.argmin([each.distance(sent) for each in made]))
        guessed += names[nearest] == body
        for used, taken in zip(USED, _taken(made, names.index(body), nearest), strict=True):
            values = _values(taken, sent, records.labels)
            ranks[used].append(_rank(values[0], values[1:50]))
            areas[used].append(auc(values[58:], values[50:58]).value)
            if used == "all":
                ranks["null"].append(_rank(values[1], values[2:50]))
    return (
        {"n": clients, "guessed": guessed}
        | {f"rank {k}": v for k, v in ranks.items()}
        | {f"auc {k}": v for k, v in areas.items()}
    )


def _taken(made: list[Surrogates], own: int, nearest: int) -> tuple[list[Surrogates], ...]:
    return [made[own]], [made[nearest]], made, made[:own] + made[own + 1 :]


def _values(taken: list[Surrogates], sent: Sent, labels: Rows) -> NDArray[np.float64]:
    values = np.full(len(labels), np.nan)
    score(values, taken, sent, labels)
    return values


def _rank(value: float, others: NDArray[np.float64]) -> float:
    """Share of others that are above, in (0, 1) half of the equal ones: 0 is the first place."""
    return float((others > value).mean() + (others == value).mean() / 2)


def lines(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One line for all draws of the same settings: clients, mean rank and first places, with intervals at 95 %."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        about = {key: value for key, value in row["settings"].items() if key != "draw"}
        groups.setdefault(json.dumps(about), []).append(row["figures"])
    for about_all, figures in groups.items():
        count = sum(each["n"] for each in figures)
        said = json.loads(about_all) | {"draws": len(figures)}
        yield said | {"architecture guessed": _share(sum(each["guessed"] for each in figures), count)}
        for key in (key for key in figures[0] if key.startswith(("rank", "auc"))):
            values = np.concatenate([each[key] for each in figures])
            half = float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
            line = said | {
                "figure": key,
                "n": len(values),
                "mean": [round(float(values.mean()) + d, 3) for d in (0, -half, half)],
            }
            if key.startswith("rank"):
                line["first"] = _share(int((values == 0).sum()), len(values))
            yield line


def _share(count: int, total: int) -> list[float]:
    band = clopper_pearson(np.array([count]), total)
    return [count, *(round(float(each[0]), 3) for each in (band.low, band.high))]


def main() -> None:
    """Measure, or say what the rows of a file show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="measure", choices=("measure", "table"))
    public_data.add_arguments(parser, weights=False)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--body", default="mlp")
    parser.add_argument("--bodies", default="mlp,mlp_deep,cnn,linear", help="architectures of surrogates")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--surrogates", type=int, default=8)
    parser.add_argument("--images", type=int, default=6_000)
    parser.add_argument("--rows", type=Path, default=Path("/tmp/fedlog_surrogates.jsonl"))
    given = parser.parse_args()
    if given.what == "table":
        for line in lines(kept(given.rows)):
            print(json.dumps(line))
        return
    pool = Pool(given.data, given.images)
    about = {"data": public_data.called(given.data)}
    made = jobs(pool, given.draws, given.body, tuple(given.bodies.split(",")), given.clients, given.surrogates)
    measure((Job(about | job.settings, job.measure) for job in made), given.rows)


if __name__ == "__main__":
    public_data.ended(main)
