"""A batch as the `MaskInfo` of Splash attention, JAX's and tokamax's."""

from typing import Any

from . import _core
from ._refuse import refuse


def splash_mask_info(batch: _core.Batch, *, batch_row: int = 0, heads: int = 0,
                     kind: str = "jax", max_blocks: int = 0
                     ) -> tuple[Any, Any]:
    """The MaskInfo of Splash attention, forward and dkv: JAX's, whose dq kernel
    takes the forward one, or with `kind="tokamax"` tokamax's.

    Both are to be arguments of the compiled function, which makes its
    `SplashAttentionKernel` of them: documents then skip tiles. Their sizes are
    ceilings, so that a run compiles once: the width of JAX's rectangle is the
    `max_width` that the batch was planned with, the length of tokamax's list
    its `max_steps`, and there are `max_blocks` masks of tiles, which are bools
    of a whole tile each, forward and dkv. Without a ceiling a size is its
    bucket, and another bucket another compile.

    Masks inside a tile are arrays, so the kernel needs no segment ids. The tile
    of the batch is the kernel's block; every query needs a key. JAX's fused
    backward kernel takes no lists that are shortened, as these are. tokamax has
    one mask for all heads, and takes such a dkv with `dq_reduction_steps=3`.
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
