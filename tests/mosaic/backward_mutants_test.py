"""Mutants of the backward kernel are noticed, each kind of them."""

import unittest

import numpy as np

import mutate
from backward_test import BackwardCase
from checks import CaseTest, mutants_of_each
from steps_case import SteppedGradients


class NumberedCase(BackwardCase):
    """A vetoed query is marked only by its id, not by a NaN log-sum-exp."""

    gone_lse = 0.0


def stepped(turns, head, twice):
    class SteppedCase(SteppedGradients, BackwardCase):
        pass

    SteppedCase.turns, SteppedCase.head, SteppedCase.twice = turns, head, twice
    return SteppedCase


# Mutations for which the kernel has no site.
ABSENT = ("window_off_by_one", "dropped_cap", "dropped_slope", "dropped_division")
# Mutants that are equivalent to the kernel here, and why.
EQUIVALENT = (
    # Each list has a step.
    "wrong_predicate[0]",
    "ignored_condition[0]",
    # Both steps of a pass have the same column.
    "wrong_constant[1]",
    # All heads are in one group, whose number is 0 in every expression.
    "swapped_index[8]",
    "swapped_index[16]",
    "swapped_index[187]",
    "swapped_index[195]",
    "swapped_index[380]",
    "swapped_index[388]",
    "wrong_constant[7]",
    "wrong_constant[69]",
    "wrong_constant[79]",
    "wrong_constant[80]",
    "wrong_constant[168]",
    "wrong_constant[169]",
    "wrong_constant[171]",
    # The first row of tiles and its slot are number 0, which no factor changes.
    "swapped_index[59]",
    "swapped_index[60]",
    "swapped_index[61]",
    "swapped_index[67]",
    "swapped_index[68]",
    "swapped_index[69]",
    "swapped_index[75]",
    "swapped_index[76]",
    "swapped_index[77]",
    "swapped_index[83]",
    "swapped_index[84]",
    "swapped_index[85]",
    "wrong_constant[21]",
    "wrong_constant[22]",
    "wrong_constant[23]",
    "wrong_constant[24]",
    "wrong_constant[25]",
    "wrong_constant[26]",
    # Full tiles are masked too: slower, with the same result. So are those of a pass
    # that ends its column.
    "ignored_condition[13]",
    "wrong_constant[83]",
    "wrong_constant[84]",
    # Every pass of heads writes dK and dV; only the last write stays.
    "dropped_choice[42]",
    # Scores of a vetoed key are never chosen: no full tile has such a key, and no query
    # has its id. Other uses read K after it is transposed and cleaned.
    "dropped_store[7]",
    # A query without a veto sees itself, so its log-sum-exp is above -inf.
    "dropped_mask_term[1]",
    "dropped_mask_term[3]",
    # The copies of ids land before the first copy of dK starts, those of queries
    # before the first of dQ, and those of dQ before the next of queries.
    "merged_semaphores[1]",
    "merged_semaphores[2]",
    # A factor does not change 0 or -inf.
    "swapped_steps[0]",
    "swapped_steps[3]",
    "swapped_steps[22]",
    "swapped_steps[27]",
    "swapped_steps[32]",
    "swapped_steps[37]",
    # 0 minus a 0 that is chosen with it, or a factor of P = 0.
    "swapped_steps[1]",
    "swapped_steps[2]",
    "swapped_steps[4]",
    "swapped_steps[5]",
    # The value is rounded before the transpose instead of after it.
    "early_rounding[88]",
    "early_rounding[89]",
    "early_rounding[90]",
)


def mutation_cases():
    """Batches of one program that together detect a change in each of its parts.

    Lists of one pass and of several, with full tiles first or late, or on both
    sides of a masked one; keys that no query sees; heads of one group in turns.
    Probabilities are close to a rounding step of bf16.
    """
    rng = np.random.default_rng(8)
    cases = []
    for mean in (40, 300, 2000):
        ids = np.zeros((2, 640), np.int32)
        for row in ids:
            at = 0
            while at < 640:
                n = 1 + int(rng.exponential(mean))
                row[at : at + n] = rng.integers(-1, 5)
                at += n
        valid, offset = rng.integers(500, 641, 2), rng.integers(0, 129, 2)
        if mean == 2000:  # the first column of tiles: full, masked, full, full
            ids[0], valid[0], offset[0] = 0, 640, 128
            ids[0, 300:310] = 1
        kind = NumberedCase if mean == 40 else BackwardCase
        cases.append(
            mutation_case(kind, rng, ids=ids, valid=valid, q_offset=offset)
        )
    # A row of one document, whose first column of tiles is full, and a row of
    # documents that are shorter than a pass.
    one, short = np.zeros(640, int), np.arange(640) // 96 % 5
    for head in (0, 1):
        for turns, twice in (((0, 0), False), ((1, 1), False), ((0, 1), True)):
            cases.append(mutation_case(
                stepped(turns, head, twice), rng,
                valid=[640, 640 if twice else 600],
                ids=np.stack([one, one if twice else short]),
                q_offset=[128, 128 if twice else 64],
            ))
    return cases


def mutation_case(kind, rng, **facts):
    return kind(
        rng,
        "causal & documents",
        batch=2,
        # Two heads go through a pass together.
        heads=10,
        kv_heads=1,
        q_len=512,
        kv_len=640,
        tiles=2,
        ahead=3,
        dlse=True,
        **facts,
    )


class Mutants(CaseTest):
    def test_all_are_caught(self):
        kernel, judge = self.one_kernel(mutation_cases())
        sample = mutants_of_each()
        found = mutate.mutants(kernel, absent=ABSENT, sample=sample, seed=1)
        self.assertGreater(len({mutant.mutation for mutant in found}), 20)
        self.check_caught(found, judge, EQUIVALENT)


if __name__ == "__main__":
    unittest.main()
