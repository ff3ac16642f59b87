#!/usr/bin/env python3
"""Prints this repository's C++ sources as documents for `tessera pack`: JSON
lines with one token for each byte. With BYTES it prints the first files, until
they have so many.

    bench/sources.py [BYTES] > documents.jsonl
"""

import json
import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[1]


def documents(most=None):
    """One JSON line for each file, in the order of paths."""
    names = subprocess.run(["git", "ls-files", "src/*.cc"], cwd=TOP, check=True,
                           stdout=subprocess.PIPE, text=True).stdout.split()
    taken = 0
    for name in names:
        if most is not None and taken >= most:
            return
        data = (TOP / name).read_bytes()
        taken += len(data)
        yield json.dumps({"input_ids": list(data)}) + "\n"


if __name__ == "__main__":
    if sys.argv[2:] or not all(word.isdecimal() for word in sys.argv[1:]):
        sys.exit("[sources] BYTES must be one number, found "
                 + " ".join(sys.argv[1:]))
    sys.stdout.writelines(documents(*map(int, sys.argv[1:])))
