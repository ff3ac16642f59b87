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
from document_ids import EIGHT_CUTS, cut_ids, draw_ids
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel as kernel)
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_mask as masks)

LENGTH, BLOCK, HEADS, DIM = 512, 128, 1, 128
DOCUMENTS = ("and", ("causal",), ("documents",))
MASK = ts.causal & ts.documents
splash_mask_info = tessera.jax.splash_mask_info


def make_step():
    """A jitted step of loss, output and gradients whose lists are arguments."""
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

    return jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))


def check_step(step, batch, infos, seed):
    q, k, v, dout = np.random.default_rng(seed).standard_normal(
        (4, HEADS, LENGTH, DIM), np.float32)
    (_, out), grads = step(q, k, v, dout, *infos)
    mask = oracle.legal(DOCUMENTS, LENGTH, LENGTH, batch.facts["doc_ids"][0])
    want = judge.attention(*(x[None] for x in (q, k, v)), mask[None],
                           dout=dout[None])
    judge.check(out, want[0][0])
    for g, w in zip(grads, want[2:5]):
        judge.check(g, w[0])
    # Tiles across documents are not listed.
    for info in infos:
        assert (info.block_mask != 0).sum() == len(batch.forward)


def planned(ids, **ceilings):
    return ts.plan(MASK, q_len=ids.size, doc_ids=ids, tile=(BLOCK, BLOCK),
                   **ceilings)


def shapes_of(infos):
    return tuple(x.shape for x in jax.tree.leaves(infos))


def test_batches_under_ceilings_are_one_program():
    step, lists = make_step(), set()
    for seed, starts in enumerate(EIGHT_CUTS):
        # The first document takes one of four tiles, so no row is wider than 3.
        ids = cut_ids(LENGTH, BLOCK, *(BLOCK + at for at in starts))
        batch = planned(ids, max_width=3)
        infos = splash_mask_info(batch, max_blocks=9)
        assert infos[0].data_next.shape == (1, 4, 3)
        assert infos[1].data_next.shape == (1, 3, 4)
        check_step(step, batch, infos, seed)
        lists.add(batch.digest)
    assert len(lists) == 8 and step._cache_size() == 1


def test_without_ceilings_a_bucket_is_a_program():
    step, shapes = make_step(), []
    for seed, starts in enumerate(([200], [130, 300], [200, 330])):
        batch = planned(cut_ids(LENGTH, *starts))
        infos = splash_mask_info(batch)
        check_step(step, batch, infos, seed)
        shapes.append(shapes_of(infos))
    assert shapes[1] == shapes[2] != shapes[0] and step._cache_size() == 2


def test_shapes_are_ceilings_or_buckets():
    free, under, even = set(), set(), set()
    for seed in range(30):
        ids = draw_ids(seed, 8192, 1500)
        free.add(shapes_of(splash_mask_info(planned(ids))))
        under.add(shapes_of(splash_mask_info(
            planned(ids, max_width=100), max_blocks=200)))
        ids = np.sort(np.random.default_rng(seed).integers(0, 12, 2048))
        even.add(shapes_of(splash_mask_info(planned(ids.astype(np.int32)))))
    # A width is limited to the number of columns.
    grid = ((1, 64, 64),) * 3 + ((200, BLOCK, BLOCK),)
    assert under == {grid * 2} and len(free) > 4 >= len(even)


def test_what_is_above_a_ceiling_is_refused():
    batch = planned(np.zeros(LENGTH, np.int32))
    for blocks in (1, 9):
        info = splash_mask_info(batch, max_blocks=blocks)[0]
        assert len(info.partial_mask_blocks) == blocks
    batch = planned(cut_ids(LENGTH, 100, 200, 300, 400))
    with pytest.raises(ts.TesseraError, match=r"^\[splash\] distinct partial "
                       "tiles must be at most max_blocks 3, found 7$"):
        splash_mask_info(batch, max_blocks=3)
    with pytest.raises(ts.TesseraError, match=r"^\[splash\] max_blocks must be "
                       "0 or more, found -1$"):
        splash_mask_info(batch, max_blocks=-1)
    # If heads differ, JAX's lists are not shortened.
    heads = ts.plan([ts.window(BLOCK - 1, 0), ts.window(2 * BLOCK - 1, 0)],
                    q_len=LENGTH, tile=(BLOCK, BLOCK), max_width=3)
    for info in splash_mask_info(heads, max_blocks=8):
        assert info.data_next.shape == (2, 4, 4)


def test_tokamax_is_asked_for_when_its_lists_are_there():
    """The lists alone need no tokamax; tokamax_test runs its kernels on them."""
    batch = planned(cut_ids(LENGTH, 200), max_steps=11)
    words = dict(tokamax=True, batch_row=0, heads=0, max_blocks=5)
    for dkv, tiles in ((False, batch.forward), (True, batch.transposed)):
        made = ts._core._splash_run(batch, dkv=dkv, **words)
        n = int(made["num_active_blocks"][0])
        assert n == len(tiles)
        rows = np.repeat(np.arange(4), np.diff(tiles.row_start))
        for name, due, beyond in (("active_rows", rows, -1),
                                  ("active_cols", tiles.column, -1),
                                  ("block_mask", tiles.tile_class, 0)):
            assert made[name].dtype == np.int32 and made[name].shape == (11,)
            np.testing.assert_array_equal(made[name][:n], due)
            assert (made[name][n:] == beyond).all()
        assert made["mask_next"].dtype == np.int32
        assert (made["mask_next"][n:] == made["mask_next"][n - 1]).all()
        assert made["partial_mask_blocks"].dtype == np.int8
        assert made["partial_mask_blocks"].shape == (5, BLOCK, BLOCK)
    # Refusals need no tokamax.
    with pytest.raises(ts.TesseraError, match=r"^\[splash\] heads must be 0 for "
                       "tokamax, whose heads have one mask, found 2$"):
        splash_mask_info(batch, kind="tokamax", heads=2)
    with pytest.raises(ts.TesseraError, match=r"^\[python\] batch must be a "
                       "tessera.Batch, found int$"):
        splash_mask_info(7)


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
    with pytest.raises(ts.TesseraError, match=r"^\[splash\] the lane must be given Splash"):
        ts.Session("splash")
