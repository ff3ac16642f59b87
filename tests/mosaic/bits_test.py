"""Kernels that take bitmaps of tiles, run on arrays against fp64."""

import unittest

import numpy as np

from backward_test import BackwardCase
from bits_case import GRANULARITIES, Bits, Unions, random_bits_case, random_picks
from checks import CaseTest
from forward_test import ForwardCase
from share_of_cases import some


class ForwardBits(Bits, ForwardCase):
    pass


class BackwardBits(Bits, BackwardCase):
    pass


class ForwardUnions(Unions, ForwardBits):
    pass


class BackwardUnions(Unions, BackwardBits):
    pass


class BitsTest(CaseTest):
    def test_random_masks(self):
        for kind in (ForwardBits, BackwardBits):
            for seed in some(range(16)):
                with self.subTest(kind=kind, seed=seed):
                    rng = np.random.default_rng(seed)
                    self.check(random_bits_case(rng, kind))

    def test_picks_of_every_granularity(self):
        """Picks for all heads, for each KV head and for each query head."""
        for kind in (ForwardBits, BackwardBits):
            for granularity in some(GRANULARITIES):
                for pick_heads in (1, 2, 4):
                    with self.subTest(kind=kind, n=granularity, heads=pick_heads):
                        rng = np.random.default_rng(granularity)
                        picks = random_picks(rng, 1, pick_heads, 200, 300, granularity)
                        mask = ("&", ("causal",), ("blocks", granularity))
                        # The text knows no facts: one mask for each pick head.
                        case = kind.draw_case(
                            rng, [mask] * pick_heads, picks=picks,
                            heads=4, kv_heads=2, q_len=200, kv_len=300,
                        )
                        self.check(case)

    def test_picks_of_a_row_of_tiles(self):
        """All queries of a tile row see the picks of each of them, as far as the mask
        allows."""
        for kind in (ForwardUnions, BackwardUnions):
            for seed, block in some(list(enumerate((64, 128, 256)))):
                for tile in ((128, 128), (256, 128)):
                    with self.subTest(kind=kind, block=block, tile=tile):
                        rng = np.random.default_rng(seed)
                        picks = random_picks(rng, 1, 1, 520, 520, block)
                        mask = ("&", ("causal",), ("routed", picks.shape[3], block))
                        case = kind.draw_case(
                            rng, [mask], picks=picks, heads=4, kv_heads=2,
                            q_len=520, kv_len=520, tile=tile,
                        )
                        self.check(case)
                        # Some query sees more than its own picks.
                        legal = case.legal(0)[0]
                        own = (picks[0, 0][:, :, None] == np.arange(520) // block)
                        self.assertTrue((legal & ~own.any(1)).any())

    def test_ids_of_names(self):
        """Masks with one group, with two, and with one in packed documents."""
        a, b = ("same", "a"), ("same", "b")
        for kind in (ForwardBits, BackwardBits):
            for number, mask in some(list(enumerate((
                a, ("|", ("causal",), a), ("|", ("causal",), a, b),
                ("&", ("|", ("causal",), b), ("documents",)), ("&", ("!", a), b),
            )))):
                with self.subTest(kind=kind, mask=mask):
                    rng = np.random.default_rng(number)
                    valid = rng.integers(200, 400, 2) if number % 2 else None
                    self.check(kind.draw_case(
                        rng, [mask], batch=2, q_len=300, kv_len=390, valid=valid,
                        heads=4, kv_heads=2,
                    ))

    def test_backward_heads_that_go_together(self):
        """Heads of one list, in one turn or several; heads of two lists."""
        for heads, kv_heads, masks, due in (
            (8, 1, MASKS[:1], 4), (6, 6, MASKS[:1], 3), (8, 2, MASKS, 4),
            (12, 2, MASKS, 3),
        ):
            with self.subTest(heads=heads, kv_heads=kv_heads, lists=len(masks)):
                rng = np.random.default_rng(heads)
                case = BackwardBits.draw_case(
                    rng, masks, heads=heads, kv_heads=kv_heads, q_len=290,
                    kv_len=420, tile=(128, 128), tiles=2, ahead=2,
                )
                self.assertEqual(case.emit()[1]["heads_per_pass"], due)
                self.check(case)


# Heads with different masks: one of documents or chunks, one of a prefix.
MASKS = (
    ("&", ("causal",), ("|", ("documents",), ("chunk", 200))),
    ("|", ("prefix",), ("&", ("causal",), ("!", ("window", 300, 0)))),
)


def mutation_cases(kind, **settings):
    """Batches of one program: full passes first and late, empty rows, and rows of one
    pass and of several."""
    rng = np.random.default_rng(21)
    cases = []
    for mean in (60, 2000):
        ids = np.zeros((1, 768), np.int32)
        at = 0
        while at < 768:
            n = 1 + int(rng.exponential(mean))
            ids[0, at : at + n] = rng.integers(0, 5)
            at += n
        cases.append(
            kind.draw_case(
                rng, MASKS, heads=4, kv_heads=2, q_len=700, kv_len=768,
                tile=(128, 256), tiles=2, ids=ids,
                valid=rng.integers(600, 769, 1), **settings,
            )
        )
    return cases


# Sites of masked passes that use bitmaps (their numbers, copies and slots), and all
# pairs of semaphores.
KINDS = ("swapped_index", "index_off_by_one", "dropped_wait", "dropped_start",
         "wrong_semaphore", "wrong_slot", "swapped_accesses", "merged_semaphores")
PLACES = r"8x128xi32|16x128xi32|%arg4\[|arguments "
# Mutants that mean the same as the kernel, each with the reason.
FORWARD_EQUIVALENT = (
    # The copies of ids have landed before the first of an output starts, and the last
    # of these before the next of ids.
    "merged_semaphores[3]",
)
BACKWARD_EQUIVALENT = (
    # A masked pass waits for its queries and its bitmaps before it reads either, and
    # no other has bitmaps.
    "merged_semaphores[1]",
    # The copies of out have landed before the first of dQ starts, and these before
    # the next of out.
    "merged_semaphores[3]",
    # The copies of ids have landed before the first of dK starts, and the last of dK
    # before the next of ids.
    "merged_semaphores[4]",
)


class Mutants(CaseTest):
    def check_mutants(self, cases, equivalent):
        kernel, judge = self.one_kernel(cases)
        self.check_caught(self.mutants_at(kernel, KINDS, PLACES), judge, equivalent)

    def test_forward(self):
        cases = mutation_cases(ForwardBits, ahead=3)
        self.check_mutants(cases, FORWARD_EQUIVALENT)

    def test_backward(self):
        cases = mutation_cases(BackwardBits, ahead=2, dlse=True)
        self.check_mutants(cases, BACKWARD_EQUIVALENT)


if __name__ == "__main__":
    unittest.main()
