"""The oracle against results that are known independently."""

import unittest

import numpy as np
from ml_dtypes import bfloat16

import oracle
import oracle_rows

FP64 = 64 * 2.0**-53  # a few roundings of fp64, relative

class Legal(unittest.TestCase):
    def test_causal_and_offset(self):
        legal = oracle.legal_pairs(2, 5, causal=True)
        # By default the last query stands at the last key.
        np.testing.assert_array_equal(legal.sum(1), [4, 5])
        legal = oracle.legal_pairs(2, 5, causal=True, q_offset=0)
        np.testing.assert_array_equal(legal.sum(1), [1, 2])

    def test_window(self):
        legal = oracle.legal_pairs(6, 6, window=(2, 0))
        np.testing.assert_array_equal(legal[4], [0, 0, 1, 1, 1, 0])
        legal = oracle.legal_pairs(6, 6, window=(-1, 1))
        np.testing.assert_array_equal(legal[2], [1, 1, 1, 1, 0, 0])

    def test_documents(self):
        ids = [1, 1, -1, 2, 1]
        legal = oracle.legal_pairs(5, 5, doc_ids=ids)
        np.testing.assert_array_equal(legal[0], [1, 1, 0, 0, 1])
        np.testing.assert_array_equal(legal[2], [0] * 5)
        np.testing.assert_array_equal(legal[3], [0, 0, 0, 1, 0])

    def test_valid_count(self):
        legal = oracle.legal_pairs(4, 4, valid_count=2)
        np.testing.assert_array_equal(legal.sum(1), [2, 2, 0, 0])
        self.assertFalse(legal[:, 2:].any())


class Attention(unittest.TestCase):
    def arrays(self):
        shape = (1, 2, 4, 8)
        return oracle.hard_inputs(1, shape, (1, 1, 4, 8))

    def test_one_key_gives_its_value(self):
        q, k, v = self.arrays()
        want = oracle.attention(q, k, v, np.eye(4, dtype=bool)[None])
        for head in range(2):
            np.testing.assert_allclose(
                want.out[0, head], v[0, 0].astype(np.float64), FP64
            )
        score = (q[0, 1, 2].astype(float) @ k[0, 0, 2].astype(float)) / 8**0.5
        np.testing.assert_allclose(want.lse[0, 1, 2], score, FP64)

    def test_equal_scores_give_the_mean(self):
        q, k, v = self.arrays()
        want = oracle.attention(np.zeros_like(q), k, v, np.ones((1, 4, 4)) > 0)
        mean = v[0, 0].astype(np.float64).mean(0)
        np.testing.assert_allclose(want.out[0, 0, 3], mean, FP64)
        np.testing.assert_allclose(want.lse, np.log(4), FP64)

    def test_no_key(self):
        q, k, v = self.arrays()
        legal = np.ones((1, 4, 4), np.bool_)
        legal[0, 1] = False
        # A key that no query sees may hold anything.
        legal[0, :, 2] = False
        k[0, 0, 2] = v[0, 0, 2] = np.nan
        want = oracle.attention(q, k, v, legal)
        self.assertTrue((want.out[0, :, 1] == 0).all())
        self.assertTrue((want.lse[0, :, 1] == -np.inf).all())
        self.assertTrue(np.isfinite(want.out).all())
        # Exactly 0 and -inf.
        self.assertEqual(oracle.worst(want.out, want.out, want.out_error), 0)
        near = want.out.copy()
        near[0, 0, 1, 0] = 1e-30
        self.assertEqual(oracle.worst(near, want.out, want.out_error), np.inf)
        low = np.where(np.isinf(want.lse), -1e30, want.lse)
        self.assertEqual(oracle.worst(low, want.lse, want.lse_error), np.inf)

    def test_a_sink_is_a_key_without_a_value(self):
        q, k, v = self.arrays()
        legal = np.ones((1, 4, 4), np.bool_)
        legal[0, 1] = False
        sinks = np.array([0.5, -2.0], np.float32)
        with_key = [np.concatenate([x, np.zeros_like(x[:, :, :1])], 2)
                    for x in (k, v)]
        wide = np.concatenate([legal, np.ones((1, 4, 1), np.bool_)], 2)
        want = oracle.attention(np.zeros_like(q), *with_key, wide)
        got = oracle.attention(
            np.zeros_like(q), k, v, legal, sinks=np.zeros(2, np.float32)
        )
        np.testing.assert_allclose(got.out, want.out, FP64)
        np.testing.assert_allclose(got.lse, want.lse, atol=FP64)
        got = oracle.attention(q, k, v, legal, sinks=sinks)
        self.assertTrue((got.lse[0, :, 1] == sinks).all())
        self.assertTrue((got.out[0, :, 1] == 0).all())

    def test_the_gradient_of_a_sink_is_a_difference(self):
        q, k, v = self.arrays()
        q = (q.astype(np.float32) * 0.1).astype(bfloat16)
        rng = np.random.default_rng(2)
        legal = np.tril(np.ones((1, 4, 4), np.bool_), -1)
        dout = rng.standard_normal(q.shape).astype(bfloat16)
        dlse = rng.standard_normal(q.shape[:3]).astype(np.float32)
        sinks, step = np.array([0.5, -2.0], np.float32), 2.0**-12

        def loss(at):
            found = oracle.attention(q, k, v, legal, sinks=at)
            return (found.out * dout.astype(float)).sum((0, 2, 3)) + (
                found.lse * dlse
            ).sum((0, 2))

        want = (loss(sinks + step) - loss(sinks - step)) / (2 * step)
        twice = (loss(sinks + 2 * step) - loss(sinks - 2 * step)) / (4 * step)
        got = oracle.gradients(q, k, v, dout, legal, dlse, sinks=sinks)
        # The error is a third of the change at twice the step.
        allowed = np.abs(twice - want)
        self.assertLess((np.abs(got.dsinks - want) / allowed).max(), 1)

    def test_softcap(self):
        q, k, v = self.arrays()
        want = oracle.attention(q, k, v, np.eye(4, dtype=bool)[None], softcap=2)
        self.assertLessEqual(np.abs(want.lse).max(), 2)

    def test_worst(self):
        one = np.ones(3)
        self.assertEqual(oracle.worst(one * 1.5, one, one * 0.25), 2)
        self.assertEqual(oracle.worst([np.nan, 1, 1], one, one), np.inf)
        self.assertEqual(oracle.worst([np.inf, 1, 1], one, one), np.inf)


class RowByRow(unittest.TestCase):
    """Both implementations of the oracle agree in values and in allowed errors."""

    def request(self, rng):
        """A random request: sizes and facts, with the legal pairs of both oracles."""
        kv_len = int(rng.integers(1, 40))
        q_len = int(rng.integers(1, kv_len + 1))
        facts = dict(
            causal=bool(rng.integers(2)),
            window=tuple(int(x) for x in rng.integers(-1, 12, 2)),
            doc_ids=rng.integers(-1, 3, kv_len) if rng.integers(2) else None,
            valid_count=int(rng.integers(0, kv_len + 1))
            if rng.integers(2)
            else None,
            q_offset=int(rng.integers(0, kv_len - q_len + 1))
            if rng.integers(2)
            else None,
        )
        legal = oracle.legal_pairs(q_len, kv_len, **facts)
        np.testing.assert_array_equal(
            legal, oracle_rows.legal_pairs(q_len, kv_len, **facts)
        )
        return legal

    def agree(self, got, want, size):
        """The bounds count roundings of fp32; those of fp64 are 2^-29 as large, and each
        implementation has its own. `size` is the largest score. A bound is a sum of
        non-negative terms, so its relative error is that of the probabilities."""
        for name, value in vars(want).items():
            ours = getattr(got, name)
            if value is None:
                self.assertIsNone(ours, name)
                continue
            if name.endswith("_error"):
                # (D + 4) roundings of each score, and fewer than 64 others.
                roundings = 2 * (64 + 20 * size) * 2.0**-53
                np.testing.assert_allclose(ours, value, roundings)
                continue
            # The value is exact if fp32 has no error.
            allowed = 2 * 2.0**-29 * getattr(want, f"{name}_error")
            self.assertLessEqual(oracle.worst(ours, value, allowed), 1, name)

    def test_random_requests(self):
        some = 0
        for seed in range(60):
            with self.subTest(seed=seed):
                rng = np.random.default_rng(seed)
                legal = self.request(rng)[None]
                _, q_len, kv_len = legal.shape
                some += legal.any()
                dtype = np.float32 if seed % 3 == 0 else bfloat16
                q, k, v = oracle.hard_inputs(
                    seed, (1, 4, q_len, 16), (1, 2, kv_len, 16), dtype
                )
                unseen = np.broadcast_to(~legal.any(1)[:, None], (1, 2, kv_len))
                k[unseen] = v[unseen] = np.nan
                options = dict(
                    scale=float(rng.choice([0.25, 2.0])),
                    softcap=float(rng.choice([0.0, 3.0])),
                    rounded_sum=bool(rng.integers(2)),
                )
                sinks = None
                if seed % 2:
                    sinks = rng.choice([0.3, -158.0, 20.0, -np.inf, 3e38], 4)
                    sinks = sinks.astype(np.float32)
                options["sinks"] = sinks
                keys = np.abs(np.nan_to_num(k.astype(float))).repeat(2, 1)
                size = 2 * (np.abs(q.astype(float)) @ keys.swapaxes(2, 3)).max()
                self.agree(
                    oracle.attention(q, k, v, legal, **options),
                    oracle_rows.attention(q, k, v, legal, **options),
                    size,
                )
                softcap = options["softcap"]
                dout = rng.standard_normal(q.shape).astype(q.dtype)
                dlse = rng.standard_normal(q.shape[:3]).astype(np.float32)
                words = dict(softcap=softcap, sinks=sinks)
                for more in ((), self.saved(q, k, v, legal, **words)):
                    arguments = (q, k, v, dout, legal, dlse, None, *more)
                    self.agree(
                        oracle.gradients(*arguments, **words),
                        oracle_rows.gradients(*arguments, **words),
                        size,
                    )
        self.assertGreater(some, 40)

    def saved(self, q, k, v, legal, **words):
        want = oracle.attention(q, k, v, legal, **words)
        return want.out.astype(q.dtype), want.lse.astype(np.float32)

    def test_what_is_seen_is_finite(self):
        q, k, v = oracle.hard_inputs(1, (1, 1, 3, 8), (1, 1, 3, 8))
        v[0, 0, 1, 2] = np.inf
        with self.assertRaisesRegex(ValueError, "finite"):
            oracle.attention(q, k, v, np.ones((1, 3, 3), np.bool_))

    def test_a_query_outside_the_keys_has_no_document(self):
        for module in (oracle, oracle_rows):
            with self.assertRaisesRegex(ValueError, "outside the keys"):
                module.legal_pairs(2, 2, doc_ids=[0, 0], q_offset=-1)


if __name__ == "__main__":
    unittest.main()
