"""A batch as the `MaskInfo` of Splash attention, JAX's and tokamax's."""

from typing import Any

from . import _core
from ._refuse import refuse


def splash_mask_info(batch: _core.Batch, *, batch_row: int = 0, heads: int = 0,
                     kind: str = "jax", max_blocks: int = 0
                     ) -> tuple[Any, Any]:
    """The two MaskInfo of Splash attention, forward and dkv: JAX's by default,
    tokamax's with `kind="tokamax"`. JAX's dq kernel takes the forward one.

    Pass both as arguments to the compiled function, and let it build its
    `SplashAttentionKernel` from them; the kernel then skips tiles between
    documents. Sizes are ceilings, so that a run compiles once: the width of
    JAX's rectangle is the `max_width` of the batch's plan, the length of
    tokamax's list is its `max_steps`, and `max_blocks` is the number of masks
    of partial tiles, forward and dkv. Each such mask has one bool for every
    pair of a tile. A size without a ceiling is rounded up to its bucket, and
    another bucket compiles again.

    The masks of partial tiles are arrays, so the kernel needs no segment ids.
    The tile of the batch is the kernel's block. Every query must have a key.
    JAX's fused backward kernel does not take these lists, because they are
    shortened. tokamax has one mask for all heads, and its backward kernel takes
    this dkv with `dq_reduction_steps=3`.
    """
    if kind not in ("jax", "tokamax"):
        refuse("jax", "kind must be 'jax' or 'tokamax'", repr(kind))
    lists = [
        _core._splash_run(batch, tokamax=kind == "tokamax", batch_row=batch_row,
                          heads=heads, dkv=dkv, max_blocks=max_blocks)
        for dkv in (False, True)]
    if kind == "tokamax":
        from tokamax._src.ops.experimental.tpu.splash_attention import (
            splash_attention_mask_info as splash)
    else:
        from jax.experimental.pallas.ops.tpu.splash_attention import (
            splash_attention_mask_info as splash)
    return tuple(splash.MaskInfo(**of, q_sequence=None) for of in lists)
