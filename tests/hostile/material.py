"""Sound input of every kind, which cases break in one way or another."""

from __future__ import annotations

import io
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import yaml
from attempt import Server
from PIL import Image
from safetensors.numpy import save as save_tensors

Kind = Literal["plan", "policy", "transcript", "record", "run", "image", "npz", "features", "weights", "command"]
KINDS: tuple[Kind, ...] = get_args(Kind)

PLAN: dict[str, Any] = {
    "name": "small",
    "seeds": [3],
    "data": {
        "name": "digits",
        "limit": 120,
        "split": {"private": 0.4, "attacker": 0.3, "public": 0.1, "test": 0.2},
    },
    "clients": {"count": 2, "partition": "iid"},
    "backbone": {"name": "pixels"},
    "privacy": {"epsilon": [1.0, float("inf")], "delta": 1e-5},
    "threat": {"view": "per_client", "attacker_share": 1.0},
    "methods": [{"fedcgs": {"label": "ours", "ridge": 1.0}}],
    "attacks": [{"label_distribution": {}}],
    "audits": [{"message": {}}],
    "resources": {"threads": 1},
}
POLICY: dict[str, Any] = {
    "name": "house",
    "description": "what we ask",
    "cells": {"labels": [], "epsilon": "all"},
    "maximum": {"accounted": 8.0, "bytes_up": 1e6},
    "minimum": {"accuracy": 0.5},
    "exact_fields": "forbidden",
    "claims": "not_disproved",
    "must_conclude": ["message"],
    "forbidden_verdicts": ["leak"],
}
RELEASES: list[dict[str, Any]] = [
    {"mechanism": "gaussian", "sigma": 4.0, "sensitivity": 1.5, "count": 3},
    {"mechanism": "dp_sgd", "noise_multiplier": 1.1, "sampling_rate": 0.01, "steps": 100},
    {"mechanism": "pure", "epsilon": 0.1},
]


@dataclass(frozen=True)
class Special:
    """Something that is no regular file, or a large one that takes no room: sparse, of `size` bytes."""

    what: Literal["fifo", "link", "folder", "sparse", "unreadable"]
    target: str = ""
    size: int = 0


@dataclass(frozen=True)
class Case:
    """One command on one input.

    Attributes:
        kind: What is wrong in it, if anything is.
        name: Says what.
        args: Of the command line; paths are relative to the case's folder.
        files: What lies there.
    """

    kind: Kind
    name: str
    args: tuple[str, ...]
    files: dict[str, bytes | Special] = field(repr=False)

    def lay_out(self, folder: Path) -> None:
        """Write the files."""
        for name, content in self.files.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if isinstance(content, bytes):
                with open(path, "wb") as stream:
                    stream.write(content)
            elif content.what == "fifo":
                os.mkfifo(path)
            elif content.what == "link":
                os.symlink(content.target, path)
            elif content.what == "folder":
                os.makedirs(path, exist_ok=True)
            else:
                with open(path, "wb") as stream:
                    stream.write(content.target.encode())
                    stream.truncate(content.size)


def as_yaml(tree: Any) -> bytes:
    """A tree as YAML."""
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).encode("utf-8", "surrogatepass")


def as_json(tree: Any) -> bytes:
    """A tree as JSON; what JSON cannot hold becomes text."""
    return json.dumps(tree, default=str).encode()


def picture(width: int = 8, height: int = 8, seed: int = 0, form: str = "PNG", **options: Any) -> bytes:
    """A small grey picture."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, form, **options)
    return stream.getvalue()


def archive(**arrays: Any) -> bytes:
    """An .npz file."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def images_npz(count: int = 40) -> dict[str, Any]:
    """The arrays of a sound .npz file."""
    rng = np.random.default_rng(0)
    return {"x": rng.integers(0, 256, (count, 8, 8), dtype=np.uint8), "y": np.arange(count) % 2}


def features_npz(count: int = 40) -> dict[str, Any]:
    """The arrays of a sound archive of features."""
    rng = np.random.default_rng(0)
    return {"features": rng.standard_normal((count, 10)).astype(np.float32), "labels": np.arange(count) % 2}


def features_plan() -> bytes:
    """A plan on features of one's own that does next to nothing with them."""
    return (
        own_plan("precomputed_features", "")
        .replace(b"path: ''", b"features: in.npz")
        .replace(b"name: pixels", b"name: precomputed")
    )


def image_folder(count: int = 16) -> dict[str, bytes]:
    """A sound folder of images in two classes."""
    return {f"in/{'ab'[i % 2]}/{i:02d}.png": picture(seed=i) for i in range(count)}


def own_plan(name: str, path: str, **backbone: Any) -> bytes:
    """A plan on images of one's own that does next to nothing with them."""
    return as_yaml(
        {
            "name": "own",
            "data": {"name": name, "path": path},
            "clients": {"count": 1, "partition": "iid"},
            "backbone": backbone or {"name": "pixels"},
            "methods": ["fedcgs"],
        }
    )


def weights_plan() -> bytes:
    """A plan that reads a file of weights."""
    return as_yaml(
        {
            "name": "weighted",
            "data": {"name": "digits", "limit": 60},
            "clients": {"count": 1, "partition": "iid"},
            "backbone": {"name": "cifar_resnet20", "weights": "in.weights", "input_size": 8},
            "methods": ["fedcgs"],
        }
    )


RUN = ("run", "plan.yaml", "-o", "out", "--quiet")
DRY = ("run", "plan.yaml", "--dry-run")
CHECK = ("check", "run", "--policy", "policy.yaml")
AUDIT = ("audit", "in", "-o", "out", "--quiet")
VERIFY = ("verify", "run")
RESUME = ("run", "plan.yaml", "-o", "run", "--resume", "--quiet")
FORCE = ("run", "plan.yaml", "-o", "run", "--force", "--quiet")
REPORT = ("report", "run", "-o", "out", "--format")


@dataclass(frozen=True)
class Material:
    """What a real run wrote.

    Attributes:
        record: Its record, with a picture in it.
        transcript: The manifest of one of its transcripts.
        messages: The files that this names.
        run: Every file of the run folder, as it was written.
        weights: A state dict that fits `cifar_resnet20`, as safetensors and as torch writes it.
    """

    record: dict[str, Any]
    transcript: dict[str, Any]
    messages: dict[str, bytes]
    run: dict[str, bytes]
    weights: dict[str, bytes]

    def record_case(
        self, name: str, tree: Any, args: tuple[str, ...] = (*REPORT, "html"), **files: bytes | Special
    ) -> Case:
        """A case of a record."""
        content = tree if isinstance(tree, bytes | Special) else as_json(tree)
        held = {
            "run/record.json": content,
            "run/artifacts/c/p.png": picture(16, 16),
            "policy.yaml": as_yaml(POLICY),
        }
        return Case("record", name, args, held | files)

    def run_case(self, name: str, args: tuple[str, ...], files: dict[str, bytes | Special | None]) -> Case:
        """A case of a finished run in which files are replaced, added, or (None) not there."""
        held = {f"run/{file}": data for file, data in self.run.items()} | {
            "plan.yaml": as_yaml(PLAN),
            "policy.yaml": as_yaml(POLICY),
            **files,
        }
        return Case("run", name, args, {file: data for file, data in held.items() if data is not None})

    def transcript_case(self, name: str, tree: Any, files: dict[str, bytes | Special] | None = None) -> Case:
        """A case of a transcript."""
        content = tree if isinstance(tree, bytes | Special) else as_json(tree)
        messages = {f"in/{file}": data for file, data in self.messages.items()}
        return Case("transcript", name, AUDIT, {"in/transcript.json": content, **messages, **(files or {})})


def make(server: Server, folder: Path) -> Material:
    """Run a small plan, and take what it wrote."""
    case = Case("plan", "material", RUN, {"plan.yaml": as_yaml(PLAN)})
    case.lay_out(folder)
    done = server.attempt(folder, case.args)
    assert done.code == 0, done.complained
    run = {
        path.relative_to(folder / "out").as_posix(): path.read_bytes()
        for path in sorted((folder / "out").rglob("*"))
        if path.is_file()
    }
    record = json.loads(run["record.json"])
    column = {"caption": "one", "metrics": {"psnr": 20.0}}
    record["cells"][0]["findings"][0]["pictures"] = [
        {
            "file": "artifacts/c/p.png",
            "title": "t",
            "tile": [8, 8],
            "rows": ["a", "b"],
            "columns": [column, column],
        }
    ]
    sent = sorted((folder / "out/transcripts").iterdir())[-1]
    tree = json.loads((sent / "transcript.json").read_text())
    messages = {path.name: path.read_bytes() for path in sent.glob("*.safetensors")}
    return Material(record, tree, messages, run, _weights())


def _weights() -> dict[str, bytes]:
    import torch

    from fedassay.backbones.cifar_resnet import CifarResNet

    torch.manual_seed(0)
    state = CifarResNet(3, 10).state_dict()
    stream = io.BytesIO()
    torch.save(state, stream)
    arrays = {name: value.numpy() for name, value in state.items()}
    return {"safetensors": save_tensors(arrays), "torch": stream.getvalue()}
