#!/usr/bin/env python3
"""Files packed on many machines by Ray Data: each file by itself, so that rows
are the same for any number of workers.

    pip install "ray[data]==2.60.0"
    python examples/python/rows_with_ray.py [--workers 4] [--out ROWS] FILE...

Files are JSON lines, Parquet or Arrow IPC. Rows come back in the order of the
files, and go to Parquet files of the folder ROWS where it is named.
"""

import argparse
import hashlib

import numpy as np
import ray
import tessera.data


def pack(paths, **options):
    """Rows of each file, some at a time: a dict of arrays [rows, ...]."""
    for path in paths["item"]:
        for row in tessera.data.Loader(str(path), **options):
            yield {name: array[:row["filled"]] for name, array in row.items()
                   if isinstance(array, np.ndarray)}


def rows_of(files, workers, **options):
    """A Ray Dataset of rows."""
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    return ray.data.from_items(files, override_num_blocks=len(files)).map_batches(
        pack, batch_size=1, fn_kwargs=options, concurrency=workers)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("files", nargs="+", metavar="FILE")
    arguments.add_argument("--workers", type=int, default=4)
    arguments.add_argument("--tokens", type=int, default=1024)
    arguments.add_argument("--out")
    a = arguments.parse_args()
    ray.init(num_cpus=a.workers, include_dashboard=False, logging_level="error",
             log_to_driver=False)
    rows = rows_of(a.files, a.workers, tokens=a.tokens, strategy="cost").materialize()
    digest, tokens = hashlib.sha256(), 0
    for batch in rows.iter_batches(batch_size=1):
        for name in sorted(batch):
            digest.update(np.ascontiguousarray(batch[name]).tobytes())
        tokens += int(batch["valid_token_count"].sum())
    if a.out:
        rows.write_parquet(a.out)
    print(f"{rows.count()} rows, {tokens} tokens, {digest.hexdigest()}")


if __name__ == "__main__":
    main()
