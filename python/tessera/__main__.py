"""`python -m tessera`: the program."""

import os
import sys


def main():
    program = os.path.join(os.path.dirname(__file__), "_program")
    if not os.access(program, os.X_OK):
        sys.exit(f"tessera: the program is not at {program}")
    # Plugins are looked for in this Python's packages.
    os.environ.setdefault("TESSERA_PYTHON", sys.executable)
    os.execv(program, ["tessera", *sys.argv[1:]])


if __name__ == "__main__":
    main()
