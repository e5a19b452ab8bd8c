"""All tests of what was received, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedassay.exchange.received.features import check_features
from fedassay.exchange.received.layers import check_layer
from fedassay.exchange.received.maps import check_map
from fedassay.exchange.received.reading import read_features, read_own, read_received
from fedassay.exchange.received.tested import Tested
from fedassay.support.errors import DataError


@dataclass(frozen=True)
class Checked:
    """Results of the tests.

    Attributes:
        tests: In their order.
        untested: Contents of the file that no test looked at.
    """

    tests: tuple[Tested, ...]
    untested: tuple[str, ...]

    @property
    def found(self) -> bool:
        """Whether any test speaks against what was received."""
        return any(each.found for each in self.tests)

    def lines(self) -> list[str]:
        """Lines for a terminal."""
        against = sorted({each.rule for each in self.tests if each.found})
        bad = f"It looks like a trap, or is other than it is said to be: {', '.join(against)}."
        out = [bad if against else "No test speaks against it."]
        out += [f"{'✖' if each.found else '·'} {each.about}: {each.rule}: {each.text}" for each in self.tests]
        if self.untested:
            out.append(f"Not looked at: {', '.join(self.untested)}.")
        if not against:
            out.append("A trap of another kind, or for others' records, is not excluded.")
        return out

    def as_dict(self) -> dict[str, Any]:
        """The results as a JSON object."""
        return {
            "found": self.found,
            "tests": [each.as_dict() for each in self.tests],
            "untested": list(self.untested),
        }


def check_received(path: Path, own: Path, *, fresh: bool = False, bandwidth: float | None = None) -> Checked:
    """Test a server's file on a client's own records.

    Args:
        path: The file, see `fedassay.exchange.received.reading.read_received`.
        own: The records, see `fedassay.exchange.received.reading.read_own`, and their features under the received
            network, where it is a backbone; see `read_features` there.
        fresh: Whether layers are said to be freshly initialised.
        bandwidth: Of a map, as it is stated; None: not stated.

    Raises:
        DataError: A file cannot be used, or the records are rows of no received layer or map.
    """
    rows, features = read_own(own), read_features(own)
    if features is not None and len(features.rows) != len(rows):
        raise DataError(
            f"{own}: {len(rows)} records x, and {len(features.rows)} rows of features f; allowed: as many"
        )
    received = read_received(path, any_network=features is not None)
    rng, tests, untested = np.random.default_rng(0), [], list(received.others)
    for layer in received.layers:
        if layer.weights.shape[1] == rows.shape[1]:
            tests += check_layer(layer.name, layer.weights, layer.bias, rows, rng, fresh=fresh)
        else:
            untested.append(layer.name)
    for name, known in received.maps.items():
        if len(known.matrix) == rows.shape[1]:
            tests += check_map(name, known, rows, rng, bandwidth)
        else:
            untested.append(name)
    if features is not None:
        tests.append(check_features(features.rows, features.labels))
    if not tests:
        widths = [each.weights.shape[1] for each in received.layers] + [
            len(m.matrix) for m in received.maps.values()
        ]
        raise DataError(
            f"{own}: rows of {rows.shape[1]} numbers, and {path} takes rows of {', '.join(map(str, widths))}; "
            "allowed: one of these"
        )
    return Checked(tuple(tests), tuple(untested))
