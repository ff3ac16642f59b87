"""Each operation against plain NumPy or plain Python."""

import math
import unittest

import ml_dtypes
import numpy as np

import hardware
import oracle
from errors import EvaluatorError
from module_text import load, ref

BF16 = ml_dtypes.bfloat16
NAMES = {
    np.dtype(np.float32): "f32",
    np.dtype(BF16): "bf16",
    np.dtype(np.int32): "i32",
    np.dtype(np.int16): "i16",
    np.dtype(np.int8): "i8",
}


def type_of(array):
    return f"{'x'.join(map(str, array.shape))}x{NAMES[array.dtype]}"


def zeros(rank):
    return ", ".join(["%z"] * rank)


def evaluate(body, arrays, result, space="vmem", erring=None):
    """Runs `body`, which makes %out from %a0, %a1...; `result` is a dtype
    and a shape."""
    dtype, shape = result
    like = np.empty(shape, dtype)
    arguments = [
        (f"r{i}", ref(type_of(a), space)) for i, a in enumerate(arrays)
    ] + [("o", ref(type_of(like), "vmem"))]
    text = "%z = arith.constant 0 : index\n"
    for i, a in enumerate(arrays):
        text += (
            f"%a{i} = vector.load %r{i}[{zeros(a.ndim)}] : "
            f"{ref(type_of(a), space)}, vector<{type_of(a)}>\n"
        )
    text += body + (
        f"\nvector.store %out, %o[{zeros(like.ndim)}] : "
        f"{ref(type_of(like), 'vmem')}, vector<{type_of(like)}>\n"
    )
    return load(arguments, text).run(
        list(arrays), [(shape, dtype)], erring=erring
    )[0]


def random(seed, shape, dtype=np.float32):
    values = np.random.default_rng(seed).standard_normal(shape) * 3
    return values.astype(np.float32).astype(dtype)


def integers(seed, shape, low=-50, high=50):
    rng = np.random.default_rng(seed)
    return rng.integers(low, high, shape).astype(np.int32)


class Elementwise(unittest.TestCase):
    def check(self, op, want, *arrays, attributes="", roundings=0):
        kind = f"vector<{type_of(arrays[0])}>"
        names = ", ".join(f"%a{i}" for i in range(len(arrays)))
        body = f"%out = {op} {names} {attributes}: {kind}"
        got = evaluate(body, arrays, (arrays[0].dtype, arrays[0].shape))
        want = np.asarray(want).astype(arrays[0].dtype)
        error = np.abs(got.astype(np.float64) - want.astype(np.float64))
        size = np.abs(want.astype(np.float64))
        allowed = roundings * oracle.EPS32 * size
        self.assertTrue((error <= allowed).all(), (op, error.max()))

    def test_integers(self):
        a, b = integers(1, (8, 128)), integers(2, (8, 128))
        b[b == 0] = 7
        a[0, 0], b[0, 0] = 2**31 - 1, 3
        pairs = list(zip(a.reshape(-1).tolist(), b.reshape(-1).tolist()))

        def each(function):
            out = [function(x, y) for x, y in pairs]
            out = [(v + 2**31) % 2**32 - 2**31 for v in out]
            return np.array(out, np.int64).reshape(a.shape)

        for op, function in {
            "addi": lambda x, y: x + y,
            "subi": lambda x, y: x - y,
            "muli": lambda x, y: x * y,
            "andi": lambda x, y: x & y,
            "ori": lambda x, y: x | y,
            "xori": lambda x, y: x ^ y,
            "maxsi": max,
            "minsi": min,
            "divsi": lambda x, y: int(math.trunc(x / y)),
            "remsi": lambda x, y: int(math.fmod(x, y)),
            "floordivsi": lambda x, y: x // y,
            "ceildivsi": lambda x, y: -(-x // y),
            "divui": lambda x, y: (x % 2**32) // (y % 2**32),
            "remui": lambda x, y: (x % 2**32) % (y % 2**32),
            "maxui": lambda x, y: max(x % 2**32, y % 2**32),
            "minui": lambda x, y: min(x % 2**32, y % 2**32),
        }.items():
            with self.subTest(op):
                self.check(f"arith.{op}", each(function), a, b)
        want = np.vectorize(lambda x: (int(x) % 2**32).bit_count())(a)
        self.check("math.ctpop", want, a)
        shift = np.abs(b) % 32
        pairs = list(zip(a.reshape(-1).tolist(), shift.reshape(-1).tolist()))
        for op, function in {
            "shli": lambda x, y: x << y,
            "shrsi": lambda x, y: x >> y,
            "shrui": lambda x, y: (x % 2**32) >> y,
        }.items():
            with self.subTest(op):
                want = each(function)
                self.check(f"arith.{op}", want, a, shift.astype(np.int32))

    def test_undefined_integers_are_errors(self):
        a, b = integers(1, (8, 128)), integers(2, (8, 128))
        b[3, 4] = 0
        with self.assertRaisesRegex(EvaluatorError, "a divisor is not 0"):
            self.check("arith.divsi", a, a, b)
        b[3, 4] = 32
        with self.assertRaisesRegex(EvaluatorError, "a shift is less than 32"):
            self.check("arith.shli", a, a, np.abs(b))

    def test_floats(self):
        a, b = random(3, (8, 128)), random(4, (8, 128))
        a[0, 0], b[0, 0] = np.nan, 1.0
        self.assertTrue(
            np.isnan(
                evaluate(
                    "%out = arith.maximumf %a0, %a1 : vector<8x128xf32>",
                    [a, b],
                    (np.float32, (8, 128)),
                )[0, 0]
            )
        )
        a[0, 0] = 2.0
        for dtype in (np.float32, BF16):
            x, y = a.astype(dtype), b.astype(dtype)
            wide = x.astype(np.float64), y.astype(np.float64)
            for op, want in {
                "addf": wide[0] + wide[1],
                "subf": wide[0] - wide[1],
                "mulf": wide[0] * wide[1],
                "divf": wide[0] / wide[1],
                "maximumf": np.maximum(*wide),
                "minimumf": np.minimum(*wide),
            }.items():
                with self.subTest(op, dtype=dtype):
                    # Correctly rounded, so a result by way of f32 is equal.
                    want = want.astype(np.float32)
                    self.check(f"arith.{op}", want, x, y)

    def test_mathematics(self):
        a = np.abs(random(5, (8, 128))) + np.float32(0.05)
        # The oracle counts 8 roundings for a function in fp32.
        for op in "exp exp2 expm1 log log2 log1p tanh sqrt floor ceil".split():
            with self.subTest(op):
                want = getattr(np, op)(a.astype(np.float64))
                self.check(f"math.{op}", want, a, roundings=8)
        want = 1 / np.sqrt(a.astype(np.float64))
        self.check("math.rsqrt", want, a, roundings=8)
        b, c = random(6, (8, 128)), random(7, (8, 128))
        exact = a.astype(np.float64) * b.astype(np.float64) + c
        self.check("math.fma", exact, a, b, c)

    def test_comparisons(self):
        a, b = integers(8, (8, 128), -3, 3), integers(9, (8, 128), -3, 3)
        ua, ub = a.view(np.uint32), b.view(np.uint32)
        for word, want in {
            "eq": a == b,
            "ne": a != b,
            "slt": a < b,
            "sle": a <= b,
            "sgt": a > b,
            "sge": a >= b,
            "ult": ua < ub,
            "ule": ua <= ub,
            "ugt": ua > ub,
            "uge": ua >= ub,
        }.items():
            with self.subTest(word):
                body = (
                    f"%c = arith.cmpi {word}, %a0, %a1 : vector<8x128xi32>\n"
                    "%out = arith.extui %c : vector<8x128xi1> to "
                    "vector<8x128xi32>"
                )
                got = evaluate(body, [a, b], (np.int32, (8, 128)))
                np.testing.assert_array_equal(got, want.astype(np.int32))
        x, y = random(10, (8, 128)), random(11, (8, 128))
        y[0], x[1], y[2] = x[0], np.nan, np.nan
        nan = np.isnan(x) | np.isnan(y)
        with np.errstate(invalid="ignore"):
            ordered = {
                "eq": x == y, "gt": x > y, "ge": x >= y, "lt": x < y,
                "le": x <= y, "ne": x != y,
            }
        cases = {"o" + w: v & ~nan for w, v in ordered.items()}
        cases |= {"u" + w: v | nan for w, v in ordered.items()}
        cases |= {"ord": ~nan, "uno": nan}
        for word, want in cases.items():
            with self.subTest(word):
                body = (
                    f"%c = arith.cmpf {word}, %a0, %a1 : vector<8x128xf32>\n"
                    "%out = arith.extui %c : vector<8x128xi1> to "
                    "vector<8x128xi32>"
                )
                got = evaluate(body, [x, y], (np.int32, (8, 128)))
                np.testing.assert_array_equal(got, want.astype(np.int32))

    def convert(self, op, a, dtype):
        like = np.empty(a.shape, dtype)
        body = (
            f"%out = arith.{op} %a0 : vector<{type_of(a)}> to "
            f"vector<{type_of(like)}>"
        )
        return evaluate(body, [a], (dtype, a.shape))

    def test_casts(self):
        a = random(12, (8, 128))
        got = self.convert("truncf", a, BF16)
        # Round to nearest, ties to even, computed from the bits.
        bits = a.view(np.uint32).astype(np.uint64)
        want = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        np.testing.assert_array_equal(got.view(np.uint16), want)
        np.testing.assert_array_equal(
            self.convert("extf", got, np.float32).view(np.uint32), want << 16
        )
        np.testing.assert_array_equal(
            self.convert("fptosi", a, np.int32), np.trunc(a)
        )
        np.testing.assert_array_equal(
            self.convert("bitcast", a, np.int32), a.view(np.int32)
        )
        n = integers(13, (8, 128), -200, 200)
        want = ((n + 128) % 256 - 128).astype(np.int8)
        np.testing.assert_array_equal(self.convert("trunci", n, np.int8), want)
        small = want
        np.testing.assert_array_equal(
            self.convert("extsi", small, np.int32), small
        )
        np.testing.assert_array_equal(
            self.convert("extui", small, np.int32), small.astype(int) % 256
        )
        np.testing.assert_array_equal(
            self.convert("sitofp", n, np.float32), n
        )


class Erring(unittest.TestCase):
    """The evaluator with the rounding errors that a TPU may make (hardware.py)."""

    def both(self, op, *arrays, erring=3):
        kind = f"vector<{type_of(arrays[0])}>"
        names = ", ".join(f"%a{i}" for i in range(len(arrays)))
        body = f"%out = {op} {names} : {kind}"
        result = (arrays[0].dtype, arrays[0].shape)
        return [evaluate(body, arrays, result, erring=e) for e in (None, erring)]

    def test_elementary_functions_are_off_by_all_that_is_stated(self):
        a = np.abs(random(5, (8, 128))) + np.float32(0.05)
        b = random(6, (8, 128))
        for op, arrays in {
            "math.exp2": [b], "math.log": [a], "math.tanh": [b],
            "arith.divf": [b, a],
        }.items():
            with self.subTest(op):
                exact, off = self.both(op, *arrays)
                moved = off.view(np.int32) - exact.view(np.int32)
                self.assertEqual(
                    set(moved.flat),
                    set(range(-hardware.ULPS, hardware.ULPS + 1)),
                )
                again, other = (
                    self.both(op, *arrays, erring=e)[1] for e in (3, 4)
                )
                np.testing.assert_array_equal(again, off)
                self.assertFalse((other == off).all())

    def test_what_is_exact_stays(self):
        a = np.zeros((8, 128), np.float32)
        a[0], a[1], a[2], a[3] = -np.inf, np.inf, np.nan, 1
        for op, equal in {"math.exp2": (0, 1, 2, 4), "math.log": (1, 2, 3, 4)}.items():
            with self.subTest(op):
                exact, off = self.both(op, a)
                for row in equal:
                    np.testing.assert_array_equal(exact[row], off[row])

    def test_arithmetic_is_rounded_and_nothing_else(self):
        a, b = random(3, (8, 128)), random(4, (8, 128))
        for op in ("addf", "subf", "mulf", "maximumf"):
            with self.subTest(op):
                np.testing.assert_array_equal(*self.both(f"arith.{op}", a, b))

    def test_subnormal_results_are_0_of_their_sign(self):
        a = np.full((8, 128), 2.0**-100, np.float32)
        b = np.full((8, 128), 2.0**-30, np.float32)
        b[1] *= -1
        b[2] = 2.0**-26
        exact, off = self.both("arith.mulf", a, b)
        self.assertTrue((exact != 0).all())
        self.assertTrue((off[:2] == 0).all() and np.signbit(off[1]).all())
        np.testing.assert_array_equal(off[2], exact[2])
        with self.subTest("products"):
            one = np.eye(128, dtype=np.float32)
            body = (
                "%c = arith.constant dense<0.0> : vector<8x128xf32>\n"
                "%out = tpu.matmul %a0, %a1, %c {transpose_lhs_hint = false, "
                "precision = #tpu.contract_precision<fp32>} : "
                "vector<8x128xf32>, vector<128x128xf32>, "
                "vector<8x128xf32> -> vector<8x128xf32>"
            )
            small = np.full((8, 128), 2.0**-130, np.float32)
            for erring, want in ((None, small), (3, 0 * small)):
                got = evaluate(
                    body, [small, one], (np.float32, (8, 128)), erring=erring
                )
                np.testing.assert_array_equal(got, want)


class Shapes(unittest.TestCase):
    def test_shapes(self):
        a = random(20, (16, 128))
        for body, want in {
            "vector.transpose %a0, [1, 0] : vector<16x128xf32> to "
            "vector<128x16xf32>": a.T,
            "vector.shape_cast %a0 : vector<16x128xf32> to "
            "vector<2x8x128xf32>": a.reshape(2, 8, 128),
            "vector.extract_strided_slice %a0 {offsets = [4, 8], "
            "sizes = [8, 64], strides = [1, 1]} : vector<16x128xf32> to "
            "vector<8x64xf32>": a[4:12, 8:72],
            "tpu.concatenate %a0, %a0 in 1 : vector<16x128xf32>, "
            "vector<16x128xf32> -> vector<16x256xf32>": np.hstack([a, a]),
            "tpu.repeat %a0, 0 x 3 : vector<16x128xf32> -> "
            "vector<48x128xf32>": np.vstack([a] * 3),
            "vector.multi_reduction <maximumf>, %a0, %low [0] : "
            "vector<16x128xf32> to vector<128xf32>": a.max(0),
            "vector.multi_reduction <minimumf>, %a0, %low [0] : "
            "vector<16x128xf32> to vector<128xf32>": np.full(
                128, -1e30, np.float32
            ),
            "tpu.iota {dimensions = array<i32: 1, 0>} : "
            "vector<16x128xi32>": np.arange(2048).reshape(128, 16).T,
        }.items():
            with self.subTest(body):
                low = "%low = arith.constant dense<-1.0e30> : vector<128xf32>\n"
                dtype = np.int32 if "iota" in body else np.float32
                got = evaluate(
                    low + "%out = " + body, [a], (dtype, want.shape)
                )
                np.testing.assert_array_equal(got, want)

    def test_insert(self):
        a, b = random(21, (8, 128)), random(22, (4, 64))
        body = (
            "%out = vector.insert_strided_slice %a1, %a0 {offsets = [2, 32], "
            "strides = [1, 1]} : vector<4x64xf32> into vector<8x128xf32>"
        )
        want = a.copy()
        want[2:6, 32:96] = b
        got = evaluate(body, [a, b], (np.float32, (8, 128)))
        np.testing.assert_array_equal(got, want)

    def test_rotate_by_rows(self):
        a = random(23, (8, 128))
        body = (
            "%n = arith.constant 5 : i32\n"
            "%out = tpu.dynamic_rotate %a0 by %n dim 1 {stride = 2 : si32, "
            "stride_dimension = 0 : si32} : vector<8x128xf32>, i32 -> "
            "vector<8x128xf32>"
        )
        want = np.stack([np.roll(a[i], 5 + 2 * i) for i in range(8)])
        got = evaluate(body, [a], (np.float32, (8, 128)))
        np.testing.assert_array_equal(got, want)


class Products(unittest.TestCase):
    def product(self, a, b, numbers, shape, extra=""):
        like = np.empty(shape, np.float32)
        body = (
            f"%c = arith.constant dense<0.5> : vector<{type_of(like)}>\n"
            "%out = tpu.matmul %a0, %a1, %c {dimension_numbers = "
            f"#tpu.dot_dimension_numbers<{numbers}>{extra}, "
            "transpose_lhs_hint = false} : "
            f"vector<{type_of(a)}>, vector<{type_of(b)}>, "
            f"vector<{type_of(like)}> -> vector<{type_of(like)}>"
        )
        got = evaluate(body, [a, b], (np.float32, shape))
        return got.astype(np.float64) - 0.5

    def close(self, got, a, b):
        """Checks a product within the oracle's bound for a sum in fp32."""
        a, b = a.astype(np.float64), b.astype(np.float64)
        size = np.abs(a) @ np.abs(b) + 0.5
        error = (8 + np.sqrt(a.shape[-1] + 1)) * oracle.EPS32 * size
        off = np.abs(got - a @ b)
        self.assertTrue((off <= error).all(), (off / error).max())
        self.assertLess(error.max(), 2.0**-7 * np.abs(a @ b).max())

    def test_dimension_numbers(self):
        a, b = random(30, (16, 32), BF16), random(31, (16, 48), BF16)
        # Contracted over the first dimension of both.
        numbers = "[0], [0], [1], [1], [0, 1, 1, 1], [], []"
        got = self.product(a, b, numbers, (32, 48))
        self.close(got, a.T, b)
        # Both transposed the other way.
        numbers = "[1], [1], [0], [0], [0, 0, 1, 0], [], []"
        c = random(32, (48, 32), BF16)
        got = self.product(a, c, numbers, (16, 48))
        self.close(got, a, c.T)

    def test_batches(self):
        a, b = random(33, (3, 16, 32), BF16), random(34, (3, 32, 24), BF16)
        numbers = "[2], [1], [1], [2], [0, 0, 0, 1, 1, 2], [0], [0]"
        got = self.product(a, b, numbers, (3, 16, 24))
        self.close(got, a, b)

    def test_f32_is_rounded_unless_precise(self):
        a, b = random(35, (16, 64)), random(36, (64, 16))
        numbers = "[1], [0], [0], [1], [0, 0, 1, 1], [], []"
        rounded = a.astype(BF16), b.astype(BF16)
        got = self.product(a, b, numbers, (16, 16))
        self.close(got, *rounded)
        with self.assertRaises(AssertionError):
            self.close(got, a, b)
        precise = ", precision = #tpu.contract_precision<fp32>"
        got = self.product(a, b, numbers, (16, 16), precise)
        self.close(got, a, b)
        with self.assertRaises(AssertionError):
            self.close(got, *rounded)


class Control(unittest.TestCase):
    def test_results_of_branches_and_loops(self):
        body = """
          %l = arith.constant 2 : i32
          %h = arith.constant 9 : i32
          %s = arith.constant 3 : i32
          %zero = arith.constant 0 : i32
          %sum, %n = scf.for %i = %l to %h step %s
              iter_args(%x = %a0, %k = %zero) -> (vector<8x128xi32>, i32)
              : i32 {
            %five = arith.constant 5 : i32
            %is = arith.cmpi eq, %i, %five : i32
            %y = scf.if %is -> (vector<8x128xi32>) {
              %d = arith.addi %x, %x : vector<8x128xi32>
              scf.yield %d : vector<8x128xi32>
            } else {
              %b = vector.broadcast %i : i32 to vector<8x128xi32>
              %d = arith.addi %x, %b : vector<8x128xi32>
              scf.yield %d : vector<8x128xi32>
            }
            %m = arith.addi %k, %i : i32
            scf.yield %y, %m : vector<8x128xi32>, i32
          }
          %nb = vector.broadcast %n : i32 to vector<8x128xi32>
          %out = arith.addi %sum, %nb : vector<8x128xi32>"""
        a = integers(40, (8, 128))
        got = evaluate(body, [a], (np.int32, (8, 128)))
        np.testing.assert_array_equal(got, (a + 2) * 2 + 8 + 15)

    def test_swapped_carried_values(self):
        body = """
          %l = arith.constant 0 : i32
          %h = arith.constant 3 : i32
          %s = arith.constant 1 : i32
          %x, %out = scf.for %i = %l to %h step %s
              iter_args(%p = %a0, %q = %a1)
              -> (vector<8x128xi32>, vector<8x128xi32>) : i32 {
            scf.yield %q, %p : vector<8x128xi32>, vector<8x128xi32>
          }"""
        a, b = integers(41, (8, 128)), integers(42, (8, 128))
        got = evaluate(body, [a, b], (np.int32, (8, 128)))
        np.testing.assert_array_equal(got, a)

    def test_switches(self):
        for chosen, want in ((4, 1), (7, 2), (5, 3)):
            body = f"""
              %i = arith.constant {chosen} : index
              %n = scf.index_switch %i -> i32
              case 4 {{
                %c = arith.constant 1 : i32
                scf.yield %c : i32
              }}
              case 7 {{
                %c = arith.constant 2 : i32
                scf.yield %c : i32
              }}
              default {{
                %c = arith.constant 3 : i32
                scf.yield %c : i32
              }}
              %b = vector.broadcast %n : i32 to vector<8x128xi32>
              %out = arith.addi %a0, %b : vector<8x128xi32>"""
            a = integers(43, (8, 128))
            got = evaluate(body, [a], (np.int32, (8, 128)))
            np.testing.assert_array_equal(got, a + want)

    def test_runaway_loops_end(self):
        body = """
          %zero = arith.constant 0 : i32
          %w = scf.while (%x = %zero) : (i32) -> i32 {
            %t = arith.cmpi eq, %x, %x : i32
            scf.condition(%t) %x : i32
          } do {
          ^bb0(%y: i32):
            scf.yield %y : i32
          }"""
        kernel = load([], body)
        with self.assertRaisesRegex(EvaluatorError, "more trips than allowed"):
            kernel.run([], [], max_trips=1000)

    def test_calls_and_assertions(self):
        others = """
          func.func @twice(%x: i32) -> i32 {
            %y = arith.addi %x, %x : i32
            return %y : i32
          }"""
        body = """
          %n = arith.constant 21 : i32
          %m = func.call @twice(%n) : (i32) -> i32
          %w = arith.constant {} : i32
          %c = arith.cmpi eq, %m, %w : i32
          cf.assert %c, "twice" """
        load([], body.format(42), others=others).run([], [])
        with self.assertRaisesRegex(EvaluatorError, "assertion holds.*twice"):
            load([], body.format(43), others=others).run([], [])


class Refusals(unittest.TestCase):
    def test_unknown_operations(self):
        body = '%b = "tpu.prng_random_bits"() : () -> vector<8x128xi32>'
        with self.assertRaisesRegex(
            EvaluatorError, "the evaluator knows, found tpu.prng_random_bits"
        ):
            load([], body)

    def test_modules_that_do_not_verify(self):
        body = (
            "%a = arith.constant dense<0.0> : vector<8x128xf32>\n"
            "%b = arith.constant dense<0> : vector<8x128xi32>\n"
            '%c = "arith.addf"(%a, %b) : (vector<8x128xf32>, '
            "vector<8x128xi32>) -> vector<8x128xf32>"
        )
        with self.assertRaisesRegex(EvaluatorError, "jaxlib parses"):
            load([], body)

    def test_not_mlir(self):
        with self.assertRaisesRegex(EvaluatorError, "jaxlib parses"):
            load([], "what is this")


if __name__ == "__main__":
    unittest.main()
