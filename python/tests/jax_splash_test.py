"""JAX's Splash attention, interpreted, under our MaskInfo: equal to dense."""

import pathlib

import jax
import jax.numpy as jnp
import judge
import numpy as np
import oracle
import plugins
import pytest
import tessera as ts
import tessera.jax
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel as kernel)
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_mask as masks)

LENGTH, BLOCK, HEADS, DIM = 384, 128, 1, 128


def test_documents_at_run_time():
    sizes = kernel.BlockSizes(
        block_q=BLOCK, block_kv=BLOCK, block_kv_compute=BLOCK,
        block_q_dkv=BLOCK, block_kv_dkv=BLOCK, block_kv_dkv_compute=BLOCK,
        block_q_dq=BLOCK, block_kv_dq=BLOCK)
    some = masks.NumpyMask(np.tril(np.ones((LENGTH, LENGTH), bool)))
    words = kernel.make_splash_mha(
        masks.MultiHeadMask([some] * HEADS), block_sizes=sizes,
        head_shards=1, q_seq_shards=1, interpret=True).kwargs

    @jax.jit
    def loss(q, k, v, dout, forward, dkv):
        attend = kernel.SplashAttentionKernel(forward, forward, dkv, **words)
        out = attend(q * DIM ** -0.5, k, v)
        return (out * dout).sum(), out

    step = jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))
    rng = np.random.default_rng(0)
    widths = set()
    for cuts in ([0, 200, 384], [0, 130, 300, 384]):
        ids = np.zeros(LENGTH, np.int32)
        for i, cut in enumerate(cuts[1:-1]):
            ids[cut:] = i + 1
        batch = ts.plan(ts.causal & ts.documents, q_len=LENGTH, doc_ids=ids,
                        tile=(BLOCK, BLOCK))
        forward, dkv = tessera.jax.splash_mask_info(batch)
        widths.add((forward.block_mask.shape, dkv.block_mask.shape,
                    forward.partial_mask_blocks.shape))
        q, k, v, dout = (
            rng.standard_normal((HEADS, LENGTH, DIM)).astype(np.float32)
            for _ in range(4))
        (_, out), grads = step(q, k, v, dout, forward, dkv)
        mask = oracle.legal(("and", ("causal",), ("documents",)), LENGTH,
                            LENGTH, ids)
        want = judge.attention(*(x[None] for x in (q, k, v)), mask[None],
                               dout=dout[None])
        judge.check(out, want[0][0])
        for g, w in zip(grads, want[2:5]):
            judge.check(g, w[0])
        # Tiles of other documents are not there at all.
        assert (forward.block_mask != 0).sum() == len(batch.forward)
    assert step._cache_size() == len(widths)


def test_shapes_are_buckets():
    rng = np.random.default_rng(1)
    shapes = set()
    for _ in range(12):
        ids = np.sort(rng.integers(0, 12, 2048)).astype(np.int32)
        batch = ts.plan(ts.causal & ts.documents, q_len=2048, doc_ids=ids,
                        tile=(BLOCK, BLOCK))
        shapes.add(tuple(x.shape for x in jax.tree.leaves(
            tessera.jax.splash_mask_info(batch))))
    assert len(shapes) <= 4


@plugins.needs("xla_cpu_pjrt")
def test_a_session_runs_what_was_exported():
    golden = (pathlib.Path(__file__).parents[2] / "tests/golden/bridge/splash")
    files = {"artifact": f"{golden}.mlirbc", "shapes": f"{golden}.json"}
    session = ts.Session("splash", **files)
    rng = np.random.default_rng(2)
    for left in (60, 7):
        mask = ts.causal & ts.window(left, 0)
        batch = ts.plan(mask, q_len=256, kv_len=384, tile=(64, 128))
        q, k, v = (rng.standard_normal((1, heads, tokens, 16), np.float32)
                   for heads, tokens in ((4, 256), (2, 384), (2, 384)))
        made = ts.attention(q, k, v, batch, session=session, return_lse=True)
        pos, keys = np.arange(128, 384)[:, None], np.arange(384)[None]
        legal = (keys <= pos) & (keys >= pos - left)
        judge.check_all(made, judge.attention(q, k, v, legal[None]))
    assert session.choose(batch, heads=4, kv_heads=2,
                          head_dim=16).lane == "splash"
    with pytest.raises(ts.TesseraError, match="artifact goes with shapes"):
        ts.Session("splash", artifact=files["artifact"])
    with pytest.raises(ts.TesseraError, match="splash or jax_bridge, found cpu"):
        ts.Session("cpu", **files)
    with pytest.raises(ts.TesseraError, match=r"^\[splash\] it needs Splash"):
        ts.Session("splash")
