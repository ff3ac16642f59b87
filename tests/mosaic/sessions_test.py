"""Each tile and number of tiles a pass that a session or a batch can take from the tables
of settings, with each head dim and dtype, for any numbers, as sessions run them, and with
the promise of finite ones, run on arrays against fp64."""

import itertools
import unittest

import numpy as np

from backward_test import BackwardCase
from bits_case import random_picks
from bits_test import BackwardBits, ForwardBits
from case import random_ids
from checks import CaseTest
from forward_test import ForwardCase, RoundedCase
from numbers_test import (
    BackwardBitsStrays, BackwardStrays, ForwardBitsStrays, ForwardStrays, RoundedStrays,
)
from program import Program
from share_of_cases import some
from shipped_test import BITS, CALLS, DIRECTIONS, PICKED, TABLES, rows_of

HEAD_DIMS = (64, 128, 192, 256)
# The dim of the tables for heads that go together. A call takes the next one that is
# not below its larger dim. The tables of single heads and of float32 have all dims.
TOGETHER = {"settings_64": 64, "settings": 128, "settings_256": 256}
# Each row has a case of each of these that takes its table.
USUAL_DIMS = ((64, 64), (128, 128), (192, 128), (256, 256))
TILES_WITHOUT_A_ROW = 4  # a pass, forward
# The most pairs of queries and keys in a pass, over all its heads.
MOST_PAIRS = 1 << 21
MASK = "causal & documents"
# By direction and whether numbers are finite: kinds for usual dims; and for others,
# which take turns: with bitmaps, or with a rounded sum.
KINDS = {
    ("Forward", True): (ForwardCase, ForwardBits, RoundedCase),
    ("Forward", False): (ForwardStrays, ForwardBitsStrays, RoundedStrays),
    ("Backward", True): (BackwardCase, BackwardBits, BackwardCase),
    ("Backward", False): (BackwardStrays, BackwardBitsStrays, BackwardStrays),
}


def tables():
    """The rows of each table. A session that trains runs forward at backward's tile:
    where forward has no row of it, with the default number of tiles a pass."""
    out = {path.stem: set(rows_of(path)) for path in TABLES.glob("settings*.inc")}
    out["settings_alone"] = {x for x in out["settings_alone"] if x[0] == "Forward"}
    for table in [*TOGETHER, "settings_f32"]:
        backward = {tile for direction, tile, _ in out[table] if direction == "Backward"}
        for forward in (table, "settings_alone" if table in TOGETHER else table):
            there = {tile for direction, tile, _ in out[forward] if direction == "Forward"}
            out[forward] |= {("Forward", tile, TILES_WITHOUT_A_ROW)
                             for tile in backward - there}
    return out


def dims_of(table):
    """Groups of pairs of head dims whose calls take a table: each usual pair alone;
    those of each head dim that has no usual pair; and all others."""
    pairs = [
        (dim, v_dim) for dim in HEAD_DIMS for v_dim in HEAD_DIMS
        if TOGETHER.get(table) in (None, min(
            most for most in TOGETHER.values() if most >= max(dim, v_dim)))
    ]
    usual = [x for x in pairs if x in USUAL_DIMS]
    there = {dim for dim, _ in usual}
    rest = [[x for x in pairs if x[0] == dim] for dim in HEAD_DIMS if dim not in there]
    rest.append([x for x in pairs if x[0] in there and x not in usual])
    return [[x] for x in usual], [group for group in rest if group]


def sessions():
    """(table, direction, tile, tiles, heads, dims, finite, kind) of each case; of each
    group of head dims a row takes one, in turn. Sums of float32 are exact."""
    out = []
    for table, rows in sorted(tables().items()):
        usual, rest = (list(map(itertools.cycle, x)) for x in dims_of(table))
        heads = 8 if table in TOGETHER else 1
        for number, (direction, tile, tiles) in enumerate(sorted(rows)):
            row = table, direction, tile, tiles
            own = [(next(dims), 0) for dims in usual]
            other = [(next(dims), 1 + (number + at) % 2) for at, dims in enumerate(rest)]
            for dims, of in own + other:
                for finite in (True, False):
                    is_exact = of == 2 and table == "settings_f32"
                    kind = KINDS[direction, finite][0 if is_exact else of]
                    out.append((*row, heads, dims, finite, kind))
            # Single heads have no backward table; shipped_test.py has the finite ones.
            if direction == "Backward" and heads > 1:
                out += [(*row, 1, dims, False, BackwardStrays) for dims, _ in own]
    return out


def case_of(rng, table, direction, tile, tiles, heads, dims, kind, bits):
    long = max(tile) > 512
    sizes = dict(
        heads=heads // 2 if heads > 1 and long else heads, q_len=1100 if long else 700,
        kv_len=1100, tile=tile, tiles=tiles, valid=np.array([1000]),
        ahead=4 if direction == "Forward" else 1, **CALLS[table] | {"dims": dims},
    )
    sizes["kv_heads"] = sizes["heads"]
    if not hasattr(kind, "draw_case"):
        return kind(rng, MASK, ids=np.sort(random_ids(rng, 1, 1100)), **sizes)
    picks = random_picks(rng, 1, 1, sizes["q_len"], 1100, PICKED)
    return kind.draw_case(rng, bits[:heads], picks=picks, **sizes)


def drawn(seed, finite, *row):
    """A case, its program's text, the JSON of its kernel, and its arrays. With any numbers,
    these have clean queries and keys, and spoiled queries."""
    for again in range(40):
        case = case_of(np.random.default_rng((seed, again)), *row)
        if not finite:
            case.odds = 2 / case.kv_len / case.heads
        text, room = case.emit()
        arrays = case.arrays(room)
        if finite or case.claims().all():
            return case, text, room, arrays
    raise AssertionError("no stray leaves clean queries and keys")


class Sessions(CaseTest):
    def test_every_row(self):
        for number, (*row, finite, kind) in some(list(enumerate(sessions()))):
            with self.subTest(kind=kind.__name__, row=row):
                bits = BITS[number % len(BITS)]
                case, text, room, arrays = drawn(number, finite, *row, kind, bits)
                _, _, (q, kv), tiles, heads, _ = row
                together = heads > 1 and 2 * q * kv * tiles <= MOST_PAIRS
                self.assertEqual(room["heads_per_pass"] > 1, together)
                outputs = Program(text).run(arrays, max_trips=100_000, erring=5)
                self.assertLessEqual(case.error(outputs), 1)

    def test_the_cases_meet_every_row_and_head_dim(self):
        met = {(*row[:4], row[5][0], row[6]) for row in sessions()}
        for table, rows in tables().items():
            dims = {"settings_64": [64], "settings": [64, 128]}.get(table, HEAD_DIMS)
            for row in rows:
                for dim in dims:
                    for finite in (True, False):
                        self.assertIn((table, *row, dim, finite), met)
        for finite in (True, False):
            pairs = {row[5] for row in sessions() if row[6] == finite}
            self.assertEqual(pairs, set(itertools.product(HEAD_DIMS, HEAD_DIMS)))
        for direction in DIRECTIONS:  # these take turns
            own = [row for row in sessions() if row[1] == direction]
            kinds = KINDS[direction, True] + KINDS[direction, False]
            self.assertEqual({row[7] for row in own}, set(kinds))


if __name__ == "__main__":
    unittest.main()
