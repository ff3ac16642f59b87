#!/usr/bin/env python3
"""Packed rows as a PyTorch IterableDataset.

    python examples/python/rows_with_torch.py [--tokens 1024] [--rows 4] FILE...

Files are JSON lines, Parquet or Arrow IPC. A thread of the library packs and plans
rows ahead, so no DataLoader worker is needed. With DataLoader workers each worker
takes a part of the files, so the rows depend on the number of workers. The
option workers= of tessera.data.Loader reads with more threads and gives the same
rows. With several ranks each rank takes every nth file.
"""

import argparse

import numpy as np
import tessera.data
import torch
from torch.utils.data import IterableDataset, get_worker_info


class Rows(IterableDataset):
    """Batches of tessera.data.Loader(files, **options), as tensors that share its
    memory. Batches from a DataLoader worker lack `batch`, which cannot leave its
    process: make it from doc_ids and valid_token_count with tessera.plan.
    state_dict() works only without DataLoader workers."""

    def __init__(self, files, **options):
        super().__init__()
        self._files, self._options = list(files), options
        self._state = self._last = self.account = None

    def __iter__(self):
        worker = get_worker_info()
        files = self._files
        if worker is not None:
            files = files[worker.id::worker.num_workers]
        if not files:
            return
        state, self._state = self._state, None
        with tessera.data.Loader(files, **self._options, state=state) as loader:
            for row in loader:
                self._last = loader.state()
                yield {name: torch.from_numpy(value) if isinstance(value, np.ndarray)
                       else value for name, value in row.items()
                       if name != "batch" or worker is None}
            self.account = loader.account()

    def state_dict(self):
        """The position after the last batch that was returned."""
        return {"rows": self._last}

    def load_state_dict(self, state):
        self._state = self._last = state["rows"]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("files", nargs="+", metavar="FILE")
    arguments.add_argument("--tokens", type=int, default=1024)
    arguments.add_argument("--rows", type=int, default=4)
    a = arguments.parse_args()
    dataset = Rows(a.files, tokens=a.tokens, rows=a.rows, strategy="cost")
    # batch_size=None, because the dataset returns whole batches.
    for number, row in enumerate(torch.utils.data.DataLoader(dataset, batch_size=None)):
        print(f"batch {number}: {tuple(row['input_ids'].shape)}, "
              f"{row['batch'].statistics()['tiles_active']} tiles")
    of = dataset.account
    print(f"{of['documents']} documents, {of['tokens_in']} tokens in, "
          f"{of['tokens_out']} out, {of['tokens_dropped']} dropped "
          f"({of['dropped_by']}), {of['padding']} of padding")


if __name__ == "__main__":
    main()
