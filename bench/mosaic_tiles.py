#!/usr/bin/env python3
"""Makes the table that picks the TPU kernels' tile and tiles a pass where a request
leaves them open: src/lanes/mosaic/settings.inc, by predicted cycles on v6e
(`tessera schedule`). No TPU; every figure is the same on every machine.

    bench/mosaic_tiles.py --dumps FOLDER --jobs 2
    bench/mosaic_tiles.py --head-dim 64 --dumps FOLDER --jobs 2
    bench/mosaic_tiles.py --heads 1 --dumps FOLDER --jobs 2
    bench/mosaic_tiles.py --dtype f32 --dumps FOLDER --jobs 2

Of another head dim it is settings_64.inc, of other candidates. Of one head it is
settings_alone.inc, forward: for heads of which fewer than four go together. Of
float32 it is settings_f32.inc.
`--direction forward` leaves the other rows as they are, and so do `--mask causal`
and `--tokens 131072`.

Bf16, head dim 128 unless it is said, 8 heads, one batch row, as many queries as keys. Each kernel is
compiled once a class of mask, and backward for as many heads as go together at a
length, and then predicted for every batch of that class:
lengths of 2,048 to 131,072 tokens, whose documents are drawn, or whose windows
are set, from 64 tokens to all. A batch belongs to the row of its direction,
class, length and mean keys a query, in powers of two; there each candidate gets
the mean of its cycles an active 256 x 256 tile of the exact plan, and the least
one is the row's. What does not fit the chip's memories is no candidate.

    bench/mosaic_tiles.py --check forward,causal,2048,256

makes one row's best two again and fails where the table says other figures.
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
# A kernel's text depends on the mask's bounds alone; so does the class.
MASKS = {
    "causal": "causal & documents",
    "band": "causal & documents & window({}, 0)",
    "open": "documents",
}
# Keys of a tile, tiles a pass. None is below the matrix unit's 256.
PASSES_ALONE = {
    256: ((256, 1), (256, 2), (256, 4), (256, 8), (512, 1),
          (512, 2), (512, 4)),
    512: ((256, 1), (256, 2), (256, 4), (256, 8), (512, 1),
          (512, 2), (512, 4), (1024, 1), (1024, 2)),
    1024: ((256, 1), (256, 2), (256, 4), (256, 8), (512, 1), (512, 2),
           (512, 4), (1024, 1), (1024, 2)),
}
# Where heads go together: what led forward, for some number of keys, among fourteen.
PASSES = {256: ((256, 1), (256, 2)), 512: ((512, 1),)}
# The same of other head dims, whose queries and keys fill memory otherwise.
PASSES_OF_DIMS = {256: ((256, 1), (256, 2)), 512: ((512, 1), (512, 2), (1024, 2)),
                  1024: ((1024, 1),)}
# Of 256, whose tiles are taken in strips of queries: wider ones ask less of HBM.
PASSES_256 = {**PASSES_OF_DIMS, 1024: ((512, 1), (1024, 1))}
# Of float32, whose heads go through a pass alone: what led for one document and for
# short ones.
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
    """Batches of a class and a length, sparse to dense."""
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
        """Those that a query sees in the mean, down to a power of two."""
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
        """What `compile` says of the kernel at this length; nothing where none
        fits."""
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
        """One for all lengths whose programs differ in sizes alone."""
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
        """Once a name; what each batch says is read off its dump. Forward that is at
        32,768 tokens, of kernels with pages at their length; backward at the longest
        of its name."""
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
        """A tile; nothing where the kernel does not fit."""
        kernel = self.kernel(direction, work, s)
        if not kernel:
            return None
        told = self.predictor.schedule(self.name(direction, mask, kernel, s),
                                       self.ask(direction, work, s))
        # Not what a program of other lengths has beside it.
        (kernel,) = [k for k in told["kernels"] if k["name"].startswith("tessera_")]
        return kernel["cycles"] / self.heads / told["exact_tiles_per_head"]

    def groups(self, mask, tokens):
        """The batches of a class and a length by their keys."""
        out = collections.defaultdict(list)
        for work in works(mask, tokens):
            out[self.keys(work)].append(work)
        return out

    def mean(self, row, group, s):
        """Over the row's batches; nothing where one does not fit."""
        found = []
        for work in group:
            cycles = self.cycles(row.direction, row.mask, work, s)
            if cycles is None:
                return None
            found.append(cycles)
        return sum(found) / len(found)


class Best(NamedTuple):
    """A row's best settings, what they cost, and of how many batches."""

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
    # One that fits alone is its own next best.
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
    """The row's two best again; the figures of the table are rounded."""
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
