"""A change of one file of a package that is imported already: its functions get the changed code.

Every name by which a function is known elsewhere goes on to mean that function, so nothing is imported again. A
copy of the package on the disk, as audits get it, is the same and takes seconds.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from operators import ANSWER


def patch(file: str, source: str) -> None:
    """Give the functions of a file the code of a changed one.

    Args:
        file: Below the package's folder.
        source: The changed text; it differs within functions only.

    Raises:
        LookupError: A function that differs is not to be found in its module.
    """
    module = _module(file)
    changed = 0
    for code in _functions(compile(source, str(module.__file__), "exec")):
        function = _found(module, code.co_qualname)
        if function is None:
            raise LookupError(f"{file}: {code.co_qualname}")
        if function.__code__ != code:
            function.__code__ = code
            changed += 1
    if not changed:
        raise LookupError(f"{file}: nothing differs")


def forgetting(run: Callable[..., Any], file: str) -> Callable[..., Any]:
    """A run that begins with nothing remembered: a deployed client runs once, and no noise is drawn twice."""
    held = vars(_module(file))

    def fresh(*asked: Any) -> Any:
        for name in [name for name in held if name.startswith(ANSWER)]:
            del held[name]
        return run(*asked)

    return fresh


def _module(file: str) -> Any:
    return importlib.import_module("fedassay." + file.removesuffix(".py").replace("/", "."))


def _functions(code: CodeType) -> Iterator[CodeType]:
    """The functions of a module and of its classes; those inside functions belong to them."""
    for inner in code.co_consts:
        if not isinstance(inner, CodeType) or inner.co_name.startswith("<"):
            continue
        if inner.co_flags & 0x2:  # CO_NEWLOCALS: a function, and no class body
            yield inner
        else:
            yield from _functions(inner)


def _found(module: Any, name: str) -> FunctionType | None:
    """A function or method by its qualified name, under whatever it is wrapped in."""
    held: Any = module
    for part in name.split("."):
        held = vars(held).get(part) if hasattr(held, "__dict__") else None
        while held is not None and not isinstance(held, FunctionType | type):
            inner = [getattr(held, way, None) for way in ("__func__", "fget", "func", "__wrapped__")]
            held = next((each for each in inner if each is not None), None)
    while isinstance(held, FunctionType) and hasattr(held, "__wrapped__"):
        held = held.__wrapped__
    return held if isinstance(held, FunctionType) else None
