#!/usr/bin/env python3
"""Files of a folder as packed rows, and attention over each batch of them.

    python examples/python/pack_rows.py [FOLDER] [--tokens 1024] [--rows 4]

The tokens are bytes, so no tokenizer is needed. Documents may also be a pyarrow
Table, a Polars DataFrame, a DuckDB relation or files of JSON lines.
"""

import argparse
import pathlib

import numpy as np
import tessera as ts
import tessera.data

HEADS, DIM = 2, 16


def documents(folder):
    for path in sorted(pathlib.Path(folder).rglob("*.py")):
        yield np.frombuffer(path.read_bytes(), np.uint8)


def attention(tokens, batch):
    """One layer of attention over random embeddings of the tokens."""
    table = np.random.default_rng(0).standard_normal((256, HEADS, DIM), np.float32)
    x = np.ascontiguousarray(table[tokens].transpose(0, 2, 1, 3))
    return ts.attention(x, x, x, batch)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", nargs="?", default=pathlib.Path(__file__).parent)
    arguments.add_argument("--tokens", type=int, default=1024)
    arguments.add_argument("--rows", type=int, default=4)
    a = arguments.parse_args()

    def open_at(state=None):
        return tessera.data.Loader(documents(a.folder), tokens=a.tokens, rows=a.rows,
                                   strategy="cost", state=state)

    loader = open_at()
    state = first = None
    for number, row in enumerate(loader):
        batch = row["batch"]
        out = attention(row["input_ids"], batch)
        tiles = batch.statistics()
        print(f"batch {number}: {row['filled']} rows, "
              f"{row['num_docs'].sum()} documents, "
              f"{tiles['tiles_active']} of {tiles['tiles_total']} tiles, "
              f"mean of attention {out.mean():+.4f}")
        if number == 0:
            state = loader.state()  # a checkpoint would keep it
        elif first is None:
            first = row
    if first is not None:
        again = next(open_at(state))
        assert (again["input_ids"] == first["input_ids"]).all()
        print("resumed after batch 0: the same rows")
    account = loader.account()
    print(f"{account['documents']} documents, {account['tokens_in']} tokens in, "
          f"{account['tokens_out']} out, {account['tokens_dropped']} dropped "
          f"({account['dropped_by']}), {account['padding']} of padding, "
          f"rows {account['fill']:.4f} full")


if __name__ == "__main__":
    main()
