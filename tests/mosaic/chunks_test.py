"""Backward kernels that take a list in chunks of queries, run on arrays against fp64.
The chunks are so small that a few tiles make several."""

import unittest

import numpy as np
from ml_dtypes import bfloat16

from backward_test import BackwardCase
from bits_case import random_bits_case
from bits_test import MASKS, BackwardBits
from case import random_case, random_ids, run_one_contract
from checks import CaseTest
from pages_test import bucket, paged
from share_of_cases import some


def chunked(kind, rows=None):
    """A case with chunks of `rows` tiles of queries; None: from one to all."""
    class Chunked(kind):
        def __init__(self, rng, mask, **settings):
            super().__init__(rng, mask, **settings)
            side = settings.get("tile", (128, 128))[0]
            tiles = -(-bucket(self.q_len) // side)
            self.chunk = side * (rows or 1 + self.ahead % tiles)
            self.static += ["--query-chunk", self.chunk]

        def emit(self):
            text, room = super().emit()
            whole = self.chunk >= room["q_len"]
            assert room["query_chunk"] == (0 if whole else self.chunk)
            return text, room

    return Chunked


class Chunks(CaseTest):
    def test_random_requests(self):
        for seed in some(range(32)):
            with self.subTest(seed=seed):
                rng = np.random.default_rng(seed)
                kind = chunked(BackwardCase, [1, None][seed % 2])
                if seed % 5 == 0:
                    kind = paged(kind)
                self.check(random_case(
                    rng, kind, sinks=seed % 3 == 0,
                    softcap=[0.0, 5.0][seed % 4 == 1],
                    dims=[(128, 128), (64, 64), (192, 128), (256, 64)][seed % 4],
                    dtype=[bfloat16, np.float32][seed % 7 == 2]))

    def test_random_masks(self):
        for seed in some(range(16)):
            with self.subTest(seed=seed):
                rng = np.random.default_rng(seed)
                kind = chunked(BackwardBits, [1, None][seed % 2])
                self.check(random_bits_case(rng, kind))

    def test_heads(self):
        """Heads together, and in turns whose sums wait; groups of one list and of
        several; and all queries at once, without chunks."""
        for seed, (heads, kv_heads, rows, due) in enumerate((
            (8, 1, 1, 4), (8, 2, 2, 4), (6, 6, 1, 3), (12, 2, 1, 3), (5, 1, 1, 1),
            (5, 1, 4, 1), (3, 3, 4, 3),
        )):
            with self.subTest(heads=heads, kv_heads=kv_heads, rows=rows):
                rng = np.random.default_rng(seed)
                case = chunked(BackwardCase, rows)(
                    rng, "causal & documents", batch=2, heads=heads,
                    kv_heads=kv_heads, q_len=400, kv_len=420,
                    ids=random_ids(rng, 2, 420), valid=[410, 300],
                    tiles=1 + seed % 3, ahead=1 + seed % 4, sinks=seed % 2 == 1,
                )
                self.assertEqual(case.emit()[1]["heads_per_pass"], due)
                self.check(case)
        for heads, kv_heads in ((8, 2), (2, 1)):
            rng = np.random.default_rng(heads)
            self.check(chunked(BackwardBits, 1).draw_case(
                rng, MASKS, heads=heads, kv_heads=kv_heads, q_len=290,
                kv_len=420, tile=(128, 128), tiles=2, ahead=2,
            ))

    def test_shipped_settings(self):
        """The settings of long rows with 8 KV heads, in two chunks and a part."""
        for tile, tiles in (((512, 512), 1), ((256, 256), 2)):
            with self.subTest(tile=tile):
                tokens = 4 * tile[0] + 100
                rng = np.random.default_rng(tokens)
                case = chunked(BackwardCase, 2)(
                    rng, "causal & documents", heads=8, kv_heads=8, q_len=tokens,
                    kv_len=tokens, tile=tile, tiles=tiles, ahead=1,
                    ids=random_ids(rng, 1, tokens), dims=(128, 128))
                room = case.emit()[1]
                self.assertEqual((room["heads_per_pass"], room["query_chunk"]),
                                 (4, 2 * tile[0]))
                self.check(case)

    def test_chunks_without_a_tile(self):
        """Padding first, in the middle and last, and a chunk after the batch's end."""
        rng = np.random.default_rng(3)
        ids = np.full((2, 500), -1, np.int32)
        ids[0, 300:310] = 4
        ids[1, 20:30], ids[1, 400:450] = 1, 2
        for mask in ("causal & documents", "window(-1, 30) & documents"):
            case = chunked(BackwardCase, 1)(
                rng, mask, batch=2, q_len=500, kv_len=500, ids=ids, sinks=True)
            text, room = case.emit()
            self.assertEqual(room["q_len"], 512)
            self.check(case)

    def test_one_program_serves_every_batch_of_a_contract(self):
        run_one_contract(chunked(BackwardCase, 1), heads=2, kv_heads=1,
                         tile=(128, 128), tiles=1, ahead=2, dlse=True)


# Copies, loads and stores of sums (those of dK and dV are read and written), and all
# pairs of semaphores.
PLACES = r"memref<\d+x128x128xf32|^arguments "
KINDS = ("swapped_index", "index_off_by_one", "dropped_wait", "dropped_start",
         "wrong_semaphore", "wrong_slot", "swapped_accesses", "dropped_store",
         "ignored_condition", "merged_semaphores")
# Mutants that mean the same as the kernel, each with the reason.
EQUIVALENT = (
    # The copies of out and of K, V and sums have landed before the first of dQ
    # starts, and these before the next of either.
    "merged_semaphores[1]",
    "merged_semaphores[2]",
    # The copies of ids have landed before the first of dK or of its sums starts,
    # and these before the next of ids.
    "merged_semaphores[3]",
    "merged_semaphores[5]",
)


class Mutants(CaseTest):
    def test_backward(self):
        rng = np.random.default_rng(5)
        # Columns of both slots have full tiles; in the second batch a chunk sends a
        # column and then the sums of two.
        ids = [np.repeat([0, 1, 2], lengths)[None, :].astype(np.int32)
               for lengths in ([400, 100, 268], [300, 60, 408])]
        for kv_heads in (4, 1):
            kernel, judge = self.one_kernel([
                chunked(BackwardCase, 2)(
                    rng, "causal & documents", batch=1, heads=4, kv_heads=kv_heads,
                    q_len=768, kv_len=768, tile=(128, 128), tiles=1, ahead=1,
                    ids=of, dlse=True,
                ) for of in ids
            ])
            self.check_caught(
                self.mutants_at(kernel, KINDS, PLACES), judge, EQUIVALENT)


if __name__ == "__main__":
    unittest.main()
