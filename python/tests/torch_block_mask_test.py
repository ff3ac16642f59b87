"""`tessera.torch.block_mask` against `create_block_mask`, and under
flex_attention."""

import inspect
import time

import judge
import numpy as np
import oracle
import pytest
import tessera as ts
import tessera.torch
import torch
from hypothesis import HealthCheck, given, settings
from test_cases import cases, planned
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

LISTS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks",
         "full_kv_indices", "q_num_blocks", "q_indices", "full_q_num_blocks",
         "full_q_indices")


def same_lists(found, right):
    for name in LISTS:
        a, b = getattr(found, name), getattr(right, name)
        assert a.dtype == b.dtype and torch.equal(a, b), name
    assert found.seq_lengths == right.seq_lengths
    assert found.BLOCK_SIZE == right.BLOCK_SIZE


def made_by_torch(mask, tile):
    """create_block_mask of the oracle's dense mask [batch, heads, q, k]."""
    dense = torch.from_numpy(mask)
    return create_block_mask(lambda b, h, q, k: dense[b, h, q, k], *mask.shape,
                             device="cpu", BLOCK_SIZE=tile)


def evaluated(mod, batch, heads, q_len, kv_len):
    """A mask_mod pair by pair, as create_block_mask evaluates it."""
    f = mod
    for dims in ((None, None, None, 0), (None, None, 0, None),
                 (None, 0, None, None), (0, None, None, None)):
        f = torch.vmap(f, in_dims=dims)
    return f(*(torch.arange(n) for n in (batch, heads, q_len, kv_len))).numpy()


@settings(max_examples=80, deadline=None, derandomize=True,
          suppress_health_check=list(HealthCheck))
@given(cases())
def test_it_is_what_create_block_mask_makes(case):
    batch, mask = planned(case)
    tile, mask = case[-1], mask[:, None]
    found = tessera.torch.block_mask(batch)
    same_lists(found, made_by_torch(mask, tile))
    assert (evaluated(found.mask_mod, *mask.shape) == mask).all()
    # create_block_mask makes the same lists of its mask_mod.
    same_lists(found, create_block_mask(found.mask_mod, *mask.shape,
                                        device="cpu", BLOCK_SIZE=tile))


def test_masks_and_picks_that_differ_by_head():
    rng = np.random.default_rng(0)
    n = 96
    masks = [("causal",), ("window", 20, 5)]
    batch = ts.plan([oracle.text(m) for m in masks], q_len=n, tile=(16, 32))
    mask = np.stack([oracle.legal(m, n, n) for m in masks])[None]
    for heads in (2, 6):
        found = tessera.torch.block_mask(batch, heads=heads)
        want = np.repeat(mask, heads // 2, 1)
        same_lists(found, made_by_torch(want, (16, 32)))
        assert (evaluated(found.mask_mod, *want.shape) == want).all()
    picks = rng.integers(-1, n // 8, (1, 2, n, 3)).astype(np.int32)
    batch = ts.plan(ts.causal & ts.blocks(8), q_len=n, picks=picks,
                    tile=(16, 16))
    keys = np.arange(n) // 8
    want = (picks[..., None] == keys).any(-2) & oracle.legal(("causal",), n, n)
    found = tessera.torch.block_mask(batch)
    same_lists(found, made_by_torch(want, (16, 16)))
    assert (evaluated(found.mask_mod, *want.shape) == want).all()


def test_flex_attention_under_it_is_ours_and_compiles_once():
    rng = np.random.default_rng(1)
    n, tile = 256, (32, 32)
    mask = ("and", ("causal",), ("window", 100, 0), ("documents",))
    draw = lambda heads: torch.from_numpy(
        rng.standard_normal((1, heads, n, 16), np.float32))
    q, k, v = draw(4), draw(2), draw(2)
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("inductor")
    flex = torch.compile(
        lambda q, k, v, blocks: flex_attention(q, k, v, block_mask=blocks,
                                               enable_gqa=True),
        fullgraph=True, backend=counter)
    seen = set()
    for _ in range(100):
        ids = np.sort(rng.integers(0, 5, n)).astype(np.int32)
        seen.add(ids.tobytes())
        batch = ts.plan(oracle.text(mask), q_len=n, doc_ids=ids, tile=tile)
        found = flex(q, k, v, tessera.torch.block_mask(batch))
        want, _ = judge.attention(*(x.numpy() for x in (q, k, v)),
                                  oracle.legal(mask, n, n, ids)[None])
        judge.check(found, want)
        judge.check(tessera.torch.attention(q, k, v, batch), want)
    assert len(seen) == 100 and counter.frame_count == 1
    eager = flex_attention(q, k, v, block_mask=tessera.torch.block_mask(batch),
                           enable_gqa=True)
    judge.check(eager, want)


def captured(f):
    """The tensors in the closures of a function and of the functions it calls."""
    for cell in f.__closure__ or ():
        x = cell.cell_contents
        if isinstance(x, torch.Tensor):
            yield x
        elif inspect.isfunction(x):
            yield from captured(x)


@settings(max_examples=40, deadline=None, derandomize=True,
          suppress_health_check=list(HealthCheck))
@given(cases())
def test_lists_and_facts_are_on_the_device_that_was_asked_for(case):
    batch, _ = planned(case)
    plain = tessera.torch.block_mask(batch)
    read = list(captured(plain.mask_mod))
    for device in ("cpu", torch.device("cpu"), "meta"):
        found = tessera.torch.block_mask(batch, device=device)
        facts = list(captured(found.mask_mod))
        lists = [getattr(found, name) for name in LISTS]
        assert {x.device.type for x in lists + facts} == {
            torch.device(device).type}
        assert [(x.shape, x.dtype) for x in facts] == [
            (x.shape, x.dtype) for x in read]
        if device != "meta":
            same_lists(found, plain)
            assert all(map(torch.equal, facts, read))
            continue
        n = [torch.arange(x, device=device) for x in (batch.q_len, batch.kv_len)]
        zero = torch.zeros(1, dtype=torch.long, device=device)
        seen = found.mask_mod(zero, zero, n[0][:, None], n[1])
        assert seen.device.type == device


def test_128_ki_tokens_and_nothing_dense():
    n = 1 << 17
    ids = np.repeat(np.arange(n // 1024, dtype=np.int32), 1024)
    batch = ts.plan(ts.causal & ts.documents, q_len=n, doc_ids=ids,
                    tile=(128, 128))
    taken = []
    for _ in range(9):
        started = time.perf_counter()
        blocks = tessera.torch.block_mask(batch)
        taken.append(time.perf_counter() - started)
    assert int(blocks.kv_num_blocks.sum() + blocks.full_kv_num_blocks.sum()
               ) == len(batch.forward)
    # 5 ms on a quiet machine; a machine of tests may be busy.
    assert min(taken) < 0.05


def test_what_is_no_batch_is_refused():
    with pytest.raises(ts.TesseraError, match="tessera.Batch, found int"):
        tessera.torch.block_mask(3)
    batch = ts.plan([ts.causal, ts.full], q_len=64)
    with pytest.raises(ts.TesseraError, match="heads"):
        tessera.torch.block_mask(batch, heads=3)
