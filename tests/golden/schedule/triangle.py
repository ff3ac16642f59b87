"""Prints triangle.mlir: a small kernel with all parts of a grid's pipeline.

The text files beside it are libtpu 0.0.51's dumps of it for v6e:1x1.
"""

import os

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

jax.config.update("jax_traceback_in_locations_limit", 0)


def kernel(q, k, o, total):
    row, column = pl.program_id(1), pl.program_id(2)

    @pl.when(column == 0)
    def _():
        total[...] = jnp.zeros_like(total)

    @pl.when(column <= row)
    def _():
        total[...] += jnp.dot(
            q[0], k[0].T, preferred_element_type=jnp.float32
        )

    @pl.when(column == 3)
    def _():
        o[0] = total[...].astype(o.dtype)


def block(size, operand):
    return pl.BlockSpec((1, size, 128), lambda *at: (at[0], at[operand], 0))


triangle = pl.pallas_call(
    kernel,
    out_shape=jax.ShapeDtypeStruct((2, 64, 128), jnp.bfloat16),
    grid=(2, 4, 4),
    in_specs=[block(16, 1), block(128, 2)],
    out_specs=block(16, 1),
    scratch_shapes=[pltpu.VMEM((16, 128), jnp.float32)],
    name="triangle",
    compiler_params=pltpu.CompilerParams(disable_bounds_checks=True),
)
q = jax.ShapeDtypeStruct((2, 64, 128), jnp.bfloat16)
k = jax.ShapeDtypeStruct((2, 512, 128), jnp.bfloat16)
lowered = jax.jit(triangle).trace(q, k).lower(lowering_platforms=("tpu",))
print(lowered.as_text(), end="")
