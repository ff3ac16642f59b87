"""Functions that have other names in the oldest supported version of JAX."""

import functools

import jax

if hasattr(jax, "shard_map"):
    shard_map = jax.shard_map
else:
    from jax.experimental import shard_map as _of

    shard_map = functools.partial(_of.shard_map, check_rep=False)
