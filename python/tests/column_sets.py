"""Data sets of the same tokens, with and without each optional field."""

import numpy as np

TOKEN_FIELDS = ("structure_ids", "dep_levels", "ast_depth", "sibling_index",
                "node_type", "loss_mask")
EDGES = ("call_edges", "type_edges")


def whole(rng, vocab, longest):
    n = int(rng.integers(3, longest))
    half = n // 2
    return {"input_ids": rng.integers(0, vocab, n).astype(np.int32),
            **{name: rng.integers(0, 2, n).astype(np.int32)
               for name in TOKEN_FIELDS},
            "chunk_starts": [0, half], "chunk_ends": [half, n],
            "chunk_kinds": [1, 2],
            **{name: np.array([[1, 0], [0, 1]]) for name in EDGES},
            "token_spans": [[2 * i, 2 * i + 2] for i in range(n)]}


def column_sets(n=12, vocab=40, longest=60):
    """Yields the name of each set and its documents."""
    chunks = ("chunk_starts", "chunk_ends", "chunk_kinds")
    fields = (*TOKEN_FIELDS, *chunks, *EDGES, "token_spans")
    sets = {"all": fields, "none": ()}
    for name in (*TOKEN_FIELDS, "chunk_kinds", *EDGES, "token_spans"):
        sets["without " + name] = tuple(f for f in fields if f != name)
    for name in TOKEN_FIELDS:
        sets[name + " alone"] = (name,)
    sets["chunks alone"] = chunks[:2]
    for name in EDGES:
        sets["chunks and " + name] = (*chunks[:2], name)
    for called, has in sets.items():
        rng = np.random.default_rng(len(called))
        documents = [whole(rng, vocab, longest) for _ in range(n)]
        yield called, [{k: v for k, v in d.items()
                        if k == "input_ids" or k in has} for d in documents]
    # Some documents have all fields, some have none.
    rng = np.random.default_rng(0)
    yield "all in some", [whole(rng, vocab, longest) if i % 2 else
                          {"input_ids": np.arange(5, dtype=np.int32)}
                          for i in range(n)]
