"""Nobody but a component itself names it: what the house must know of it, it declares."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from sources import parsed

from fedassay.support.registry import Kind, RegistryEntry, entries

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "fedassay"
ROOMS = ("methods", "attacks", "audits", "reports")
KINDS: tuple[Kind, ...] = ("method", "attack", "audit", "dataset", "backbone")
SHARED = {
    "methods",
    "methods/baselines",
    "methods/rivals",
    "methods/shared",
    "attacks",
    "audits",
    "src/fedassay/data",
    "src/fedassay/backbones",
}
"""Folders of several components: there a component's own file is its own, and no other."""

OTHERS = {
    # What happens to be spelt like a component, and what it is.
    ("src/fedassay/similarity/ssim_search.py", "gallery"): "the images that are searched",
    ("src/fedassay/similarity/nearest.py", "gallery"): "the images that are searched",
    ("src/fedassay/records/private_names.py", "gallery"): "the key of plans that names the adversary's candidates",
    ("src/fedassay/execution/listed.py", "image_folder"): "how a folder that is looked at is read, file by file",
    ("src/fedassay/data/gallery.py", "image_folder"): "how a folder of candidates is read",
    ("src/fedassay/contracts/facts.py", "attribute_inference"): "a threat, in the words of regulators",
    ("reports/evidence/form.py", "attribute_inference"): "a threat, in the words of regulators",
    ("reports/words/harms.py", "attribute_inference"): "a threat, in the words of regulators",
    ("audits/inversion/pictures.py", "reconstruction"): "a row of pictures",
    ("reports/document/pictures.py", "reconstruction"): "a row of pictures",
    ("methods/rivals/ccvr.py", "fedavg"): "its section with the settings of the averaging before it",
    ("methods/rivals/fedcvae.py", "ensemble"): "one of its two servers",
    ("methods/rivals/fedcvae.py", "dense"): "one of its decoders",
    ("src/fedassay/nets/cvae.py", "dense"): "one of its decoders",
    ("reports/document/privacy_tables.py", "ledger"): "the table of the fields that were sent",
    ("src/fedassay/api/functions.py", "message"): "the folder of what a function sent",
    ("reports/gate/sarif.py", "message"): "a key of SARIF",
    ("reports/words/things.py", "message"): "one of the things that harms are counted in",
    ("src/fedassay/records/redacted.py", "message"): "a key of a notice of the record",
    ("src/fedassay/records/facts.py", "message"): "one of the things that harms are counted in",
    ("reports/document/figures/svg.py", "circle"): "an element of SVG",
    ("reports/document/figures/tradeoff.py", "circle"): "an element of SVG",
    ("src/fedassay/nets/image_families.py", "pixels"): "what inverted images are made of",
    ("src/fedassay/recorders/files/records.py", "pixels"): "how an array of images may be called",
    ("src/fedassay/nets/checkpoint.py", "average"): "weights averaged over steps",
    ("src/fedassay/plan/fitted.py", "npz"): "what the plan that init writes for a file reads",
    ("src/fedassay/plan/fitted.py", "image_folder"): "what the plan that init writes for a folder reads",
    ("src/fedassay/plan/fitted.py", "raw_features"): "a method of the plan that init writes",
    ("src/fedassay/plan/fitted.py", "small_cnn_rectified"): "the backbone of the plan that init writes",
    ("src/fedassay/plan/schema.py", "small_cnn"): "the backbone of plans that name none",
    ("src/fedassay/backbones/cifar_resnet.py", "cifar10"): "the weights that were trained on it",
    ("src/fedassay/data/two_domains.py", "photographs"): "one of the two domains",
    ("src/fedassay/data/two_domains.py", "digits"): "one of the two domains",
}


def _components() -> list[RegistryEntry]:
    return [entry for kind in KINDS for entry in entries(kind).values() if not entry.package]


def _is_own(path: str, entry: RegistryEntry) -> bool:
    """Whether a file is a component's own: the one it stands in, or one of a folder that it has to itself."""
    home = entry.module.removeprefix("fedassay.").replace(".", "/") + ".py"
    if entry.kind in ("dataset", "backbone"):
        home = f"src/fedassay/{home}"
    folder = home.rpartition("/")[0]
    return path == home or (folder not in SHARED and path.startswith(f"{folder}/"))


def _literals(tree: ast.Module) -> set[str]:
    return {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _sources() -> dict[str, Path]:
    files = {str(path.relative_to(ROOT)): path for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    corridor = (path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in ROOMS)
    return files | {str(path.relative_to(ROOT)): path for path in corridor}


@pytest.fixture(scope="module")
def named() -> set[tuple[str, str]]:
    """Files and the names of components of others that stand in them."""
    owners: dict[str, list[RegistryEntry]] = {}
    for entry in _components():
        owners.setdefault(entry.name, []).append(entry)
    sources = {path: name for name, path in _sources().items()}
    found = set()
    literal_of_one = rf"""["']({"|".join(map(re.escape, owners))})["']"""
    for path, tree in parsed(literal_of_one, *(ROOT / room for room in ROOMS), PACKAGE):
        name = sources.get(path)
        for literal in _literals(tree) & set(owners):
            if name is not None and not any(_is_own(name, entry) for entry in owners[literal]):
                found.add((name, literal))
    return found


@pytest.mark.long
def test_no_file_names_a_component_of_another(named: set[tuple[str, str]]) -> None:
    assert sorted(named - set(OTHERS)) == []


def test_what_is_excepted_is_there(named: set[tuple[str, str]]) -> None:
    assert sorted(set(OTHERS) - named) == []


def test_the_scan_sees_the_house() -> None:
    sources = _sources()
    assert len(sources) > 200
    assert {path.partition("/")[0] for path in sources} == {*ROOMS, "src"}
    assert len(_components()) >= 25
