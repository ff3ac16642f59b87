"""Times JAX Splash attention's process_mask and process_mask_dkv.

Documents are a lazy mask class, which computes only the slice that is asked for
and no dense array. This is the fastest way in Splash to skip tiles by document:
segment ids are compared inside the kernel and skip no tile.
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_mask as mask_lib,
)
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_mask_info as info_lib,
)

import peer
from splash_masks import make_mask


def classes_of(info, tiles, dkv):
    """The class of each tile of one head, from the shrunk grid."""
    classes = np.zeros((tiles, tiles), np.uint8)
    block_mask = info.block_mask[0]
    for i, j in zip(*np.nonzero(block_mask)):
        other = info.data_next[0][i, j]
        at = (other, j) if dkv else (i, other)
        classes[at] = block_mask[i, j]
    return classes


def main():
    args = peer.parse(peer.arguments(__doc__.splitlines()[0]))
    block = (args.tile, args.tile)
    before = peer.peak_mb()
    infos = []

    def run():
        # Without this the cached result of the last run would be returned.
        info_lib._process_mask.cache_clear()
        mask = mask_lib.MultiHeadMask([make_mask(mask_lib, args.atoms, args.ids)])
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
        "jax-splash",
        "process_mask + process_mask_dkv",
        runs,
        ("jax", "numpy"),
        classes_of(infos[0], tiles, False),
        classes_of(infos[1], tiles, True),
        rss_before_mb=before,
    )


main()
