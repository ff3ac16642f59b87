#!/usr/bin/env python3
"""Compares our TPU kernels to those of Splash and tokamax: predicted cycles of
attention on v6e, forward or with --backward the gradients. All figures come
from one command (`tessera schedule`) and the vendor's own schedules. It needs
no TPU, and every figure is the same on every machine.

    bench/kernel_peers.py --jax-python VENV/bin/python --tokamax-python ... \\
      -o bench/results/v6e/kernel.json

Our kernel has the tile and tiles a pass that the program itself takes for each
batch (bench/mosaic_tiles.py). Peers have each of a fixed list of blocks, or
with --sweep the best of many:

    bench/kernel_peers.py --sweep --minutes 60 --dumps FOLDER \\
      --peers-from bench/results/v6e/kernel.json -o bench/results/v6e/kernel.json

A sweep predicts the first draw of each case with every shape of blocks. At the
best shape of each case it then tries the other layouts and no scheduler
(backward: JAX Splash with two kernels, tokamax without summing dQ in 3 steps).
Lists are arguments, except backward for one document, where the list is
compiled in. The best --finalists of a case get rows with all draws. Results are
kept under `sweep`, and those that --peers-from has there are not computed
again, so a sweep that ran out of --minutes can be continued.

Bf16, 8 heads, head dim 128 by default, 32,768 tokens, causal. In `one document`
all tiles but those of the diagonal are full. `documents` are packed: each
kernel is compiled once, and its list of active tiles and its document ids are
arguments. Each row gives the lower median of its draws. In a peer's list only
tiles of the diagonal are partial, because the kernel compares segment ids in
every tile. For one document a peer has its list and mask compiled in. What XLA
computes beside a kernel counts with it. Forward, all kernels take q without its
scale and return the log-sum-exp; backward, all are given it. A tile is an
active 256 x 256 tile of the exact plan, whatever blocks a kernel has.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import sys
import time
from typing import NamedTuple

from predicted import Predictor, run

HERE = pathlib.Path(__file__).resolve().parent
TOKENS, HEADS = 32768, 8
ONE = "one document"
AT_RUN_TIME = ", list at run time"
CASES = {
    ONE: f"lengths:{TOKENS}",
    "documents, mean 4096": "lognormal:mean=4096,seed=",
    "documents, mean 1024": "lognormal:mean=1024,seed=",
}


class Peer(NamedTuple):
    """A peer's kernel and its blocks: queries, keys, and keys computed at
    once."""

    name: str
    block_q: int
    block_kv: int
    compute: int
    layouts: str = "111"  # of q, k, v; 2: tokens last
    scheduler: bool = False
    split: bool = False  # backward: one kernel for dQ, another for dK and dV
    three: bool = False  # backward: dq_reduction_steps of tokamax; always with lists

    def words(self):
        out = f"{self.name} {self.block_q}x{self.block_kv}/{self.compute}"
        out += f", layouts {self.layouts}" * (self.layouts != "111")
        return out + ", scheduler" * self.scheduler + ", split" * self.split + \
            ", dq in 3 steps" * self.three


# Run forward and backward; those with other layouts only forward.
PEERS = (
    Peer("tokamax", 2048, 2048, 1024, scheduler=True),
    Peer("tokamax", 2048, 2048, 512, scheduler=True),
    Peer("tokamax", 1024, 1024, 1024, scheduler=True),
    Peer("tokamax", 1024, 1024, 512, scheduler=True),
    Peer("tokamax", 512, 512, 512, scheduler=True),
    Peer("tokamax", 2048, 2048, 512, "211", True),
    Peer("tokamax", 1024, 1024, 512, "211", True),
    Peer("splash", 1024, 1024, 512),
)

# Values that --sweep tries.
BLOCKS = (256, 512, 1024, 2048, 4096)
COMPUTE = (256, 512, 1024)
LAYOUTS = ("211", "121", "112", "221", "212", "122", "222")


def parse_flags():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--tessera", default=HERE.parent / "build" / "tessera", metavar="FILE")
    for venv in ("jax", "tokamax"):
        variable = f"TESSERA_{venv.upper()}_PYTHON"
        add(
            f"--{venv}-python",
            default=os.environ.get(variable),
            metavar="FILE",
            help=f"interpreter with {venv}; default ${variable}",
        )
    add("--backward", action="store_true", help="compare the kernels of the gradients")
    add("--head-dim", type=int, default=128, metavar="N", help="[128]")
    add("--kv-heads", type=int, default=HEADS, metavar="N", help=f"[{HEADS}]")
    add("--window", type=int, metavar="N", help="causal & window(N, 0) in place of causal")
    add("--softcap", type=float, default=0, metavar="X", help="[none]")
    add("--seeds", type=int, default=16, metavar="N",
        help="draws of documents [16]")
    add("--jobs", type=int, default=1, metavar="N", help="compiles at once [1]")
    add("--dumps", metavar="FOLDER",
        help="leave libtpu's dumps there, and read those that are there")
    add("--peers-from", metavar="FILE",
        help="an earlier result: our rows are made anew, the peers' are its own")
    add("--sweep", nargs="*", choices=("tokamax", "splash"), metavar="PEER",
        help="peers at the best of many settings [of both]")
    add("--minutes", type=float, default=float("inf"), metavar="N",
        help="the sweep begins no compile after them; shapes have 0.6 of them")
    add("--finalists", type=int, default=2, metavar="N",
        help="settings of a case and peer that get all draws [2]")
    add("--silicon", default=HERE / "results" / "v6e" / "silicon.json",
        metavar="FILE", help="what compare.py wrote: the error of a lead")
    add("-o", "--out", metavar="FILE", help="write the figures as JSON")
    flags = parser.parse_args()
    if flags.sweep == []:
        flags.sweep = ["tokamax", "splash"]
    flags.mask = "causal"
    if flags.window:
        flags.mask += f" & window({flags.window}, 0)"
    return flags


def draws(case, seeds):
    documents = CASES[case]
    if not documents.endswith("seed="):
        return [documents]
    return [f"{documents}{seed}" for seed in range(1, seeds + 1)]


def row(case, kernel, counted, seeds):
    """A row of the results. `counted` has (cycles, exact tiles) of each draw;
    the row takes the lower median of cycles a tile."""
    counted = sorted(counted, key=lambda c: c[0] / c[1])
    cycles, exact = counted[(len(counted) - 1) // 2]
    return {
        "case": case,
        "kernel": kernel,
        "seeds": seeds,
        "cycles": round(cycles),
        "exact_tiles_per_head": exact,
        "cycles_per_tile": round(cycles / HEADS / exact, 1),
    }


def dump_name(flags, name):
    name += "_backward" * flags.backward
    name += f"_{flags.kv_heads}kv" * (flags.kv_heads != HEADS)
    name += f"_window{flags.window}" * bool(flags.window)
    name += f"_softcap{flags.softcap:g}" * bool(flags.softcap)
    return name if flags.head_dim == 128 else f"{name}_{flags.head_dim}"


def setting(flags, kernel, docs):
    """The tile and tiles a pass that the program takes for one batch."""
    planned = json.loads(run([flags.tessera, "plan", "--json", *kernel[:4],
                              "--docs", docs]))
    keys = planned["pairs"]["needed"] // TOKENS
    told = json.loads(run([flags.tessera, "compile", "--target", "v6e:1x1",
                           *kernel, "--keys-per-query", keys, "--no-compile",
                           "--emit", os.devnull, "--json"]))["kernel"]
    return "{}x{}".format(*told["tile"]), told["tiles_per_pass"]


def ours(flags, predictor):
    """Our rows. Each batch has the table's setting for its mean keys of a
    query."""
    kernel = ["--mask", f"{flags.mask} & documents", "--q-len", TOKENS]
    kernel += ["--heads", HEADS, "--head-dim", flags.head_dim]
    kernel += ["--kv-heads", flags.kv_heads, "--softcap", flags.softcap]
    kernel += ["--backward"] * flags.backward
    for case in CASES:
        counted, used = [], []
        for docs in draws(case, flags.seeds):
            tile, tiles = setting(flags, kernel, docs)
            used.append(f"{tile}, {tiles} a pass")
            told = predictor.schedule(
                dump_name(flags, f"tessera_{tile}_{tiles}"),
                [*kernel, "--tile", tile, "--tiles-per-pass", tiles, "--docs",
                 docs])
            counted.append((told["cycles"], told["exact_tiles_per_head"]))
        yield row(case, "tessera " + " or ".join(sorted(set(used))), counted,
                  len(counted))


def emit(flags, peer, listed):
    python = flags.jax_python if peer.name == "splash" else flags.tokamax_python
    if not python:
        raise RuntimeError("no interpreter")
    command = [python, HERE / "peers" / "emit_splash.py", "--peer", peer.name]
    command += ["--block-q", peer.block_q, "--block-kv", peer.block_kv]
    command += ["--block-compute", peer.compute, "--layouts", peer.layouts]
    command += ["--scheduler"] if peer.scheduler else []
    command += ["--head-dim", flags.head_dim, "--kv-heads", flags.kv_heads]
    command += ["--softcap", flags.softcap] if flags.softcap else []
    if flags.window:
        command += ["--mask", "window", "--window", flags.window + 1]
    command += ["--segments", "--list"] if listed else []
    command += ["--three-dq-steps"] if peer.three else []
    backward = "split" if peer.split else "fused"
    command += ["--backward", backward] if flags.backward else ["--lse"]
    return command


def kernels_of(flags, told):
    """The kernels that count. Backward, the forward kernel is left out: it runs
    only to make the log-sum-exp."""
    return [k for k in told["kernels"]
            if not (flags.backward and "_fwd" in k["name"])]


def count(flags, told):
    kernels = kernels_of(flags, told)
    attention = [k for k in kernels if k["name"].startswith("splash_")]
    if not attention or any(k["cycles"] is None for k in attention):
        raise RuntimeError("trips unknown")
    cycles = sum(k["cycles_loops_once"] for k in kernels)
    return cycles, told["exact_tiles_per_head"]


def mask_rules(told, bare):
    """Trip rules of kernels with two bodies. The body with the mask runs on
    active tiles that are partial without documents: those on the diagonal, and
    at most those at a window's edge."""
    for kernel in told["kernels"]:
        if kernel["name"] not in bare:
            continue
        attention = kernel["attention"]
        partial = min(bare[kernel["name"]]["partial_steps"],
                      attention["partial_steps"])
        active, heads = attention["active_steps"], attention["heads"]
        for region in kernel["regions"]:
            steps = {"partial": partial, "full": active - partial}
            if region["role"] in steps:
                trips = steps[region["role"]] * heads
                where = f"{kernel['name']}:{region['path']}"
                yield from ("--trips", f"{where}={trips}")


def file_name(flags, peer):
    name = peer.words().translate(str.maketrans("", "", ", ")).replace("/", "_")
    return dump_name(flags, name)


def loop_rules(told, peer):
    """Trip rules of backward kernels with square blocks that `schedule` does
    not know: they have as many trips as the forward kernel of the same
    program."""
    known = [k["attention"] for k in told["kernels"] if k.get("attention")]
    for kernel in told["kernels"]:
        if (kernel.get("attention") or kernel["unknown_trips"] != ["if0/loop0"] or
                not known or peer.block_q != peer.block_kv):
            continue
        a = known[0]
        step = "if0/loop0/if0"
        trips = {"if0/loop0": a["active_steps"] + 2 / a["heads"],
                 step: a["active_steps"],
                 step + "/if0": a["rows"], step + "/if1": a["full_steps"],
                 step + "/if2": a["partial_steps"], step + "/if3": a["rows"]}
        if {r["path"] for r in kernel["regions"]} == {"", "if0", *trips}:
            for path, n in trips.items():
                where = f"{kernel['name']}:{path}"
                yield from ("--trips", f"{where}={round(n * a['heads'])}")


def one_row(flags, predictor, peer):
    """The row of one document, with its list compiled in."""
    asked = ["--mask", flags.mask, "--q-len", TOKENS]
    told = predictor.schedule(file_name(flags, peer), asked, emit(flags, peer, False))
    rules = list(loop_rules(told, peer))
    if rules:
        told = predictor.schedule(file_name(flags, peer), [*asked, *rules])
    return row(ONE, peer.words(), [count(flags, told)], 1)


def list_name(flags, peer):
    return file_name(flags, peer._replace(three=False)) + "_list"


def list_words(peer):
    return peer._replace(three=False).words() + AT_RUN_TIME


def list_rows(flags, predictor, peer, cases, seeds):
    """Rows of packed documents, from the program whose list is an argument."""
    name = list_name(flags, peer)
    bare = ["--mask", flags.mask, "--q-len", TOKENS]
    told = predictor.schedule(name, bare, emit(flags, peer, True))
    counts = {k["name"]: k["attention"] for k in kernels_of(flags, told)
              if k.get("attention")}
    asked = ["--mask", f"{flags.mask} & documents", "--q-len", TOKENS]
    for case in cases:
        counted = []
        for docs in draws(case, seeds):
            of = [*asked, "--docs", docs]
            told = predictor.schedule(name, of)
            rules = list(mask_rules(told, counts))
            if rules:
                told = predictor.schedule(name, [*of, *rules])
            counted.append(count(flags, told))
        yield row(case, list_words(peer), counted, len(counted))


def peer_rows(flags, predictor, peer, cases):
    """The rows of a peer; RuntimeError says why there are none."""
    if ONE in cases:
        yield one_row(flags, predictor, peer)
    packed = [case for case in cases if case != ONE]
    if packed:
        yield from list_rows(flags, predictor, peer, packed, flags.seeds)


def shapes(name, backward):
    """All shapes of blocks, the likely ones first: square, of middle size, with
    512 keys at once."""
    tokamax = name == "tokamax"
    out = [Peer(name, q, kv, compute, scheduler=tokamax, three=tokamax and backward)
           for q in BLOCKS for kv in BLOCKS for compute in COMPUTE if compute <= kv]
    return sorted(out, key=lambda p: (
        abs(math.log2(p.block_q / p.block_kv)) + abs(math.log2(p.compute / 512)) +
        abs(math.log2(p.block_q * p.block_kv) / 2 - 10) / 2))


def variants(flags, peer):
    if flags.backward:
        other = {"split": True} if peer.name == "splash" else {"three": False}
        return [peer._replace(**other)]
    out = [peer._replace(scheduler=False)] if peer.scheduler else []
    return out + [peer._replace(layouts=layouts) for layouts in LAYOUTS]


def best_settings(tried, peers, case, number):
    """The `number` peers with the fewest cycles in a case; keys of `tried` are
    Peer.words()."""
    have = [p for p in peers if case in tried.get(p.words(), {})]
    return sorted(have, key=lambda p: tried[p.words()][case])[:number]


def sweep(flags, predictor, tried):
    """Fills `tried` (keys are Peer.words()) with cycles a tile of each case, or
    with the reason why there are none. Returns the finalists, each with its
    cases."""
    begin = time.monotonic()

    def measure(peer, share):
        words = peer.words()
        found = dict(tried.get(words, {}))
        late = time.monotonic() > begin + share * 60 * flags.minutes

        def may(name):
            return not late or predictor.has(name)

        try:
            cases = [c for c in CASES if c not in found]
            if "why" in found or not cases:
                return
            if flags.backward and ONE in cases:  # with a list, trips are often unknown
                cases.remove(ONE)
                if may(file_name(flags, peer)):
                    told = one_row(flags, predictor, peer)
                    found[ONE] = told["cycles_per_tile"]
            if cases and may(list_name(flags, peer)):
                for r in list_rows(flags, predictor, peer, cases, 1):
                    found[r["case"]] = r["cycles_per_tile"]
        except RuntimeError as error:
            found["why"] = str(error)
        if found:
            tried[words] = found
            print(f"{words}: {found}", file=sys.stderr, flush=True)

    finalists = {}
    for turn, name in enumerate(flags.sweep):
        share = (turn + 1) / len(flags.sweep)
        peers = list(shapes(name, flags.backward))
        with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
            list(pool.map(lambda p: measure(p, share - 0.4 / len(flags.sweep)), peers))
            more = dict.fromkeys(v for case in CASES
                                 for p in best_settings(tried, peers, case, 1)
                                 for v in variants(flags, p))
            list(pool.map(lambda p: measure(p, share), more))
        for case in CASES:
            for p in best_settings(tried, [*peers, *more], case, flags.finalists):
                finalists.setdefault(p, []).append(case)
    return finalists


def collect(flags):
    """All rows, the reasons for missing ones, and the results of a sweep."""
    predictor = Predictor(flags.tessera, flags.dumps)
    rows, missing, tried = [], [], {}

    def work(job):
        words, found, why = job[0], [], None
        try:
            for one in job[1]():
                found.append(one)
        except RuntimeError as error:
            why = f"{words}: {error}"
        print(f"{words}: {why or [r['cycles_per_tile'] for r in found]}",
              file=sys.stderr, flush=True)
        return found, why

    # Only forward kernels are run with other layouts.
    peers = {p: list(CASES) for p in PEERS
             if not flags.backward or p.layouts == "111"}
    if flags.backward:
        peers |= {p._replace(three=True): [ONE] for p in peers if p.name == "tokamax"}
    if flags.peers_from:
        text = pathlib.Path(flags.peers_from).read_text(encoding="utf-8")
        earlier = json.loads(text)
        rows += [r for r in earlier["rows"] if not is_ours(r)]
        missing += earlier["not_measured"]
        tried |= earlier.get("sweep", {})
        peers = {}
    if flags.sweep:
        done = {(r["case"], r["kernel"]) for r in rows}
        peers = {p: [c for c in cases
                     if (c, p.words() if c == ONE else list_words(p)) not in done]
                 for p, cases in sweep(flags, predictor, tried).items()}
    jobs = [("tessera", lambda: ours(flags, predictor))]
    jobs += [(p.words(), lambda p=p, c=c: peer_rows(flags, predictor, p, c))
             for p, c in peers.items()]
    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        for found, why in pool.map(work, jobs):
            rows += found
            missing += [why] if why else []
    return rows, missing, tried


def is_ours(r):
    return r["kernel"].startswith("tessera")


def best_of(case, rows, lead_error):
    """The best row of ours and of each peer, and whether the first one
    leads."""
    best = {}
    for r in sorted((r for r in rows if r["case"] == case),
                    key=lambda r: r["cycles_per_tile"]):
        best.setdefault(r["kernel"].split()[0], r)
    our = best.pop("tessera")
    out = {"case": case, "ours": our["kernel"],
           "cycles_per_tile": our["cycles_per_tile"], "peers": []}
    for peer in best.values():
        lead = peer["cycles_per_tile"] / our["cycles_per_tile"]
        tie = lead_error and 1 / lead_error < lead < lead_error
        out["peers"].append({
            "kernel": peer["kernel"],
            "cycles_per_tile": peer["cycles_per_tile"],
            "over_ours": round(lead, 3),
            "says": "tie" if tie else "ours" if lead > 1 else "theirs",
        })
    return out


def read_lead_error(path):
    path = pathlib.Path(path)
    if not path.exists():
        return None
    return json.loads(path.read_text(encoding="utf-8"))["all"]["lead_error"]


def main():
    flags = parse_flags()
    lead_error = read_lead_error(flags.silicon)
    rows, missing, tried = collect(flags)
    best = [best_of(case, rows, lead_error) for case in CASES]
    for case in best:
        print(f"\n{case['case']}")
        for r in sorted((r for r in rows if r["case"] == case["case"]),
                        key=lambda r: r["cycles_per_tile"]):
            print(f"  {r['kernel']:<56} {r['cycles']:>12,} cycles "
                  f"{r['cycles_per_tile']:>8.1f} a tile")
        for p in case["peers"]:
            print(f"  best: {case['ours']} {case['cycles_per_tile']}, "
                  f"{p['kernel']} {p['cycles_per_tile']}, "
                  f"{p['over_ours']} times ours: {p['says']}")
    if lead_error:
        print(f"\nA lead below {lead_error} times is a tie: the error of such "
              "predictions, of tokamax's forward kernels on silicon.")
    for why in missing:
        print("not measured:", why)
    if flags.out:
        result = {"lead_error": lead_error, "best": best, "rows": rows,
                  "not_measured": missing}
        if tried:
            result["sweep"] = tried
        out = pathlib.Path(flags.out)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
