"""Two domains in one npz, from files at hand: for configs/fedpft_covariate_shift.yaml and fedpft_task_shift.yaml.

    python benchmarks/two_domains.py covariate cifar10_subset.npz covariate_shift.npz
    python benchmarks/two_domains.py task cifar10_subset.npz att_faces.npz task_shift.npz

`covariate`: the classes of one set, its first half in colour (domain 0), its second half in grey and inverted
(domain 1); no image is in both. `task`: the classes of two sets side by side, each set a domain, as many images
of one as of the other, all in grey and at the size of the first. The official test images, where there are some,
join the others: a plan splits by itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Bytes = NDArray[np.uint8]


def read(path: Path) -> tuple[Bytes, NDArray[np.int64]]:
    """All images and labels of an npz."""
    with np.load(path, allow_pickle=False) as arrays:
        parts = [("x", "y")] if "x" in arrays else [("x_train", "y_train"), ("x_test", "y_test")]
        images = np.concatenate([arrays[x] for x, _ in parts if x in arrays])
        labels = np.concatenate([arrays[y] for _, y in parts if y in arrays])
    return images, labels.astype(np.int64)


def grey(images: Bytes) -> Bytes:
    """Luma of colour images, shape (n, H, W)."""
    if images.ndim == 3:
        return images
    return np.rint(images.astype(np.float32) @ np.float32([0.299, 0.587, 0.114])).astype(np.uint8)


def covariate(
    images: Bytes, labels: NDArray[np.int64], rng: np.random.Generator
) -> dict[str, NDArray[np.integer]]:
    """One half as it is, the other grey and inverted."""
    domain = np.zeros(len(images), np.int64)
    domain[rng.permutation(len(images))[: len(images) // 2]] = 1
    changed = images.copy()
    inverted = 255 - grey(images[domain == 1])
    changed[domain == 1] = inverted[..., None] if images.ndim == 4 else inverted
    return {"x": changed, "y": labels, "domain": domain}


def task(
    first: tuple[Bytes, NDArray[np.int64]], second: tuple[Bytes, NDArray[np.int64]], rng: np.random.Generator
) -> dict[str, NDArray[np.integer]]:
    """The classes of two sets, numbered one after the other; as many images of one as of the other."""
    drawn = [rng.permutation(len(images))[: min(len(first[0]), len(second[0]))] for images, _ in (first, second)]
    first, second = (
        tuple(array[rows] for array in part) for part, rows in zip((first, second), drawn, strict=True)
    )
    size = first[0].shape[1]
    images = [grey(first[0])]
    images.append(
        np.stack(
            [
                np.asarray(Image.fromarray(one).resize((size, size), Image.Resampling.LANCZOS))
                for one in grey(second[0])
            ]
        )
    )
    labels = [first[1], second[1] + first[1].max() + 1]
    return {
        "x": np.concatenate(images),
        "y": np.concatenate(labels),
        "domain": np.repeat([0, 1], [len(labels[0]), len(labels[1])]),
    }


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["covariate", source, target]:
            np.savez_compressed(target, **covariate(*read(Path(source)), np.random.default_rng(0)))
        case ["task", one, other, target]:
            np.savez_compressed(target, **task(read(Path(one)), read(Path(other)), np.random.default_rng(0)))
        case _:
            sys.exit(__doc__)
