#!/usr/bin/env python3
"""Fills the gate's rows of TPU kernels without a TPU: predicted cycles on v6e of each
kernel and of XLA's programs, from the vendor's schedules, and the kernel's output judged
against fp64: ours by the evaluator (tests/mosaic), Splash's as JAX interprets it.

    bench/predicted_gate.py --dumps FOLDER --tokens 4096 --directions forward -o gate.json
    bench/predicted_gate.py --dumps FOLDER --tokens 4096 --directions backward \\
      --cases causal,window,documents-8 --keep gate.json -o bench/results/v6e/gate.json
    bench/predicted_gate.py --dumps FOLDER --tokens 4096 --kernels splash \
      --directions forward --sizes 8of8x64-bf16 --keep gate.json -o gate-2.json
    bench/predicted_gate.py --dumps FOLDER --anew bench/results/v6e/gate.json \
      --jobs 2 -o gate.json

One batch row; bf16, 8 heads, head dim 128, unless `--sizes` says otherwise.
XLA's cycles are counted as in bench/dispatch_costs.py, at tiles of 256 x 256,
over the tiles of the case's own plan. A row takes the fastest of worklist,
chunked and, if the scores fit, dense. Our kernel is that of a session, without
a promise of finite numbers, at the tile and tiles a pass of its table, and the
row has that tile. The row's density is that of tiles of 256 x 256, which a
request has before our kernel is chosen. A backward row is both passes at the
tile of the backward one. The kernel is judged with the same tile and tiles a
pass at two tiles of tokens and a part of one; the row's error is the largest
share of a bound. A window is narrowed to that length. Splash's kernel is the
one that examples/export_splash.py exports, with no more room than the case
needs, at the best of its blocks (SPLASH_BLOCKS); it is judged at two blocks of
tokens. Figures and errors go to `tessera gate --rows`, which gives the
verdicts. `--anew` predicts and judges our kernels of a table's rows again, and
leaves XLA's cycles and Splash's rows as they are. Python must have the packages
that tests/mosaic needs. A folder of dumps belongs to one build of the program;
another build needs a new folder.
"""

import argparse
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import subprocess
import sys

from predicted import Predictor, run
from xla_cycles import Sizes, xla_costs

HERE = pathlib.Path(__file__).resolve().parent
GENERATION, XLA_TILE = "v6e", (256, 256)
# The most scores of all heads that the dense program may hold, as in `tessera
# gate`.
DENSE_SCORES = 1 << 28
MACHINE = {"cpu": "any", "threads": 1, "isas": ["portable"], "plugins": [
    {"name": "libtpu", "platform": "tpu", "devices": 1, "generation": GENERATION}]}
# By name: the case of `tessera-bench xla`, mask, softcap, and length of
# documents.
CASES = {
    "full": ("full", "full", 0, 0),
    "causal": ("causal", "causal", 0, 0),
    "softcap": ("softcap", "causal", 30, 0),
    "window": ("window", "causal & window(1023, 0)", 0, 0),
    "documents-2": ("documents", "causal & documents", 0, 2),
    "documents-8": ("documents", "causal & documents", 0, 8),
    "documents-32": ("documents", "causal & documents", 0, 32),
}
DIRECTIONS = ("forward", "backward")
OWN = ("--numbers", "any")  # as in sessions
KERNELS = ("mosaic", "splash")
# (queries, keys, keys computed at once)
SPLASH_BLOCKS = ((256, 256, 256), (256, 512, 512), (512, 256, 256), (512, 512, 512),
                 (512, 1024, 512), (1024, 512, 512), (1024, 1024, 512),
                 (1024, 1024, 1024), (1024, 2048, 512), (2048, 1024, 512),
                 (2048, 2048, 512))


def mask_flags(case, tokens):
    _, mask, _, documents = CASES[case]
    out = ["--mask", mask, "--q-len", tokens]
    if documents:
        lengths = [str(tokens // documents)] * documents
        out += ["--docs", "lengths:" + ",".join(lengths)]
    return out


def request(case, tokens, sizes):
    """The flags of a case, for any command."""
    softcap = CASES[case][2]
    return [*mask_flags(case, tokens), *sizes.flags(),
            *["--softcap", softcap] * (softcap > 0)]


def tile_words(tile):
    return f"{tile[0]}x{tile[1]}"


def chosen(predictor, asked, tile):
    """The JSON of `tessera choose` for a request on a machine of this
    generation."""
    machine = predictor.folder / f"machine-{os.getpid()}.json"
    machine.write_text(json.dumps(MACHINE), encoding="utf-8")
    return json.loads(run([predictor.tessera, "choose", "--json", "--machine", machine,
                           *asked, "--tile", tile_words(tile)]))


def plain_cycles(predictor, case, tokens, backward, sizes):
    """The fastest of XLA's programs and its cycles; backward, those of both
    passes."""
    density = chosen(predictor, request(case, tokens, sizes), XLA_TILE)["density"]
    rows = -(-tokens // XLA_TILE[0])
    tiles = round(density * rows * rows)
    found = {}
    for method in ("worklist", "chunked", "dense"):
        if method == "dense" and sizes.heads * tokens * tokens > DENSE_SCORES:
            continue
        found[method] = 0
        for pass_ in (False, True)[: 1 + backward]:
            outside, a_row, a_tile = xla_costs(
                predictor, CASES[case][0], method, tokens, pass_, sizes)
            found[method] += outside + {
                "worklist": rows * a_row + tiles * a_tile,
                "chunked": rows * a_row, "dense": 0}[method]
    print(case, tokens, DIRECTIONS[backward], sizes.name(), found, file=sys.stderr,
          flush=True)
    return min(found.items(), key=lambda at: at[1])


def own_cycles(predictor, case, tokens, backward, sizes, tile=None):
    """Cycles of one of our kernels, its tile and tiles a pass."""
    name = f"ours-any-{case}-{tokens}-{DIRECTIONS[backward]}-{sizes.name()}"
    asked = [*request(case, tokens, sizes), *OWN, *["--backward"] * backward]
    if tile:
        name += f"-{tile_words(tile)}"
        asked += ["--tile", tile_words(tile)]
    kept = predictor.folder / f"{name}.json"  # a dump does not have the setting
    if not kept.exists():
        kept.write_text(json.dumps(predictor.schedule(name, asked)), encoding="utf-8")
    told = json.loads(kept.read_text(encoding="utf-8"))
    return told["cycles"], tuple(told["own"]["tile"]), told["own"]["tiles_per_pass"]


@functools.lru_cache(maxsize=None)
def judged(tessera, mask, softcap, documents, backward, sizes, tile, tiles):
    """The largest share of a bound that the evaluator finds, and the tokens it
    ran at."""
    os.environ["TESSERA"] = str(tessera)
    sys.path.insert(0, str(HERE.parent / "tests" / "mosaic"))
    sys.path.insert(1, str(HERE.parent / "python" / "tests"))
    import ml_dtypes
    import numpy as np
    from backward_test import BackwardCase
    from forward_test import ForwardCase
    from program import Program

    dtypes = {"bf16": ml_dtypes.bfloat16, "f32": np.float32}
    tokens = 2 * max(tile) + 52
    rng = np.random.default_rng(tokens)
    ids = None
    if documents:
        ids = np.sort(rng.integers(0, 4, (1, tokens)).astype(np.int32))
    kind, more = (BackwardCase, {"dlse": False}) if backward else (ForwardCase, {})
    case = kind(rng, mask.replace("1023", str(tokens // 3)), heads=sizes.heads,
                kv_heads=sizes.kv_heads, q_len=tokens, kv_len=tokens, tile=tile, tiles=tiles,
                ahead=1 if backward else 4, ids=ids, softcap=float(softcap),
                dims=(sizes.dim, sizes.dim), dtype=dtypes[sizes.dtype],
                **more)
    case.direction = [*case.direction, *OWN]
    text, room = case.emit()
    outputs = Program(text).run(case.arrays(room), max_trips=100_000)
    return float(case.error(outputs)), tokens


def own_row(predictor, case, tokens, direction, sizes):
    """Cycles, error, the kernel's tile, and how it was judged."""
    _, mask, softcap, documents = CASES[case]
    backward = direction == "backward"
    cycles, tile, tiles = own_cycles(predictor, case, tokens, backward, sizes)
    passes = [(backward, sizes, tile, tiles)]
    if backward:
        before, _, its_tiles = own_cycles(predictor, case, tokens, False, sizes,
                                          tile)
        cycles += before
        passes.append((False, sizes, tile, its_tiles))
    errors = [judged(predictor.tessera, mask, softcap, documents, *p) for p in passes]
    why = (f"judged by the evaluator at {errors[0][1]:,} tokens, tiles of "
           f"{tile_words(tile)}, {' and '.join(str(p[3]) for p in passes)} a pass")
    return cycles, max(e for e, _ in errors), tile, why


def export_splash(predictor, name, asked, tokens, sizes, softcap, blocks, platform):
    """Exports Splash's kernel with exactly the room that the request needs."""
    tile = ["--tile", tile_words(blocks)]
    told = json.loads(run([predictor.tessera, "export", "--layout", "splash", "--json",
                           *asked, *tile, "-o", predictor.folder / f"{name}.info"]))
    of = {array: found["shape"] for array, found in told["arrays"].items()}
    out = predictor.folder / f"{name}.artifact"
    run([sys.executable, HERE.parent / "examples" / "export_splash.py", out,
         "--q-len", tokens, "--heads", sizes.heads, "--kv-heads", sizes.kv_heads,
         "--head-dim", sizes.dim, "--block-q", blocks[0], "--block-kv", blocks[1],
         "--block-compute", blocks[2], "--width", of["block_mask"][-1],
         "--blocks", of["partial_mask_blocks"][0], "--softcap", softcap,
         "--dtype", {"bf16": "bfloat16", "f32": "float32"}[sizes.dtype],
         "--platform", platform])
    return out / "splash.mlirbc", out / "splash.json"


def splash_cycles(predictor, case, tokens, sizes, blocks):
    """Cycles of Splash's kernel; None if it does not fit the core's memory. A
    loop with unknown trips is counted once, which favours Splash."""
    at = f"{tile_words(blocks)}-{blocks[2]}"
    name = f"splash-{case}-{tokens}-{sizes.name()}-{at}"
    asked = mask_flags(case, tokens)
    program = None
    if not predictor.has(name):
        program, _ = export_splash(predictor, name, asked, tokens, sizes,
                                   CASES[case][2], blocks, "tpu")
    try:
        told = predictor.schedule(name, asked, program=program)
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error):
            return None
        raise
    kernels = [k for k in told["kernels"] if k["name"].startswith("splash_")]
    if not kernels or any(k["cycles"] is None for k in kernels):
        raise RuntimeError(f"{name}: its kernel's trips are unknown")
    return told["cycles_loops_once"]


def splash_row(predictor, case, tokens, _, sizes):
    found = {}
    for blocks in SPLASH_BLOCKS:
        if tokens % max(blocks) == 0:
            cycles = splash_cycles(predictor, case, tokens, sizes, blocks)
            if cycles is not None:
                found[blocks] = cycles
    print(case, tokens, "splash", sizes.name(), found, file=sys.stderr, flush=True)
    if not found:
        raise RuntimeError(f"{case}: no blocks of Splash divide {tokens} tokens and fit")
    blocks = min(found, key=found.get)

    _, mask, softcap, documents = CASES[case]
    fewer = 2 * max(blocks)
    asked = ["--mask", mask.replace("1023", str(fewer // 3)), "--q-len", fewer]
    if documents:
        cuts = [fewer // 5, fewer // 3, fewer // 7]
        asked += ["--docs", "lengths:" + ",".join(map(str, [*cuts, fewer - sum(cuts)]))]
    name = f"splash-judged-{case}-{sizes.name()}-{tile_words(blocks)}-{blocks[2]}"
    artifact, shapes = export_splash(predictor, name, asked, fewer, sizes, softcap,
                                     blocks, "cpu")
    done = subprocess.run(
        [*map(str, [predictor.tessera, "run", "--lane", "splash", "--artifact", artifact,
                    "--shapes", shapes, *asked, *sizes.flags(), "--softcap", softcap,
                    "--tile", tile_words(blocks), "--check", "--json"])],
        capture_output=True, text=True)
    if not done.stdout:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    error = json.loads(done.stdout)["check"]["max_bound_ratio"]  # even if out of bound
    why = (f"judged as JAX interprets it at {fewer:,} tokens, blocks of "
           f"{tile_words(blocks)}, {blocks[2]} keys at once")
    return found[blocks], error, blocks[:2], why


def row_of(predictor, kernel, case, tokens, direction, sizes, error_bar):
    _, mask, softcap, _ = CASES[case]
    backward = direction == "backward"
    cycles, error, tile, why = {"mosaic": own_row, "splash": splash_row}[kernel](
        predictor, case, tokens, direction, sizes)
    plain, plain_count = plain_cycles(predictor, case, tokens, backward, sizes)
    # The rules offer Splash only requests with its own tile.
    said = chosen(predictor, request(case, tokens, sizes),
                  tile if kernel == "splash" else XLA_TILE)
    right = error <= 1
    row = {
        "kernel": f"{kernel}/{direction}", "lane": kernel, "basis": "predicted",
        "machine": None, "generation": GENERATION, "class": said["class"],
        "mask": mask, "direction": "forward+backward" if backward else "forward",
        "dtype": sizes.dtype, "q_len": tokens, "kv_len": tokens, "heads": sizes.heads,
        "kv_heads": sizes.kv_heads, "head_dim": sizes.dim, "v_head_dim": sizes.dim,
        "softcap": softcap,
        "density": said["density"], "tile": tile, "kernel_ms": None,
        "plain_ms": None,
        "kernel_cycles": cycles if right else None,
        "plain_cycles": plain_count if right else None,
        "error_bar": error_bar if right else None, "plain": plain,
        "factor": plain_count / cycles if right else None,
        "judgement": "passed" if right else "wrong", "error": error,
        "shape_per_step": False, "verdict": "unmeasured", "why": why,
    }
    print(json.dumps(row), flush=True)
    return row


def case_of(predictor, row, sizes):
    """The case of a row. A row has mask and density, but not its documents."""
    for case, (_, mask, softcap, _) in CASES.items():
        if (mask, float(softcap)) != (row["mask"], row["softcap"]):
            continue
        asked = request(case, row["q_len"], sizes)
        if chosen(predictor, asked, XLA_TILE)["density"] == row["density"]:
            return case
    raise RuntimeError(f"no case has {row['mask']} at density {row['density']}")


def anew(tessera, folder, row):
    """The row, with our kernel predicted and judged again."""
    predictor = Predictor(tessera, folder)
    sizes = Sizes(row["heads"], row["kv_heads"], row["head_dim"], row["dtype"])
    direction = row["kernel"].split("/")[1]
    case = case_of(predictor, row, sizes)
    cycles, error, tile, why = own_row(predictor, case, row["q_len"], direction, sizes)
    if error > 1:
        raise RuntimeError(f"{case}, {row['q_len']} tokens: {error} of its bound")
    before = row["kernel_cycles"]
    row = {**row, "kernel_cycles": cycles, "factor": row["plain_cycles"] / cycles,
           "error": error, "tile": tile, "why": why}
    print(case, row["q_len"], direction, sizes.name(),
          f"{before:.0f} to {cycles:.0f} cycles", file=sys.stderr, flush=True)
    return row


def rows_of(tessera, folder, kernels, cases, tokens, directions, sizes, error_bar):
    """The rows of all given kernels, cases and directions. They share XLA's
    programs."""
    predictor = Predictor(tessera, folder)
    return [row_of(predictor, kernel, case, tokens, direction, sizes, error_bar)
            for kernel in kernels for case in cases for direction in directions]


def table(path):
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["rows"]


def made_again(pool, flags, folder):
    rows = table(flags.anew)
    ours = {n: pool.submit(anew, flags.tessera, folder, row)
            for n, row in enumerate(rows) if row["lane"] == "mosaic"}
    return [ours[n].result() if n in ours else row for n, row in enumerate(rows)]


def made(pool, flags, folder, error_bar):
    groups = {}
    for tokens in flags.tokens:
        for case in flags.cases:
            groups.setdefault((tokens, CASES[case][0]), []).append(case)
    parts = [pool.submit(rows_of, flags.tessera, folder, flags.kernels, cases, tokens,
                         flags.directions, flags.sizes, error_bar)
             for (tokens, _), cases in groups.items()]
    return [row for part in parts for row in part.result()]


def listed(text, allowed=None):
    out = text.split(",")
    if allowed and (wrong := [x for x in out if x not in allowed]):
        raise argparse.ArgumentTypeError(f"must be of {', '.join(allowed)}, found "
                                         f"{wrong[0]!r}")
    return out if allowed else [int(x) for x in out]


def sizes_in(text):
    """Parses sizes such as 8of2x64-f32: heads, K/V heads, head dim, dtype."""
    found = re.fullmatch(r"(\d+)of(\d+)x(\d+)-(bf16|f32)", text)
    if not found:
        raise argparse.ArgumentTypeError(
            f"must be HEADSofKV_HEADSxDIM-DTYPE, as {Sizes().name()}, found {text!r}")
    return Sizes(*map(int, found.groups()[:3]), found[4])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--tessera", default=HERE.parent / "build" / "tessera", metavar="FILE")
    add("--dumps", required=True, metavar="FOLDER",
        help="keep the dumps there: what was compiled is not compiled again")
    add("--kernels", default=["mosaic"], type=lambda t: listed(t, KERNELS),
        metavar="NAME,...", help=f"kernels, of {', '.join(KERNELS)} [mosaic]")
    add("--cases", default=list(CASES), type=lambda t: listed(t, CASES),
        metavar="CASE,...", help=f"cases, of {', '.join(CASES)} [all]")
    add("--tokens", default=[1024, 8192], type=listed, metavar="N,...",
        help="lengths [1024,8192]")
    add("--sizes", default=Sizes(), type=sizes_in, metavar="HEADSofKV_HEADSxDIM-DTYPE",
        help=f"sizes of the arrays [{Sizes().name()}]")
    add("--directions", default=DIRECTIONS, type=lambda t: listed(t, DIRECTIONS),
        metavar="NAME,...", help="forward, backward [both]")
    add("--jobs", default=1, type=int, metavar="N", help="processes [1]")
    add("--silicon", default=HERE / "results" / GENERATION / "silicon.json",
        metavar="FILE", help="table whose lead_error is the error bar")
    add("--keep", metavar="FILE", help="a table whose rows come before these")
    add("--anew", metavar="FILE", help="a table whose rows of our kernels are made again")
    add("-o", "--out", metavar="FILE")
    flags = parser.parse_args()
    given = [name for name in ("keep", "cases", "tokens", "sizes", "directions",
                               "kernels")
             if getattr(flags, name) != parser.get_default(name)]
    if flags.anew and given:
        parser.error(f"--anew goes by its table's rows, found --{given[0]} beside it")
    if "splash" in flags.kernels:
        if "backward" in flags.directions:
            parser.error("lane splash is forward alone: --directions must be forward, "
                         f"found {','.join(flags.directions)}")
        if flags.sizes.dtype != "bf16":
            # A TPU rounds the factors of products to bf16, the interpreter on a
            # CPU does not.
            parser.error("Splash can be judged in bf16 alone: --sizes must end in bf16, "
                         f"found {flags.sizes.name()}")
    folder = pathlib.Path(flags.dumps)
    folder.mkdir(parents=True, exist_ok=True)
    silicon = json.loads(pathlib.Path(flags.silicon).read_text(encoding="utf-8"))
    with concurrent.futures.ProcessPoolExecutor(flags.jobs) as pool:
        if flags.anew:
            rows = made_again(pool, flags, folder)
        else:
            rows = made(pool, flags, folder, silicon["all"]["lead_error"])
    if flags.keep:
        rows = table(flags.keep) + rows
    # Groups the rows by kernel, in the order of the flags.
    rows.sort(key=lambda row: row["kernel"], reverse=True)
    figures = folder / "rows.json"
    figures.write_text(json.dumps({"schema": 3, "rows": rows}), encoding="utf-8")
    out = ["-o", flags.out] if flags.out else []
    print(run([flags.tessera, "gate", "--rows", figures, *out]), end="")


if __name__ == "__main__":
    main()
