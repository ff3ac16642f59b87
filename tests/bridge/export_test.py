"""tests/bridge/export_test.py: the exports of examples/export_jax.py run through
`tessera bridge` on every plugin for the CPU and give JAX's results. Both are judged by
fp64, within derived bounds."""

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


def back_of(arrays):
    """The distance of each key before each query: [queries, keys]."""
    return np.subtract.outer(np.arange(arrays["q"].shape[2]),
                             np.arange(arrays["k"].shape[2]))


def attend(arrays, legal, **more):
    want = judge.attention(*(arrays[n] for n in "qkv"), legal, **more)
    return dict(zip(("out", "lse"), want))


def expected_attention(arrays):
    back, ids = back_of(arrays), arrays["doc_ids"]
    legal = (back >= 0) & (back <= 99) & (ids[:, :, None] == ids[:, None, :])
    return attend(arrays, legal, softcap=30.0)


def expected_tree(arrays):
    """A key is seen by the tokens in its interval [enter, leave)."""
    enter, leave = arrays["tree_enter"], arrays["tree_leave"]
    legal = np.zeros((*enter.shape, enter.shape[1]), bool)
    for b, row in enumerate(enter):
        for k, at in enumerate(row):
            legal[b, :, k] = (at <= row) & (row < leave[b, k])
    return attend(arrays, legal)


def expected_same(arrays):
    ids = arrays["same_a"]
    legal = np.broadcast_to(back_of(arrays) >= 0,
                            (*ids.shape, ids.shape[1])).copy()
    for b, row in enumerate(ids):
        for group in set(row) - {-1}:
            legal[b] |= np.logical_and.outer(row == group, row == group)
    return attend(arrays, legal)


def expected_blocks(arrays):
    """Each K/V head has a list, which two query heads share."""
    picks, keys = arrays["picks"], arrays["k"].shape[2]
    picked = np.zeros((*picks.shape[:3], keys), bool)
    for place in np.ndindex(picks.shape):
        block = picks[place]
        if block >= 0:
            picked[place[:3]][32 * block:32 * block + 32] = True
    return attend(arrays, np.repeat(picked, 2, axis=1) & (back_of(arrays) >= 0))


def expected_rms_norm(arrays):
    """y = x r w with the root r. The relative error is half that of the sum of n
    squares, with their own rounding, the division and eps; plus two roundings of the
    root and two of the products."""
    x, weight = (arrays[n].astype(np.float64) for n in ("x", "weight"))
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight
    error = (judge.sum_error(x.shape[-1]) + 3 * judge.U) / 2 + 4 * judge.U
    return {"y": judge.Expected(y, error * np.abs(y), str(arrays["x"].dtype))}


EXPECTED = {"attention": expected_attention, "tree": expected_tree,
            "same": expected_same, "blocks": expected_blocks,
            "rms_norm": expected_rms_norm}


class Export(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def tessera(self, *words):
        done = subprocess.run(
            [TESSERA, *words], env=dict(os.environ, TESSERA_PYTHON=sys.executable),
            capture_output=True, text=True)
        if "must be installed" in done.stderr:
            self.skipTest(done.stderr.strip())
        return done

    def bridge(self, path, plugin, *more):
        mine = path + "." + plugin
        done = self.tessera(
            "bridge", path + ".mlirbc", "--shapes", path + ".json", "--inputs",
            path + ".in.safetensors", "--outputs", mine, "--plugin", plugin,
            "--cache", "off", "--json", *more)
        if "pjrt_c_api.h" in done.stderr:
            self.skipTest(done.stderr.strip())
        return done, mine

    def expect_same(self, path, expected, *more):
        """Compares ours and JAX's with `expected`; without it, ours has JAX's bits."""
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
            check = ["--check"] if name != "rms_norm" else []
            # Facts do not depend on the dtype, so only two examples test others.
            dtypes = ["float32"]
            if name in ("attention", "rms_norm"):
                dtypes += ["bfloat16", "float16"]
            for dtype in dtypes:
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

    def test_facts_that_are_drawn_are_judged_where_they_are_any_numbers(self):
        for name in ("same", "blocks", "tree"):
            export_jax.EXAMPLES[name](self.folder.name, jnp.dtype("float32"),
                                      ["cpu"])
            path = os.path.join(self.folder.name, name)
            done = self.tessera(
                "bridge", path + ".mlirbc", "--shapes", path + ".json", "--seed",
                "3", "--cache", "off", "--check")
            # A tree cannot be drawn at random.
            self.assertEqual(done.returncode, 2 if name == "tree" else 0,
                             done.stderr + done.stdout)
            if name == "tree":
                self.assertIn("found neither for 'tree_enter'", done.stderr)

    def run_lane(self, lane, path, *flags):
        """Runs 256 queries by the artifact with --check; returns the receipt."""
        done = self.tessera(
            "run", "--lane", lane, "--artifact", path + ".mlirbc", "--shapes",
            path + ".json", "--q-len", "256", "--heads", "4", "--kv-heads", "2",
            "--head-dim", "64", *flags, "--cache",
            os.path.join(self.folder.name, "cache"), "--check", "--json")
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        receipt = json.loads(done.stdout)
        self.assertEqual(receipt["lane"]["executed"], lane)
        self.assertTrue(receipt["check"]["passed"])
        return receipt

    def test_the_lane_takes_trees_named_ids_and_picks_of_each_batch(self):
        def saved(name, array):
            file = os.path.join(self.folder.name, name + ".npy")
            np.save(file, array)
            return file

        random = np.random.default_rng(5)
        picks = np.full((2, 256, 2, 3), -1, np.int32)
        for at in np.ndindex(picks.shape[:3]):
            some = random.permutation(at[1] // 32 + 1)[:3]
            picks[at][:len(some)] = some
        facts = {
            "tree": ("tree", [["--tree", f"random:run=20,seed={i}"]
                              for i in range(2)]),
            "same": ("causal | same(a)",
                     [["--same", "a=" + saved(f"ids{i}", random.integers(
                         -1, 5, 256, np.int32))] for i in range(2)]),
            "blocks": ("causal & blocks(32)",
                       [["--picks", "topk_idxs:" + saved(f"picks{i}", picks[i])]
                        for i in range(2)]),
        }
        for name, (mask, batches) in facts.items():
            export_jax.EXAMPLES[name](self.folder.name, jnp.dtype("float32"),
                                      ["cpu"])
            path = os.path.join(self.folder.name, name)
            for first, flags in zip((True, False), batches):
                receipt = self.run_lane("jax_bridge", path, "--mask", mask, *flags)
                self.assertEqual(receipt["compiles"], int(first))

    # The scale is a power of two, so that q times it is exact in each dtype.
    def test_splash_runs_two_masks_under_our_plan(self):
        for dtype, plugin in (("float32", PLUGINS[0]), ("bfloat16", PLUGINS[0]),
                              ("float16", PLUGINS[1])):
            path = export_splash.save_splash(
                os.path.join(self.folder.name, dtype), heads=4, kv_heads=2,
                q_len=256, kv_len=256, head_dim=64, v_head_dim=64, block_q=128,
                block_kv=128, width=2, blocks=4, dtype=dtype, softcap=30.0)
            for docs in ("lengths:100,156", "lengths:130,20,106"):
                receipt = self.run_lane(
                    "splash", path, "--mask", "causal & documents", "--docs",
                    docs, "--tile", "128", "--softcap", "30", "--dtype",
                    {"float32": "f32", "bfloat16": "bf16"}.get(dtype, "f16"),
                    "--plugin", plugin)
                self.assertEqual(receipt["lane"]["family"], "tpu/splash")
                # Another process and other documents use the same program.
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
        golden = sorted((ROOT / "tests" / "golden" / "bridge").glob("*.mlirbc"))
        self.assertGreaterEqual(len(golden), 4)
        for file in golden:
            self.assertNotIn(b".py", file.read_bytes(), file)

    def test_a_platform_that_is_not_the_plugins_is_refused(self):
        export_jax.save_rms_norm(self.folder.name, jnp.dtype("float32"),
                                 ["tpu"])
        done, _ = self.bridge(os.path.join(self.folder.name, "rms_norm"),
                              PLUGINS[0])
        self.assertEqual(done.returncode, 2)
        self.assertIn("must be exported for the plugin's platform 'cpu', "
                      "found 'tpu'", done.stderr)

    # JAX calls LAPACK by a custom call that exists only in its own process.
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
