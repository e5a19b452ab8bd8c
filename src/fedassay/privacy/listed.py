"""Releases listed in a file by hand, for `fedassay account compose`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from fedassay.privacy.events import Event, GaussianEvent, PureEvent, Sampling, SubsampledGaussianEvent
from fedassay.support import limits
from fedassay.support.adjacency import Adjacency
from fedassay.support.errors import PlanError
from fedassay.support.types import Frozen
from fedassay.support.validation import explain
from fedassay.support.yaml_text import read_yaml


class _Gaussian(Frozen):
    mechanism: Literal["gaussian"]
    sigma: float = Field(gt=0, allow_inf_nan=False)
    sensitivity: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    count: int = Field(default=1, ge=1, le=limits.RELEASES)


class _DpSgd(Frozen):
    mechanism: Literal["dp_sgd"]
    noise_multiplier: float = Field(gt=0, allow_inf_nan=False)
    sampling_rate: float = Field(gt=0, le=1)
    steps: int = Field(ge=1, le=limits.STEPS)
    sampling: Sampling = "poisson"


class _Pure(Frozen):
    mechanism: Literal["pure"]
    epsilon: float = Field(gt=0, allow_inf_nan=False)
    count: int = Field(default=1, ge=1, le=limits.RELEASES)


_Release = Annotated[_Gaussian | _DpSgd | _Pure, Field(discriminator="mechanism")]
_Releases: TypeAdapter[list[_Gaussian | _DpSgd | _Pure]] = TypeAdapter(list[_Release])


def read_events(file: Path, adjacency: Adjacency = "add_remove") -> list[Event]:
    """The releases listed in a file, as events for the accountant under a relation.

    Raises:
        PlanError: The file cannot be read, or an entry is none that an accountant supports.
    """
    content = read_yaml(file)
    try:
        releases = _Releases.validate_python(content)
    except ValidationError as error:
        words = explain(error, None, str(file))
        raise PlanError(f"{words}; the file is a list of gaussian, dp_sgd and pure releases") from None
    if not releases:
        raise PlanError(f"{file}: the list is empty; at least one release is needed")
    count = sum(getattr(release, "count", 1) for release in releases)
    if count > limits.RELEASES:
        raise PlanError(f"{file}: lists {count:,} releases; allowed: {limits.RELEASES:,} in all")
    events: list[Event] = []
    for release in releases:
        match release:
            case _Gaussian():
                events += [GaussianEvent(release.sensitivity / release.sigma)] * release.count
            case _Pure():
                events += [PureEvent(release.epsilon)] * release.count
            case _DpSgd():
                events.append(
                    SubsampledGaussianEvent(
                        release.noise_multiplier,
                        release.sampling_rate,
                        release.steps,
                        adjacency,
                        sampling=release.sampling,
                    )
                )
    return events
