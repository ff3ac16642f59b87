#!/usr/bin/env python3
"""Where visiting only what a plan lists begins to pay on a TPU: predicted cycles on
v6e of XLA's three programs and of our kernels, from the vendor's schedules. No TPU;
the figures are those behind the rows of src/run/rules.cc.

    bench/dispatch_costs.py -o bench/results/v6e/dispatch.json

Bf16, 8 heads, head dim 128, causal, one batch row; XLA at tiles of 256 x 256, our
kernel at those that `tessera schedule` takes for it. XLA's programs
are loops; a body's cycles are summed over the kernels that it calls, times its trips:
rows and tiles for the worklist, columns for chunked. Of branches the cheaper counts,
which is that of tiles without NaN and Inf: so a partial tile's mask is not charged,
to neither side. Calls of one code are dumped once; they are told by equal text.
"""

import argparse
import json
import pathlib
import re

from predicted import Predictor

HERE = pathlib.Path(__file__).resolve().parent
TILE, HEADS, DIM = 256, 8, 128
CALLED = re.compile(r"(?:calls|to_apply|body)=%([\w.\-]+)")
BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")


class Program:
    """A dumped program: cycles of the computations of its HLO."""

    def __init__(self, told, hlo):
        self.bodies, self.entry = {}, None
        for line in hlo.splitlines():
            if head := re.match(r"(ENTRY )?%(\S+) \(.*\{$", line):
                body = self.bodies.setdefault(head[2], [])
                self.entry = head[2] if head[1] else self.entry
            elif op := re.match(r"\s+(?:ROOT )?%(\S+) = (.*)$", line):
                body.append(op.groups())
        cycles = {k["name"]: k["cycles_loops_once"] for k in told["kernels"]}
        ops = [op for body in self.bodies.values() for op in body]
        by_text = {self.text(rest): cycles[name] for name, rest in ops
                   if name in cycles}
        self.cycles = {name: cycles.get(name, by_text.get(self.text(rest), 0))
                       for name, rest in ops}

    def text(self, rest):
        called = CALLED.search(rest)
        inside = self.bodies.get(called[1], []) if called else []
        plain = re.sub(r", (metadata|backend_config)=.*|%[\w.\-]+", "%", rest)
        return plain + "".join(self.text(r) for _, r in inside)

    def walk(self, name, depth, loops):
        """Cycles of one pass, less its loops, which go to `loops` by depth."""
        total = 0
        for op, rest in self.bodies[name]:
            if " while(" in rest:
                inside = self.walk(CALLED.search(rest)[1], depth + 1, loops)
                loops.setdefault(depth + 1, []).append(inside)
            elif " conditional(" in rest:
                arms = re.findall(r"%([\w.\-]+)", BRANCHES.search(rest)[1])
                total += min(self.walk(arm, depth, {}) for arm in arms)
            elif " call(" in rest:
                total += self.walk(CALLED.search(rest)[1], depth, loops)
            else:
                total += self.cycles[op]
        return total


def xla_costs(predictor, method, tokens, backward):
    """Cycles outside of the loops, of a row or column, of a tile."""
    name = f"{method}-{tokens}-{'backward' if backward else 'forward'}"
    emit = [f"{predictor.tessera}-bench", "xla", "--program", "--cases", "causal"]
    emit += ["--methods", method, "--tokens", tokens, "--heads", HEADS]
    emit += ["--head-dim", DIM, "--dtype", "bf16", *["--backward"] * backward]
    told = predictor.schedule(name, ["--target", "v6e:1x1"], emit)
    hlo = next((predictor.folder / name).glob("*TLP-hlo.txt")).read_text()
    read, loops = Program(told, hlo), {}
    outside = read.walk(read.entry, 0, loops)
    return [outside, *(max(loops.get(d, [0])) for d in (1, 2))]


def costs(predictor, tokens, backward):
    rows = tokens // TILE
    row = {"tokens": tokens, "direction": "backward" if backward else "forward"}
    fixed, a_row, a_tile = xla_costs(predictor, "worklist", tokens, backward)
    row["worklist"] = {"fixed": fixed + rows * a_row, "tile": a_tile}
    if tokens > 1024:
        fixed, column, _ = xla_costs(predictor, "chunked", tokens, backward)
        plain = fixed + rows * column
        row["chunked"] = plain
    else:
        plain = row["dense"] = xla_costs(predictor, "dense", tokens, backward)[0]
    row["worklist_ties_at"] = (plain - row["worklist"]["fixed"]) / (
        rows * rows * a_tile)
    asked = ["--q-len", str(tokens), "--heads", str(HEADS)]
    asked += ["--backward"] * backward
    for mask in ("full", "causal"):
        name = f"ours-{mask}-{tokens}-{row['direction']}"
        told = predictor.schedule(name, ["--mask", mask, *asked])
        row[f"kernel_{mask}"] = told["cycles"]
    row["plain_over_kernel_causal"] = plain / row["kernel_causal"]
    row["plain_over_kernel_full"] = plain / row["kernel_full"]
    return json.loads(json.dumps(row), parse_float=lambda x: float(f"{float(x):.5g}"))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--tessera", default=HERE.parent / "build" / "tessera", metavar="FILE")
    add("--dumps", metavar="FOLDER", help="keep the dumps there")
    add("-o", "--out", metavar="FILE")
    flags = parser.parse_args()
    predictor = Predictor(flags.tessera, flags.dumps)
    rows = []
    for backward in (False, True):
        for tokens in (256, 512, 1024, 2048, 4096, 8192):
            rows.append(costs(predictor, tokens, backward))
            print(json.dumps(rows[-1]), flush=True)
    if flags.out:
        text = json.dumps({"target": "v6e:1x1", "rows": rows}, indent=1)
        pathlib.Path(flags.out).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
