"""Mutants of the parts that variants of the backward kernel add to the kernel of
backward_mutants_test.py: how strays are found and counted with any numbers, and the sums
that the calls of a mesh pass on."""

import unittest

from backward_test import BackwardCase
from numbers_test import BackwardStrays
from shards_test import Mesh
from variant_mutants_test import (
    MeshMutants, drawn_cases, kernel_of, own_mutants, single_strays, stray_runs,
)

SETTINGS = dict(tiles=1, ahead=1, dlse=True)
# Types of the part that is scanned at a time, of its words, and of the counts by query.
STRAYS = "vector<1x64x128xbf16>", "x128xi32>", "vector<1x128xf32>"
# Mutants that are equivalent to the kernel here, and why.
ANY_EQUIVALENT = (
    # Parts without a stray are repaired too: slower, with the same result.
    "wrong_predicate[3]",
    "wrong_predicate[4]",
    "wrong_predicate[8]",
    # A bit of the fraction does not carry into the sign, and bf16 lacks the last
    # bit of float32.
    *(f"wrong_constant[{i}]" for i in (
        *range(49, 57), *range(59, 68), *range(93, 102), *range(106, 109),
        *range(144, 148), *range(160, 164),
    )),
    # A log-sum-exp that is NaN makes all results of its query NaN, counted or not.
    # Nothing is promised for an infinite one.
    "wrong_constant[143]",
    "wrong_constant[159]",
    "dropped_choice[37]",
    "dropped_choice[59]",
    "dropped_accumulation[13]",
    "dropped_accumulation[17]",
    # A stray in dout makes D NaN, and D makes all gradients of scores NaN.
    "dropped_accumulation[14]",
    "dropped_accumulation[18]",
    # Rounding does not make a positive count of strays 0.
    "early_rounding[37]",
    "early_rounding[39]",
    "early_rounding[48]",
    "early_rounding[50]",
    # A stray in V reaches only the pairs of its key, found or not.
    "swapped_index[206]",
    "wrong_slot[54]",
    "wrong_slot[55]",
)
# The state: dQ' by tile of queries and head; dK, dV; the rows a call begins or ends.
STATE = "10x128x128xf32", "640x128xf32", "memref<7xi32"
# There is one batch row and one K/V head, number 0.
ALONE = tuple(f"swapped_index[{i}]" for i in range(259, 270, 2))
MESH_EQUIVALENT = {
    "tessera_backward_early": ALONE + (
        # The early call continues from no other call.
        *(f"swapped_index[{i}]" for i in (*range(72, 76), *range(108, 112))),
        *(f"index_off_by_one[{i}]" for i in (50, 51, 72, 73)),
        "wrong_slot[13]",
        "wrong_slot[19]",
    ),
    "tessera_backward": ALONE,
    "tessera_backward_last": ALONE + (
        # The last call leaves nothing for another call.
        *(f"swapped_index[{i}]" for i in range(287, 291)),
        "index_off_by_one[180]",
        "index_off_by_one[181]",
        "wrong_slot[93]",
    ),
}


def any_runs():
    """Batches with and without strays, and single strays in each part of each array
    that is scanned at a time. The forward kernel's results do not have the stray,
    except in some cases of K."""
    program, room, runs = stray_runs(BackwardStrays, **SETTINGS)
    case = drawn_cases(BackwardStrays, **SETTINGS)[0]
    case.valid = [768]  # no vetoed key, which would look like a stray
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
        """The state that rows leave for another call, and that it continues from."""
        mesh = Mesh(True, heads=2, kv_heads=1, tile=(128, 128), dlse=True)
        self.check_mesh(mesh, STATE, MESH_EQUIVALENT)


if __name__ == "__main__":
    unittest.main()
