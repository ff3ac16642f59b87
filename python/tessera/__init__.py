"""Block-sparse attention: exact plans, sessions and kernels, from one engine.

    import numpy as np
    import tessera as ts

    batch = ts.plan(ts.causal & ts.documents, q_len=4096, doc_ids=ids)
    out = ts.attention(q, k, v, batch)

`tessera.jax` and `tessera.torch` offer the same calls inside those frameworks.
Each is loaded only when you import it.
"""

import os as _os
import sys as _sys

# The library searches this interpreter's packages for PJRT plugins. Programs
# that this process starts inherit the variable and do the same.
if _sys.executable:
    _os.environ.setdefault("TESSERA_PYTHON", _sys.executable)

from ._core import (
    Batch,
    BlockLists,
    Choice,
    Contract,
    Mask,
    PackedTree,
    Prepared,
    Saved,
    Session,
    Shards,
    SinkDocument,
    SinkTelemetry,
    TesseraError,
    TpuKernel,
    Worklist,
    __version__,
    attention,
    block_lists,
    blocks,
    causal,
    choose,
    chunk,
    compile,
    documents,
    full,
    join_sinks,
    pack_tree,
    plan,
    prefix,
    receipt_text,
    route,
    routed,
    same,
    segments,
    shard,
    sink,
    sink_gradients,
    tpu_setting,
    tree,
    verify,
    window,
)
from ._fit import Budget, fit
from ._schedule import Schedule, schedule

__all__ = [
    "Batch",
    "BlockLists",
    "Budget",
    "Choice",
    "Contract",
    "Mask",
    "PackedTree",
    "Prepared",
    "Saved",
    "Schedule",
    "Session",
    "Shards",
    "SinkDocument",
    "SinkTelemetry",
    "TesseraError",
    "TpuKernel",
    "Worklist",
    "__version__",
    "attention",
    "block_lists",
    "blocks",
    "causal",
    "choose",
    "chunk",
    "compile",
    "documents",
    "fit",
    "full",
    "join_sinks",
    "pack_tree",
    "plan",
    "prefix",
    "receipt_text",
    "route",
    "routed",
    "same",
    "schedule",
    "segments",
    "shard",
    "sink",
    "sink_gradients",
    "tpu_setting",
    "tree",
    "verify",
    "window",
]
