#!/usr/bin/env python3
"""Writes tests/golden/bridge/: two small attention functions that JAX exported,
and its interpreted Splash kernel twice, with one mask and with one per head.

`small` is for two platforms, so the program takes the platform's index, and it
has an unused input. `roles` takes a tree, named ids and picks. Needs jax: the
Python of .venv.
"""
import functools
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "examples"))

import export_jax  # noqa: E402
import export_splash  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402


def small(q, k, v, unused, doc_ids):
    del unused
    return export_jax.attention(q, k, v, doc_ids, window=5, softcap=2.0)


def roles(q, k, v, enter, leave, groups, q_groups, picks, offsets):
    at = offsets[:, None] + jnp.arange(q.shape[2])
    token = jnp.take_along_axis(enter, at, axis=1)[:, :, None]
    path = (enter[:, None, :] <= token) & (token < leave[:, None, :])
    together = (q_groups[:, :, None] == groups[:, None, :]) & (
        groups[:, None, :] >= 0)
    picked = (picks[..., None] == jnp.arange(k.shape[2]) // 4).any(axis=-2)
    legal = jnp.repeat((path | together)[:, None] & picked, 2, axis=1)
    out, lse = export_jax.attend(q, k, v, legal)
    return jnp.where(legal.any(axis=-1, keepdims=True), out, 0), lse


def save_roles():
    batch, heads, kv_heads, queries, keys, dim = 2, 4, 2, 12, 16, 8
    whole = lambda *shape: jnp.zeros(shape, jnp.int32)
    floats = lambda *shape: jnp.zeros(shape, jnp.float32)
    inputs = {
        "q": floats(batch, heads, queries, dim),
        "k": floats(batch, kv_heads, keys, dim),
        "v": floats(batch, kv_heads, keys, dim),
        "tree_enter": whole(batch, keys),
        "tree_leave": whole(batch, keys),
        "same_b": whole(batch, keys),
        "q_same_b": whole(batch, queries),
        "picks": whole(batch, kv_heads, queries, 3),
        "q_offsets": whole(batch),
    }
    names = [*inputs, "out", "lse"]
    export_jax.save(
        roles, tuple(inputs.values()), HERE / "bridge", "roles", list(inputs),
        ["out", "lse"], operation="attention",
        attention={
            "mask": "(tree | same(b)) & blocks(4)",
            "layout": "bhsd",
            "roles": {name: name for name in names},
        },
        run=False)


def main():
    random = np.random.default_rng(0)
    q, k, v = (
        jnp.asarray(random.standard_normal(shape, np.float32))
        for shape in ((1, 2, 16, 8), (1, 1, 16, 8), (1, 1, 16, 8)))
    doc_ids = jnp.asarray([[0] * 7 + [1] * 9], jnp.int32)
    export_jax.save(
        functools.partial(small), (q, k, v, jnp.ones((3,), jnp.bool_), doc_ids),
        HERE / "bridge", "small", ["q", "k", "v", "unused", "ids"],
        ["out", "lse"], platforms=("tpu", "cpu"), operation="attention",
        attention={
            "mask": "causal & window(5, 0) & documents",
            "layout": "bhsd",
            "softcap": 2.0,
            "roles": {"q": "q", "k": "k", "v": "v", "doc_ids": "ids",
                      "out": "out", "lse": "lse"},
        },
        ranges={"ids": (0, 1)})
    save_roles()
    sizes = dict(heads=4, kv_heads=2, q_len=256, kv_len=384, head_dim=16,
                 block_q=64, block_kv=128)
    export_splash.save_splash(HERE / "bridge", v_head_dim=16, width=2, blocks=6,
                              **sizes)
    export_splash.save_splash(HERE / "bridge", "splash_heads", v_head_dim=24,
                              width=3, blocks=24, mask_heads=4, scale=0.3,
                              softcap=20.0, **sizes)


if __name__ == "__main__":
    main()
