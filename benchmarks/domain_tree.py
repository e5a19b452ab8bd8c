"""Folder trees of published layouts from images at hand: for plans of domains whose data set is not.

    python benchmarks/domain_tree.py four_styles [--layout pacs|office_home] [--data cifar10]
    python benchmarks/domain_tree.py two_tasks --layout tasks
    fedassay run configs/papers/fedcgs_table2.yaml --scale 0.5 --set data.path=four_styles --set data.size=32 ...

Seven classes in four domains, one style each: `photo` is the image as it is, `art_painting` smears it and keeps
few colours, `cartoon` keeps fewer between hard outlines, `sketch` keeps outlines alone; Office-Home's are called
Real World, Art, Clipart and Product. No image is in two domains. `tasks` has the even classes in one domain and
the odd ones in the other, as they are. Those are layouts and protocols, and none of the data sets' images.
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


Styles = dict[str, Callable[[Image.Image], Image.Image]]
STYLES: Styles = {
    "art_painting": painted,
    "cartoon": cartoon,
    "photo": lambda image: image,
    "sketch": sketch,
}
TASKS: Styles = {"even": lambda image: image, "odd": lambda image: image}
LAYOUTS: dict[str, Styles] = {
    "pacs": STYLES,
    "office_home": dict(zip(("Art", "Clipart", "Real World", "Product"), STYLES.values(), strict=True)),
    "tasks": TASKS,
}


def write_tree(
    images: public_data.Images,
    labels: public_data.Labels,
    target: Path,
    each: int = EACH,
    styles: Styles = STYLES,
) -> int:
    """Write `target`/domain/class/image.png; how many images.

    Args:
        images: In colour, (n, H, W, 3) uint8.
        labels: Theirs, (n,).
        target: A folder, made where it is not there.
        each: Images of a class in a domain.
        styles: By domain; `TASKS` deals out the classes, the others all classes to each domain.

    Raises:
        ValueError: A class has too few images.
    """
    written = 0
    for label in range(len(set(labels.tolist())) if styles is TASKS else CLASSES):
        dealt = [list(styles.items())[label % len(styles)]] if styles is TASKS else list(styles.items())
        rows = np.flatnonzero(labels == label)
        if len(rows) < each * len(dealt):
            raise ValueError(f"class {label}: {len(rows)} images given; needed: {each * len(dealt)}")
        for number, (domain, style) in enumerate(dealt):
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
    parser.add_argument("--layout", choices=sorted(LAYOUTS), default="pacs")
    public_data.add_arguments(parser, weights=False)
    given = parser.parse_args()
    print(write_tree(*public_data.training(given.data), given.target, styles=LAYOUTS[given.layout]))


if __name__ == "__main__":
    public_data.ended(main)
