"""Programs that Tessera did not write: Pallas kernels and Splash attention."""

import base64
import json
import re
import unittest

import numpy as np
from jaxlib.mlir import ir

import mlir_module
import oracle
import packed_attention
import pallas_kernels as pallas
from errors import EvaluatorError
from oracle import EPS32
from program import Program, load_kernel, run_program

TOKENS, HEADS, DIM = 256, 2, 128
IDS = np.repeat(np.array([3, 8, 3, 0], np.int32), [100, 60, 50, 46])


def splash_arrays(seed, tokens=TOKENS):
    shape = (1, HEADS, tokens, DIM)
    q, k, v = oracle.hard_inputs(seed, shape, shape)
    # Splash takes scaled queries.
    q = (q.astype(np.float32) * DIM**-0.5).astype(q.dtype)
    return q, k, v


class Pallas(unittest.TestCase):
    def test_kernels(self):
        for make in pallas.KERNELS:
            with self.subTest(make.__name__):
                case = make()
                got = run_program(pallas.lowered(case), case.arrays)
                error = case.error or [0] * len(got)
                if case.expected is not None:
                    self.close(got, case.expected, error)
                if case.interprets:
                    want = case.call(*case.arrays, interpret=True)
                    want = want if isinstance(want, (list, tuple)) else [want]
                    # Both have errors. XLA may also fuse a product and a
                    # sum, which drops a rounding in each of a few steps.
                    fused = [
                        3 * EPS32 * np.nanmax(np.abs(w.astype(np.float64)))
                        if g.dtype == np.float32
                        else 0
                        for g, w in zip(got, map(np.asarray, want))
                    ]
                    self.close(
                        got, want, [2 * e + f for e, f in zip(error, fused)]
                    )

    def close(self, got, want, error):
        self.assertEqual(len(got), len(want))
        for g, w, e in zip(got, want, error, strict=True):
            g, w = (np.asarray(x).astype(np.float64) for x in (g, w))
            self.assertEqual(g.shape, w.shape)
            off = np.where(g == w, 0, np.abs(g - w))
            off[np.isnan(g) & np.isnan(w)] = 0
            self.assertTrue((off <= e).all(), (off - e).max())

    def test_a_pattern_changes_nothing(self):
        """Results do not depend on the values of unwritten integers."""
        for make in (pallas.double_buffered, pallas.dynamic_grid):
            case = make()
            program = Program(pallas.lowered(case))
            for poison in (0, -1, 1 << 30):
                got = program.run(case.arrays, poison=poison)
                np.testing.assert_array_equal(got[0], case.expected[0])


class Splash(unittest.TestCase):
    def check(self, mask, segments, softcap=None):
        q, k, v = splash_arrays(7)
        arrays = [q[0], k[0], v[0]] + ([IDS] if segments else [])
        text = pallas.splash_text(mask, segments, TOKENS, 128, HEADS, softcap)
        out, lse = run_program(text, arrays)
        legal = oracle.legal_pairs(
            TOKENS,
            TOKENS,
            causal=mask == "causal",
            doc_ids=IDS if segments else None,
        )
        want = oracle.attention(
            q, k, v, legal[None], scale=1.0, softcap=softcap or 0.0
        )
        self.assertLessEqual(
            oracle.worst(out, want.out[0], want.out_error[0]), 1
        )
        self.assertLessEqual(
            oracle.worst(lse, want.lse[0], want.lse_error[0]), 1
        )
        # The oracle can tell: under another mask the errors are large.
        other = oracle.attention(
            q, k, v, np.tril(legal, -1)[None], scale=1.0, softcap=softcap or 0.0
        )
        self.assertGreater(
            oracle.worst(out, other.out[0], other.out_error[0]), 10
        )

    def test_full(self):
        self.check("full", False)

    def test_causal(self):
        self.check("causal", False)

    def test_segments(self):
        self.check("causal", True)

    def test_softcap(self):
        self.check("causal", True, softcap=30.0)


class Packed(unittest.TestCase):
    def test_packed_attention(self):
        case, want = packed_attention.case()
        self.assertIn(0, [(s >> 28) & 3 for s in case.arrays[0].tolist()])
        program = Program(pallas.lowered(case))
        for poison in (0, 1, -1):
            got = program.run(case.arrays, poison=poison)
            self.assertTrue(packed_attention.is_right(got, want))
        # Rows without a key are exact.
        empty = case.arrays[1] < 0
        self.assertTrue((got[0][0, empty] == 0).all())
        self.assertTrue((got[1][0, empty] == -np.inf).all())


def with_bodies(text, change):
    """The program with `change` applied to the bytes of each body."""

    def one(match):
        config = re.sub(
            r"\\([0-9A-F]{2})", lambda m: chr(int(m[1], 16)), match[1]
        )
        config = json.loads(config)
        custom = config["custom_call_config"]
        body = change(base64.b64decode(custom["body"]))
        custom["body"] = base64.b64encode(body).decode()
        return 'backend_config = "' + json.dumps(config).replace(
            '"', r"\22"
        ) + '"'

    out, count = re.subn(r'backend_config = "((?:[^"\\]|\\.)*)"', one, text)
    assert count
    return out


class Bodies(unittest.TestCase):
    def test_text_of_stable_operations(self):
        """A body may be text, which a program without MLIR can write."""

        def as_text(body):
            with mlir_module.context():
                module = ir.Module.parse(body)
                text = module.operation.get_asm(print_generic_op_form=False)
            self.assertIn("stable_mosaic.func.func", text)
            return text.encode()

        case = pallas.double_buffered()
        text = pallas.lowered(case)
        got = run_program(with_bodies(text, as_text), case.arrays)
        np.testing.assert_array_equal(got[0], case.expected[0])

    def test_a_kernel_alone(self):
        case = pallas.strided_rows()
        kernel = load_kernel(pallas.lowered(case))
        again = load_kernel(kernel.text)
        for one in (kernel, again):
            got = one.run(case.arrays, [((32, 128), np.float32)])
            np.testing.assert_array_equal(got[0], case.expected[0])

    def test_spoiled_bodies(self):
        text = pallas.lowered(pallas.strided_rows())
        for body in (b"", b"module {", b"ML\xefR\x00garbage", b"\xff" * 40):
            with self.assertRaisesRegex(
                EvaluatorError, "jaxlib parses|with a function, found none"
            ):
                Program(with_bodies(text, lambda _, b=body: b))
        with self.assertRaisesRegex(EvaluatorError, "a body in base64"):
            Program(text.replace("custom_call_config", "other_config"))
        with self.assertRaisesRegex(EvaluatorError, "calls of tpu_custom_call"):
            Program(text.replace("@tpu_custom_call", "@another"))
        with self.assertRaisesRegex(EvaluatorError, "jaxlib parses"):
            Program(text[:-30])

    def test_inputs(self):
        case = pallas.strided_rows()
        program = Program(pallas.lowered(case))
        with self.assertRaisesRegex(EvaluatorError, "1 inputs, found 0"):
            program.run([])
        with self.assertRaisesRegex(EvaluatorError, "an input of"):
            program.run([case.arrays[0][:8]])

    def test_unknown_surroundings(self):
        text = """
          func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
            %b = stablehlo.cosine %a : tensor<4xf32>
            return %b : tensor<4xf32>
          }"""
        with self.assertRaisesRegex(EvaluatorError, "found stablehlo.cosine"):
            Program(text)


if __name__ == "__main__":
    unittest.main()
