#!/usr/bin/env python3
"""Times tessera.jax.attention and jax.nn.dot_product_attention, both jitted, on
the CPU: packed documents, 8 heads, head dim 128, every core. XLA's attention
has the dense mask of the same pairs, or is called for each document, compiled
for these documents. Each time is the best of many rounds.

    PYTHONPATH=build/python .venv/bin/python bench/jax_attention.py [-o FILE]
"""

import argparse
import json
import os
import pathlib
import sys
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import tessera as ts
import tessera.jax
from packed_documents import starts

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python/tests"))
import judge

HEADS, DIM = 8, 128
JUDGED = 64  # queries of each head that are compared to fp64


def best(call, seconds):
    jax.block_until_ready(call())
    taken, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until or len(taken) < 3:
        started = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(time.perf_counter() - started)
    return min(taken)


def ours(q, k, v, batch):
    return tessera.jax.attention(q, k, v, batch, layout="bshd")


def dense(q, k, v, ids):
    place = jnp.arange(q.shape[1])
    legal = (place[:, None] >= place) & (ids[:, None] == ids)
    return jax.nn.dot_product_attention(q, k, v, mask=legal[None, None])


def per_document(edges):
    def attend(q, k, v, _):
        return jnp.concatenate([jax.nn.dot_product_attention(
            *(x[:, a:b] for x in (q, k, v)), is_causal=True)
            for a, b in zip(edges, edges[1:])], 1)
    return attend


def largest_share(out, arrays, ids):
    """The largest error of the sampled queries, as a share of its bound."""
    rows = np.linspace(0, len(ids) - 1, JUDGED).astype(int)
    legal = (ids[rows, None] == ids) & (rows[:, None] >= np.arange(len(ids)))
    heads_first = lambda x: np.asarray(x, np.float32).swapaxes(1, 2)
    q, k, v, out = map(heads_first, (*arrays, out))
    want, _ = judge.attention(q[:, :, rows], k, v, legal[None],
                              dtype=str(arrays[0].dtype))
    return judge.shares(out[:, :, rows], want).max()


def attention(tokens, dtype, seconds, rows):
    edges = [0, *starts(tokens), tokens]
    ids = np.repeat(np.arange(len(edges) - 1, dtype=np.int32), np.diff(edges))
    batch = ts.plan(ts.causal & ts.documents, q_len=tokens, doc_ids=ids,
                    tile=(128, 128))
    rng = np.random.default_rng(0)
    *arrays, dout = (jnp.asarray(rng.standard_normal(
        (1, tokens, HEADS, DIM), np.float32), dtype) for _ in range(4))
    pairs = int(batch.legal_pairs.sum()) * HEADS
    flops = lambda a_pair, taken: pairs * a_pair * DIM / taken / 1e9
    print(f"{tokens} tokens, {jnp.dtype(dtype).name}, useful GFLOP/s")
    for name, attend, facts in (
            ("tessera.jax", ours, jax.device_put(batch)),
            ("XLA a document", per_document(edges), None),
            ("XLA, dense mask", dense, jnp.asarray(ids))):
        call = jax.jit(attend)
        share = largest_share(call(*arrays, facts), arrays, ids)
        taken = best(lambda: call(*arrays, facts), seconds)
        step = jax.jit(lambda q, k, v, facts: jax.vjp(
            lambda *x: attend(*x, facts), q, k, v)[1](dout))
        both = best(lambda: step(*arrays, facts), seconds)
        what = f"JAX attention {tokens}, {jnp.dtype(dtype).name}"
        rows += [[what + ", forward", name, flops(4, taken)],
                 [what + ", with backward", name, flops(14, both)]]
        print(f"  {name:15s} forward {flops(4, taken):6.1f}, with backward "
              f"{flops(14, both):6.1f}; its error is {share:.2g} of its bound")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=4096,
                        choices=(1024, 4096, 8192))
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("-o", "--out", type=pathlib.Path, metavar="FILE.json")
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, "
          f"jax {jax.__version__}")
    rows = []  # for bench/python_figures.py: what, who, value in GFLOP/s
    for dtype in (jnp.float32, jnp.bfloat16):
        attention(args.tokens, dtype, args.seconds, rows)
    print(f"load {os.getloadavg()[0]:.1f}")
    if args.out:
        args.out.write_text(json.dumps(
            [{"what": what, "who": who, "value": value, "unit": "GFLOP/s"}
             for what, who, value in rows]))


if __name__ == "__main__":
    main()
