"""tests/bridge/export_test.py: what examples/export_jax.py exports runs through
`tessera bridge` on every plugin for the CPU, and gives what JAX gives: both are
judged by fp64, within bounds that are derived."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "python" / "tests")]

import export_jax
import export_splash
import jax
import jax.numpy as jnp
import judge
import numpy as np
from tensor_file import load

TESSERA = os.environ.get("TESSERA", str(ROOT / "build" / "tessera"))
PLUGINS = ("xla_cpu_pjrt", "lammps_jax_pjrt_cpu")


def expected_attention(arrays):
    q, k, v, ids = (arrays[n] for n in ("q", "k", "v", "doc_ids"))
    back = np.subtract.outer(np.arange(q.shape[2]), np.arange(k.shape[2]))
    legal = (back >= 0) & (back <= 99) & (ids[:, :, None] == ids[:, None, :])
    want = judge.attention(q, k, v, legal, softcap=30.0)
    return dict(zip(("out", "lse"), want))


def expected_rms_norm(arrays):
    """y = x r w, r the root: half the relative error of the sum of n squares,
    of their own rounding, the division and eps; two roundings of the root, two
    of the products."""
    x, weight = (arrays[n].astype(np.float64) for n in ("x", "weight"))
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight
    error = (judge.sum_error(x.shape[-1]) + 3 * judge.U) / 2 + 4 * judge.U
    return {"y": judge.Expected(y, error * np.abs(y), str(arrays["x"].dtype))}


EXPECTED = {"attention": expected_attention, "rms_norm": expected_rms_norm}


class Export(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def bridge(self, path, plugin, *more):
        mine = path + "." + plugin
        done = subprocess.run(
            [TESSERA, "bridge", path + ".mlirbc", "--shapes", path + ".json",
             "--inputs", path + ".in.safetensors", "--outputs", mine,
             "--plugin", plugin, "--cache", "off", "--json", *more],
            env=dict(os.environ, TESSERA_PYTHON=sys.executable),
            capture_output=True, text=True)
        if "must be installed" in done.stderr or "pjrt_c_api.h" in done.stderr:
            self.skipTest(done.stderr.strip())
        return done, mine

    def expect_same(self, path, expected, *more):
        """As `expected` has it, JAX's own too; without it, JAX's very bits."""
        theirs = load(path + ".out.safetensors")
        want = expected and expected(load(path + ".in.safetensors"))
        for name, array in theirs.items() if want else ():
            judge.check(array, want[name], name)
        for plugin in PLUGINS:
            with self.subTest(plugin=plugin):
                done, mine = self.bridge(path, plugin, *more)
                self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
                receipt = json.loads(done.stdout)
                self.assertEqual(receipt["lane"]["executed"], "jax_bridge")
                self.assertEqual(receipt["compiles"], 1)
                made = load(mine)
                self.assertEqual(set(made), set(theirs))
                for name, array in theirs.items():
                    self.assertEqual(made[name].dtype, array.dtype)
                    if want:
                        judge.check(made[name], want[name], name)
                    else:
                        np.testing.assert_array_equal(made[name], array, name)

    def test_examples_give_what_jax_gives(self):
        for name, save in export_jax.EXAMPLES.items():
            check = ["--check"] if name == "attention" else []
            for dtype in ("float32", "bfloat16", "float16"):
                with self.subTest(example=name, dtype=dtype):
                    folder = os.path.join(self.folder.name, dtype)
                    save(folder, jnp.dtype(dtype), ["cpu"])
                    self.expect_same(os.path.join(folder, name), EXPECTED[name],
                                     *check)

    def test_what_is_wrong_by_little_is_refused(self):
        for name, save in export_jax.EXAMPLES.items():
            save(self.folder.name, jnp.dtype("float32"), ["cpu"])
            path = os.path.join(self.folder.name, name)
            want = EXPECTED[name](load(path + ".in.safetensors"))
            for one, array in load(path + ".out.safetensors").items():
                self.assertLess(0, judge.check(array, want[one], one))
                wrong = array.copy()
                wrong.flat[np.abs(wrong).argmax()] *= 1 + 2**-10
                with self.assertRaisesRegex(AssertionError, one):
                    judge.check(wrong, want[one], one)

    # The scale is a power of two, so that q times it is exact in each dtype.
    def test_splash_runs_two_masks_under_our_plan(self):
        for dtype, plugin in (("float32", PLUGINS[0]), ("bfloat16", PLUGINS[0]),
                              ("float16", PLUGINS[1])):
            path = export_splash.save_splash(
                os.path.join(self.folder.name, dtype), heads=4, kv_heads=2,
                q_len=256, kv_len=256, head_dim=64, v_head_dim=64, block_q=128,
                block_kv=128, width=2, blocks=4, dtype=dtype, softcap=30.0)
            for docs in ("lengths:100,156", "lengths:130,20,106"):
                done = subprocess.run(
                    [TESSERA, "run", "--lane", "splash", "--artifact",
                     path + ".mlirbc", "--shapes", path + ".json", "--mask",
                     "causal & documents", "--docs", docs, "--q-len", "256",
                     "--tile", "128", "--heads", "4", "--kv-heads", "2",
                     "--head-dim", "64",
                     "--softcap", "30", "--dtype",
                     {"float32": "f32", "bfloat16": "bf16"}.get(dtype, "f16"),
                     "--plugin", plugin, "--cache",
                     os.path.join(self.folder.name, "cache"), "--check",
                     "--json"],
                    env=dict(os.environ, TESSERA_PYTHON=sys.executable),
                    capture_output=True, text=True)
                if "must be installed" in done.stderr:
                    self.skipTest(done.stderr.strip())
                self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
                receipt = json.loads(done.stdout)
                self.assertEqual(receipt["lane"]["executed"], "splash")
                self.assertEqual(receipt["lane"]["family"], "tpu/splash")
                self.assertTrue(receipt["check"]["passed"])
                # Another process, other documents: the same program.
                first = docs == "lengths:100,156"
                self.assertEqual(receipt["compiles"], int(first))
                self.assertEqual(receipt["cache_hits"]["disk"], int(not first))

    def test_several_platforms_and_devices(self):
        export_jax.save_rms_norm(self.folder.name, jnp.dtype("float32"),
                                 ["tpu", "cuda", "cpu"])
        self.expect_same(os.path.join(self.folder.name, "rms_norm"),
                         expected_rms_norm, "--device", "1")

    def test_integers_bools_scalars_and_trees(self):
        def mixed(tree, flag, steps):
            a, b = tree["a"], tree["b"]
            return {"sum": jnp.where(flag, a + b, a - b),
                    "flags": a > b, "steps": steps + 1,
                    "small": a.astype(jnp.int8)}

        tree = {"a": jnp.arange(12, dtype=jnp.int32).reshape(3, 4),
                "b": jnp.full((3, 4), 5, jnp.int32)}
        path = export_jax.save(
            mixed, (tree, jnp.asarray(True), jnp.asarray(41, jnp.int32)),
            self.folder.name, "mixed", ["a", "b", "flag", "steps"],
            ["flags", "small", "next", "sum"])
        self.expect_same(path, None)

    # JAX notes where each operation was written, by absolute paths.
    def test_programs_name_no_file_of_the_machine_that_made_them(self):
        x = jnp.ones((3,))
        here = pathlib.Path(__file__).name.encode()
        plain = jax.export.export(jax.jit(lambda x: jnp.tanh(x)))(x)
        self.assertIn(here, plain.mlir_module_serialized)
        path = export_jax.save(lambda x: jnp.tanh(x), (x,), self.folder.name,
                               "tanh", ["x"], ["y"])
        program = pathlib.Path(path + ".mlirbc").read_bytes()
        self.assertNotIn(here, program)
        self.assertNotIn(str(ROOT).encode(), program)
        golden = ROOT / "tests" / "golden" / "bridge" / "small.mlirbc"
        self.assertNotIn(b".py", golden.read_bytes())

    def test_a_platform_that_is_not_the_plugins_is_refused(self):
        export_jax.save_rms_norm(self.folder.name, jnp.dtype("float32"),
                                 ["tpu"])
        done, _ = self.bridge(os.path.join(self.folder.name, "rms_norm"),
                              PLUGINS[0])
        self.assertEqual(done.returncode, 2)
        self.assertIn("must be exported for the plugin's platform 'cpu', "
                      "found 'tpu'", done.stderr)

    # JAX calls LAPACK by a name that only its own process knows.
    def test_a_call_that_the_plugin_lacks_is_named(self):
        matrix = jnp.eye(4) * 2
        path = export_jax.save(jnp.linalg.cholesky, (matrix,),
                               self.folder.name, "cholesky", ["a"], ["l"])
        done, _ = self.bridge(path, PLUGINS[0])
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertTrue(done.stderr.startswith(
            "tessera: [pjrt] the program must compile, found "), done.stderr)
        self.assertIn("lapack", done.stderr)

    def test_what_cannot_be_exported_is_refused_in_python(self):
        def save(function, *arguments, inputs=("x",), outputs=("y",)):
            export_jax.save(function, arguments, self.folder.name, "bad",
                            list(inputs), list(outputs))

        x = jnp.ones((3,))
        with self.assertRaisesRegex(ValueError, "must have names"):
            save(lambda x: (x, x), x)
        with self.assertRaisesRegex(ValueError, "must be one of"):
            save(lambda x: x.astype(jnp.uint32), x)
        any_size = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), x.dtype)
        with self.assertRaisesRegex(ValueError, "must have known sizes"):
            save(lambda x: x + 1, any_size)
        self.assertFalse(os.path.exists(
            os.path.join(self.folder.name, "bad.mlirbc")))


if __name__ == "__main__":
    unittest.main()
