"""Public maps: what the server makes known maps anybody's features as the clients' are mapped."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.exchange.message import SERVER
from fedassay.exchange.public_map import (
    PublicMap,
    as_summed,
    fourier_features,
    projection,
    public_map,
    separating_bandwidth,
)
from fedassay.exchange.view import ThreatModel, View

ROWS = np.random.default_rng(0).standard_normal((40, 6))


def _view(known: PublicMap | None) -> View:
    return View(() if known is None else tuple(known.broadcast(["client/0", "client/1"])), 3, ThreatModel())


def test_fourier_features_approximate_the_gaussian_kernel() -> None:
    mapped = fourier_features(6, 40_000, 2.0, np.random.default_rng(1))(ROWS)
    apart = ((ROWS[:, None] - ROWS[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(mapped @ mapped.T, np.exp(-apart / (2 * 2.0**2)), atol=0.03)


def test_a_projection_keeps_norms_in_the_mean() -> None:
    own = projection(6, 30_000, np.random.default_rng(1))
    assert own.matrix.dtype == np.float32
    np.testing.assert_allclose(own(ROWS), ROWS @ own.matrix.astype(np.float64))
    np.testing.assert_allclose((own(ROWS) ** 2).sum(axis=1), (ROWS**2).sum(axis=1) * 30_000 / 6, rtol=0.1)


@pytest.mark.parametrize("phases", [False, True])
def test_the_map_is_read_from_what_is_broadcast(phases: bool) -> None:
    rng = np.random.default_rng(1)
    own = fourier_features(6, 10, 1.0, rng) if phases else projection(6, 10, rng)
    messages = own.broadcast(["client/0", "client/1"])
    assert [(each.sender, each.receiver) for each in messages] == [(SERVER, "client/0"), (SERVER, "client/1")]
    kinds = [item.kind for item in messages[0].fields.values()]
    assert kinds == (["projection", "phases"] if phases else ["projection"])
    assert {item.release.mechanism for item in messages[0].fields.values()} == {"public"}
    found = public_map(_view(own), 6)
    assert found is not None
    np.testing.assert_array_equal(found(ROWS), own(ROWS))
    assert public_map(_view(own), 7) is None
    assert public_map(_view(None), 6) is None


def test_features_are_mapped_and_widened_as_they_are_summed_up() -> None:
    own = projection(6, 10, np.random.default_rng(1))
    mapped = as_summed(_view(own), ROWS, 10)
    assert mapped is not None
    np.testing.assert_array_equal(mapped, own(ROWS))
    wider = as_summed(_view(own), ROWS, 11)
    assert wider is not None
    np.testing.assert_array_equal(wider, np.concatenate([own(ROWS), np.ones((40, 1))], axis=1))
    plain = as_summed(_view(None), ROWS, 6)
    assert plain is not None
    np.testing.assert_array_equal(plain, ROWS)
    assert as_summed(_view(own), ROWS, 12) is None
    assert as_summed(_view(None), np.full((2, 6), np.inf), 6) is None


def test_a_bandwidth_is_a_quarter_of_small_distances_to_others() -> None:
    line = np.array([0.0, 0.0, 4.0, 12.0, 28.0])[:, None]
    # Nearest others: 0 for copies, which say nothing, then 4, 8 and 16.
    assert separating_bandwidth(line) == pytest.approx(np.quantile([4, 8, 16], 0.05) / 4)
    assert separating_bandwidth(np.ones((5, 2))) == 1.0
    mapped = fourier_features(6, 40_000, separating_bandwidth(ROWS), np.random.default_rng(1))(ROWS)
    assert np.abs(mapped @ mapped.T - np.eye(40)).max() < 0.03
