"""Lets the tests of this folder import `gram_messages`, which none of pytest's import modes does by itself."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
