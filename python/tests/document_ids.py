"""Document ids, with given or random document starts."""

import numpy as np

# For three tiles of 128, causal: eight cuts with eight different lists.
EIGHT_CUTS = ((), (128,), (256,), (128, 256), (100,), (200,), (300,), (128, 300))


def cut_ids(tokens, *starts):
    """int32 [tokens]: a document begins at 0 and at each of `starts`."""
    return np.searchsorted(starts, np.arange(tokens), "right").astype(np.int32)


def draw_ids(seed, tokens, mean):
    """int32 [tokens]: documents of lognormal lengths."""
    rng = np.random.default_rng(seed)
    lengths = rng.lognormal(np.log(mean) - 0.5, 1, tokens).astype(int) + 1
    return cut_ids(tokens, *np.cumsum(lengths))
