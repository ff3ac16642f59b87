#!/usr/bin/env python3
"""Trains one layer of attention on a row that is divided over processes, in JAX:
tokens along "seq", heads over the devices of each. Every process plans the whole
row, which takes microseconds, and holds its own part of it. On one machine:

    pip install '.[jax]'
    python examples/python/train_long_row.py --process 0 --processes 2 &
    python examples/python/train_long_row.py --process 1 --processes 2

On several machines, `--coordinator HOST:PORT` is the address of process 0. If a
process dies, the others end with an error.
"""

import argparse
import os
import signal

arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
arguments.add_argument("--process", type=int, default=0)
arguments.add_argument("--processes", type=int, default=1)
arguments.add_argument("--devices", type=int, default=2, help="devices of each process")
arguments.add_argument("--coordinator", default="127.0.0.1:7421")
arguments.add_argument("--steps", type=int, default=8)
arguments.add_argument("--out", help="process 0 writes losses and weights here")
arguments.add_argument("--die-before", type=int, metavar="STEP",
                       help="kill this process there, to see what happens")
asked = arguments.parse_args()
os.environ["XLA_FLAGS"] = (
    f"--xla_force_host_platform_device_count={asked.devices}")

import jax
import jax.numpy as jnp
import numpy as np
import tessera as ts
import tessera.jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

LENGTH, WIDTH, HEADS, KV_HEADS, DIM = 1024, 32, 8, 4, 16
TILE = 32


def ceilings(devices):
    """Ceilings of a device along seq that fit every row, so that one program
    serves all rows."""
    rows = LENGTH // TILE // devices
    text = f"rows={rows},steps=512"
    return text + (",kv=" + ":".join([str(rows)] * (devices - 1))
                   if devices > 1 else "")


def row(step):
    """Tokens, document ids and targets of a row."""
    rng = np.random.default_rng(step % 2)
    ids = np.sort(rng.integers(0, 6, LENGTH)).astype(np.int32)
    x = rng.standard_normal((1, LENGTH, WIDTH), np.float32)
    return x, ids, np.roll(x, 1, 1)


def loss_of(weights, x, target, shards):
    q, k, v = (jnp.einsum("btd,hdc->bhtc", x, w) for w in weights[:3])
    out = tessera.jax.sharded_attention(q, k, v, shards)
    made = jnp.einsum("bhtc,hcd->btd", out, weights[3])
    return ((made - target) ** 2).sum() / LENGTH


def step(weights, x, target, shards):
    loss, gradients = jax.value_and_grad(loss_of)(weights, x, target, shards)
    return loss, [w - 0.02 * g for w, g in zip(weights, gradients)]


def main():
    if asked.processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(asked.coordinator, asked.processes,
                                   asked.process, heartbeat_timeout_seconds=10)
    mesh = Mesh(np.array(jax.devices()).reshape(-1, 2), ("seq", "head"))
    axes = ",".join(f"{name}={n}" for name, n in mesh.shape.items())
    by_tokens = NamedSharding(mesh, P(None, "seq", None))
    by_heads = NamedSharding(mesh, P("head", None, None))
    put = lambda x, place: jax.make_array_from_callback(
        x.shape, place, lambda at: x[at])
    train = jax.jit(step, out_shardings=(None, [by_heads] * 4))

    rng = np.random.default_rng(0)
    shapes = [(HEADS, WIDTH, DIM), (KV_HEADS, WIDTH, DIM),
              (KV_HEADS, WIDTH, DIM), (HEADS, DIM, WIDTH)]
    weights = [put(rng.standard_normal(s, np.float32) * s[1] ** -0.5, by_heads)
               for s in shapes]
    losses = []
    for at in range(asked.steps):
        if at == asked.die_before:
            os.kill(os.getpid(), signal.SIGKILL)
        x, ids, target = row(at)
        batch = ts.plan(ts.causal & ts.documents, q_len=LENGTH, doc_ids=ids,
                        tile=(TILE, TILE))
        of = ts.shard(batch, axes, heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM,
                      dtype="f32", ceilings=ceilings(mesh.shape["seq"]))
        # A real data loader would read only the tokens of its own places. Here
        # every place has a token; with other lengths a place may have none
        # (-1), and must not count in the loss.
        order = of.query_order[0]
        assert (order >= 0).all()
        there = lambda tokens: put(tokens[:, order], by_tokens)
        loss, weights = train(weights, there(x), there(target),
                              tessera.jax.shard_arrays(of, mesh))
        losses.append(float(loss))
        if asked.process == 0:
            print(f"step {at}: loss {losses[-1]:.6f}", flush=True)
    if asked.process == 0:
        print(f"compiles: {train._cache_size()}")
    # Heads are split only within a process, so each process has all weights.
    whole = [np.concatenate([np.asarray(shard.data) for shard in sorted(
        {s.index[0].start or 0: s for s in w.addressable_shards}.values(),
        key=lambda s: s.index[0].start or 0)]) for w in weights]
    if asked.out and asked.process == 0:
        np.savez(asked.out, losses=losses, **dict(zip("qkvo", whole)))


main()
