"""Each tile and number of tiles a pass that the tables of settings name, and what a
call gets where none has a row for it, run on arrays against fp64: packed documents,
with softcap and sinks by turns, and masks that take bitmaps. On a machine that errs.
"""

import pathlib
import re
import unittest

import numpy as np

from backward_test import BackwardCase
from bits_test import BackwardBits, ForwardBits
from case import random_ids
from checks import CaseTest
from forward_test import ForwardCase, RoundedCase
from numbers_test import BackwardStrays, ForwardStrays
from program import Program
from share_of_cases import some, stride

TABLES = pathlib.Path(__file__).resolve().parents[2] / "src" / "lanes" / "mosaic"
ROW = re.compile(
    r"^\{k(Forward|Backward), .*, \{(\d+), (\d+)\}, (\d+)\}, //", re.MULTILINE
)
# The calls that a table is for.
CALLS = {
    "settings": {},
    "settings_alone": {},
    "settings_64": {"dims": (64, 64)},
    "settings_256": {"dims": (256, 256)},
    "settings_f32": {"dtype": np.float32},
}
WITHOUT_A_ROW = (("Forward", (512, 256), 4), ("Backward", (512, 512), 1))
# More is no faster, and is allowed.
PASSES = range(5, 9)


def shipped():
    """(direction, tile, tiles, settings of a Case), of each table and direction."""
    out = []
    for path in sorted(TABLES.glob("settings*.inc")):
        call = CALLS[path.stem]  # an unknown table has no call here
        found = {
            (direction, (int(q), int(kv)), int(tiles))
            for direction, q, kv, tiles in ROW.findall(path.read_text())
        }
        out += [(*row, call) for row in sorted(found | set(WITHOUT_A_ROW))]
    wide = [row for row in out if row[3].get("dims") == (256, 256)]
    return out + [(*row[:3], {"dims": (192, 128)}) for row in wide]


def shipped_together():
    """The same where heads go through a pass together: (direction, tile, tiles,
    dims) of tiles of up to 512. Tables of heads alone name no others."""
    rows = {
        (direction, tile, tiles, call.get("dims", (128, 128)))
        for direction, tile, tiles, call in shipped()
        if "dtype" not in call and max(tile) <= 512
    }
    return sorted(rows)


class Shipped(CaseTest):
    def check_tile(self, number, direction, tile, tiles, call):
        forward = direction == "Forward"
        kind = ForwardCase if forward else BackwardCase
        if forward and number % 2 and "dtype" not in call:
            kind = RoundedCase
        rng = np.random.default_rng(number)
        sizes = dict(
            q_len=1300, kv_len=2300, tile=tile, tiles=tiles, valid=np.array([2200]),
            ahead=4 if forward else 1, **call,
        )
        self.check_erring(kind(
            rng, "causal & documents", heads=1, sinks=number % 3 == 1,
            softcap=30.0 if number % 3 == 2 else 0.0,
            ids=np.sort(random_ids(rng, 1, 2300)), **sizes,
        ))
        chunked = ("&", ("causal",), ("chunk", 700))
        masks = [("|", chunked, ("sink", 5)), ("|", chunked, ("prefix",))]
        kind = ForwardBits if forward else BackwardBits
        self.check_erring(kind.draw_case(rng, masks, heads=2, kv_heads=1, **sizes))

    def test_every_tile(self):
        rows = shipped()
        self.assertEqual({path.stem for path in TABLES.glob("settings*.inc")},
                         set(CALLS))
        self.assertGreater(len(rows), 40)
        for number, row in some(list(enumerate(rows))):
            with self.subTest(row=row):
                self.check_tile(number, *row)

    def test_eight_heads_and_any_numbers(self):
        """As sessions run them; and with the promise that numbers are finite."""
        kinds = {
            "Forward": (ForwardCase, ForwardStrays),
            "Backward": (BackwardCase, BackwardStrays),
        }
        rows = shipped_together()
        self.assertGreater(len(rows), 25)
        claims = np.zeros(3, int)
        for number, (direction, tile, tiles, dims) in some(list(enumerate(rows))):
            for kind in kinds[direction]:
                with self.subTest(kind=kind.__name__, row=rows[number]):
                    rng = np.random.default_rng(number)
                    case = kind(
                        rng, "causal & documents", heads=8, kv_heads=8, q_len=700,
                        kv_len=1100, tile=tile, tiles=tiles, valid=[1000], dims=dims,
                        ahead=4 if direction == "Forward" else 1,
                        ids=np.sort(random_ids(rng, 1, 1100)),
                    )
                    text, room = case.emit()
                    self.assertGreater(room["heads_per_pass"], 1)
                    self.check_run(case, Program(text), room, erring=5)
                    if kind in (ForwardStrays, BackwardStrays):
                        claims += case.claims()
        if stride() == 1:  # whatever was drawn, something was judged
            self.assertTrue((claims > 0).all(), claims)

    def test_every_number_of_tiles_a_pass(self):
        for tiles in PASSES:
            for number, direction in enumerate(("Forward", "Backward")):
                with self.subTest(tiles=tiles, direction=direction):
                    self.check_tile(
                        number, direction, (128, 128), tiles, {}
                    )


if __name__ == "__main__":
    unittest.main()
