"""Gaussian mixtures of many groups at once: fitting, transport, density and sampling."""

from fedassay.mixtures.em import FitReport, fit_mixtures
from fedassay.mixtures.packed import (
    Family,
    Mixtures,
    concatenate,
    from_transport,
    pack_lower,
    parameters_sent,
    project_psd,
    to_transport,
    unpack_lower,
)
from fedassay.mixtures.sampling import log_density, sample_mixtures

__all__ = [
    "Family",
    "FitReport",
    "Mixtures",
    "concatenate",
    "fit_mixtures",
    "from_transport",
    "log_density",
    "pack_lower",
    "parameters_sent",
    "project_psd",
    "sample_mixtures",
    "to_transport",
    "unpack_lower",
]
