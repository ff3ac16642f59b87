"""A machine that errs where a TPU may.

How far off a TPU's exp2, log, tanh and division are is not documented. Under
`erring(seed)` a result of theirs is up to ULPS units in the last place from
NumPy's, drawn by its own bits and the seed, and subnormal results of arithmetic
are 0. What is exact stays so: 0, 1, infinities, NaN.
"""

import contextlib

import numpy as np

ULPS = 2
TINY = np.float32(2.0**-126)

_seed = None


@contextlib.contextmanager
def erring(seed):
    """None: a machine that is as good as NumPy."""
    global _seed
    before, _seed = _seed, seed
    try:
        yield
    finally:
        _seed = before


def _moved(x):
    # A float's neighbours are its bits' neighbours.
    bits = x.view(np.uint32)
    with np.errstate(over="ignore"):
        drawn = (bits ^ np.uint32(_seed)) * np.uint32(0x9E3779B1)
        drawn = (drawn ^ (drawn >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        steps = (drawn >> np.uint32(8)) % np.uint32(2 * ULPS + 1)
        near = (bits + steps - np.uint32(ULPS)).view(np.float32)
    stays = ~np.isfinite(x) | ~np.isfinite(near) | (x == 0) | (np.abs(x) == 1)
    return np.where(stays, x, near)


def result(x, is_elementary=False):
    """What this machine gives where NumPy gives x."""
    if _seed is None:
        return x
    x = np.asarray(x, np.float32)
    if is_elementary:
        x = _moved(x)
    return np.where(np.abs(x) < TINY, np.copysign(np.float32(0), x), x)
