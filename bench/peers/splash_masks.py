"""Masks for JAX Splash and its tokamax descendant: the same words in both."""

import numpy as np


def legal(atoms, ids, rows, columns):
    """The mask's booleans for two slices; no more work than atoms ask for."""
    q = np.arange(rows.start, rows.stop, dtype=np.int32)[:, None]
    k = np.arange(columns.start, columns.stop, dtype=np.int32)[None, :]
    parts = []
    if "documents" in atoms:
        # Negative ids are padding: -2 equals no id of a query below.
        q_ids = ids[rows]
        k_ids = ids[columns]
        q_ids = np.where(q_ids < 0, -1, q_ids)
        k_ids = np.where(k_ids < 0, -2, k_ids)
        parts.append(q_ids[:, None] == k_ids[None, :])
    if "causal" in atoms:
        parts.append(q >= k)
    if "window" in atoms:
        left, right = atoms["window"]
        if left >= 0:
            parts.append(q - left <= k)
        if right >= 0:
            parts.append(q + right >= k)
    result = parts[0]
    for part in parts[1:]:
        result &= part
    return result


def lazy_mask(mask_lib, atoms, ids):
    """Answers for the slice it is asked; it never holds a dense array."""

    class LazyMask(mask_lib.Mask):
        def __init__(self, atoms, ids):
            self.atoms = atoms
            self.ids = ids

        @property
        def shape(self):
            return (len(self.ids), len(self.ids))

        def __getitem__(self, at):
            return legal(self.atoms, self.ids, *at)

        def __eq__(self, other):
            return (
                isinstance(other, LazyMask)
                and self.atoms == other.atoms
                and np.array_equal(self.ids, other.ids)
            )

        def __hash__(self):
            return hash((type(self), self.ids.tobytes()))

    return LazyMask(atoms, ids)


def make_mask(mask_lib, atoms, ids):
    """The library's own class where it has one."""
    shape = (len(ids), len(ids))
    if set(atoms) == {"full"}:
        return mask_lib.FullMask(shape)
    if set(atoms) == {"causal"}:
        return mask_lib.CausalMask(shape)
    if "documents" not in atoms and "window" in atoms:
        left, right = (None if n < 0 else n for n in atoms["window"])
        if "causal" in atoms:
            right = 0
        return mask_lib.LocalMask(shape, (left, right), 0)
    return lazy_mask(mask_lib, atoms, ids)
