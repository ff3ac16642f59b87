"""Random masks with facts, their plans, and the oracle's legal pairs."""

import numpy as np
import oracle
import tessera as ts
from hypothesis import strategies as st


def atoms():
    bound = st.integers(-1, 40)
    return st.one_of(
        st.sampled_from([("full",), ("causal",), ("prefix",), ("documents",),
                         ("segments",), ("tree",), ("same", "a"), ("same", "b")]),
        st.tuples(st.just("window"), bound, bound),
        st.tuples(st.just("chunk"), st.integers(1, 30)),
        st.tuples(st.just("sink"), st.integers(0, 9)))


def expressions():
    def join(children):
        return st.one_of(st.tuples(st.just("and"), children, children),
                         st.tuples(st.just("or"), children, children),
                         st.tuples(st.just("not"), children))
    return st.recursive(atoms(), join, max_leaves=5)


def random_tree(seed, n):
    """`enter` and `leave` of n tokens. A token's parent is on the path to the
    token before it."""
    rng = np.random.default_rng(seed)
    leave = np.full(n, n, np.int32)
    way = []
    for t in range(n):
        if rng.integers(4) == 0:
            keep = rng.integers(len(way) + 1)
            leave[way[keep:]] = t
            del way[keep:]
        way.append(t)
    return np.arange(n, dtype=np.int32), leave


@st.composite
def cases(draw):
    e = draw(expressions())
    batch = draw(st.integers(1, 2))
    kv_len = draw(st.integers(1, 90))
    q_len = draw(st.integers(1, kv_len))
    cuts = draw(st.lists(st.integers(0, 3), min_size=kv_len, max_size=kv_len))
    step = np.array(cuts) == 3
    ids = (np.cumsum(step) % 4 - (1 if draw(st.booleans()) else 0))
    ids = np.stack([ids, ids[::-1]])[:batch].astype(np.int32)
    counts = (np.array([draw(st.integers(0, kv_len)) for _ in range(batch)],
                       np.int32) if draw(st.booleans()) else None)
    prefix = np.array([draw(st.integers(0, kv_len)) for _ in range(batch)],
                      np.int32)
    if counts is not None:  # a prefix is of valid keys
        prefix = np.minimum(prefix, counts)
    trees = [random_tree(draw(st.integers(0, 2**31)), kv_len)
             for _ in range(batch)]
    tile = draw(st.sampled_from([(8, 8), (16, 8), (8, 24), (64, 64)]))
    return e, batch, q_len, kv_len, ids, counts, prefix, trees, tile


def planned(case):
    e, batch, q_len, kv_len, ids, counts, prefix, trees, tile = case
    named = oracle.names(e)
    facts = {}
    if named & {"documents", "segments"}:
        facts["doc_ids"] = ids
    if "prefix" in named:
        facts["prefix"] = prefix
    if "tree" in named:
        facts["tree_enter"] = np.stack([enter for enter, _ in trees])
        facts["tree_leave"] = np.stack([leave for _, leave in trees])
    # Ids for same(a) and same(b): the document ids reversed, and divided by 3.
    same = [{"a": row[::-1].copy(), "b": row // 3} for row in ids]
    if "same" in named:
        facts["same"] = {name: np.stack([row[name] for row in same])
                         for name in "ab"}
    if counts is not None:
        facts["valid_token_counts"] = counts
    made = ts.plan(oracle.text(e), q_len=q_len, kv_len=kv_len, batch=batch,
                   tile=tile, **facts)
    mask = np.stack([
        oracle.legal(e, q_len, kv_len, ids[b],
                     None if counts is None else counts[b], prefix[b],
                     tree=trees[b], same=same[b])
        for b in range(batch)])
    return made, mask
