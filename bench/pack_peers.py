#!/usr/bin/env python3
"""tessera.data.Loader beside TRL's, grain's and axolotl's packing: documents of lognormal
lengths, tokens and all, to rows of one length with their loss masks. By the processor's
time, that of all threads, which is what one core takes, and by the clock; each the best
of several rounds after one that warms up. Row fill counts every row that was made.

    pip install grain==0.2.18 trl==1.16.0 pyarrow==26.0.1 numba
    pip install --no-deps axolotl==0.19.0
    PYTHONPATH=build/python taskset -c 1 PYTHON bench/pack_peers.py -o FILE
"""

import argparse
import json
import os
import time

import numpy as np
import pyarrow as pa
import tessera.data

TOKENS, ROWS = 8192, 8
BINS = 512  # grain's window; ours holds 4,096 rows


def documents(n, mean, seed=1):
    """No document is longer than a row: grain takes none, TRL cuts them."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(np.log(mean) - 0.5, 1, n), 1, TOKENS)
    ends = np.cumsum(lengths.astype(np.int64))
    tokens = rng.integers(1, 50_000, ends[-1], np.int32)
    return tokens, np.concatenate(([0], ends))


def ours(strategy):
    def run(tokens, ends, table):
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
    """Its own Arrow path, one chunk in memory; masks and position_ids are left
    to its collator."""
    from trl.data_utils import _pack_bfd
    packed = _pack_bfd(table, TOKENS, "split")  # "truncate" is slower
    return packed.num_rows, len(packed["input_ids"].chunks[0].values)


def axolotl(tokens, ends, table):
    """It packs lengths, in groups and bins of its defaults; what its collator
    makes of them is made as that does, and padded."""
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


CASES = {
    "tessera, bestfit": ours("bestfit"),
    "tessera, by cost": ours("cost"),
    "TRL 1.16, best fit decreasing": trl,
    "grain 0.2.18, first fit": grain_packing("First"),
    "grain 0.2.18, best fit": grain_packing("Best"),
    "axolotl 0.19, first fit": axolotl,
}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--documents", type=int, default=20_000)
    arguments.add_argument("--mean", type=float, default=1500)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("-o", "--out")
    a = arguments.parse_args()
    tokens, ends = documents(a.documents, a.mean)
    table = pa.table({"input_ids": pa.ListArray.from_arrays(
        pa.array(ends.astype(np.int32)), pa.array(tokens))})
    print(f"load {os.getloadavg()[0]:.1f}; {a.documents} documents, "
          f"{tokens.size / 1e6:.1f} M tokens, rows of {TOKENS}")
    found = {}
    for name, run in CASES.items():
        seconds, clock = [], []
        run(tokens, ends, table)  # imports, and what else is once
        for _ in range(a.rounds):
            started, clocked = time.process_time(), time.perf_counter()
            rows, used = run(tokens, ends, table)
            seconds.append(time.process_time() - started)
            clock.append(time.perf_counter() - clocked)
        # What is lost would be a faster packer.
        if used != tokens.size:
            raise SystemExit(f"{name}: {used} of {tokens.size} tokens came out")
        fill = used / (rows * TOKENS)
        found[name] = {"seconds": min(seconds), "clock_seconds": min(clock),
                       "rows": rows, "fill": fill,
                       "documents_per_second": a.documents / min(seconds),
                       "tokens_per_second": tokens.size / min(seconds)}
        print(f"{name:32} {a.documents / min(seconds) / 1e3:8.1f} k documents/s "
              f"{tokens.size / min(seconds) / 1e6:8.1f} M tokens/s "
              f"{tokens.size / min(clock) / 1e6:8.1f} by the clock   fill {fill:.5f}",
              flush=True)
    if a.out:
        with open(a.out, "w", encoding="utf-8") as f:
            json.dump({"bench": "pack_peers", "documents": a.documents, "mean": a.mean,
                       "tokens": TOKENS, "rounds": a.rounds, "cases": found}, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
