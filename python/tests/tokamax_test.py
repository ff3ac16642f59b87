"""tokamax's Splash attention, interpreted, under our MaskInfo: equal to dense."""

import jax
import judge
import numpy as np
import oracle
import pytest
import tessera as ts
import tessera.jax
from document_ids import EIGHT_CUTS, cut_ids, draw_ids
from tokamax._src.ops.experimental.tpu.splash_attention import (
    splash_attention_kernel as kernel)
from tokamax._src.ops.experimental.tpu.splash_attention import (
    splash_attention_mask as masks)
from tokamax._src.ops.experimental.tpu.splash_attention import (
    splash_attention_mask_info as mask_info)

# Three tiles of keys. With more, the kernel adds partial sums of dq in place, which
# the interpreter does not do (tokamax's own lists give wrong gradients then, too).
LENGTH, BLOCK, HEADS, DIM = 384, 128, 2, 128
DOCUMENTS = ("and", ("causal",), ("documents",))
splash_mask_info = tessera.jax.splash_mask_info


def make_step(q_len=LENGTH):
    """A jitted step of loss, output and gradients whose lists are arguments."""
    config = kernel.SplashConfig(
        block_q=BLOCK, block_kv=BLOCK, block_q_dkv=BLOCK, block_kv_dkv=BLOCK,
        block_kv_dkv_compute=BLOCK, dq_reduction_steps=3, interpret=True)
    some = masks.NumpyMask(np.tril(np.ones((q_len, LENGTH), bool)))
    words = kernel.make_splash_mha_single_device(some, config=config).kwargs

    @jax.jit
    def loss(q, k, v, dout, forward, dkv):
        attend = kernel.SplashAttentionKernel(forward, dkv, **words)
        out = attend(q * DIM ** -0.5, k, v)
        return (out * dout).sum(), out

    return jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))


def check_step(step, infos, legal, seed):
    rng = np.random.default_rng(seed)
    q, k, v, dout = (
        rng.standard_normal((HEADS, n, DIM)).astype(np.float32)
        for n in (legal.shape[-2], LENGTH, LENGTH, legal.shape[-2]))
    (_, out), grads = step(q, k, v, dout, *infos)
    want = judge.attention(*(x[None] for x in (q, k, v)), legal[None],
                           dout=dout[None])
    judge.check(out, want[0][0])
    for g, w in zip(grads, want[2:5]):
        judge.check(g, w[0])
    return grads


def steps_of(info):
    """(row, column, class, mask block or None if full) of each visited tile."""
    for i in range(int(info.num_active_blocks[0])):
        kind = int(info.block_mask[i])
        block = info.partial_mask_blocks[int(info.mask_next[i])]
        yield (int(info.active_rows[i]), int(info.active_cols[i]), kind,
               np.asarray(block).tobytes() if kind == 1 else None)


def planned(ids, **ceilings):
    return ts.plan(ts.causal & ts.documents, q_len=ids.size, doc_ids=ids,
                   tile=(BLOCK, BLOCK), **ceilings)


def shapes_of(infos):
    return tuple(x.shape for x in jax.tree.leaves(infos))


def check_batch(step, batch, infos, seed):
    check_step(step, infos, oracle.legal(DOCUMENTS, LENGTH, LENGTH,
                                         batch.facts["doc_ids"][0]), seed)
    # Tiles across documents are not listed.
    for info in infos:
        assert sum(s[2] != 0 for s in steps_of(info)) == len(batch.forward)


def test_batches_under_ceilings_are_one_program():
    step, lists = make_step(), set()
    for seed, starts in enumerate(EIGHT_CUTS):
        batch = planned(cut_ids(LENGTH, *starts), max_steps=7)
        infos = splash_mask_info(batch, kind="tokamax", max_blocks=6)
        assert {x.block_mask.shape for x in infos} == {(7,)}
        check_batch(step, batch, infos, seed)
        lists.add(batch.digest)
    assert len(lists) == 8 and step._cache_size() == 1


def test_without_ceilings_a_bucket_is_a_program():
    step, shapes = make_step(), []
    for seed, starts in enumerate(([128, 256], [100], [300])):
        batch = planned(cut_ids(LENGTH, *starts))
        infos = splash_mask_info(batch, kind="tokamax")
        check_batch(step, batch, infos, seed)
        shapes.append(shapes_of(infos))
    assert shapes[1] == shapes[2] != shapes[0] and step._cache_size() == 2


def test_keys_that_no_query_sees_have_a_gradient_of_zero():
    q_len = BLOCK
    batch = ts.plan(ts.window(100, 0), q_len=q_len, kv_len=LENGTH,
                    tile=(BLOCK, BLOCK))
    infos = splash_mask_info(batch, kind="tokamax")
    assert [s[:3] for s in steps_of(infos[1])][0] == (0, 0, 0)
    at = np.arange(q_len)[:, None] + LENGTH - q_len - np.arange(LENGTH)
    _, dk, dv = check_step(make_step(q_len), infos, (at >= 0) & (at <= 100), 9)
    assert not np.any(dk[:, :BLOCK]) and not np.any(dv[:, :BLOCK])


def test_lists_are_tokamax_own():
    rng = np.random.default_rng(2)
    length = 1024
    for most in range(1, 12):
        ids = np.sort(rng.integers(0, most, length)).astype(np.int32)
        tile = (BLOCK, 2 * BLOCK) if most % 2 else (2 * BLOCK, BLOCK)
        legal = oracle.legal(DOCUMENTS, length, length, ids)
        batch = ts.plan(ts.causal & ts.documents, q_len=length, doc_ids=ids,
                        tile=tile)
        ours = splash_mask_info(batch, kind="tokamax")
        for dkv in (False, True):
            theirs, _ = mask_info._process_mask(
                masks.NumpyMask(legal.reshape(length, length)), tile, dkv)
            assert list(steps_of(ours[dkv])) == list(steps_of(theirs))


def test_shapes_are_ceilings_or_buckets():
    free, under, even = set(), set(), set()
    for seed in range(30):
        ids = draw_ids(seed, 8192, 1500)
        free.add(shapes_of(splash_mask_info(planned(ids), kind="tokamax")))
        under.add(shapes_of(splash_mask_info(
            planned(ids, max_steps=10_000), kind="tokamax", max_blocks=200)))
        ids = np.sort(np.random.default_rng(seed).integers(0, 12, 2048))
        even.add(shapes_of(splash_mask_info(planned(ids.astype(np.int32)),
                                            kind="tokamax")))
    # A list is at most as long as the number of tiles.
    lists = ((64 * 64,),) * 4 + ((1,), (200, BLOCK, BLOCK))
    assert under == {lists * 2} and len(free) > 4 >= len(even)


def test_what_it_cannot_say_is_refused():
    batch = ts.plan("causal", q_len=LENGTH, tile=(BLOCK, BLOCK))
    with pytest.raises(ts.TesseraError, match=r"^\[splash\] heads must be 0"):
        splash_mask_info(batch, kind="tokamax", heads=2)
    with pytest.raises(ts.TesseraError, match=r"^\[splash\] distinct partial "
                       "tiles must be at most max_blocks 2, found 3$"):
        splash_mask_info(planned(cut_ids(LENGTH, 100)), kind="tokamax",
                         max_blocks=2)
    by_head = ts.plan(["causal", "full"], q_len=LENGTH, tile=(BLOCK, BLOCK))
    with pytest.raises(ts.TesseraError, match=r"^\[splash\] tokamax's heads"):
        splash_mask_info(by_head, kind="tokamax")
    with pytest.raises(ts.TesseraError, match=r"^\[jax\] kind must be"):
        splash_mask_info(batch, kind="pallas")
