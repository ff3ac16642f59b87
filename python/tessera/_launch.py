"""The path of the program `tessera` in this package."""

import os

from ._refuse import refuse


def program() -> str:
    """The program's path. It searches the packages of this interpreter for
    plugins, because `__init__` sets TESSERA_PYTHON."""
    path = os.path.join(os.path.dirname(__file__), "_program")
    if not os.access(path, os.X_OK):
        refuse("python", "the package must hold the program", f"none at {path}")
    return path
