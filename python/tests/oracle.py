"""Legal pairs from the definitions, dense and slow, in NumPy only.

It shares no code with the package: an expression is a nested tuple here, and
the package gets its text.
"""

import numpy as np

WORD = {"and": " & ", "or": " | "}


def text(e):
    kind = e[0]
    if kind in WORD:
        return "(" + WORD[kind].join(text(x) for x in e[1:]) + ")"
    if kind == "not":
        return "!(" + text(e[1]) + ")"
    return kind + ("(" + ", ".join(map(str, e[1:])) + ")" if e[1:] else "")


def names(e):
    if e[0] in ("and", "or", "not"):
        return set().union(*(names(x) for x in e[1:]))
    return {e[0]}


def segments(ids):
    return np.concatenate([[0], np.cumsum(ids[1:] != ids[:-1])]).astype(int)


def holds(e, pos, keys, ids, prefix, named, tree, same=None):
    """The value of an expression for one batch row, [queries, keys]; `pos` has
    the queries' positions."""
    kind, args = e[0], e[1:]
    p, k = pos[:, None], keys[None, :]
    if kind == "and":
        return np.logical_and.reduce(
            [holds(x, pos, keys, ids, prefix, named, tree, same) for x in args])
    if kind == "or":
        return np.logical_or.reduce(
            [holds(x, pos, keys, ids, prefix, named, tree, same) for x in args])
    if kind == "not":
        return ~holds(args[0], pos, keys, ids, prefix, named, tree, same)
    all_true = np.ones((len(pos), len(keys)), bool)
    if kind == "full":
        return all_true
    if kind == "causal":
        return k <= p
    if kind == "window":
        left, right = args
        return ((k >= p - left) if left >= 0 else all_true) & (
            (k <= p + right) if right >= 0 else all_true)
    if kind == "chunk":
        return p // args[0] == k // args[0]
    if kind == "prefix":
        return (k < prefix) & all_true
    if kind == "documents":
        return ids[p] == ids[k]
    if kind == "tree":
        enter, leave = tree
        return (enter[k] <= enter[p]) & (enter[p] < leave[k])
    if kind == "same":
        group = same[args[0]]
        return (group[p] == group[k]) & (group[k] >= 0)
    if kind == "segments":
        runs = segments(ids)
        return runs[p] == runs[k]
    if kind == "sink":
        group = (segments(ids) if "segments" in named
                 else ids if "documents" in named else None)
        if group is None:
            return (k < args[0]) & all_true
        rank = np.array([(group[:i] == group[i]).sum() for i in keys])
        return (group[p] == group[k]) & (rank[None, :] < args[0])
    raise AssertionError(kind)


def legal(e, q_len, kv_len, ids=None, count=None, prefix=0, offset=None,
          tree=None, same=None):
    """The legal pairs of one batch row, [q_len, kv_len]: the expression, and
    the conditions that always apply (counts, padding)."""
    offset = kv_len - q_len if offset is None else offset
    pos, keys = np.arange(q_len) + offset, np.arange(kv_len)
    named = names(e)
    out = holds(e, pos, keys, ids, prefix, named, tree, same)
    if count is not None:
        out = out & (keys < count)[None, :] & (pos < count)[:, None]
    if named & {"documents", "segments"}:
        out = out & (ids[keys] >= 0)[None, :] & (ids[pos] >= 0)[:, None]
    return out


def classes(mask, tile_q, tile_kv):
    """The classes of tiles, [rows, columns]: 0 empty, 1 partial, 2 full."""
    q_len, kv_len = mask.shape
    rows, columns = -(-q_len // tile_q), -(-kv_len // tile_kv)
    out = np.zeros((rows, columns), int)
    for r in range(rows):
        for c in range(columns):
            t = mask[r * tile_q:(r + 1) * tile_q, c * tile_kv:(c + 1) * tile_kv]
            out[r, c] = 2 if t.all() else 1 if t.any() else 0
    return out
