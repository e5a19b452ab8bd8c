"""Nothing private outlives a redacted run: images planted in every role are sought in all that it leaves."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import get_args

import canaries
import forked
import numpy as np
import pytest
from PIL import Image

from fedassay.data.loading import load
from fedassay.data.roles import Role, Roles, split_roles
from fedassay.plan.own_images import data_seeds, request_of, shares_of
from fedassay.plan.resolve import load_scenario
from fedassay.support.types import Images

PLAN = """
name: canaries
seeds: [0]
data:
  name: image_folder
  path: images
  split: {{private: 0.3, attacker: 0.3, public: 0.2, test: 0.1}}
clients: {{count: 2, partition: iid}}
backbone: {backbone}
methods: [raw_features: {{}}]
attacks: [feature_diffusion: {{preset: tiny}}, message_algebra: {{}}]
audits: [reconstruction: {{}}, message: {{}}]
"""
_BACKBONES = {"pixels": "{name: pixels}", "small_cnn": "{name: small_cnn, weights: public}"}
_FEW_STEPS = """
from dataclasses import replace
from fedassay.backbones import small_cnn
from fedassay.nets import presets
small_cnn._STEPS = (10, 10)
presets.PRESETS["tiny"] = replace(presets.TINY, width=32, blocks=1, embedding=16, steps=10)
"""
_LABELS = np.arange(60) % 2
_SHAPE = (16, 16, 1)


def fedassay(*args: str | Path, home: Path) -> subprocess.CompletedProcess[str]:
    """The command line, where everything that it may write to lies below `home`."""
    (home / "tmp").mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "FEDASSAY_"))}
    done = forked.fedassay(
        *args, hook=_FEW_STEPS, environment={**kept, "HOME": str(home / "user"), "TMPDIR": str(home / "tmp")}
    )
    assert done.returncode == 0, done.stderr
    return done


def plant(home: Path, backbone: str, public: Images | None = None) -> Roles:
    """A plan and 60 images of noise in two classes; those of the public role as given, others elsewhere."""
    (home / "plan.yaml").write_text(PLAN.format(backbone=_BACKBONES[backbone]))
    images = np.random.default_rng(public is not None).integers(0, 256, (len(_LABELS), *_SHAPE), np.uint8)
    order = np.argsort(_LABELS, kind="stable")  # as the folders of the classes have them
    for _ in range(1 if public is None else 2):
        for number, (image, label) in enumerate(zip(images[order], _LABELS[order], strict=True)):
            path = home / "images" / f"class{label}" / f"{number:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[..., 0]).save(path)
        plan = load_scenario(home / "plan.yaml", ()).plan
        data = load(request_of(plan.data, home, data_seeds(0)))
        roles = split_roles(data, shares_of(plan.data, test_set=False), data_seeds(0).numpy("roles"))
        if public is not None:
            images[order[roles.indices["public"]]] = public
    return roles


def search_for(roles: Roles) -> canaries.Canaries:
    return canaries.Canaries({role: getattr(roles, role).images for role in get_args(Role)})


@pytest.mark.long
@pytest.mark.parametrize("backbone", _BACKBONES)
def test_a_redacted_run_leaves_no_image_of_anybody(tmp_path: Path, backbone: str) -> None:
    search = search_for(plant(tmp_path, backbone))
    fedassay("run", tmp_path / "plan.yaml", "-o", tmp_path / "run", "--redact", home=tmp_path)
    assert (tmp_path / "run" / "report.html").is_file()
    assert not list((tmp_path / "tmp").iterdir())
    places = [path for path in tmp_path.iterdir() if path.name not in {"images", "plan.yaml"}]
    assert search.found(*places) == {}
    cache = tmp_path / "user" / ".cache" / "fedassay"
    assert set(map(tuple, canaries.stated(cache).values())) <= {("public",)}


@pytest.mark.long
def test_the_search_finds_what_an_ordinary_run_leaves_and_drop_removes_it(tmp_path: Path) -> None:
    roles = plant(tmp_path, "pixels")
    search = search_for(roles)
    fedassay("run", tmp_path / "plan.yaml", "-o", tmp_path / "run", home=tmp_path)
    cache = tmp_path / "user" / ".cache" / "fedassay"
    # The attacker's through the inverse of the warm start's matrix alone; the private ones in the finished cell.
    assert search.found(cache) == {"attacker": len(roles.attacker), "private": len(roles.private)}
    assert search.found(tmp_path / "run")["private"] == len(roles.private)
    kept = set(map(tuple, canaries.stated(cache).values()))
    assert kept == {("unknown",)}
    # A cell, its warm start, and the seconds of its stages.
    assert "private entries: 3" in fedassay("cache", "info", home=tmp_path).stdout
    fedassay("cache", "drop", home=tmp_path)
    assert canaries.stated(cache) == {}
    assert search.found(cache) == {}


@pytest.mark.long
def test_public_entries_depend_on_public_records_alone(tmp_path: Path) -> None:
    """Other images in every other role leave the same public entries, byte for byte."""
    kept = []
    public = None
    for name in ("one", "other"):
        home = tmp_path / name
        home.mkdir()
        roles = plant(home, "small_cnn", public)
        public = roles.public.images
        fedassay("run", home / "plan.yaml", "-o", home / "run", "--redact", home=home)
        cache = home / "user" / ".cache" / "fedassay"
        kept.append({path.name: path.read_bytes() for path in cache.rglob("*.safetensors")})
    assert kept[0] == kept[1]
    assert len(kept[0]) == 1
