"""Times PyTorch FlexAttention's create_block_mask on the CPU.

An eager call builds a boolean for every pair of tokens. With --compiled the
call goes through torch.compile, and the first call, which compiles, is reported
separately.
"""

import numpy as np
import torch
from torch.nn.attention.flex_attention import create_block_mask

import peer


def mask_mod(atoms, ids):
    def mod(b, h, q, k):
        legal = q >= 0
        if "causal" in atoms:
            legal = legal & (q >= k)
        if "window" in atoms:
            left, right = atoms["window"]
            if left >= 0:
                legal = legal & (q - k <= left)
            if right >= 0:
                legal = legal & (k - q <= right)
        if "documents" in atoms:
            legal = legal & (ids[q] == ids[k]) & (ids[k] >= 0)
        return legal

    return mod


def classes_of(partial, full):
    """Tile classes from two pairs (num_blocks, indices) of one batch row and
    head."""
    rows, columns = partial[1].shape[-2:]
    classes = np.zeros((rows, columns), np.uint8)
    for c, (count, indices) in ((1, partial), (2, full)):
        for r in range(rows):
            classes[r, indices[0, 0, r, : count[0, 0, r]].numpy()] = c
    return classes


def main():
    parser = peer.arguments(__doc__.splitlines()[0])
    parser.add_argument("--compiled", action="store_true")
    args = peer.parse(parser)
    tokens = len(args.ids)
    before = peer.peak_mb()
    create = torch.compile(create_block_mask) if args.compiled else create_block_mask
    made = []

    def run(ids=torch.from_numpy(args.ids)):
        t, mask = peer.timed(
            lambda: create(
                mask_mod(args.atoms, ids),
                None,
                None,
                tokens,
                tokens,
                device="cpu",
                BLOCK_SIZE=args.tile,
            )
        )
        made[:] = [mask]
        return (t,)

    more = {"threads": torch.get_num_threads()}
    if args.compiled:
        more["first_call_ms"] = round(run()[0] * 1e3, 1)
    runs = peer.time_runs(run, args.seconds)
    mask = made[0]
    if args.compiled:
        # The cost in a training step, where documents are always new.
        turned = torch.from_numpy(args.ids[::-1].copy())
        more["changed_documents_ms"] = round(run(turned)[0] * 1e3, 1)
    peer.report(
        args,
        "flex-compiled" if args.compiled else "flex-eager",
        "create_block_mask",
        runs,
        ("torch", "numpy"),
        classes_of(
            (mask.kv_num_blocks, mask.kv_indices),
            (mask.full_kv_num_blocks, mask.full_kv_indices),
        ),
        classes_of(
            (mask.q_num_blocks, mask.q_indices),
            (mask.full_q_num_blocks, mask.full_q_indices),
        ).T,
        rss_before_mb=before,
        **more,
    )


main()
