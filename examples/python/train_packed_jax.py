#!/usr/bin/env python3
"""Trains a small language model on packed documents, in JAX, twice: with
tessera.jax.attention and with a dense mask. The losses are the same.

    pip install '.[jax]'
    python examples/python/train_packed_jax.py --steps 20
"""

import argparse
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import tessera as ts
import tessera.jax

VOCABULARY, WIDTH, HEADS, KV_HEADS, LAYERS = 64, 64, 4, 2, 2
DIM = WIDTH // HEADS
MASK = ts.causal & ts.documents


def roundings(length):
    """The allowed difference of the two losses in one step, in roundings. The two
    ways differ only in attention: each layer of each has float32 sums over DIM and
    twice over the keys of a document, at most a third of the length. A sum of n
    terms errs by 8 + sqrt(n) roundings (src/lanes/reference/bound.cc). Over 20
    steps of 1,024 tokens the difference was far smaller."""
    return 2 * LAYERS * sum(8 + n**0.5 for n in (DIM, length // 3, length // 3))


def pack(rng, length):
    """Packed documents, each of which counts upwards from a random number."""
    tokens, ids = np.zeros(length, np.int32), np.zeros(length, np.int32)
    at = document = 0
    while at < length:
        n = min(int(rng.integers(length // 16, length // 3)), length - at)
        tokens[at:at + n] = (rng.integers(VOCABULARY) +
                             np.arange(n) * rng.integers(1, 4)) % VOCABULARY
        ids[at:at + n] = document
        at, document = at + n, document + 1
    return tokens, ids


def parameters(rng):
    draw = lambda *shape: jnp.asarray(
        rng.standard_normal(shape, np.float32) * shape[0] ** -0.5)
    layer = lambda: dict(q=draw(WIDTH, HEADS * DIM), o=draw(WIDTH, WIDTH),
                         kv=draw(WIDTH, 2 * KV_HEADS * DIM),
                         up=draw(WIDTH, 4 * WIDTH), down=draw(4 * WIDTH, WIDTH))
    return dict(embed=draw(VOCABULARY, WIDTH), head=draw(WIDTH, VOCABULARY),
                layers=[layer() for _ in range(LAYERS)])


def dense_attention(q, k, v, ids):
    """The usual way: a dense mask of tokens by tokens."""
    place = jnp.arange(q.shape[1])
    legal = (place[:, None] >= place) & (ids[:, None] == ids)
    return jax.nn.dot_product_attention(q, k, v, mask=legal[None, None])


def sparse_attention(q, k, v, batch):
    return tessera.jax.attention(q, k, v, batch, layout="bshd")


def norm(x):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def loss(attend, params, tokens, documents, ids):
    x = params["embed"][tokens]
    for layer in params["layers"]:
        y = norm(x)
        split = lambda z, heads: z.reshape(1, -1, heads, DIM)
        k, v = jnp.split(y @ layer["kv"], 2, -1)
        seen = attend(split(y @ layer["q"], HEADS), split(k, KV_HEADS),
                      split(v, KV_HEADS), documents)
        x = x + seen.reshape(x.shape) @ layer["o"]
        x = x + jax.nn.silu(norm(x) @ layer["up"]) @ layer["down"]
    logits = jax.nn.log_softmax(norm(x) @ params["head"])[:-1]
    right = jnp.take_along_axis(logits, tokens[1:, None], -1)[:, 0]
    inside = ids[1:] == ids[:-1]  # the next token is of the same document
    return -(right * inside).sum() / inside.sum()


def train(attend, documents_of, length, steps, seed=0):
    """Returns the losses, the seconds of a step, the number of compiles, and the
    MiB of the step's temporary arrays."""
    rng = np.random.default_rng(seed)
    params = parameters(rng)

    @jax.jit
    def step(params, tokens, documents, ids):
        value, grads = jax.value_and_grad(functools.partial(loss, attend))(
            params, tokens, documents, ids)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    losses, started = [], 0
    for i in range(steps):
        tokens, ids = pack(rng, length)
        value, params = step(params, tokens, documents_of(ids), ids)
        losses.append(float(value))
        if i == 0:
            started = time.perf_counter()
    seconds = (time.perf_counter() - started) / max(1, steps - 1)
    compiles = step._cache_size()
    program = step.lower(params, tokens, documents_of(ids), ids).compile()
    held = program.memory_analysis().temp_size_in_bytes / 2**20
    return np.array(losses), seconds, compiles, held


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()

    tile = (64, 64)
    tiles = (args.length // tile[0]) * (args.length // tile[1] + 1) // 2

    def plan(ids):  # one ceiling for the run: one trace, one compile
        return ts.plan(MASK, q_len=args.length, doc_ids=ids, tile=tile,
                       max_steps=tiles)

    ours, seconds, compiles, held = train(sparse_attention, plan, args.length,
                                          args.steps)
    dense, dense_seconds, _, dense_held = train(
        dense_attention, lambda ids: ids, args.length, args.steps)
    for i in range(0, args.steps, max(1, args.steps // 10)):
        print(f"step {i:3d}  loss {ours[i]:.5f}  dense {dense[i]:.5f}")
    difference = np.abs(ours - dense).max()
    print(f"largest difference {difference:.1e}; {compiles} compile; a step "
          f"{seconds * 1e3:.1f} ms, dense {dense_seconds * 1e3:.1f} ms; it holds "
          f"{held:.1f} MiB, dense {dense_held:.1f} MiB")
    differ = np.abs(ours - dense) > roundings(args.length) * 2**-24 * dense
    if differ.any() or compiles != 1:
        raise SystemExit("the two runs differ")


if __name__ == "__main__":
    main()
