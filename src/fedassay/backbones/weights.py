"""Checks of the weights that a plan names for a backbone, before anything is computed."""

from __future__ import annotations

from pathlib import Path

from fedassay.backbones.base import BackboneSize, Preprocessing, Weights
from fedassay.backbones.torchvision_models import chosen, versions
from fedassay.support.errors import DataError, PlanError
from fedassay.support.paths import find, is_path
from fedassay.support.registry import entries, size_of
from fedassay.support.text import shown
from fedassay.support.torchvision import import_torchvision

_IMAGENET = ("imagenet", "random")
"""Words for the weights of torchvision's models, beside torchvision's own."""


def check_weights(name: str, weights: str | None, base: Path) -> None:
    """Refuse weights that a backbone does not take. Files of weights are not opened.

    A name without a folder and an ending must be a word that the backbone knows, or a file that is there. Whether
    other paths lead to a file is seen when it is looked for.

    Args:
        name: A backbone's name, registered or torchvision's.
        weights: As written in the plan; None: left out.
        base: Folder of the plan.

    Raises:
        PlanError: The backbone takes other weights; the message says which.
    """
    taken = _taken(name)
    if taken is None or weights in taken.words or (weights is None and not taken.needed):
        return
    if taken.file and weights is not None and (is_path(weights) or _is_there(weights, base)):
        return
    allowed = [*taken.words, *(["the path of a state dict"] if taken.file else [])]
    given = "nothing" if weights is None else shown(weights)
    raise PlanError(
        f"backbone.weights: {given} given; {name} takes {', '.join(allowed) or 'none: it has no weights'}"
    )


def check_preprocessing(name: str, asked: Preprocessing) -> None:
    """Refuse preprocessing that a backbone cannot take, as far as that is known before it is built.

    Raises:
        PlanError: Means for another number of channels than the network's, or a mean without a deviation.
    """
    size = size_of("backbone", name) if name in entries("backbone") else BackboneSize(None, 0.0, 1, channels=3)
    channels = size.channels if isinstance(size, BackboneSize) else None
    if channels is not None:
        asked.check(name, channels)
    elif (asked.mean is None) != (asked.std is None):
        asked.check(name, 1)


def trained_on_public(name: str, weights: str | None) -> bool:
    """Whether a backbone with these weights, which it takes, is trained on the public records."""
    taken = _taken(name) if name in entries("backbone") else None
    return taken is not None and (weights or next(iter(taken.words), "")) == "public"


def published_url(name: str, weights: str | None) -> str | None:
    """Return the URL of the weights that a plan names; None for a path, and for weights without a file.

    Args:
        name: A backbone's name, registered or torchvision's.
        weights: As written in the plan; None: left out.
    """
    if name in entries("backbone"):
        # A registered backbone lists its files, so torchvision, which takes seconds to import, is not asked.
        taken = _taken(name)
        return None if taken is None else taken.urls.get(weights or next(iter(taken.words), ""))
    models = import_torchvision().models
    if name not in models.list_models(module=models):
        return None
    choice = chosen(models.get_model_weights(name), weights or _IMAGENET[0])
    return None if choice is None else str(choice.url)


def _taken(name: str) -> Weights | None:
    """Return the permitted weights of a backbone; None if unknown: other packages need not state them."""
    if name not in entries("backbone"):
        published = import_torchvision().models.get_model_weights(name)
        return Weights((*_IMAGENET, *versions(published), *published.__members__), file=True)
    size = size_of("backbone", name)
    return size.weights if isinstance(size, BackboneSize) else None


def _is_there(weights: str, base: Path) -> bool:
    try:
        find(weights, base, "backbone.weights")
    except DataError:
        return False
    return True
