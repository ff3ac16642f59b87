"""Gradients beside central differences of the results themselves, which know
nothing of a formula for them. Kernels take no float64: arrays are float32, on
which steps are exact, and differences are taken in float64."""

import itertools

import numpy as np

STEP = 2.0**-5


def on_a_grid(rng, *shape):
    """Normal numbers that a step of STEP, or twice that, leaves exact."""
    return (np.round(rng.standard_normal(shape) * 2**10) / 2**10).astype(
        np.float32)


def drawn(rng, length):
    """q of four heads, k and v of two and sink logits, on the grid; weights of out
    and the log-sum-exp."""
    given = [on_a_grid(rng, 1, heads, length, 8) for heads in (4, 2, 2)]
    weights = [rng.standard_normal(shape, np.float32)
               for shape in (given[0].shape, given[0].shape[:3])]
    return (*given, on_a_grid(rng, 4)), weights


def check(results, judged, gradients, given, weights, most=2**-8):
    """`gradients(*given)` of the sum of `results` under `weights`, along a random
    way of each array and of all of them, and along signs of the gradient, where its
    size shows. A central difference errs by a third of what it
    moves by when its step is halved: thrice that is allowed, and how far its sums
    are from float64's (`judged`). Both are at most `most` of the gradient's length,
    so that what is wrong by more shows."""
    rng = np.random.default_rng(0)
    found = [np.asarray(x, np.float64) for x in gradients(*given)]
    ways = [[rng.choice([-1.0, 1.0], x.shape) for x in given],
            [np.sign(x) for x in found]]

    def loss(step, way, of):
        """And how far it is from float64."""
        at = [(x + step * w).astype(np.float32) if i in of else x
              for i, (x, w) in enumerate(zip(given, way))]
        sums = [sum((np.asarray(x, np.float64) * w).sum()
                    for x, w in zip(made, weights))
                for made in (results(*at), [e.value for e in judged(*at)])]
        return sums[0], abs(sums[0] - sums[1])

    def slope(step, *along):
        (up, more), (down, less) = loss(step, *along), loss(-step, *along)
        return (up - down) / (2 * step), (more + less) / (2 * step)

    every = range(len(given))
    for way, of in itertools.product(ways, [*((i,) for i in every), (*every,)]):
        narrow, error = slope(STEP, way, of)
        wide, other = slope(2 * STEP, way, of)
        want = sum((found[i] * way[i]).sum() for i in of)
        size = sum((found[i] ** 2).sum() for i in of) ** 0.5
        allowed = abs(narrow - wide) + error + other
        told = (of, want, narrow, wide, error, size)
        assert abs(narrow - want) <= allowed, told
        assert allowed < most * max(size, abs(want)), told
