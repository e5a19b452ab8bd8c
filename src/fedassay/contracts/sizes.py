"""Sizes of a plan's work: the arguments of cost functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sizes:
    """Sizes of a plan's work.

    Attributes:
        private: Records of all clients together.
        attacker: The adversary's own records.
        public: Public records.
        test: Test records.
        control: Records that controls are made of.
        clients: Number of clients.
        classes: Number of classes C.
        image: Height, width and channels.
        width: Features of the backbone, P.
        backbone: Floating-point operations of its forward pass on one image.
    """

    private: int
    attacker: int
    public: int
    test: int
    control: int
    clients: int
    classes: int
    image: tuple[int, int, int]
    width: int
    backbone: float

    @property
    def pixels(self) -> int:
        """Numbers in an image."""
        return self.image[0] * self.image[1] * self.image[2]


@dataclass(frozen=True)
class Load:
    """The cells of one seed, which an attack or an audit works on.

    Attributes:
        cells: Number of cells.
        seconds: Estimated time of running the methods of all of them once, as far as it can be estimated.
        private: The same of those at a finite epsilon.
    """

    cells: int
    seconds: float
    private: float


@dataclass(frozen=True)
class Planned:
    """The facts of a plan that show, before it runs, how much its tests can decide.

    Attributes:
        sizes: Sizes of its work.
        tests: One-sided tests in the whole run, for the correction of its levels.
        claims: Each finite epsilon with its delta, the smallest first.
        attacks: Those that the audit judges, by name, with their parameters.
    """

    sizes: Sizes
    tests: int
    claims: tuple[tuple[float, float], ...]
    attacks: tuple[tuple[str, Mapping[str, Any]], ...]
