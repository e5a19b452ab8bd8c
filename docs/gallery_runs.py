"""Runs what the gallery shows once more, and stores each record with the pictures that it names.

    python docs/gallery_runs.py [RUN...]

Without names all of docs/gallery are run, in some ten minutes on two cores. Everything happens in an empty folder
with a cache of its own, so that no record names a folder of this machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
import numpy as np
from nbclient import NotebookClient

from fedassay.data import DataRequest, load
from fedassay.records.record import FILE, load_record

ROOT = Path(__file__).resolve().parents[1]
GALLERY = ROOT / "docs" / "gallery"

PLANS = {
    "quickstart": ["configs/quickstart.yaml"],
    "demonstration": ["configs/demonstration.yaml"],
    "photographs": ["configs/photographs.yaml"],
    "claims": ["configs/claims.yaml", "--set", "privacy.epsilon=[1,10]", "--set", "privacy.delta=1.0e-5"],
    "closed_forms": ["configs/closed_forms.yaml", "--set", "data.limit=600", "--set", "clients.count=3"],
    "clinic": ["plan.yaml"],
}
"""What `fedassay run` is given, by the name of the run."""

NOTEBOOKS = {"sweep": "epsilon_sweep", "captured": "captured_messages", "wrong": "captured_messages"}
"""Which notebook makes a run, in its folder `runs`."""

CLINIC = """
name: clinic
seeds: [0]
data:
  name: npz
  path: images.npz
  groups: patient
  attributes: [sex]
  split: {private: 0.35, attacker: 0.25, public: 0.15, test: 0.15, control: 0.1}
clients: {count: 5, partition: iid}
backbone: {name: small_cnn_rectified, weights: public}
privacy: {epsilon: [.inf, 2], delta: 1.0e-5, unit: person}
methods: [fedcgs]
attacks:
  - message_algebra
  - gram_factorization
  - membership: {shadows: 0, tests: [likelihood_ratio]}
  - attribute_likelihood
  - label_distribution
audits:
  - dp_claim: {mechanism_trials: 2000, replays: 8}
  - message
  - membership: {trials: 0, releases: 0}
  - attribute_inference: {attribute: sex, trials: 600, control_records: 120}
"""


def main() -> None:
    """Run them, and store each as soon as it has run whole."""
    for name in sys.argv[1:] or [*PLANS, *NOTEBOOKS]:
        with TemporaryDirectory() as made:
            folder = Path(made)
            os.environ["FEDASSAY_CACHE"] = str(folder / "cache")
            store(from_notebook(name, folder) if name in NOTEBOOKS else from_plan(name, folder), GALLERY / name)


def from_plan(name: str, folder: Path) -> Path:
    """The run of a plan."""
    shutil.copytree(ROOT / "configs", folder / "configs")
    if name == "clinic":
        clinic(folder)
    command = [sys.executable, "-m", "fedassay", "run", *PLANS[name], "-o", name, "--jobs", "2"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / name


def clinic(folder: Path) -> None:
    """Write the plan and the images of five clinics: two classes of regions of photographs, as persons."""
    whole = load(DataRequest("photographs", None, None, None, 0, Path(), size=8, groups="region")).train
    assert whole.groups is not None
    two = np.isin(whole.labels, [4, 8])
    persons = whole.groups[two]
    drawn = np.random.default_rng(0).integers(0, 2, int(persons.max()) + 1)
    labels = (whole.labels[two] == 8).astype(int)
    np.savez(folder / "images.npz", x=whole.images[two], y=labels, patient=persons, sex=drawn[persons])
    (folder / "plan.yaml").write_text(CLINIC, encoding="utf-8")


def from_notebook(name: str, folder: Path) -> Path:
    """The run that a notebook makes."""
    notebook = nbformat.read(ROOT / "examples" / "notebooks" / f"{NOTEBOOKS[name]}.ipynb", 4)
    given = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=3600, startup_timeout=600, kernel_name="python3", resources=given).execute()
    return folder / "runs" / name


def store(run: Path, kept: Path) -> None:
    """Keep a run's record, and the pictures of its findings."""
    record = load_record(run)
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    # Without the spaces, which are a third of it.
    text = json.loads((run / FILE).read_text(encoding="utf-8"))
    (kept / FILE).write_text(json.dumps(text, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    for file in sorted({each.file for cell in record.cells for found in cell.findings for each in found.pictures}):
        (kept / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(run / file, kept / file)


if __name__ == "__main__":
    main()
