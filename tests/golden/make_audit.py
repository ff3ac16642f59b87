#!/usr/bin/env python3
"""Writes tests/golden/audit/: programs for four devices as JAX writes them.

They have no source locations. Needs jax: the Python of .venv.
"""
import functools
import os
import pathlib

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent / "audit"
MESH = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "seq"))


def on_mesh(*axes):
    return NamedSharding(MESH, P(*axes))


def product(x, w):
    y = jax.lax.with_sharding_constraint(jnp.dot(x, w), on_mesh("data", None))
    return y.sum(), y


def exchange(x, w):
    """Every collective once, and one in a loop."""
    y = jax.lax.all_gather(x, "seq", axis=1, tiled=True)
    w = jax.lax.all_gather(w, "seq", axis=1, tiled=True)
    z = jax.lax.psum(y @ w, "seq")
    t = jax.lax.psum_scatter(y, "seq", scatter_dimension=1, tiled=True)
    swap = functools.partial(
        jax.lax.ppermute, axis_name="seq", perm=[(0, 1), (1, 0)])
    v = jax.lax.all_to_all(swap(t), "seq", 0, 1, tiled=True)
    v = jax.lax.all_to_all(v, "seq", 1, 0, tiled=True)
    v = jax.lax.scan(lambda c, _: (swap(c), None), v, None, length=3)[0]
    return v, z, jax.lax.psum(v.sum(), ("data", "seq"))


def main():
    HERE.mkdir(exist_ok=True)
    x = jnp.zeros((16, 8), jnp.bfloat16)
    w = jnp.zeros((8, 4), jnp.bfloat16)
    ins = (P("data", "seq"), P(None, "seq"))
    outs = (P("data", "seq"), P("data"), P())
    for shardy, name in ((True, "shard_map"), (False, "shard_map_old")):
        jax.config.update("jax_use_shardy_partitioner", shardy)
        mapped = jax.jit(
            jax.shard_map(exchange, mesh=MESH, in_specs=ins, out_specs=outs),
            in_shardings=[on_mesh(*s) for s in ins],
            out_shardings=tuple(on_mesh(*s) for s in outs))
        (HERE / f"{name}.mlir").write_text(mapped.lower(x, w).as_text())
        if shardy:
            spread = jax.jit(
                product, in_shardings=(on_mesh("data", "seq"), on_mesh()),
                out_shardings=(on_mesh(), on_mesh(("data", "seq"), None)))
            (HERE / "jit.mlir").write_text(spread.lower(x, w).as_text())


main()
