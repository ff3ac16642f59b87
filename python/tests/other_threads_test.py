"""Other threads run while the package works on large arrays. It holds the GIL only
while it reads arguments and makes results."""

import copy
import functools
import pickle
import threading
import time

import numpy as np
import pytest
import tessera as ts
from tessera import _core

TOKENS = 1 << 20


def rows(count):
    return np.zeros((count, TOKENS), np.int32)


@functools.cache
def of_documents():
    return ts.plan(ts.causal & ts.documents & ts.window(99, 0) | ts.sink(4),
                   q_len=TOKENS, batch=8, doc_ids=rows(8))


@functools.cache
def of_many_tiles():
    return ts.plan(ts.causal, q_len=1 << 18, tile=(64, 64))


@functools.cache
def of_picks():
    picks = np.full((1, 1, 1 << 18, 32), -1, np.int32)
    picks[..., 0] = 0
    return ts.plan(ts.causal & ts.blocks(64), q_len=1 << 18, picks=picks)


@functools.cache
def with_bitmaps():
    ids = np.arange(1 << 16, dtype=np.int32)[None] // 100
    return ts.plan(ts.causal & (ts.same("a") | ts.segments), q_len=1 << 16,
                   tile=(512, 512), doc_ids=ids, same={"a": ids % 7})


@functools.cache
def kernel():
    return ts.compile(with_bitmaps(), heads=4)


@functools.cache
def lists():
    return ts.block_lists(np.ones((2, 4096, 4096), bool))


@functools.cache
def tree():
    return ts.pack_tree([np.arange(1 << 23, dtype=np.int32)] * 2)


def refused(q_len=TOKENS, **given):
    # Nothing is planned, so the call only reads what is given before the rule
    # that it breaks.
    with pytest.raises(ts.TesseraError, match="picks must have the shape"):
        ts.plan(ts.causal & ts.documents, q_len=q_len, picks=[[1]], **given)


def block_mask():
    cells = np.zeros((1, 1, 4096, 4096), bool)
    cells[..., 0] = True
    return lambda: ts.plan(ts.causal & ts.blocks(64), q_len=4096 * 64,
                           block_mask=cells)


# What makes a call that has not run before. Some calls keep what they made.
CALLS = {
    "documents": lambda: functools.partial(
        refused, batch=16, doc_ids=rows(16)),
    "positions": lambda: functools.partial(
        refused, batch=4, position_ids=rows(4) + np.arange(
            TOKENS, dtype=np.int32)),
    "cu_seqlens": lambda: functools.partial(
        refused, q_len=8 * TOKENS,
        cu_seqlens=np.arange(8 * TOKENS + 1, dtype=np.int32)),
    "block mask": block_mask,
    "statistics": lambda: of_many_tiles().statistics,
    "contract": lambda: functools.partial(
        getattr, copy.copy(of_picks()), "contract"),
    "equality": lambda: functools.partial(
        of_documents().__eq__, copy.copy(of_documents())),
    "columns": lambda: functools.partial(
        getattr, copy.copy(of_many_tiles()).forward, "column"),
    "_parts": lambda: functools.partial(_core._parts, of_many_tiles()),
    "_mask_parts": lambda: functools.partial(
        _core._mask_parts, of_documents()),
    "topk_idxs": lambda: of_picks().topk_idxs,
    "a kernel's arrays": lambda: functools.partial(
        kernel().arrays, with_bitmaps()),
    "a kernel's check": lambda: functools.partial(
        kernel().check, kernel().arrays(with_bitmaps())),
    "block lists, pickled": lambda: lists().__getstate__,
    "block lists, copied": lambda: functools.partial(
        pickle.loads, pickle.dumps(lists())),
    "a tree, pickled": lambda: tree().__getstate__,
}


def run_beside_a_thread(call):
    """The seconds of a call, and the longest that another thread waited in it."""
    waited, done = [0.0], threading.Event()

    def run():
        before = time.perf_counter()
        while not done.is_set():
            time.sleep(5e-5)
            now = time.perf_counter()
            waited[0] = max(waited[0], now - before)
            before = now

    other = threading.Thread(target=run)
    other.start()
    time.sleep(0.01)
    waited[0] = 0.0
    start = time.perf_counter()
    try:
        result = call()
        took = time.perf_counter() - start
        time.sleep(0.001)  # the other thread ends its wait
    finally:
        done.set()
        other.join()
    del result  # after the measurement, since it may take long
    return took, waited[0]


@pytest.mark.parametrize("name", CALLS)
def test_other_threads_run_during(name):
    found = []
    for _ in range(8):  # a busy machine may make any thread wait
        took, waited = run_beside_a_thread(CALLS[name]())
        found.append((took, waited))
        if waited < took / 4:
            return
    pytest.fail(f"(seconds, longest wait of another thread): {found}")
