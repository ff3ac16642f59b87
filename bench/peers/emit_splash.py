"""Prints the StableHLO of JAX Splash or tokamax Splash attention for a TPU.

Lowering needs no TPU; `tessera schedule` takes what this prints. With --dump
it compiles with the libtpu of its own environment too, and leaves libtpu's
text dumps in a folder, which `tessera schedule --dump` takes.
"""

import argparse
import os
import sys


def arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--peer", choices=("splash", "tokamax"), default="splash")
    p.add_argument("--mask", choices=("full", "causal", "window"),
                   default="causal")
    p.add_argument("--window", type=int, default=1024,
                   help="keys that a query sees, its own among them")
    p.add_argument("--tokens", type=int, default=32768)
    p.add_argument("--heads", type=int, default=8)
    p.add_argument("--head-dim", type=int, default=128)
    p.add_argument("--block", type=int, default=256,
                   help="queries and keys of a block")
    p.add_argument("--block-compute", type=int,
                   help="keys computed at once, where fewer than a block's")
    p.add_argument("--softcap", type=float)
    p.add_argument("--segments", action="store_true",
                   help="pass segment ids, as packed documents need")
    p.add_argument("--backward", choices=("no", "split", "fused"),
                   default="no")
    p.add_argument("--target", default="v6e:1x1", help="with --dump")
    p.add_argument("--dump", metavar="FOLDER")
    return p.parse_args()


def block_arguments(a):
    compute = a.block_compute or a.block
    sizes = {"block_q": a.block, "block_kv": a.block,
             "block_kv_compute": compute}
    if a.backward == "no":
        return sizes
    sizes |= {"block_q_dkv": a.block, "block_kv_dkv": a.block,
              "block_kv_dkv_compute": compute,
              "use_fused_bwd_kernel": a.backward == "fused"}
    if a.backward == "split":
        sizes |= {"block_q_dq": a.block, "block_kv_dq": a.block}
    return sizes


def one_mask(masks, a):
    square = (a.tokens, a.tokens)
    if a.mask == "full":
        return masks.FullMask(square)
    if a.mask == "causal":
        return masks.CausalMask(square)
    return masks.LocalMask(square, (a.window - 1, 0), 0)


def make_kernel(a):
    if a.peer == "splash":
        from jax.experimental.pallas.ops.tpu import splash_attention as lib

        kernels = lib.splash_attention_kernel
        masks = lib.splash_attention_mask
        heads = masks.MultiHeadMask([one_mask(masks, a)] * a.heads)
        return kernels.SegmentIds, kernels.make_splash_mha_single_device(
            heads,
            block_sizes=kernels.BlockSizes(**block_arguments(a)),
            attn_logits_soft_cap=a.softcap,
        )
    from tokamax._src.ops.experimental.tpu import splash_attention as lib

    kernels = lib.splash_attention_kernel
    masks = lib.splash_attention_mask
    config = kernels.SplashConfig(
        **block_arguments(a), attn_logits_soft_cap=a.softcap
    )
    return kernels.base.SegmentIds, kernels.make_splash_mha_single_device(
        one_mask(masks, a), config=config
    )


def traced(a, sharding):
    import jax
    import jax.numpy as jnp

    segment_ids, kernel = make_kernel(a)

    def attend(q, k, v, *ids):
        if ids:
            return kernel(q, k, v, segment_ids(*ids))
        return kernel(q, k, v)

    def gradients(q, k, v, *ids):
        def total(*qkv):
            return attend(*qkv, *ids).astype(jnp.float32).sum()

        return jax.grad(total, argnums=(0, 1, 2))(q, k, v)

    def array(shape, dtype):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    inputs = [array((a.heads, a.tokens, a.head_dim), jnp.bfloat16)] * 3
    if a.segments:
        inputs += [array((a.tokens,), jnp.int32)] * 2
    f = attend if a.backward == "no" else gradients
    return jax.jit(f).trace(*inputs).lower(lowering_platforms=("tpu",))


def describe_target(a):
    """A device of the target, none of which need exist."""
    from jax.experimental import topologies

    return topologies.get_topology_desc(
        platform="tpu", topology_name=a.target
    ).devices[0]


def main():
    a = arguments()
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    os.environ["JAX_PLATFORMS"] = "cpu"
    if a.dump:
        os.makedirs(a.dump, exist_ok=True)
        os.environ["TPU_ACCELERATOR_TYPE"] = "v6e-4"
        os.environ["TPU_WORKER_HOSTNAMES"] = "localhost"
        os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "true"
        os.environ["LIBTPU_INIT_ARGS"] = (
            f"--xla_jf_dump_to={a.dump} --xla_jf_dump_llo_text=true"
        )
        from jax.sharding import SingleDeviceSharding

        lowered = traced(a, SingleDeviceSharding(describe_target(a)))
        lowered.compile()
        return
    # With locations, which give kernels their names.
    sys.stdout.write(traced(a, None).as_text(debug_info=True))


if __name__ == "__main__":
    main()
