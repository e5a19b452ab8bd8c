"""Weight files: found, checked and loaded without running code from them."""

from __future__ import annotations

import hashlib
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlparse

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from fedassay.support import limits
from fedassay.support.download import download
from fedassay.support.errors import DataError, first_line
from fedassay.support.reading import regular_size
from fedassay.support.text import cut, shown

_NAMED = 4
"""Number of keys that an error names before it counts the rest."""


def load_state(path: Path) -> dict[str, Tensor]:
    """Read a state dict from a `.safetensors` file or one written by `torch.save`.

    Only tensors are read (`weights_only=True`): a file that holds code is refused. A checkpoint
    that keeps its state dict under `state_dict` or `model` is unwrapped, and the prefix `module.` that
    `DataParallel` adds is removed.

    Raises:
        DataError: The file cannot be read or holds no state dict.
    """
    content = load_tensors(path)
    for wrapper in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if isinstance(content, Mapping) and len(content) > limits.ARRAYS:
        raise DataError(f"weights {path.name}: holds {len(content):,} entries; allowed: {limits.ARRAYS:,}")
    if not isinstance(content, Mapping) or not content:
        raise DataError(f"weights {path.name}: holds a {type(content).__name__}, not a state dict")
    return {key.removeprefix("module."): value for key, value in _tensors(content, path)}


def load_tensors(path: Path) -> object:
    """Load a `.safetensors` file or one written by `torch.save`: tensors, numbers and texts, nested or not.

    Raises:
        DataError: The file cannot be read, or holds anything else.
    """
    regular_size(path, limits.WEIGHTS_BYTES)
    try:
        # Torch warns of content that it may not be able to read; unreadable content is refused below.
        with warnings.catch_warnings(action="ignore"):
            content = _read(path)
    except pickle.UnpicklingError:
        raise DataError(
            f"weights {path.name}: not a file of plain tensors (anything else could run code on loading); "
            "allowed: a state dict saved by torch.save or as .safetensors"
        ) from None
    except DataError:
        raise
    # A damaged file makes torch's reader fail in any of its parts, with any error.
    except Exception as error:  # noqa: BLE001
        raise DataError(f"weights {path.name}: cannot be read ({cut(first_line(error), 300)})") from None
    return content


def _tensors(content: Mapping[object, object], path: Path) -> Iterator[tuple[str, Tensor]]:
    """The entries of a state dict.

    Raises:
        DataError: One of them is no plain tensor.
    """
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise DataError(f"weights {path.name}: entry {shown(key)} is a {type(value).__name__}, not a tensor")
        if value.layout != torch.strided or value.is_quantized or value.is_meta or value.is_complex():
            raise DataError(f"weights {path.name}: entry {shown(key)} is no plain tensor of real numbers")
        yield key, value


def _read(path: Path) -> object:
    """Load a file, after a check of how much of it will be parsed."""
    if path.suffix == ".safetensors":
        _check_header(path)
        return load_file(path)
    _check_pickle(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def assign(
    module: nn.Module, state: Mapping[str, Tensor], where: str, names: Mapping[str, str] | None = None
) -> None:
    """Fill a module with a state dict that must fit it exactly.

    The batch counters of normalisation layers (`num_batches_tracked`), which inference does not
    use and older files lack, may differ.

    Args:
        module: Filled in place.
        state: Names to tensors.
        where: Description of the state dict, for the error.
        names: Names of the module's tensors in errors, where the file has others; None: unchanged.

    Raises:
        DataError: Missing keys, unexpected keys or other shapes; the message names them.
    """
    expected = {name: value for name, value in module.state_dict().items() if not _is_counter(name)}
    given = {name: value for name, value in state.items() if not _is_counter(name)}
    called = {name: (names or {}).get(name, name) for name in (*expected, *given)}
    if problems := "; ".join(_misfits(expected, given, called)):
        raise DataError(f"{where}: does not fit this network: {problems}")
    module.load_state_dict(given, strict=False)
    for name, value in module.state_dict().items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise DataError(f"{where}: {called.get(name, name)} holds NaN or infinite values")


def _misfits(
    expected: Mapping[str, Tensor], given: Mapping[str, Tensor], called: Mapping[str, str]
) -> Iterator[str]:
    """Yield the differences of a state dict from a network, in names and shapes; errors use the names `called`."""
    if missing := [called[name] for name in expected if name not in given]:
        yield f"missing {_some(missing)}"
    if unexpected := [called[name] for name in given if name not in expected]:
        yield f"unexpected {_some(unexpected)}"
    misshapen = [
        f"{called[name]} {tuple(given[name].shape)} where {tuple(expected[name].shape)} is needed"
        for name in expected
        if name in given and given[name].shape != expected[name].shape
    ]
    if misshapen:
        yield f"wrong shapes: {_some(misshapen)}"


def hub_file(url: str) -> Path:
    """Return the file of a published weight URL in torch's hub folder, downloaded if it is not there.

    Published names end in the first digits of the file's SHA-256 (`resnet50-11ad3fa6.pth`). The digits are
    compared: the right name alone does not suffice.

    Returns:
        Path of a file whose hash has been checked.

    Raises:
        DataError: The download failed, or the file is not the published one.
    """
    path = hub_path(url)
    name, digits = path.name, published_digits(url)
    if not path.exists():
        try:
            # Without digits in its name there is nothing to compare the file with.
            if digits is None:
                raise DataError("its name does not hold its SHA-256")
            download(path, [url], digits)
        except DataError as error:
            raise DataError(
                f"weights {name}: not in torch's hub folder, and {cut(first_line(error), 300)}; "
                f"allowed: place the file from {url} in $TORCH_HOME/hub/checkpoints (by default "
                "~/.cache/torch/hub/checkpoints)"
            ) from None
    if digits is not None and not sha256_of(path).startswith(digits):
        raise DataError(
            f"weights {name} in torch's hub folder: not the published file (its SHA-256 does not begin with "
            f"{digits}); delete it, or place the file from {url} there"
        )
    return path


def hub_path(url: str) -> Path:
    """Return the path of a published weight URL in torch's hub folder; the file need not exist."""
    return Path(torch.hub.get_dir()) / "checkpoints" / Path(urlparse(url).path).name


def published_digits(url: str) -> str | None:
    """The first digits of a published file's SHA-256, which its name ends in; None where it does not."""
    match = re.search(r"-([0-9a-f]{8,64})\.", Path(urlparse(url).path).name)
    return None if match is None else match[1]


def _check_header(path: Path) -> None:
    """Refuse a safetensors file with a header too large to be parsed.

    Raises:
        DataError: The header is too large.
    """
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
    if length > limits.HEADER_BYTES:
        raise DataError(
            f"weights {path.name}: cannot be read (a header of {length:,} bytes; allowed: {limits.HEADER_BYTES:,})"
        )


def _check_pickle(path: Path) -> None:
    """Refuse a file of torch's if the pickled part, which describes its tensors, is too large to be run.

    Raises:
        DataError: The pickled part is too large, or the file unpacks to more than it has.
    """
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    if any("/code/" in member.filename for member in members):
        raise DataError(
            f"weights {path.name}: a TorchScript archive, which holds code; allowed: its state dict, from "
            "torch.save(torch.jit.load(FILE).state_dict(), NEW_FILE)"
        )
    # Torch stores tensors uncompressed; only an archive from another tool is packed.
    unpacked = sum(member.file_size for member in members)
    pickled = max((member.file_size for member in members if member.filename.endswith(".pkl")), default=0)
    if pickled > limits.PICKLE_BYTES or unpacked > limits.WEIGHTS_BYTES or len(members) > 2 * limits.ARRAYS:
        raise DataError(
            f"weights {path.name}: cannot be read (unpacks to {len(members):,} files of {unpacked:,} bytes, "
            f"{pickled:,} of them pickled; allowed: {2 * limits.ARRAYS:,}, {limits.WEIGHTS_BYTES:,} and "
            f"{limits.PICKLE_BYTES:,})"
        )


def _is_counter(name: str) -> bool:
    return name.endswith("num_batches_tracked")


def _some(names: Iterable[str]) -> str:
    listed = [cut(name, 100) for name in names]
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
