"""Attention in a program for a TPU: the arrays of a batch that our kernels
read, and the kernel calls, each with the text that `tessera.compile` makes."""

import functools
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir

from . import _core
from ._refuse import refuse


class Terms(NamedTuple):
    """Settings of the kernels, beside a batch's text and a call. Pairs are
    (forward kernel, backward kernel)."""

    sizes: tuple[tuple[str, Any], ...]
    target: str
    tiles_per_pass: tuple[int, int]
    fetch_ahead: tuple[int, int]
    row_sum: str
    lowering_reason: str | None
    query_chunk: int  # of the backward kernel; 0: all queries
    numbers: str
    names: tuple[str, ...] = ()  # of a kernel's arrays, in their order
    backward: bool = True  # there are arrays of the backward kernel too
    checked: bool = False  # programs compare the arrays with their checksum

    def leaves(self) -> tuple[str, ...]:
        """Names of a kernel's leaves: digests, checksum if any, arrays."""
        return (DIGESTS, *[CHECKSUM] * self.checked, *self.names)


def _whole(terms: Terms) -> int:
    """A query chunk, in whole tiles, that is longer than any call: the kernel
    then holds all queries."""
    return dict(terms.sizes)["tile"][0] << 32


@functools.lru_cache(128)
def kernel_of(text: str, terms: Terms, backward: bool,
              call: tuple[tuple[str, Any], ...]) -> _core.TpuKernel:
    return _core._tpu_kernel(text, dict(terms.sizes) | dict(
        target=terms.target, tiles_per_pass=terms.tiles_per_pass[backward],
        fetch_ahead=terms.fetch_ahead[backward],
        row_sum="exact" if backward else terms.row_sum,  # forward kernel only
        query_chunk=(terms.query_chunk or _whole(terms)) if backward else 0,
        lowering_reason=terms.lowering_reason, numbers=terms.numbers,
        backward=backward) | dict(call))


# The leaf with the digests of a kernel's arrays. Only check() reads it.
DIGESTS = "digests"
# The leaf with the checksum of the arrays, which checked programs read too.
CHECKSUM = "checksum"
# Numbers that NumPy sums at a time: its temporaries are larger than the piece.
_PIECE = 1 << 20


def _mixed(x: Any) -> Any:
    """A bijection of uint32: one changed bit changes about half of the bits."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return x ^ (x >> np.uint32(16))


def _sums(xp: Any, values: Any, first: int, seed: int) -> Any:
    """Two sums of numbers whose places begin at `first`. One changed number
    changes both sums, because each of its terms is a bijection of it."""
    places = xp.arange(values.size, dtype=np.uint32) + np.uint32(first)
    keys = _mixed(places ^ np.uint32(seed))
    terms = _mixed(values.astype(np.uint32) ^ keys)
    return xp.stack([xp.sum(x, dtype=np.uint32)
                     for x in (terms, _mixed(terms + keys))])


def _seed(text: str, terms: Terms, backward: bool) -> int:
    """A seed from all that the arrays are made for: list, direction, tiles a
    pass and query chunk."""
    chunk = terms.query_chunk if backward else 0
    return zlib.crc32(repr((text, terms.sizes, backward,
                            terms.tiles_per_pass[backward], chunk)).encode())


def _checksum_of(xp: Any, text: str, terms: Terms, backward: bool,
                 arrays: Mapping[str, Any]) -> Any:
    """The checksum of a kernel's arrays, two words, by NumPy or by jax.numpy
    (in a program)."""
    out, seed = xp.zeros(2, np.uint32), _seed(text, terms, backward)
    for name in terms.names:
        seed = zlib.crc32(name.encode(), seed)
        values = arrays[name].reshape(-1)
        piece = _PIECE if xp is np else max(1, values.size)
        for first in range(0, values.size, piece):
            out = out + _sums(xp, values[first:first + piece], first, seed)
    return out


# All calls of one batch read the same arrays, so they are made for this call.
# It needs the least memory: if its backward kernel does not fit, none does.
_SMALLEST = tuple(dict(head_dim=64, v_head_dim=64, dtype="bfloat16", scale=None,
                       softcap=0.0, sink_logits=False, dlse=False).items())


def arrays_of(batch: _core.Batch, text: str, terms: Terms,
              needs_backward: bool) -> tuple[Terms, Sequence[Any]]:
    """The completed terms, and the leaves of each kernel. If the backward
    kernel does not fit, that is an error with `needs_backward`, else its leaves
    are left out."""
    terms = terms._replace(sizes=tuple(_core._tpu_sizes(batch).items()))
    kernels = [kernel_of(text, terms, False, _SMALLEST)]
    try:
        kernels.append(kernel_of(text, terms, True, _SMALLEST))
        terms = terms._replace(query_chunk=kernels[1].query_chunk)
    except _core.TesseraError:  # raised later by a program with gradients
        if needs_backward:
            raise
    terms = terms._replace(names=tuple(kernels[0].array_shapes),
                           backward=len(kernels) > 1)
    made = [kernel.arrays(batch) for kernel in kernels]
    if terms.checked:
        for kernel, of in zip(kernels, made):
            of[CHECKSUM] = _checksum_of(np, text, terms, kernel.backward, of)
    return terms, [of[name] for of in made for name in terms.leaves()]


def check(text: str, terms: Terms, backward: bool, arrays: Sequence[Any]) -> None:
    """Raises an error if the leaves are not those made for the kernel."""
    given = dict(zip(terms.leaves(), arrays))
    kernel_of(text, terms, backward, _SMALLEST).check(given)
    if terms.checked and not np.array_equal(
            given[CHECKSUM], _checksum_of(np, text, terms, backward, given)):
        refuse("jax", f"{CHECKSUM} must be as it was made", "another")


def _refuse(rule: str, found: object) -> NoReturn:
    refuse("jax", rule, f"{found} for a TPU")


def _named_call(name: str) -> Primitive:
    """A primitive that is lowered as `jax.ffi.ffi_call` of a kernel. Profiles
    show its name; the calls of ffi_call would all have the same name."""
    def lower(context: Any, *args: Any, kernel: _core.TpuKernel,
              results: Any) -> Any:
        return jax.ffi.ffi_lowering(
            "tpu_custom_call", api_version=1,
            backend_config=kernel.backend_config)(context, *args)

    call = Primitive(name)
    call.multiple_results = True
    call.def_abstract_eval(lambda *_, kernel, results: [
        jax.core.ShapedArray(x.shape, x.dtype) for x in results])
    mlir.register_lowering(call, lower)
    return call


_CALLS = {backward: _named_call(name) for backward, name in (
    (False, "tessera_forward"), (True, "tessera_backward"))}


def _launch(kernel: _core.TpuKernel, results: Sequence[Any],
            args: Sequence[Any]) -> Sequence[Any]:
    # With tokens_last an array whose head dim is no multiple of 128 is passed
    # as [batch, heads, dim, tokens]. Arrays that end in tokens stay as they
    # are.
    is_turned = lambda x: kernel.tokens_last and x.ndim == 4 and x.shape[3] % 128
    turned = lambda x: jnp.swapaxes(x, 2, 3) if is_turned(x) else x
    made = _CALLS[kernel.backward].bind(
        *map(turned, args), kernel=kernel,
        results=tuple(jax.eval_shape(turned, x) for x in results))
    return [jnp.swapaxes(x, 2, 3) if is_turned(of) else x
            for x, of in zip(made, results)]


def _check(call: Any, q: Any, k: Any, v: Any, sinks: Sequence[Any]) -> None:
    if not q.dtype == k.dtype == v.dtype:
        _refuse("q, k and v must be of one dtype",
                f"{q.dtype}, {k.dtype} and {v.dtype}")
    sizes = dict(call.tpu.sizes)
    b, s, d = sizes["batch"], sizes["kv_len"], q.shape[3]
    for name, x, due in (("q", q, (b, q.shape[1], sizes["q_len"], d)),
                         ("k", k, (b, k.shape[1], s, d)),
                         ("v", v, (b, k.shape[1], s, v.shape[3]))):
        if x.shape != due:
            _refuse(f"{name} must be {list(due)}, heads first,", list(x.shape))
    for x in sinks:
        if x.shape != q.shape[1:2] or x.dtype != jnp.float32:
            _refuse(f"sink_logits must be float32 {list(q.shape[1:2])}",
                    f"{x.dtype} {list(x.shape)}")


def _kernel(call: Any, words: tuple[tuple[str, Any], ...]) -> _core.TpuKernel:
    """The kernel of a call, for lists that are cut as those of the arrays."""
    try:
        return kernel_of(call.text, call.tpu, call.backward, words)
    except _core.TesseraError:
        if not call.backward or call.tpu.query_chunk:
            raise
        most = kernel_of(call.text, call.tpu, True,
                         (*words, ("query_chunk", 0))).query_chunk
        if most == 0:
            raise
    _refuse("arrays_for must be told a query_chunk of at most "
            f"{most} for this call's backward", "none")


def _arrays(call: Any, kernel: _core.TpuKernel,
            args: Sequence[Any]) -> dict[str, Any]:
    made = dict(zip(call.tpu.names, args[len(args) - len(call.tpu.names):]))
    for name, shape in kernel.array_shapes.items():
        if name not in made or made[name].shape != shape:
            _refuse(f"{name} must be {list(shape)}", list(made[name].shape)
                    if name in made else "none")
    return made


def _are_as_made(call: Any, arrays: Mapping[str, Any],
                 args: Sequence[Any]) -> Any:
    given = args[len(args) - len(call.tpu.names) - 1]
    own = _checksum_of(jnp, call.text, call.tpu, call.backward, arrays)
    return (own == given).all()


def _nan_unless(ok: Any, x: Any) -> Any:
    """x, with NaN in the first row of each head unless `ok`. XLA writes one row
    in place; writing all rows would be a pass over the array."""
    row = jnp.where(ok, x[:, :, :1], jnp.nan)
    return jax.lax.dynamic_update_slice_in_dim(x, row, 0, axis=2)


def attend(call: Any, *args: Any) -> Sequence[Any]:
    """One call on one device. `args`: tensors (backward also out, lse, dout and
    dlse), then other arguments of the call, then the arrays of its kernel."""
    turn = (lambda x: jnp.swapaxes(x, 1, 2)) if call.bshd else (lambda x: x)
    q, k, v = map(turn, args[:3])
    sinks = args[3:3 + call.sinks]
    _check(call, q, k, v, sinks)
    kernel = _kernel(call, (
        ("heads", q.shape[1]), ("kv_heads", k.shape[1]),
        ("head_dim", q.shape[3]), ("v_head_dim", v.shape[3]),
        ("dtype", str(q.dtype)), ("scale", call.scale),
        ("softcap", call.softcap), ("sink_logits", call.sinks),
        ("dlse", call.backward and call.lse)))
    arrays = _arrays(call, kernel, args)
    if call.tpu.checked:
        ok = _are_as_made(call, arrays, args)
        # With an empty list the kernel runs no step, so none of its copies can
        # leave the arrays.
        arrays["range"] = jnp.where(ok, arrays["range"], 0)

    def whole(x: Any, n: int) -> Any:
        """x padded to n tokens. The kernel accepts any finite padding."""
        more = n - x.shape[2]
        return x if more == 0 else jnp.pad(
            x, ((0, 0), (0, 0), (0, more), (0, 0)))

    queries = lambda x: whole(x, kernel.q_len)
    keys = lambda x: whole(x, kernel.kv_len)
    tensors = [queries(q), keys(k), keys(v)]
    like = lambda x, n: jax.ShapeDtypeStruct(
        (*x.shape[:2], n, x.shape[3]), x.dtype)
    if call.backward:
        out, lse, dout, dlse = args[3 + call.sinks:7 + call.sinks]
        line = lambda x: queries(x[..., None]).swapaxes(2, 3)
        tensors += [queries(turn(out)), queries(turn(dout)), line(lse)]
        tensors += [line(dlse)] if call.lse else []
        results = [like(x, x.shape[2]) for x in tensors[:3]]
        # The gradient of a sink logit is repeated in all 128 lanes.
        results += [jax.ShapeDtypeStruct((*x.shape, 1, 128), x.dtype)
                    for x in sinks]
        results += [jax.ShapeDtypeStruct(shape, jnp.float32)
                    for shape in kernel.kept_shapes]
    else:
        rows = (*q.shape[:2], 1, kernel.q_len)
        results = [jax.ShapeDtypeStruct((*q.shape[:2], kernel.q_len,
                                         v.shape[3]), q.dtype),
                   jax.ShapeDtypeStruct(rows, jnp.float32)]
    bits = [arrays[name] for name in ("bits_of", "bits") if name in arrays]
    made = _launch(kernel, results, (
        arrays["steps"], arrays["range"], arrays["bounds"], *bits[:1], *sinks,
        *tensors, arrays["q_ids"], arrays["kv_ids"], *bits[1:]))
    if call.tpu.checked and not call.backward:
        made = [_nan_unless(ok, made[0]), jnp.where(ok, made[1], jnp.nan)]
    elif call.tpu.checked:
        made = [_nan_unless(ok, x) for x in made[:3 + call.sinks]]
    tokens = q.shape[2]
    if not call.backward:
        return [turn(made[0][:, :, :tokens]), made[1][:, :, 0, :tokens]]
    return [turn(x[:, :, :of.shape[2]]) for x, of in zip(made, (q, k, v))] + [
        x[:, 0, 0] for x in made[3:3 + call.sinks]]
