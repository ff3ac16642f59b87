"""Kernels with a softcap, run on arrays against fp64."""

import unittest

import numpy as np

import mutate
from backward_test import BackwardCase
from bits_case import random_bits_case
from bits_test import BackwardBits, ForwardBits
from case import random_case, random_ids
from checks import CaseTest, mutants_of_each
from forward_mutants_test import MiddleCase, SteppedCase
from forward_test import ForwardCase, RoundedCase
from program import Program
from share_of_cases import some
from steps_case import SOFTCAP

# Caps below most scores, below some, and above all.
CAPS = (2.0, 30.0, 500.0)


class Softcap(CaseTest):
    def check(self, case):
        self.assertIn("math.tanh", super().check(case))

    def test_random_requests(self):
        for kind in (ForwardCase, RoundedCase, BackwardCase):
            for seed in some(range(12)):
                with self.subTest(kind=kind, seed=seed):
                    rng = np.random.default_rng(seed)
                    cap = CAPS[seed % len(CAPS)]
                    self.check(random_case(rng, kind, softcap=cap))

    def test_random_masks(self):
        for kind in (ForwardBits, BackwardBits):
            for seed in some(range(5)):
                with self.subTest(kind=kind, seed=seed):
                    rng = np.random.default_rng(seed)
                    cap = CAPS[seed % len(CAPS)]
                    self.check(random_bits_case(rng, kind, softcap=cap))

    def test_the_ends_of_the_range(self):
        """Caps and scales at which a factor is nearly 0 or infinite."""
        for kind in (ForwardCase, BackwardCase):
            for cap, scale in ((1e-30, 1e6), (1e-30, 1e-30), (1e6, 1e-30),
                               (1e6, 1.0), (1e6, 1e6)):
                with self.subTest(kind=kind, cap=cap, scale=scale):
                    rng = np.random.default_rng(3)
                    ids = np.sort(random_ids(rng, 1, 300))
                    self.check(kind(
                        rng, "causal & documents", ids=ids, softcap=cap,
                        scale=scale,
                    ))

    def test_a_cap_bounds_the_scores(self):
        """With one key, the log-sum-exp is the score of the key."""
        rng = np.random.default_rng(4)
        case = ForwardCase(
            rng, "causal & window(0, -1)", scale=1e3, softcap=7.0
        )
        text, room = case.emit()
        _, lse = Program(text).run(case.arrays(room), max_trips=10_000)
        lse = lse[0, :, 0, :300]
        self.assertLessEqual(np.abs(lse).max(), 7.0001)
        self.assertTrue((lse > 6.9).any() and (lse < -6.9).any())


# Mutations that drop the tanh or change a factor.
KINDS = ("dropped_cap", "wrong_scale", "swapped_difference", "wrong_base")
# All that is rounded, with cases that show it.
ROUNDINGS = ("early_rounding", "cut_rounding")


class Mutants(CaseTest):
    def check_mutants(self, kind, kinds, scores, **settings):
        """`scores`: the number of keys in a tile of scores."""
        cases = []
        # First only masked passes, then full ones too.
        for seed in range(2):
            rng = np.random.default_rng(seed)
            ids = random_ids(rng, 1, 640) if seed == 0 else np.ones((1, 640))
            cases.append(
                kind(
                    rng, "causal & documents", heads=4, kv_heads=2, q_len=640,
                    kv_len=640, tile=(128, 128), tiles=2, ids=ids,
                    valid=rng.integers(500, 641, 1), softcap=40.0, **settings,
                )
            )
        kernel, judge = self.one_kernel(cases)
        sample = mutants_of_each()
        found = mutate.mutants(kernel, kinds, sample=sample, seed=1)
        # Mutants in which illegal pairs keep their scores.
        found += [
            m for m in mutate.mutants(kernel, ["dropped_choice"])
            if f"vector<{scores}x128xf32>" in m.where
        ][:sample]
        self.assertEqual(len({m.mutation for m in found}), len(kinds) + 1)
        self.check_caught(found, judge)

    def check_roundings(self, cases):
        kernel, judge = self.one_kernel(cases)
        sample = mutants_of_each()
        found = mutate.mutants(kernel, ROUNDINGS, sample=sample, seed=1)
        self.check_caught(found, judge)

    def test_forward(self):
        self.check_mutants(ForwardCase, KINDS, 256)

    def test_backward(self):
        self.check_mutants(BackwardCase, (*KINDS, "dropped_slope"), 128, dlse=True)

    def test_roundings_forward(self):
        """Of one document, with rows of three passes; and of several, with rows of one,
        behind which a full one comes or none."""
        several = np.repeat([0, 1, 0, 2], [256, 256, 128, 128])
        self.check_roundings([
            kind(
                np.random.default_rng(0), "causal & documents", batch=2, q_len=512,
                kv_len=768, tile=(128, 128), tiles=2, softcap=SOFTCAP,
                ids=np.stack([np.zeros(768), several]),
            )
            for kind in (ForwardCase, SteppedCase, MiddleCase)
        ])


if __name__ == "__main__":
    unittest.main()
