"""Block-sparse attention inside JAX, by our own kernels.

    import tessera as ts
    import tessera.jax

    batch = ts.plan(ts.causal & ts.documents, q_len=4096, doc_ids=ids,
                    max_steps=4096)

    @jax.jit
    def step(params, q, k, v, batch):
        return tessera.jax.attention(q, k, v, batch)

A batch is a pytree: its lists, ids and bounds are arguments of the program, and
what is static is the key of its trace. Batches under the same `max_steps` have
equal trees, so a function that takes one is traced once and compiled once.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax.typing import ArrayLike

from . import _core
from ._mesh import divided, undivided
from ._splash import splash_mask_info

__all__ = ["BatchArrays", "attention", "splash_mask_info",
           "tpu_attention"]

for _name, _handler in _core._jax_handlers().items():
    jax.ffi.register_ffi_target(_name, _handler, platform="cpu")


class Static(NamedTuple):
    """What of a batch a program is compiled for."""

    text: str
    batch: int
    q_len: int
    kv_len: int
    tile_q: int
    tile_kv: int
    steps: int
    facts: tuple[str, ...]


class BatchArrays:
    """A batch inside a program: its arrays may be traced, stacked or on a
    device. `jax.device_put(batch)` makes one that is moved once."""

    def __init__(self, static: Static, arrays: Sequence[Any]) -> None:
        self.static = static
        self.arrays = arrays

    def __repr__(self) -> str:
        s = self.static
        masks = " / ".join(part.removeprefix("mask ")
                           for part in s.text.split(";")
                           if part.startswith("mask "))
        rest = (f", batch={s.batch}, q_len={s.q_len}, kv_len={s.kv_len}, "
                f"steps={s.steps})")
        room = 120 - len("BatchArrays('...'" + rest)
        if len(masks) > room:
            masks = masks[:room] + "..."
        return f"BatchArrays('{masks}'{rest}"


_LEAVES = ("window_bounds", "forward_row_start", "forward_entries",
           "transposed_row_start", "transposed_entries")


def _parts(batch: Any) -> tuple[Static, Sequence[Any]]:
    if isinstance(batch, BatchArrays):
        return batch.static, batch.arrays
    if isinstance(batch, _core.Batch):
        *static, names, arrays = _core._parts(batch)
        return Static(*static, tuple(names)), arrays
    raise _core.TesseraError(
        "[jax] batch must be a tessera.Batch, found "
        + type(batch).__name__)


def _flatten(batch: Any) -> tuple[Sequence[Any], Static]:
    static, arrays = _parts(batch)
    return arrays, static


def _flatten_with_keys(batch: Any) -> tuple[list[tuple[Any, Any]], Static]:
    static, arrays = _parts(batch)
    names = _LEAVES + static.facts
    return [(jax.tree_util.GetAttrKey(n), a)
            for n, a in zip(names, arrays)], static


for _kind in (_core.Batch, BatchArrays):
    jax.tree_util.register_pytree_with_keys(
        _kind, _flatten_with_keys, BatchArrays, _flatten)


class _Call(NamedTuple):
    """What of a call is static."""

    backward: bool
    text: str
    tile_q: int
    scale: Any
    softcap: float
    bshd: bool
    sinks: bool

    def attributes(self) -> dict[str, Any]:
        return dict(batch=self.text, has_scale=self.scale is not None,
                    scale=np.float64(self.scale or 0),
                    softcap=np.float64(self.softcap), bshd=self.bshd,
                    sinks=self.sinks)


def _foreign(call: _Call, args: Sequence[Any]) -> Sequence[jax.Array]:
    """The call itself, on one device."""
    q, _, v = args[:3]
    like = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)
    if call.backward:
        name, made = "tessera_backward", [like(x) for x in args[:3 + call.sinks]]
    else:
        b, h, t = q.shape[:3]
        if call.bshd:
            h, t = t, h
        name = "tessera_forward"
        made = [jax.ShapeDtypeStruct((*q.shape[:3], v.shape[3]), q.dtype),
                jax.ShapeDtypeStruct((b, h, t), jnp.float32)]
    return jax.ffi.ffi_call(name, made, vmap_method="sequential")(
        *args, **call.attributes())


_run = divided(_foreign)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(call: _Call, qkv: Any, sinks: Any, arrays: Any) -> Any:
    return tuple(_run(call, *qkv, *sinks, *arrays))


def _attend_forward(call: _Call, qkv: Any, sinks: Any, arrays: Any) -> Any:
    out, lse = _attend(call, qkv, sinks, arrays)
    return (out, lse), (qkv, sinks, arrays, out, lse)


def _attend_backward(call: _Call, saved: Any, gradients: Any) -> Any:
    qkv, sinks, arrays, out, lse = saved
    found = _run(call._replace(backward=True), *qkv, *sinks, out, lse,
                 *gradients, *arrays)
    return tuple(found[:3]), tuple(found[3:]), None


_attend.defvjp(_attend_forward, _attend_backward)


def _check_layout(layout: str) -> None:
    if layout not in ("bhsd", "bshd"):
        raise _core.TesseraError(
            f"[jax] layout must be 'bhsd' or 'bshd', found '{layout}'")


def attention(q: ArrayLike, k: ArrayLike, v: ArrayLike,
              batch: _core.Batch | BatchArrays, *, scale: float | None = None,
              softcap: float = 0.0, sink_logits: ArrayLike | None = None,
              layout: str = "bhsd", return_lse: bool = False
              ) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Attention of one batch, under `jit`, `grad`, `vmap` and `scan`.

    As `tessera.attention`, with the same arguments. `batch` is a `Batch`, or
    what it becomes inside a function that takes one. What the library refuses
    is an error when the program runs, with its one line.
    """
    _check_layout(layout)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if jnp.ndim(x) != 4:
            raise _core.TesseraError(
                f"[jax] {name} must have 4 dimensions, found {jnp.ndim(x)}")
    static, arrays = _parts(batch)
    call = _Call(False, static.text, static.tile_q,
                 None if scale is None else float(scale), float(softcap),
                 layout == "bshd", sink_logits is not None)
    sinks = () if sink_logits is None else (sink_logits,)
    out, lse = _attend(call, (q, k, v), sinks, tuple(arrays))
    return (out, lse) if return_lse else out


def _named_kernel(name: str) -> Primitive:
    """`jax.ffi.ffi_call` of a TPU's kernel under a name of its own, which is
    what profiles show: those that ffi_call makes all have one."""
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
    call.def_impl(lambda *args, **terms: jax.jit(
        lambda *own: call.bind(*own, **terms))(*args))
    return call


_TPU_KERNELS = {name: _named_kernel(name)
                for name in ("tessera_forward", "tessera_backward")}


def _tpu_foreign(call: Any, args: Sequence[Any]) -> Sequence[jax.Array]:
    kernel, name, results = call
    return _TPU_KERNELS[name].bind(*args, kernel=kernel, results=results)


_tpu_run = undivided(_tpu_foreign)


def _tpu_call(kernel: _core.TpuKernel, name: str, results: Any, arrays: Any,
              sinks: Any, tensors: Any) -> Any:
    bits = [arrays[name] for name in ("bits_of", "bits") if name in arrays]
    return _tpu_run((kernel, name, tuple(results)), arrays["steps"],
                    arrays["range"], arrays["bounds"], *bits[:1], *sinks,
                    *tensors, arrays["q_ids"], arrays["kv_ids"], *bits[1:])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend_tpu(kernels: Any, q: Any, k: Any, v: Any, sinks: Any,
                arrays: Any) -> Any:
    rows = (*q.shape[:2], 1, q.shape[2])
    return tuple(_tpu_call(
        kernels[0], "tessera_forward",
        [jax.ShapeDtypeStruct((*q.shape[:3], v.shape[3]), q.dtype),
         jax.ShapeDtypeStruct(rows, jnp.float32)], arrays[0], sinks,
        (q, k, v)))


def _attend_tpu_forward(kernels: Any, q: Any, k: Any, v: Any, sinks: Any,
                        arrays: Any) -> Any:
    out, lse = _attend_tpu(kernels, q, k, v, sinks, arrays)
    return (out, lse), (q, k, v, sinks, arrays, out, lse)


def _attend_tpu_backward(kernels: Any, saved: Any, given: Any) -> Any:
    q, k, v, sinks, arrays, out, lse = saved
    kernel = kernels[1]
    if kernel is None or arrays[1] is None:
        raise _core.TesseraError(
            "[jax] a gradient must have gradients and gradient_arrays, found "
            "none")
    dout, dlse = given
    more = (dlse,) if kernel.dlse else ()
    like = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, k, v)]
    # Of a sink logit every lane has the gradient.
    like += [jax.ShapeDtypeStruct((*x.shape, 1, 128), x.dtype) for x in sinks]
    found = _tpu_call(kernel, "tessera_backward", like, arrays[1], sinks,
                      (q, k, v, out, dout, lse, *more))
    return (*found[:3], tuple(x[:, 0, 0] for x in found[3:]), None)


_attend_tpu.defvjp(_attend_tpu_forward, _attend_tpu_backward)


def tpu_attention(q: jax.Array, k: jax.Array, v: jax.Array,
                  arrays: Mapping[str, ArrayLike], kernel: _core.TpuKernel, *,
                  layout: str = "bhsd",
                  gradients: _core.TpuKernel | None = None,
                  gradient_arrays: Mapping[str, ArrayLike] | None = None,
                  sink_logits: jax.Array | None = None,
                  return_lse: bool = False
                  ) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Attention on a TPU by our own kernels, as calls in a program.

    `kernel` is `tessera.compile(batch, ...)`, static; `arrays` are
    `kernel.arrays(batch)`, arguments of the program: every batch of the
    kernel's contract runs it. For a gradient, `gradients` and its arrays are
    the same of `tessera.compile(batch, backward=True)`. q, k and v are [batch, heads,
    tokens, dim] of one device's heads, of the kernel's `dtype`, v of its
    `v_head_dim`: under a mesh it belongs into `shard_map`. With the layout
    'bshd' they are [batch, tokens, heads, dim], and so is the output: the
    kernels read heads first, so the transposes are in here, and XLA makes no
    copy of one where it chooses how the array beside it lies. `sink_logits` are
    float32 [heads], where the kernels are compiled with `sink_logits=True`.
    """
    _check_layout(layout)
    bshd = layout == "bshd"
    order = "tokens, heads" if bshd else "heads, tokens"
    for name, x, length, dim in (
            ("q", q, kernel.q_len, kernel.head_dim),
            ("k", k, kernel.kv_len, kernel.head_dim),
            ("v", v, kernel.kv_len, kernel.v_head_dim)):
        if (x.dtype != kernel.dtype or x.ndim != 4 or
                x.shape[1 if bshd else 2] > length or x.shape[3] != dim):
            raise _core.TesseraError(
                f"[jax] {name} must be {kernel.dtype} [batch, {order}, "
                f"{dim}] of at most {length} tokens, found {x.dtype} {list(x.shape)}")
    turn = (lambda x: jnp.swapaxes(x, 1, 2)) if bshd else (lambda x: x)
    q, k, v = turn(q), turn(k), turn(v)
    if kernel.backward or not (gradients is None or gradients.backward):
        raise _core.TesseraError(
            "[jax] kernel must be of the forward pass and gradients of the "
            "backward one, found others")
    if gradients is not None and (
            (gradients.q_len, gradients.kv_len) !=
            (kernel.q_len, kernel.kv_len) or
            gradients.dlse != return_lse):
        raise _core.TesseraError(
            "[jax] gradients must be of the kernel's lengths, with dlse where "
            "the log-sum-exp is returned and only there, found others")
    if gradients is not None and gradients.dtype != kernel.dtype:
        raise _core.TesseraError(
            "[jax] gradients must be of the kernel's dtype, found "
            f"{gradients.dtype} for {kernel.dtype}")
    if gradients is not None and (
            (gradients.head_dim, gradients.v_head_dim) !=
            (kernel.head_dim, kernel.v_head_dim)):
        raise _core.TesseraError(
            "[jax] gradients must be of the kernel's head dims, found "
            f"{gradients.head_dim} and {gradients.v_head_dim} for "
            f"{kernel.head_dim} and {kernel.v_head_dim}")
    if gradients is not None and (
            (gradients.scale, gradients.softcap) !=
            (kernel.scale, kernel.softcap)):
        raise _core.TesseraError(
            "[jax] gradients must be of the kernel's scale and softcap, found "
            f"{gradients.scale} and {gradients.softcap} for {kernel.scale} and "
            f"{kernel.softcap}")
    for of, made in ((kernel, arrays), (gradients, gradient_arrays)):
        if of is not None and made is not None and all(
                isinstance(x, np.ndarray) for x in made.values()):
            of.check(dict(made))
    given = () if sink_logits is None else (sink_logits,)
    if (bool(given) != kernel.sink_logits or
            not (gradients is None or gradients.sink_logits == bool(given)) or
            any(x.shape != q.shape[1:2] or x.dtype != jnp.float32
                for x in given)):
        raise _core.TesseraError(
            f"[jax] sink_logits must be float32 [{q.shape[1]}] where kernel "
            "and gradients take them and only there, found " +
            (f"{given[0].dtype} {list(given[0].shape)}" if given else "none"))
    tokens = q.shape[2]
    # What lies beyond the batch's own lengths may be anything that is finite.
    whole = lambda x, n: jnp.pad(
        x, ((0, 0), (0, 0), (0, n - x.shape[2]), (0, 0)))
    out, lse = _attend_tpu(
        (kernel, gradients), whole(q, kernel.q_len), whole(k, kernel.kv_len),
        whole(v, kernel.kv_len), given, (arrays, gradient_arrays))
    out, lse = turn(out[:, :, :tokens]), lse[:, :, 0, :tokens]
    return (out, lse) if return_lse else out
