"""Packages that only some uses need, asked for by name so that the error says which extra brings them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fedassay.support.errors import MissingExtraError


def optional(module: str, extra: str, what: str) -> Any:
    """Import a package that may not be installed.

    Args:
        module: The module, such as `pandas`.
        extra: The extra of fedassay that brings it.
        what: The feature that needs it, in a few words.

    Raises:
        MissingExtraError: It is not installed.
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingExtraError(
            f"{what}: needs {package}, which is not installed: pip install 'fedassay[{extra}]'"
        ) from None
