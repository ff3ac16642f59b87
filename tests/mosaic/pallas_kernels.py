"""Pallas kernels for the tests of the evaluator; none is Tessera's own.

Each returns a Case: a function of arrays that takes `interpret`, and arrays.
JAX lowers it for TPU without having one; `interpret=True` gives Pallas's
result.
"""

import dataclasses
import functools
import os
from typing import Callable

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402
from jax.experimental.pallas import tpu as pltpu  # noqa: E402
from jax.experimental.pallas.ops.tpu.splash_attention import (  # noqa: E402
    splash_attention_kernel as splash,
)
from jax.experimental.pallas.ops.tpu.splash_attention import (  # noqa: E402
    splash_attention_mask as splash_mask,
)

from oracle import EPS32  # noqa: E402

F32 = jnp.float32
I32 = jnp.int32


@dataclasses.dataclass
class Case:
    """`call(*arrays, interpret=False)`, its arrays, and NumPy's results.

    `error` is the allowed fp32 error of each result, 0 if it is left out.
    `interprets` says whether Pallas can run the kernel without a TPU.
    """

    call: Callable
    arrays: list
    expected: list | None = None
    error: list | None = None
    interprets: bool = True


def sum_error(terms, size):
    """The error of a sum of `terms` terms whose magnitudes add up to `size`, as
    in the oracle. It also covers a function such as exp."""
    return (8 + np.sqrt(terms)) * EPS32 * size


def lowered(case):
    """The StableHLO text of a case, lowered for TPU."""
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in case.arrays]
    return str(
        jax.jit(case.call)
        .trace(*shapes)
        .lower(lowering_platforms=("tpu",))
        .as_text()
    )


def normal(seed, shape, dtype=np.float32):
    values = np.random.default_rng(seed).standard_normal(shape)
    return values.astype(np.float32).astype(dtype)


def prefetched_blocks():
    """Scalar prefetch: the index map reads the block of each step."""
    picks = np.array([3, 0, 2, 2, 1], np.int32)
    x = normal(1, (4 * 8, 128))

    def kernel(picks_ref, x_ref, o_ref):
        step = pl.program_id(0)
        o_ref[...] = x_ref[...] * 2.0 + picks_ref[step].astype(F32)

    def call(picks, x, interpret=False):
        return pl.pallas_call(
            kernel,
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=1,
                grid=(5,),
                in_specs=[pl.BlockSpec((8, 128), lambda i, p: (p[i], 0))],
                out_specs=pl.BlockSpec((8, 128), lambda i, p: (i, 0)),
            ),
            out_shape=jax.ShapeDtypeStruct((40, 128), F32),
            interpret=interpret,
        )(picks, x)

    rows = x.reshape(4, 8, 128)[picks] * np.float32(2)
    rows = rows + picks.astype(np.float32)[:, None, None]
    return Case(call, [picks, x], [rows.reshape(40, 128)])


def double_buffered():
    """Copies by hand with two buffers; the number of blocks is read at run
    time."""
    count = np.array([3], np.int32)
    picks = np.array([2, 0, 3, 1], np.int32)
    x = normal(2, (4 * 16, 128))

    def kernel(count_ref, picks_ref, x_ref, o_ref, buffer, acc, sems):
        def copy(step, slot):
            block = pl.multiple_of(picks_ref[step] * 16, 16)
            return pltpu.make_async_copy(
                x_ref.at[pl.ds(block, 16), :], buffer.at[slot], sems.at[slot]
            )

        count = count_ref[0]
        acc[...] = jnp.zeros_like(acc)

        @pl.when(count > 0)
        def _():
            copy(0, 0).start()

        def body(step, carry):
            slot = lax.rem(step, 2)

            @pl.when(step + 1 < count)
            def _():
                copy(step + 1, 1 - slot).start()

            copy(step, slot).wait()
            acc[...] += buffer[slot] * (step + 1).astype(F32)
            return carry

        lax.fori_loop(0, count, body, 0)
        o_ref[...] = acc[...]

    def call(count, picks, x, interpret=False):
        return pl.pallas_call(
            kernel,
            in_specs=[
                pl.BlockSpec(memory_space=pltpu.SMEM),
                pl.BlockSpec(memory_space=pltpu.SMEM),
                pl.BlockSpec(memory_space=pl.ANY),
            ],
            out_shape=jax.ShapeDtypeStruct((16, 128), F32),
            scratch_shapes=[
                pltpu.VMEM((2, 16, 128), F32),
                pltpu.VMEM((16, 128), F32),
                pltpu.SemaphoreType.DMA((2,)),
            ],
            interpret=interpret,
        )(count, picks, x)

    acc = np.zeros((16, 128), np.float32)
    for step in range(3):
        acc += x.reshape(4, 16, 128)[picks[step]] * np.float32(step + 1)
    return Case(call, [count, picks, x], [acc])


def gathered():
    """The same with a loop of known length."""
    picks = np.array([2, 0, 3, 1], np.int32)
    x = normal(2, (4 * 16, 128))

    def kernel(picks_ref, x_ref, o_ref, buffer, acc, sems):
        def copy(step, slot):
            return pltpu.make_async_copy(
                x_ref.at[pl.ds(picks_ref[step] * 16, 16), :],
                buffer.at[slot],
                sems.at[slot],
            )

        acc[...] = jnp.zeros_like(acc)
        copy(0, 0).start()

        def body(step, carry):
            slot = lax.rem(step, 2)

            @pl.when(step + 1 < 4)
            def _():
                copy(step + 1, 1 - slot).start()

            copy(step, slot).wait()
            acc[...] += buffer[slot] * (step + 1).astype(F32)
            return carry

        lax.fori_loop(0, 4, body, 0)
        o_ref[...] = acc[...]

    def call(picks, x, interpret=False):
        return pl.pallas_call(
            kernel,
            in_specs=[
                pl.BlockSpec(memory_space=pltpu.SMEM),
                pl.BlockSpec(memory_space=pl.ANY),
            ],
            out_shape=jax.ShapeDtypeStruct((16, 128), F32),
            scratch_shapes=[
                pltpu.VMEM((2, 16, 128), F32),
                pltpu.VMEM((16, 128), F32),
                pltpu.SemaphoreType.DMA((2,)),
            ],
            interpret=interpret,
        )(picks, x)

    acc = np.zeros((16, 128), np.float32)
    for step in range(4):
        acc += x.reshape(4, 16, 128)[picks[step]] * np.float32(step + 1)
    return Case(call, [picks, x], [acc])


def double_buffered_output():
    """Copies out to HBM by hand, from a grid of many steps."""
    x = normal(3, (6 * 8, 128))

    def kernel(x_ref, o_ref, buffer, sems):
        step = pl.program_id(0)
        slot = lax.rem(step, 2)

        def copy(at, slot):
            return pltpu.make_async_copy(
                buffer.at[slot], o_ref.at[pl.ds(at * 8, 8)], sems.at[slot]
            )

        @pl.when(step >= 2)
        def _():
            copy(step - 2, slot).wait()

        buffer[slot] = x_ref[...] + 1.0
        copy(step, slot).start()

        @pl.when(step == pl.num_programs(0) - 1)
        def _():
            copy(step - 1, 1 - slot).wait()
            copy(step, slot).wait()

    def call(x, interpret=False):
        return pl.pallas_call(
            kernel,
            grid=(6,),
            in_specs=[pl.BlockSpec((8, 128), lambda i: (i, 0))],
            out_specs=pl.BlockSpec(memory_space=pl.ANY),
            out_shape=jax.ShapeDtypeStruct((48, 128), F32),
            scratch_shapes=[
                pltpu.VMEM((2, 8, 128), F32),
                pltpu.SemaphoreType.DMA((2,)),
            ],
            interpret=interpret,
        )(x)

    return Case(call, [x], [x + np.float32(1)])


def while_collatz():
    """A while loop with a condition that depends on data."""
    start = np.array([7, 1, 27, 97], np.int32)

    def kernel(start_ref, o_ref):
        def body(state):
            n, steps = state
            odd = (n & 1) == 1
            return jnp.where(odd, 3 * n + 1, lax.div(n, 2)), steps + 1

        for i in range(4):
            n = start_ref[i]
            _, steps = lax.while_loop(lambda s: s[0] != 1, body, (n, 0))
            o_ref[i] = steps

    def call(start, interpret=False):
        return pl.pallas_call(
            kernel,
            in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM)],
            out_specs=pl.BlockSpec(memory_space=pltpu.SMEM),
            out_shape=jax.ShapeDtypeStruct((4,), I32),
            interpret=interpret,
        )(start)

    return Case(call, [start], [np.array([16, 0, 111, 118], np.int32)])


def revisited_matmul():
    """bf16 times bf16 into f32; the output window stays over the K steps."""
    a = normal(4, (64, 256), jnp.bfloat16)
    b = normal(5, (256, 256), jnp.bfloat16)

    def kernel(a_ref, b_ref, o_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += jnp.dot(
            a_ref[...], b_ref[...], preferred_element_type=F32
        )

    def call(a, b, interpret=False):
        return pl.pallas_call(
            kernel,
            grid=(2, 2, 2),
            in_specs=[
                pl.BlockSpec((32, 128), lambda i, j, k: (i, k)),
                pl.BlockSpec((128, 128), lambda i, j, k: (k, j)),
            ],
            out_specs=pl.BlockSpec((32, 128), lambda i, j, k: (i, j)),
            out_shape=jax.ShapeDtypeStruct((64, 256), F32),
            compiler_params=pltpu.CompilerParams(
                dimension_semantics=("parallel", "parallel", "arbitrary")
            ),
            interpret=interpret,
        )(a, b)

    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    error = sum_error(256, np.abs(a64) @ np.abs(b64))
    return Case(call, [a, b], [a64 @ b64], [error])


def edge_blocks():
    """Blocks that exceed both edges: 20 x 200 in blocks of 8 x 128."""
    x = normal(6, (20, 200))

    def kernel(x_ref, o_ref):
        rows = lax.broadcasted_iota(I32, (8, 128), 0)
        o_ref[...] = jnp.where(rows >= 0, jnp.exp(x_ref[...]), 0.0)

    def call(x, interpret=False):
        return pl.pallas_call(
            kernel,
            grid=(3, 2),
            in_specs=[pl.BlockSpec((8, 128), lambda i, j: (i, j))],
            out_specs=pl.BlockSpec((8, 128), lambda i, j: (i, j)),
            out_shape=jax.ShapeDtypeStruct((20, 200), F32),
            interpret=interpret,
        )(x)

    exact = np.exp(x.astype(np.float64))
    return Case(call, [x], [exact], [sum_error(1, exact)])


def edge_sum():
    """Sums rows of a ragged block; rows beyond the edge are masked by a
    select."""
    x = normal(7, (20, 128))

    def kernel(x_ref, o_ref):
        step = pl.program_id(0)
        rows = lax.broadcasted_iota(I32, (8, 128), 0) + step * 8
        kept = jnp.where(rows < 20, x_ref[...], 0.0)
        part = jnp.sum(kept, axis=0, keepdims=True)

        @pl.when(step == 0)
        def _():
            o_ref[...] = part

        @pl.when(step > 0)
        def _():
            o_ref[...] += part

    def call(x, interpret=False):
        return pl.pallas_call(
            kernel,
            grid=(3,),
            in_specs=[pl.BlockSpec((8, 128), lambda i: (i, 0))],
            out_specs=pl.BlockSpec((1, 128), lambda i: (0, 0)),
            out_shape=jax.ShapeDtypeStruct((1, 128), F32),
            interpret=interpret,
        )(x)

    exact = x.astype(np.float64).sum(axis=0, keepdims=True)
    size = np.abs(x).sum(axis=0, keepdims=True)
    return Case(call, [x], [exact], [sum_error(20, size)])


def strided_rows():
    """Loads and stores with a stride, a roll and a concatenation."""
    x = normal(8, (16, 128))

    def kernel(x_ref, o_ref):
        even = x_ref[pl.ds(0, 8, 2), :]
        odd = x_ref[pl.ds(1, 8, 2), :]
        o_ref[pl.ds(0, 8, 2), :] = odd
        o_ref[pl.ds(1, 8, 2), :] = pltpu.roll(even, 3, 1)
        joined = jnp.concatenate([even, odd], axis=0)
        o_ref[pl.ds(16, 16), :] = jnp.transpose(
            jnp.transpose(joined, (1, 0)), (1, 0)
        )

    def call(x, interpret=False):
        return pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct((32, 128), F32),
            interpret=interpret,
        )(x)

    out = np.empty((32, 128), np.float32)
    out[0:16:2] = x[1::2]
    out[1:16:2] = np.roll(x[0::2], 3, 1)
    out[16:] = np.concatenate([x[0::2], x[1::2]])
    return Case(call, [x], [out])


def mathematics():
    """Unary functions, casts and bits, in f32, bf16 and i32."""
    x = np.abs(normal(9, (8, 128))) + np.float32(0.1)
    n = np.arange(8 * 128, dtype=np.int32).reshape(8, 128) - 500

    def kernel(x_ref, n_ref, f_ref, i_ref, h_ref):
        x, n = x_ref[...], n_ref[...]
        f_ref[0] = jnp.exp(x)
        f_ref[1] = jnp.log(x) + jnp.log1p(x)
        f_ref[2] = jnp.tanh(x) * lax.rsqrt(x)
        f_ref[3] = jnp.exp2(x) - jnp.sqrt(x)
        f_ref[4] = jnp.maximum(x, 0.5) / jnp.minimum(x, 2.0)
        f_ref[5] = -jnp.abs(n.astype(F32) * x)
        f_ref[6] = jnp.sum(x, axis=1, keepdims=True) + jnp.zeros_like(x)
        f_ref[7] = jnp.max(x, axis=0, keepdims=True) + jnp.zeros_like(x)
        i_ref[0] = jnp.bitwise_xor(n << 3, lax.shift_right_arithmetic(n, 2))
        i_ref[1] = lax.shift_right_logical(n, 5) | (n & 12)
        i_ref[2] = jnp.where(n < -3, lax.rem(n, 7), lax.div(n, 7))
        i_ref[3] = lax.bitcast_convert_type(x, I32)
        i_ref[4] = (x * 100.0).astype(I32)
        i_ref[5] = jnp.where((n > 3) & (n <= 90) | (n == -8), n, -n)
        h_ref[...] = x.astype(jnp.bfloat16)

    def call(x, n, interpret=False):
        return pl.pallas_call(
            kernel,
            out_shape=[
                jax.ShapeDtypeStruct((8, 8, 128), F32),
                jax.ShapeDtypeStruct((6, 8, 128), I32),
                jax.ShapeDtypeStruct((8, 128), jnp.bfloat16),
            ],
            interpret=interpret,
        )(x, n)

    # f[6], a sum of 128 positive numbers, has the largest error. The other
    # results are exact.
    size = x.astype(np.float64).sum(1, keepdims=True).max()
    return Case(call, [x, n], error=[sum_error(128, size), 0, 0])


def aliased():
    """The output is the first input's array, and only half is written."""
    x = normal(10, (16, 128))

    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1.0

    def call(x, interpret=False):
        return pl.pallas_call(
            kernel,
            grid=(1,),
            in_specs=[pl.BlockSpec((8, 128), lambda i: (1, 0))],
            out_specs=pl.BlockSpec((8, 128), lambda i: (1, 0)),
            out_shape=jax.ShapeDtypeStruct((16, 128), F32),
            input_output_aliases={0: 0},
            interpret=interpret,
        )(x)

    out = x.copy()
    out[8:] += np.float32(1)
    return Case(call, [x], [out])


def semaphore_counts():
    """Regular semaphores: two signals, and one wait for a count of two."""
    x = normal(11, (8, 128))

    def kernel(x_ref, o_ref):
        def scoped(sem):
            pl.semaphore_signal(sem, 1)
            pl.semaphore_signal(sem, 1)
            o_ref[...] = x_ref[...] * pl.semaphore_read(sem).astype(F32)
            pl.semaphore_wait(sem, 2)

        pl.run_scoped(scoped, pltpu.SemaphoreType.REGULAR)

    def call(x, interpret=False):
        return pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct((8, 128), F32),
            interpret=interpret,
        )(x)

    return Case(call, [x], [x * np.float32(2)])


def precise_matmul():
    """f32 operands at full precision, the second one transposed."""
    a, b = normal(12, (32, 128)), normal(13, (64, 128))

    def kernel(a_ref, b_ref, o_ref):
        o_ref[...] = lax.dot_general(
            a_ref[...],
            b_ref[...],
            (((1,), (1,)), ((), ())),
            precision=lax.Precision.HIGHEST,
            preferred_element_type=F32,
        )

    def call(a, b, interpret=False):
        return pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct((32, 64), F32),
            interpret=interpret,
        )(a, b)

    a64, b64 = a.astype(np.float64), b.astype(np.float64).T
    error = sum_error(128, np.abs(a64) @ np.abs(b64))
    return Case(call, [a, b], [a64 @ b64], [error])


def dynamic_grid():
    """A grid with the number of steps from an argument, which the kernel
    reads."""
    count = np.array(3, np.int32)
    picks = np.array([2, 3, 1, 0], np.int32)
    x = normal(14, (4, 16, 128))

    def kernel(picks_ref, x_ref, o_ref):
        shift = picks_ref[pl.program_id(0)] * 10 + pl.num_programs(0)
        o_ref[...] = x_ref[...] + shift.astype(F32)

    def call(count, picks, x, interpret=False):
        return pl.pallas_call(
            kernel,
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=1,
                grid=(count, 2),
                in_specs=[
                    pl.BlockSpec((None, 8, 128), lambda i, j, p: (p[i], j, 0))
                ],
                out_specs=pl.BlockSpec(
                    (None, 8, 128), lambda i, j, p: (i, j, 0)
                ),
            ),
            out_shape=jax.ShapeDtypeStruct((4, 16, 128), F32),
            interpret=interpret,
        )(picks, x)

    out = np.full((4, 16, 128), np.nan, np.float32)
    for i in range(3):
        out[i] = x[picks[i]] + np.float32(picks[i] * 10 + 3)
    return Case(call, [count, picks, x], [out])


def shapes():
    """Slices, broadcasts, masks, reductions of all axes, scratch, loops."""
    x = normal(15, (8, 128))
    h = normal(16, (16, 128), jnp.bfloat16)
    n = np.array([70], np.int32)

    def kernel(x_ref, h_ref, n_ref, o_ref, i_ref, sem):
        x = x_ref[...]
        o_ref[0] = jnp.broadcast_to(jnp.max(x), x.shape)
        o_ref[1] = jnp.tile(x[:1], (8, 1))
        product = lax.dot_general(
            h_ref[...],
            h_ref[...],
            (((0,), (0,)), ((), ())),
            preferred_element_type=F32,
        )
        o_ref[2] = product[8:16, :]
        mask = lax.broadcasted_iota(I32, (8, 128), 1) < n_ref[0]
        o_ref[3] = jnp.where(jnp.any(mask, axis=1, keepdims=True), x, 0.0)
        o_ref[4] = x * jnp.sum(mask.astype(I32)).astype(F32)
        o_ref[5] = lax.fori_loop(
            0, 4, lambda i, c: c + x * i.astype(F32), x, unroll=2
        )
        o_ref[6] = jnp.floor(x) + jnp.round(x)

        def scoped(scratch):
            copy = pltpu.make_async_copy(x_ref, scratch, sem)
            copy.start()
            copy.wait()
            o_ref[6] += scratch[...]

        pl.run_scoped(scoped, pltpu.VMEM((8, 128), F32))
        o_ref[7] = jnp.concatenate([x[:, 64:], x[:, :64]], axis=1)
        best = jnp.argmax(x, axis=1)
        i_ref[...] = jnp.broadcast_to(best[:, None], (8, 128)).astype(I32)

    def call(x, h, n, interpret=False):
        memory = [pltpu.VMEM, pltpu.VMEM, pltpu.SMEM]
        return pl.pallas_call(
            kernel,
            in_specs=[pl.BlockSpec(memory_space=m) for m in memory],
            out_shape=[
                jax.ShapeDtypeStruct((8, 8, 128), F32),
                jax.ShapeDtypeStruct((8, 128), I32),
            ],
            scratch_shapes=[pltpu.SemaphoreType.DMA],
            interpret=interpret,
        )(x, h, n)

    def whole(f):
        return np.broadcast_to(np.asarray(f, np.float32), (8, 128))

    wide = h.astype(np.float32)
    out = np.stack(
        [
            whole(x.max()),
            whole(x[:1]),
            (wide.T @ wide)[8:16],
            x,
            x * np.float32(8 * 70),
            x + x + np.float32(2) * x + np.float32(3) * x,
            np.floor(x) + np.rint(x) + x,
            np.concatenate([x[:, 64:], x[:, :64]], 1),
        ]
    )
    best = np.broadcast_to(x.argmax(1)[:, None], (8, 128)).astype(np.int32)
    error = np.zeros((8, 8, 128))
    error[2] = sum_error(16, np.abs(wide.T) @ np.abs(wide))[8:16]
    return Case(call, [x, h, n], [out, best], [error, 0])


def bits():
    """Packing, unpacking, bitcasts between widths, approximate division."""
    x = normal(17, (16, 128)) + np.float32(3)
    h = normal(18, (16, 128), jnp.bfloat16)

    def kernel(x_ref, h_ref, p_ref, u_ref, b_ref, r_ref):
        x = x_ref[...]
        packed = pltpu.pack_elementwise(
            [x[:8], x[8:]], packed_dtype=jnp.bfloat16
        )
        p_ref[...] = packed
        u_ref[...] = pltpu.unpack_elementwise(
            packed, index=1, packed_dtype=jnp.bfloat16, unpacked_dtype=F32
        )
        b_ref[...] = pltpu.bitcast(h_ref[...], I32)
        r_ref[...] = pl.reciprocal(x, approx=True)

    def call(x, h, interpret=False):
        return pl.pallas_call(
            kernel,
            out_shape=[
                jax.ShapeDtypeStruct((8, 128), I32),
                jax.ShapeDtypeStruct((8, 128), F32),
                jax.ShapeDtypeStruct((8, 128), I32),
                jax.ShapeDtypeStruct((16, 128), F32),
            ],
            interpret=interpret,
        )(x, h)

    def words(low, high):
        low, high = (a.view(np.uint16).astype(np.uint32) for a in (low, high))
        return (low | high << 16).view(np.int32)

    half = x.astype(jnp.bfloat16)
    out = [
        words(half[:8], half[8:]),
        half[8:].astype(np.float32),
        words(h[0::2], h[1::2]),
        (1 / x).astype(jnp.bfloat16).astype(np.float32),
    ]
    return Case(call, [x, h], out, interprets=False)


KERNELS = [
    prefetched_blocks,
    double_buffered,
    gathered,
    double_buffered_output,
    while_collatz,
    revisited_matmul,
    edge_blocks,
    edge_sum,
    strided_rows,
    mathematics,
    aliased,
    semaphore_counts,
    precise_matmul,
    dynamic_grid,
    shapes,
    bits,
]


@functools.cache
def splash_text(mask, segments, tokens=256, block=128, heads=2, softcap=None):
    """Splash attention, bf16 inputs, lowered for TPU; head dim 128."""
    shape = (tokens, tokens)
    masks = {"full": splash_mask.FullMask, "causal": splash_mask.CausalMask}
    kernel = splash.make_splash_mha_single_device(
        splash_mask.MultiHeadMask([masks[mask](shape)] * heads),
        block_sizes=splash.BlockSizes(
            block_q=block, block_kv=block, block_kv_compute=block
        ),
        attn_logits_soft_cap=softcap,
        save_residuals=True,
    )
    x = jax.ShapeDtypeStruct((heads, tokens, 128), jnp.bfloat16)
    ids = jax.ShapeDtypeStruct((tokens,), I32)
    if segments:

        def call(q, k, v, ids):
            out, (lse,) = kernel(q, k, v, splash.SegmentIds(q=ids, kv=ids))
            return out, lse

        arrays = (x, x, x, ids)
    else:

        def call(q, k, v):
            out, (lse,) = kernel(q, k, v)
            return out, lse

        arrays = (x, x, x)
    traced = jax.jit(call).trace(*arrays)
    return str(traced.lower(lowering_platforms=("tpu",)).as_text())
