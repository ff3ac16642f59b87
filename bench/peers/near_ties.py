"""Whether two ways to pick blocks differ only where fp32 may: at scores that are
nearer than what both may err by. NumPy alone."""

import numpy as np

U = 2.0**-24


def worst_swap(q, k_blocks, own, ours, theirs):
    """Of one head, the largest share of its bound that a swap takes; above 1 it is
    no near tie, infinite where a pick is not by score.

    q [queries, dim], k_blocks [blocks, block, dim], in float64; own, the block
    that a query lies in, which is picked whatever it scores; picks [queries, top],
    -1 unused. A block's score is q times the mean of its keys. In fp32, in
    whatever order, a number of the mean is rounded block times and a term of the
    score dim times, its product among them: each errs by U of the magnitudes.
    """
    block, dim = k_blocks.shape[1:]
    score = q @ k_blocks.mean(1).T
    size = np.abs(q) @ np.abs(k_blocks).mean(1).T
    error = U * (block + dim) * size
    worst = 0.0
    for i in range(len(q)):
        a, b = (set(picks[i][picks[i] >= 0].tolist()) for picks in (ours, theirs))
        lost, extra = sorted(a - b), sorted(b - a)
        if len(a) != len(b) or own[i] not in a & b or max(a | b) > own[i]:
            return np.inf
        if lost:
            # Either way found its own the better one of each such pair.
            gap = np.abs(score[i, extra][:, None] - score[i, lost])
            bound = error[i, extra][:, None] + error[i, lost]
            worst = max(worst, float((gap / bound).max()))
    return worst
