"""All attacks on one release: one table, one figure on one scale, LaTeX with intervals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import fedassay
from fedassay.api.attacks import _on, scales
from fedassay.records.record import CellPrivacy, CellRecord, Finding, Metric, RunRecord

pandas = pytest.importorskip("pandas")


def _finding(attack: str, audit: str, metric: str, verdict: str = "leak", **more: Any) -> Finding:
    figures = (
        {}
        if not metric
        else {metric: Metric(value=more.pop("value"), low=more.pop("low"), high=more.pop("high"), n=50)}
    )
    base = {name: Metric(value=value) for name, value in more.pop("base", {}).items()}
    return Finding(
        audit=audit,
        attack=attack,
        source="messages",
        metrics=figures,
        baseline=base,
        verdict=verdict,
        reason="r_1",
        **more,
    )  # type: ignore[arg-type]


FINDINGS = (
    _finding("gram_factorization", "message", "fraction_recovered", value=0.9, low=0.8, high=0.95),
    _finding("membership", "membership", "auc", value=0.75, low=0.7, high=0.8, base={"auc": 0.5}),
    _finding("feature_diffusion", "reconstruction", "ssim_gain", value=0.2, low=0.1, high=0.3, base={"ssim": 0.6}),
    _finding(
        "label_distribution",
        "message",
        "total_variation",
        value=0.1,
        low=0.0,
        high=0.2,
        base={"total_variation": 0.5},
    ),
    _finding("few_records", "message", "", verdict="not_run"),
)


@pytest.fixture
def run() -> fedassay.Run:
    cells = [
        CellRecord(
            key=f"m-{epsilon}",
            label="m",
            method="fedcgs",
            epsilon=epsilon,
            delta=1e-5,
            seed=0,
            adjacency="add_remove",
            params={},
            params_given={},
            utility={},
            communication={},
            seconds={},
            ledger=(),
            privacy=CellPrivacy(claimed=None, accounted=None, verdict="not_run"),
            findings=FINDINGS if math.isinf(epsilon) else (),
        )
        for epsilon in (math.inf, 8.0)
    ]
    return fedassay.Run(RunRecord(plan={"name": "p"}, environment={}, data={}, cells=tuple(cells)), Path())


def test_one_row_an_attack_on_one_scale(run: fedassay.Run) -> None:
    rows = run.attacks(epsilon=math.inf)
    assert list(rows.attack) == [finding.attack for finding in FINDINGS]
    assert list(rows.metric)[:4] == ["fraction_recovered", "auc", "ssim_gain", "total_variation"]
    assert list(rows.taken)[:4] == pytest.approx([0.9, 0.5, 0.5, 0.8])
    assert list(rows.taken_low)[:4] == pytest.approx([0.8, 0.4, 0.25, 0.6])
    assert list(rows.taken_high)[:4] == pytest.approx([0.95, 0.6, 0.75, 1.0])
    assert math.isnan(rows.taken[4])
    assert rows.verdict[4] == "not_run"


@pytest.mark.parametrize("ends", [(0.0, 1.0), (0.5, 1.0), (0.4, 0.0)])
def test_the_scale_runs_from_nothing_to_everything_and_no_further(ends: tuple[float, float]) -> None:
    assert _on(ends, ends[0]) == 0
    assert _on(ends, ends[1]) == 1
    assert _on(ends, 2 * ends[0] - ends[1]) == 0
    assert len(dict(scales())) == len(scales())


def test_one_release_must_be_meant(run: fedassay.Run) -> None:
    both = r"m \(fedcgs\) without noise and m \(fedcgs\) at ε = 8"
    with pytest.raises(fedassay.PlanError, match=f"2 releases are meant; allowed: .* one of {both}"):
        run.attacks()
    with pytest.raises(fedassay.PlanError, match="given 'other'; allowed: m"):
        run.attacks("other")
    with pytest.raises(fedassay.DataError, match="no attack was run on m"):
        run.plot.attacks(epsilon=8)


def test_the_figure_has_a_line_an_attack(run: fedassay.Run) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    axes = run.plot.attacks("m", math.inf)
    assert [label.get_text().partition(",")[0] for label in axes.get_yticklabels()] == [f.attack for f in FINDINGS]
    assert [line.get_xdata()[0] for line in axes.lines] == pytest.approx([0.9, 0.5, 0.5, 0.8])
    words = [text.get_text() for text in axes.texts]
    assert "members told (AUC): leak" in words
    assert "  not run" in words
    assert "∞" in axes.get_title()
    pyplot.close(axes.figure)


def test_latex_has_intervals_and_escapes(run: fedassay.Run) -> None:
    rows = run.attacks(epsilon=math.inf)[["attack", "metric", "value", "low", "high", "n", "verdict"]]
    text = fedassay.latex(rows)
    assert text.startswith(
        "\\begin{tabular}{llrl}\n\\toprule\nattack & metric & value [95\\,\\% interval] & verdict"
    )
    assert r"membership & auc & 0.75 [0.7, 0.8] (50) & leak \\" in text
    assert r"few\_records & -- & -- & not\_run \\" in text
    assert text.count("\\\\\n") == 1 + len(FINDINGS)
