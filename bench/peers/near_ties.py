"""Tests whether two ways to pick blocks differ only at near ties: scores that
are closer than the fp32 errors of both. Needs NumPy only."""

import numpy as np

U = 2.0**-24


def worst_swap(q, k_blocks, own, ours, theirs):
    """The largest score difference of a swapped pick of one head, as a share of
    its bound. Above 1 the swap is no near tie; infinite if a pick is not by
    score.

    q is [queries, dim] and k_blocks [blocks, block, dim], in float64. `own` is
    the block of each query, which is always picked. Picks are [queries, top],
    -1 for unused. A block's score is q times the mean of its keys. In fp32, in
    any order of summation, a number of the mean is rounded `block` times and a
    term of the score `dim` times, with its product. Each rounding errs by U of
    the sum of magnitudes.
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
            # Of each pair of blocks the two ways chose different ones.
            gap = np.abs(score[i, extra][:, None] - score[i, lost])
            bound = error[i, extra][:, None] + error[i, lost]
            worst = max(worst, float((gap / bound).max()))
    return worst
