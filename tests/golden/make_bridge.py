#!/usr/bin/env python3
"""Writes tests/golden/bridge/: a small attention that JAX exported, and its
Splash kernel, interpreted, twice: of one mask and of one for each head.

For two platforms, so that the program takes the platform's index, and with an
input that it does not need. Needs jax: the Python of .venv.
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
    sizes = dict(heads=4, kv_heads=2, q_len=256, kv_len=384, head_dim=16,
                 block_q=64, block_kv=128)
    export_splash.save_splash(HERE / "bridge", v_head_dim=16, width=2, blocks=6,
                              **sizes)
    export_splash.save_splash(HERE / "bridge", "splash_heads", v_head_dim=24,
                              width=3, blocks=24, mask_heads=4, scale=0.3,
                              softcap=20.0, **sizes)


if __name__ == "__main__":
    main()
