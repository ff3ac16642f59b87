#!/usr/bin/env python3
"""Measures what Python adds: `ts.plan` at 32 Ki tokens and the planner's share
of it; from ids to a kernel's arrays, on one device and on four; and a jitted
call of tessera.jax.attention compared to an empty one. Times are the best of
many rounds, in us. A load above 1 is that of other processes.

    PYTHONPATH=build/python .venv/bin/python bench/python_overhead.py [-o FILE]
"""

import argparse
import json
import os
import pathlib
import timeit

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
import tessera as ts
import tessera.jax


MASK = ts.causal & ts.documents


def best(call, number=200, rounds=25):
    call()
    return min(timeit.repeat(call, number=number, repeat=rounds)) / number * 1e6


def packed(length, documents, seed=0):
    return np.sort(np.random.default_rng(seed).integers(
        0, documents, length)).astype(np.int32)


def planned(mask, length, ids, number=200, rounds=25):
    """The time of a call in the best round, and the planner's share of it."""
    def one():
        begun, inside = timeit.default_timer(), 0.0
        for _ in range(number):
            inside += ts.plan(mask, q_len=length, doc_ids=ids).plan_ms
        whole = timeit.default_timer() - begun
        return whole / number * 1e6, inside / number * 1e3
    one()
    return min(one() for _ in range(rounds))


def plans():
    rows = []
    for length, documents in ((64, 2), (4096, 8), (32768, 32)):
        ids = packed(length, documents)
        whole, inside = planned(MASK, length, ids)
        rows += [[f"plan {length}", "tessera", whole],
                 [f"plan {length}, binding alone", "tessera", whole - inside]]
        print(f"plan {length:6d} tokens: {whole:7.2f} us, of it the planner "
              f"{inside:.2f}, so the binding adds {whole - inside:.2f}")
    return rows


def batch_of(ids, tile):
    return ts.plan(MASK, q_len=ids.size, doc_ids=ids, tile=tile, max_steps=1024)


def loops():
    ids = packed(32768, 32)
    print("32768 tokens, ids in, all arrays out:")
    leaves = best(lambda: jax.tree.leaves(batch_of(ids, (256, 256))))
    rows = [["loop 32768, CPU kernels", "tessera", leaves]]
    print(f"  of a batch, as the CPU kernels take it: {leaves:.1f} us")
    kernels = [ts.compile(batch_of(ids, (512, 256)), heads=8, backward=backward)
               for backward in (False, True)]
    for kernel, name in zip(kernels, ("forward", "backward")):
        arrays = best(lambda: kernel.arrays(batch_of(ids, (512, 256))))
        rows.append([f"loop 32768, TPU {name}", "tessera", arrays])
        print(f"  as the TPU's {name} kernel takes it: {arrays:.1f} us")
    return rows


def shards():
    batch = batch_of(packed(32768, 32), (512, 256))
    spread = lambda: ts.shard(batch, "seq=4", heads=32, kv_heads=8,
                              head_dim=128)
    few = dict(number=1, rounds=200)
    one = best(spread, **few)
    rows = [["shard 32768 on 4", "tessera", one]]
    print(f"32768 tokens on 4 devices, 32 heads on 8: spread in {one:.1f} us")
    for name, backward in (("forward", False), ("backward", True)):
        made, _ = spread().kernel_integers("v6e", backward)
        integers = best(lambda: spread().kernel_integers("v6e", backward),
                        **few)
        rows.append([f"shard 32768 on 4, TPU {name}", "tessera", integers])
        print(f"  spread, and what the TPU's {name} kernel reads, "
              f"{sum(a.nbytes for a in made.values()) / 2**20:.1f} MiB: "
              f"{integers:.1f} us")
    return rows


def jits():
    rows = []
    for length in (16, 256, 1024):
        q = jax.device_put(np.zeros((1, 1, length, 8), np.float32))
        batch = jax.device_put(ts.plan(MASK, q_len=length,
                                       doc_ids=packed(length, 2)))
        empty = jax.jit(lambda q, k, v, batch: q)  # jax drops unused arguments
        taking = jax.jit(lambda q, k, v, batch: q, keep_unused=True)
        full = jax.jit(tessera.jax.attention)
        numpy_q, host = np.asarray(q), ts.plan(
            MASK, q_len=length, doc_ids=packed(length, 2))
        run = lambda f: best(lambda: jax.block_until_ready(f(q, q, q, batch)))
        nothing, same, attention = run(empty), run(taking), run(full)
        session = ts.Session("cpu")
        ready = session.prepare(host, heads=1, head_dim=8)
        alone = best(lambda: ready.forward(numpy_q, numpy_q, numpy_q))
        rows += [[f"jit {length}", "tessera", attention],
                 [f"jit {length}", "an empty call", nothing],
                 [f"jit {length}", "an empty call of the same arrays", same]]
        print(f"jit {length:5d} tokens: empty {nothing:6.1f} us, of the same "
              f"arrays {same:.1f}, attention {attention:6.1f}, so "
              f"{attention - nothing:.1f} and {attention - same:.1f} above; a "
              f"prepared call from NumPy {alone:.1f}")
    return rows


PARTS = {"plans": plans, "loops": loops, "shards": shards, "jits": jits}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART",
                        help=", ".join(PARTS) + "; all where none is named")
    parser.add_argument("-o", "--out", type=pathlib.Path, metavar="FILE.json")
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    rows = []  # for bench/python_figures.py: what, who, value in us
    for part in args.parts or PARTS:
        if part not in PARTS:
            parser.error(f"a part must be of {', '.join(PARTS)}, found {part}")
        rows += PARTS[part]()
    if args.out:
        args.out.write_text(json.dumps(
            [{"what": what, "who": who, "value": value, "unit": "us"}
             for what, who, value in rows]))


if __name__ == "__main__":
    main()
