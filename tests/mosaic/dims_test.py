"""Kernels of head dims other than 128, and of values with another dim than keys, run
on arrays against fp64."""

import unittest

import numpy as np

from backward_test import BackwardCase
from bits_case import random_bits_case
from bits_test import BackwardBits, ForwardBits
from case import random_case, random_ids, run_one_contract
from checks import CaseTest
from forward_mutants_test import MiddleCase, SteppedCase
from forward_test import ForwardCase, RoundedCase
from numbers_test import ForwardBitsStrays, ForwardStrays
from program import Program

# (dim of queries and keys, dim of values)
DIMS = ((64, 64), (256, 256), (192, 128), (192, 192), (64, 256))
KINDS = (ForwardCase, RoundedCase, BackwardCase)


class Dims(CaseTest):
    def test_random_requests(self):
        for at, dims in enumerate(DIMS):
            for seed, kind in enumerate(KINDS, len(KINDS) * at):
                with self.subTest(dims=dims, kind=kind, seed=seed):
                    rng = np.random.default_rng(seed)
                    cap = 30.0 if seed % 2 else 0.0
                    self.check(random_case(rng, kind, dims=dims, softcap=cap))

    def test_random_masks(self):
        for at, dims in enumerate(DIMS):
            for kind in (ForwardBits, BackwardBits):
                with self.subTest(dims=dims, kind=kind):
                    rng = np.random.default_rng(at)
                    self.check(random_bits_case(rng, kind, dims=dims))

    def test_lengths_around_the_tile(self):
        rng = np.random.default_rng(5)
        for dims in DIMS[:3]:
            for kind in (ForwardCase, BackwardCase):
                for n in (1, 129):
                    with self.subTest(dims=dims, kind=kind, n=n):
                        ids = rng.integers(0, 3, (1, n)).astype(np.int32)
                        self.check(kind(
                            rng, "causal & documents", q_len=n, kv_len=n,
                            ids=np.sort(ids), dims=dims,
                        ))

    def test_rows_without_a_key(self):
        rng = np.random.default_rng(6)
        ids = np.full((2, 400), -1, np.int32)
        ids[1, 130:140] = 3
        empty = np.flatnonzero(ids[1] < 0)
        for dims in DIMS[:3]:
            for kind in (ForwardCase, BackwardCase):
                with self.subTest(dims=dims, kind=kind):
                    case = kind(
                        rng, "causal & documents", batch=2, q_len=400,
                        kv_len=400, ids=ids, dims=dims,
                    )
                    text, room = case.emit()
                    found = Program(text).run(
                        case.arrays(room), max_trips=10_000
                    )
                    self.assertLessEqual(case.error(found), 1)
                    for x in found[:1] if kind is ForwardCase else found:
                        self.assertTrue((x[0, :, :400] == 0).all())
                        self.assertTrue((x[1][:, empty] == 0).all())

    def test_strips_of_a_tile(self):
        """With head dim 256 a tile of 512 queries is two strips, for heads that go
        together and share keys."""
        kinds = (ForwardCase, RoundedCase, ForwardStrays)
        for at, kind in enumerate(kinds):
            with self.subTest(kind=kind.__name__):
                rng = np.random.default_rng(at)
                case = kind(
                    rng, "causal & documents", heads=4, kv_heads=2, q_len=900,
                    kv_len=1100, tile=(512, 256), tiles=1 + at % 2, dims=(256, 256),
                    ids=np.sort(random_ids(rng, 1, 1100)), valid=[1000],
                    sinks=at == 0, softcap=30.0 if at == 1 else 0.0,
                )
                text, room = case.emit()
                self.assertGreater(room["heads_per_pass"], 1)
                self.check_run(case, Program(text), room)

    def test_strips_of_long_tiles(self):
        """With any dims a tile of 1,024 queries is four strips."""
        for at, dims in enumerate(((64, 64), (192, 128), (128, 256))):
            with self.subTest(dims=dims):
                rng = np.random.default_rng(at)
                self.check(ForwardCase(
                    rng, "causal & documents", q_len=1100, kv_len=1300,
                    tile=(1024, 256), tiles=1 + at % 2, dims=dims,
                    ids=np.sort(random_ids(rng, 1, 1300)), valid=[1200],
                ))

    def test_strips_of_bitmaps(self):
        for at, kind in enumerate((ForwardBits, ForwardBitsStrays)):
            with self.subTest(kind=kind.__name__):
                self.check(kind.draw_case(
                    np.random.default_rng(at), [("&", ("causal",), ("chunk", 300))],
                    heads=2, kv_heads=2, q_len=600, kv_len=600, tile=(512, 256),
                    tiles=2, dims=(256, 256),
                ))

    def test_one_program_serves_every_batch_of_its_contract(self):
        run_one_contract(BackwardCase, dims=(192, 128), dlse=True)


# Mutations of what depends on a dim: cleaning, sums and their places, copies.
KINDS_OF_DIMS = ("dropped_choice", "dropped_store", "dropped_wait",
                 "dropped_start", "index_off_by_one")
# Strips of a tile have their own maxima, sums and places.
KINDS_OF_STRIPS = (
    "index_off_by_one", "dropped_wait", "dropped_start", "swapped_accesses",
    "swapped_steps", "wrong_slot", "wrong_semaphore", "early_rounding", "cut_rounding",
)
# Mutants that are equivalent to the kernel here, and why.
STRIPS_EQUIVALENT = tuple(
    f"swapped_steps[{strip + step}]"
    for strip in (0, 11, 22, 33, 44, 55, 66, 77, 94, 105, 116, 127)
    for step in (
        # The initial maximum of a row is far below 0, so its factor is 0 either way; or
        # it is 1 if the first pass has no legal key, and its sums have no effect.
        1,
        7,  # the initial value of a row is multiplied by a factor 0, or is 0
    )
)


def drawn(kind, seed, tokens, **settings):
    """First one document, which has full passes; then many, with padding."""
    rng = np.random.default_rng(seed)
    ids, valid = np.ones((1, tokens), np.int32), [tokens]
    if seed > 0:
        ids, valid = random_ids(rng, 1, tokens), [tokens - 124]
    return kind(rng, "causal & documents", q_len=tokens, kv_len=tokens, ids=ids,
                valid=valid, **settings)


def strips_of(kind, **settings):
    """Of one document; and of short ones, so that the last row of tiles is one pass, of
    which only the second strip has a legal key, or only the first one."""
    second, first = (np.arange(1536)[None] // 128 for _ in range(2))
    second[:, 1024:1280] = first[:, :64] = -1
    for ids, valid in ((np.ones((1, 1536)), 1536), (second, 1536), (first, 1236)):
        yield kind(
            np.random.default_rng(0), "causal & documents", q_len=1536, kv_len=1536,
            ids=ids, valid=[valid], **settings,
        )


class Mutants(CaseTest):
    def check_mutants(self, cases, dims, kinds, equivalent=()):
        kernel, judge = self.one_kernel(cases)
        # Only sites of vectors and arrays with a dim; no tile has such a side.
        has_dim = r"[<x]({}|{})x(\d+x)*(bf16|f32)".format(*dims)
        self.check_caught(self.mutants_at(kernel, kinds, has_dim), judge, equivalent)

    def test_forward(self):
        dims = (64, 256)
        cases = [drawn(ForwardCase, seed, 1024, dims=dims, tiles=3, softcap=40.0)
                 for seed in range(3)]
        self.check_mutants(cases, dims, KINDS_OF_DIMS)

    def test_strips(self):
        """Of three rows of tiles, so that copies of queries start in the loop too."""
        settings = dict(dims=(256, 256), tiles=1, ahead=2, tile=(512, 256), heads=2,
                        kv_heads=1)
        cases = [drawn(ForwardCase, seed, 1536, **settings) for seed in range(3)]
        # The first strip of the last row has legal keys in both passes.
        cases.append(ForwardCase(
            np.random.default_rng(3), "causal & documents", q_len=1536, kv_len=1536,
            ids=np.arange(1536)[None] // 192, valid=[1236], **settings,
        ))
        for kind in (SteppedCase, MiddleCase):
            cases += strips_of(kind, **settings)
        self.check_mutants(cases, (256, 256), KINDS_OF_STRIPS, STRIPS_EQUIVALENT)

    def test_backward(self):
        dims = (192, 64)
        cases = [
            drawn(BackwardCase, seed, 1024, dims=dims, tiles=2, softcap=40.0, dlse=True)
            for seed in range(3)
        ]
        self.check_mutants(cases, dims, (*KINDS_OF_DIMS, "wrong_scale"))


if __name__ == "__main__":
    unittest.main()
