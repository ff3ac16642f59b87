"""Kernels that may read any numbers: strays (NaN and infinities) in q, k, v and the
other inputs of the backward pass, at tokens without a veto. Results that no stray is
legal for are as without strays."""

import unittest

import numpy as np

import oracle
from backward_test import BackwardCase
from bits_case import random_bits_case
from bits_test import BackwardBits, ForwardBits
from case import random_case, random_ids
from checks import CaseTest
from chunks_test import chunked
from forward_test import ForwardCase, RoundedCase
from pages_test import paged
from program import Program
from share_of_cases import some, stride

STRAYS = np.array([np.nan, np.inf, -np.inf], np.float32)
# A NaN with all bits set, so each part of its bits matters.
FULL_NAN = np.array(0x7FFFFFFF, np.uint32).view(np.float32)


def of_heads(legal, heads):
    """The legal pairs as [batch, heads, queries, keys]."""
    if legal.ndim == 4:
        return legal
    return np.broadcast_to(legal[:, None], (len(legal), heads, *legal.shape[1:]))


class Strays:
    """A mixin before a Case of a direction. Draws the places of strays after the arrays
    and the expected results are made without strays."""

    odds = None  # probability of a stray in a token of an array; None: drawn

    def emit(self):
        self.direction = [*self.direction, "--numbers", "any"]
        try:
            return super().emit()
        finally:
            self.direction = self.direction[:-2]

    def draw(self):
        q, k, v, legal = super().draw()
        self.pairs = of_heads(legal, self.heads)
        return q, k, v, legal

    def scatter(self, x, n):
        """Puts strays into some numbers of some of an array's n tokens. Returns which
        tokens have a stray, and which have a NaN."""
        own = x[: self.batch, :, :n]
        there = ~np.isnan(own.astype(np.float32)).any(-1)
        hit = there & (self.rng.random(there.shape) < self.odds)
        is_nan = np.zeros_like(hit)
        for at in np.argwhere(hit):
            dims = self.rng.integers(0, x.shape[-1], self.rng.integers(1, 4))
            strays = self.rng.choice(STRAYS, len(dims))
            own[tuple(at)][dims] = strays
            is_nan[tuple(at)] = np.isnan(own[tuple(at)].astype(np.float32)).any()
        return hit, is_nan

    def reached(self):
        return self.reached_of(self.spoiled)

    def reached_of(self, queries):
        """The keys that at least one of these queries sees."""
        own = (self.pairs & queries[..., None]).any(2)
        group = self.heads // self.kv_heads
        return own.reshape(self.batch, self.kv_heads, group, -1).any(2)

    def reads(self, of_keys):
        """The queries that see at least one of these keys."""
        keys = np.repeat(of_keys, self.heads // self.kv_heads, axis=1)
        return (self.pairs & keys[:, :, None]).any(-1)

    def spoil(self, tensors):
        """Puts strays into `tensors`: q, k, v and the other inputs of backward."""
        q, k, v = tensors[:3]
        if self.odds is None:
            self.odds = self.rng.choice([0.02, 0.003, 1 / self.kv_len / 4])
        own, own_nan = self.scatter(q, self.q_len)
        hits = [self.scatter(x, self.kv_len) for x in (k, v)]
        self.mark(own, hits[0][0] | hits[1][0])
        # The results of these queries must show that a stray was there.
        certain = own_nan | self.reads(hits[0][1] | hits[1][1])
        self.certain = certain & self.pairs.any(-1)

    def mark(self, queries, keys):
        """Stores which queries are spoiled by strays in these queries and keys."""
        self.spoiled = queries | self.reads(keys)
        self.certain = self.spoiled & self.pairs.any(-1)

    def spoil_one(self, tensors, array, head, token, alone=False):
        """Puts a NaN into one number of one token of tensors[array]. A NaN in q, k or v
        also spoils what a forward kernel leaves for backward, unless `alone`."""
        of_queries = np.zeros((self.batch, self.heads, self.q_len), np.bool_)
        of_keys = np.zeros((self.batch, self.kv_heads, self.kv_len), np.bool_)
        (of_keys if array in (1, 2) else of_queries)[0, head, token] = True
        dim = self.rng.integers(0, tensors[array].shape[-1])
        tensors[array][0, head, token, dim] = np.nan
        self.mark(of_queries, of_keys)
        if "--backward" in self.direction and array < 3 and not alone:
            inside = tensors[3][: self.batch, :, : self.q_len]
            inside[self.spoiled] = np.nan
            tensors[5][: self.batch, :, 0, : self.q_len][self.spoiled] = FULL_NAN

    def arrays(self, room):
        inputs = super().arrays(room)
        first = next(i for i, x in enumerate(inputs) if x.ndim == 4)
        self.spoil(inputs[first:])
        return inputs

    def worst_of(self, found, want, error, clean):
        return oracle.worst(found[clean], want[clean], error[clean])

    def claims(self):
        """Whether there are clean queries with a legal key, clean keys with a legal
        query, and spoiled queries with a legal key."""
        queries, keys = self.pairs.any(-1), self.reached_of(self.pairs.any(-1))
        return np.array([(queries & ~self.spoiled).any(),
                         (keys & ~self.reached()).any(),
                         (queries & self.spoiled).any()])

    def hides(self, rows):
        """Whether a row that a NaN is legal for has only finite numbers."""
        finite = np.isfinite(rows.astype(np.float32)).all(-1)
        return bool((finite & self.certain).any())


class OfForward(Strays):
    def error(self, outputs):
        out = outputs[0][: self.batch, :, : self.q_len]
        lse = outputs[1][: self.batch, :, 0, : self.q_len]
        want, clean = self.want, ~self.spoiled
        if self.hides(out):
            return np.inf
        return max(
            self.worst_of(out, want.out, want.out_error, clean),
            self.worst_of(lse, want.lse, want.lse_error, clean),
        )


class OfBackward(Strays):
    def spoil(self, tensors):
        super().spoil(tensors)
        _, _, _, out, dout, *rows = tensors
        spoiled = self.spoiled
        # As a forward kernel leaves a row: all of it is a stray, or one number of out.
        inside = (slice(self.batch), slice(None), slice(self.q_len))
        for at in np.argwhere(spoiled):
            b, h, t = at
            kind = self.rng.integers(3)
            stray = self.rng.choice(STRAYS)
            if kind == 0:
                out[b, h, t] = rows[0][b, h, 0, t] = stray
            elif kind == 1:
                out[b, h, t, self.rng.integers(self.v_dim)] = stray
        hit, is_nan = self.scatter(dout, self.q_len)
        self.spoiled, self.certain = spoiled | hit, self.certain | is_nan
        if self.has_dlse:
            line = np.swapaxes(rows[1], 2, 3)
            hit, is_nan = self.scatter(line, self.q_len)
            self.spoiled, self.certain = self.spoiled | hit, self.certain | is_nan
        self.certain &= self.pairs.any(-1)
        assert self.spoiled.shape == out[inside].shape[:3]

    def error(self, outputs):
        want = self.want
        lengths = (self.q_len, self.kv_len, self.kv_len)
        dq, dk, dv = (x[: self.batch, :, :n] for x, n in zip(outputs, lengths))
        if self.hides(dq):
            return np.inf
        reached = self.reached()
        of_sinks = 0
        if self.sinks is not None:
            heads = ~self.spoiled.any((0, 2))
            lanes = np.broadcast_to(want.dsinks[:, None, None], outputs[3].shape)
            error = np.broadcast_to(want.dsinks_error[:, None, None], lanes.shape)
            of_sinks = self.worst_of(outputs[3], lanes, error, heads)
        return max(
            self.worst_of(dq, want.dq, want.dq_error, ~self.spoiled),
            self.worst_of(dk, want.dk, want.dk_error, ~reached),
            self.worst_of(dv, want.dv, want.dv_error, ~reached),
            of_sinks,
        )


class ForwardStrays(OfForward, ForwardCase):
    pass


class RoundedStrays(OfForward, RoundedCase):
    pass


class BackwardStrays(OfBackward, BackwardCase):
    pass


class ForwardBitsStrays(OfForward, ForwardBits):
    pass


class BackwardBitsStrays(OfBackward, BackwardBits):
    pass


KINDS = (ForwardStrays, RoundedStrays, BackwardStrays)


class Numbers(CaseTest):
    def setUp(self):
        self.claims = np.zeros(3, int)

    def check_run(self, case, program, room, **machine):
        super().check_run(case, program, room, **machine)
        self.claims += case.claims()

    def tearDown(self):
        # With all cases, each claim is judged at least once.
        if stride() == 1:
            self.assertTrue((self.claims > 0).all(), self.claims)

    def test_random_requests(self):
        for kind in KINDS:
            for seed in some(range(24)):
                with self.subTest(kind=kind.__name__, seed=seed):
                    rng = np.random.default_rng(seed)
                    cap = 30.0 if seed % 4 == 1 else 0.0
                    self.check(random_case(
                        rng, kind, softcap=cap, sinks=seed % 3 == 0
                    ))

    def test_random_masks(self):
        for kind in (ForwardBitsStrays, BackwardBitsStrays):
            for seed in some(range(12)):
                with self.subTest(kind=kind.__name__, seed=seed):
                    self.check(random_bits_case(np.random.default_rng(seed), kind))

    def test_head_dims_and_float32(self):
        dims = ((64, 64), (256, 256), (192, 128), (128, 64), (64, 256))
        for at, (kind, dim) in enumerate((k, d) for k in KINDS[::2] for d in dims):
            for dtype in (None, np.float32):
                with self.subTest(kind=kind.__name__, dim=dim, dtype=dtype):
                    rng = np.random.default_rng(at)
                    more = {} if dtype is None else {"dtype": dtype}
                    self.check(kind(
                        rng, "causal & documents", q_len=290, kv_len=300,
                        ids=np.sort(random_ids(rng, 1, 300)), dims=dim,
                        softcap=30.0 * (at % 2), **more,
                    ))

    def test_heads_that_go_together(self):
        for at, (heads, kv_heads) in enumerate(((8, 1), (9, 3), (8, 8), (12, 6))):
            for kind in KINDS[::2]:
                with self.subTest(heads=heads, kind=kind.__name__):
                    rng = np.random.default_rng(at)
                    self.check(kind(
                        rng, "causal & documents", heads=heads, kv_heads=kv_heads,
                        q_len=290, kv_len=300, ids=random_ids(rng, 1, 300),
                    ))

    def test_chunks_and_pages(self):
        for seed in some(range(8)):
            for kind in (chunked(BackwardStrays), paged(ForwardStrays),
                         paged(chunked(BackwardStrays, 1))):
                with self.subTest(kind=kind.__name__, seed=seed):
                    rng = np.random.default_rng(seed)
                    self.check(random_case(rng, kind, sinks=seed % 3 == 0,
                                           softcap=30.0 * (seed % 2)))


class OneStray(unittest.TestCase):
    """One NaN, in turn in each array, head and part that is scanned at a time. Other
    documents in the same tiles are not spoiled, so a leak into them shows."""

    def check(self, kind, tokens=384, step=64, **settings):
        rng = np.random.default_rng(tokens)
        ids = np.arange(tokens)[None] // 96
        case = kind(
            rng, "causal & documents", heads=4, kv_heads=2, q_len=tokens,
            kv_len=tokens, ids=ids, tiles=1, **settings,
        )
        case.odds = 0
        text, room = case.emit()
        program = Program(text)
        clean = case.arrays(room)
        first = next(i for i, x in enumerate(clean) if x.ndim == 4)
        backward = "--backward" in case.direction
        # Only dout: out and its log-sum-exp are results of the forward kernel.
        arrays = {0: 4, 1: 2, 2: 2} | ({4: 4} if backward else {})
        places = [(array, head, token) for array, heads in arrays.items()
                  for head in range(heads) for token in range(5, tokens, step)]
        for array, head, token in some(places):
            with self.subTest(array=array, head=head, token=token):
                inputs = [x.copy() for x in clean]
                case.spoil_one(inputs[first:], array, head, token)
                outputs = program.run(inputs, max_trips=10_000)
                self.assertLessEqual(case.error(outputs), 1)
                self.assertTrue(case.claims()[:2].all())

    def test_forward(self):
        self.check(ForwardStrays)

    def test_forward_with_a_cap_and_sinks(self):
        self.check(RoundedStrays, step=128, softcap=30.0, sinks=True)

    def test_backward(self):
        self.check(BackwardStrays, dlse=True)

    def test_backward_with_a_cap_and_sinks(self):
        self.check(BackwardStrays, step=128, softcap=30.0, sinks=True)

    def test_a_promise_that_is_broken_shows(self):
        """Without the flag strays reach more results."""
        for kind in KINDS[::2]:
            with self.subTest(kind=kind.__name__):
                rng = np.random.default_rng(3)
                case = kind(
                    rng, "causal & documents", q_len=300, kv_len=300,
                    ids=np.sort(rng.integers(0, 8, (1, 300))).astype(np.int32),
                )
                case.odds = 0.01
                text, room = super(Strays, case).emit()
                outputs = Program(text).run(case.arrays(room), max_trips=10_000)
                self.assertGreater(case.error(outputs), 1)


if __name__ == "__main__":
    unittest.main()
