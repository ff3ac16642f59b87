"""Prints the StableHLO of tokamax's attention as its authors timed it. The
flags describe one row of a CSV beside this file.

Runs in an environment with tokamax. Lowering needs no TPU.
"""

import argparse
import os
import sys

os.environ["TPU_SKIP_MDS_QUERY"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"


def arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--shape", required=True,
                   help="batch,tokens,heads,dim of q, k and v")
    p.add_argument("--chip", choices=("v6e", "tpu7x"), required=True)
    p.add_argument("--kv-heads", type=int, help="where fewer than q's")
    for name in ("block_q", "block_kv", "block_kv_compute", "q_layout",
                 "k_layout", "v_layout"):
        p.add_argument("--" + name.replace("_", "-"), type=int, required=True)
    for name in ("causal", "residuals", "experimental_scheduler",
                 "base2_exp"):
        p.add_argument("--" + name.replace("_", "-"), type=int, default=0)
    return p.parse_args()


def main():
    a = arguments()
    del sys.argv[1:]  # tokamax parses flags of its own from it
    import jax
    import jax.numpy as jnp
    from jax._src.pallas.mosaic import tpu_info
    from tokamax._src.ops.attention import pallas_mosaic_tpu as op
    from tokamax._src.ops.experimental.tpu.splash_attention import (
        splash_attention_kernel as splash,
    )

    # Lowering asks for the local chip; this makes it the chip of the row.
    chip = {"v6e": "TPU_V6E", "tpu7x": "TPU_7X"}[a.chip]
    tpu_info.registry["cpu"] = lambda: tpu_info.get_tpu_info_for_chip(
        getattr(tpu_info.ChipVersion, chip), 1
    )
    op.PallasMosaicTpuFlashAttention.supported_on = lambda *_: True

    layout = splash.QKVLayout
    attend = op.PallasMosaicTpuFlashAttention(
        config=op.Config(
            block_q=a.block_q,
            block_kv=a.block_kv,
            block_kv_compute=a.block_kv_compute,
            q_layout=layout(a.q_layout),
            k_layout=layout(a.k_layout),
            v_layout=layout(a.v_layout),
            use_experimental_scheduler=bool(a.experimental_scheduler),
            use_base2_exp=bool(a.base2_exp),
        )
    )

    def run(q, k, v):
        return attend(q, k, v, is_causal=bool(a.causal),
                      return_residuals=bool(a.residuals))

    batch, tokens, heads, dim = (int(n) for n in a.shape.split(","))
    q = jax.ShapeDtypeStruct((batch, tokens, heads, dim), jnp.bfloat16)
    kv = jax.ShapeDtypeStruct((batch, tokens, a.kv_heads or heads, dim),
                              jnp.bfloat16)
    lowered = jax.jit(run).trace(q, kv, kv).lower(lowering_platforms=("tpu",))
    sys.stdout.write(lowered.as_text(debug_info=True))


if __name__ == "__main__":
    main()
