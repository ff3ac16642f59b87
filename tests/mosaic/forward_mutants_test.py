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
# Why these mean the same as the kernel here.
EQUIVALENT = (
    # Only a list of a single pass would begin its second pass anew; here each has
    # three rows.
    "dropped_choice[15]",
    "wrong_predicate[10]",
    # No list is without a step.
    "wrong_predicate[0]",
    "ignored_condition[0]",
    # The first pass of a row takes what the row before left, which is finite, 0
    # times.
    "dropped_store[31]",
    "dropped_store[42]",
    # Nobody reads it.
    "zero_maximum[11]",
    # Full tiles masked as well: slower, and the same.
    "ignored_condition[13]",
    # What has no vetoed key cleaned as well.
    "ignored_condition[4]",
    "ignored_condition[14]",
    "wrong_constant[116]",  # where a pass begins and ends its row
    # P of a step that fills a pass up is 0, and V finite: it names a column of
    # the row again, whose vetoed keys are cleaned as that column's.
    "dropped_choice[4]",
    # With three rows the last one is never the first.
    "ignored_condition[20]",
    # The first row of tiles is row 0, whatever it is multiplied by.
    "swapped_index[50]",
    "wrong_constant[49]",
    "wrong_constant[50]",
    "wrong_constant[61]",
    # The second step of a pass names the row of its first.
    "index_off_by_one[40]",
    "index_off_by_one[97]",
    "index_off_by_one[112]",
    "index_off_by_one[123]",
    # Full tiles come first, and masked ones behind the pass that has both: a
    # diagonal has two at least. Else a full pass is masked as well.
    "index_off_by_one[75]",
    "index_off_by_one[76]",
    "wrong_constant[92]",
    "wrong_constant[93]",
    "wrong_constant[94]",
    # A bit that nobody asks for.
    "wrong_constant[25]",
    "wrong_constant[113]",
    # What has no vetoed key cleaned as well, or a step that fills a pass up as
    # the column that it names.
    "wrong_constant[28]",
    "wrong_constant[38]",
    "wrong_constant[126]",
    "dropped_choice[24]",
    # The copies of ids have landed before the first of an output starts.
    "merged_semaphores[1]",
    # What a row begins with is far below 0, and its factor 0 either way; or 1 where
    # its first pass shows no key, and what that sums up counts for nothing.
    "swapped_steps[1]",
    "swapped_steps[12]",
    "swapped_steps[23]",
    "swapped_steps[34]",
    "swapped_steps[51]",
    "swapped_steps[62]",
    # What a row begins with is 0 times its factor, or 0.
    "swapped_steps[7]",
    "swapped_steps[18]",
    "swapped_steps[29]",
    "swapped_steps[40]",
    "swapped_steps[57]",
    "swapped_steps[68]",
)


def mutation_cases():
    """Batches of one program that together tell its parts apart.

    Rows of one pass and of several, with full tiles first or late; rows and
    heads that the first copies cross; ids that come again; empty rows; a very
    first pass with keys that a veto takes. Probabilities beside a step of bf16.
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
        if mean == 2000:  # a full pass behind the very first, when no sum is written
            ids[0], offset[0] = 0, 0
        if mean == 60:
            # The first row of tiles is one pass, whose tile with a veto comes last.
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
    """One document, whose first row of tiles is one pass or three; documents within
    a pass."""
    ids = np.stack([np.zeros(1024, int), np.arange(1024) // 192 % 5])
    return mutation_case(
        kind, rng, ids=ids, valid=[1024, 1000], q_offset=[offset, 384]
    )


def mutation_case(kind, rng, **facts):
    return kind(
        rng,
        "causal & documents",
        batch=2,
        # Two heads a pass.
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
