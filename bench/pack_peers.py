#!/usr/bin/env python3
"""Times tessera.data.Loader and the packing of TRL, grain and axolotl:
documents of lognormal lengths, with their tokens, into rows of one length with
loss masks. All run in one process, in turns. Times are by the clock, and as CPU
time of all threads, which is the time that one core needs. Each is the best of
several rounds after one that warms up. Row fill counts every row that was made.
A peer that is not installed is reported as not measured.

    pip install grain==0.2.18 trl==1.16.0 pyarrow==26.0.1 numba
    pip install --no-deps axolotl==0.19.0
    PYTHONPATH=build/python taskset -c 1 PYTHON bench/pack_peers.py --results bench/results
    bench/pack_peers.py --show bench/results/CPU/pack_peers.json

The last command prints the table of a stored run and needs no package.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import pathlib

import machine

TOKENS, ROWS = 8192, 8
BINS = 512  # grain's window; ours holds 4,096 rows


def documents(n, mean, seed=1):
    """No document is longer than a row: grain does not take longer ones, TRL
    cuts them."""
    import numpy as np
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(np.log(mean) - 0.5, 1, n), 1, TOKENS)
    ends = np.cumsum(lengths.astype(np.int64))
    tokens = rng.integers(1, 50_000, ends[-1], np.int32)
    return tokens, np.concatenate(([0], ends))


def ours(strategy):
    def run(tokens, ends, table):
        import tessera.data
        rows = used = 0
        with_rows = tessera.data.Loader(table, tokens=TOKENS, rows=ROWS,
                                        strategy=strategy, mask="causal & documents",
                                        max_steps=1 << 16)
        for batch in with_rows:
            rows += batch["filled"]
            used += int(batch["valid_token_count"][:batch["filled"]].sum())
        return rows, used
    return run


def trl(tokens, ends, table):
    """Packs by TRL's own Arrow path, with one chunk in memory. Masks and
    position_ids are left to its collator."""
    from trl.data_utils import _pack_bfd
    packed = _pack_bfd(table, TOKENS, "split")  # "truncate" is slower
    return packed.num_rows, len(packed["input_ids"].chunks[0].values)


def axolotl(tokens, ends, table):
    """axolotl packs only lengths, here with its default groups and bins. This
    makes the same columns as its collator, and pads them."""
    import numpy as np
    from axolotl.utils.samplers.multipack import pack_parallel
    bins = pack_parallel(np.diff(ends), TOKENS, group_size=100_000, bin_size=200,
                         num_processes=1)
    used = 0
    for documents in bins:
        ids = [tokens[ends[i]:ends[i + 1]] for i in documents]
        columns = (ids, ids,  # labels
                   [np.full(x.size, n + 1, np.int32) for n, x in enumerate(ids)],
                   [np.arange(x.size, dtype=np.int32) for x in ids])
        for column in columns:
            row = np.zeros(TOKENS, np.int32)
            whole = np.concatenate(column)
            row[:whole.size] = whole
        used += whole.size
    return len(bins), used


def grain_packing(kind):
    def run(tokens, ends, table):
        import grain
        import grain.experimental
        source = grain.MapDataset.range(len(ends) - 1).map(
            lambda i: {"tokens": tokens[ends[i]:ends[i + 1]]}).to_iter_dataset(
                grain.ReadOptions(num_threads=0))
        pack = getattr(grain.experimental, f"{kind}FitPackIterDataset")(
            source, length_struct={"tokens": TOKENS}, num_packing_bins=BINS)
        rows = used = 0
        for row in pack:
            rows += 1
            used += int((row["tokens_segment_ids"] > 0).sum())
        return rows, used
    return run


# Name, the package that it needs, and the run.
CASES = (
    ("tessera, best fit", None, ours("bestfit")),
    ("tessera, by cost", None, ours("cost")),
    ("TRL, best fit decreasing", "trl", trl),
    ("grain, first fit", "grain", grain_packing("First")),
    ("grain, best fit", "grain", grain_packing("Best")),
    ("axolotl, first fit", "axolotl", axolotl),
)


def parse_flags():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--documents", type=int, default=20_000)
    add("--mean", type=float, default=1500)
    add("--rounds", type=int, default=5)
    add("--show", type=pathlib.Path, metavar="FILE.json")
    machine.add_keep_flags(add)
    return parser.parse_args()


def measure(flags):
    import pyarrow as pa
    tokens, ends = documents(flags.documents, flags.mean)
    table = pa.table({"input_ids": pa.ListArray.from_arrays(
        pa.array(ends.astype("int32")), pa.array(tokens))})
    is_there = lambda package: package is None or importlib.util.find_spec(package)
    runs = {name: (lambda run=run: run(tokens, ends, table))
            for name, package, run in CASES if is_there(package)}
    given, failed = machine.warm_up(runs)
    runs = {name: runs[name] for name in given}
    with machine.Others() as others:
        found = machine.best_of(runs, flags.rounds, given)
    rows = []
    for name, package, _ in CASES:
        row = {"case": name, "package": package}
        if name in failed:
            rows.append({**row, "state": "failed", "why": failed[name]})
            continue
        if name not in found:
            rows.append({**row, "state": "not measured", "why": f"no {package}"})
            continue
        made, used = found[name].pop("gave")
        # A packer that loses tokens would be faster.
        if used != tokens.size:
            raise SystemExit(f"{name}: {used} of {tokens.size} tokens came out")
        rows.append({**row, "state": "measured", **found[name],
                     "version": package and importlib.metadata.version(package),
                     "rows": made, "fill": used / (made * TOKENS)})
    return {"bench": "pack_peers", **machine.facts(),
            "cores_used": len(os.sched_getaffinity(0)),
            "other_cores": others.cores, "documents": flags.documents,
            "mean": flags.mean, "row": TOKENS, "tokens": int(tokens.size),
            "rounds": flags.rounds, "cases": rows}


def show(result):
    print(f"{result['cpu']}, {result['cores_used']} of {result['cores']} cores, others "
          f"kept {result['other_cores']} busy; {result['documents']} documents, "
          f"{result['tokens'] / 1e6:.1f} M tokens, rows of {result['row']}\n")
    print("| M tokens/s | by the clock | of processor time | filled |")
    print("| --- | ---: | ---: | ---: |")
    for row in result["cases"]:
        name, _, how = row["case"].partition(", ")
        name = f"{name} {row['version']}" if row.get("version") else name
        if row["state"] != "measured":
            print(f"| {name}, {how} | {row['state']}: {row['why']} | | |")
            continue
        speed = lambda seconds: f"{result['tokens'] / row[seconds] / 1e6:.0f}"
        print(f"| {name}, {how} | {speed('clock_seconds')} | {speed('seconds')} | "
              f"{row['fill']:.5f} |")


def main():
    flags = parse_flags()
    if flags.show:
        return show(json.loads(flags.show.read_text(encoding="utf-8")))
    result = measure(flags)
    show(result)
    machine.keep_where_asked(result, flags)


if __name__ == "__main__":
    main()
