"""Prints the StableHLO of JAX Splash or tokamax Splash attention for a TPU.

Lowering needs no TPU. `tessera schedule` reads the output. With --dump it also
compiles with the libtpu of its own environment, and leaves libtpu's text dumps
in a folder, which `tessera schedule --dump` reads.

The program takes q without its scale, k and v, each [heads, tokens, dim]. Its
operations beside the kernel count with it: the scale, transposes for --layouts,
and segment ids spread over lanes. With --list the active tiles are arguments of
the jitted function, so that one compile serves any documents.
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
    p.add_argument("--kv-heads", type=int, help="[heads]")
    p.add_argument("--head-dim", type=int, default=128)
    p.add_argument("--block", type=int, default=256,
                   help="queries and keys of a block")
    p.add_argument("--block-q", type=int, help="queries, where they differ")
    p.add_argument("--block-kv", type=int, help="keys, where they differ")
    p.add_argument("--block-compute", type=int,
                   help="keys computed at once, where fewer than a block's")
    p.add_argument("--layouts", default="111", metavar="QKV",
                   help="1: head dim last, 2: tokens last [111]")
    p.add_argument("--scheduler", action="store_true",
                   help="tokamax: its experimental scheduler")
    p.add_argument("--softcap", type=float)
    p.add_argument("--lse", action="store_true",
                   help="give the log-sum-exp too")
    p.add_argument("--segments", action="store_true",
                   help="pass segment ids, as packed documents need")
    p.add_argument("--list", action="store_true",
                   help="the active tiles are arguments")
    p.add_argument("--backward", choices=("no", "split", "fused"),
                   default="no")
    p.add_argument("--three-dq-steps", action="store_true",
                   help="tokamax, backward: dq_reduction_steps=3, as with --list")
    p.add_argument("--target", default="v6e:1x1", help="with --dump")
    p.add_argument("--dump", metavar="FOLDER")
    a = p.parse_args()
    a.block_q = a.block_q or a.block
    a.block_kv = a.block_kv or a.block
    a.kv_heads = a.kv_heads or a.heads
    return a


def block_arguments(a, layouts):
    compute = a.block_compute or a.block_kv
    sizes = {"block_q": a.block_q, "block_kv": a.block_kv,
             "block_kv_compute": compute}
    for which, digit in zip("qkv", a.layouts):
        sizes[f"{which}_layout"] = layouts(int(digit))
    if a.backward == "no":
        return sizes
    sizes |= {"block_q_dkv": a.block_q, "block_kv_dkv": a.block_kv,
              "block_kv_dkv_compute": compute,
              "use_fused_bwd_kernel": a.backward == "fused"}
    if a.backward == "split":
        sizes |= {"block_q_dq": a.block_q, "block_kv_dq": a.block_kv}
    return sizes


def one_mask(masks, a):
    square = (a.tokens, a.tokens)
    if a.mask == "full":
        return masks.FullMask(square)
    if a.mask == "causal":
        return masks.CausalMask(square)
    return masks.LocalMask(square, (a.window - 1, 0), 0)


def make_kernel(a):
    """The library's class of segment ids, and a kernel with constant lists."""
    residuals = {"save_residuals": a.lse and a.backward == "no"}
    if a.peer == "splash":
        from jax.experimental.pallas.ops.tpu import splash_attention as lib

        kernels = lib.splash_attention_kernel
        masks = lib.splash_attention_mask
        heads = masks.MultiHeadMask([one_mask(masks, a)] * a.heads)
        sizes = block_arguments(a, kernels.QKVLayout)
        return kernels.SegmentIds, kernels.make_splash_mha_single_device(
            heads,
            block_sizes=kernels.BlockSizes(**sizes),
            attn_logits_soft_cap=a.softcap,
            **residuals,
        )
    from tokamax._src.ops.experimental.tpu.splash_attention import (
        splash_attention_kernel as kernels,
        splash_attention_mask as masks,
    )

    three = a.list or a.three_dq_steps
    config = kernels.SplashConfig(
        **block_arguments(a, kernels.QKVLayout),
        attn_logits_soft_cap=a.softcap,
        use_experimental_scheduler=a.scheduler,
        # tokamax's backward kernel takes a list only with this option.
        dq_reduction_steps=3 if three and a.backward != "no" else None,
    )
    return kernels.base.SegmentIds, kernels.make_splash_mha_single_device(
        one_mask(masks, a), config=config, **residuals
    )


def describe(array, sharding):
    import jax

    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)


def traced(a, sharding):
    import jax
    import jax.numpy as jnp

    segment_ids, kernel = make_kernel(a)
    # A kernel is a pytree whose leaves are its lists.
    lists, tree = jax.tree.flatten(kernel)
    lists = [describe(x, sharding) for x in lists] if a.list else lists
    scale = a.head_dim**-0.5

    def array(shape, dtype):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    def attend(lists, q, k, v, ids):
        kernel = jax.tree.unflatten(tree, lists)
        return kernel(q, k, v, segment_ids(*ids) if ids else None)

    def forward(q, k, v, ids, *given):
        q = (q * scale).astype(q.dtype)
        return attend(given[0] if a.list else lists, q, k, v, ids)

    # Gradients with respect to the scaled q, as saved by the forward pass.
    def gradients(q, k, v, ids, dout, *given):
        def of(*qkv):
            return attend(given[0] if a.list else lists, *qkv, ids)

        dq, dk, dv = jax.vjp(of, q, k, v)[1](dout)
        return (dq * scale).astype(q.dtype), dk, dv

    q = array((a.heads, a.tokens, a.head_dim), jnp.bfloat16)
    ids = array((a.tokens,), jnp.int32)
    kv = array((a.kv_heads, a.tokens, a.head_dim), jnp.bfloat16)
    inputs = [q, kv, kv, [ids] * 2 if a.segments else []]
    inputs += [] if a.backward == "no" else [q]
    inputs += [lists] if a.list else []
    f = forward if a.backward == "no" else gradients
    return jax.jit(f).trace(*inputs).lower(lowering_platforms=("tpu",))


def describe_target(a):
    """A device of the target; no such device needs to be present."""
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
    # Debug info has the locations, from which kernels get their names.
    sys.stdout.write(traced(a, None).as_text(debug_info=True))


if __name__ == "__main__":
    main()
