"""What blends of its own images bring an adversary of few: likeness of strangers rebuilt from raw features.

    python benchmarks/blended_images.py [--own 60 216 800] [--seeds 3]

Regions of photographs at 16x16 pixels, digits at 8x8; a small network trained on 80 public images; preset `tiny`
with and without `fedassay.nets.blends`. Prints the mean SSIM over 160 strangers, the baseline (the own image whose
feature is nearest), and processor seconds of training and sampling.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedassay.backbones.base import BackboneRequest
from fedassay.backbones.small_cnn import small_cnn_rectified
from fedassay.data import DataRequest, load
from fedassay.data.images import ImageSet
from fedassay.nets.blends import blends
from fedassay.nets.presets import TINY
from fedassay.nets.sampling import sample
from fedassay.nets.training import train
from fedassay.similarity.ssim import ssim

PUBLIC, STRANGERS = 80, 160


def data(name: str, seed: int) -> ImageSet:
    """Images of one data set in an order of its own."""
    size = 16 if name == "photographs" else None
    whole = load(DataRequest(name, None, None, None, 0, Path(), size=size)).train
    return whole.take(np.random.default_rng(seed).permutation(len(whole)))


def measured(name: str, own: int, seed: int) -> list[tuple[str, float, float]]:
    """(row, mean SSIM, processor seconds) for the baseline, and without and with blends."""
    images = data(name, seed)
    public = replace(images.take(np.arange(PUBLIC)), role="public")
    request = BackboneRequest(
        "small_cnn_rectified",
        "public",
        None,
        images.images.shape[1:],
        len(images.class_names),
        public,
        seed,
        "cpu",
        Path(),
    )
    backbone = small_cnn_rectified(request)
    mine = images.images[PUBLIC : PUBLIC + own]
    others = images.images[PUBLIC + own : PUBLIC + own + STRANGERS]
    seen, features = backbone.extract(others), backbone.extract(mine)
    nearest = ((seen[:, None].astype(np.float64) - features[None]) ** 2).sum(axis=-1).argmin(axis=1)
    rows = [("nearest own image", float(ssim(others, mine[nearest]).mean()), 0.0)]
    for row, pairs in (
        ("own images", mine),
        ("with blends", np.concatenate([mine, blends(mine, TINY.rows, np.random.default_rng(seed))])),
    ):
        start = time.process_time()
        model = train(pairs, backbone.extract(pairs), TINY, seed=seed)
        shown = sample(model, seen, seed=seed)
        rows.append((row, float(ssim(others, shown).mean()), time.process_time() - start))
    return rows


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--own", type=int, nargs="+", default=[60, 216, 800], help="images of the adversary")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    for name in ("photographs", "digits"):
        for own in given.own:
            found = [measured(name, own, seed) for seed in range(given.seeds)]
            for row in zip(*found, strict=True):
                likeness = [value for _, value, _ in row]
                spent = np.mean([seconds for _, _, seconds in row])
                span = f"{np.mean(likeness):.3f} ({min(likeness):.3f} to {max(likeness):.3f})"
                print(f"{name}, {own} own images, {row[0][0]}: SSIM {span}, {spent:.0f} s", flush=True)


if __name__ == "__main__":
    main()
