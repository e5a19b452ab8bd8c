"""What altered copies the memorization audit finds in each of its spaces, and false alarms: docs/feddiff.md.

    python benchmarks/altered_copies.py [--data digits] [--runs 200] [--backbone squeezenet1_1 --weights FILE]

A run draws 100 training records, 100 held-out ones and 100 others. Images are copies of the training records: as
they are, mirrored, shifted by a tenth of a side, recoloured, all three at once, or all three under noise (25 of
255). In `null` runs they are the others, mirrored, shifted or recoloured by turns. Per space: the share of
training records that is given back, less that of held-out ones (10 runs, Student's interval), and how many null
runs reject at 5 % (Clopper and Pearson). Features are kept by image: with few `--images`, few are computed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import public_data
from kept_rows import share
from malicious_server import CLASSES
from scipy import stats

from fedassay.audits.memorization.judging import Memory, judge
from fedassay.audits.memorization.looking import Looks
from fedassay.audits.memorization.scores import Search, match_classes, score
from fedassay.audits.memorization.spaces import Space, altered, mirrored, moved, standardised
from fedassay.data.records import Records
from fedassay.support.progress import SILENT, Progress
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images

SIZE, FOUND = 100, 10
Change = Callable[[Images, np.random.Generator], Images]


def by_turns(place: int) -> Change:
    """One of the three alterations of `altered`, of every image."""

    def change(images: Images, rng: np.random.Generator) -> Images:
        return altered(np.repeat(images, 3, axis=0), rng)[place::3]

    return change


MIRRORED, SHIFTED, RECOLOURED = (by_turns(place) for place in range(3))


def all_three(images: Images, rng: np.random.Generator) -> Images:
    """Mirrored, shifted and recoloured."""
    return RECOLOURED(SHIFTED(MIRRORED(images, rng), rng), rng)


def under_noise(images: Images, rng: np.random.Generator) -> Images:
    """All three, with noise on top."""
    changed = all_three(images, rng)
    return np.clip(np.rint(changed + rng.normal(0, 25, changed.shape)), 0, 255).astype(np.uint8)


COPIES: dict[str, Change] = {
    "as they are": lambda images, _: images,
    "mirrored": MIRRORED,
    "shifted": SHIFTED,
    "recoloured": RECOLOURED,
    "all three": all_three,
    "all three, noise": under_noise,
}


@dataclass(frozen=True)
class Shown:
    """Gives out the images that it holds."""

    images: Images

    def sample(self, count: int, seeds: Seeds, progress: Progress) -> Images:
        """All of them."""
        del seeds, progress
        return self.images[:count]


def run(space: Space | None, parts: list[Records], change: Change, draw: int) -> Memory:
    """The audit's test of one run, in a space or by pixel distance."""
    rng, search = np.random.default_rng(draw), Search(50, 0.5, "cpu", 0)
    own, held, shown = parts
    matched, kept = match_classes(own, held, rng)
    images, rest = change(shown.images, rng), held.take(kept)
    if space is None:
        scores = [score(Shown(images), len(images), own, matched, rest, search, Seeds(draw), SILENT)]
    else:
        looks = Looks(space, search)
        looks.beside(own, matched, rest)(images)
        scores = looks.scores
    return judge(scores, 1.0, rng, tests=1, draws=200)


def remembered(extract: Callable[[Images], Floats]) -> Callable[[Images], Floats]:
    """Features that are computed once for each image."""
    known: dict[bytes, Floats] = {}

    def features(images: Images) -> Floats:
        keys = [image.tobytes() for image in images]
        new = [place for place, key in enumerate(keys) if key not in known]
        if new:
            known.update(zip([keys[place] for place in new], extract(images[new]), strict=True))
        return np.stack([known[key] for key in keys])

    return features


def main() -> None:
    """Measure every space on one data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    public_data.add_arguments(parser)
    parser.add_argument("--backbone", default="", help="Also in features of this backbone, at 64 pixels")
    parser.add_argument("--space", default="", help="Only this one")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--images", type=int, default=6_000)
    given = parser.parse_args()
    images, labels = public_data.training(given.data, given.images)
    spaces: dict[str, Space | None] = {
        "pixels": None,
        "aligned": Space("aligned", "", standardised, moved, False),
    }
    if given.backbone:
        size = public_data.SIZE if given.backbone == "squeezenet1_1" else None
        backbone = public_data.backbone(given.backbone, given.weights, size, images, CLASSES)
        spaces["backbone"] = Space("backbone", "", remembered(backbone.extract), mirrored, True)

    changed = altered(images, np.random.default_rng(0))

    def parts(draw: int, *, null: bool) -> list[Records]:
        order = np.random.default_rng(draw).permutation(len(labels))[: 3 * SIZE]
        first, second, third = np.split(order, 3)
        shown = (images[first], images[second], changed[third] if null else images[first])
        return [
            Records("part", own, labels[rows], _nothing)
            for own, rows in zip(shown, (first, second, third), strict=True)
        ]

    for name, space in spaces.items():
        if given.space and name != given.space:
            continue
        for copies, change in COPIES.items():
            found = []
            for draw in range(FOUND):
                found.append(run(space, parts(draw, null=False), change, draw).copied.value)
            half = float(stats.t.ppf(0.975, FOUND - 1) * stats.sem(found))
            mean = float(np.mean(found))
            print(f"{name:9} {copies:17} {mean:.3f} [{mean - half:.3f}, {mean + half:.3f}]", flush=True)
        alarms = 0
        for draw in range(given.runs):
            alarms += run(space, parts(1000 + draw, null=True), COPIES["as they are"], draw).copied.p <= 0.05
        print(f"{name:9} null: {alarms} of {given.runs}", share(int(alarms), given.runs)[1:], flush=True)


def _nothing(images: Images) -> Floats:
    return np.zeros((len(images), 1), np.float32)


if __name__ == "__main__":
    public_data.ended(main)
