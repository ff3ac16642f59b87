"""`python -m tessera`: runs the program `tessera` of this package."""

import os
import sys

from ._core import TesseraError
from ._launch import program


def main() -> None:
    try:
        path = program()
    except TesseraError as missing:
        sys.exit(f"tessera: {missing}")
    os.execv(path, ["tessera", *sys.argv[1:]])


if __name__ == "__main__":
    main()
