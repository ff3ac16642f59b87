"""The oracle, against what is known without it."""

import unittest

import numpy as np

import oracle


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
                want.out[0, head], v[0, 0].astype(np.float64)
            )
        score = (q[0, 1, 2].astype(float) @ k[0, 0, 2].astype(float)) / 8**0.5
        np.testing.assert_allclose(want.lse[0, 1, 2], score)

    def test_equal_scores_give_the_mean(self):
        q, k, v = self.arrays()
        want = oracle.attention(np.zeros_like(q), k, v, np.ones((1, 4, 4)) > 0)
        mean = v[0, 0].astype(np.float64).mean(0)
        np.testing.assert_allclose(want.out[0, 0, 3], mean)
        np.testing.assert_allclose(want.lse, np.log(4))

    def test_no_key(self):
        q, k, v = self.arrays()
        legal = np.ones((1, 4, 4), np.bool_)
        legal[0, 1] = False
        # What nobody sees may be anything.
        legal[0, :, 2] = False
        k[0, 0, 2] = v[0, 0, 2] = np.nan
        want = oracle.attention(q, k, v, legal)
        self.assertTrue((want.out[0, :, 1] == 0).all())
        self.assertTrue((want.lse[0, :, 1] == -np.inf).all())
        self.assertTrue(np.isfinite(want.out).all())
        # Exactly 0 and -inf, nothing near it.
        self.assertEqual(oracle.worst(want.out, want.out, want.out_error), 0)
        near = want.out.copy()
        near[0, 0, 1, 0] = 1e-30
        self.assertEqual(oracle.worst(near, want.out, want.out_error), np.inf)
        low = np.where(np.isinf(want.lse), -1e30, want.lse)
        self.assertEqual(oracle.worst(low, want.lse, want.lse_error), np.inf)

    def test_softcap(self):
        q, k, v = self.arrays()
        want = oracle.attention(q, k, v, np.eye(4, dtype=bool)[None], softcap=2)
        self.assertLessEqual(np.abs(want.lse).max(), 2)

    def test_worst(self):
        one = np.ones(3)
        self.assertEqual(oracle.worst(one * 1.5, one, one * 0.25), 2)
        self.assertEqual(oracle.worst([np.nan, 1, 1], one, one), np.inf)
        self.assertEqual(oracle.worst([np.inf, 1, 1], one, one), np.inf)


if __name__ == "__main__":
    unittest.main()
