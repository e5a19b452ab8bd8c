"""Facts about the machine and the software a run was made with; not part of its result."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from fedassay.support.devices import gpu_name
from fedassay.support.numerics import installed_version
from fedassay.support.text import encodable
from fedassay.support.version import __version__

_PACKAGES = (
    "numpy",
    "scipy",
    "torch",
    "torchvision",
    "diffusers",
    "opacus",
    "dp-accounting",
    "python-dp",
    "scikit-learn",
    "scikit-image",
    "lpips",
)


def versions() -> dict[str, str]:
    """Versions of Python and of the installed libraries that compute."""
    known = {name: installed_version(name) for name in _PACKAGES}
    return {"python": platform.python_version()} | {name: found for name, found in known.items() if found}


@cache
def code_digest(others: tuple[Path, ...] = ()) -> str:
    """SHA-256 over the sources of fedassay, as they are installed, and over other files.

    Args:
        others: Sources of components from elsewhere.
    """
    whole = hashlib.sha256()
    root = Path(__file__).resolve().parents[1]
    # The rooms are links in a checkout and folders in an installed package: the names are the same.
    found = [
        Path(folder, name)
        for folder, _, names in os.walk(root, followlinks=True)
        for name in names
        if name.endswith(".py")
    ]
    for name, path in sorted((path.relative_to(root).as_posix(), path) for path in found):
        whole.update(f"{name}:{hashlib.sha256(path.read_bytes()).hexdigest()};".encode())
    for path in sorted(others):
        whole.update(f"{path.name}:{hashlib.sha256(path.read_bytes()).hexdigest()};".encode())
    return whole.hexdigest()


def describe(device: str, command: list[str], started: datetime) -> dict[str, Any]:
    """Versions, machine, git revision of the checkout that fedassay runs from, and times (UTC)."""
    import torch

    return {
        "fedassay": __version__,
        "git_revision": _revision(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "device": device,
        "gpu": gpu_name(device),
        "torch_threads": torch.get_num_threads(),
        "packages": {name: installed_version(name) for name in _PACKAGES},
        "command": [encodable(part) for part in command],
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _revision() -> str | None:
    """Revision of the checkout that holds this file; None for an installed package."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
