"""Statistics that NVFlare's federated statistics job writes as JSON, as arrays of each site over its features.

The layout is feature, statistic, site, data set, value: `{"age": {"mean": {"site-1": {"train": 47.5}}}}`, or with
the statistic as the outermost key and the feature as the innermost. `Global` beside the sites stands for all of
them. A histogram is a list of bins, each `[low, high, records]`. Data sets become the first side of each array.

The `var` of a site is its share of the variance of all records, about their mean and over their number less one.
The variance of the site's own records follows from it, where the file has counts and means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.recorders.files.names import whose

Named = tuple[tuple[str, ...], NDArray[Any]]

_NUMBERS = ("count", "sum", "mean", "stddev", "var", "min", "max", "failure_count")
_STATISTICS = frozenset({*_NUMBERS, "histogram", "quantile", "percentile"})
_ALL = "Global"


def is_statistics(held: Any) -> bool:
    """Whether a file's content has this layout."""
    return _by_statistic(held) is not None


def arrays_of_statistics(held: Any) -> Iterator[Named]:
    """Yield the arrays of every site with the keys that lead to each; those of `Global` where there is no site."""
    found = _by_statistic(held) or {}
    # values[site][statistic][data set][feature]
    values: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    for (feature, statistic, site, part), value in found.items():
        values.setdefault(site, {}).setdefault(statistic, {}).setdefault(part, {})[feature] = value
    sites = [site for site in values if site != _ALL] or list(values)
    for site in sites:
        if site != _ALL and "var" in values[site]:
            values[site]["var"] = _own_variances(values[site], values.get(_ALL, {}))
        key = "aggregate" if site == _ALL else site if whose((site,), last=False).client else f"client={site}"
        for statistic, parts in values[site].items():
            for name, array in _arrays(statistic, parts):
                yield (key, name), array[0] if len(array) == 1 else array


def _own_variances(
    site: Mapping[str, Mapping[str, Mapping[str, Any]]], everybody: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> dict[str, dict[str, Any]]:
    """Return the variances of a site's own records, over their number less one; None where they do not follow."""

    def own(part: str, feature: str, value: float) -> float | None:
        try:
            count, mean = (float(site[name][part][feature]) for name in ("count", "mean"))
            total, center = (float(everybody[name][part][feature]) for name in ("count", "mean"))
        except (KeyError, TypeError, ValueError):
            return None
        return (value * (total - 1) - count * (mean - center) ** 2) / (count - 1) if count > 1 else None

    return {
        part: {feature: own(part, feature, value) for feature, value in features.items()}
        for part, features in site["var"].items()
    }


def _by_statistic(held: Any) -> dict[tuple[str, str, str, str], Any] | None:
    """Return the values by feature, statistic, site and data set; None for any other layout."""
    if not isinstance(held, Mapping) or not all(isinstance(own, Mapping) and own for own in held.values()):
        return None
    if set(held) <= _STATISTICS:
        return _statistics_first(held)
    if {key for own in held.values() for key in own} <= _STATISTICS:
        return _features_first(held)
    return None


def _statistics_first(held: Mapping[Any, Any]) -> dict[tuple[str, str, str, str], Any] | None:
    """Values of `held[statistic][site][data set][feature]`; None where a level is no mapping, or all are empty."""
    found: dict[tuple[str, str, str, str], Any] = {}
    for statistic, sites in held.items():
        for site, parts in sites.items():
            if not isinstance(parts, Mapping) or not all(isinstance(own, Mapping) for own in parts.values()):
                return None
            found |= {
                (feature, statistic, site, part): value
                for part, own in parts.items()
                for feature, value in own.items()
            }
    return found or None


def _features_first(held: Mapping[Any, Any]) -> dict[tuple[str, str, str, str], Any] | None:
    """Values of `held[feature][statistic][site]`, by data set if there are several; None for any other layout."""
    found: dict[tuple[str, str, str, str], Any] = {}
    for feature, statistics in held.items():
        for statistic, sites in statistics.items():
            if not isinstance(sites, Mapping) or not sites:
                return None
            for site, parts in sites.items():
                named = parts if isinstance(parts, Mapping) else {"": parts}
                if statistic in _NUMBERS and any(isinstance(value, list) for value in named.values()):
                    return None
                found |= {(feature, statistic, site, part): value for part, value in named.items()}
    return found or None


def _arrays(statistic: str, parts: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield one site's arrays of one statistic, with sides for data sets and features."""
    if statistic == "failure_count":
        return
    rows = [list(features.values()) for features in parts.values()]
    if statistic == "histogram":
        bins = _array(rows)
        if bins is not None and bins.ndim == 4 and bins.shape[-1] == 3:
            yield "histogram", bins[..., 2]
            yield "bin_edges", np.concatenate([bins[..., 0], bins[..., -1:, 1]], axis=-1)
        return
    if statistic in {"quantile", "percentile"}:
        rows = [[list(own.values()) if isinstance(own, Mapping) else own for own in row] for row in rows]
    values = _array(rows)
    if values is None:
        return
    if statistic == "count" and values.ndim == 2 and bool((values == values[:, :1]).all()):
        values = np.rint(values[:, 0]).astype(np.int64)
    yield statistic, values


def _array(rows: list[Any]) -> NDArray[np.float64] | None:
    """Convert lists of equal lengths to an array; None where numbers are missing or not finite."""
    try:
        values = np.array(rows, np.float64)
    except (TypeError, ValueError):
        return None
    return values if np.isfinite(values).all() else None
