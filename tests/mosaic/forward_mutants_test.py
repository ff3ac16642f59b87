"""Mutants of the forward kernel are noticed, each kind of them."""

import unittest

import numpy as np

import mutate
from checks import CaseTest, mutants_of_each
from forward_test import ForwardCase
from steps_case import BELOW_THE_MIDDLE, Stepped


class SteppedCase(Stepped, ForwardCase):
    pass


class MiddleCase(SteppedCase):
    stepped = BELOW_THE_MIDDLE


# Mutations for which the kernel has no site.
ABSENT = ("window_off_by_one", "dropped_cap", "dropped_slope")
# Mutants that are equivalent to the kernel here, and why.
EQUIVALENT = (
    # Only a list of a single pass would restart in its second pass; here each list
    # has three rows.
    "dropped_choice[15]",
    "wrong_predicate[10]",
    # Each list has a step.
    "wrong_predicate[0]",
    "ignored_condition[0]",
    # The first pass of a row multiplies the values of the previous row, which are
    # finite, by 0.
    "dropped_store[31]",
    "dropped_store[42]",
    # This value is never read.
    "zero_maximum[11]",
    # Full tiles are masked too: slower, with the same result.
    "ignored_condition[13]",
    # Tiles without a vetoed key are cleaned too.
    "ignored_condition[4]",
    "ignored_condition[14]",
    "wrong_constant[116]",  # a pass that is both first and last in its row
    # A padding step of a pass has P = 0 and finite V: it repeats a column of the
    # row, whose vetoed keys are cleaned.
    "dropped_choice[4]",
    # A list of three rows has different first and last rows.
    "ignored_condition[20]",
    # The first row of tiles is number 0, which no factor changes.
    "swapped_index[50]",
    "wrong_constant[49]",
    "wrong_constant[50]",
    "wrong_constant[61]",
    # Both steps of a pass have the same row.
    "index_off_by_one[40]",
    "index_off_by_one[97]",
    "index_off_by_one[112]",
    "index_off_by_one[123]",
    # Full tiles come first and masked ones last; a diagonal has at least two masked
    # tiles. Otherwise a full pass is masked too.
    "index_off_by_one[75]",
    "index_off_by_one[76]",
    "wrong_constant[92]",
    "wrong_constant[93]",
    "wrong_constant[94]",
    # A bit that is never read.
    "wrong_constant[25]",
    "wrong_constant[113]",
    # Tiles without a vetoed key are cleaned too, or a padding step is cleaned as
    # the column that it repeats.
    "wrong_constant[28]",
    "wrong_constant[38]",
    "wrong_constant[126]",
    "dropped_choice[24]",
    # The copies of ids have landed before the first of an output starts.
    "merged_semaphores[1]",
    # The initial maximum of a row is far below 0, so its factor is 0 either way; or
    # it is 1 if the first pass has no legal key, and that pass's sums have no effect.
    "swapped_steps[1]",
    "swapped_steps[12]",
    "swapped_steps[23]",
    "swapped_steps[34]",
    "swapped_steps[51]",
    "swapped_steps[62]",
    # The initial value of a row is multiplied by a factor 0, or is 0.
    "swapped_steps[7]",
    "swapped_steps[18]",
    "swapped_steps[29]",
    "swapped_steps[40]",
    "swapped_steps[57]",
    "swapped_steps[68]",
)


def mutation_cases():
    """Batches of one program that together detect a change in each of its parts.

    Rows of one pass and of several, with full tiles first or late; first copies
    that reach into other rows and heads; repeated ids; empty rows; a first pass
    with vetoed keys. Probabilities are close to a rounding step of bf16.
    """
    rng = np.random.default_rng(8)
    q_len, kv_len = 640, 1024
    cases = []
    for mean in (40, 130, 300, 900, 2000, 60):
        ids = np.zeros((2, kv_len), np.int32)
        for row in ids:
            at = 0
            while at < kv_len:
                n = 1 + int(rng.exponential(mean))
                row[at : at + n] = rng.integers(-1, 5)
                at += n
        valid = rng.integers(kv_len - 300, kv_len + 1, 2)
        offset = rng.integers(0, kv_len - q_len + 1, 2)
        if mean == 2000:  # a full pass follows the first one, before any sum is written
            ids[0], offset[0] = 0, 0
        if mean == 60:
            # The first row of tiles is one pass; its last tile has a veto.
            offset[:] = 0
            ids[:, :256] = np.maximum(ids[:, :256], 0)
            ids[0, 100:120] = ids[1, 228:248] = -1
        facts = {"ids": ids, "valid": valid, "q_offset": offset}
        cases.append(mutation_case(ForwardCase, rng, **facts))
    return cases + [
        stepped_case(kind, rng, offset)
        for kind, offset in ((SteppedCase, 0), (MiddleCase, 384))
    ]


def stepped_case(kind, rng, offset):
    """A row of one document, whose first row of tiles has one pass or three, and a row
    of documents that are shorter than a pass."""
    ids = np.stack([np.zeros(1024, int), np.arange(1024) // 192 % 5])
    return mutation_case(
        kind, rng, ids=ids, valid=[1024, 1000], q_offset=[offset, 384]
    )


def mutation_case(kind, rng, **facts):
    return kind(
        rng,
        "causal & documents",
        batch=2,
        # Two heads go through a pass together.
        heads=10,
        kv_heads=5,
        q_len=640,
        kv_len=1024,
        tile=(256, 128),
        tiles=2,
        ahead=9,
        **facts,
    )


class Mutants(CaseTest):
    def test_all_are_caught(self):
        cases = mutation_cases()
        kernel, judge = self.one_kernel(cases)
        sample = mutants_of_each()
        found = mutate.mutants(kernel, absent=ABSENT, sample=sample, seed=1)
        self.assertGreater(len({mutant.mutation for mutant in found}), 15)
        self.check_caught(found, judge, EQUIVALENT)


if __name__ == "__main__":
    unittest.main()
