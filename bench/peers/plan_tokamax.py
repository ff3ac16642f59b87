"""Times tokamax Splash attention's process_mask and process_mask_dkv."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np
from tokamax._src.ops.experimental.tpu.splash_attention import (
    splash_attention_mask as mask_lib,
)
from tokamax._src.ops.experimental.tpu.splash_attention import (
    splash_attention_mask_info as info_lib,
)

import peer
from splash_masks import make_mask


def classes_of(info, tiles):
    """The class of each tile, from lists of active tiles; a full mask has
    none."""
    if info.block_mask is None:
        return np.full((tiles, tiles), 2, np.uint8)
    classes = np.zeros((tiles, tiles), np.uint8)
    n = int(info.num_active_blocks[0])
    classes[info.active_rows[:n], info.active_cols[:n]] = info.block_mask[:n]
    return classes


def main():
    args = peer.parse(peer.arguments(__doc__))
    block = (args.tile, args.tile)
    before = peer.peak_mb()
    infos = []

    def run():
        # Without this the cached result of the last run would be returned.
        info_lib._process_mask.cache_clear()
        mask = make_mask(mask_lib, args.atoms, args.ids)
        t, (fwd, _) = peer.timed(lambda: info_lib.process_mask(mask, block))
        t_dkv, (dkv, _) = peer.timed(
            lambda: info_lib.process_mask_dkv(mask, block)
        )
        infos[:] = [fwd, dkv]
        return (t, t_dkv)

    runs = peer.time_runs(run, args.seconds)
    tiles = len(args.ids) // args.tile
    peer.report(
        args,
        "tokamax-splash",
        "process_mask + process_mask_dkv",
        runs,
        ("tokamax", "jax", "numpy"),
        classes_of(infos[0], tiles),
        classes_of(infos[1], tiles).T,
        rss_before_mb=before,
    )


main()
