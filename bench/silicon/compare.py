#!/usr/bin/env python3
"""Compares predictions of `tessera schedule` to times that others measured on
TPUs. For each row it emits the program, compiles it with libtpu (no TPU is
needed), predicts its time, and divides the measured time by the predicted one.

    bench/silicon/compare.py --tokamax-python VENV/bin/python \\
      -o bench/results/v6e/silicon.json

The bias is the median of that ratio. The error of a lead is the ratio of its
95th to its 5th percentile: if two predictions are closer to each other than
that, neither is ahead. Rows that the JSON has already are not run again.
"""

import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import re
import statistics
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.append(str(ROOT / "bench"))
from predicted import Predictor  # noqa: E402

SOURCE = {
    "repository": "https://github.com/openxla/tokamax",
    "commit": "783ead95704a581ea5b09c80d9d058c819cd8bf03",
    "license": "Apache-2.0",
}
TARGETS = {"v6e": "v6e:1x1", "tpu7x": "tpu7x:2x2x1"}
CONFIG = ("block_q", "block_kv", "block_kv_compute", "q_layout", "k_layout",
          "v_layout", "experimental_scheduler", "base2_exp")


def parse_flags():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--chip", choices=sorted(TARGETS), default="v6e")
    add("--tessera", default=ROOT / "build" / "tessera", metavar="FILE")
    add("--tokamax-python", default=os.environ.get("TESSERA_TOKAMAX_PYTHON"),
        metavar="FILE",
        help="interpreter with tokamax; default $TESSERA_TOKAMAX_PYTHON")
    add("--jobs", type=int, default=1, metavar="N", help="compiles at once [1]")
    add("--rows", type=int, metavar="N", help="no more rows than these")
    add("--dumps", metavar="FOLDER",
        help="leave libtpu's dumps there, and read those that are there")
    add("--again", action="store_true", help="predict rows of the JSON again")
    add("-o", "--out", type=pathlib.Path, required=True, metavar="FILE")
    flags = parser.parse_args()
    if not flags.tokamax_python:
        parser.error("--tokamax-python is needed")
    return flags


def read_rows(chip):
    """The rows of the CSV, ordered so that rows of one shape are far apart."""
    with open(HERE / f"{chip}_forward.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        batch, tokens, heads, dim = map(int, re.findall(r"\d+", row["q"])[1:])
        row["shape"] = [batch, tokens, heads, dim]
        row["kv_heads"] = int(re.findall(r"\d+", row["k"])[3])
        row["name"] = "_".join(
            map(str, [*row["shape"], row["causal"], row["residuals"]])
        )
    return sorted(rows, key=lambda r: (r["residuals"], r["causal"]))


def emit(flags, row):
    command = [flags.tokamax_python, HERE / "emit_row.py"]
    command += ["--chip", flags.chip, "--kv-heads", row["kv_heads"]]
    command += ["--shape", ",".join(map(str, row["shape"]))]
    for name in ("causal", "residuals", *CONFIG):
        command += ["--" + name.replace("_", "-"), row[name]]
    return command


def predict(flags, predictor, row):
    asked = ["--mask", "causal" if row["causal"] == "1" else "full"]
    asked += ["--q-len", row["shape"][1], "--target", TARGETS[flags.chip]]
    told = predictor.schedule(row["name"], asked, emit(flags, row))
    if told["attention_cycles"] is None:
        raise RuntimeError("no kernel follows the plan")
    a_ms = told["assumed"]["gigahertz"] * 1e6
    cycles = told["cycles_loops_once"]
    measured = float(row["ms_min"])
    return {
        "name": row["name"],
        "shape": row["shape"],
        "kv_heads": row["kv_heads"],
        "causal": row["causal"] == "1",
        "residuals": row["residuals"] == "1",
        "config": {name: int(row[name]) for name in CONFIG},
        "measured_ms": measured,
        "predicted_ms": round(cycles / a_ms, 4),
        "attention_ms": round(told["attention_cycles"] / a_ms, 4),
        "stalls_ms": round(stalls(told) / a_ms, 4),
        "kernels_of_unknown_trips": [
            k["name"] for k in told["kernels"] if k["cycles"] is None
        ],
        "ratio": round(measured * a_ms / cycles, 4),
    }


def stalls(told):
    """The cycles of the program in which no instruction is issued."""
    return sum(
        region["own"]["stalls"] * (region["trips"] or 0)
        for kernel in told["kernels"]
        for region in kernel["regions"]
    )


def percentile(values, share):
    """A percentile, by linear interpolation between the two nearest values."""
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (at - low) * (values[high] - values[low])


def reading(rows):
    ratios = [row["ratio"] for row in rows]
    low, high = percentile(ratios, 0.05), percentile(ratios, 0.95)
    return {
        "rows": len(rows),
        "bias": round(statistics.median(ratios), 4),
        "p5": round(low, 4),
        "p95": round(high, 4),
        "lead_error": round(high / low, 4),
        "least": min(ratios),
        "most": max(ratios),
    }


def share(row):
    return row["attention_ms"] / row["predicted_ms"]


def summary(flags, rows, failed):
    kernel = [r for r in rows if share(r) >= 0.9]
    lengths = sorted({row["shape"][1] for row in rows})
    return {
        "chip": flags.chip,
        "source": SOURCE,
        "all": reading(rows),
        "by_tokens": {
            str(n): reading([r for r in rows if r["shape"][1] == n])
            for n in lengths
        },
        # The same ratio for all but the kernel, if the kernel took its
        # predicted time.
        "beside_the_kernel": round(statistics.median(
            (r["measured_ms"] - r["attention_ms"])
            / (r["predicted_ms"] - r["attention_ms"]) for r in rows), 4),
        # Only programs whose kernel takes at least 0.9 of the time.
        "kernel_at_least_0.9": reading(kernel) if kernel else None,
        "failed": failed,
        "rows": sorted(rows, key=lambda r: r["name"]),
    }


def write(path, result):
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    aside.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    aside.replace(path)


def main():
    flags = parse_flags()
    asked = read_rows(flags.chip)[: flags.rows]
    done = []
    if flags.out.exists() and not flags.again:
        done = json.loads(flags.out.read_text(encoding="utf-8"))["rows"]
    known = {row["name"] for row in done}
    failed, lock = {}, threading.Lock()
    predictor = Predictor(flags.tessera, flags.dumps)

    def work(row):
        try:
            found = predict(flags, predictor, row)
        except RuntimeError as why:
            found = str(why)
        with lock:
            if isinstance(found, str):
                failed[row["name"]] = found
                line = found
            else:
                done.append(found)
                line = (f"{found['measured_ms']:8.3f} ms measured "
                        f"{found['predicted_ms']:8.3f} predicted "
                        f"{found['ratio']:6.3f}")
            count = len(done) + len(failed)
            print(f"{count:3}/{len(asked)} {row['name']:<24} {line}",
                  file=sys.stderr, flush=True)
            if done:
                write(flags.out, summary(flags, done, failed))

    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        list(pool.map(work, [r for r in asked if r["name"] not in known]))
    if not done:
        sys.exit("no row could be predicted")
    result = summary(flags, done, failed)
    write(flags.out, result)
    readings = [("all", result["all"]), *result["by_tokens"].items()]
    if result["kernel_at_least_0.9"]:
        readings.append(("kernel", result["kernel_at_least_0.9"]))
    for name, of in readings:
        print(f"{name:>6} {of['rows']:3} rows: measured is {of['bias']:.3f} "
              f"times predicted, {of['p5']:.3f} to {of['p95']:.3f}; a lead "
              f"below {100 * (of['lead_error'] - 1):.0f}% is a tie")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
