"""Error bounds of elements computed in fp32, and checks by them. These are the
rules of the library's own judge, with the same names. Each is derived in
src/lanes/reference/bound.cc.
"""

import dataclasses

import numpy as np

U = 2.0**-24  # unit roundoff of fp32
TINY = 2.0**-126  # a probability below it may have become 0


@dataclasses.dataclass
class Rounding:
    output: float  # relative error of the cast at the end
    output_tiny: float  # absolute error of that cast for a subnormal result
    product: float  # of P and dS, which may be rounded with 16-bit inputs
    largest: float
    lost: float  # absolute error of each product and each result


ROUNDING = {
    "bfloat16": Rounding(2.0**-8, 2.0**-134, 2.0**-8, (2 - 2.0**-7) * 2.0**127,
                         TINY),
    "float16": Rounding(2.0**-11, 2.0**-25, 2.0**-11, 65504.0, 2.0**-150),
    "float32": Rounding(U, 2.0**-150, 0.0, (2 - 2.0**-23) * 2.0**127,
                        2.0**-150),
}


@dataclasses.dataclass
class Expected:
    value: np.ndarray
    error: np.ndarray  # allowed, without the cast at the end
    dtype: str = "float32"

    def __getitem__(self, at):
        return Expected(self.value[at], self.error[at], self.dtype)


def shares(found, expected):
    """Each element's error as a share of its bound; above 1 fails. NaN and Inf
    must be equal to the expected ones, and so must an exact 0."""
    want, r = expected.value, ROUNDING[expected.dtype]
    found = np.asarray(found).astype(np.float64)
    assert found.shape == want.shape, (found.shape, want.shape)
    size = np.abs(want)
    with np.errstate(invalid="ignore", divide="ignore"):
        off = np.abs(found - want)
        allowed = expected.error + r.output * size + np.where(
            (size > 0) | (expected.error > 0), r.output_tiny, 0)
        share = np.where(off == 0, 0, off / allowed)
        overflows = np.isinf(found) & (np.sign(found) == np.sign(want)) & (
            size + expected.error > r.largest * (1 - r.output))
    share = np.where(np.isnan(share), np.inf, share)
    same = overflows | (np.isnan(found) & np.isnan(want))
    wrong = np.isfinite(found) != np.isfinite(want)
    return np.where(same, 0, np.where(wrong, np.inf, share))


def check(found, expected, name="element"):
    """The largest share of a bound; asserts that it is below 1."""
    share = shares(found, expected)
    if not share.size:
        return 0.0
    at = np.unravel_index(share.argmax(), share.shape)
    worst = float(share[at])
    assert worst <= 1, (
        f"{name}{[int(i) for i in at]} is {np.asarray(found)[at]:.9g} for "
        f"{expected.value[at]:.9g}: {worst:.3g} of its bound")
    return worst


def sum_error(terms, r=None, stored_every=0):
    """The error of a sum of `terms` terms. If the sum is stored in the output's
    dtype after every `stored_every` terms, the error of these stores is taken
    to grow as that of fp32 does."""
    stores = np.sqrt(terms / stored_every + 1) * r.output if stored_every else 0
    return (8 + np.sqrt(terms)) * U + stores


def dot_error(dim):
    return (dim + 4) * U
