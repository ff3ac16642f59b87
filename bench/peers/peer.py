"""Shared by all planner peers: flags, masks, timing, memory, the result line.

A peer plans one mask over one file of document ids, times it, and prints one
line of JSON. With --classes it also writes the class of every tile, 0 empty,
1 partial, 2 full, as a uint8 .npy of [rows, columns].
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python/tests"))
from peak_memory import peak_kib  # noqa: E402


def parse_mask(text):
    """'causal & window(1023, 0) & documents' as {name: arguments}."""
    atoms = {}
    for part in text.split("&"):
        found = re.fullmatch(
            r"\s*(?:(full|causal|documents)|window\((-?\d+),\s*(-?\d+)\))\s*",
            part,
        )
        if not found:
            raise argparse.ArgumentTypeError(
                "peers know full, causal, window(left, right) and documents "
                f"joined by &, found {part.strip()!r}"
            )
        name = found[1] or "window"
        if name in atoms:
            raise argparse.ArgumentTypeError(f"{name} stands twice")
        atoms[name] = (int(found[2]), int(found[3])) if found[2] else ()
    return atoms


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--docs",
        required=True,
        metavar="FILE.npy",
        help="int32 document ids [tokens]; negative ids are padding",
    )
    parser.add_argument("--mask", required=True, help="'causal & documents'")
    parser.add_argument("--tile", type=int, default=256, metavar="N")
    parser.add_argument(
        "--classes", metavar="FILE.npy", help="write the class of every tile"
    )
    parser.add_argument(
        "--seconds", type=float, default=10, help="time to spend on runs"
    )
    return parser


def parse(parser):
    """The parsed flags, with `atoms`, the parsed mask, and `ids`, the ids
    read."""
    args = parser.parse_args()
    try:
        args.atoms = parse_mask(args.mask)
    except argparse.ArgumentTypeError as e:
        parser.error(str(e))
    args.ids = np.load(args.docs)
    if args.ids.dtype != np.int32 or args.ids.ndim != 1:
        parser.error(
            f"--docs must hold int32 [tokens], found {args.ids.dtype} "
            f"{list(args.ids.shape)}"
        )
    if len(args.ids) % args.tile:
        parser.error(
            f"--tile must divide the tokens, found {args.tile} for "
            f"{len(args.ids)}"
        )
    return args


def peak_mb():
    return round(peak_kib() / 1024)


def time_runs(run, seconds, least=3, most=50):
    """Results of runs until the time is spent; `run` returns its seconds."""
    results = []
    start = time.perf_counter()
    while len(results) < least or (
        len(results) < most and time.perf_counter() - start < seconds
    ):
        results.append(run())
    return results


def timed(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def write_classes(path, classes):
    """Writes a temporary file and renames it, so that no reader sees a part."""
    aside = pathlib.Path(f"{path}.{os.getpid()}.tmp")
    with open(aside, "wb") as out:
        np.save(out, np.ascontiguousarray(classes, np.uint8))
    aside.rename(path)


def report(args, peer, call, runs, packages, classes, transposed, **more):
    """Prints the result line. `runs` are tuples of seconds, one for each part
    of the call."""
    if args.classes:
        write_classes(args.classes, classes)
    best = min(runs, key=sum)
    versions = {p: importlib.metadata.version(p) for p in packages}
    line = {
        "peer": peer,
        "call": call,
        "mask": args.mask,
        "tokens": len(args.ids),
        "tile": args.tile,
        "ms": round(sum(best) * 1e3, 4),
        "parts_ms": [round(part * 1e3, 4) for part in best],
        "slowest_ms": round(sum(max(runs, key=sum)) * 1e3, 4),
        "runs": len(runs),
        "peak_rss_mb": peak_mb(),
        "partial": int((classes == 1).sum()),
        "full": int((classes == 2).sum()),
        "transposed_same": bool(np.array_equal(classes, transposed)),
        "versions": {"python": platform.python_version(), **versions},
        **more,
    }
    print(json.dumps(line), flush=True)
