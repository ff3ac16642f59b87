#!/usr/bin/env python3
"""Files packed on many machines by Ray Data: each file by itself, so that rows
are the same for any number of workers.

    pip install "ray[data]==2.60.0"
    python examples/python/rows_with_ray.py [--workers 4] [--out ROWS] FILE...

Files are JSON lines, Parquet or Arrow IPC. Parquet is read by pyarrow, which Ray
installs. Ray's blocks are Arrow tables of rows, in the order of the files. With
--out, the rows of each file are also written to a Parquet file in the folder
ROWS, in the format of `tessera pack -o`, which `tessera train --data ROWS` reads.
"""

import argparse
import hashlib
import os
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
import tessera.data


def documents(path):
    """A source for the Loader: for Parquet a stream of Arrow batches, only some of
    which are in memory; else the path."""
    if not path.endswith(".parquet"):
        return path
    file = pq.ParquetFile(path)
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(256))


def table_of(batch, pad_id):
    """A loader's batch as an Arrow table: each column is int32, or fixed-size lists
    of int32."""
    columns = {}
    for name, array in batch.items():
        if not isinstance(array, np.ndarray):
            continue
        column = pa.array(array[:batch["filled"]].ravel())
        for size in reversed(array.shape[1:]):
            column = pa.FixedSizeListArray.from_arrays(column, size)
        columns[name] = column
    room = {"pad_id": pad_id, "max_chunks": batch["chunk_starts"].shape[1],
            "max_edges": batch["call_edges"].shape[1]}
    return pa.table(columns, metadata={k: str(v) for k, v in room.items()})


@ray.remote(num_cpus=0)
class Accounts:
    """The account of each file. A file that is packed again counts once."""

    def __init__(self):
        self._of = {}

    def add(self, number, account):
        self._of[number] = account

    def total(self):
        total = {name: sum(account[name] for account in self._of.values())
                 for name in ("documents", "tokens_in", "tokens_out", "tokens_dropped",
                              "rows", "padding")}
        # One rule for all files: they are packed with the same options.
        rules = {account["dropped_by"] for account in self._of.values()}
        return {**total, "dropped_by": ", ".join(rules)}


def pack(files, out=None, pad_id=0, accounts=None, **options):
    """Yields the rows of each file as Arrow tables, one for each batch."""
    for number, path in zip(files["number"], files["path"]):
        writer, part = None, out and os.path.join(out, f"rows-{number:05}.parquet")
        loader = tessera.data.Loader(documents(path), pad_id=pad_id, **options)
        for batch in loader:
            table = table_of(batch, pad_id)
            if out:
                writer = writer or pq.ParquetWriter(part + ".unfinished", table.schema)
                writer.write_table(table)
            yield table
        if writer:
            writer.close()
            os.rename(part + ".unfinished", part)
        if accounts:
            ray.get(accounts.add.remote(int(number), loader.account()))


def rows_of(files, workers, **options):
    """A Ray Dataset of rows."""
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    items = [{"number": n, "path": str(path)} for n, path in enumerate(files)]
    return ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
        pack, batch_size=1, fn_kwargs=options, concurrency=workers)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("files", nargs="+", metavar="FILE")
    arguments.add_argument("--workers", type=int, default=4)
    arguments.add_argument("--tokens", type=int, default=1024)
    arguments.add_argument("--out", help="a new folder")
    a = arguments.parse_args()
    out = None
    if a.out:
        out = pathlib.Path(a.out).absolute()  # workers have other working folders
        out.mkdir()
    ray.init(num_cpus=a.workers, include_dashboard=False, logging_level="error",
             log_to_driver=False)
    accounts = Accounts.remote()
    rows = rows_of(a.files, a.workers, out=out and str(out), tokens=a.tokens,
                   strategy="cost", accounts=accounts).materialize()
    digest, tokens = hashlib.sha256(), 0
    for row in rows.iter_batches(batch_size=1, batch_format="pyarrow"):
        for name in sorted(row.column_names):
            column = row[name].combine_chunks()
            while pa.types.is_fixed_size_list(column.type):
                column = column.flatten()
            digest.update(column.to_numpy().tobytes())
            if name == "valid_token_count":
                tokens += column[0].as_py()
    print(f"{rows.count()} rows, {tokens} tokens, {digest.hexdigest()}")
    of = ray.get(accounts.total.remote())
    assert (of["rows"], of["tokens_out"]) == (rows.count(), tokens)
    print(f"{of['documents']} documents, {of['tokens_in']} tokens in, "
          f"{of['tokens_out']} out, {of['tokens_dropped']} dropped "
          f"({of['dropped_by']}), {of['padding']} of padding")


if __name__ == "__main__":
    main()
