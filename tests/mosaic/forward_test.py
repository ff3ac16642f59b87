"""The forward kernel that `tessera compile` emits, run on arrays against fp64."""

import unittest

import numpy as np
from ml_dtypes import bfloat16

import oracle
from case import IDS, Case, random_case, random_ids, run_one_contract
from checks import CaseTest
from program import Program
from share_of_cases import some


class ForwardCase(Case):
    rounded_sum = False

    def arrays(self, room):
        arrays = self.lists()
        q, k, v, legal = self.draw()
        self.want = oracle.attention(
            q, k, v, legal, scale=self.scale, softcap=self.softcap,
            rounded_sum=self.rounded_sum, sinks=self.sinks,
        )
        inputs = self.scalars(arrays)
        for x, tokens in ((q, "q_len"), (k, "kv_len"), (v, "kv_len")):
            inputs.append(self.padded(x, room, tokens))
        return inputs + [arrays[name] for name in IDS if name in arrays]

    def error(self, outputs):
        """The largest error as a share of the allowed one; above 1 is wrong."""
        out = outputs[0][: self.batch, :, : self.q_len]
        lse = outputs[1][: self.batch, :, 0, : self.q_len]
        want = self.want
        return max(
            oracle.worst(out, want.out, want.out_error),
            oracle.worst(lse, want.lse, want.lse_error),
        )


class RoundedCase(ForwardCase):
    direction = ("--row-sum", "rounded")
    rounded_sum = True


# Cases whose heads go through a pass together.
SHIPPED_TOGETHER = (((256, 256), 1), ((256, 256), 2), ((512, 512), 1))


class Forward(CaseTest):
    def test_random_requests(self):
        for seed in some(range(40)):
            with self.subTest(seed=seed):
                self.check(random_case(np.random.default_rng(seed), ForwardCase))

    def test_random_requests_with_a_rounded_sum(self):
        for seed in some(range(40, 52)):
            with self.subTest(seed=seed):
                self.check(random_case(np.random.default_rng(seed), RoundedCase))

    def test_heads_that_go_together(self):
        """All heads of a pass share keys, or some do, or none; one pass has all heads,
        or several passes have some each."""
        for seed, (heads, kv_heads) in enumerate(
            ((8, 1), (9, 3), (10, 5), (10, 10), (12, 6))
        ):
            kind = (ForwardCase, RoundedCase)[seed % 2]
            with self.subTest(heads=heads, kv_heads=kv_heads, kind=kind):
                rng = np.random.default_rng(seed)
                self.check(kind(
                    rng, "causal & documents", heads=heads, kv_heads=kv_heads,
                    q_len=290, kv_len=300, ids=random_ids(rng, 1, 300),
                    valid=[280],
                ))

    def test_the_shipped_tiles_of_eight_heads(self):
        for at, (tile, tiles) in enumerate(SHIPPED_TOGETHER):
            with self.subTest(tile=tile, tiles=tiles):
                rng = np.random.default_rng(at)
                case = ForwardCase(
                    rng, "causal & documents", heads=8, kv_heads=8, q_len=700,
                    kv_len=1100, tile=tile, tiles=tiles, valid=[1000],
                    ids=np.sort(random_ids(rng, 1, 1100)),
                )
                text, room = case.emit()
                self.assertEqual(room["heads_per_pass"], 8)
                outputs = Program(text).run(case.arrays(room), max_trips=100_000)
                self.assertLessEqual(case.error(outputs), 1)

    def test_a_rounded_sum_is_no_exact_one(self):
        """The log-sum-exp of a rounded sum exceeds the bound of an exact sum."""
        rng = np.random.default_rng(9)
        ids = np.sort(random_ids(rng, 1, 600))
        case = RoundedCase(
            rng, "causal & documents", q_len=600, kv_len=600, ids=ids, tiles=3
        )
        text, room = case.emit()
        outputs = Program(text).run(case.arrays(room), max_trips=10_000)
        self.assertLessEqual(case.error(outputs), 1)
        want = case.want
        lse = outputs[1][:1, :, 0, :600]
        exact = want.lse_error - oracle.ROUNDING[np.dtype(bfloat16)][0]
        seen = want.lse > -np.inf
        self.assertGreater(oracle.worst(lse[seen], want.lse[seen], exact[seen]), 1)

    def test_lengths_around_the_tile(self):
        rng = np.random.default_rng(5)
        for n in (1, 127, 128, 129, 255, 256, 257):
            with self.subTest(n=n):
                ids = np.sort(rng.integers(0, 3, (1, n)).astype(np.int32))
                self.check(
                    ForwardCase(rng, "causal & documents", q_len=n, kv_len=n, ids=ids)
                )

    def test_rows_without_a_key(self):
        rng = np.random.default_rng(6)
        ids = np.full((2, 400), -1, np.int32)
        ids[1, 130:140] = 3
        case = ForwardCase(
            rng, "causal & documents", batch=2, q_len=400, kv_len=400, ids=ids
        )
        text, room = case.emit()
        out, lse = Program(text).run(case.arrays(room), max_trips=10_000)
        empty = np.flatnonzero(ids[1] < 0)
        self.assertTrue((out[0, :, :400] == 0).all())
        self.assertTrue((out[1][:, empty] == 0).all())
        self.assertTrue((lse[1, :, 0][:, empty] == -np.inf).all())
        self.assertLessEqual(case.error([out, lse]), 1)

    def test_one_program_serves_every_batch_of_its_contract(self):
        """Ids, counts, offsets and lengths change; the text does not."""
        run_one_contract(ForwardCase)


if __name__ == "__main__":
    unittest.main()
