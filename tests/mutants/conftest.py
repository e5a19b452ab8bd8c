"""The scripts of this folder import each other by name, as they do from the command line."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "generated")]
