"""A synthetic run with everything a report must cope with; the numbers are invented, the shapes real."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedassay.records.facts import Harm
from fedassay.records.record import (
    CellPrivacy,
    CellRecord,
    Controls,
    ErrorRecord,
    Finding,
    LedgerRow,
    Metric,
    NegativeControl,
    Picture,
    PictureColumn,
    PositiveControl,
    RunRecord,
    Series,
    unmeasured,
)

INF = math.inf
LPIPS = unmeasured("the weights of AlexNet are not available: no file alexnet-owt-7be5be79.pth")
BASE_ACCURACY = {
    "raw_features": 0.962,
    "fedpft": 0.951,
    "dp": 0.93,
    "fedcgs": 0.957,
    "fedlog": 0.944,
    "released": 0.902,
    "feddiff": 0.913,
}


def metric(value: float, half: float = 0.008, n: int = 300, unit: str = "") -> Metric:
    return Metric(value=value, low=value - half, high=value + half, n=n, unit=unit)


def picture(run: Path, name: str, columns: int = 12, seed: int = 0, blur: float = 0.2) -> Picture:
    """Private digits, other digits of the class, and noised copies, as one grid."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    rng = np.random.default_rng(seed)
    rows: list[list[np.ndarray]] = [[], [], []]
    entries = []
    for number in range(columns):
        image = digits.images[number] / 16.0
        same = digits.images[np.flatnonzero(digits.target == digits.target[number])[7]] / 16.0
        made = np.clip((1 - blur) * image + blur * rng.random(image.shape), 0, 1)
        for row, tile in zip(rows, (image, same, made), strict=True):
            row.append((tile * 255).astype(np.uint8))
        numbers = {"psnr": 20.0 - 30 * blur + number * 0.1, "ssim": 0.98 - blur, "lpips": None}
        entries.append(PictureColumn(caption=f"class {digits.target[number]}", metrics=numbers))
    path = run / "artifacts" / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.block(rows)).save(path)
    return Picture(
        file=f"artifacts/{name}.png",
        title="Closest reconstructions",
        tile=(8, 8),
        rows=("private image", "attacker's image", "reconstruction"),
        columns=tuple(entries),
    )


def reconstruction(
    run: Path | None, name: str, source: str, selection: str, ssim: float, base: float, verdict: str, reason: str
) -> Finding:
    rng = np.random.default_rng(abs(hash((source, selection))) % 2**32)
    targets = np.clip(rng.normal(ssim, 0.04, 300), 0, 1)
    return Finding(
        audit="reconstruction",
        attack="feature_diffusion",
        source=source,
        selection=selection,
        metrics={
            "psnr": metric(19.9 * ssim, 0.3),
            "ssim": metric(ssim),
            "lpips": LPIPS,
            "ssim_gain": metric(ssim - base, 0.006),
        },
        baseline={"psnr": metric(16.0 * base, 0.3), "ssim": metric(base), "lpips": LPIPS},
        controls=Controls(
            positive=PositiveControl(release="raw features of the same records", caught=True, value=0.95, n=300),
            negative=NegativeControl(
                release="shuffled features", flagged=verdict == "inconclusive", value=0.43, n=300
            ),
        ),
        verdict=verdict,
        reason=reason,
        harm=Harm(kind="pictures", of="record", total=300, metric="ssim", value=ssim, mechanism=source)
        if verdict == "leak"
        else None,
        assumptions=("The adversary holds 540 images of the same distribution.",),
        pictures=(picture(run, name, blur=1 - ssim),) if run else (),
        series={
            "targets": Series(
                title="SSIM of every target",
                columns={"ssim": tuple(targets.tolist()), "baseline": tuple((targets - ssim + base).tolist())},
            )
        },
    )


def memorization(run: Path | None, leak: bool) -> Finding:
    rng = np.random.default_rng(4)
    scores = np.concatenate([rng.normal(1.6, 0.1, 1480), rng.uniform(0.2, 0.9, 20 if leak else 0)])
    return Finding(
        audit="memorization",
        source="generated images",
        verdict="leak" if leak else "no_leak_found",
        reason="20 of 1,500 generated images are copies of training images"
        if leak
        else "the smallest score is 1.3: no generated image is a copy",
        metrics={
            "min_distance": Metric(value=float(scores.min()), n=len(scores)),
            "under_threshold": Metric(value=float((scores < 1).sum()), n=len(scores)),
            "heldout_gap": metric(0.21 if leak else 0.003, 0.01, len(scores)),
        },
        controls=Controls(
            positive=PositiveControl(release="a model overfitted on 16 images", caught=True, value=0.98, n=80),
            negative=NegativeControl(release="held-out images of the same mix", flagged=False, value=0.01, n=1500),
        ),
        pictures=(picture(run, f"memorized-{leak}", 30, blur=0.05),) if run else (),
        series={
            "scores": Series(
                title="Memorization score",
                columns={
                    "generated": tuple(scores.tolist()),
                    "heldout": tuple(np.abs(rng.normal(1.65, 0.09, len(scores))).tolist()),
                },
            )
        },
    )


def membership(auc: float) -> Finding:
    fpr = np.concatenate([[0.0], np.logspace(-3, 0, 60)])
    tpr = fpr ** ((1 - auc) / auc)
    return Finding(
        audit="membership",
        attack="membership",
        source="class sums",
        verdict="leak" if auc > 0.55 else "no_leak_found",
        reason=f"members are told from others at AUC {auc}",
        metrics={
            "auc": metric(auc, 0.02, 1000),
            "tpr_at_1pct": metric(float(0.01 ** ((1 - auc) / auc)), 0.01, 1000),
            "tpr_at_0.1pct": unmeasured("1,000 non-members cannot resolve 0.1 %"),
        },
        controls=Controls(
            positive=PositiveControl(release="the mechanism without its noise", caught=True, value=0.999, n=1000),
            negative=NegativeControl(release="fresh records", flagged=False, value=0.503, n=1000),
        ),
        series={"roc": Series(title="ROC", columns={"fpr": tuple(fpr.tolist()), "tpr": tuple(tpr.tolist())})},
    )


def message_findings(private: bool) -> tuple[Finding, ...]:
    algebra = Finding(
        audit="message",
        attack="message_algebra",
        source="class_sums",
        verdict="no_leak_found" if private else "leak",
        reason="no class sum is one record's own" if private else "sends 3 records' features exactly",
        metrics={"relative_error": unmeasured("nothing was recovered") if private else metric(3e-17, 1e-17, 3)},
        controls=Controls(
            positive=PositiveControl(release="class sums of one record each", caught=True, value=1.0, n=5)
        ),
    )
    sizes = (2, 4, 8, 16, 32, 64)
    gram = Finding(
        audit="message",
        attack="gram_factorization",
        source="gram_factorization",
        verdict="inconclusive" if private else "leak",
        reason="the positive control was missed" if private else "12 of 12 features of client 3 are recovered",
        metrics={
            "relative_error": metric(0.71 if private else 2.4e-11, 1e-12, 12),
            "cosine": metric(0.61 if private else 1.0, 0.0, 12),
        },
        baseline={"relative_error": metric(0.66, 0.02, 12)},
        controls=Controls(positive=PositiveControl(release="without noise", caught=not private, n=12)),
        series={
            "sweep": Series(
                title="Error by records per client",
                columns={
                    "n_i": sizes,
                    "recovered": (1e-12, 1e-11, 1e-11, 1e-7, 0.4, None),
                    "class mean": (0.5, 0.57, 0.66, 0.7, 0.75, 0.78),
                },
            ),
            "restarts": Series(
                title="Restarts used", columns={"client": ("client/0", "client/3"), "restarts": (1, 4)}
            ),
        },
    )
    return algebra, gram


def ledger(private: bool, counts_exact: bool, adjacency: str) -> tuple[LedgerRow, ...]:
    common: dict[str, Any] = {"direction": "up", "messages": 5, "secure": False, "unit": "record"}
    noise: dict[str, Any] = (
        {
            "mechanism": "gaussian",
            "exact": False,
            "sensitivity": (0.0212, 0.121),
            "noise_scale": (0.0791, 0.451),
            "group": "statistics",
        }
        if private
        else {"mechanism": "exact", "exact": True, "sensitivity": None, "noise_scale": None, "group": None}
    )
    same_label = adjacency == "replace_one_same_label"
    return (
        LedgerRow(
            field="means",
            kind="mixture_means",
            shape="(10, 64)",
            dtype="float16",
            nbytes=6400,
            adjacency=adjacency if private else None,
            public_under_adjacency=False,
            **noise,
            **common,
        ),
        LedgerRow(
            field="covariances",
            kind="mixture_covariances",
            shape="(10, 2080)",
            dtype="float16",
            nbytes=208000,
            adjacency=adjacency if private else None,
            public_under_adjacency=False,
            **noise,
            **common,
        ),
        LedgerRow(
            field="counts",
            kind="class_counts",
            shape="(10,)",
            dtype="int64",
            nbytes=400,
            adjacency=None,
            mechanism="exact" if counts_exact else "derived",
            exact=counts_exact,
            public_under_adjacency=same_label,
            sensitivity=None,
            noise_scale=None,
            group=None,
            note="the server samples with them",
            **common,
        ),
        LedgerRow(
            field="head",
            kind="head",
            direction="down",
            messages=5,
            shape="(10, 65)",
            dtype="float32",
            nbytes=13000,
            mechanism="derived",
            exact=False,
            public_under_adjacency=False,
            secure=False,
            adjacency=None,
            unit="record",
            sensitivity=None,
            noise_scale=None,
            group=None,
        ),
    )


def cell(run: Path | None, label: str, method: str, epsilon: float, seed: int | None, **given: Any) -> CellRecord:
    private = math.isfinite(epsilon)
    adjacency = "replace_one_same_label" if method == "fedpft" else "add_remove"
    accounted = given.get("accounted", epsilon if private else INF)
    drop = 0.0 if not private else 0.02 + 0.06 / epsilon
    accuracy = BASE_ACCURACY[label] - drop + (0.004 * seed if seed else 0)
    exact = given.get("exact", () if private else ("means", "covariances", "counts"))
    return CellRecord(
        method=method,
        label=label,
        params={"components": 10},
        params_given={},
        epsilon=epsilon,
        delta=1e-5,
        adjacency=adjacency,
        seed=seed,
        utility={
            "accuracy": accuracy,
            "accuracy_low": accuracy - 0.02,
            "accuracy_high": accuracy + 0.02,
            "accuracy_n": 360,
        },
        communication={"bytes_up": given.get("bytes", 227_800.0), "bytes_down": 13_000.0},
        privacy=CellPrivacy(
            claimed=epsilon if private else None,
            accounted=accounted,
            accounted_stated=given.get("stated"),
            observed=given.get("observed"),
            mu=given.get("mu"),
            exact_fields=exact,
            verdict=given.get("verdict", "sound" if private else "not_run"),
            reason=given.get("reason", "" if private else "nothing is claimed at ε = ∞"),
            warnings=given.get("warnings", ()),
        ),
        ledger=ledger(private, "counts" in exact, adjacency),
        findings=given.get("findings", ()),
        notes=given.get("notes", ()),
        seconds={"method": 2.31, "feature_diffusion": 47.2, "reconstruction": 5.03},
    )


def dp_claim(verdict: str, observed: float | None, reason: str) -> Finding:
    value = Metric(value=observed, n=100_000) if observed is not None else unmeasured(reason)
    return Finding(audit="dp_claim", verdict=verdict, reason=reason, metrics={"observed": value})


def make_record(run: Path | None, seeds: tuple[int | None, ...] = (0, 1)) -> RunRecord:
    """Several methods and epsilons with every verdict, infinities, gaps, pictures and series."""
    cells = []
    for seed in seeds:
        shot = run if seed == seeds[0] else None

        def rec(name: str, *rest: Any, at: Path | None = shot) -> Finding:
            return reconstruction(at, name, *rest)

        raw = (
            rec("raw-all", "raw", "all", 0.95, 0.88, "leak", "reconstructions beat the nearest-feature baseline"),
            rec(
                "raw-attacker", "raw", "attacker", 0.97, 0.9, "leak", "the attacker's own pick beats its baseline"
            ),
        )
        cells.append(
            cell(
                run,
                "raw_features",
                "raw_features",
                INF,
                seed,
                bytes=462_000.0,
                findings=raw,
                notes=("raw_features has no private form: run once, at ε = ∞",),
            )
        )
        mixed = (
            rec(
                "pft-oracle",
                "mixture_samples",
                "oracle",
                0.871,
                0.885,
                "no_leak_found",
                "no better than the attacker's images",
            ),
            rec(
                "pft-all",
                "mixture_samples",
                "oracle_all",
                0.702,
                0.69,
                "inconclusive",
                "the negative control was flagged",
            ),
        )
        cells.append(
            cell(
                run, "fedpft", "fedpft", INF, seed, bytes=65_000.0, findings=(*mixed, *message_findings(False)[:1])
            )
        )
        for epsilon, observed in ((10.0, 8.91), (1.0, 0.83)):
            found = (
                rec(
                    f"dp-{epsilon:g}",
                    "mixture_samples",
                    "oracle",
                    0.86,
                    0.885,
                    "no_leak_found",
                    "no better than the attacker's images",
                ),
                dp_claim("sound", observed, "tight: the bound comes within 11 % of the claim"),
            )
            cells.append(
                cell(
                    run,
                    "dp",
                    "fedpft",
                    epsilon,
                    seed,
                    accounted=epsilon * 0.9999,
                    observed=observed,
                    mu=2.1 if epsilon > 5 else 0.27,
                    exact=("counts",),
                    findings=found,
                    stated=epsilon * 1.03,
                )
            )
        for epsilon in (INF, 10.0, 1.0):
            private = math.isfinite(epsilon)
            found = (*message_findings(private), membership(0.93 if not private else 0.52 + 0.006 * epsilon))
            cells.append(
                cell(
                    run,
                    "fedcgs",
                    "fedcgs",
                    epsilon,
                    seed,
                    bytes=170_000.0,
                    findings=found,
                    observed=epsilon * 0.86 if private else None,
                    mu=2.1 if epsilon == 10 else 0.27 if private else None,
                )
            )
        for epsilon in (10.0, 1.0):
            cells.append(
                cell(
                    run,
                    "fedlog",
                    "fedlog",
                    epsilon,
                    seed,
                    accounted=INF,
                    exact=("counts", "statistics"),
                    verdict="unsupported",
                    reason="the body was trained on the same records; n leaves exactly",
                    observed=epsilon * 0.2,
                    warnings=("delta = 0.01 in the paper is far too large",),
                    bytes=31_200.0,
                )
            )
        cells.append(
            cell(
                run,
                "released",
                "fedlog",
                0.5,
                seed,
                accounted=4.46,
                observed=3.12,
                verdict="unsound",
                bytes=31_200.0,
                reason="101 releases without composition",
                findings=(dp_claim("unsound", 3.12, "an attack shows 3.12"),),
            )
        )
        inversion = Finding(
            audit="inversion",
            attack="feature_inversion",
            source="class_sums",
            verdict="not_run",
            reason="the messages of feddiff hold no feature vector",
        )
        for epsilon in (INF, 10.0):
            private = math.isfinite(epsilon)
            cells.append(
                cell(
                    run,
                    "feddiff",
                    "feddiff",
                    epsilon,
                    seed,
                    bytes=5_840_000.0,
                    exact=("labels",) if private else ("weights", "labels"),
                    accounted=INF,
                    verdict="unsupported" if private else "not_run",
                    reason="the label histogram leaves exactly" if private else "nothing is claimed at ε = ∞",
                    findings=(memorization(shot, leak=not private), inversion),
                )
            )
    plan = {
        "name": "sweep",
        "seeds": list(seeds),
        "data": {
            "name": "digits",
            "limit": None,
            "split": {"private": 0.4, "attacker": 0.3, "public": 0.1, "test": 0.2},
        },
        "clients": {"count": 5, "partition": "dirichlet", "alpha": 0.1, "min_records": 1},
        "backbone": {"name": "small_cnn", "weights": "public", "input_size": 8},
        "privacy": {"epsilon": ["inf", 10.0, 1.0], "delta": 1e-5},
        "threat": {"view": "per_client", "backbone": "white_box", "attacker_share": 1.0, "rounds": "all"},
        "methods": [{"raw_features": {}}, {"fedpft": {"components": 10}}, {"fedcgs": {}}],
        "attacks": [{"feature_diffusion": {"preset": "tiny"}}],
        "audits": [
            {"reconstruction": {}},
            {"inversion": {}},
            {"memorization": {}},
            {"membership": {}},
            {"message": {}},
            {"dp_claim": {}},
        ],
    }
    environment = {
        "fedassay": "1.0.0",
        "git_revision": "0123abc",
        "python": "3.11.2",
        "platform": "Linux",
        "cores": 2,
        "device": "cpu",
        "packages": {"numpy": "2.4.6", "torch": "2.13.0"},
        "command": ["fedassay", "run", "sweep.yaml"],
        "started": "2026-01-02T10:00:00+00:00",
        "finished": "2026-01-02T10:41:12+00:00",
    }
    data = {
        "0": {
            "source": "scikit-learn digits",
            "records": {"private": 718, "attacker": 540, "public": 180, "test": 359},
            "client_records": [120, 201, 98, 180, 119],
        }
    }
    return RunRecord(
        plan=plan,
        environment=environment,
        data=data,
        cells=tuple(cells),
        errors=(ErrorRecord(cell="feddiff, ε = 1", stage="method", message="out of memory at step 12"),),
    )


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with its record and pictures."""
    folder = tmp_path_factory.mktemp("run")
    make_record(folder).save(folder)
    return folder


@pytest.fixture(scope="session")
def record(run: Path) -> RunRecord:
    """The record of `run`, as read back from disk."""
    from fedassay.records.record import load_record

    return load_record(run)


@pytest.fixture
def build_record() -> Any:
    """`make_record`, for tests that need another run."""
    return make_record


@pytest.fixture
def build_cell() -> Any:
    """`cell`, for tests of one cell."""
    return cell


@pytest.fixture
def hostile_record() -> Callable[[str], RunRecord]:
    """`hostile_record(words)` is a record whose every free text is `words`."""

    def make(words: str) -> RunRecord:
        finding = Finding(
            audit="message",
            attack=words,
            source=words,
            selection=words,
            metrics={"relative_error": Metric(value=None, reason=words)},
            verdict="leak",
            reason=words,
            assumptions=(words,),
            series={words: Series(title=words, columns={words: (words, 1.0)})},
        )
        held = {"label": words, "method": words, "findings": (finding,), "notes": (words,)}
        return RunRecord(
            plan={"name": words, "methods": [{"fedpft": {words: words}}], "transcript": {"folder": words}},
            environment={"git": words, "command": [words]},
            data={words: words},
            cells=(cell(None, "fedpft", "fedpft", INF, 0).model_copy(update=held),),
            errors=(ErrorRecord(cell=words, stage=words, message=words),),
        )

    return make
