"""The kernel of sink telemetry that `tessera compile` emits, run on arrays against
fp64: over all legal keys, and over the first of them."""

import unittest

import numpy as np

import oracle
from bits_case import Bits, random_bits_case
from case import Case, random_case, random_ids
from checks import CaseTest
from program import Program
from share_of_cases import some


class TelemetryCase(Case):
    direction = ("--sink-telemetry",)

    def arrays(self, room):
        arrays = self.lists()
        q, k, v, legal = self.draw()
        words = dict(scale=self.scale, softcap=self.softcap)
        self.want = oracle.attention(q, k, v, legal, **words)
        self.entropies = oracle.entropies(q, k, legal, **words)
        return [
            *self.scalars(arrays),
            self.padded(q, room, "q_len"),
            self.padded(k, room, "kv_len"),
            arrays["bits"],
        ]

    def error(self, outputs):
        lse, entropy = (x[: self.batch, :, 0, : self.q_len] for x in outputs)
        return max(
            oracle.worst(lse, self.want.lse, self.want.lse_error),
            oracle.worst(entropy, self.entropies.value, self.entropies.error),
        )


class TelemetryBits(Bits, TelemetryCase):
    pass


class LargestScores(TelemetryBits):
    """All scores are equal and so large that their distance from a row's initial
    maximum overflows float32. Only legal scores may contribute to the entropy."""

    def draw(self):
        q, k, v, legal = super().draw()
        q[:], k[~np.isnan(k)] = 1e18, 1e18
        return q, k, v, legal

    def error(self, outputs):
        entropy = outputs[1][: self.batch, :, 0, : self.q_len]
        want = self.entropies.value
        # For n equal keys it is log n, with the roundings of sums of n and 8 more.
        allowed = (8 + np.exp(want / 2) + 8 * want) * oracle.EPS32
        return max(super().error(outputs), oracle.worst(entropy, want, allowed))


class SpoiledQuery(TelemetryBits):
    """One query is NaN, and only its results are NaN. The same lane in the next tile
    of queries keeps nothing of them."""

    SPOILED = 517

    def arrays(self, room):
        out = super().arrays(room)
        q = next(x for x in out if x.ndim == 4)
        q[:, :, self.SPOILED] = np.nan
        return out

    def error(self, outputs):
        outputs = [x.copy() for x in outputs]
        for x, want in zip(outputs, (self.want.lse, self.entropies.value)):
            if not np.isnan(x[: self.batch, :, 0, self.SPOILED]).all():
                return np.inf
            x[: self.batch, :, 0, self.SPOILED] = want[:, :, self.SPOILED]
        return super().error(outputs)


class FirstKeys(TelemetryBits):
    """The program of the mask, run over the list of `mask & sink(n)`."""

    @classmethod
    def draw_case(cls, rng, exprs, **settings):
        n = int(rng.integers(1, 9))
        case = super().draw_case(rng, exprs, **settings)
        plain = case.static
        case.plain = plain
        case.static = [
            f"({text}) & sink({n})" if before == "--mask" else text
            for before, text in zip([None, *plain], plain)
        ]
        case.exprs = [("&", e, ("sink", n)) for e in exprs]
        return case

    def emit(self):
        first, self.static = self.static, self.plain
        out = super().emit()
        self.static = first
        return out


class Telemetry(CaseTest):
    def test_random_requests(self):
        for seed in some(range(24)):
            with self.subTest(seed=seed):
                rng = np.random.default_rng(seed)
                cap = 40.0 if seed % 3 == 0 else 0.0
                self.check(random_case(rng, TelemetryCase, softcap=cap))

    def test_random_masks(self):
        for kind in (TelemetryBits, FirstKeys):
            for seed in some(range(12)):
                with self.subTest(kind=kind, seed=seed):
                    rng = np.random.default_rng(seed)
                    self.check(random_bits_case(rng, kind))

    def test_other_dims_and_float32(self):
        for dims, dtype in (
            ((64, 64), None), ((192, 128), None), ((256, 64), np.float32),
            ((128, 128), np.float32),
        ):
            with self.subTest(dims=dims, dtype=dtype):
                rng = np.random.default_rng(3)
                more = {} if dtype is None else {"dtype": dtype}
                self.check(random_bits_case(rng, FirstKeys, dims=dims, **more))
                self.check(random_case(rng, TelemetryCase, dims=dims, **more))

    def test_heads_that_go_together(self):
        for heads, kv_heads, due in ((8, 1, 8), (9, 3, 3), (12, 6, 6)):
            with self.subTest(heads=heads, kv_heads=kv_heads):
                rng = np.random.default_rng(heads)
                case = TelemetryCase(
                    rng, "causal & documents", heads=heads, kv_heads=kv_heads,
                    q_len=290, kv_len=300, ids=random_ids(rng, 1, 300), valid=[280],
                )
                self.assertEqual(case.emit()[1]["heads_per_pass"], due)
                self.check(case)

    def test_the_shipped_tiles(self):
        for at, (tile, tiles) in enumerate(
            (((512, 512), 1), ((512, 256), 4), ((256, 256), 2))
        ):
            with self.subTest(tile=tile):
                rng = np.random.default_rng(at)
                self.check(TelemetryCase(
                    rng, "causal & documents", heads=1, q_len=1300, kv_len=2300,
                    tile=tile, tiles=tiles, ids=np.sort(random_ids(rng, 1, 2300)),
                    valid=[2200],
                ))

    def test_lengths_around_the_tile(self):
        rng = np.random.default_rng(5)
        for n in (1, 127, 128, 129, 257):
            with self.subTest(n=n):
                ids = np.sort(rng.integers(0, 3, (1, n)).astype(np.int32))
                self.check(TelemetryCase(
                    rng, "causal & documents", q_len=n, kv_len=n, ids=ids
                ))

    def test_rows_without_a_key(self):
        ids = np.full((2, 400), -1, np.int32)
        ids[1, 130:140] = 3
        empty = np.flatnonzero(ids[1] < 0)
        case = TelemetryCase(
            np.random.default_rng(6), "causal & documents", batch=2, q_len=400,
            kv_len=400, ids=ids,
        )
        text, room = case.emit()
        lse, entropy = Program(text).run(case.arrays(room), max_trips=10_000)
        self.assertTrue((lse[1, :, 0][:, empty] == -np.inf).all())
        self.assertTrue((entropy[1, :, 0][:, empty] == 0).all())
        self.assertTrue((entropy[0, :, 0, :400] == 0).all())
        self.assertLessEqual(case.error([lse, entropy]), 1)

    def test_what_is_known_of_entropy(self):
        """Entropy is log n for n equal scores, 0 for one key, else -sum p log p."""
        q = np.zeros((1, 1, 4, 8), np.float32)
        k = np.zeros((1, 1, 6, 8), np.float32)
        legal = np.arange(6) < np.array([1, 2, 6, 0])[:, None]
        found = oracle.entropies(q, k, legal[None]).value[0, 0]
        np.testing.assert_allclose(found, [0, np.log(2), np.log(6), 0], 8 * 2.0**-53)
        rng = np.random.default_rng(1)
        q, k = rng.standard_normal((1, 1, 4, 8)), rng.standard_normal((1, 1, 6, 8))
        p = np.exp(q[0, 0] @ k[0, 0].T * 8**-0.5)
        p /= p.sum(1, keepdims=True)
        found = oracle.entropies(q, k, np.ones((1, 4, 6), bool)).value[0, 0]
        np.testing.assert_allclose(found, -(p * np.log(p)).sum(1), 64 * 2.0**-53)


# Heads with different masks, both with partial tiles.
MASKS = (
    ("&", ("causal",), ("|", ("documents",), ("chunk", 200))),
    ("&", ("causal",), ("|", ("documents",), ("chunk", 96))),
)


def mutation_cases():
    """Batches of one program: full passes first and late, empty rows, and rows of one
    pass and of several."""
    rng = np.random.default_rng(21)
    cases = []
    for mean in (60, 2000):
        ids = np.zeros((1, 1024), np.int32)
        at = 0
        while at < 1024 and mean == 60:
            n = 1 + int(rng.exponential(mean))
            ids[0, at : at + n] = rng.integers(0, 5)
            at += n
        for kind in (TelemetryBits, LargestScores, SpoiledQuery):
            # With one document, the second pass of all is full and begins its row.
            offset = 384 if mean == 2000 else rng.integers(0, 385)
            cases.append(
                kind.draw_case(
                    rng, MASKS, heads=4, kv_heads=2, q_len=640, kv_len=1024,
                    tile=(128, 256), tiles=2, ids=ids, ahead=3, scale=1.0,
                    valid=[700 if kind is LargestScores else 1000],
                    q_offset=[offset],
                )
            )
    return cases


# The walk over steps is the forward kernel's, whose tests catch its mutants. Mutated
# here are the results of a row.
LINES = r"vector<(1|8|512)x128x(f32|i1)>|1x1x128xf32|x1x128xf32"
KINDS = ("dropped_choice", "swapped_difference", "wrong_base", "wrong_scale",
         "dropped_accumulation", "dropped_store", "dropped_division",
         "dropped_rescale", "dropped_wait", "dropped_start", "index_off_by_one",
         "early_rounding")
# Mutants that are equivalent to the kernel here, and why.
EQUIVALENT = (
    # 0 times the previous values is 0: this branch only begins the first row of a
    # list, so no NaN of its own list comes before.
    "dropped_choice[73]",
    "dropped_choice[83]",
)


class Mutants(CaseTest):
    def test_all_are_caught(self):
        kernel, judge = self.one_kernel(mutation_cases())
        found = self.mutants_at(kernel, KINDS, LINES, times=2)
        self.check_caught(found, judge, EQUIVALENT)


if __name__ == "__main__":
    unittest.main()
