"""Times JAX Splash attention's process_mask and process_mask_dkv.

Documents are a mask class that answers for the slice it is asked, never a
dense array: the quickest way Splash has to skip tiles by document. Its segment
ids are looked at in the kernel and skip none.
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
    """Back from the shrunk grid to a class for each tile of one head."""
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
        # A result kept from the last run would be found, not made.
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
