"""`python -m fedassay` is `fedassay`: modules that lie in the folder that it is called in are none of its own."""

import os
import sys
from pathlib import Path

# Python looks there first: a user's `h2.py` would be run in place of a library that another one tries to import.
if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]) and Path(__file__).parents[1] != Path.cwd():
    del sys.path[0]

from fedassay.cli import main

if __name__ == "__main__":
    main()
