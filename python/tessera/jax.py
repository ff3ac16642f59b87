"""Block-sparse attention inside JAX, by our own kernels.

    import tessera as ts
    import tessera.jax

    batch = ts.plan(ts.causal & ts.documents, q_len=4096, doc_ids=ids,
                    max_steps=4096)

    @jax.jit
    def step(params, q, k, v, batch):
        return tessera.jax.attention(q, k, v, batch)

A batch is a pytree: its lists, ids and bounds are arguments of the program, and
its static part is the key of the trace. Batches under the same `max_steps` have
equal trees, so a function that takes one is traced once and compiled once.

The program is lowered for a CPU or a TPU, with our kernels for that platform.
The two read different arrays. A `Batch` that is passed to a program becomes the
arrays for a TPU if JAX runs on one, else those for a CPU. To lower for a TPU
that is not present, pass `arrays_for(batch, "tpu")`.
"""

import functools
import itertools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jax.typing import ArrayLike

from . import _core, _tpu
from ._backward import backward_only, once
from ._mesh import divided, undivided
from ._refuse import refuse
from ._splash import splash_mask_info
from ._spread import (ShardArrays, numbers_of, shard_arrays,
                      sharded_attention)
from ._state import kinds_of, values_of

__all__ = ["BatchArrays", "ShardArrays", "arrays_for", "attention",
           "shard_arrays", "sharded_attention", "splash_mask_info"]

for _name, _handler in _core._jax_handlers().items():
    jax.ffi.register_ffi_target(_name, _handler, platform="cpu")


class Static(NamedTuple):
    """The part of a batch that a program is compiled for."""

    text: str
    batch: int
    q_len: int
    kv_len: int
    tile_q: int
    tile_kv: int
    steps: int
    facts: tuple[str, ...]
    cpu: bool = True
    tpu: _tpu.Terms | None = None

    def names(self) -> tuple[tuple[str, ...], ...]:
        """Names of the arrays: those for a CPU, for a TPU's forward kernel and
        for its backward kernel."""
        tpu = self.tpu.leaves() if self.tpu else ()
        backward = tpu if self.tpu and self.tpu.backward else ()
        return (_LEAVES + self.facts if self.cpu else (),
                tuple(f"forward_{name}" for name in tpu),
                tuple(f"backward_{name}" for name in backward))


class BatchArrays:
    """A batch inside a program: its arrays may be traced, stacked or on a
    device. `jax.device_put(batch)` makes one whose arrays are moved to the
    device once; `arrays_for` makes one for given platforms."""

    def __init__(self, static: Static, arrays: Sequence[Any]) -> None:
        self.static = static
        self.arrays = arrays

    def _split(self) -> tuple[tuple[Any, ...], ...]:
        """The arrays, grouped as their names are in `Static.names`."""
        rest = iter(self.arrays)
        return tuple(tuple(itertools.islice(rest, len(names)))
                     for names in self.static.names())

    def check(self) -> None:
        """Raises an error if the arrays for TPU kernels are not as `arrays_for`
        made them, all from one batch. Call it on arrays that were pickled,
        moved or put together by hand, because TPU kernels check no bounds. CPU
        kernels check their lists themselves."""
        of_batch = sum(map(len, self.static.names()))
        if len(self.arrays) != of_batch:
            refuse("jax", f"arrays must be all that `arrays_for` gave, {of_batch}",
                   len(self.arrays))
        values = values_of(self.arrays, "checked")
        _, *of_kernels = BatchArrays(self.static, values)._split()
        for backward, arrays in enumerate(of_kernels):
            if arrays:
                _tpu.check(self.static.text, self.static.tpu, bool(backward),
                           arrays)

    def _masks(self) -> list[str]:
        return [part.removeprefix("mask ") for part in self.static.text.split(";")
                if part.startswith("mask ")]

    def json(self) -> str:
        """The static part, and the dtypes and shapes of the arrays, as JSON."""
        s = self.static
        return json.dumps({
            "masks": self._masks(), "batch": s.batch, "q_len": s.q_len,
            "kv_len": s.kv_len, "tile": [s.tile_q, s.tile_kv],
            "steps": s.steps, "facts": s.facts,
            "platforms": ["cpu"] * s.cpu + ["tpu"] * (s.tpu is not None),
            "target": s.tpu and s.tpu.target,
            "arrays": kinds_of(sum(s.names(), ()), self.arrays)})

    def __getstate__(self) -> dict[str, Any]:
        return {"static": self.static, "arrays": values_of(self.arrays, "pickled")}

    def __repr__(self) -> str:
        s = self.static
        masks = " / ".join(self._masks())
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
        if jax.default_backend() == "tpu":
            return _parts(arrays_for(batch, "tpu"))
        *static, names, arrays = _core._parts(batch)
        return Static(*static, tuple(names)), arrays
    refuse("jax", "batch must be a tessera.Batch", type(batch).__name__)


def _flatten(batch: Any) -> tuple[Sequence[Any], Static]:
    static, arrays = _parts(batch)
    return arrays, static


def _flatten_with_keys(batch: Any) -> tuple[list[tuple[Any, Any]], Static]:
    static, arrays = _parts(batch)
    return [(jax.tree_util.GetAttrKey(n), a)
            for n, a in zip(sum(static.names(), ()), arrays)], static


for _kind in (_core.Batch, BatchArrays):
    jax.tree_util.register_pytree_with_keys(
        _kind, _flatten_with_keys, BatchArrays, _flatten)


def _target() -> str:
    if jax.default_backend() != "tpu":
        return "v6e"
    return _core._tpu_target(jax.local_devices()[0].device_kind)


def arrays_for(batch: _core.Batch, *platforms: str, target: str | None = None,
               head_dim: int = 128,
               tiles_per_pass: tuple[int, int] | None = None,
               fetch_ahead: tuple[int, int] | None = None,
               row_sum: str = "exact",
               lowering_reason: str | None = None,
               query_chunk: int | None = None,
               numbers: str = "finite",
               checked: bool = False) -> BatchArrays:
    """The arrays of a batch that programs for `platforms` read: "cpu", "tpu" or
    both.

    The other arguments are settings of the TPU kernels, as in
    `tessera.compile`. `tiles_per_pass` and `fetch_ahead` are pairs (forward
    kernel, backward kernel); by default those of the table for `head_dim`.

    The backward kernel's lists are cut into chunks of `query_chunk` queries. By
    default it is the chunk that a call with 8 heads of `head_dim` in bf16
    needs, and the lists are whole if that call needs no chunks. If you give
    `query_chunk` and no kernel has room for the gradients, that is an error
    here; by default it is an error when a program takes the gradients.

    `target` is by default the TPU that JAX runs on, or v6e if it runs on none.
    With `checked`, programs for a TPU test whether the arrays are as they were
    made here. If they are not, the kernel runs no step, and the log-sum-exp and
    the first row of each head of the output and of the gradients are NaN; the
    other rows are undefined.
    """
    if not isinstance(batch, _core.Batch):
        refuse("jax", "batch must be a tessera.Batch", type(batch).__name__)
    if not platforms or any(p not in ("cpu", "tpu") for p in platforms):
        refuse("jax", "platforms must be 'cpu', 'tpu' or both",
               ", ".join(map(repr, platforms)) or "none")
    for name, pair in (("tiles_per_pass", tiles_per_pass),
                       ("fetch_ahead", fetch_ahead)):
        if pair is not None and (
                not isinstance(pair, (tuple, list)) or len(pair) != 2):
            refuse("jax", f"{name} must be a pair, of the forward kernel and the "
                   "backward one", repr(pair))
    cpu = "cpu" in platforms
    if "tpu" not in platforms and (
            target or tiles_per_pass or fetch_ahead or lowering_reason
            or query_chunk is not None or row_sum != "exact"
            or numbers != "finite" or checked):
        refuse("jax", "what kernels of a TPU take goes with the platform 'tpu'",
               "'cpu' alone")
    *static, names, arrays = _core._parts(batch, arrays=cpu)
    terms = None
    if "tpu" in platforms:
        target = _target() if target is None else target
        tiles, ahead, chunks = zip(*(
            _core._tpu_passes(batch, target, head_dim, backward,
                              tiles_per_pass and tiles_per_pass[backward],
                              fetch_ahead and fetch_ahead[backward],
                              query_chunk, lowering_reason, numbers)
            for backward in (False, True)))
        terms, more = _tpu.arrays_of(batch, static[0], _tpu.Terms(
            (), target, tiles, ahead, row_sum, lowering_reason, chunks[1],
            numbers, checked=bool(checked)),
            needs_backward=query_chunk is not None)
        arrays = (*arrays, *more)
    return BatchArrays(Static(*static, tuple(names), cpu, terms), arrays)


class _Call(NamedTuple):
    """The static part of a call."""

    backward: bool
    text: str
    tile_q: int
    scale: Any
    softcap: float
    bshd: bool
    sinks: bool
    lse: bool  # the caller takes the log-sum-exp
    cpu: bool
    tpu: _tpu.Terms | None

    def tpu_arrays(self) -> int:
        if self.tpu is None or (self.backward and not self.tpu.backward):
            return 0
        return len(self.tpu.leaves()) - 1  # without the digests

    def attributes(self) -> dict[str, Any]:
        return dict(batch=self.text, has_scale=self.scale is not None,
                    scale=np.float64(self.scale or 0),
                    softcap=np.float64(self.softcap), bshd=self.bshd,
                    sinks=self.sinks)


def _results(call: _Call, args: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    q, _, v = args[:3]
    if call.backward:
        return [jax.ShapeDtypeStruct(x.shape, x.dtype)
                for x in args[:3 + call.sinks]]
    b, h, t = q.shape[:3]
    if call.bshd:
        h, t = t, h
    return [jax.ShapeDtypeStruct((*q.shape[:3], v.shape[3]), q.dtype),
            jax.ShapeDtypeStruct((b, h, t), jnp.float32)]


def _on_cpu(call: _Call, *args: Any) -> Sequence[jax.Array]:
    args = args[:len(args) - call.tpu_arrays()]
    name = "tessera_backward" if call.backward else "tessera_forward"
    return jax.ffi.ffi_call(name, _results(call, args))(
        *args, **call.attributes())


def _check_platform(call: _Call, platform: str) -> None:
    if platform not in ("cpu", "tpu"):
        refuse("jax", "attention must be lowered for cpu or tpu", platform)
    if not (call.tpu if platform == "tpu" else call.cpu):
        found = "cpu" if call.cpu else "tpu"
        refuse("jax", f"a batch must be as arrays_for(batch, '{platform}') makes it",
               f"one for {found} alone for a program for {platform}")


def _lower_check(context: Any, argument: Any, *, call: _Call) -> Any:
    for platform in context.platforms or context.module_context.platforms:
        _check_platform(call, platform)
    return [argument]


def _check_here(argument: Any, call: _Call) -> Any:
    _check_platform(call, jax.default_backend())
    return argument


# An identity. Lowering it for a platform that the batch has no arrays for is an
# error. JAX calls def_impl, here and below, only under jax.disable_jit.
_checked = Primitive("tessera_platform")
_checked.def_impl(_check_here)
_checked.def_abstract_eval(lambda argument, call: argument)
mlir.register_lowering(_checked, _lower_check)
batching.primitive_batchers[_checked] = lambda args, dims, call: (
    _checked.bind(*args, call=call), dims[0])


def _lower_to(run: Any, context: Any, *args: Any, call: _Call) -> Any:
    return mlir.lower_fun(functools.partial(run, call), True)(context, *args)


# The call itself, on one device. Each platform has its own lowering.
_attention = Primitive("tessera_attention")
_attention.multiple_results = True
_attention.def_abstract_eval(lambda *args, call: [
    jax.core.ShapedArray(x.shape, x.dtype) for x in _results(call, args)])
_PLATFORMS = {"cpu": _on_cpu, "tpu": _tpu.attend}
_attention.def_impl(
    lambda *args, call: _PLATFORMS[jax.default_backend()](call, *args))
for _platform, _on in _PLATFORMS.items():
    mlir.register_lowering(_attention, functools.partial(_lower_to, _on),
                           platform=_platform)


def _foreign(call: _Call, args: Sequence[Any]) -> Sequence[jax.Array]:
    return _attention.bind(*args, call=call)


_check = lambda call, argument: _checked.bind(argument, call=call)
_run_divided = divided(_foreign, _check)
_run_undivided = undivided(_foreign, _check)


def _run(call: _Call, *args: Any) -> Sequence[jax.Array]:
    """XLA may divide a call for a CPU, but not one with a TPU's kernel."""
    return (_run_undivided if call.tpu else _run_divided)(call, *args)


def _axes_of(x: Any) -> frozenset[str]:
    """The axes of a shard_map along which x varies."""
    kind = jax.typeof(x)
    kind = getattr(kind, "manual_axis_type", kind)
    return getattr(kind, "varying", None) or getattr(kind, "vma", frozenset())


def _over(axes: frozenset[str], xs: Sequence[Any]) -> tuple[Any, ...]:
    """The same arrays, marked as varying along these axes. The gradient of an
    array that did not vary along an axis is summed over that axis."""
    def one(x: Any) -> Any:
        more = tuple(sorted(axes - _axes_of(x)))
        if not more:
            return x
        if hasattr(jax.lax, "pcast"):
            return jax.lax.pcast(x, more, to="varying")
        return jax.lax.pvary(x, more)
    return tuple(map(one, xs))


def _marked(mark: Any, xs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(mark(x, "attention") for x in xs)


# `kept` is q, k, v and sinks without the mark; the backward pass saves these.
# If a program ends between forward and backward, each saved array that is
# marked would be a copy of an argument.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(call: _Call, axes: frozenset[str], qkv: Any, sinks: Any,
            arrays: Any, kept: Any) -> Any:
    cpu, forward, _ = arrays
    return _over(axes, _run(call, *qkv, *sinks, *cpu, *forward))


def _attend_forward(call: _Call, axes: frozenset[str], qkv: Any, sinks: Any,
                    arrays: Any, kept: Any) -> Any:
    out, lse = _attend(call, axes, qkv, sinks, arrays, kept)
    return (out, lse), (kept, arrays, out, lse)


def _attend_backward(call: _Call, axes: frozenset[str], saved: Any,
                     gradients: Any) -> Any:
    kept, (cpu, _, backward), out, lse = saved
    tensors = _marked(once, (*kept, out, lse, *gradients))
    found = _over(axes, _run(
        call._replace(backward=True), *tensors, *cpu, *backward))
    return found[:3], found[3:], None, None


_attend.defvjp(_attend_forward, _attend_backward)


def _check_layout(layout: str) -> None:
    if layout not in ("bhsd", "bshd"):
        refuse("jax", "layout must be 'bhsd' or 'bshd'", repr(layout))


def attention(q: ArrayLike, k: ArrayLike, v: ArrayLike,
              batch: _core.Batch | BatchArrays, *, scale: float | None = None,
              softcap: float = 0.0, sink_logits: ArrayLike | None = None,
              layout: str = "bhsd", return_lse: bool = False
              ) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Attention of one batch, under `jit`, `grad`, `vmap` and `scan`, by our
    kernels for a CPU or a TPU.

    The arguments are those of `tessera.attention`. `batch` is a `Batch`, or the
    `BatchArrays` that it becomes inside a function that takes one. A call that
    the library refuses is an error of one line: for a CPU when the program
    runs, for a TPU when it is lowered. On several TPUs the call must be inside
    `jax.shard_map`.
    """
    _check_layout(layout)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if jnp.ndim(x) != 4:
            refuse("jax", f"{name} must have 4 dimensions", jnp.ndim(x))
    heads = jnp.shape(q)[2 if layout == "bshd" else 1]
    if sink_logits is not None and jnp.shape(sink_logits) != (heads,):
        refuse("jax", f"sink_logits must be float32 [{heads}]",
               f"the shape {list(jnp.shape(sink_logits))}")
    static, arrays = _parts(batch)
    call = _Call(False, static.text, static.tile_q,
                 *numbers_of(scale, softcap), layout == "bshd",
                 sink_logits is not None, return_lse, static.cpu, static.tpu)
    sinks = () if sink_logits is None else (sink_logits,)
    cpu, *of_kernels = BatchArrays(static, arrays)._split()
    parts = (cpu, *(of[1:] for of in of_kernels))  # without digests
    axes = frozenset().union(*map(_axes_of, (q, k, v, *sinks, *arrays)))
    kept = _over(axes, (q, k, v, *sinks))
    marked = _marked(backward_only, kept)
    out, lse = _attend(call, axes, marked[:3], marked[3:], parts, kept)
    return (out, lse) if return_lse else out
