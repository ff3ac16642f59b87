"""Kernels whose steps lie in HBM and are read a page at a time, run on arrays against
fp64. The pages are so small that lists of few tiles take several."""

import unittest

import numpy as np

from backward_test import BackwardCase
from bits_case import random_bits_case
from bits_test import BackwardBits, ForwardBits
from case import random_case, run_one_contract
from checks import CaseTest
from forward_test import ForwardCase, RoundedCase
from share_of_cases import some
from telemetry_test import TelemetryBits


def bucket(n):
    """The least of 2^k and 1.5 * 2^k that is at least n."""
    power = 1
    while power < n:
        power *= 2
    return power // 4 * 3 if power >= 4 and power // 4 * 3 >= n else power


def paged(kind):
    class Paged(kind):
        def __init__(self, rng, mask, **settings):
            super().__init__(rng, mask, **settings)
            tile = settings.get("tile", (128, 128))
            backward = "--backward" in self.direction
            tokens = self.q_len if backward else self.kv_len
            tiles = -(-bucket(tokens) // tile[0 if backward else 1])
            # A page holds the longest possible row, and sometimes a few steps more.
            row = -(-tiles // self.tiles) * self.tiles
            self.static += ["--page-steps", row + self.ahead % 4]

        def emit(self):
            text, room = super().emit()
            assert room["page"] > 0
            return text, room

    return Paged


class Pages(CaseTest):
    def test_random_requests(self):
        for kind in (ForwardCase, RoundedCase, BackwardCase):
            for seed in some(range(12)):
                with self.subTest(kind=kind, seed=seed):
                    rng = np.random.default_rng(seed)
                    sinks = seed % 3 == 0
                    self.check(random_case(rng, paged(kind), sinks=sinks))

    def test_random_masks(self):
        for kind in (ForwardBits, BackwardBits, TelemetryBits):
            for seed in some(range(8)):
                with self.subTest(kind=kind, seed=seed):
                    rng = np.random.default_rng(seed)
                    self.check(random_bits_case(rng, paged(kind)))

    def test_one_program_serves_every_batch_of_a_contract(self):
        for kind, more in ((ForwardCase, {}), (BackwardCase, {"dlse": True})):
            run_one_contract(paged(kind), heads=2, kv_heads=1, tile=(128, 128),
                             tiles=1, ahead=2, **more)


# Sites that read pages and their ranges (bounds have three words), and all pairs of
# semaphores.
PLACES = (
    r"-> memref<1024xi32|dma.*smem|load .*memref<(?!1024x|3x)\d+xi32, [^,]*smem"
    "|^arguments "
)
KINDS = ("index_off_by_one", "dropped_wait", "dropped_start", "wrong_semaphore",
         "wrong_slot", "swapped_accesses", "merged_semaphores")
# Mutants that mean the same as the kernel, each with the reason.
FORWARD_EQUIVALENT = (
    # The copies of a page have landed before those of ids start, these before the
    # first of an output, and the last of an output before the next page.
    "merged_semaphores[1]",
    "merged_semaphores[2]",
    "merged_semaphores[3]",
)
BACKWARD_EQUIVALENT = (
    # The copies of out have landed before the first of dQ starts, and these before
    # the next of out.
    "merged_semaphores[1]",
    # The copies of ids have landed before the first of dK starts, and the last of dK
    # before the next of ids.
    "merged_semaphores[2]",
    # The copies of ids have landed before those of the next page start, and these
    # before anything else does.
    "merged_semaphores[4]",
)


class Mutants(CaseTest):
    def check_mutants(self, kind, kinds, equivalent, **settings):
        rng = np.random.default_rng(5)
        # Lists of several pages, and lists of one page.
        cases = []
        for length in (256, 128):
            ids = np.arange(768)[None, :].astype(np.int32) // length
            cases.append(paged(kind)(
                rng, "causal & documents", batch=1, heads=4, kv_heads=2, q_len=768,
                kv_len=768, tile=(128, 128), tiles=1, ahead=2, ids=ids, **settings,
            ))
        kernel, judge = self.one_kernel(cases)
        self.check_caught(self.mutants_at(kernel, kinds, PLACES), judge, equivalent)

    def test_forward(self):
        kinds = (*KINDS, "ignored_condition")
        self.check_mutants(ForwardCase, kinds, FORWARD_EQUIVALENT)

    def test_backward(self):
        self.check_mutants(BackwardCase, KINDS, BACKWARD_EQUIVALENT, dlse=True)


if __name__ == "__main__":
    unittest.main()
