"""Frozen feature extractors: the f(x) that clients share and attackers may know.

A backbone is either registered in this package or one of torchvision's classification models,
under torchvision's own name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fedassay.support.errors import PlanError
from fedassay.support.registry import entries, lookup

if TYPE_CHECKING:
    from fedassay.backbones.base import Backbone, BackboneRequest

_MODEL = re.compile(r"^@register_model\([^)]*\)\n(?:@.*\n)*def (\w+)\(", re.MULTILINE)


def build(request: BackboneRequest) -> Backbone:
    """Build the backbone that a plan names, ready to extract features.

    Registered names come first; the fallback is torchvision's models.

    Raises:
        PlanError: No such backbone, or weights or a size that it does not take.
        DataError: A weights file is missing, broken or another network's.
    """
    from fedassay.backbones.weights import check_weights

    registered = entries("backbone")
    if request.name not in registered and not is_torchvision_name(request.name):
        raise PlanError(
            f"backbone.name: given {request.name!r}; allowed: {', '.join(registered)}, or a classification "
            "model of torchvision, such as resnet50"
        )
    check_weights(request.name, request.weights, request.base)
    if request.name not in registered:
        from fedassay.backbones.torchvision_models import torchvision_model

        return torchvision_model(request)
    make: Callable[[BackboneRequest], Backbone] = lookup("backbone", request.name)
    return make(request)


def is_torchvision_name(name: str) -> bool:
    """Whether torchvision has a classification model of this name."""
    return name in torchvision_names()


@cache
def torchvision_names() -> tuple[str, ...]:
    """Torchvision's classification models, in alphabetical order.

    Read from torchvision's source: importing it takes seconds, and `fedassay list` and the
    validation of a plan do without.
    """
    spec = find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        return ()
    folder = Path(spec.submodule_search_locations[0]) / "models"
    sources = (path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    return tuple(sorted(name for source in sources for name in _MODEL.findall(source)))
