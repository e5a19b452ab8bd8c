"""The base of every component: a frozen model with a field for each of its keys in a plan."""

from __future__ import annotations

from typing import Any, Protocol


class Configured(Protocol):
    """A component with its parameters; `fedassay.support.types.Parameters` gives all of it."""

    def model_dump(self, *, mode: str = ...) -> dict[str, Any]:
        """The parameters, defaults filled in."""
        ...
