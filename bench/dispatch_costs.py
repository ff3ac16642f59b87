#!/usr/bin/env python3
"""Finds where visiting only the tiles of a plan begins to pay on a TPU:
predicted cycles on v6e of XLA's three programs and of our kernels, from the
vendor's schedules. It needs no TPU. The rows of src/run/rules.cc are based on
these figures.

    bench/dispatch_costs.py -o bench/results/v6e/dispatch.json

Bf16, 8 heads, head dim 128, causal, one batch row. XLA has tiles of 256 x 256.
Our kernel has the tile that `tessera schedule` takes for it, and no promise of
finite numbers, as in sessions. XLA's programs are loops: the cycles of a body
are the sum of the kernels that it calls, times its trips (rows and tiles for
the worklist, columns for chunked). Of two branches the cheaper one counts,
which is that of tiles without NaN and Inf. So neither side is charged for the
mask of a partial tile. Calls of the same code are dumped once; they are
recognized by equal text. The worklist and our kernel are compared to dense up
to 1,024 tokens and to chunked above; both are given where they are close to
each other. XLA's programs take hours to compile: --xla-from takes their
cycles from a file that this script wrote, for when only our kernels have changed.
"""

import argparse
import json
import pathlib

from predicted import Predictor
from xla_cycles import Sizes, xla_costs

HERE = pathlib.Path(__file__).resolve().parent
TILE, SIZES = 256, Sizes()
DENSE_TOKENS = 1024  # of the row "dense, few tokens" of src/run/rules.cc


def xla_row(predictor, tokens, backward):
    rows = tokens // TILE
    row = {}

    def causal(method):
        return xla_costs(predictor, "causal", method, tokens, backward, SIZES)

    fixed, a_row, a_tile = causal("worklist")
    row["worklist"] = {"fixed": fixed + rows * a_row, "tile": a_tile}
    if tokens <= 2048:
        row["dense"] = causal("dense")[0]
    if tokens >= 512:
        fixed, column, _ = causal("chunked")
        row["chunked"] = fixed + rows * column
    row["worklist_ties_at"] = (plain(tokens, row) - row["worklist"]["fixed"]) / (
        rows * rows * a_tile)
    return row


def plain(tokens, row):
    return row["dense" if tokens <= DENSE_TOKENS else "chunked"]


XLA_KEYS = ("worklist", "dense", "chunked", "worklist_ties_at")


def costs(predictor, tokens, backward, told_before):
    row = {"tokens": tokens, "direction": "backward" if backward else "forward"}
    same = [x for x in told_before if all(x[key] == row[key] for key in row)]
    if same:
        row |= {key: same[0][key] for key in XLA_KEYS if key in same[0]}
    else:
        row |= xla_row(predictor, tokens, backward)
    asked = ["--q-len", str(tokens), "--heads", str(SIZES.heads)]
    asked += ["--numbers", "any", *["--backward"] * backward]
    for mask in ("full", "causal"):
        name = f"ours-any-{mask}-{tokens}-{row['direction']}"
        told = predictor.schedule(name, ["--mask", mask, *asked])
        row[f"kernel_{mask}"] = told["cycles"]
    for mask in ("causal", "full"):
        row[f"plain_over_kernel_{mask}"] = plain(tokens, row) / row[f"kernel_{mask}"]
    return json.loads(json.dumps(row), parse_float=lambda x: float(f"{float(x):.5g}"))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--tessera", default=HERE.parent / "build" / "tessera", metavar="FILE")
    add("--dumps", metavar="FOLDER", help="keep the dumps there")
    add("--xla-from", metavar="FILE", help="XLA's cycles as that file has them")
    add("-o", "--out", metavar="FILE")
    flags = parser.parse_args()
    told_before = []
    if flags.xla_from:
        told_before = json.loads(pathlib.Path(flags.xla_from).read_text())["rows"]
    predictor = Predictor(flags.tessera, flags.dumps)
    rows = []
    for backward in (False, True):
        for tokens in (256, 512, 1024, 2048, 4096, 6144, 8192):
            rows.append(costs(predictor, tokens, backward, told_before))
            print(json.dumps(rows[-1]), flush=True)
    if flags.out:
        text = json.dumps({"target": "v6e:1x1", "rows": rows}, indent=1)
        pathlib.Path(flags.out).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
