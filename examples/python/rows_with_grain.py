#!/usr/bin/env python3
"""Packed rows as a grain dataset, with grain's checkpoints.

    pip install grain==0.2.18
    python examples/python/rows_with_grain.py [--tokens 1024] [--rows 4] FILE...

Files are JSON lines, Parquet or Arrow IPC. With several processes each takes
every nth file: Rows(files[process::processes], ...).
"""

import argparse

import grain
import tessera.data


class Rows(grain.IterDataset):
    """Batches of tessera.data.Loader(files, **options). `account` says where all
    tokens went, when an iterator of this process has come to its end."""

    def __init__(self, files, **options):
        super().__init__()
        self._files, self._options = files, options
        self.account = None

    def __iter__(self):
        return RowsIterator(self, self._files, self._options)


class RowsIterator(grain.DatasetIterator):
    def __init__(self, rows, files, options):
        super().__init__()
        self._rows = rows
        self._open = lambda state: tessera.data.Loader(files, **options, state=state)
        self._loader = self._open(None)

    def __next__(self):
        try:
            return next(self._loader)
        except StopIteration:
            self._rows.account = self._loader.account()
            raise

    def get_state(self):
        return self._loader.state()

    def set_state(self, state):
        self._loader.close()
        self._loader = self._open(state)

    def close(self):
        self._loader.close()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("files", nargs="+", metavar="FILE")
    arguments.add_argument("--tokens", type=int, default=1024)
    arguments.add_argument("--rows", type=int, default=4)
    a = arguments.parse_args()
    # Any transformation of grain may follow here.
    rows = Rows(a.files, tokens=a.tokens, rows=a.rows, strategy="cost")
    dataset = rows.map(
        lambda row: (row["input_ids"], row["target_ids"], row["loss_mask"], row["batch"]))
    batches = iter(dataset)
    state = first = None
    for number, (ids, targets, loss, batch) in enumerate(batches):
        print(f"batch {number}: {ids.shape[0]} rows, {loss.sum()} targets, "
              f"{batch.statistics()['tiles_active']} tiles")
        if number == 0:
            state = batches.get_state()  # a checkpoint would keep it
        elif first is None:
            first = ids
    of = rows.account
    print(f"{of['documents']} documents, {of['tokens_in']} tokens in, "
          f"{of['tokens_out']} out, {of['tokens_dropped']} dropped "
          f"({of['dropped_by']}), {of['padding']} of padding")
    if first is not None:
        again = iter(dataset)
        again.set_state(state)
        assert (next(again)[0] == first).all()
        print("resumed after batch 0: the same rows")


if __name__ == "__main__":
    main()
