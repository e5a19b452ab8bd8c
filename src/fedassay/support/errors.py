"""The errors a user can cause, each ending in one message and exit code 2.

Everything else that goes wrong inside a cell is recorded there and ends in exit code 1.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self

from fedassay.support.signals import Stopped


class FedassayError(Exception):
    """Base of the errors that are shown as one message, without a traceback."""


class PlanError(FedassayError):
    """The plan, the command line or a policy is wrong.

    The message says where (the key), what was given, and what is allowed.
    """


class DataError(FedassayError):
    """A file given by the user cannot be used: where, what was found, what is allowed."""


class UnrelatedTableError(DataError):
    """A table has no column of files, labels or persons: it does not describe the images."""


class MissingExtraError(FedassayError, ImportError):
    """An optional package is not installed; the message names the extra of fedassay that brings it."""


class Why(str):
    """A reason for an absence in words, with the role and number of the missing records beside it.

    Attributes:
        role: Owner of the missing records: a data role, or `clients`; empty where no records are missing.
        held: Number of records that there are.
        needed: Number of records that would suffice.
        kind: Another kind of obstacle (`fedassay.records.facts.ObstacleKind`), where that is why; else empty.
        key: The attack parameter that is too small, where that is the reason: `held` and `needed` are its values.
    """

    role: str
    held: int | None
    needed: int | None
    kind: str
    key: str

    def __new__(
        cls,
        words: str,
        role: str = "",
        held: int | None = None,
        needed: int | None = None,
        *,
        kind: str = "",
        key: str = "",
    ) -> Why:
        """The words, and the facts of the reason."""
        made = super().__new__(cls, words)
        made.role, made.held, made.needed, made.kind, made.key = role, held, needed, kind, key
        return made

    def __reduce__(self) -> tuple[Callable[[], Why], tuple[()]]:
        """Copy and pickle the facts with the words."""
        return partial(Why, str(self), self.role, self.held, self.needed, kind=self.kind, key=self.key), ()

    def said(self, words: str) -> Why:
        """The same error with another message."""
        return Why(words, self.role, self.held, self.needed, kind=self.kind, key=self.key)


def above_limit(words: str, key: str, held: int, needed: int) -> Why:
    """Return the reason that an attack parameter, now `held`, is too small for a message that needs `needed`."""
    return Why(words, held=held, needed=needed, kind="too_large", key=key)


class NotRunError(FedassayError):
    """A part of a cell cannot be run on its input; the message becomes the `not_run` reason.

    Attributes:
        role: Owner of the missing records, where that is the reason: a data role, or `clients`; else empty.
        held: Number of records that there are.
        needed: Number of records that would suffice.
        key: The attack parameter that is too small, where that is the reason; see `Why`.
    """

    def __init__(
        self, message: str, *, role: str = "", held: int | None = None, needed: int | None = None, key: str = ""
    ) -> None:
        super().__init__(message)
        self.role, self.held, self.needed, self.key = role, held, needed, key

    @classmethod
    def of(cls, why: Why) -> Self:
        """Return the error for a reason, with the facts on what is missing."""
        return cls(str(why), role=why.role, held=why.held, needed=why.needed, key=why.key)

    @property
    def why(self) -> Why:
        """The message, and the facts on what is missing."""
        kind = "too_large" if self.key else ""
        return Why(str(self), self.role, self.held, self.needed, kind=kind, key=self.key)


class NothingToReadError(NotRunError):
    """An attack or an audit found none of its inputs: it does not apply, which leaves nothing untested."""

    @property
    def why(self) -> Why:
        """The message, and that nothing is there to be read."""
        return Why(str(self), kind="nothing_to_read")


class OtherFeaturesError(NotRunError):
    """The messages hold features of networks that the adversary does not have."""

    @property
    def why(self) -> Why:
        """The message, with the obstacle kind `other_features`."""
        return Why(str(self), kind="other_features")


_NO_MEMORY = (
    *("can't allocate memory", "not enough memory", "std::bad_alloc", "Cannot allocate memory"),
    *("MemoryError", "memory allocation of", "PyObject pointer is null"),  # in Rust
)
"""Phrases by which libraries that do not raise MemoryError report a lack of memory."""


def is_of_a_library(error: BaseException) -> bool:
    """Whether an error is a library's own and no Exception, as a panic is in one that is written in Rust."""
    return not isinstance(error, Exception | KeyboardInterrupt | SystemExit | GeneratorExit | Stopped)


def unexpected(error: BaseException) -> str:
    """Describe an error that was not raised on purpose: its type, its message, and the line of the code."""
    from pydantic import ValidationError

    from fedassay.support.validation import explain

    # If a model refuses its input, report the line that supplied the input.
    frames = traceback.extract_tb(error.__traceback__)
    last = next((frame for frame in reversed(frames) if "pydantic" not in Path(frame.filename).parts), frames[-1])
    name = type(error).__name__
    # If a method declares an impossible release, list the possible ones, as for a plan.
    words = explain(error, None, error.title) if isinstance(error, ValidationError) else f"{name}: {error}"
    return f"{words} ({Path(last.filename).name}:{last.lineno})"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is about memory, of the machine or of a GPU."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # torch.OutOfMemoryError is a RuntimeError; torch is not imported to ask.
    return (isinstance(error, RuntimeError) or is_of_a_library(error)) and (
        type(error).__name__ == "OutOfMemoryError" or any(words in str(error) for words in _NO_MEMORY)
    )


OF_THE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})
"""Error numbers of a full or read-only disk: the next write would fail as well."""

_OF_PROCESSES = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE})
"""Error numbers of a system with too many processes or open files."""


def is_of_the_machine(error: BaseException) -> bool:
    """Whether an error is about a resource that the machine has exhausted, and not about the code that met it."""
    if isinstance(error, OSError) and error.errno in OF_THE_DISK | _OF_PROCESSES:
        return True
    return is_out_of_memory(error)


def first_line(error: BaseException) -> str:
    """Return an error's message on one line, or its type where it has none."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
