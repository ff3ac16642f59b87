"""Kernels that take bitmaps of tiles, run on arrays against fp64."""

import unittest

import numpy as np

from backward_test import BackwardCase
from bits_case import Bits, random_bits_case
from forward_test import ForwardCase
from program import Program


class ForwardBits(Bits, ForwardCase):
    pass


class BackwardBits(Bits, BackwardCase):
    pass


class BitsTest(unittest.TestCase):
    def check(self, case):
        text, room = case.emit()
        program = Program(text)
        # A result that hangs on what nobody wrote would change with it.
        for poison in (-1, 7):
            outputs = program.run(
                case.arrays(room), poison=poison, max_trips=100_000
            )
            self.assertLessEqual(case.error(outputs), 1)

    def test_random_masks(self):
        for kind in (ForwardBits, BackwardBits):
            for seed in range(16):
                with self.subTest(kind=kind, seed=seed):
                    rng = np.random.default_rng(seed)
                    self.check(random_bits_case(rng, kind))


if __name__ == "__main__":
    unittest.main()
