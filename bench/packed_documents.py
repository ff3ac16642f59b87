#!/usr/bin/env python3
"""Prints the table of document boundaries in bench/harness/cases.cc.

    bench/packed_documents.py [TOKENS ...]

There are eight documents, cut at seven places that NumPy's default_rng(7) draws
without replacement, none of them in the first or the last 1/32. Needs NumPy.
"""

import sys

import numpy as np

LENGTHS = (1024, 4096, 8192, 65536)


def starts(tokens, documents=8):
    random = np.random.default_rng(7)
    edge = tokens // 32
    places = np.arange(edge, tokens - edge)
    return sorted(random.choice(places, documents - 1, replace=False).tolist())


if __name__ == "__main__":
    for length in [int(word) for word in sys.argv[1:]] or LENGTHS:
        words = ", ".join(str(start) for start in starts(length))
        print(f"    {{{length}, {{{words}}}}},")
