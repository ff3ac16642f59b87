#!/usr/bin/env python3
"""Makes the table of the tile and tiles a pass that TPU kernels take if a
request leaves them open: src/lanes/mosaic/settings.inc, by predicted cycles on
v6e (`tessera schedule`). It needs no TPU, and every figure is the same on every
machine.

    bench/mosaic_tiles.py --dumps FOLDER --jobs 2
    bench/mosaic_tiles.py --head-dim 64 --dumps FOLDER --jobs 2
    bench/mosaic_tiles.py --heads 1 --dumps FOLDER --jobs 2
    bench/mosaic_tiles.py --dtype f32 --dumps FOLDER --jobs 2

Another head dim has its own table, such as settings_64.inc, with other
candidates. With --heads 1 it is settings_alone.inc, forward only, for calls
where fewer than four heads go together. With float32 it is settings_f32.inc.
`--direction forward` leaves all other rows as they are, and so do `--mask
causal` and `--tokens 131072`.

Bf16, head dim 128 by default, 8 heads, one batch row, as many queries as keys.
Each kernel is compiled once for each class of mask, and backward also for each
number of heads that go together at a length. It is then predicted for every
batch of the class: lengths of 2,048 to 131,072 tokens, with drawn documents or
with windows, from 64 tokens to all. A batch belongs to the row of its
direction, class, length and mean keys of a query, in powers of two. There each
candidate gets the mean of its cycles for an active 256 x 256 tile of the exact
plan, and the row takes the candidate with the least. A candidate that does not
fit the chip's memories is left out.

    bench/mosaic_tiles.py --check forward,causal,2048,256

predicts the two best candidates of one row again, and fails if the table has
other figures.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import sys
from typing import NamedTuple

from predicted import Predictor, run

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLES = ROOT / "src" / "lanes" / "mosaic"
LENGTHS = (2048, 8192, 32768, 131072)
SEEDS = (1, 2, 3, 4)
# The classes of masks. A kernel's text depends only on which bounds the mask
# has, and so does the class.
MASKS = {
    "causal": "causal & documents",
    "band": "causal & documents & window({}, 0)",
    "open": "documents",
}
# Candidates by queries of a tile: (keys of a tile, tiles a pass). No size is
# below the 256 of the matrix unit.
PASSES_ALONE = {
    256: ((256, 1), (256, 2), (256, 4), (256, 8), (512, 1),
          (512, 2), (512, 4)),
    512: ((256, 1), (256, 2), (256, 4), (256, 8), (512, 1),
          (512, 2), (512, 4), (1024, 1), (1024, 2)),
    1024: ((256, 1), (256, 2), (256, 4), (256, 8), (512, 1), (512, 2),
           (512, 4), (1024, 1), (1024, 2)),
}
# For heads that go together: the candidates that led forward, for some number
# of keys, among fourteen.
PASSES = {256: ((256, 1), (256, 2)), 512: ((512, 1),)}
# The same for other head dims, whose queries and keys take other amounts of
# memory.
PASSES_OF_DIMS = {256: ((256, 1), (256, 2)), 512: ((512, 1), (512, 2), (1024, 2)),
                  1024: ((1024, 1),)}
# For head dim 256, whose tiles are taken in strips of queries. Wider tiles read
# less from HBM.
PASSES_256 = {**PASSES_OF_DIMS, 1024: ((512, 1), (1024, 1))}
# For float32, where a pass has one head: the candidates that led for one
# document and for short documents.
PASSES_F32 = {256: ((256, 1), (256, 2)), 512: ((512, 1),), 1024: ((1024, 1),)}


DIRECTIONS = ("forward", "backward")


class Setting(NamedTuple):
    block_q: int
    block_kv: int
    tiles: int

    def words(self):
        return f"{self.block_q}x{self.block_kv} {self.tiles}"


class Row(NamedTuple):
    direction: str
    mask: str
    tokens: int
    keys: int


class Work(NamedTuple):
    """One batch."""

    mask: str
    tokens: int
    docs: str


def works(mask, tokens):
    """The batches of a class and a length, from sparse to dense."""
    out = [] if mask == "band" else [
        Work(MASKS[mask], tokens, f"lengths:{tokens}")]
    size = 64
    while size <= tokens:
        if mask == "band":
            for keys in (size, size + size // 2):
                out.append(Work(MASKS[mask].format(keys - 1), tokens,
                                f"lengths:{tokens}"))
        else:
            out += [Work(MASKS[mask], tokens, f"lognormal:mean={size},seed={s}")
                    for s in SEEDS]
        size *= 2
    return out


def table_of(head_dim, heads=8, dtype="bf16"):
    if dtype == "f32":
        return TABLES / "settings_f32.inc"
    if heads < 4:
        return TABLES / "settings_alone.inc"
    name = "settings.inc" if head_dim == 128 else f"settings_{head_dim}.inc"
    return TABLES / name


def settings(head_dim, heads, dtype):
    passes = PASSES_ALONE if heads < 4 else PASSES
    if heads >= 4 and head_dim != 128:
        passes = PASSES_256 if head_dim == 256 else PASSES_OF_DIMS
    if dtype == "f32":
        passes = PASSES_F32
    return [Setting(q, kv, tiles) for q in passes for kv, tiles in passes[q]]


class Measure:
    def __init__(self, flags):
        self.tessera = flags.tessera
        self.head_dim, self.heads, self.dtype = flags.head_dim, flags.heads, flags.dtype
        self.predictor = Predictor(flags.tessera, flags.dumps)
        self.kernels = {}

    def keys(self, work):
        """The mean number of keys that a query sees, rounded down to a power of
        two."""
        told = json.loads(run([self.tessera, "plan", "--json", "--mask", work.mask,
                               "--q-len", work.tokens, "--docs", work.docs]))
        pairs = told["pairs"]["needed"]
        return 1 << (max(1, pairs // work.tokens).bit_length() - 1)

    def ask(self, direction, work, s):
        out = ["--mask", work.mask, "--q-len", work.tokens, "--docs", work.docs]
        out += ["--heads", self.heads, "--head-dim", self.head_dim]
        out += ["--dtype", self.dtype]
        out += ["--tile", f"{s.block_q}x{s.block_kv}"]
        out += ["--tiles-per-pass", s.tiles]
        return out + ["--backward"] * (direction == "backward")

    def kernel(self, direction, work, s):
        """The JSON of `compile` for the kernel at this length; empty if it does
        not fit."""
        asked = (direction, work.mask, work.tokens, s)
        if asked not in self.kernels:
            flags = self.ask(direction, work, s)
            del flags[flags.index("--docs"):][:2]
            try:
                told = run([self.tessera, "compile", "--target", "v6e:1x1", "--json",
                            "--no-compile", "--emit", os.devnull, *flags])
            except RuntimeError as error:
                if "must fit" not in str(error):
                    raise
                told = '{"kernel": null}'
            self.kernels[asked] = json.loads(told)["kernel"]
        return self.kernels[asked]

    def name(self, direction, mask, kernel, s):
        """A dump's name, the same for all lengths whose programs differ only in
        sizes."""
        name = f"{direction}_{mask}_{s.words().replace(' ', '_')}"
        if direction == "backward":
            name += f"_{kernel['heads_per_pass']}together"
        if kernel["page"]:
            name += "_pages"
        if kernel["query_chunk"]:
            name += "_chunks"
        if self.dtype != "bf16":
            name += f"_{self.dtype}"
        name = name if self.head_dim == 128 else f"{name}_{self.head_dim}"
        return name if self.heads == 8 else f"{name}_{self.heads}heads"

    def compile(self, direction, mask, s, lengths):
        """Compiles each name once; all batches are predicted from its dump. A
        forward kernel is compiled at 32,768 tokens, or at its own length if it
        has pages; a backward kernel at the longest length of its name."""
        def named(tokens):
            work = Work(MASKS[mask].format(1023), tokens, f"lengths:{tokens}")
            kernel = self.kernel(direction, work, s)
            name = self.name(direction, mask, kernel, s) if kernel else None
            if name and direction == "forward" and not kernel["page"]:
                work = work._replace(tokens=32768, docs="lengths:32768")
            return name, work

        longest = dict(map(named, LENGTHS))
        for name in {named(tokens)[0] for tokens in lengths} - {None}:
            self.predictor.schedule(name, self.ask(direction, longest[name], s))

    def cycles(self, direction, mask, work, s):
        """Cycles a tile; None if the kernel does not fit."""
        kernel = self.kernel(direction, work, s)
        if not kernel:
            return None
        told = self.predictor.schedule(self.name(direction, mask, kernel, s),
                                       self.ask(direction, work, s))
        # The kernel alone: programs of other lengths have other operations
        # beside it.
        (kernel,) = [k for k in told["kernels"] if k["name"].startswith("tessera_")]
        return kernel["cycles"] / self.heads / told["exact_tiles_per_head"]

    def groups(self, mask, tokens):
        """The batches of a class and a length, grouped by mean keys of a
        query."""
        out = collections.defaultdict(list)
        for work in works(mask, tokens):
            out[self.keys(work)].append(work)
        return out

    def mean(self, row, group, s):
        """Mean cycles a tile over the row's batches; None if one does not
        fit."""
        found = []
        for work in group:
            cycles = self.cycles(row.direction, row.mask, work, s)
            if cycles is None:
                return None
            found.append(cycles)
        return sum(found) / len(found)


class Best(NamedTuple):
    """A row's two best settings, their cycles, and the number of batches."""

    first: Setting
    cycles: float
    second: Setting
    second_cycles: float
    batches: int


LINE = re.compile(r"\{k(\w+), k(\w+), (\d+), (\d+), \{(\d+), (\d+)\}, (\d+)\},"
                  r" // ([\d.]+); (\d+)x(\d+) (\d+): ([\d.]+); of (\d+)")


def line(row, best):
    s = best.first
    return (f"{{k{row.direction.capitalize()}, k{row.mask.capitalize()}, "
            f"{row.tokens}, {row.keys}, {{{s.block_q}, {s.block_kv}}}, {s.tiles}}}, "
            f"// {best.cycles:.1f}; {best.second.words()}: "
            f"{best.second_cycles:.1f}; of {best.batches}")


def read_table(path):
    out = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        if text.startswith("//"):
            continue
        found = LINE.fullmatch(text)
        if not found:
            raise RuntimeError(f"{path.name}: no row: {text}")
        direction, mask, *rest = found.groups()
        tokens, keys, q, kv, tiles = map(int, rest[:5])
        out[Row(direction.lower(), mask.lower(), tokens, keys)] = Best(
            Setting(q, kv, tiles), float(rest[5]),
            Setting(*map(int, rest[6:9])), float(rest[9]), int(rest[10]))
    return out


def best_of(measure, row, group, pool):
    tried = settings(measure.head_dim, measure.heads, measure.dtype)
    cycles = pool.map(lambda s: measure.mean(row, group, s), tried)
    fits = sorted((c, s) for c, s in zip(cycles, tried) if c is not None)
    if not fits:
        return None
    # If only one candidate fits, it is also the second best.
    (cycles, first), (second_cycles, second) = (fits * 2)[:2] if len(fits) == 1 else fits[:2]
    return Best(first, cycles, second, second_cycles, len(group))


def make(flags):
    measure = Measure(flags)
    out = [
        "// What suits the TPU kernels: {direction, class, tokens, keys, tile, tiles a",
        "// pass}, // cycles a tile; the next best setting: its own; of how many batches.",
        "// Made by bench/mosaic_tiles.py, which says how; libtpu 0.0.51, v6e.",
    ]
    if flags.head_dim != 128:
        out[0] = out[0].replace("kernels:", f"kernels of head dim {flags.head_dim}:")
    if flags.dtype != "bf16":
        out[0] = out[0].replace("kernels:", f"kernels of {flags.dtype}:")
    if flags.heads < 4:
        out[0] = "// Of heads that go alone: {direction, class, tokens, keys, tile, tiles a"
    every = (len(flags.direction) == 2 and len(flags.mask) == len(MASKS) and
             not flags.tokens)
    kept = {} if every else read_table(flags.table)
    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        lengths = [n for n in LENGTHS if not flags.tokens or n in flags.tokens]
        kernels = [(d, m, s, lengths) for m in flags.mask for d in flags.direction
                   for s in settings(flags.head_dim, flags.heads, flags.dtype)]
        for _ in pool.map(lambda k: measure.compile(*k), kernels):
            pass
        for direction in DIRECTIONS:
            for mask in MASKS:
                for tokens in LENGTHS:
                    if (direction not in flags.direction or mask not in flags.mask or
                            tokens not in lengths):
                        out += [line(row, best) for row, best in kept.items()
                                if row[:3] == (direction, mask, tokens)]
                        continue
                    groups = measure.groups(mask, tokens)
                    for keys in sorted(groups):
                        row = Row(direction, mask, tokens, keys)
                        best = best_of(measure, row, groups[keys], pool)
                        if best:
                            out.append(line(row, best))
                            print(out[-1], file=sys.stderr, flush=True)
    flags.table.write_text("\n".join(out) + "\n", encoding="utf-8")


def check(flags):
    """Predicts the row's two best settings again and compares them to the
    table, whose figures are rounded."""
    direction, mask, tokens, keys = flags.check.split(",")
    row = Row(direction, mask, int(tokens), int(keys))
    says = read_table(flags.table).get(row)
    if says is None:
        raise RuntimeError(f"the table has no row {flags.check}")
    measure = Measure(flags)
    group = measure.groups(row.mask, row.tokens)[row.keys]
    found = []
    for s in (says.first, says.second):
        measure.compile(row.direction, row.mask, s, [row.tokens])
        found.append(measure.mean(row, group, s))
    print(f"{flags.check}: {found}, the table says {says}")
    due = (says.cycles, says.second_cycles)
    same = all(f is not None and abs(f - d) <= 0.051
               for f, d in zip(found, due))
    return 0 if same and len(group) == says.batches else 1


def parse_flags():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--tessera", default=ROOT / "build" / "tessera", metavar="FILE")
    add("--jobs", type=int, default=1, metavar="N", help="at once [1]")
    add("--dumps", metavar="FOLDER",
        help="leave libtpu's dumps there, and read those that are there")
    add("--head-dim", type=int, default=128, metavar="N", help="[128]")
    add("--heads", type=int, default=8, metavar="N", help="[8]")
    add("--dtype", choices=("bf16", "f32"), default="bf16", help="[bf16]")
    add("--direction", nargs="+", choices=DIRECTIONS, help="[both; of one head forward]")
    add("--mask", nargs="+", choices=MASKS, default=[*MASKS], help="[all]")
    add("--tokens", type=int, nargs="+", metavar="N", help="[all lengths]")
    add("--table", type=pathlib.Path, metavar="FILE", help="[that of the head dim]")
    add("--check", metavar="ROW", help="DIRECTION,CLASS,TOKENS,KEYS")
    flags = parser.parse_args()
    flags.table = flags.table or table_of(flags.head_dim, flags.heads, flags.dtype)
    flags.direction = flags.direction or DIRECTIONS[: 1 if flags.heads < 4 else 2]
    return flags


def main():
    flags = parse_flags()
    if flags.check:
        return check(flags)
    return make(flags)


if __name__ == "__main__":
    sys.exit(main())
