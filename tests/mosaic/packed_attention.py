"""A small block-sparse attention in Pallas, driven by packed steps.

It represents kernels of that kind in the tests of the evaluator and of the
mutations. A step has 32 bits: row 14, column 14, class 2 (0 nothing, 1 partial,
2 full), first 1, last 1. The index maps read rows and columns from it.
"""

import oracle
import pallas_kernels  # Sets JAX up, so it comes before it.
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

BLOCK = 128
DOCUMENTS = [300, 420, 20, 28, 128]
F32 = jnp.float32
LOWEST = -1e30


def pack(row, column, kind, first, last):
    return row | column << 14 | kind << 28 | first << 30 | last << 31


def steps_of(legal):
    """The packed steps of one mask, given as booleans."""
    rows = legal.shape[0] // BLOCK
    out = []
    for r in range(rows):
        tiles = []
        for c in range(legal.shape[1] // BLOCK):
            tile = legal[r * BLOCK :, c * BLOCK :][:BLOCK, :BLOCK]
            if tile.any():
                tiles.append((c, 2 if tile.all() else 1))
        tiles = tiles or [(0, 0)]
        for i, (c, kind) in enumerate(tiles):
            out.append(pack(r, c, kind, i == 0, i == len(tiles) - 1))
    return np.array(out, np.uint32).view(np.int32)


def row_of(steps, i):
    return steps[i] & 0x3FFF


def column_of(steps, i):
    return lax.shift_right_logical(steps[i], 14) & 0x3FFF


def body(steps, q_ids, k_ids, q_ref, k_ref, v_ref, o_ref, lse_ref, m, l, acc):
    i = pl.program_id(1)
    step = steps[i]
    kind = lax.shift_right_logical(step, 28) & 3
    first = lax.shift_right_logical(step, 30) & 1
    last = lax.shift_right_logical(step, 31)

    @pl.when(first == 1)
    def _():
        m[...] = jnp.full_like(m, LOWEST)
        l[...] = jnp.zeros_like(l)
        acc[...] = jnp.zeros_like(acc)

    def update(scores, is_masked):
        old = m[:, :1]
        new = jnp.maximum(old, jnp.max(scores, axis=1, keepdims=True))
        p = jnp.exp(scores - new)
        if is_masked:
            # Rows that have no key so far would have exp(0) everywhere.
            p = jnp.where(scores > LOWEST / 2, p, 0.0)
        scale = jnp.exp(old - new)
        total = l[:, :1] * scale + jnp.sum(p, axis=1, keepdims=True)
        product = jnp.dot(
            p.astype(jnp.bfloat16), v_ref[...], preferred_element_type=F32
        )
        acc[...] = acc[...] * scale + product
        m[...] = jnp.broadcast_to(new, m.shape)
        l[...] = jnp.broadcast_to(total, l.shape)

    def scores():
        raw = lax.dot_general(
            q_ref[...],
            k_ref[...],
            (((1,), (1,)), ((), ())),
            preferred_element_type=F32,
        )
        return raw * np.float32(q_ref.shape[1] ** -0.5)

    @pl.when(kind == 2)
    def _():
        update(scores(), False)

    @pl.when(kind == 1)
    def _():
        shape = (BLOCK, BLOCK)
        query = lax.broadcasted_iota(jnp.int32, shape, 0)
        key = lax.broadcasted_iota(jnp.int32, shape, 1)
        query += row_of(steps, i) * BLOCK
        key += column_of(steps, i) * BLOCK
        ids = q_ids[:, :1]
        legal = (key <= query) & (ids == k_ids[:1, :]) & (ids >= 0)
        update(jnp.where(legal, scores(), LOWEST), True)

    @pl.when(last == 1)
    def _():
        total = l[:, :1]
        seen = total > 0.0
        o_ref[...] = jnp.where(seen, acc[...] / total, 0.0).astype(o_ref.dtype)
        lse = jnp.where(seen, m[:, :1] + jnp.log(total), -jnp.inf)
        lse_ref[...] = jnp.broadcast_to(lse, lse_ref.shape)


def case(seed=5):
    """Documents that cross tiles, negative ids, a row of tiles without keys.

    Rows begin with full tiles, and have full tiles after partial ones.
    Otherwise mutants of a maximum or of a rescale would not be detected.
    """
    ids = np.repeat(np.array([0, 1, -1, 5, -1], np.int32), DOCUMENTS)
    tokens = len(ids)
    legal = oracle.legal_pairs(tokens, tokens, causal=True, doc_ids=ids)
    q, k, v = oracle.hard_inputs(seed, (1, 1, tokens, 128), (1, 1, tokens, 128))
    want = oracle.attention(q, k, v, legal[None])
    arrays = [steps_of(legal), ids, q[0], k[0], v[0]]
    return pallas_kernels.Case(call, arrays), want


def is_right(outputs, want):
    """Whether out and lse are within the errors of fp32."""
    out, lse = outputs
    return (
        oracle.worst(out, want.out[0], want.out_error[0]) <= 1
        and oracle.worst(lse[:, :, 0], want.lse[0], want.lse_error[0]) <= 1
    )


def call(steps, ids, q, k, v, interpret=False):
    """Takes q, k, v [H, S, D]; returns out [H, S, D] and lse [H, S, 128]."""
    heads, tokens, dim = q.shape
    here = (None, BLOCK, dim)
    row = pl.BlockSpec(here, lambda h, i, s: (h, row_of(s, i), 0))
    column = pl.BlockSpec(here, lambda h, i, s: (h, column_of(s, i), 0))
    lanes = pl.BlockSpec(
        (None, BLOCK, 128), lambda h, i, s: (h, row_of(s, i), 0)
    )
    q_ids = jnp.broadcast_to(ids[:, None], (tokens, 128))
    k_ids = jnp.broadcast_to(ids[None, :], (8, tokens))
    return pl.pallas_call(
        body,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(heads, steps.shape[0]),
            in_specs=[
                pl.BlockSpec((BLOCK, 128), lambda h, i, s: (row_of(s, i), 0)),
                pl.BlockSpec((8, BLOCK), lambda h, i, s: (0, column_of(s, i))),
                row,
                column,
                column,
            ],
            out_specs=[row, lanes],
            scratch_shapes=[pltpu.VMEM((BLOCK, 128), F32)] * 2
            + [pltpu.VMEM((BLOCK, dim), F32)],
        ),
        out_shape=[
            jax.ShapeDtypeStruct(q.shape, q.dtype),
            jax.ShapeDtypeStruct((heads, tokens, 128), F32),
        ],
        interpret=interpret,
    )(steps, q_ids, k_ids, q, k, v)
