"""Random streams: one independent stream for every purpose, derived from one seed.

A stream depends only on the seed and on its own path of names, never on earlier draws. Results do therefore not
change with the order of cells or with the number of workers.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Seeds:
    """The root of a run's random streams.

    Attributes:
        seed: The plan's seed; None draws the root from the operating system's generator, so that
            the noise of a run cannot be recomputed from its record.
    """

    seed: int | None
    _root: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if not self._root:
            root = secrets.token_bytes(32) if self.seed is None else f"seed:{self.seed}".encode()
            object.__setattr__(self, "_root", hashlib.sha256(root).digest())

    def child(self, *path: str | int) -> Seeds:
        """The seeds of a part; streams of different parts are independent."""
        return Seeds(self.seed, hashlib.sha256(self._root + _encode(path)).digest())

    def numpy(self, *path: str | int) -> np.random.Generator:
        """A NumPy generator for the purpose named by `path`."""
        digest = hashlib.sha256(self._root + _encode(path)).digest()
        return np.random.default_rng(np.random.SeedSequence(int.from_bytes(digest, "big")))

    def integer(self, *path: str | int) -> int:
        """A seed in [0, 2^63) for libraries that take an integer."""
        digest = hashlib.sha256(self._root + _encode(path)).digest()
        return int.from_bytes(digest[:8], "big") >> 1


def _encode(path: tuple[str | int, ...]) -> bytes:
    # Length-prefixed, so that ("ab", "c") and ("a", "bc") differ.
    return b"".join(f"{len(str(part))}:{type(part).__name__}:{part};".encode() for part in path)
