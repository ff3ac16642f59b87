"""Compares gradients to central differences of the results, which use no
formula of the gradients. Kernels take no float64, so arrays are float32 with
exact steps, and differences are computed in float64."""

import itertools

import numpy as np

STEP = 2.0**-5


def on_a_grid(rng, *shape):
    """Normal numbers that remain exact after a step of STEP or 2 * STEP."""
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
    """Checks `gradients(*given)` of the weighted sum of `results`: along a
    random direction of each array and of all arrays, and along the signs of the
    gradient, which shows its size. A central difference errs by a third of its
    change when the step is halved. Three times that is allowed, plus the
    distance of its sums from those in float64 (`judged`). Both are at most
    `most` of the gradient's length, so that a larger mistake is detected."""
    rng = np.random.default_rng(0)
    found = [np.asarray(x, np.float64) for x in gradients(*given)]
    ways = [[rng.choice([-1.0, 1.0], x.shape) for x in given],
            [np.sign(x) for x in found]]

    def loss(step, way, of):
        """The weighted sum, and its distance from that in float64."""
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
