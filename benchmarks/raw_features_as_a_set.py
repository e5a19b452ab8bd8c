"""Table 3 of FedPFT's paper with raw features scored as mixtures are: for docs/papers.md.

    python benchmarks/raw_features_as_a_set.py OUTPUT --set attacks.0.feature_diffusion.preset=small ...

A reconstruction of a raw feature belongs to one record, and the audit holds it against that record. Samples of a
mixture belong to none: every private image is held against the sample most like it, the best of thousands. Table 3
has both in one column. So this runs configs/papers/fedpft_table3.yaml, and prints in addition what raw features
reach when every private image is held against the most similar of their reconstructions: of the first one of each
vector, and of all of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

from fedassay.audits.reconstruction import audit
from fedassay.audits.reconstruction.selections import Scored, Truth, paired_selections, set_selections
from fedassay.contracts.attack import Reconstruction
from fedassay.data.records import Records
from fedassay.execution.runner import RunOptions, run_scenario
from fedassay.plan.resolve import load_scenario
from fedassay.similarity.metrics import Similarity

PLAN = Path(__file__).resolve().parents[1] / "configs" / "papers" / "fedpft_table3.yaml"


def told(name: str, scored: Scored) -> str:
    """A selection's SSIM, and that of the adversary's own images."""
    best, own = (
        np.sort(values["ssim"])[::-1][: scored.top].mean() for values in (scored.values, scored.baseline_values)
    )
    return f"{name}: SSIM {best:.3f}, of the adversary's own images {own:.3f}, n = {scored.top:,}"


def both_ways(
    reconstruction: Reconstruction, truth: Truth, attacker: Records, similarity: Similarity, top: int
) -> dict[str, Scored]:
    """Return the audit's selections, and print those of the same images as a set."""
    source = reconstruction.source
    places = truth.positions(source.senders, source.rows)
    target = truth.images[places[places >= 0]]
    shape = reconstruction.images.shape[2:]
    for words, images in (
        ("the first of each vector", reconstruction.images[:, 0]),
        ("all of each vector", reconstruction.images.reshape(-1, *shape)),
    ):
        rng = np.random.default_rng(0)
        found = set_selections(images, target, truth.fresh, attacker.images, similarity, top, rng)
        for selection, scored in found.items():
            print(told(f"{source.name}, {len(target):,} records, {words}, {selection}", scored), flush=True)
    return paired_selections(reconstruction, truth, attacker, similarity, top)


def main() -> None:
    """Run the plan."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="assignments")
    given = parser.parse_args()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "paired_selections", both_ways)
        run_scenario(load_scenario(PLAN, given.assignments), given.output, RunOptions(force=True))


if __name__ == "__main__":
    main()
