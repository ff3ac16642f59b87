"""Kernels with sink logits, run on arrays against fp64."""

import unittest

import numpy as np
from ml_dtypes import bfloat16

import oracle
from backward_test import BackwardCase
from bits_case import random_bits_case
from bits_test import BackwardBits, ForwardBits
from case import random_case, random_ids, run_one_contract
from checks import CaseTest
from forward_mutants_test import MiddleCase, SteppedCase
from forward_test import ForwardCase, RoundedCase
from numbers_test import BackwardStrays, ForwardStrays
from program import Program
from share_of_cases import some


KINDS_OF_CASES = (ForwardCase, RoundedCase, BackwardCase)


def run(case):
    text, room = case.emit()
    return Program(text).run(case.arrays(room), max_trips=10_000)


class Sinks(CaseTest):
    def test_random_requests(self):
        for kind in KINDS_OF_CASES:
            for seed in some(range(8)):
                with self.subTest(kind=kind, seed=seed):
                    rng = np.random.default_rng(seed)
                    cap = 40.0 if seed % 3 == 0 else 0.0
                    self.check(random_case(rng, kind, sinks=True, softcap=cap))

    def test_random_masks(self):
        for kind in (ForwardBits, BackwardBits):
            for seed in some(range(5)):
                with self.subTest(kind=kind, seed=seed):
                    rng = np.random.default_rng(seed)
                    self.check(random_bits_case(rng, kind, sinks=True))

    def test_other_dims(self):
        for dims in ((64, 64), (192, 128)):
            for kind in (ForwardCase, BackwardCase):
                with self.subTest(kind=kind, dims=dims):
                    rng = np.random.default_rng(3)
                    self.check(random_case(rng, kind, sinks=True, dims=dims))

    def test_rows_without_a_key(self):
        """Their log-sum-exp is the sink logit, and their dlse is its gradient."""
        ids = np.full((2, 400), -1, np.int32)
        ids[1, 130:140] = 3
        empty = np.flatnonzero(ids[1] < 0)
        words = dict(batch=2, heads=6, q_len=400, kv_len=400, ids=ids, sinks=True)
        sinks = np.array([0, 3.5, -170, -np.inf, 3e38, -3e38], np.float32)
        for scale in (1e-30, 1.0, 1e6):
            case = ForwardCase(
                np.random.default_rng(6), "causal & documents", scale=scale, **words
            )
            case.sinks = sinks
            out, lse = run(case)
            self.assertLessEqual(case.error([out, lse]), 1)
            self.assertTrue((out[1][:, empty] == 0).all())
            self.assertTrue((out[0, :, :400] == 0).all())
            self.assertTrue((lse[0, :, 0, :400] == sinks[:, None]).all())
            self.assertTrue((lse[1, :, 0][:, empty] == sinks[:, None]).all())
        case = BackwardCase(
            np.random.default_rng(6), "causal & documents", dlse=True, **words
        )
        case.sinks = sinks
        self.assertLessEqual(case.error(run(case)), 1)

    def test_without_a_share_it_is_as_without_one(self):
        """A sink logit of -inf gives the bits of the kernel without sinks."""
        ids = random_ids(np.random.default_rng(4), 2, 300)
        for kind in KINDS_OF_CASES:
            more = dict(dlse=True) if kind is BackwardCase else {}
            with self.subTest(kind=kind):
                outputs = []
                for sinks in (False, True):
                    case = kind(
                        np.random.default_rng(5), "causal & documents", batch=2,
                        ids=ids, valid=[300, 250], **more,
                    )
                    if sinks:
                        case.sinks = np.full(2, -np.inf, np.float32)
                    outputs.append(run(case))
                for plain, joined in zip(*outputs):
                    self.assertEqual(plain[:, :, :300].tobytes(),
                                     joined[:, :, :300].tobytes())

    def test_after_the_forward_kernel(self):
        """Forward and then backward kernel, compared with fp64 of q, k and v alone."""
        options = dict(batch=2, heads=4, kv_heads=2, q_len=500, kv_len=500)
        options |= dict(ids=random_ids(np.random.default_rng(1), 2, 500), sinks=True)
        mask = "causal & documents"
        first = ForwardCase(np.random.default_rng(7), mask, **options)
        case = BackwardCase(np.random.default_rng(7), mask, dlse=True, **options)
        first.sinks = case.sinks = np.array([1, -159, 12, 0.25], np.float32)
        out, lse = run(first)
        q, k, v, legal = case.draw()
        dout, dlse = case.draw_gradients(legal)
        case.want = oracle.gradients(
            q, k, v, dout, legal, dlse, sinks=case.sinks
        )
        text, room = case.emit()
        inputs = case.inputs(
            *(room, q, k, v, out[:2, :, :500].copy(), dout),
            *(lse[:2, :, 0, :500].copy(), dlse),
        )
        outputs = Program(text).run(inputs, max_trips=10_000)
        self.assertLessEqual(case.error(outputs), 1)

    def test_any_size(self):
        """Logits at the limits of float32, whose products with log2(e) may overflow,
        with and without keys, also where an overflow would look like a stray."""
        most = np.finfo(np.float32).max
        for kind in (*KINDS_OF_CASES, ForwardStrays, BackwardStrays):
            for dtype in (bfloat16, np.float32):
                if kind is RoundedCase and dtype is np.float32:
                    continue
                with self.subTest(kind=kind.__name__, dtype=np.dtype(dtype).name):
                    rng = np.random.default_rng(2)
                    case = kind(
                        rng, "causal & documents", heads=6, kv_heads=2, q_len=200,
                        kv_len=200, ids=np.sort(random_ids(rng, 1, 200)), tiles=1,
                        sinks=True, dtype=dtype,
                    )
                    case.sinks = np.array(
                        [3e38, -3e38, most, -most, 2.4e38, -2.4e38], np.float32
                    )
                    case.odds = 0  # no strays
                    self.assertLessEqual(case.error(run(case)), 1)

    def test_one_that_is_no_number_is_its_heads(self):
        """A logit of NaN or inf makes its head NaN where it has keys; no other head."""
        for sink in (np.nan, np.inf):
            case = ForwardCase(
                np.random.default_rng(2), "causal", heads=2, sinks=True
            )
            case.sinks = np.array([sink, 1.0], np.float32)
            text, room = case.emit()
            arrays = case.arrays(room)
            out, lse = Program(text).run(arrays, max_trips=10_000)
            self.assertTrue(np.isnan(out[0, 0, :300].astype(float)).all())
            self.assertTrue(np.isnan(lse[0, 0, 0, :300]).all())
            self.assertTrue(np.isfinite(out[0, 1, :300].astype(float)).all())

    def test_one_program_serves_every_batch_of_its_contract(self):
        run_one_contract(BackwardCase, sinks=True, dlse=True)


# Mutated are the end of a row and the sum of the gradient, at lines of queries.
KINDS = ("dropped_choice", "swapped_difference", "wrong_base", "wrong_scale",
         "dropped_accumulation", "dropped_store", "index_off_by_one",
         "dropped_wait", "dropped_start", "swapped_accesses", "swapped_steps",
         "wrong_semaphore", "early_rounding")
LINES = r"vector<1x(256|128)xf32>|[<x]4x1x128xf32|1x(256|128)xf32, #tpu|4xf32, #tpu"
# Mutants that are equivalent to the kernels here, and why.
FORWARD_EQUIVALENT = tuple(
    f"swapped_steps[{row_end + step}]"
    for row_end in (88, 107, 126, 145, 208, 227, 246, 265)
    for step in (
        1,  # the maximum of a sink and itself
        # A row without a key has a sum and values of 0, which no factor changes; its
        # sink's share is chosen last instead of before.
        6, 11, 13, 14,
    )
)
BACKWARD_EQUIVALENT = (
    # It starts when the other heads' copies have landed, and the last wait is its own.
    "swapped_accesses[13]",
    # 0 of a query with a veto is above the lowest number, by which the log-sum-exp is
    # bounded.
    *(f"swapped_steps[{i}]" for i in (1, 14, 27, 40)),
    # 0 minus a 0 that is chosen with it: a query with a veto, or without a key.
    *(f"swapped_steps[{i}]" for i in (2, 3, 15, 16, 28, 29, 41, 42)),
    # A masked pass waits for its queries and its bitmaps before it reads either, and
    # no other has bitmaps.
    "merged_semaphores[0]",
    # The copies of out have landed before the first of dQ starts, and these before
    # the next of out.
    "merged_semaphores[1]",
    # The copies of ids have landed before the first of dK or of a sink's gradient
    # starts, and the last of these before the next of ids.
    "merged_semaphores[2]",
    "merged_semaphores[4]",
)


# Sink logits of four heads; the last head is alone in the kernel's last pass. They
# take all or nothing of the softmax in some rows, or are at the limits of the range.
SINKS = ([0.5, -159, 20, 1.5], [3, -np.inf, -2, -161], [1, 2, 3, 17],
         [-3e38] * 4, [-np.inf] * 4, [3e38] * 4)
# Near the scores, for queries of few keys, so that each share counts.
NEAR = [-1.7, -1.9, -1.3, -0.45]
# Of heads whose probabilities are just below a step of bf16, or the middle of one.
STEPPED = [4.3, 5.1, 3.7, 4.9]


class Mutants(CaseTest):
    def check_mutants(self, draws, tile, kinds, equivalent, places=LINES, **settings):
        cases = []
        draws = [(draws[0], sinks) for sinks in (*SINKS, NEAR)] + [
            (draw, STEPPED) for draw in draws[1:]]
        for seed, (draw, sinks) in enumerate(draws):
            rng = np.random.default_rng(seed)
            one = seed in (0, 3, 5) or sinks is STEPPED
            ids = np.ones((2, 640), np.int32) if one else random_ids(rng, 2, 640)
            if sinks is NEAR:
                ids = np.tile(np.arange(640) // 9, (2, 1))
            case = draw(
                rng, batch=2, heads=4, kv_heads=2, q_len=600,
                kv_len=640, tile=tile, tiles=2, ids=ids,
                valid=[640, 540], sinks=True, **settings,
            )
            case.sinks = np.array(sinks, np.float32)
            cases.append(case)
        kernel, judge = self.one_kernel(cases)
        self.check_caught(self.mutants_at(kernel, kinds, places, times=2), judge,
                          equivalent)

    def test_forward(self):
        draws = [
            lambda rng, kind=kind, **words: kind(rng, "causal & documents", **words)
            for kind in (ForwardCase, SteppedCase, MiddleCase)
        ]
        kinds = (*KINDS, "dropped_division", "dropped_rescale")
        self.check_mutants(draws, (256, 128), kinds, FORWARD_EQUIVALENT)

    def test_backward(self):
        # A document's first query sees no key, although it is not vetoed.
        mask = ("&", ("causal",), ("documents",), ("!", ("window", 0, 0)))

        def draw(rng, **words):
            return BackwardBits.draw_case(rng, [mask], **words)

        # Only backward has slots of lines, and a semaphore of its own for sinks.
        kinds = (*KINDS, "wrong_slot", "merged_semaphores")
        self.check_mutants([draw], (128, 128), kinds, BACKWARD_EQUIVALENT,
                           places=LINES + "|^arguments ", dlse=True)


if __name__ == "__main__":
    unittest.main()
