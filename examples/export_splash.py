#!/usr/bin/env python3
"""examples/export_splash.py: exports JAX's Splash kernel for the splash lane.

    .venv/bin/python examples/export_splash.py out --q-len 512 --heads 4 \\
        --kv-heads 2 --head-dim 64 --blocks 4
    TESSERA_PYTHON=.venv/bin/python build/tessera run --lane splash \\
        --artifact out/splash.mlirbc --shapes out/splash.json \\
        --mask 'causal & documents' --docs lengths:300,212 --q-len 512 \\
        --heads 4 --kv-heads 2 --head-dim 64 --check

One program serves any mask of its sizes: MaskInfo is an argument. Of a CPU the
kernel is interpreted, of a TPU compiled. docs/bridge.md has the arguments.
"""
import argparse
import functools
import math

import jax
import jax.numpy as jnp
from export_jax import save
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel as kernel)
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_mask_info as mask_info)

INPUTS = ["q", "k", "v", "data_next", "mask_next", "block_mask", "mask_blocks",
          "live_queries", "live_keys"]


def splash(q, k, v, data_next, mask_next, block_mask, mask_blocks, live_queries,
           live_keys, *, scale, softcap, compute, interpret):
    """One batch row. For a query without a key Splash returns the mean of the
    values, and it multiplies values that no query sees by 0, which keeps a NaN.
    Both are masked outside the kernel."""
    info = mask_info.MaskInfo(
        data_next=data_next, mask_next=mask_next, block_mask=block_mask,
        partial_mask_blocks=mask_blocks, q_sequence=None)
    block_q, block_kv = mask_blocks.shape[1:]
    attend = kernel.SplashAttentionKernel(
        info, None, None, is_mqa=False, save_residuals=True,
        block_sizes=kernel.BlockSizes(block_q=block_q, block_kv=block_kv,
                                      block_kv_compute=compute),
        mask_value=kernel.DEFAULT_MASK_VALUE,
        attn_logits_soft_cap=softcap or None, residual_checkpoint_name=None,
        mask_function=None, interpret=interpret)
    v = jnp.where(live_keys[:, :, None], v, 0)
    out, (lse,) = attend((q * jnp.float32(scale)).astype(q.dtype), k, v)
    return (jnp.where(live_queries[:, :, None], out, 0),
            jnp.where(live_queries, lse, -jnp.inf))


def save_splash(folder, name="splash", *, heads, kv_heads, q_len, kv_len,
                head_dim, v_head_dim, block_q, block_kv, width, blocks,
                block_compute=None, mask_heads=1, dtype="float32", scale=None, softcap=0.0,
                platform="cpu"):
    """Writes NAME.mlirbc and NAME.json; `width` and `blocks` are ceilings."""
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    grid = jnp.zeros((mask_heads, q_len // block_q, width), jnp.int32)
    arguments = (
        jnp.zeros((heads, q_len, head_dim), dtype),
        jnp.zeros((kv_heads, kv_len, head_dim), dtype),
        jnp.zeros((kv_heads, kv_len, v_head_dim), dtype),
        grid, grid, grid,
        jnp.zeros((blocks, block_q, block_kv), bool),
        jnp.zeros((heads, q_len), bool),
        jnp.zeros((kv_heads, kv_len), bool))
    return save(
        functools.partial(splash, scale=scale, softcap=softcap,
                          compute=block_compute, interpret=platform == "cpu"),
        arguments, folder, name, INPUTS, ["out", "lse"], [platform],
        operation="splash", splash={"scale": scale, "softcap": softcap},
        run=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", help="where splash.mlirbc and .json go")
    parser.add_argument("--q-len", type=int, required=True)
    parser.add_argument("--kv-len", type=int, help="[q-len]")
    parser.add_argument("--heads", type=int, required=True)
    parser.add_argument("--kv-heads", type=int, help="[heads]")
    parser.add_argument("--head-dim", type=int, required=True)
    parser.add_argument("--v-head-dim", type=int, help="[head-dim]")
    parser.add_argument("--block-q", type=int, default=256)
    parser.add_argument("--block-kv", type=int, default=256)
    parser.add_argument("--block-compute", type=int,
                        help="keys that the kernel takes at once [block-kv]")
    parser.add_argument("--width", type=int,
                        help="most tiles of a row of tiles [all]")
    parser.add_argument("--blocks", type=int, required=True,
                        help="most distinct partial tiles of a batch row")
    parser.add_argument("--mask-heads", type=int, default=1,
                        help="1, or as many as heads: a mask for each")
    parser.add_argument("--dtype", default="float32",
                        choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--scale", type=float, help="[1 / sqrt(head-dim)]")
    parser.add_argument("--softcap", type=float, default=0.0)
    parser.add_argument("--platform", default="cpu", choices=["cpu", "tpu"])
    options = vars(parser.parse_args())
    for name, default in (("kv_len", "q_len"), ("kv_heads", "heads"),
                          ("v_head_dim", "head_dim")):
        if options[name] is None:
            options[name] = options[default]
    if options["width"] is None:
        options["width"] = options["kv_len"] // options["block_kv"]
    save_splash(options.pop("folder"), **options)


if __name__ == "__main__":
    main()
