"""The backward kernel that `tessera compile` emits, run on arrays against fp64."""

import unittest

import numpy as np

import oracle
from case import IDS, Case, random_case, random_ids, run_one_contract
from checks import CaseTest
from forward_test import ForwardCase
from program import Program
from share_of_cases import some


class BackwardCase(Case):
    """Takes out and log-sum-exp in fp64, rounded as a forward kernel rounds."""

    gone_lse = np.nan  # the log-sum-exp of vetoed queries

    def __init__(self, rng, *arguments, dlse=None, **options):
        super().__init__(rng, *arguments, **options)
        self.has_dlse = bool(rng.integers(2)) if dlse is None else dlse
        self.direction = ["--backward"] + ["--dlse"] * self.has_dlse

    def draw_gradients(self, legal):
        """dout, and the gradient of the log-sum-exp or None."""
        shape = (self.batch, self.heads, self.q_len)
        dout = self.rng.standard_normal((*shape, self.v_dim)).astype(self.dtype)
        dlse = self.rng.standard_normal(shape).astype(np.float32)
        return dout, dlse if self.has_dlse else None

    def arrays(self, room):
        q, k, v, legal = self.draw()
        dout, dlse = self.draw_gradients(legal)
        saved = self.saved(q, k, v, legal)
        out, lse = saved.out.astype(self.dtype), saved.lse.astype(np.float32)
        self.want = oracle.gradients(
            *(q, k, v, dout, legal, dlse, self.scale, out, lse, self.softcap),
            sinks=self.sinks,
        )
        return self.inputs(room, q, k, v, out, dout, lse, dlse)

    def saved(self, q, k, v, legal):
        """The results of a forward kernel, in fp64."""
        return oracle.attention(
            q, k, v, legal, scale=self.scale, softcap=self.softcap,
            sinks=self.sinks,
        )

    def inputs(self, room, q, k, v, out, dout, lse, dlse):
        gone = np.stack([self.vetoed_queries(b) for b in range(self.batch)])
        gone = np.broadcast_to(gone[:, None], (*gone.shape[:1], *lse.shape[1:]))
        of_queries = [q, out, dout, lse] + [dlse] * self.has_dlse
        # With sinks, the dlse of a vetoed query goes to the sink, so it stays.
        for x in of_queries if self.sinks is None else of_queries[:4]:
            x[gone] = np.nan
        lse[gone] = self.gone_lse
        q, out, dout = (self.padded(x, room, "q_len") for x in of_queries[:3])
        rows = [
            self.padded(x[:, :, None], room, "q_len", axis=3)
            for x in of_queries[3:]
        ]
        k, v = (self.padded(x, room, "kv_len") for x in (k, v))
        lists = self.lists()
        return [
            *self.scalars(lists),
            *(q, k, v, out, dout, *rows),
            *(lists[name] for name in IDS if name in lists),
        ]

    def error(self, outputs):
        """The largest error as a share of the allowed one; above 1 is wrong."""
        want = self.want
        lengths = (self.q_len, self.kv_len, self.kv_len)
        dq, dk, dv = (
            x[: self.batch, :, :n] for x, n in zip(outputs, lengths)
        )
        of_sinks = 0
        if self.sinks is not None:
            lanes = np.broadcast_to(want.dsinks[:, None, None], outputs[3].shape)
            error = np.broadcast_to(want.dsinks_error[:, None, None], lanes.shape)
            of_sinks = oracle.worst(outputs[3], lanes, error)
        return max(
            oracle.worst(dq, want.dq, want.dq_error),
            oracle.worst(dk, want.dk, want.dk_error),
            oracle.worst(dv, want.dv, want.dv_error),
            of_sinks,
        )


# Cases whose heads go through a pass together.
SHIPPED_TOGETHER = (((256, 256), 1), ((256, 256), 2), ((512, 512), 1))


class Backward(CaseTest):
    def test_random_requests(self):
        for seed in some(range(40)):
            with self.subTest(seed=seed):
                self.check(
                    random_case(np.random.default_rng(seed), BackwardCase)
                )

    def test_lengths_around_the_tile(self):
        rng = np.random.default_rng(5)
        for n in (1, 127, 128, 129, 255, 256, 257):
            with self.subTest(n=n):
                ids = np.sort(rng.integers(0, 3, (1, n)).astype(np.int32))
                self.check(
                    BackwardCase(
                        rng, "causal & documents", q_len=n, kv_len=n, ids=ids
                    )
                )

    def test_heads_that_go_together(self):
        """All heads of a pass share keys, or some do, or none; whole groups in a pass,
        and groups whose passes take turns."""
        for seed, (heads, kv_heads, due) in enumerate((
            (8, 1, 4), (8, 2, 4), (8, 4, 4), (6, 6, 3), (9, 3, 3), (12, 2, 3),
            (10, 5, 2), (6, 1, 3), (5, 1, 1),
        )):
            with self.subTest(heads=heads, kv_heads=kv_heads):
                rng = np.random.default_rng(seed)
                case = BackwardCase(
                    rng, "causal & documents", heads=heads, kv_heads=kv_heads,
                    q_len=290, kv_len=300, ids=random_ids(rng, 1, 300),
                    valid=[280], tiles=1 + seed % 3, ahead=1 + seed % 4,
                    sinks=seed % 2 == 1,
                )
                self.assertEqual(case.emit()[1]["heads_per_pass"], due)
                self.check(case)

    def test_the_shipped_tiles_of_heads_together(self):
        for at, (tile, tiles) in enumerate(SHIPPED_TOGETHER):
            with self.subTest(tile=tile, tiles=tiles):
                rng = np.random.default_rng(at)
                case = BackwardCase(
                    rng, "causal & documents", heads=4, kv_heads=4, q_len=700,
                    kv_len=1100, tile=tile, tiles=tiles, ahead=1, valid=[1000],
                    ids=np.sort(random_ids(rng, 1, 1100)),
                )
                text, room = case.emit()
                self.assertEqual(room["heads_per_pass"], 4)
                outputs = Program(text).run(case.arrays(room), max_trips=100_000)
                self.assertLessEqual(case.error(outputs), 1)

    def test_rows_and_keys_without_a_pair(self):
        """Their gradients are exactly 0, although inputs are -inf and NaN."""
        rng = np.random.default_rng(6)
        ids = np.full((2, 400), -1, np.int32)
        ids[1, 130:140] = 3
        case = BackwardCase(
            rng, "causal & documents", batch=2, q_len=400, kv_len=400, ids=ids
        )
        text, room = case.emit()
        outputs = Program(text).run(case.arrays(room), max_trips=10_000)
        empty = np.flatnonzero(ids[1] < 0)
        for x in outputs:
            self.assertTrue((x[0, :, :400] == 0).all())
            self.assertTrue((x[1][:, empty] == 0).all())
        self.assertLessEqual(case.error(outputs), 1)

    def test_a_query_that_no_veto_takes_may_see_nothing(self):
        rng = np.random.default_rng(10)
        case = BackwardCase(
            rng,
            "window(20, 0)",
            q_len=300,
            kv_len=200,
            q_offset=[0],
            heads=2,
            kv_heads=1,
            dlse=True,
        )
        self.assertTrue((~case.legal(0).any(1)).sum() > 50)
        self.check(case)

    def test_after_the_forward_kernel(self):
        """Forward and then backward kernel, compared with fp64 of q, k and v alone."""
        rng = np.random.default_rng(11)
        n = 500
        options = dict(batch=2, heads=4, kv_heads=2, q_len=n, kv_len=n)
        options["ids"] = random_ids(rng, 2, n)
        seed = int(rng.integers(1 << 30))
        mask = "causal & documents"
        first = ForwardCase(np.random.default_rng(seed), mask, **options)
        text, room = first.emit()
        out, lse = Program(text).run(first.arrays(room), max_trips=10_000)
        case = BackwardCase(
            np.random.default_rng(seed), mask, dlse=True, **options
        )
        q, k, v, legal = case.draw()
        dout, dlse = case.draw_gradients(legal)
        case.want = oracle.gradients(
            q, k, v, dout, legal, dlse, softcap=case.softcap
        )
        text, room = case.emit()
        inputs = case.inputs(
            *(room, q, k, v, out[:2, :, :n].copy(), dout),
            *(lse[:2, :, 0, :n].copy(), dlse),
        )
        outputs = Program(text).run(inputs, max_trips=10_000)
        self.assertLessEqual(case.error(outputs), 1)

    def test_one_program_serves_every_batch_of_its_contract(self):
        """Ids, counts, offsets and lengths change; the text does not."""
        run_one_contract(BackwardCase, dlse=True)


if __name__ == "__main__":
    unittest.main()
