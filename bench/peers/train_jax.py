"""Times steps of training in JAX: the model of tests/model/jax_model.py, dense
masks, jax.checkpoint around each block, AdamW, parameters and moments donated.
Blocks are one jax.lax.scan. With a Python loop, XLA for CPUs would merge the
recomputation with the first computation, and keep the scores of all blocks.

    python train_jax.py rows/rows-00000.safetensors model.json --steps 5

Prints one JSON object: seconds of each step after the first, which compiles,
losses, and the peak of memory.
"""

import argparse
import json
import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

sys.path[:0] = [str(pathlib.Path(__file__).parents[2] / folder)
                for folder in ("tests/model", "python/tests")]
from jax_model import adamw, block, legal_pairs, loss_of  # noqa: E402
from peak_memory import peak_kib  # noqa: E402
from tensor_file import load, parameters  # noqa: E402


def mean_loss(p, row, m):
    """The mean_loss of jax_model, with its blocks, which must be alike, in one
    loop of XLA."""
    if len(m.get("windows") or [0]) > 1:
        raise SystemExit("train_jax: a scan needs blocks with one window")
    names = [k.split(".", 2)[2] for k in p if k.startswith("layers.0.")]
    stacked = {f"layers.0.{k}": jnp.stack(
        [p[f"layers.{i}.{k}"] for i in range(m["layers"])]) for k in names}
    x = p["embedding.weight"][row["input_ids"]] * m.get("embedding_scale", 1)
    positions, legal = row["positions"].astype(x.dtype), legal_pairs(row["doc_ids"])

    @jax.checkpoint
    def one(x, weights):
        return block(weights, 0, x, positions, legal, m), None

    x, _ = jax.lax.scan(one, x, stacked)
    return loss_of(p, x, row, m)


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("rows")
    flags.add_argument("model")
    flags.add_argument("--start", required=True,
                       help="a checkpoint of `tessera train`")
    flags.add_argument("--steps", type=int, default=5)
    flags.add_argument("--rate", type=float, default=3e-4)
    args = flags.parse_args()
    rows = load(args.rows)
    with open(args.model) as f:
        m = json.load(f)
    p = {k: jnp.asarray(v) for k, v in parameters(args.start).items()}
    first = {k: jnp.zeros_like(v) for k, v in p.items()}
    second = {k: jnp.zeros_like(v) for k, v in p.items()}

    def step(p, first, second, row, t):
        loss, grads = jax.value_and_grad(mean_loss)(p, row, m)
        return loss, adamw(p, first, second, grads, t, args.rate)

    step = jax.jit(step, donate_argnums=(0, 1, 2))
    losses, seconds = [], []
    columns = ("input_ids", "target_ids", "loss_mask", "positions", "doc_ids")
    for t in range(1, args.steps + 2):
        row = {k: rows[k][t - 1:t] for k in columns}
        begin = time.perf_counter()
        loss, (p, first, second) = step(p, first, second, row, float(t))
        losses.append(float(loss))
        jax.block_until_ready(p)
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({
        "losses": losses,
        "version": f"jax {jax.__version__}",
        "seconds": seconds[1:],
        "peak_mib": peak_kib() // 1024,
    }))


if __name__ == "__main__":
    main()
