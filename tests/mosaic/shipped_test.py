"""Each tile and number of tiles a pass in the tables of settings, and the defaults for
calls without a row, run on arrays against fp64. The masks are masks of bounds and ids,
of each class in the tables, and masks that take bitmaps, in turn; softcap and sinks are
tested too. The evaluator makes the rounding errors that a TPU may make (hardware.py).
Numbers are finite; sessions_test.py has any numbers, eight heads and all head dims.
"""

import itertools
import pathlib
import re
import unittest

import numpy as np

from backward_test import BackwardCase
from bits_case import ATOMS, names, random_picks
from bits_test import BackwardBits, ForwardBits
from case import random_ids
from checks import CaseTest
from forward_test import ForwardCase, RoundedCase
from share_of_cases import some

TABLES = pathlib.Path(__file__).resolve().parents[2] / "src" / "lanes" / "mosaic"
ROW = re.compile(
    r"^\{k(Forward|Backward), k(\w+), .*, \{(\d+), (\d+)\}, (\d+)\}, //",
    re.MULTILINE,
)
# The calls that a table is for.
CALLS = {
    "settings": {},
    "settings_alone": {},
    "settings_64": {"dims": (64, 64)},
    "settings_256": {"dims": (256, 256)},
    "settings_f32": {"dtype": np.float32},
}
DIRECTIONS = ("Forward", "Backward")
WITHOUT_A_ROW = (("Forward", (512, 256), 4), ("Backward", (512, 512), 1))
# For each class of the tables, masks of bounds and ids. Masks with only a lower bound
# have no class of their own and take the rows of causal masks.
BOUNDS = {
    "Band": ("causal & window(700, 0) & documents", "window(600, 300)",
             "window(500, 90) & segments"),
    "Causal": ("causal & documents", "causal & segments", "window(700, -1)", "causal",
               "window(-1, 300) & documents"),
    "Open": ("documents", "full", "segments"),
}
CHUNKED = ("&", ("causal",), ("chunk", 700))
PICKED = 48  # does not divide any tile
# One mask, or one for each head, that bounds and ids alone cannot express.
BITS = (
    (("|", CHUNKED, ("sink", 5)), ("|", CHUNKED, ("prefix",))),
    (("&", ("causal",), ("blocks", PICKED)),),
    (("tree",),),
    (("&", ("|", ("window", 400, 0), ("same", "a")), ("documents",)),),
    (("!", ("|", ("window", 800, 90), ("same", "b"))), ("full",)),
    (("&", ("segments",), ("|", ("window", 90, 0), ("sink", 4))),),
)
# More tiles a pass are not faster, but allowed.
PASSES = range(5, 9)


def rows_of(table):
    """The classes by (direction, tile, tiles); the defaults have all classes."""
    out = {row: set(BOUNDS) for row in WITHOUT_A_ROW}
    for direction, of, q, kv, tiles in ROW.findall(table.read_text()):
        row = direction, (int(q), int(kv)), int(tiles)
        out.setdefault(row, set()).add(of)
    return out


def shipped():
    """(direction, tile, tiles, settings of a Case, class of mask) of each row of each
    table; the classes of a row take turns."""
    out = []
    for path in sorted(TABLES.glob("settings*.inc")):
        call = CALLS[path.stem]  # an unknown table is an error
        turns = dict.fromkeys(DIRECTIONS, 0)
        for row, classes in sorted(rows_of(path).items()):
            turn = turns[row[0]]
            out.append((*row, call, sorted(classes)[turn % len(classes)]))
            turns[row[0]] += 1
    wide = [row for row in out if row[3].get("dims") == (256, 256)]
    return out + [(*row[:3], {"dims": (192, 128)}, row[4]) for row in wide]


def drawn():
    """The rows of shipped(), each with a mask of its class and masks that take bitmaps;
    the masks take turns in each direction."""
    bounds = {(direction, of): itertools.cycle(masks)
              for direction in DIRECTIONS for of, masks in BOUNDS.items()}
    bits = {direction: itertools.cycle(BITS) for direction in DIRECTIONS}
    return [(*row, next(bounds[row[0], row[4]]), next(bits[row[0]]))
            for row in shipped()]


class Shipped(CaseTest):
    def check_tile(self, number, direction, tile, tiles, call, bounds, bits):
        forward = direction == "Forward"
        kind = ForwardCase if forward else BackwardCase
        if forward and number % 2 and "dtype" not in call:
            kind = RoundedCase
        rng = np.random.default_rng(number)
        sizes = dict(
            q_len=1100, kv_len=2100, tile=tile, tiles=tiles, valid=np.array([2000]),
            ahead=4 if forward else 1, **call,
        )
        ids = random_ids(rng, 1, 2100)
        if "documents" in bounds:
            ids = np.sort(ids)
        elif "segments" not in bounds:
            ids = None
        self.check_erring(kind(
            rng, bounds, heads=1, sinks=number % 3 == 1,
            softcap=30.0 if number % 3 == 2 else 0.0, ids=ids, **sizes,
        ))
        kind = ForwardBits if forward else BackwardBits
        picks = random_picks(rng, 1, 1, 1100, 2100, PICKED)
        self.check_erring(kind.draw_case(
            rng, bits, picks=picks, heads=2, kv_heads=1, **sizes
        ))

    def test_every_tile(self):
        rows = drawn()
        self.assertEqual({path.stem for path in TABLES.glob("settings*.inc")},
                         set(CALLS))
        self.assertGreater(len(rows), 40)
        for number, (direction, tile, tiles, call, _, *masks) in some(
                list(enumerate(rows))):
            with self.subTest(row=rows[number]):
                self.check_tile(number, direction, tile, tiles, call, *masks)

    def test_the_rows_meet_every_class(self):
        """Every class of each table and direction is tested, and every mask in each
        direction, so every atom is too."""
        rows = drawn()
        for path in TABLES.glob("settings*.inc"):
            call = CALLS[path.stem]
            for direction in DIRECTIONS:
                due = {of for row, classes in rows_of(path).items() for of in classes
                       if row[0] == direction and row not in WITHOUT_A_ROW}
                met = {row[4] for row in rows if (row[0], row[3]) == (direction, call)}
                self.assertLessEqual(due, met, (path.stem, direction))
        for direction in DIRECTIONS:
            own = [row for row in rows if row[0] == direction]
            self.assertEqual({row[5] for row in own},
                             {mask for masks in BOUNDS.values() for mask in masks})
            self.assertEqual({row[6] for row in own}, set(BITS))
        named = {name for masks in BITS for mask in masks for name in names(mask)}
        self.assertEqual(named, {name for atom in ATOMS for name in names(atom)})

    def test_every_number_of_tiles_a_pass(self):
        """Small tiles and larger ones, and masks of each class, take turns."""
        masks = [(of, at) for at in range(2) for of in BOUNDS]
        for number, tiles in enumerate(PASSES):
            for turn, direction in enumerate(DIRECTIONS, number):
                of, at = masks[turn % len(masks)]
                side = (128, 256)[turn % 2]
                with self.subTest(tiles=tiles, direction=direction, of=of):
                    self.check_tile(
                        number, direction, (side, side), tiles, {}, BOUNDS[of][at],
                        BITS[number % len(BITS)],
                    )


if __name__ == "__main__":
    unittest.main()
