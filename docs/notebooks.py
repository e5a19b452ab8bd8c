"""Runs notebooks from top to bottom, each in an empty folder, and stores their outputs.

    python docs/notebooks.py [NOTEBOOK...]

Without names all of examples/notebooks are run. At what time a cell ran is not stored, so that a notebook changes
only where its outputs do.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[1] / "examples" / "notebooks"


def main() -> None:
    """Run them, and write each back as soon as it has run whole."""
    for path in [Path(name) for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.read(path, 4)
        with TemporaryDirectory() as folder:
            NotebookClient(
                notebook,
                timeout=3600,
                startup_timeout=600,
                kernel_name="python3",
                record_timing=False,
                resources={"metadata": {"path": folder}},
            ).execute()
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
