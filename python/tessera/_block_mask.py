"""FlexAttention's BlockMask from a batch: its lists are those of the plan, and
its mask_mod reads ids and bounds as tensors.

torch.compile guards the code of a mask_mod and the shapes of its tensors, but
not their values, so batches of one mask and one shape compile once.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from . import _core
from ._refuse import refuse

# A mask_mod: takes (batch row, head, query, key), each a tensor of indices.
Mod = Callable[[Any, Any, Any, Any], Any]


def block_mask(batch: _core.Batch, *, heads: int = 0,
               device: torch.device | str | int | None = None) -> Any:
    """A `BlockMask` for `flex_attention`, equal to `create_block_mask`'s with
    the batch's tile as BLOCK_SIZE, and never dense.

    `heads`: the number of query heads. It is needed if masks or picks differ by
    head and the plan has fewer heads than the call; 0 means the plan's heads.
    `device`: the device of the lists and of the ids and bounds that mask_mod
    reads; None means the CPU. `BlockMask.to` moves only the lists, so give the
    device here.
    """
    from torch.nn.attention.flex_attention import BlockMask

    if not isinstance(batch, _core.Batch):
        refuse("torch", "batch must be a tessera.Batch", type(batch).__name__)
    device = "cpu" if device is None else device
    lists = _on(device, batch.flex_lists(heads))
    return BlockMask(
        seq_lengths=(batch.q_len, batch.kv_len), BLOCK_SIZE=batch.tile,
        mask_mod=_mask_mod(batch, max(heads, batch.heads), device), **lists)


def _on(device: torch.device | str | int,
        arrays: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array).to(device)
            for name, array in arrays.items()}


def _mask_mod(batch: _core.Batch, heads: int,
              device: torch.device | str | int) -> Mod:
    parts = _core._mask_parts(batch)
    masks = parts.pop("masks")
    if not parts["q_offset"].any():
        del parts["q_offset"]
    t = _on(device, parts)
    mods = [_one_mask(tree, same, t, heads) for tree, same in masks]
    if all(m == masks[0] for m in masks):
        mods = mods[:1]
    if len(mods) == 1:
        return mods[0]
    group = heads // len(mods)
    return functools.reduce(
        lambda before, at: _by_head(before, mods[at], at * group),
        range(1, len(mods)), mods[0])


def _by_head(before: Mod, mod: Mod, first: int) -> Mod:
    def pick(b: Any, h: Any, q: Any, k: Any) -> Any:
        return torch.where(h < first, before(b, h, q, k), mod(b, h, q, k))
    return pick


def _one_mask(tree: Any, same: str, t: dict[str, Any], heads: int) -> Mod:
    """The mask_mod of one head: its expression, and the conditions that always
    apply: valid lengths, and no padding ids."""
    parts = [_mod(tree, same, t, heads)]
    if "valid" in t:
        valid, q_end = t["valid"], t["q_end"]
        parts.append(lambda b, h, q, k: (k < valid[b]) & (q < q_end[b]))
    if same:
        q_ids, kv_ids = t["q_ids"], t["kv_ids"]
        parts.append(lambda b, h, q, k: (q_ids[b, q] >= 0) & (kv_ids[b, k] >= 0))
    return _all(parts)


def _all(parts: list[Mod]) -> Mod:
    return functools.reduce(_and, parts)


def _and(left: Mod, right: Mod) -> Mod:
    return lambda b, h, q, k: left(b, h, q, k) & right(b, h, q, k)


def _or(left: Mod, right: Mod) -> Mod:
    return lambda b, h, q, k: left(b, h, q, k) | right(b, h, q, k)


def _not(mod: Mod) -> Mod:
    return lambda b, h, q, k: ~mod(b, h, q, k)


def _position(t: dict[str, Any]) -> Callable[[Any, Any], Any]:
    if "q_offset" not in t:
        return lambda b, q: q
    offset = t["q_offset"]
    return lambda b, q: q + offset[b]


def _same(q_of: Any, kv_of: Any) -> Mod:
    return lambda b, h, q, k: q_of[b, q] == kv_of[b, k]


def _first(rank: Any, n: int) -> Mod:
    return lambda b, h, q, k: rank[b, k] < n


def _picked(picks: Any, block: int, heads: int) -> Mod:
    group = heads // picks.shape[1]

    def mod(b: Any, h: Any, q: Any, k: Any) -> Any:
        place = k // block
        found = picks[b, h // group, q, 0] == place
        for i in range(1, picks.shape[3]):
            found = found | (picks[b, h // group, q, i] == place)
        return found
    return mod


def _window(at: Callable[[Any, Any], Any], left: int, right: int) -> Mod:
    if left < 0 and right < 0:
        return lambda b, h, q, k: q >= 0
    if right < 0:
        return lambda b, h, q, k: at(b, q) - k <= left
    if left < 0:
        return lambda b, h, q, k: k - at(b, q) <= right
    return lambda b, h, q, k: (at(b, q) - k <= left) & (k - at(b, q) <= right)


def _mod(tree: Any, same: str, t: dict[str, Any], heads: int) -> Mod:
    """The mask_mod of an expression. `sink` counts keys within each group of
    the atom `same` (documents or segments), or in the whole row if it is
    empty."""
    name, *args = tree
    at = _position(t)
    if name in ("and", "or"):
        mods = [_mod(child, same, t, heads) for child in args]
        return functools.reduce(_and if name == "and" else _or, mods)
    if name == "not":
        return _not(_mod(args[0], same, t, heads))
    if name == "full":
        return lambda b, h, q, k: q >= 0
    if name == "causal":
        return lambda b, h, q, k: k <= at(b, q)
    if name == "window":
        return _window(at, *args)
    if name == "chunk":
        n = args[0]
        return lambda b, h, q, k: torch.div(
            at(b, q), n, rounding_mode="floor") == k // n
    if name == "prefix":
        prefix = t["prefix"]
        return lambda b, h, q, k: k < prefix[b]
    if name == "documents":
        return _same(t["q_ids"], t["kv_ids"])
    if name == "segments":
        return _same(t["q_segments"], t["kv_segments"])
    if name == "sink":
        if not same:
            return lambda b, h, q, k: k < args[0]
        return _and(_mod((same,), same, t, heads),
                    _first(t[same[:-1] + "_ranks"], args[0]))
    if name == "tree":
        ends = t["tree_ends"]
        return lambda b, h, q, k: (k <= at(b, q)) & (at(b, q) < ends[b, k])
    if name == "same":
        fact = "same_" + "abcdefgh"[args[0]]
        return _same(t["q_" + fact], t["kv_" + fact])
    if name in ("blocks", "routed"):
        return _picked(t["picks"], args[-1], heads)
    refuse("torch", "a mask_mod must be of known atoms", f"'{name}'")
