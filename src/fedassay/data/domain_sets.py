"""Photographs, drawings and sketches of the same classes, for domain generalization, from their own folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedassay.data.listed_files import Listed, Picture, home, in_folders, of_files
from fedassay.data.loading import DataRequest, allow_only
from fedassay.support.errors import DataError
from fedassay.support.registry import register

_PACS = ("art_painting", "cartoon", "photo", "sketch")
_OFFICE = ("Art", "Clipart", "Product", "Real World")


@register("dataset", "pacs")
@of_files
def pacs(request: DataRequest) -> Listed:
    """PACS (Li et al. 2017): 9,991 colour images of 227x227 in 7 classes and 4 domains (`root` or `path`).

    Folders of domain/class/image as they are unpacked, `PACS`, with `kfold` between or not: `art_painting`,
    `cartoon`, `photo`, `sketch`. There is no official test set; `data.test_domain` leaves one domain out.

    Raises:
        DataError: The folder or one of its domains is not there, or an image is broken.
    """
    allow_only(request, "root", "path")
    root = home(request, ("PACS", "pacs"), "PACS, sketchx.eecs.qmul.ac.uk")
    inner = root / "kfold"
    return _domains(root, inner if inner.is_dir() else root, _PACS)


@register("dataset", "office_home")
@of_files
def office_home(request: DataRequest) -> Listed:
    """Office-Home (Venkateswara et al. 2017): 15,588 colour images in 65 classes and 4 domains (`root` or `path`).

    Folders of domain/class/image as they are unpacked, `OfficeHomeDataset_10072016`: `Art`, `Clipart`, `Product`,
    `Real World`. Images differ in size, so `size` must be given. There is no official test set;
    `data.test_domain` leaves one domain out.

    Raises:
        DataError: The folder or one of its domains is not there, or an image is broken.
    """
    allow_only(request, "root", "path")
    names = ("OfficeHomeDataset_10072016", "OfficeHome", "office_home")
    root = home(request, names, "Office-Home, hemanthdv.org")
    return _domains(root, root, _OFFICE)


def _domains(root: Path, inner: Path, domains: Sequence[str]) -> Listed:
    """Folders of domain/class/image; classes are those of any domain."""
    there = {path.name: path for path in inner.iterdir() if path.is_dir()}
    if missing := [name for name in domains if name not in there]:
        raise DataError(
            f"{root.name}: has no folder {', '.join(missing)}; allowed: domain/class/image for each of "
            f"{', '.join(domains)}"
        )
    train = [
        Picture(path, label, domain)
        for domain in domains
        for label, paths in in_folders(there[domain]).items()
        for path in paths
    ]
    return Listed(root, train, (), tuple(sorted({picture.label for picture in train})), tuple(domains))
