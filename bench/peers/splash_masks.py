"""Masks for JAX Splash and for tokamax's version of it, which have one
interface."""

import numpy as np


def legal(atoms, ids, rows, columns):
    """The mask's booleans for two slices; computes only the atoms that it
    has."""
    q = np.arange(rows.start, rows.stop, dtype=np.int32)[:, None]
    k = np.arange(columns.start, columns.stop, dtype=np.int32)[None, :]
    parts = []
    if "documents" in atoms:
        # Negative ids are padding. Padded keys become -2, which no query has.
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
    """A mask that computes only the slice that is asked for, never a dense
    array."""

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
    """The mask as the library's own class, if it has one, else as a lazy
    mask."""
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
