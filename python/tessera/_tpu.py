"""Attention in a program for a TPU: what of a batch our kernels read, and the
kernels that a call comes to, as calls of the text that `tessera.compile` gives."""

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
    """What kernels are made for, beside a batch's text and a call. Pairs are of
    the forward kernel and the backward one."""

    sizes: tuple[tuple[str, Any], ...]
    target: str
    tiles_per_pass: tuple[int, int]
    fetch_ahead: tuple[int, int]
    row_sum: str
    lowering_reason: str | None
    query_chunk: int  # of the backward kernel; 0: all queries
    numbers: str
    # Of the arrays of a kernel, in their order; of both kernels, or one alone.
    names: tuple[str, ...] = ()
    backward: bool = True
    checked: bool = False  # programs look whether they are as they were made

    def leaves(self) -> tuple[str, ...]:
        """The same with what they are known by, as they travel."""
        return (DIGESTS, *[CHECKSUM] * self.checked, *self.names)


def _whole(terms: Terms) -> int:
    """A chunk that no queries fill, of whole tiles: the kernel holds all of them."""
    return dict(terms.sizes)["tile"][0] << 32


@functools.lru_cache(128)
def kernel_of(text: str, terms: Terms, backward: bool,
              call: tuple[tuple[str, Any], ...]) -> _core.TpuKernel:
    return _core._tpu_kernel(text, dict(terms.sizes) | dict(
        target=terms.target, tiles_per_pass=terms.tiles_per_pass[backward],
        fetch_ahead=terms.fetch_ahead[backward],
        row_sum="exact" if backward else terms.row_sum,  # of the forward one
        query_chunk=(terms.query_chunk or _whole(terms)) if backward else 0,
        lowering_reason=terms.lowering_reason, numbers=terms.numbers,
        backward=backward) | dict(call))


# Beside a kernel's arrays: what check() knows them by. No program reads it.
DIGESTS = "digests"
# And what programs do.
CHECKSUM = "checksum"
# Numbers that NumPy takes at a time, for what it makes of them is larger.
_PIECE = 1 << 20


def _mixed(x: Any) -> Any:
    """One to one, of uint32: a bit changes about half of them."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return x ^ (x >> np.uint32(16))


def _sums(xp: Any, values: Any, first: int, seed: int) -> Any:
    """Of numbers that lie from place `first` on. One that is another changes
    both, for a term of each is its own, one to one."""
    places = xp.arange(values.size, dtype=np.uint32) + np.uint32(first)
    keys = _mixed(places ^ np.uint32(seed))
    terms = _mixed(values.astype(np.uint32) ^ keys)
    return xp.stack([xp.sum(x, dtype=np.uint32)
                     for x in (terms, _mixed(terms + keys))])


def _seed(text: str, terms: Terms, backward: bool) -> int:
    """Of what arrays are for: list, direction, passes and chunks."""
    chunk = terms.query_chunk if backward else 0
    return zlib.crc32(repr((text, terms.sizes, backward,
                            terms.tiles_per_pass[backward], chunk)).encode())


def _checksum_of(xp: Any, text: str, terms: Terms, backward: bool,
                 arrays: Mapping[str, Any]) -> Any:
    """Two words of a kernel's arrays, by NumPy or, in a program, by XLA."""
    out, seed = xp.zeros(2, np.uint32), _seed(text, terms, backward)
    for name in terms.names:
        seed = zlib.crc32(name.encode(), seed)
        values = arrays[name].reshape(-1)
        piece = _PIECE if xp is np else max(1, values.size)
        for first in range(0, values.size, piece):
            out = out + _sums(xp, values[first:first + piece], first, seed)
    return out


# Arrays are those of every call. Where the backward kernel of this one does not
# fit the chip, none does.
_SMALLEST = tuple(dict(head_dim=64, v_head_dim=64, dtype="bfloat16", scale=None,
                       softcap=0.0, sink_logits=False, dlse=False).items())


def arrays_of(batch: _core.Batch, text: str, terms: Terms,
              needs_backward: bool) -> tuple[Terms, Sequence[Any]]:
    """The terms with what was left open, and of each kernel the arrays."""
    terms = terms._replace(sizes=tuple(_core._tpu_sizes(batch).items()))
    kernels = [kernel_of(text, terms, False, _SMALLEST)]
    try:
        kernels.append(kernel_of(text, terms, True, _SMALLEST))
        terms = terms._replace(query_chunk=kernels[1].query_chunk)
    except _core.TesseraError:  # an error of the gradients, if there are some
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
    """Whether they are those that were made for the kernel."""
    given = dict(zip(terms.leaves(), arrays))
    kernel_of(text, terms, backward, _SMALLEST).check(given)
    if terms.checked and not np.array_equal(
            given[CHECKSUM], _checksum_of(np, text, terms, backward, given)):
        refuse("jax", f"{CHECKSUM} must be as it was made", "another")


def _refuse(rule: str, found: object) -> NoReturn:
    refuse("jax", rule, f"{found} for a TPU")


def _named_call(name: str) -> Primitive:
    """`jax.ffi.ffi_call` of a kernel under a name of its own, which is what
    profiles show: those that ffi_call makes all have one."""
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
    # Tokens, the end of a line, are a multiple of 128.
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
    """For lists that are cut as the arrays' are."""
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
    """In the first row of each head, which XLA writes in place: a whole array
    would be a pass over it."""
    row = jnp.where(ok, x[:, :, :1], jnp.nan)
    return jax.lax.dynamic_update_slice_in_dim(x, row, 0, axis=2)


def attend(call: Any, *args: Any) -> Sequence[Any]:
    """One call of one device: tensors, then what else the call has, then the
    arrays of its kernel."""
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
        # Of an empty list the kernel runs nothing, and no copy can stray.
        arrays["range"] = jnp.where(ok, arrays["range"], 0)

    def whole(x: Any, n: int) -> Any:
        """What lies beyond the batch's own lengths may be anything finite."""
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
        # Of a sink logit every lane has the gradient.
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
