"""Checks of a Case: runs its kernel, and mutants of it, on its arrays."""

import os
import random
import re
import unittest

import mutate
from program import Program
from share_of_cases import some, stride


class CaseTest(unittest.TestCase):
    def check(self, case):
        """Checks the kernel and returns the program's text."""
        text, room = case.emit()
        program = Program(text)
        # With another poison, a result that depends on unwritten memory
        # changes. The kernel must also be right on a machine with the errors of
        # a TPU.
        for poison, erring in ((-1, None), (7, 5)):
            self.check_run(case, program, room, poison=poison, erring=erring)
        return text

    def check_erring(self, case):
        """The same with one run only, for long runs."""
        text, room = case.emit()
        self.check_run(case, Program(text), room, erring=5)

    def check_run(self, case, program, room, **machine):
        outputs = program.run(case.arrays(room), max_trips=100_000, **machine)
        self.assertLessEqual(case.error(outputs), 1)

    def one_kernel(self, cases):
        """The kernel of all cases, and a function that judges mutants of it."""
        text, room = cases[0].emit()
        for case in cases:
            self.assertEqual(case.emit()[0], text)
        return self.one_kernel_of_runs(
            Program(text), [(case, case.arrays(room)) for case in cases])

    def one_kernel_of_runs(self, program, runs):
        """The same for given pairs (case, arrays)."""
        def judge(kernel):
            program.kernels[0] = kernel
            return all(
                case.error(program.run(arrays, max_trips=10_000)) <= 1
                for case, arrays in runs
            )

        kernel = program.kernels[0]
        self.assertTrue(judge(kernel))
        return kernel, judge

    def mutants_at(self, kernel, kinds, places, times=1):
        """A sample of the mutants of each kind whose site matches the pattern
        `places`: `times` mutants_of_each() of each. Each kind must have such a
        site."""
        drawn = []
        for kind in kinds:
            found = [m for m in mutate.mutants(kernel, [kind])
                     if re.search(places, m.where)]
            self.assertTrue(found, kind)
            count = min(times * mutants_of_each(), len(found))
            drawn += random.Random(kind).sample(found, count)
        return drawn

    def check_caught(self, found, judge, equivalent=()):
        """Expects that the judge rejects all mutants but the equivalent ones.
        Those need not all be in the sample; a run of some cases has only
        some."""
        if mutants_of_each() >= ALL:
            there = {m.name for m in found}
            self.assertEqual([name for name in equivalent if name not in there], [])
        if "TESSERA_MUTANTS" not in os.environ:
            found = some(found)
        drawn = [m.name for m in found if m.name in equivalent]
        self.assertEqual(mutate.survivors(found, judge, drawn), [])


ALL = 1000


def mutants_of_each():
    """TESSERA_MUTANTS: the number of mutants of each mutation [3, or 1 in a run
    of some cases]; 1000 means all."""
    return int(os.environ.get("TESSERA_MUTANTS", "3" if stride() == 1 else "1"))
