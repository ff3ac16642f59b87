#!/usr/bin/env python3
"""Measures all figures of the Python package in one run: a table, and JSON with
-o. It calls the scripts beside it, each in the Python that has its frameworks.
A peer that no Python here has is listed as absent. Measure on a quiet machine.

    TESSERA_TORCH_PYTHON=... bench/python_figures.py -o build/python_figures.json
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import documents

HERE = pathlib.Path(__file__).resolve().parent
# Goals of our rows: the text, and a test of the value.
GOALS = {
    "plan 32768": ("under 25 us", lambda x: x < 25),
    "plan 32768, binding alone": ("under 3 us", lambda x: x < 3),
    "block_mask 131072": ("under 5 ms", lambda x: x < 5),
    "loop 32768, CPU kernels": ("under 100 us", lambda x: x < 100),
    "loop 32768, TPU forward": ("under 100 us", lambda x: x < 100),
    "loop 32768, TPU backward": ("under 100 us", lambda x: x < 100),
    "shard 32768 on 4, TPU forward": ("under 5 ms", lambda x: x < 5000),
    "shard 32768 on 4, TPU backward": ("under 5 ms", lambda x: x < 5000),
    "jit 16, above an empty call": ("at most 5 us", lambda x: x <= 5),
    **{f"loop 32768, {kernels}, a new BlockMask over it": (
        "at least 1,000", lambda x: x >= 1000)
       for kernels in ("CPU kernels", "TPU forward", "TPU backward")},
}
NEW_MASK = "create_block_mask, compiled"
OURS = ("tessera", "tessera.torch", "tessera.jax", "a session")
# The goal of attention: 95% of the C++ bench's ratio to its best peer.
ATTENTION, LESS = "attention 4096, ", 0.95
DTYPES = {"f32": "float32", "bf16": "bfloat16"}
PASSES = {"forward": "forward", "forward+backward": "with backward"}


def parse_flags():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--build", default=HERE.parent / "build", type=pathlib.Path,
        help="folder that holds python/tessera")
    add("--jax-python", default=os.environ.get(
        "TESSERA_PYTHON", str(HERE.parent / ".venv/bin/python")))
    add("--torch-python", default=os.environ.get("TESSERA_TORCH_PYTHON"),
        help="default $TESSERA_TORCH_PYTHON")
    add("--seconds", default="3", help="to spend on a row")
    add("-o", "--out", type=pathlib.Path, metavar="FILE.json")
    return parser.parse_args()


def has(python, *packages):
    return python and subprocess.run(
        [python, "-c", "import " + ", ".join(packages)],
        capture_output=True).returncode == 0


def run(python, script, *flags, build):
    """The output of a script. If the script fails, this program ends."""
    print(f"running {script}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [python, str(HERE / script), *map(str, flags)], text=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(build / "python")})
    if done.returncode != 0:
        sys.exit(f"python_figures: {script} must end well, found "
                 f"{done.returncode}")
    return done.stdout


def rows_of(python, script, *flags, build):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "rows.json")
        run(python, script, *flags, "-o", out, build=build)
        return json.loads(out.read_text())


def planners(python, script, who, build, seconds, *flags):
    """Times a peer's planner, also on documents that it has not seen before."""
    with tempfile.TemporaryDirectory() as folder:
        ids = pathlib.Path(folder, "ids.npy")
        documents.write_npy(ids, documents.lognormal_ids(1024, 0, 32768))
        said = json.loads(run(
            python, "peers/" + script, "--docs", ids, "--mask",
            "causal & documents", "--seconds", seconds, *flags, build=build))
    # The time of a mask for other documents, if the script measures it apart.
    again = said.get("changed_documents_ms", said["ms"])
    return [{"what": what, "who": who, "value": value, "unit": "ms"}
            for what, value in (("plan 32768", said["ms"]),
                                ("loop 32768", again))]


def above_empty(rows):
    """For each length, the time of our call less that of an empty one."""
    empty = {r["what"]: r["value"] for r in rows if r["who"] == "an empty call"}
    return [{"what": f"{r['what']}, above an empty call", "who": r["who"],
             "value": r["value"] - empty[r["what"]], "unit": r["unit"]}
            for r in rows if r["what"] in empty and r["who"] == "tessera"]


def host_ratios(rows):
    """Host time of a batch in a loop: the ratio of FlexAttention's new mask to
    each of our ways. Empty if FlexAttention was not run."""
    masks = [r["value"] * 1e3 for r in rows  # in us
             if (r["what"], r["who"]) == ("loop 32768", NEW_MASK)]
    return [{"what": f"{r['what']}, a new BlockMask over it", "who": r["who"],
             "value": mask / r["value"], "unit": "x"}
            for mask in masks for r in rows if r["what"].startswith("loop 32768, ")]


def bench_ratios(bench, seconds, torch_python):
    """The C++ bench's ratio of our speed to the best peer's, by dtype and
    passes; None if no peer ran."""
    print("running tessera-bench attention", file=sys.stderr, flush=True)
    with_torch = {"TESSERA_TORCH_PYTHON": torch_python} if torch_python else {}
    done = subprocess.run(
        [bench, "attention", "--cases", "documents", "--tokens", "4096",
         "--backward", "--seconds", seconds, "--peers", HERE / "peers",
         "--json"],
        text=True, stdout=subprocess.PIPE, env={**os.environ, **with_torch})
    if done.returncode != 0:
        sys.exit("python_figures: tessera-bench must end well, found "
                 f"{done.returncode}")
    return ratios_of(json.loads(done.stdout))


def ratios_of(said):
    return {f"{ATTENTION}{DTYPES[r['dtype']]}, {PASSES[r['direction']]}":
            r["ratio"] for r in said["rows"] if r["case"] == "documents"}


def attention_ratios(rows, of_bench):
    """The ratio of our speed to the best peer's in each framework, and the
    ratio of that to the C++ bench's ratio for the same case, if it was run."""
    by_what = {}
    for r in rows:
        if ATTENTION in r["what"]:
            by_what.setdefault(r["what"], {})[r["who"]] = r["value"]
    ratio_row = lambda what, who, value, goal=None: {
        "what": what + ", over the best peer", "who": who, "value": value,
        "unit": "x", "goal": goal}
    found = [ratio_row(what, "tessera-bench", value)
             for what, value in of_bench.items() if value is not None]
    for what, speeds in by_what.items():
        peers = [x for who, x in speeds.items() if who not in OURS]
        for who in ("tessera.torch", "tessera.jax"):
            if who not in speeds or not peers:
                continue
            ratio, goal = speeds[who] / max(peers), None
            theirs = of_bench.get(what[what.index(ATTENTION):])
            if theirs is not None:
                goal = f"at least {LESS * theirs:.2f}" + (
                    ", reached" if ratio >= LESS * theirs else ", MISSED")
            found.append(ratio_row(what, who, ratio, goal))
    return found


def verdict(row):
    if row["who"] not in OURS or row["what"] not in GOALS:
        return None
    goal, reached = GOALS[row["what"]]
    return goal + (", reached" if reached(row["value"]) else ", MISSED")


def main():
    flags = parse_flags()
    here = dict(build=flags.build.resolve())
    if not has(flags.jax_python, "jax", "numpy"):
        sys.exit("python_figures: --jax-python must have JAX, found "
                 f"{flags.jax_python}")
    found = {"load": os.getloadavg()[0], "cores": os.cpu_count(), "absent": []}
    rows = rows_of(flags.jax_python, "python_overhead.py", **here)
    rows += above_empty(rows)
    rows += rows_of(flags.jax_python, "jax_attention.py", "--seconds",
                    flags.seconds, **here)
    rows += planners(flags.jax_python, "plan_splash.py", "Splash",
                     seconds=flags.seconds, **here)
    if has(flags.torch_python, "torch", "numpy"):
        rows += rows_of(flags.torch_python, "python_attention.py", "--seconds",
                        flags.seconds, **here)
        rows += planners(flags.torch_python, "plan_flex.py", NEW_MASK,
                         here["build"], flags.seconds, "--compiled")
        rows += host_ratios(rows)
    else:
        found["absent"].append(
            "PyTorch (block_mask, torch attention, FlexAttention, SDPA): "
            "TESSERA_TORCH_PYTHON names no Python that has it")
    of_bench, bench = {}, here["build"] / "tessera-bench"
    if bench.exists():
        of_bench = bench_ratios(bench, flags.seconds, flags.torch_python)
    else:
        found["absent"].append(f"the C++ bench: no {bench.name} is in the build")
    for row in rows:
        row["goal"] = verdict(row)
    rows += attention_ratios(rows, of_bench)
    found.update(rows=rows, load_after=os.getloadavg()[0])
    print(f"{found['cores']} cores, load {found['load']:.1f} before and "
          f"{found['load_after']:.1f} after")
    for row in sorted(rows, key=lambda r: r["what"]):
        print(f"{row['what']:48s} {row['who']:28s} {row['value']:10.2f} "
              f"{row['unit']:8s} {row['goal'] or ''}".rstrip())
    for what in found["absent"]:
        print("absent:", what)
    if flags.out:
        flags.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
