"""A function run again in processes that never ran it, with coins of their own.

One process is forked before the function's first call and never calls it. For every question it forks another one,
which draws new coins, calls the function on the data that are named, one after the other, sends the last message
back and ends. So every such call is a first one, or the one after exactly these: what counts calls, or remembers
records, has nothing to count. Coins are the global generators of Python, NumPy and torch, and every generator that
the function reaches: by its closure, its defaults, its globals, its object and what these hold.

What is not kept apart: files, the network and the clock. Functions that hold threads or a GPU may not survive a
fork; a call that takes far longer than the first one is given up.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import random
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from types import CodeType, FunctionType, ModuleType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fedassay.execution.apart import stir
from fedassay.execution.forks import in_child, prepare, reply, server
from fedassay.recorders.plain import as_array
from fedassay.support.errors import DataError, NotRunError
from fedassay.support.seeds import Seeds
from fedassay.support.text import cut, shown

Array = NDArray[Any]
Message = dict[str, Array]

_PATIENCE = 20.0
"""Seconds that a call may take, besides as many times what the first one took."""

_REACHED = 200_000
"""Objects that are looked at for generators."""


class Fresh:
    """A process forked here and now, which has to be before the function's first call.

    Args:
        fn: Maps an array to a message, arrays by name.

    Raises:
        NotRunError: This system cannot fork.
    """

    def __init__(self, fn: Callable[[Array], Mapping[str, Any]]) -> None:
        if not hasattr(os, "fork"):
            raise NotRunError("this system cannot fork")
        self._told: list[Array] = []
        self._here, self._process = server(lambda there: _serve(there, fn))
        self.patience = _PATIENCE

    def __enter__(self) -> Fresh:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; it can be asked nothing afterwards."""
        self._here.close()
        # One that hangs in a call would not hear of it, nor would what it forked.
        for end in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                end(self._process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._process, 0)

    def message(self, calls: Sequence[Array], coins: int | None) -> Message:
        """The message of the last of some calls, made in a process of their own.

        Args:
            calls: Arguments of the calls, one after the other; the function gets copies.
            coins: Names the coins; None: those that the function had when the process was forked.

        Raises:
            NotRunError: The process ended, or took far longer than the first call did.
            MemoryError: A process was killed twice.
            Exception: The error that the function raised.
        """
        self._here.send(([self._place(data) for data in calls], coins))
        if not self._here.poll(self.patience):
            raise NotRunError("a process that was forked for it gave no answer")
        try:
            found = pickle.loads(self._here.recv_bytes())  # noqa: S301
        except EOFError:
            raise NotRunError("the process that was forked for it has ended") from None
        if isinstance(found, BaseException):
            raise found
        message: Message = found
        return message

    def took(self, seconds: float) -> None:
        """Note how long a call takes."""
        self.patience = _PATIENCE * (1 + seconds)

    def _place(self, data: Array) -> int:
        """The number of a data set, sent when it is first asked about."""
        for place, known in enumerate(self._told):
            if known is data:
                return place
        self._told.append(data)
        self._here.send(data)
        return len(self._told) - 1


def _serve(asked: Connection, fn: Callable[[Array], Mapping[str, Any]]) -> NoReturn:
    """Fork a process for every question, until the asker ends."""
    # One that hangs in a call is ended with what it forked.
    os.setsid()
    known: list[Array] = []
    status = 0
    try:
        prepare()
        found = list(generators_of(fn))
        while (question := asked.recv()) is not None:
            if isinstance(question, np.ndarray):
                known.append(question)
                continue
            calls, coins = question
            make = partial(_answered, fn, [known[place] for place in calls], coins, found)
            asked.send_bytes(reply(partial(in_child, make)))
    except (EOFError, OSError):
        pass
    except BaseException:  # noqa: BLE001
        status = 1
    finally:
        os._exit(status)


def _answered(
    fn: Callable[[Array], Mapping[str, Any]], calls: Sequence[Array], coins: int | None, found: Sequence[object]
) -> bytes:
    warnings.simplefilter("ignore")
    try:
        if coins is not None:
            seeds = Seeds(coins)
            stir(seeds)
            for place, generator in enumerate(found):
                reseed(generator, seeds.integer("generator", place))
        messages = [fn(data.copy()) for data in calls]
        return pickle.dumps(message_of(messages[-1]))
    except Exception as error:  # noqa: BLE001
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))


def generators_of(fn: object) -> Iterator[object]:
    """Every generator of random numbers that a function reaches, each once, in the order of finding."""
    import torch

    kinds = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)
    left, seen = [fn], {id(fn)}
    while left and len(seen) < _REACHED:
        each = left.pop(0)
        if isinstance(each, kinds):
            yield each
            continue
        for other in _reached(each):
            if id(other) not in seen and not isinstance(other, _LEAVES):
                seen.add(id(other))
                left.append(other)


_LEAVES = (str, bytes, int, float, complex, bool, type(None), np.ndarray, ModuleType, CodeType)


def _reached(each: object) -> Iterator[object]:
    """Objects that an object holds: for functions the globals that they name, for others the collector's view."""
    if isinstance(each, FunctionType):
        for name in _names(each.__code__):
            if name in each.__globals__:
                yield each.__globals__[name]
        yield from (cell.cell_contents for cell in each.__closure__ or () if _is_filled(cell))
        yield from each.__defaults__ or ()
        yield from (each.__kwdefaults__ or {}).values()
        yield from vars(each).values()
    elif isinstance(each, type):
        if each.__module__ not in ("builtins", "abc", "typing"):
            yield from (part for part in vars(each).values() if isinstance(part, FunctionType | property))
    else:
        yield from gc.get_referents(each)
        yield type(each)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def reseed(generator: object, seed: int) -> None:
    """Give a generator other coins; one that takes none keeps its own."""
    if isinstance(generator, np.random.Generator):
        with contextlib.suppress(Exception):
            kind = type(generator.bit_generator)
            generator.bit_generator.state = kind(seed).state
    elif isinstance(generator, np.random.RandomState):
        generator.seed(seed % 2**32)
    elif isinstance(generator, random.Random):
        generator.seed(seed)
    else:
        with contextlib.suppress(Exception):
            generator.manual_seed(seed % 2**63)  # type: ignore[attr-defined]


def timed(fn: Callable[[Array], Mapping[str, Any]], data: Array) -> tuple[Message, float]:
    """A message made here and now, and how long it took in seconds."""
    started = time.monotonic()
    message = message_of(fn(data.copy()))
    return message, time.monotonic() - started


def message_of(sent: object) -> Message:
    """Convert a function's return value to a message.

    Raises:
        DataError: It is no message.
    """
    if not isinstance(sent, Mapping) or not sent or not all(isinstance(name, str) for name in sent):
        names = sent if isinstance(sent, Mapping) else {}
        given = f"a mapping with the keys {cut(str(list(names)), 100)}" if names else shown(sent)
        raise DataError(
            f"audit_function: the function gave {given} for its message; allowed: a mapping of one name or more "
            "to arrays of numbers"
        )
    return {name: as_array(values, name) for name, values in sent.items()}
