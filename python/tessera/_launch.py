"""Where the program is."""

import os

from ._refuse import refuse


def program() -> str:
    """Its path. It looks for plugins where this Python does: TESSERA_PYTHON."""
    path = os.path.join(os.path.dirname(__file__), "_program")
    if not os.access(path, os.X_OK):
        refuse("python", "the package must hold the program", f"none at {path}")
    return path
