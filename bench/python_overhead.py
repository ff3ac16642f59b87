#!/usr/bin/env python3
"""What Python adds: `ts.plan` at 32 Ki tokens, and a jitted call of
tessera.jax.attention beside an empty one. The best of many rounds, in us.

    PYTHONPATH=build/python .venv/bin/python bench/python_overhead.py
"""

import os
import timeit

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
import tessera as ts
import tessera.jax


def best(call, number=200, rounds=25):
    call()
    return min(timeit.repeat(call, number=number, repeat=rounds)) / number * 1e6


def packed(length, documents, seed=0):
    return np.sort(np.random.default_rng(seed).integers(
        0, documents, length)).astype(np.int32)


def main():
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    mask = ts.causal & ts.documents
    for length, documents in ((64, 2), (4096, 8), (32768, 32)):
        ids = packed(length, documents)
        plan = lambda: ts.plan(mask, q_len=length, doc_ids=ids)
        inside = min(plan().plan_ms for _ in range(2000)) * 1e3
        print(f"plan {length:6d} tokens: {best(plan):7.2f} us, "
              f"of it the planner {inside:.2f}")
    ids = packed(32768, 32)
    leaves = lambda: jax.tree.leaves(
        ts.plan(mask, q_len=32768, doc_ids=ids, max_steps=1024))
    print(f"ids in, all arrays of the batch out: {best(leaves):.1f} us")
    for length in (16, 256, 1024):
        q = jax.device_put(np.zeros((1, 1, length, 8), np.float32))
        batch = jax.device_put(ts.plan(mask, q_len=length,
                                       doc_ids=packed(length, 2)))
        empty = jax.jit(lambda q, k, v, batch: q)
        full = jax.jit(tessera.jax.attention)
        numpy_q, host = np.asarray(q), ts.plan(
            mask, q_len=length, doc_ids=packed(length, 2))
        run = lambda f: best(lambda: jax.block_until_ready(f(q, q, q, batch)))
        session = ts.Session("cpu")
        ready = session.prepare(host, heads=1, head_dim=8)
        alone = best(lambda: ready.forward(numpy_q, numpy_q, numpy_q))
        print(f"jit {length:5d} tokens: empty {run(empty):6.1f} us, attention "
              f"{run(full):6.1f}, a prepared call from NumPy {alone:.1f}")


if __name__ == "__main__":
    main()
