"""A digest of all numbers that an object holds: whether a model that comes back is the same to the bit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor, nn

from fedassay.contracts.method import MethodInput
from fedassay.support.hashing import digest_arrays

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_PASSED_BY = (MethodInput, np.random.Generator, ModuleType, type, BuiltinFunctionType)
"""Types left out of a digest, as they hold no number of a model: their class is enough. A model that is made on
demand refers to the `MethodInput` of its method, which holds the clients' records."""


def content_digest(value: object) -> str:
    """SHA-256 over the arrays, numbers, words and names of classes that an object refers to, however deep.

    Args:
        value: A model: of arrays, networks, functions with their closures, and objects of all these.

    Returns:
        64 hexadecimal digits.
    """
    digest = hashlib.sha256()
    _add(value, digest, {})
    return digest.hexdigest()


def _add(value: object, digest: Any, seen: dict[int, object]) -> None:
    """Add one object; an object that was added before is named by its number, so that cycles end."""
    digest.update(f"<{type(value).__module__}.{type(value).__qualname__}>".encode())
    if isinstance(value, _PLAIN):
        digest.update(repr(value).encode())
        return
    if isinstance(value, np.generic):
        digest.update(np.asarray(value).tobytes())
        return
    if id(value) in seen:
        digest.update(str(list(seen).index(id(value))).encode())
        return
    seen[id(value)] = value
    if isinstance(value, Tensor):
        digest.update(digest_arrays({"": value.detach().cpu().numpy()}).encode())
    elif isinstance(value, np.ndarray) and value.dtype != object:
        digest.update(digest_arrays({"": value}).encode())
    elif not isinstance(value, _PASSED_BY):
        for part in _parts(value):
            _add(part, digest, seen)


def _parts(value: object) -> list[object]:
    """Return the objects that an object refers to, in a fixed order."""
    if isinstance(value, nn.Module):
        return [dict(value.state_dict())]
    if isinstance(value, Mapping):
        return [part for key in sorted(value, key=repr) for part in (key, value[key])]
    if isinstance(value, Set):
        return sorted(value, key=repr)
    if isinstance(value, Sequence | np.ndarray):
        return list(value)
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, MethodType):
        return [value.__func__.__qualname__, value.__self__]
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return [value.__qualname__, value.__defaults__, value.__kwdefaults__, *cells]
    slots = [name for each in type(value).__mro__ for name in getattr(each, "__slots__", ())]
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return [{**held, **getattr(value, "__dict__", {})}]
