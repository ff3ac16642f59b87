"""`python -m tessera`: the program."""

import os
import sys

from ._launch import program


def main():
    try:
        path, environment = program()
    except FileNotFoundError as missing:
        sys.exit(str(missing))
    os.execve(path, ["tessera", *sys.argv[1:]], environment)


if __name__ == "__main__":
    main()
