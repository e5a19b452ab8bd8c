"""A folder tree of PACS's layout from images at hand: for configs/papers/fedcgs_table2.yaml where PACS is not.

    python benchmarks/domain_tree.py four_styles [--data cifar10]
    fedassay run configs/papers/fedcgs_table2.yaml --scale 0.5 --set data.path=four_styles --set data.size=32 ...

Seven classes in PACS's four domains, one style each: `photo` is the image as it is, `art_painting` smears it and
keeps few colours, `cartoon` keeps fewer between hard outlines, `sketch` keeps outlines alone. No image is in two
domains. That is the layout and the protocol of PACS, and none of its images.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import public_data
from PIL import Image, ImageChops, ImageFilter, ImageOps

CLASSES, EACH = 7, 80
"""Classes, and images of a class in a domain."""


def painted(image: Image.Image) -> Image.Image:
    """Strokes: the commonest colour around each pixel, of 32 levels a channel."""
    return ImageOps.posterize(image.filter(ImageFilter.ModeFilter(5)), 5)


def cartoon(image: Image.Image) -> Image.Image:
    """Four levels a channel, darkened by outlines."""
    flat = ImageOps.posterize(image.filter(ImageFilter.MedianFilter(3)), 2)
    return ImageChops.multiply(flat, sketch(image))


def sketch(image: Image.Image) -> Image.Image:
    """Outlines, dark on white."""
    outlines = ImageOps.grayscale(image).filter(ImageFilter.CONTOUR)
    return ImageOps.autocontrast(outlines).convert("RGB")


STYLES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "art_painting": painted,
    "cartoon": cartoon,
    "photo": lambda image: image,
    "sketch": sketch,
}


def write_tree(images: public_data.Images, labels: public_data.Labels, target: Path, each: int = EACH) -> int:
    """Write `target`/domain/class/image.png; how many images.

    Args:
        images: In colour, (n, H, W, 3) uint8.
        labels: Theirs, (n,).
        target: A folder, made where it is not there.
        each: Images of a class in a domain.

    Raises:
        ValueError: A class has too few images.
    """
    written = 0
    for label in range(CLASSES):
        rows = np.flatnonzero(labels == label)
        if len(rows) < each * len(STYLES):
            raise ValueError(f"class {label}: {len(rows)} images given; needed: {each * len(STYLES)}")
        for number, (domain, style) in enumerate(STYLES.items()):
            folder = target / domain / f"class_{label}"
            folder.mkdir(parents=True, exist_ok=True)
            for row in rows[number * each : (number + 1) * each]:
                style(Image.fromarray(images[row])).save(folder / f"{row}.png")
                written += 1
    return written


def main() -> None:
    """Write a tree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target", type=Path)
    public_data.add_arguments(parser, weights=False)
    given = parser.parse_args()
    print(write_tree(*public_data.training(given.data), given.target))


if __name__ == "__main__":
    public_data.ended(main)
