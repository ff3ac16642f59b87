"""PyTorch's planner of a block mask, on the mask of `tessera-bench blocks`.

FlexAttention makes its lists from a dense block mask in the private function
`_create_sparse_block_from_block_mask`, which other versions may not have. This
makes one list, as for partial blocks, and its transposed list; a second list of
full blocks would take as long again. Every list is compared to ours. Prints one
line of JSON.
"""

import argparse
import json
import time

import numpy as np
import torch
from torch.nn.attention import flex_attention

CALL = "_create_sparse_block_from_block_mask"
BLOCK = 128


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--mask", required=True, help="int32 .npy [heads, rows, columns], 0 or 1")
    for name in ("forward", "transposed"):
        add(f"--{name}", required=True, help="int32 .npy, the blocks of all lines")
        add(f"--{name}-start", required=True, help="where each begins, and the end")
    add("--threads", type=int, default=1)
    add("--seconds", type=float, default=2)
    return parser.parse_args()


def is_same(counts, indices, blocks, start):
    """Whether each line has these blocks. `counts` is [heads, lines], `indices`
    [heads, lines, blocks], of which the first count[...] are valid."""
    counts = counts[0].numpy().ravel()
    if not np.array_equal(counts, np.diff(start)):
        return False
    indices = indices[0].numpy().reshape(len(counts), -1)
    meant = np.arange(indices.shape[1]) < counts[:, None]
    return bool(np.array_equal(indices[meant], blocks))


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    mask = torch.from_numpy(np.load(args.mask))[None]
    _, _, rows, columns = mask.shape
    plan = getattr(flex_attention, CALL)
    best, runs, start = float("inf"), 0, time.perf_counter()
    while runs < 3 or time.perf_counter() - start < args.seconds:
        begin = time.perf_counter()
        made = plan((mask, None), None, (rows * BLOCK, columns * BLOCK), BLOCK, BLOCK)
        best = min(best, time.perf_counter() - begin)
        runs += 1
    same = is_same(
        made.kv_num_blocks, made.kv_indices,
        np.load(args.forward), np.load(args.forward_start),
    ) and is_same(
        made.q_num_blocks, made.q_indices,
        np.load(args.transposed), np.load(args.transposed_start),
    )
    line = {"peer": "flex", "call": CALL, "us": round(best * 1e6, 1),
            "runs": runs, "versions": {"torch": torch.__version__}}
    if not same:
        line["why"] = "its lists are others"
    print(json.dumps(line), flush=True)


main()
