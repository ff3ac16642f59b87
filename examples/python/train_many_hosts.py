#!/usr/bin/env python3
"""Trains one layer of attention over several processes, in JAX: rows are spread
over processes, heads over the devices of each. Every process plans its own rows
and no others. On one machine:

    pip install '.[jax]'
    python examples/python/train_many_hosts.py --process 0 --processes 2 &
    python examples/python/train_many_hosts.py --process 1 --processes 2

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
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

ROWS, LENGTH, WIDTH, HEADS, KV_HEADS, DIM = 4, 256, 32, 8, 4, 16
MASK = ts.causal & ts.documents


def row(step, at):
    """Tokens, document ids and targets of a row. Any process can make any row."""
    rng = np.random.default_rng([step % 2, at])
    ids = np.sort(rng.integers(0, 6, LENGTH)).astype(np.int32)
    x = rng.standard_normal((LENGTH, WIDTH), np.float32)
    return x, ids, np.roll(x, 1, 0)


def plan(ids):
    return ts.plan(MASK, q_len=LENGTH, doc_ids=ids, tile=(32, 32), max_steps=64)


def local_loss(weights, x, batches, target):
    """The loss of this device's rows and heads only."""
    total = 0.0
    for i in range(x.shape[0]):
        q, k, v = (jnp.einsum("td,hdc->htc", x[i], w)[None] for w in weights[:3])
        batch = jax.tree.map(lambda leaf: leaf[i], batches)
        out = tessera.jax.attention(q, k, v, batch)[0]
        made = jnp.einsum("htc,hcd->htd", out, weights[3])
        total += ((made - target[i]) ** 2).sum() / (ROWS * HEADS * LENGTH)
    return total


def step(weights, x, batches, target):
    loss, gradients = jax.value_and_grad(local_loss)(weights, x, batches, target)
    gradients = jax.lax.psum(gradients, "data")
    weights = [w - 0.2 * g for w, g in zip(weights, gradients)]
    return jax.lax.psum(loss, ("data", "head")), weights


def main():
    if asked.processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(asked.coordinator, asked.processes,
                                   asked.process, heartbeat_timeout_seconds=10)
    per_row = min(asked.devices, 2)
    mesh = jax.make_mesh((jax.device_count() // per_row, per_row),
                         ("data", "head"))
    by_rows, by_heads = P("data"), P("head", None, None)
    train = jax.jit(jax.shard_map(
        step, mesh=mesh, in_specs=(by_heads, by_rows, by_rows, by_rows),
        out_specs=(P(), by_heads), check_vma=False))

    rng = np.random.default_rng(0)
    shapes = [(HEADS, WIDTH, DIM), (KV_HEADS, WIDTH, DIM),
              (KV_HEADS, WIDTH, DIM), (HEADS, DIM, WIDTH)]
    spread = lambda spec, array: jax.make_array_from_callback(
        array.shape, NamedSharding(mesh, spec), lambda index: array[index])
    weights = [spread(by_heads,
                      rng.standard_normal(s, np.float32) * s[1] ** -0.5)
               for s in shapes]
    mine = range(ROWS * asked.process // asked.processes,
                 ROWS * (asked.process + 1) // asked.processes)
    losses = []
    for at in range(asked.steps):
        if at == asked.die_before:
            os.kill(os.getpid(), signal.SIGKILL)
        rows = [row(at, i) for i in mine]
        together = lambda leaves: jax.make_array_from_process_local_data(
            NamedSharding(mesh, by_rows), np.stack(leaves))
        batches = jax.tree.map(lambda *leaves: together(leaves),
                               *[plan(ids) for _, ids, _ in rows])
        loss, weights = train(weights, together([x for x, _, _ in rows]),
                              batches, together([t for _, _, t in rows]))
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
