"""Mutants of what variants of the backward kernel have beside the one that its own test
mutates: how strays of any numbers are found and counted, and the sums that calls of a
mesh leave to each other."""

import unittest

from backward_test import BackwardCase
from numbers_test import BackwardStrays
from shards_test import Mesh
from variant_mutants_test import (
    MeshMutants, drawn_cases, kernel_of, own_mutants, single_strays, stray_runs,
)

SETTINGS = dict(tiles=1, ahead=1, dlse=True)
# What is looked through at a time, its words, and what is counted of each query.
STRAYS = "vector<1x64x128xbf16>", "x128xi32>", "vector<1x128xf32>"
# Why these mean the same as the kernel here.
ANY_EQUIVALENT = (
    # What has no stray is repaired as well: slower, and the same.
    "wrong_predicate[3]",
    "wrong_predicate[4]",
    "wrong_predicate[8]",
    # A bit of the fraction carries into no sign, and bf16 has not the last one of
    # float32.
    *(f"wrong_constant[{i}]" for i in (
        *range(49, 57), *range(59, 68), *range(93, 102), *range(106, 109),
        *range(144, 148), *range(160, 164),
    )),
    # A log-sum-exp that is NaN makes all of its query NaN, counted or not. Of an
    # infinite one nothing is promised.
    "wrong_constant[143]",
    "wrong_constant[159]",
    "dropped_choice[37]",
    "dropped_choice[59]",
    "dropped_accumulation[13]",
    "dropped_accumulation[17]",
    # A stray in the gradient of out makes D NaN, and D all gradients of scores.
    "dropped_accumulation[14]",
    "dropped_accumulation[18]",
    # Strays that were counted are some, however that is rounded.
    "early_rounding[37]",
    "early_rounding[39]",
    "early_rounding[48]",
    "early_rounding[50]",
    # A stray in V is met by the pairs of its key alone, found or not.
    "swapped_index[206]",
    "wrong_slot[54]",
    "wrong_slot[55]",
)
# dQ' of each tile of queries of each head; dK and dV; which rows a call begins, ends.
STATE = "10x128x128xf32", "640x128xf32", "memref<7xi32"
# The batch row and the K/V head are number 0 each.
ALONE = tuple(f"swapped_index[{i}]" for i in range(259, 270, 2))
MESH_EQUIVALENT = {
    "tessera_backward_early": ALONE + (
        # It goes on with nothing.
        *(f"swapped_index[{i}]" for i in (*range(72, 76), *range(108, 112))),
        *(f"index_off_by_one[{i}]" for i in (50, 51, 72, 73)),
        "wrong_slot[13]",
        "wrong_slot[19]",
    ),
    "tessera_backward": ALONE,
    "tessera_backward_last": ALONE + (
        # It leaves nothing.
        *(f"swapped_index[{i}]" for i in range(287, 291)),
        "index_off_by_one[180]",
        "index_off_by_one[181]",
        "wrong_slot[93]",
    ),
}


def any_runs():
    """Batches with strays and without; and one alone, in each part of each array that
    is looked through at a time: where a forward kernel left nothing of it, and of K
    where it did."""
    program, room, runs = stray_runs(BackwardStrays, **SETTINGS)
    case = drawn_cases(BackwardStrays, **SETTINGS)[0]
    case.valid = [768]  # no key that a veto takes looks like a stray
    arrays = ((2, 0, 740), (1, 0, 740), *((a, h, 512) for a in (0, 4) for h in (0, 1)))
    places = [(array, head, token, True) for array, head, tokens in arrays
              for token in range(5, tokens, 64)]
    places += [(1, 0, token, False) for token in (250, 330, 600)]
    return program, runs + single_strays(case, room, 96, places)


class Mutants(MeshMutants):
    def test_any_numbers(self):
        kernel, judge = self.one_kernel_of_runs(*any_runs())
        base = kernel_of(drawn_cases(BackwardCase, **SETTINGS)[0])
        found = own_mutants(kernel, base, STRAYS)
        self.assertGreater(len({mutant.mutation for mutant in found}), 5)
        self.check_caught(found, judge, ANY_EQUIVALENT)

    def test_calls_of_a_mesh(self):
        """What rows leave for another call, and what it goes on with."""
        mesh = Mesh(True, heads=2, kv_heads=1, tile=(128, 128), dlse=True)
        self.check_mesh(mesh, STATE, MESH_EQUIVALENT)


if __name__ == "__main__":
    unittest.main()
