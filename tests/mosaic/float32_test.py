"""Kernels of float32, whose products are of full precision, run on arrays against
fp64."""

import unittest

import numpy as np

from backward_test import BackwardCase
from bits_case import random_bits_case
from bits_test import BackwardBits, ForwardBits
from case import random_case, random_ids, run_one_contract
from checks import CaseTest
from forward_test import ForwardCase
from kernel import Kernel
from program import Program
from share_of_cases import some

F32 = {"dtype": np.float32}
DIMS = ((64, 64), (256, 256), (192, 128), (128, 64))
KINDS = (ForwardCase, BackwardCase)
FULL = "precision = #tpu.contract_precision<fp32>, "


def text_of_kernel(program):
    """The readable text of the kernel, which follows the program."""
    at = program.index("// The kernel, ")
    lines = program[at:].splitlines()[2:]
    return "\n".join(line.removeprefix("// ") for line in lines)


class Float32(CaseTest):
    def check(self, case):
        """Each product has full precision, and nothing is bf16."""
        kernel = text_of_kernel(super().check(case))
        self.assertGreater(kernel.count("tpu.matmul"), 1)
        self.assertEqual(kernel.count("tpu.matmul"), kernel.count(FULL))
        self.assertNotIn("bf16", kernel)

    def test_random_requests(self):
        for kind in KINDS:
            for seed in some(range(20)):
                with self.subTest(kind=kind, seed=seed):
                    rng = np.random.default_rng(seed)
                    cap = 30.0 if seed % 4 == 0 else 0.0
                    sinks = seed % 3 == 0
                    self.check(
                        random_case(rng, kind, softcap=cap, sinks=sinks, **F32)
                    )

    def test_random_masks(self):
        for kind in (ForwardBits, BackwardBits):
            for seed in some(range(8)):
                with self.subTest(kind=kind, seed=seed):
                    rng = np.random.default_rng(seed)
                    self.check(random_bits_case(rng, kind, **F32))

    def test_head_dims(self):
        for at, dims in enumerate(DIMS):
            for kind in KINDS:
                with self.subTest(kind=kind, dims=dims):
                    rng = np.random.default_rng(at)
                    self.check(random_case(rng, kind, dims=dims, **F32))

    def test_rows_without_a_key(self):
        ids = np.full((2, 400), -1, np.int32)
        ids[1, 130:140] = 3
        for kind in KINDS:
            with self.subTest(kind=kind):
                rng = np.random.default_rng(6)
                self.check(kind(
                    rng, "causal & documents", batch=2, q_len=400, kv_len=400,
                    ids=ids, **F32,
                ))

    def test_every_product_needs_its_precision(self):
        """If any one product lacks its precision, results exceed the bound."""
        for kind in KINDS:
            rng = np.random.default_rng(2)
            ids = np.zeros((1, 700), np.int32)
            ids[0, 600:] = 1
            case = kind(
                rng, "causal & documents", q_len=700, kv_len=700, ids=ids, **F32
            )
            kernel, judge = self.one_kernel([case])
            parts = text_of_kernel(case.emit()[0]).split(FULL)
            self.assertTrue(judge(Kernel(FULL.join(parts))))
            for i in range(1, len(parts)):
                with self.subTest(kind=kind, product=i):
                    text = FULL.join(parts[:i]) + FULL.join(parts[i:])
                    self.assertFalse(judge(Kernel(text)))

    def test_one_program_serves_every_batch_of_its_contract(self):
        run_one_contract(BackwardCase, dlse=True, **F32)


if __name__ == "__main__":
    unittest.main()
