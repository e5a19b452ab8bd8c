"""The files that a plan names, looked for before anything is computed: a wrong path is reported at once."""

from __future__ import annotations

from pathlib import Path

from fedassay.data.candidates import ALLOWED, KEY
from fedassay.plan.schema import Plan
from fedassay.similarity.spec import chosen
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.paths import find, is_path
from fedassay.support.reading import regular_size
from fedassay.support.registry import entries


def check_files(plan: Plan, base: Path) -> None:
    """Refuse a plan with missing files of weights, or of candidates.

    Images are looked at by `fedassay.plan.own_images`, the files' content when they are loaded.

    Args:
        plan: The plan.
        base: Its folder, for relative paths.

    Raises:
        DataError: A file is missing, is no regular file, or is larger than any that is read.
    """
    lpips = chosen(plan.similarity.lpips)
    if lpips is not None and lpips.trunk is not None:
        _check(lpips.trunk, base, "similarity.lpips.trunk")
    if plan.knowledge.gallery is not None:
        _check_gallery(plan.knowledge.gallery, base)
    weights = plan.backbone.weights
    # `fedassay.backbones.weights` checks values that are no path. The values for backbones of other packages are
    # their own matter.
    known = entries("backbone").get(plan.backbone.name)
    ours = known is None or not known.package
    if ours and weights is not None and is_path(weights):
        _check(weights, base, "backbone.weights")


def _check_gallery(path: str, base: Path) -> None:
    """Candidates are a folder or an archive; what is in it is read with the data (`fedassay.data.candidates`)."""
    found = find(path, base, KEY)
    if found.is_dir():
        return
    if found.suffix != ".npz":
        raise DataError(f"{KEY}: {found.name} given; allowed: {ALLOWED}")
    regular_size(found, limits.ARRAY_BYTES)


def _check(path: str, base: Path, key: str) -> None:
    regular_size(find(path, base, key), limits.WEIGHTS_BYTES)
