"""A batch as the `MaskInfo` of Splash attention, JAX's and tokamax's."""

import math
from typing import Any, NamedTuple

import numpy as np

from . import _core


class Ceilings(NamedTuple):
    """What the arrays of a run have room for; 0 leaves each to its bucket."""

    width: int
    steps: int
    blocks: int


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
    if max_blocks < 0:
        raise _core.TesseraError(
            f"[jax] max_blocks must be 0 or more, found {max_blocks}")
    if kind == "tokamax":
        if heads != 0:
            raise _core.TesseraError(
                "[jax] heads must be 0 for tokamax, whose heads have one mask, "
                f"found {heads}")
        from tokamax._src.ops.experimental.tpu.splash_attention import (
            splash_attention_mask_info as splash)
        info = _tokamax_info
    elif kind == "jax":
        from jax.experimental.pallas.ops.tpu.splash_attention import (
            splash_attention_mask_info as splash)
        info = _jax_info
    else:
        raise _core.TesseraError(
            f"[jax] kind must be 'jax' or 'tokamax', found '{kind}'")
    told = batch.summary()
    ceilings = Ceilings(told["max_width"], told["max_steps"], max_blocks)
    return tuple(
        splash.MaskInfo(
            **info(batch, _arrays(batch, batch_row, heads, dkv, ceilings), dkv,
                   ceilings),
            q_sequence=None)
        for dkv in (False, True))


def _tiles(batch: _core.Batch) -> tuple[int, int]:
    """Rows and columns of a list that has them all."""
    return batch.q_len // batch.tile[0], batch.kv_len // batch.tile[1]


def _arrays(batch: _core.Batch, batch_row: int, heads: int, dkv: bool,
            ceilings: Ceilings) -> dict[str, Any]:
    """Those of JAX's, with a block and its numbers even where none is partial."""
    found = batch.splash_arrays(batch_row, dkv=dkv, downcast=False, heads=heads)
    blocks = found["partial_mask_blocks"]
    if blocks is None:
        tile = batch.tile[::-1] if dkv else batch.tile
        blocks = np.zeros((1, *tile), bool)
        found["mask_next"] = np.zeros_like(found["data_next"])
    if 0 < ceilings.blocks < len(blocks):
        raise _core.TesseraError(
            "[jax] distinct partial tiles must be at most max_blocks "
            f"{ceilings.blocks}, found {len(blocks)}")
    rows, columns = _tiles(batch)
    size = _room(len(blocks), ceilings.blocks, batch.heads * rows * columns)
    found["partial_mask_blocks"] = _grown(blocks, 0, size, "constant")
    return found


def _jax_info(batch: _core.Batch, found: dict[str, Any], dkv: bool,
              ceilings: Ceilings) -> dict[str, Any]:
    axis = 1 if dkv else 2  # that shrinking made shorter
    rows, columns = _tiles(batch)
    size = _room(found["block_mask"].shape[axis], ceilings.width,
                 rows if dkv else columns)
    return {
        "data_next": _grown(found["data_next"], axis, size, "edge"),
        "mask_next": _grown(found["mask_next"], axis, size, "edge"),
        "block_mask": _grown(found["block_mask"], axis, size, "constant"),
        "partial_mask_blocks": found["partial_mask_blocks"],
    }


def _tokamax_info(batch: _core.Batch, found: dict[str, Any], dkv: bool,
                  ceilings: Ceilings) -> dict[str, Any]:
    """JAX's rectangle as a list of its active tiles, a row after another.

    A row of keys without a query is one step that is not active: its gradients
    are to be written too.
    """
    if found["block_mask"].shape[0] != 1:
        raise _core.TesseraError(
            "[jax] tokamax's heads have one mask, found a batch with "
            f"{found['block_mask'].shape[0]}")
    data, masks, classes = (
        found[name][0].T if dkv else found[name][0]
        for name in ("data_next", "mask_next", "block_mask"))
    there = classes != 0
    if dkv:
        there[:, 0] |= ~there.any(axis=1)
    rows = np.nonzero(there)[0].astype(np.int32)
    columns, masks, classes = (
        x[there].astype(np.int32) for x in (data, masks, classes))
    columns[classes == 0] = 0
    size = _room(rows.size, ceilings.steps, math.prod(_tiles(batch)))
    return {
        "mask_next": _grown(masks, 0, size, "edge"),
        # No row has this number, so a row ends where the list does.
        "active_rows": _grown(rows, 0, size, "constant", constant_values=-1),
        "active_cols": _grown(columns, 0, size, "constant", constant_values=-1),
        "block_mask": _grown(classes, 0, size, "constant"),
        "num_active_blocks": np.array([rows.size], np.int32),
        "partial_mask_blocks": found["partial_mask_blocks"].astype(np.int8),
    }


def _room(size: int, ceiling: int, most: int) -> int:
    """For so many: what the ceiling says, where lengths allow it, or a bucket."""
    # Lists of heads that differ are whole, whatever the ceiling.
    return max(size, min(ceiling, most)) if ceiling else _core._bucket(size)


def _grown(array: Any, axis: int, size: int, mode: Any, **how: Any) -> Any:
    pad = [(0, 0)] * array.ndim
    pad[axis] = (0, size - array.shape[axis])
    return np.pad(array, pad, mode, **how)
