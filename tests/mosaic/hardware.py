"""A machine with rounding errors as a TPU may have them.

The errors of a TPU's exp2, log, tanh and division are not documented. Under
`erring(seed)` such a result differs from NumPy's by up to ULPS units in the
last place, drawn from its own bits and the seed, and subnormal results of
arithmetic are 0. Exact results stay exact: 0, 1, infinities, NaN.
"""

import contextlib

import numpy as np

ULPS = 2
TINY = np.float32(2.0**-126)

_seed = None


@contextlib.contextmanager
def erring(seed):
    """Sets the seed of errors for a block; None: results are NumPy's."""
    global _seed
    before, _seed = _seed, seed
    try:
        yield
    finally:
        _seed = before


def _moved(x):
    # Adding 1 to the bits of a float gives the next float.
    bits = x.view(np.uint32)
    with np.errstate(over="ignore"):
        drawn = (bits ^ np.uint32(_seed)) * np.uint32(0x9E3779B1)
        drawn = (drawn ^ (drawn >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        steps = (drawn >> np.uint32(8)) % np.uint32(2 * ULPS + 1)
        near = (bits + steps - np.uint32(ULPS)).view(np.float32)
    stays = ~np.isfinite(x) | ~np.isfinite(near) | (x == 0) | (np.abs(x) == 1)
    return np.where(stays, x, near)


def result(x, is_elementary=False):
    """This machine's result where NumPy's is x."""
    if _seed is None:
        return x
    x = np.asarray(x, np.float32)
    if is_elementary:
        x = _moved(x)
    return np.where(np.abs(x) < TINY, np.copysign(np.float32(0), x), x)
