"""Packed rows: documents in, fixed-shape batches with their attention plan out.

    import tessera.data

    loader = tessera.data.Loader(table, tokens=8192, rows=8, mask="causal & documents")
    for batch in loader:
        step(batch["input_ids"], batch["target_ids"], batch["loss_mask"], batch["batch"])
        save(loader.state())  # Loader(table, ..., state=...) resumes from here

    loader = tessera.data.Loader.open_rows("rows", rows=8)  # by `tessera pack`
"""

from ._core import Loader

__all__ = ["Loader"]
