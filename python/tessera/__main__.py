"""`python -m tessera`: the program."""

import os
import sys

from ._core import TesseraError
from ._launch import program


def main():
    try:
        path, environment = program()
    except TesseraError as missing:
        sys.exit(f"tessera: {missing}")
    os.execve(path, ["tessera", *sys.argv[1:]], environment)


if __name__ == "__main__":
    main()
