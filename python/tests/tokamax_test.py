"""tokamax's Splash attention, interpreted, under our MaskInfo: equal to dense."""

import jax
import judge
import numpy as np
import oracle
import pytest
import tessera as ts
import tessera.jax
from tokamax._src.ops.experimental.tpu.splash_attention import (
    splash_attention_kernel as kernel)
from tokamax._src.ops.experimental.tpu.splash_attention import (
    splash_attention_mask as masks)
from tokamax._src.ops.experimental.tpu.splash_attention import (
    splash_attention_mask_info as mask_info)

# Three tiles of keys: with more, dq's partial sums are added up in place, which
# the interpreter does not do (its own lists give wrong gradients then, too).
LENGTH, BLOCK, HEADS, DIM = 384, 128, 2, 128
DOCUMENTS = ("and", ("causal",), ("documents",))


def make_step(q_len=LENGTH):
    """Loss, output and gradients under lists that are arguments."""
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


def cut(*ends):
    ids = np.zeros(LENGTH, np.int32)
    for i, end in enumerate(ends):
        ids[end:] = i + 1
    return ids


def steps_of(info):
    """(row, column, class, the block where it is partial) of what is visited."""
    for i in range(int(info.num_active_blocks[0])):
        kind = int(info.block_mask[i])
        block = info.partial_mask_blocks[int(info.mask_next[i])]
        yield (int(info.active_rows[i]), int(info.active_cols[i]), kind,
               np.asarray(block).tobytes() if kind == 1 else None)


def test_documents_at_run_time():
    step = make_step()
    shapes = set()
    for seed, ids in enumerate(
            (cut(200), cut(130, 300), cut(128, 256), cut())):
        batch = ts.plan(ts.causal & ts.documents, q_len=LENGTH, doc_ids=ids,
                        tile=(BLOCK, BLOCK))
        infos = tessera.jax.splash_mask_info(batch, kind="tokamax")
        shapes.add(tuple(x.shape for x in jax.tree.leaves(infos)))
        check_step(step, infos, oracle.legal(DOCUMENTS, LENGTH, LENGTH, ids),
                   seed)
        # Tiles of other documents are not there at all.
        for info in infos:
            assert sum(s[2] != 0 for s in steps_of(info)) == len(batch.forward)
    assert step._cache_size() == len(shapes)


def test_keys_that_no_query_sees_have_a_gradient_of_zero():
    q_len = BLOCK
    batch = ts.plan(ts.window(100, 0), q_len=q_len, kv_len=LENGTH,
                    tile=(BLOCK, BLOCK))
    infos = tessera.jax.splash_mask_info(batch, kind="tokamax")
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
        ours = tessera.jax.splash_mask_info(batch, kind="tokamax")
        for dkv in (False, True):
            theirs, _ = mask_info._process_mask(
                masks.NumpyMask(legal.reshape(length, length)), tile, dkv)
            assert list(steps_of(ours[dkv])) == list(steps_of(theirs))


def test_shapes_are_buckets():
    rng = np.random.default_rng(1)
    shapes = set()
    for _ in range(12):
        ids = np.sort(rng.integers(0, 12, 2048)).astype(np.int32)
        batch = ts.plan(ts.causal & ts.documents, q_len=2048, doc_ids=ids,
                        tile=(BLOCK, BLOCK))
        shapes.add(tuple(x.shape for x in jax.tree.leaves(
            tessera.jax.splash_mask_info(batch, kind="tokamax"))))
    assert len(shapes) <= 4


def test_what_it_cannot_say_is_refused():
    batch = ts.plan("causal", q_len=LENGTH, tile=(BLOCK, BLOCK))
    with pytest.raises(ts.TesseraError, match=r"^\[jax\] heads must be 0"):
        tessera.jax.splash_mask_info(batch, kind="tokamax", heads=2)
    by_head = ts.plan(["causal", "full"], q_len=LENGTH, tile=(BLOCK, BLOCK))
    with pytest.raises(ts.TesseraError, match=r"^\[jax\] tokamax's heads"):
        tessera.jax.splash_mask_info(by_head, kind="tokamax")
    with pytest.raises(ts.TesseraError, match=r"^\[jax\] kind must be"):
        tessera.jax.splash_mask_info(batch, kind="pallas")
