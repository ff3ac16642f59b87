#!/usr/bin/env python3
"""Compares Tessera's planner to its peers: they run one after the other, on the
same document file and the same tile, and must find the same class for every
tile.

    bench/plan_peers.py --jax-python VENV/bin/python --torch-python ...

Needs the standard library only. Each peer runs in the interpreter that its flag
names (bench/peers/README.md tells how to make them); without one it is reported
as not measured. Exits 1 if a class differs or a peer fails.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

import documents
import machine

HERE = pathlib.Path(__file__).resolve().parent
# Name, flag of the interpreter, script, and the least ratio that is the goal.
PEERS = (
    ("jax-splash", "jax", ["plan_splash.py"], 20000),
    ("tokamax-splash", "tokamax", ["plan_tokamax.py"], None),
    ("flex-compiled", "torch", ["plan_flex.py", "--compiled"], 2000),
    ("flex-eager", "torch", ["plan_flex.py"], None),
)
OUR_RUNS = 5  # before the peers, and as many after them


def parse_flags():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--tessera", default=HERE.parent / "build" / "tessera", metavar="FILE")
    add(
        "--tessera-bench",
        default=HERE.parent / "build" / "tessera-bench",
        metavar="FILE",
    )
    for venv in ("jax", "torch", "tokamax"):
        variable = f"TESSERA_{venv.upper()}_PYTHON"
        add(
            f"--{venv}-python",
            default=os.environ.get(variable),
            metavar="FILE",
            help=f"interpreter with {venv}; default ${variable}",
        )
    add("--mask", default="causal & documents")
    add("--tokens", type=int, default=32768)
    add("--tile", type=int, default=256)
    add("--mean", type=float, default=2048, help="mean of the lognormal lengths")
    add("--seed", type=int, default=0)
    add("--seconds", type=float, default=10, help="to spend on each peer")
    add("--skip", action="append", default=[], choices=[p[0] for p in PEERS])
    add("-o", "--out", type=pathlib.Path, metavar="FILE.json")
    flags = parser.parse_args()
    if flags.tokens < 1 or flags.tile < 8 or flags.tokens % flags.tile:
        parser.error(
            f"--tile must divide --tokens, found {flags.tile} for "
            f"{flags.tokens}"
        )
    return flags


def available_bytes():
    with open("/proc/meminfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no MemAvailable")


def run_json(command, limit_memory=False):
    """The JSON object that a command prints last."""

    def limit():
        # Eager create_block_mask must not use up the machine's memory.
        bytes_ = available_bytes() * 9 // 10
        resource.setrlimit(resource.RLIMIT_DATA, (bytes_, bytes_))

    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        preexec_fn=limit if limit_memory else None,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "?").splitlines()
        raise RuntimeError(f"exit {done.returncode}: {last[-1][:300]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def our_ns(flags, docs, digest):
    """The least time of our planner; its plan must have this digest."""
    (case,) = run_json(
        [flags.tessera_bench, "plan", "--mask", flags.mask, "--docs", docs]
        + ["--tokens", flags.tokens, "--tile", f"{flags.tile}x{flags.tile}"]
        + ["--json"]
    )["cases"]
    if case["digest"] != digest:
        sys.exit("tessera-bench times another plan than tessera makes")
    return case["plan_ns"]


def ours(flags, docs, lists):
    return run_json(
        [flags.tessera, "plan", "--mask", flags.mask, "--docs", docs]
        + ["--q-len", flags.tokens, "--tile", f"{flags.tile}x{flags.tile}"]
        + ["--json"]
        + (["--lists"] if lists else [])
    )


def dense(lists, size, transposed):
    """The class of every tile, from a list's rows."""
    (w,) = lists
    classes = bytearray(size * size)
    for row in range(size):
        for at in range(w["row_start"][row], w["row_start"][row + 1]):
            column = w["column"][at]
            cell = column * size + row if transposed else row * size + column
            classes[cell] = w["class"][at]
    return bytes(classes)


def difference(want, got, size):
    """Names the first tile whose class differs between `got` and `want`."""
    if got[:2] != (size, size):
        return f"{got[0]} x {got[1]} tiles for {size} x {size}"
    names = ("empty", "partial", "full")
    for i, (ours_, theirs) in enumerate(zip(want, got[2])):
        if ours_ != theirs:
            return (
                f"tile ({i // size}, {i % size}) is {names[ours_]} here, "
                f"{theirs} there"
            )
    return None


def measure_ours(flags, docs, digest):
    with machine.Others() as others:
        runs = [our_ns(flags, docs, digest) for _ in range(OUR_RUNS)]
    return runs, others.cores


def measure_peer(flags, name, venv, script, docs, folder, want):
    """Measures a peer: a row whose `state` is measured, failed or not
    measured."""
    row = {"peer": name}
    python = getattr(flags, f"{venv}_python")
    if name in flags.skip:
        return {**row, "state": "not measured", "why": "skipped"}
    if not python:
        return {**row, "state": "not measured", "why": f"no --{venv}-python"}
    classes = folder / f"{name}.npy"
    command = [python, HERE / "peers" / script[0], *script[1:]]
    command += ["--docs", docs, "--mask", flags.mask, "--tile", flags.tile]
    command += ["--seconds", flags.seconds, "--classes", classes]
    try:
        with machine.Others() as others:
            row.update(run_json(command, limit_memory=True))
        got = documents.read_classes(classes)
    except (OSError, RuntimeError, ValueError) as e:
        return {**row, "state": "failed", "why": str(e)}
    row["other_cores"] = others.cores
    row["difference"] = difference(want, got, flags.tokens // flags.tile)
    row["same_classes"] = row["difference"] is None and row["transposed_same"]
    row["state"] = "measured"
    return row


def print_table(result):
    us = result["tessera"]["ns"] / 1e3
    tiles = result["tessera"]["tiles"]
    print(
        f"{result['mask']}, {result['tokens']} tokens, tile {result['tile']}: "
        f"{tiles['active']} of {tiles['total']} tiles active, "
        f"{tiles['partial']} partial, {tiles['full']} full\n"
        f"{result['cpu']}, {result['cores']} cores\n"
    )
    print(f"{'planner':<16}{'ms':>12}{'ratio':>12}{'goal':>9}  classes  peak MB")
    print(f"{'tessera':<16}{us / 1e3:>12.4f}{1:>12}")
    for row in result["peers"]:
        if row["state"] != "measured":
            print(f"{row['peer']:<16}  {row['state']}: {row['why']}")
            continue
        print(
            f"{row['peer']:<16}{row['ms']:>12.1f}{row['ratio']:>12,.0f}"
            f"{row['goal'] or '':>9}  "
            f"{'same' if row['same_classes'] else 'DIFFER':<9}"
            f"{row['peak_rss_mb']:>7}"
        )
        if row["difference"]:
            print(f"  {row['difference']}")
        elif not row["transposed_same"]:
            print("  its transposed list is not its forward one")
    for row in result["peers"]:
        if row.get("ratio") and row["goal"] and row["ratio"] < row["goal"]:
            print(f"Goal missed: {row['peer']} {row['ratio']:.0f} times.")
    if not result["quiet"]:
        print("Others were at work on this machine: figures are provisional.")


def main():
    flags = parse_flags()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        docs = folder / "documents.npy"
        source = f"lognormal:mean={flags.mean:g},seed={flags.seed}"
        documents.write_npy(
            docs,
            documents.lognormal_ids(flags.mean, flags.seed, flags.tokens),
        )
        plan = ours(flags, docs, True)
        if plan["digest"] != ours(flags, source, False)["digest"]:
            sys.exit(f"the document file is not what {source} draws")
        size = flags.tokens // flags.tile
        want = dense(plan["forward"], size, False)
        if dense(plan["transposed"], size, True) != want:
            sys.exit("the transposed list is not the forward one")
        ns, before = measure_ours(flags, docs, plan["digest"])
        rows = [
            measure_peer(flags, name, venv, script, docs, folder, want)
            for name, venv, script, _ in PEERS
        ]
        ns_after, after = measure_ours(flags, docs, plan["digest"])
    best = min(ns + ns_after)
    goals = {p[0]: p[3] for p in PEERS}
    is_goal_case = (flags.mask, flags.tokens, flags.tile) == (
        "causal & documents",
        32768,
        256,
    )
    for row in rows:
        if row["state"] == "measured":
            row["ratio"] = round(row["ms"] * 1e6 / best, 1)
            row["goal"] = goals[row["peer"]] if is_goal_case else None
    busy = [before, after] + [r["other_cores"] for r in rows if "ratio" in r]
    result = {
        "bench": "plan_peers",
        **machine.facts(),
        "mask": flags.mask,
        "tokens": flags.tokens,
        "tile": flags.tile,
        "docs": source,
        "quiet": max(busy) < 0.1,
        "tessera": {
            "ns": best,
            "runs_ns": ns + ns_after,
            "other_cores": [before, after],
            "tiles": plan["tiles"],
            "digest": plan["digest"],
        },
        "peers": rows,
    }
    print_table(result)
    out = flags.out or machine.place(result, HERE / "results")
    print(f"\n{machine.keep(result, out)}")
    bad = any(
        row["state"] == "failed" or row.get("same_classes") is False
        for row in rows
    )
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
