#!/usr/bin/env python3
"""All figures of the Python package in one run: one table, and JSON with -o.
It calls the scripts beside it, each in the Python that has its frameworks; a
peer that no Python here has is named as absent. Measure on a quiet machine.

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
# What a row of ours should reach: the text, and whether a value does.
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
}
OURS = ("tessera", "tessera.torch", "tessera.jax", "a session")


def parse_flags():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--build", default=HERE.parent / "build", type=pathlib.Path,
        help="that holds python/tessera")
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
    """What it printed; it ends this run where it fails."""
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
    """A peer's planner on the documents that the loop has never seen."""
    with tempfile.TemporaryDirectory() as folder:
        ids = pathlib.Path(folder, "ids.npy")
        documents.write_npy(ids, documents.lognormal_ids(1024, 0, 32768))
        said = json.loads(run(
            python, "peers/" + script, "--docs", ids, "--mask",
            "causal & documents", "--seconds", seconds, *flags, build=build))
    # A mask for other documents, where that costs something else.
    again = said.get("changed_documents_ms", said["ms"])
    return [{"what": what, "who": who, "value": value, "unit": "ms"}
            for what, value in (("plan 32768", said["ms"]),
                                ("loop 32768", again))]


def above_empty(rows):
    """Of each length, what a call of ours takes beside one of nothing."""
    empty = {r["what"]: r["value"] for r in rows if r["who"] == "an empty call"}
    return [{"what": f"{r['what']}, above an empty call", "who": r["who"],
             "value": r["value"] - empty[r["what"]], "unit": r["unit"]}
            for r in rows if r["what"] in empty and r["who"] == "tessera"]


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
        rows += planners(flags.torch_python, "plan_flex.py",
                         "create_block_mask, compiled", here["build"],
                         flags.seconds, "--compiled")
    else:
        found["absent"].append(
            "PyTorch (block_mask, torch attention, FlexAttention, SDPA): "
            "TESSERA_TORCH_PYTHON names no Python that has it")
    for row in rows:
        row["goal"] = verdict(row)
    found.update(rows=rows, load_after=os.getloadavg()[0])
    print(f"{found['cores']} cores, load {found['load']:.1f} before and "
          f"{found['load_after']:.1f} after")
    for row in sorted(rows, key=lambda r: r["what"]):
        print(f"{row['what']:45s} {row['who']:28s} {row['value']:10.2f} "
              f"{row['unit']:8s} {row['goal'] or ''}".rstrip())
    for what in found["absent"]:
        print("absent:", what)
    if flags.out:
        flags.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
