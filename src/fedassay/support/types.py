"""Small value types that every model on disk shares."""

from __future__ import annotations

import math
from typing import Annotated, Any, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    field_validator,
)

from fedassay.support import limits

Floats = NDArray[np.floating[Any]]
"""An array of floats of any width; shapes are given where it is used."""
Matrix = NDArray[np.float64]
"""An array of doubles, of any shape."""
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Images = NDArray[np.uint8]
"""Images, shape (n, height, width, channels), 0 to 255."""


def _read_infinite(given: object) -> object:
    if isinstance(given, str) and given.strip().lower() in {"inf", "+inf", ".inf", "infinity"}:
        return math.inf
    return given


def _refuse_nan(value: float) -> float:
    if math.isnan(value):
        raise ValueError("allowed: a number")
    return value


def _write_infinite(value: float) -> float | str:
    return "inf" if value == math.inf else value


Extended = Annotated[
    float, BeforeValidator(_read_infinite), AfterValidator(_refuse_nan), PlainSerializer(_write_infinite)
]
"""A float that may be infinite but not NaN, written as the string "inf" since JSON has no infinity."""


Finite = Annotated[float, Field(allow_inf_nan=False)]
"""A float that is a number."""


def _kinds(annotation: Any) -> list[Any]:
    """Every type that an annotation holds."""
    return [annotation, *(each for part in get_args(annotation) for each in _kinds(part))]


def refuse_truth(cls: type[BaseModel], value: object, info: ValidationInfo) -> object:
    """Refuse true and false for a number, which the validation library takes for 1 and 0."""
    held = value if isinstance(value, list | tuple) else (value,)
    found = next((each for each in held if isinstance(each, bool)), None)
    if found is not None:
        kinds = _kinds(cls.model_fields[str(info.field_name)].annotation)
        if any(each in (int, float) for each in kinds) and not any(each in (bool, Any, object) for each in kinds):
            raise ValueError(f"given {str(found).lower()}; allowed: a number")
    return value


class Frozen(BaseModel):
    """A frozen model that refuses unknown keys: everything that goes to disk."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=False)


class Parameters(Frozen):
    """Keys of a plan: of one of its sections, or the parameters of a registered component.

    Each key is described under `Attributes:`, or in a string below the field (`fedassay.plan.keys`).
    """

    model_config = ConfigDict(use_attribute_docstrings=True, str_max_length=limits.NAME_LENGTH)
    _no_truth = field_validator("*", mode="before")(refuse_truth)
