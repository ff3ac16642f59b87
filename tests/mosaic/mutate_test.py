"""Every mutant of kernels that Tessera did not write is caught."""

import unittest

import numpy as np

import mutate
import oracle
import packed_attention
import pallas_kernels as pallas
from program import Program

# Rounding mutants show only with numbers close to a rounding step (steps_case.py),
# which the tests of these kernels do not have. Order mutants are tested on copies below
# and on our kernels.
LEFT_OUT = ("early_rounding", "cut_rounding", "swapped_accesses", "swapped_steps")
KINDS = [name for name in mutate.MUTATIONS if name not in LEFT_OUT]


# Mutants that are equivalent to Splash, and why.
SPLASH_EQUIVALENT = (
    # The first row of tiles in causal order is read the same in both directions.
    "swapped_index[5]",
    # Scratch is cleared after the last step, and then not read.
    "dropped_store[8]",
    "dropped_store[9]",
    "dropped_store[10]",
)
SPLASH_ABSENT = ("dropped_start", "dropped_wait", "wrong_semaphore",
                 "merged_semaphores", "wrong_slot", "wrong_loop_bound",
                 "dropped_slope")


class Splash(unittest.TestCase):
    def test_all_are_caught(self):
        tokens, softcap = 512, 200.0
        ids = np.repeat(np.array([1, 2, 1], np.int32), [200, 180, 132])
        shape = (1, 1, tokens, 128)
        q, k, v = oracle.hard_inputs(3, shape, shape)
        q = (q.astype(np.float32) * 128**-0.5).astype(q.dtype)
        text = pallas.splash_text("causal", True, tokens, 128, 1, softcap)
        program = Program(text)
        legal = oracle.legal_pairs(tokens, tokens, causal=True, doc_ids=ids)
        want = oracle.attention(
            q, k, v, legal[None], scale=1.0, softcap=softcap
        )

        def judge(kernel):
            program.kernels[0] = kernel
            out, lse = program.run([q[0], k[0], v[0], ids], max_trips=1000)
            return (
                oracle.worst(out, want.out[0], want.out_error[0]) <= 1
                and oracle.worst(lse, want.lse[0], want.lse_error[0]) <= 1
            )

        kernel = program.kernels[0]
        self.assertTrue(judge(kernel))
        found = mutate.mutants(kernel, KINDS, absent=SPLASH_ABSENT)
        self.assertGreater(len(found), 60)
        self.assertEqual(
            mutate.survivors(found, judge, SPLASH_EQUIVALENT), []
        )


# The same for packed attention.
PACKED_EQUIVALENT = (
    # Without a key, log(0) makes the log-sum-exp -inf as well.
    "dropped_choice[6]",
    # Every step writes the row's output; only the last write stays.
    "ignored_condition[6]",
)
PACKED_ABSENT = SPLASH_ABSENT + ("swapped_index", "dropped_cap")


class Packed(unittest.TestCase):
    def test_all_are_caught(self):
        case, want = packed_attention.case()
        program = Program(pallas.lowered(case))

        def judge(kernel):
            program.kernels[0] = kernel
            got = program.run(case.arrays, max_trips=1000)
            return packed_attention.is_right(got, want)

        kernel = program.kernels[0]
        self.assertTrue(judge(kernel))
        found = mutate.mutants(kernel, KINDS, absent=PACKED_ABSENT)
        self.assertGreater(len(found), 80)
        self.assertEqual(
            mutate.survivors(found, judge, PACKED_EQUIVALENT), []
        )


class Copies(unittest.TestCase):
    def check(self, make, names, equivalent=()):
        case = make()
        program = Program(pallas.lowered(case))

        def judge(kernel):
            program.kernels[0] = kernel
            got = program.run(case.arrays, max_trips=1000)
            return all(
                np.array_equal(g, w) for g, w in zip(got, case.expected)
            )

        kernel = program.kernels[0]
        self.assertTrue(judge(kernel))
        found = mutate.mutants(kernel, names)
        self.assertEqual(mutate.survivors(found, judge, equivalent), [])

    def test_copies_in(self):
        names = [
            "dropped_wait",
            "dropped_start",
            "dropped_store",
            "swapped_accesses",
            "wrong_semaphore",
            "wrong_slot",
            "index_off_by_one",
            "swapped_difference",
            "swapped_index",
            "ignored_condition",
            "wrong_predicate",
            "wrong_loop_bound",
        ]
        self.check(pallas.gathered, names)

    def test_copies_out(self):
        names = ["dropped_wait", "dropped_start", "index_off_by_one",
                 "swapped_accesses", "wrong_semaphore", "wrong_slot"]
        self.check(pallas.double_buffered_output, names)


class Lists(unittest.TestCase):
    def test_sites_must_be_there(self):
        case = pallas.strided_rows()
        kernel = Program(pallas.lowered(case)).kernels[0]
        with self.assertRaisesRegex(mutate.MutationError, "found no site"):
            mutate.mutants(kernel, ["dropped_wait"])
        with self.assertRaisesRegex(mutate.MutationError, "found 3 sites"):
            mutate.mutants(kernel, ["dropped_store"], absent=["dropped_store"])
        self.assertEqual(
            mutate.mutants(kernel, ["dropped_wait"], absent=["dropped_wait"]),
            [],
        )

    def test_a_sample_is_seeded(self):
        case, _ = packed_attention.case()
        kernel = Program(pallas.lowered(case)).kernels[0]

        def draw(seed):
            found = mutate.mutants(
                kernel, ["dropped_store"], sample=3, seed=seed
            )
            return [mutant.site for mutant in found]

        self.assertEqual(len(draw(1)), 3)
        self.assertEqual(draw(1), draw(1))
        self.assertGreater(len({tuple(draw(seed)) for seed in range(9)}), 1)

    def test_survivors_are_named(self):
        case = pallas.strided_rows()
        kernel = Program(pallas.lowered(case)).kernels[0]
        found = mutate.mutants(kernel, ["dropped_store"])
        lives = mutate.survivors(found, lambda _: True)
        self.assertEqual(len(lives), len(found))
        wrong = mutate.survivors(
            found, lambda _: False, ["dropped_store[0]", "dropped_store[99]"]
        )
        self.assertEqual(len(wrong), 2)


if __name__ == "__main__":
    unittest.main()
