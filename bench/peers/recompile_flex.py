"""FlexAttention, compiled, on the batches of `tessera-bench recompile`.

Forward only, because it has no backward on the CPU. There are three ways.
`padded`: each batch is padded to the length of our bucket, as a careful user
would do. `dynamic`: every length as it is; torch.compile treats the length as a
variable from the second one on. `static`: dynamic=False, where a length is part
of the compiled code. Each prints a line of JSON: the number of compiles, the
time to build masks, and the time of runs. Every tenth batch is checked against
fp64 and the bounds of the judge.
"""

import argparse
import json
import pathlib
import sys
import time
import warnings

import numpy as np
import torch
import torch._dynamo
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python/tests"))
import judge

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
BLOCK = 128
JUDGED = 10  # one of so many batches is judged
MODES = ("padded", "dynamic", "static")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--ids", required=True, help="int32 .npy [batch, row, token]; -1 pads")
    add("--sizes", required=True, help="[batch, length, window, count a row]")
    add("--heads", type=int, default=4)
    add("--kv-heads", type=int, default=2)
    add("--head-dim", type=int, default=32)
    add("--dtype", choices=DTYPES, default="f32")
    add("--threads", type=int, default=2)
    add("--budget", type=float, default=500, help="seconds for all modes")
    return parser.parse_args()


def bucket(n):
    """The least 2^k or 1.5 * 2^k that is not below n."""
    up = 1 << (n - 1).bit_length()
    return up // 4 * 3 if up >= 4 and n <= up // 4 * 3 else up


class Batch:
    def __init__(self, ids, sizes, index, padded):
        self.length, self.window = int(sizes[index][0]), int(sizes[index][1])
        self.counts = sizes[index][2:]
        self.tokens = bucket(self.length) if padded else self.length
        self.ids = np.full((ids.shape[1], self.tokens), -1, np.int32)
        self.ids[:, : self.length] = ids[index][:, : self.length]
        # Tokens past the count are padding.
        for row, count in enumerate(self.counts):
            self.ids[row, count:] = -1

    def mask_mod(self):
        ids, left = torch.from_numpy(self.ids), self.window

        def legal(b, h, q, k):
            same = (ids[b, q] == ids[b, k]) & (ids[b, q] >= 0)
            return same & (q >= k) & (q - k <= left)

        return legal

    def legal(self, row):
        ids, at = self.ids[row], np.arange(self.tokens)
        same = (ids[:, None] == ids[None, :]) & (ids >= 0)[:, None]
        apart = at[:, None] - at[None, :]
        return same & (apart >= 0) & (apart <= self.window)


def worst(batch, dtype, q, k, v, out):
    """Errors of the last head: the largest as a share of the largest value, and
    the largest as a share of its bound."""
    error = largest = share = 0.0
    for row in range(len(q)):
        legal = batch.legal(row)
        some = legal.any(1)
        one = (x[row : row + 1, -1:] for x in (q, k, v))
        want, _ = judge.attention(*one, legal[None], dtype=dtype)
        want, got = want[0, 0][some], out[row, -1][some]
        error = np.maximum(error, np.abs(got - want.value).max())
        largest = max(largest, np.abs(want.value).max())
        share = max(share, judge.shares(got, want).max())
    return float(error / largest), float(share)


def compiled_graphs():
    return counters["stats"]["unique_graphs"]


def measure(args, ids, sizes, mode, end):
    torch._dynamo.reset()
    counters.clear()
    dynamic = False if mode == "static" else None
    run = torch.compile(flex_attention, dynamic=dynamic)
    dtype = DTYPES[args.dtype]
    random = np.random.default_rng(0)
    line = {
        "peer": "flex",
        "mode": mode,
        "batches": 0,
        "lengths": set(),
        "eager": 0,
        "mask_ms": 0.0,
        "compile_ms": 0.0,
        "run_ms": 0.0,
        "pairs": 0,
        "error": 0.0,
        "bound_share": 0.0,
    }
    for index in range(len(sizes)):
        if time.perf_counter() > end:
            line["why"] = f"no time was left after {index} batches"
            break
        batch = Batch(ids, sizes, index, mode == "padded")
        shape = (len(batch.ids), args.heads, batch.tokens, args.head_dim)
        kv = (shape[0], args.kv_heads, *shape[2:])
        q, k, v = (
            torch.from_numpy(random.standard_normal(s, np.float32)).to(dtype)
            for s in (shape, kv, kv)
        )
        begin = time.perf_counter()
        blocks = create_block_mask(
            batch.mask_mod(),
            shape[0],
            None,
            batch.tokens,
            batch.tokens,
            device="cpu",
            BLOCK_SIZE=BLOCK,
        )
        made = time.perf_counter()
        before = compiled_graphs()
        with warnings.catch_warnings(record=True) as said, torch.no_grad():
            warnings.simplefilter("always")
            out = run(q, k, v, block_mask=blocks, enable_gqa=True)
        done = time.perf_counter()
        line["batches"] += 1
        line["lengths"].add(batch.tokens)
        line["mask_ms"] += (made - begin) * 1e3
        compiled = compiled_graphs() > before
        line["compile_ms" if compiled else "run_ms"] += (done - made) * 1e3
        line["eager"] += any("without torch.compile" in str(w.message) for w in said)
        line["pairs"] += sum(int(batch.legal(r).sum()) for r in range(shape[0]))
        if index % JUDGED == 0:
            arrays = (x.float().numpy() for x in (q, k, v, out))
            name = str(dtype).removeprefix("torch.")
            found = worst(batch, name, *arrays)
            for key, value in zip(("error", "bound_share"), found):
                line[key] = max(line[key], value)
    line["compiles"] = compiled_graphs()
    line["lengths"] = len(line["lengths"])
    if not line["bound_share"] <= 1:
        line["why"] = f"its error is {line['bound_share']:.2g} of its bound"
    print(json.dumps(line), flush=True)


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    start = time.perf_counter()
    ids, sizes = np.load(args.ids), np.load(args.sizes)
    print(json.dumps({"versions": {"torch": torch.__version__}}), flush=True)
    for done, mode in enumerate(MODES, 1):
        end = start + args.budget * done / len(MODES)
        measure(args, ids, sizes, mode, end)


main()
