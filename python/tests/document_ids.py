"""Document ids: cut where it is said, or drawn."""

import numpy as np

# Of three tiles of 128, causal: no two have the same lists.
EIGHT_CUTS = ((), (128,), (256,), (128, 256), (100,), (200,), (300,), (128, 300))


def cut_ids(tokens, *starts):
    """int32 [tokens]: a document begins at 0 and at each of these."""
    return np.searchsorted(starts, np.arange(tokens), "right").astype(np.int32)


def draw_ids(seed, tokens, mean):
    """int32 [tokens], of lognormal lengths, as documents have."""
    rng = np.random.default_rng(seed)
    lengths = rng.lognormal(np.log(mean) - 0.5, 1, tokens).astype(int) + 1
    return cut_ids(tokens, *np.cumsum(lengths))
