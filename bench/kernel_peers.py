#!/usr/bin/env python3
"""Puts the TPU kernels beside Splash and tokamax: predicted cycles, all in, of
attention on v6e, forward or with --backward its gradients, by one command
(`tessera schedule`) for all, from the vendor's own schedules. No TPU; every
figure is the same on every machine.

    bench/kernel_peers.py --jax-python VENV/bin/python --tokamax-python ... \\
      -o bench/results/v6e/kernel.json

Bf16, 8 heads, head dim 128, 32,768 tokens, causal. `one document` is full tiles
but for the diagonal. `documents` are packed; the peers run them under a causal mask
that is compiled in, with segment ids, which skip no tile. That is not their
best: their lists of tiles can be arguments at run time. Backward, the peers run
one document alone, by their fused kernels, and what XLA puts beside those counts
with them. A tile is an active 256 x 256 tile of the exact plan, whatever blocks a
kernel has.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TOKENS, HEADS = 32768, 8
CASES = {
    "one document": f"lengths:{TOKENS}",
    "documents, mean 4096": "lognormal:mean=4096,seed=",
    "documents, mean 1024": "lognormal:mean=1024,seed=",
}
OURS = ((2, "512x256"), (4, "512x256"), (2, "256x256"))
PEERS = (("splash", 256), ("splash", 1024), ("tokamax", 256),
         ("tokamax", 1024), ("tokamax", 2048))
OURS_BACKWARD = ((1, "512x512"), (1, "1024x1024"), (1, "512x256"))
# The last: keys computed at once.
PEERS_BACKWARD = (("splash", 1024, 1024), ("tokamax", 1024, 512),
                  ("tokamax", 1024, 1024), ("tokamax", 2048, 512),
                  ("tokamax", 2048, 1024))


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
    add("--backward", action="store_true", help="of the gradients")
    add("--seeds", type=int, default=1, metavar="N",
        help="draws of documents; ours is their lower median [1]")
    add("-o", "--out", metavar="FILE", help="write the figures as JSON")
    return parser.parse_args()


def schedule(flags, *arguments):
    done = subprocess.run(
        [flags.tessera, "schedule", "--json", *map(str, arguments)],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def row(case, kernel, cycles, exact_tiles):
    return {
        "case": case,
        "kernel": kernel,
        "cycles": round(cycles),
        "exact_tiles_per_head": exact_tiles,
        "cycles_per_tile": round(cycles / HEADS / exact_tiles, 1),
    }


def ours(flags):
    for case, documents in CASES.items():
        drawn = documents.endswith("seed=")
        draws = [f"{documents}{seed}" for seed in range(1, flags.seeds + 1)]
        for tiles, tile in OURS_BACKWARD if flags.backward else OURS:
            rows = []
            for docs in draws if drawn else [documents]:
                told = schedule(
                    flags,
                    *("--mask", "causal & documents", "--docs", docs),
                    *("--q-len", TOKENS, "--heads", HEADS, "--tile", tile),
                    *("--tiles-per-pass", tiles),
                    *(["--backward"] if flags.backward else []),
                )
                name = f"tessera {tile}, {tiles} a pass"
                exact = told["exact_tiles_per_head"]
                rows.append(row(case, name, told["cycles"], exact))
            rows.sort(key=lambda r: r["cycles_per_tile"])
            more = {"seeds": len(rows)} if len(rows) > 1 else {}
            yield rows[(len(rows) - 1) // 2] | more


def peer(flags, name, block, compute, segments, folder):
    """A peer's cycles, or why there are none."""
    python = flags.jax_python if name == "splash" else flags.tokamax_python
    if not python:
        return "no interpreter"
    emit = [python, HERE / "peers" / "emit_splash.py", "--peer", name]
    emit += ["--block", str(block), "--block-compute", str(compute)]
    emit += ["--segments"] if segments else []
    emit += ["--backward", "fused"] if flags.backward else []
    done = subprocess.run(emit, capture_output=True, text=True)
    if done.returncode != 0:
        return done.stderr.strip().splitlines()[-1]
    path = pathlib.Path(folder) / f"{name}{block}.mlir"
    path.write_text(done.stdout)
    told = schedule(flags, path, "--mask", "causal", "--q-len", TOKENS)
    if not flags.backward:
        return told["attention_cycles"]
    # All but the forward kernel, whose residuals the gradients need; what the
    # tool cannot count beside the kernels is small, and in the peer's favour.
    rest = [k for k in told["kernels"] if "_fwd" not in k["name"]]
    if not any("dkv" in k["name"] and k["cycles"] for k in rest):
        return "trips unknown"
    return sum(k["cycles"] or 0 for k in rest)


def main():
    flags = parse_flags()
    rows = list(ours(flags))
    tiles = {r["case"]: r["exact_tiles_per_head"] for r in rows}
    missing = []
    with tempfile.TemporaryDirectory() as folder:
        peers = [(name, block, block) for name, block in PEERS]
        for name, block, compute in PEERS_BACKWARD if flags.backward else peers:
            for segments in (False,) if flags.backward else (False, True):
                cycles = peer(flags, name, block, compute, segments, folder)
                kernel = f"{name} {block}"
                kernel += f", {compute} keys at once" * (compute != block)
                if isinstance(cycles, str) or cycles is None:
                    missing.append(f"{kernel}: {cycles}")
                    continue
                for case in CASES:
                    if segments == (case != "one document"):
                        rows.append(row(case, kernel, cycles, tiles[case]))
    for case in CASES:
        print(f"\n{case}")
        for r in sorted(
            (r for r in rows if r["case"] == case),
            key=lambda r: r["cycles_per_tile"],
        ):
            print(
                f"  {r['kernel']:<32} {r['cycles']:>13,} cycles "
                f"{r['cycles_per_tile']:>9.1f} a tile"
            )
    for why in missing:
        print("not measured:", why)
    if flags.out:
        out = pathlib.Path(flags.out)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(
            json.dumps({"rows": rows, "not_measured": missing}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
