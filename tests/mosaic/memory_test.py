"""Copies, semaphores, windows and bounds: what must fail, fails."""

import unittest

import numpy as np

from errors import EvaluatorError
from module_text import load, ref, window

HBM = ref("32x128xf32", "any")
BLOCK = ref("8x128xf32", "vmem")
SEM = ref("!tpu.dma_semaphore", "semaphore_mem")
ARGUMENTS = [
    ("x", HBM),
    ("o", BLOCK),
    ("a", BLOCK),
    ("b", BLOCK),
    ("s", SEM),
    ("t", SEM),
]
ZERO = "%z = arith.constant 0 : index\n%i = arith.constant 0 : i32\n"
X = np.arange(32 * 128, dtype=np.float32).reshape(32, 128)


def part(name, row, source="x", rows=8):
    """%name: some rows of %x."""
    kind = ref(f"{rows}x128xf32", "any")
    return (
        f"%r{name} = arith.constant {row} : i32\n"
        f"%{name} = tpu.memref_slice %{source}[%r{name}, %i] : "
        f"{HBM} -> {kind}\n"
    )


def start(source, target, semaphore="s", rows=8, target_kind=BLOCK):
    kind = ref(f"{rows}x128xf32", "any")
    return (
        f"tpu.enqueue_dma source(%{source} : {kind}) target(%{target} : "
        f"{target_kind}) target_semaphore(%{semaphore} : {SEM})\n"
    )


def wait(source, target, semaphore="s", rows=8, target_kind=BLOCK):
    kind = ref(f"{rows}x128xf32", "any")
    return (
        f"tpu.wait_dma2 semaphore(%{semaphore} : {SEM}) src(%{source} : "
        f"{kind}) dst(%{target} : {target_kind})\n"
    )


def show(name, value):
    """Stores scratch %name in the output."""
    return (
        f"%{value} = vector.load %{name}[%z, %z] : {BLOCK}, vector<8x128xf32>\n"
        f"tpu.vector_store %o[%z, %z], %{value} {{strides = array<i32>}} : "
        f"{BLOCK}, vector<8x128xf32>, \n"
    )


def run(body, arguments=None, scratch=4, arrays=(X,), **options):
    kernel = load(arguments or ARGUMENTS, ZERO + body, scratch=scratch)
    return kernel.run(arrays, [((8, 128), np.float32)], **options)[0]


class Copies(unittest.TestCase):
    def fails(self, words, body, **options):
        with self.assertRaisesRegex(EvaluatorError, words):
            run(body, **options)

    def test_lands_at_its_wait(self):
        body = part("p", 8) + start("p", "a") + wait("p", "a") + show("a", "v")
        np.testing.assert_array_equal(run(body), X[8:16])

    def test_is_nan_before(self):
        body = part("p", 8) + start("p", "a") + show("a", "v") + wait("p", "a")
        self.assertTrue(np.isnan(run(body)).all())

    def test_values_are_those_of_its_start(self):
        body = part("p", 8) + part("n", 16) + start("p", "a")
        body += start("n", "b", "t") + wait("n", "b", "t") + wait("p", "a")
        np.testing.assert_array_equal(run(body + show("a", "v")), X[8:16])
        np.testing.assert_array_equal(run(body + show("b", "v")), X[16:24])

    def test_shared_semaphore_lands_when_all_are_waited_for(self):
        body = part("p", 8) + part("n", 16) + start("p", "a") + start("n", "b")
        early = body + wait("p", "a") + show("a", "v") + wait("n", "b")
        self.assertTrue(np.isnan(run(early)).all())
        late = body + wait("p", "a") + wait("n", "b") + show("a", "v")
        np.testing.assert_array_equal(run(late), X[8:16])

    def test_is_waited_for(self):
        self.fails(
            "every copy is waited for when the kernel ends",
            part("p", 8) + start("p", "a"),
        )
        self.fails(
            "a wait has a copy to wait for, found 0 bytes",
            part("p", 8) + wait("p", "a"),
        )
        self.fails(
            "a wait has a copy to wait for",
            part("p", 8) + start("p", "a") + wait("p", "a", "t"),
        )
        self.fails(
            "a wait has a copy to wait for, found 0 bytes",
            part("p", 8) + start("p", "a") + wait("p", "a") + wait("p", "a"),
        )

    def test_a_partial_wait_is_not_enough(self):
        self.fails(
            "every copy is waited for",
            part("p", 8)
            + part("n", 16)
            + start("p", "a")
            + start("n", "b")
            + wait("p", "a"),
        )

    def test_ends_are_left_alone(self):
        store = (
            "%v = arith.constant dense<1.0> : vector<8x128xf32>\n"
            "tpu.vector_store %a[%z, %z], %v {strides = array<i32>} : "
            f"{BLOCK}, vector<8x128xf32>, \n"
        )
        copy = part("p", 8) + start("p", "a")
        self.fails("a store leaves a copy in flight alone", copy + store)
        self.fails(
            "a copy leaves a copy in flight alone",
            copy + start("p", "a", "t"),
        )
        # A copy out of scratch memory: its source must not change either.
        self.fails(
            "a store leaves a copy in flight alone",
            store
            + f"tpu.enqueue_dma source(%a : {BLOCK}) target(%b : {BLOCK}) "
            f"target_semaphore(%s : {SEM})\n" + store.replace("%v", "%w"),
        )

    def test_ends_are_alike(self):
        self.fails(
            "DMA source and target shape mismatch",
            part("p", 8, rows=4) + start("p", "a", rows=4),
        )

    def test_inputs_are_not_written(self):
        self.fails(
            "a copy goes to no input",
            part("p", 8)
            + f"tpu.enqueue_dma source(%a : {BLOCK}) target(%p : "
            f"{ref('8x128xf32', 'any')}) target_semaphore(%s : {SEM})\n",
        )

    def test_slices_stand_inside(self):
        for row in (25, -1):
            self.fails("access inside bounds", part("p", row) + start("p", "a"))

    def test_errors_name_the_operation(self):
        self.fails("at .*tpu.memref_slice", part("p", 25) + start("p", "a"))

    def test_integers_in_flight_are_an_error(self):
        ints = ref("8x128xi32", "vmem")
        far = ref("8x128xi32", "any")
        arguments = [("x", far), ("o", ints), ("a", ints), ("s", SEM)]
        load_store = (
            f"%v = vector.load %a[%z, %z] : {ints}, vector<8x128xi32>\n"
            "tpu.vector_store %o[%z, %z], %v {strides = array<i32>} : "
            f"{ints}, vector<8x128xi32>, \n"
        )
        begin = (
            f"tpu.enqueue_dma source(%x : {far}) target(%a : {ints}) "
            f"target_semaphore(%s : {SEM})\n"
        )
        end = (
            f"tpu.wait_dma2 semaphore(%s : {SEM}) src(%x : {far}) "
            f"dst(%a : {ints})\n"
        )
        x = np.arange(1024, dtype=np.int32).reshape(8, 128)

        def run_ints(body):
            kernel = load(arguments, ZERO + body, scratch=2)
            return kernel.run([x], [((8, 128), np.int32)])[0]

        np.testing.assert_array_equal(run_ints(begin + end + load_store), x)
        for early in (begin + load_store + end, load_store):
            with self.assertRaisesRegex(EvaluatorError,
                                        "written before they are"):
                run_ints(early)


class Loads(unittest.TestCase):
    def test_scratch_starts_as_nan(self):
        self.assertTrue(np.isnan(run(show("a", "v"))).all())

    def test_bounds(self):
        load_row = (
            "%r = arith.constant {} : index\n"
            f"%v = vector.load %a[%r, %z] : {BLOCK}, vector<4x128xf32>\n"
            "tpu.vector_store %o[%z, %z], %v {{strides = array<i32>}} : "
            f"{BLOCK}, vector<4x128xf32>, \n"
        )
        run(load_row.format(4))
        for row in (5, -1):
            with self.assertRaisesRegex(EvaluatorError, "inside bounds"):
                run(load_row.format(row))

    def test_scalars_are_in_smem(self):
        body = f"%v = memref.load %a[%z, %z] : {BLOCK}\n"
        body += f"memref.store %v, %a[%z, %z] : {BLOCK}\n"
        with self.assertRaisesRegex(EvaluatorError, "scalars are in smem"):
            run(body)

    def test_hbm_is_not_loaded_from(self):
        body = (
            f"%v = vector.load %x[%z, %z] : {HBM}, vector<8x128xf32>\n"
            "tpu.vector_store %o[%z, %z], %v {strides = array<i32>} : "
            f"{BLOCK}, vector<8x128xf32>, \n"
        )
        with self.assertRaisesRegex(EvaluatorError, "loads are from vmem"):
            run(body)

    def test_masked_and_adding_stores(self):
        body = (
            "%one = arith.constant dense<1.0> : vector<8x128xf32>\n"
            "tpu.vector_store %o[%z, %z], %one {strides = array<i32>} : "
            f"{BLOCK}, vector<8x128xf32>, \n"
            "%n = tpu.iota {dimensions = array<i32: 1>} : vector<8x128xi32>\n"
            "%five = arith.constant dense<5> : vector<8x128xi32>\n"
            "%m = arith.cmpi slt, %n, %five : vector<8x128xi32>\n"
            "%two = arith.constant dense<2.0> : vector<8x128xf32>\n"
            "tpu.vector_store %o[%z, %z], %two masked %m {add = true, "
            f"strides = array<i32>}} : {BLOCK}, vector<8x128xf32>, "
            "vector<8x128xi1>\n"
        )
        want = np.ones((8, 128), np.float32)
        want[:, :5] = 3
        np.testing.assert_array_equal(run(body), want)


class Semaphores(unittest.TestCase):
    KIND = ref("!tpu.semaphore", "semaphore_mem")

    def counts(self, signals, waits):
        body = f"%c = arith.constant {signals} : i32\n"
        body += f"tpu.sem_signal %s, %c : {self.KIND}\n"
        body += f"%d = arith.constant {waits} : i32\n"
        body += f"tpu.sem_wait %s, %d : {self.KIND}\n"
        load([("s", self.KIND)], body, scratch=1).run([], [])

    def test_counts_match(self):
        self.counts(2, 2)
        with self.assertRaisesRegex(EvaluatorError, "a wait ends, found 1"):
            self.counts(1, 2)
        with self.assertRaisesRegex(EvaluatorError, "are 0 when the kernel"):
            self.counts(2, 1)


class Windows(unittest.TestCase):
    """Windows are fetched and written back when their block changes."""

    TRANSFORMS = """
      func.func @same(%i: i32) -> (i32, i32) {
        %z = arith.constant 0 : i32
        return %i, %z : i32, i32
      }
      func.func @back_and_forth(%i: i32) -> (i32, i32) {
        %z = arith.constant 0 : i32
        %two = arith.constant 2 : i32
        %r = arith.remsi %i, %two : i32
        return %r, %z : i32, i32
      }
      func.func @still(%i: i32) -> (i32, i32) {
        %z = arith.constant 0 : i32
        return %z, %z : i32, i32
      }"""

    def kernel(self, steps, output, body, input_function="same"):
        arguments = [("i", "i32"), ("x", BLOCK), ("o", BLOCK)]
        grid = (
            [steps],
            [window(input_function, [8, 128]), window(output, [8, 128])],
        )
        text = "%z = arith.constant 0 : index\n" + body
        return load(arguments, text, grid=grid, others=self.TRANSFORMS)

    COPY = (
        f"%v = vector.load %x[%z, %z] : {BLOCK}, vector<8x128xf32>\n"
        "tpu.vector_store %o[%z, %z], %v {strides = array<i32>} : "
        f"{BLOCK}, vector<8x128xf32>, \n"
    )
    ADD = (
        f"%w = vector.load %o[%z, %z] : {BLOCK}, vector<8x128xf32>\n"
        f"%v = vector.load %x[%z, %z] : {BLOCK}, vector<8x128xf32>\n"
        "%s = arith.addf %v, %w : vector<8x128xf32>\n"
        "tpu.vector_store %o[%z, %z], %s {strides = array<i32>} : "
        f"{BLOCK}, vector<8x128xf32>, \n"
    )
    FIRST = (
        "%c = arith.constant 0 : i32\n"
        "%f = arith.cmpi eq, %i, %c : i32\n"
        "scf.if %f {\n"
        "%e = arith.constant dense<0.0> : vector<8x128xf32>\n"
        "tpu.vector_store %o[%z, %z], %e {strides = array<i32>} : "
        f"{BLOCK}, vector<8x128xf32>, \n"
        "}\n"
    )

    def test_each_block_is_written(self):
        out = self.kernel(4, "same", self.COPY).run(
            [X], [((32, 128), np.float32)]
        )
        np.testing.assert_array_equal(out[0], X)

    def test_a_block_that_stays_keeps_its_content(self):
        out = self.kernel(4, "still", self.FIRST + self.ADD).run(
            [X], [((8, 128), np.float32)]
        )
        np.testing.assert_array_equal(out[0], X.reshape(4, 8, 128).sum(0))

    def test_a_block_that_comes_back_is_new(self):
        out = self.kernel(4, "back_and_forth", self.ADD).run(
            [X], [((16, 128), np.float32)]
        )
        self.assertTrue(np.isnan(out[0]).all())
        out = self.kernel(4, "back_and_forth", self.COPY).run(
            [X], [((16, 128), np.float32)]
        )
        np.testing.assert_array_equal(out[0], X[16:])

    def test_a_block_nobody_visits_is_nan(self):
        out = self.kernel(2, "same", self.COPY).run(
            [X], [((32, 128), np.float32)]
        )
        np.testing.assert_array_equal(out[0][:16], X[:16])
        self.assertTrue(np.isnan(out[0][16:]).all())

    def test_blocks_stand_inside(self):
        kernel = self.kernel(5, "still", self.COPY)
        with self.assertRaisesRegex(EvaluatorError, "a block inside"):
            kernel.run([X], [((8, 128), np.float32)])

    def test_over_the_edge_is_nan(self):
        kernel = self.kernel(4, "same", self.COPY)
        inside = X[:30]
        out = kernel.run([inside], [((32, 128), np.float32)])
        np.testing.assert_array_equal(out[0][:30], inside)
        self.assertTrue(np.isnan(out[0][30:]).all())

    def test_blocks_are_fetched_ahead(self):
        """The next step's input is read before this step's output lands."""
        modes = {"double_buffered": X[8:16], "synchronous": X[:8]}
        for mode, want in modes.items():
            extra = f", pipeline_mode = #tpu.pipeline_mode<{mode}>"
            arguments = [("i", "i32"), ("x", BLOCK), ("o", BLOCK)]
            grid = (
                [2],
                [
                    window("same", [8, 128], extra),
                    window("next", [8, 128]),
                ],
            )
            others = """
              func.func @same(%i: i32) -> (i32, i32) {
                %z = arith.constant 0 : i32
                return %i, %z : i32, i32
              }
              func.func @next(%i: i32) -> (i32, i32) {
                %z = arith.constant 0 : i32
                %one = arith.constant 1 : i32
                %n = arith.addi %i, %one : i32
                return %n, %z : i32, i32
              }"""
            text = "%z = arith.constant 0 : index\n" + self.COPY
            kernel = load(arguments, text, grid=grid, others=others)
            out = kernel.run([X], [((32, 128), np.float32)], aliases={0: 0})
            np.testing.assert_array_equal(out[0][8:16], X[:8])
            np.testing.assert_array_equal(out[0][16:24], want)
            np.testing.assert_array_equal(out[0][24:], X[24:])

    def test_inputs_are_not_stored_to(self):
        body = self.COPY.replace("%o", "%x")
        with self.assertRaisesRegex(EvaluatorError, "a store goes to no input"):
            self.kernel(4, "same", body).run([X], [((32, 128), np.float32)])

    def test_operands_have_their_types(self):
        kernel = self.kernel(4, "same", self.COPY)
        with self.assertRaisesRegex(EvaluatorError, "the array's type"):
            kernel.run([X.astype(np.float16)], [((32, 128), np.float32)])
        with self.assertRaisesRegex(EvaluatorError, "an array for each"):
            kernel.run([], [((32, 128), np.float32)])


if __name__ == "__main__":
    unittest.main()
