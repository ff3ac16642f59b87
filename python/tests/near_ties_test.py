"""Picks of PyTorch and ours may differ only at near ties of scores."""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench/peers"))
from near_ties import worst_swap

BLOCKS, BLOCK, DIM, TOP = 12, 16, 8, 4


def problem(seed):
    random = np.random.default_rng(seed)
    q = random.standard_normal((BLOCKS * BLOCK, DIM), np.float32)
    k = random.standard_normal((BLOCKS, BLOCK, DIM), np.float32)
    return q, k, np.arange(len(q)) // BLOCK


def picks(score, own):
    """The picks of each query: its own block and the best blocks before it."""
    out = np.full((len(own), TOP), -1)
    for i, last in enumerate(own):
        best = np.argsort(-score[i, :last], kind="stable")[: TOP - 1]
        out[i, : len(best) + 1] = [*best, last]
    return out


def swap(q, k, own, ours, theirs):
    return worst_swap(q.astype(np.float64), k.astype(np.float64), own, ours, theirs)


def test_sums_in_another_order_are_near_ties():
    swapped = 0
    for seed in range(20):
        q, k, own = problem(seed)
        k[1:] = k[:1] + 1e-7 * k[1:]  # the means are almost equal in fp32
        ours = picks(q @ k.mean(1).T, own)
        backwards = k[:, ::-1, ::-1].cumsum(1)[:, -1] / np.float32(BLOCK)
        theirs = picks(q[:, ::-1] @ backwards.T, own)
        swapped += int((np.sort(ours) != np.sort(theirs)).any(1).sum())
        assert swap(q, k, own, ours, theirs) <= 1
    assert swapped > 0


def test_what_scores_less_is_no_near_tie():
    q, k, own = problem(1)
    score = q @ k.mean(1).T
    ours = picks(score, own)
    assert swap(q, k, own, ours, ours) == 0
    wrong = ours.copy()
    last = len(q) - 1
    unpicked = [b for b in range(own[last]) if b not in ours[last]]
    wrong[last, 0] = min(unpicked, key=lambda b: score[last, b])
    assert swap(q, k, own, ours, wrong) > 1


def test_picks_that_are_not_by_score():
    q, k, own = problem(2)
    ours = picks(q @ k.mean(1).T, own)
    for at, block in ((0, BLOCKS - 1), (TOP - 1, 0), (1, -1)):
        wrong = ours.copy()
        i = (BLOCKS - 2) * BLOCK  # a query of the last block but one
        if block == 0:
            block = next(b for b in range(own[i]) if b not in ours[i])
        wrong[i, at] = block
        assert swap(q, k, own, ours, wrong) == np.inf
