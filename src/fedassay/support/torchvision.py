"""The one door to torchvision.

The torchvision wheel of the package index is built for CUDA. Beside a CPU build of torch its
compiled library does not load, and `import torchvision` then ends in `RuntimeError: operator
torchvision::nms does not exist`, because its shape rules for that operator find no operator to
attach to. Everything that imports torchvision (diffusers' U-Net, lpips) fails with it. Declaring
the two operators, without a kernel, is enough: data sets, models and transforms are plain
Python. Only non-maximum suppression and compiled image decoding stay unavailable, and nothing
here uses either.

Call `import_torchvision()` instead of importing torchvision, and before importing diffusers or
lpips. On a good installation it is the plain import.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import torch

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_declared: list[torch.library.Library] = []
"""Declarations live as long as their `Library`; letting go of it would withdraw the operators."""


def import_torchvision() -> ModuleType:
    """Import torchvision, and mend an installation with compiled operators that do not load.

    Returns:
        The module `torchvision`, with `datasets`, `models`, `transforms`, `utils` as attributes.

    Raises:
        ImportError: torchvision is not installed.
        RuntimeError: It fails to import for a reason other than a missing operator.
    """
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error) or "does not exist" not in str(error):
            raise
    _declare_operators()
    # The failed import leaves submodules behind that hold on to the half-built package.
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    return importlib.import_module("torchvision")


def _declare_operators() -> None:
    missing = [schema for name, schema in _SCHEMAS.items() if not hasattr(torch.ops.torchvision, name)]
    if not missing:
        return
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for schema in missing:
        library.define(schema)  # type: ignore[no-untyped-call]
    _declared.append(library)
