"""Where the program is, and what it needs to know of this Python."""

import os
import sys

from . import _core


def program():
    """Its path, and the environment that it runs in."""
    path = os.path.join(os.path.dirname(__file__), "_program")
    if not os.access(path, os.X_OK):
        raise _core.TesseraError(
            f"[python] the package must hold the program, found none at {path}")
    # Plugins are looked for in this Python's packages.
    return path, {"TESSERA_PYTHON": sys.executable, **os.environ}
