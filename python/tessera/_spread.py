"""Attention over a mesh inside JAX: our program of all shards, with its
exchange of tiles, called from the caller's own program.

The program is StableHLO that the C++ library writes: one
`sdy.manual_computation` over all axes of the mesh. JAX loads it as an exported
module: a stand-in function with the same arguments is exported for their shapes
and shardings, and its module is replaced by our text.
"""

import dataclasses
import functools
import inspect
import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.interpreters import mlir
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from . import _core
from ._backward import backward_only, once
from ._refuse import refuse
from ._state import kinds_of, values_of

_DTYPES = {"f32": jnp.float32, "bf16": jnp.bfloat16, "f16": jnp.float16,
           "i32": jnp.int32}


def _refuse(rule: str, found: object) -> NoReturn:
    refuse("jax", rule, found)


def _sharding(mesh: Mesh, axes: Sequence[str]) -> NamedSharding:
    """The sharding of an array: `axes` names the mesh axis that divides each
    dimension. An axis that the mesh does not have divides nothing."""
    return NamedSharding(mesh, PartitionSpec(
        *(a if a in mesh.shape else None for a in axes)))


def _placed(mesh: Mesh, x: Any, axes: Sequence[str]) -> jax.Array:
    """x, resharded to `axes` if the mesh has explicit axes: then the type of an
    array contains its sharding, and must match."""
    if jax.sharding.AxisType.Explicit not in mesh.axis_types:
        return jnp.asarray(x)
    return jax.sharding.reshard(jnp.asarray(x), _sharding(mesh, axes))


def _bytecode(text: str) -> bytes:
    # JAX has no public function that serializes a module of Shardy's dialect.
    try:
        from jax._src.export._export import _module_to_bytecode
        from jax.extend.mlir import ir
        with mlir.make_ir_context():
            module = ir.Module.parse(text)
            # JAX 0.6 takes a flag: whether the module uses Shardy's dialect.
            asks = "shardy_enabled" in inspect.signature(
                _module_to_bytecode).parameters
            return _module_to_bytecode(module, *[True] * asks)
    except (ImportError, TypeError):
        _refuse("sharded_attention must have a JAX that writes modules as "
                "0.10 does", jax.__version__)


class Static:
    """The part of shards on a mesh that a program is compiled for. Objects
    whose batches have one contract are equal, and any of them can generate the
    program. `target` is the TPU whose kernels compute attention; None: plain
    operations do."""

    def __init__(self, shards: _core.Shards, mesh: Mesh,
                 target: str | None, lowering_reason: str | None,
                 numbers: str, kernels: tuple[str, ...]) -> None:
        self.shards, self.mesh = shards, mesh
        self.target, self.lowering_reason = target, lowering_reason
        self.numbers = numbers
        q, k = (next(s for s in shards.specs if s["name"] == n) for n in "qk")
        of = shards.batch  # spread() and gather() depend on its sizes
        self.kernels = kernels
        self.key = (shards.contract, shards.fingerprint, tuple(q["shape"]),
                    tuple(k["shape"]), q["dtype"], mesh, target,
                    lowering_reason, numbers, kernels, of.batch, of.q_len,
                    of.kv_len)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @functools.lru_cache(maxsize=64)
    def program(self, backward: bool, scale: float | None, softcap: float,
                sinks: bool, dlse: bool) -> tuple[Any, list[dict[str, Any]],
                                                  list[dict[str, Any]]]:
        """The program as a function, and specs of its arguments and results."""
        words = dict(scale=scale, softcap=softcap, sink_logits=sinks, dlse=dlse)
        if self.target:
            of = dict(target=self.target, backward=backward,
                      lowering_reason=self.lowering_reason,
                      numbers=self.numbers)
            arrays = self.shards.kernel_program(**of, **words)
            text = arrays["text"]
            # shard_arrays() made its integers for a call without these options.
            plain, _ = self.shards.kernel_integers(**of)
            if any(not np.array_equal(value, plain[name]) for name, value in
                   self.shards.kernel_integers(**of, **words)[0].items()):
                _refuse("kernels of a call must read the integers of any call",
                        "others")
        else:
            arrays = self.shards.program_arrays(backward, **words)
            text = self.shards.program_text(backward, **words)
        takes, gives = arrays["arguments"], arrays["results"]
        shape_of = lambda s: (tuple(s["shape"]), _DTYPES[s["dtype"].lower()])
        stand_in = jax.jit(
            lambda *_: tuple(jnp.zeros(*shape_of(s)) for s in gives),
            keep_unused=True,
            out_shardings=tuple(_sharding(self.mesh, s["axes"]) for s in gives))
        made = export.export(
            stand_in,
            disabled_checks=[export.DisabledSafetyCheck.platform()])(
            *(jax.ShapeDtypeStruct(*shape_of(s),
                                   sharding=_sharding(self.mesh, s["axes"]))
              for s in takes))
        made = dataclasses.replace(
            made, fun_name="tessera_backward" if backward else "tessera_forward",
            mlir_module_serialized=_bytecode(text))
        # The program computes one call, so vmap becomes a loop over calls.
        call = jax.custom_batching.sequential_vmap(
            lambda *args: tuple(made.call(*args)))
        return call, takes, gives


class ShardArrays:
    """Shards inside a program: a pytree. Only its arrays depend on the batch's
    values; the static part is that of the contract."""

    def __init__(self, static: Static, names: tuple[str, ...],
                 arrays: Sequence[Any]) -> None:
        self.static, self.names, self.arrays = static, names, arrays

    def __repr__(self) -> str:
        return f"ShardArrays({self.static.shards.mesh}, {self.static.shards.contract})"

    def json(self) -> str:
        """The static part, and the dtypes and shapes of the arrays, as JSON."""
        s = self.static
        return json.dumps({
            "mesh": s.shards.mesh, "contract": s.shards.contract,
            "lane": "mosaic" if s.target else "xla", "target": s.target,
            "arrays": kinds_of(self.names, self.arrays)})

    def __getstate__(self) -> dict[str, Any]:
        s = self.static
        devices = s.mesh.devices
        # JAX cannot pickle devices, so each is saved as (platform, id) and
        # found by them when the pickle is read.
        return {"shards": s.shards,
                "axes": (s.mesh.axis_names, s.mesh.axis_types),
                "devices": [(d.platform, d.id) for d in devices.flat],
                "sizes": devices.shape, "target": s.target,
                "lowering_reason": s.lowering_reason, "numbers": s.numbers,
                "kernels": s.kernels, "names": self.names,
                "arrays": values_of(self.arrays, "pickled"),
                "specs": tuple(getattr(x.sharding, "spec", PartitionSpec())
                               for x in self.arrays)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        names, types = state["axes"]
        devices = np.empty(len(state["devices"]), object)
        devices[:] = [_device(*of) for of in state["devices"]]
        mesh = Mesh(devices.reshape(state["sizes"]), names, axis_types=types)
        self.static = Static(state["shards"], mesh, state["target"],
                             state["lowering_reason"], state["numbers"],
                             state["kernels"])
        self.names = state["names"]
        self.arrays = tuple(
            _put(x, NamedSharding(mesh, spec), isinstance(x, jax.ShapeDtypeStruct))
            for x, spec in zip(state["arrays"], state["specs"]))

    @property
    def of(self) -> dict[str, Any]:
        """The arrays by name."""
        return dict(zip(self.names, self.arrays))

    def read(self) -> dict[str, Any]:
        """The arrays by name; refused if they are shapes without values."""
        if any(isinstance(x, jax.ShapeDtypeStruct) for x in self.arrays):
            _refuse("arrays must have values to be called with",
                    "shapes alone (abstract=True), which go to "
                    "jax.jit(...).lower")
        return self.of

    def spread(self, x: jax.Array, *, axis: int = 1,
               keys: bool = False) -> jax.Array:
        """Rows of a batch, [batch, ..., tokens, ...], in the order of the
        shards: [data, ..., tokens, ...]. `axis` is the dimension of the tokens,
        and `keys` takes the order of keys instead of queries. Padding is 0. All
        of a model but attention works token by token, so spread ids, positions
        and targets once and stay in this order."""
        order, sizes = self._order(keys)
        x = jnp.moveaxis(_placed(self.static.mesh, x, ()), axis, 1)
        if x.shape[:2] != sizes:
            _refuse(f"a batch must be of {sizes[0]} rows of {sizes[1]} tokens",
                    f"{x.shape[0]} of {x.shape[1]}")
        flat = x.reshape(-1, *x.shape[2:])
        got = jnp.where((order >= 0).reshape(*order.shape, *[1] * (x.ndim - 2)),
                        flat[jnp.maximum(order, 0)], 0)
        return jnp.moveaxis(got.astype(x.dtype), 1, axis)

    def _order(self, keys: bool) -> tuple[Any, tuple[int, int]]:
        batch = self.static.shards.batch
        return (self.read()["key_order" if keys else "query_order"],
                (batch.batch, batch.kv_len if keys else batch.q_len))

    def gather(self, y: jax.Array, *, axis: int = 1,
               keys: bool = False) -> jax.Array:
        """The inverse of `spread`: tokens in the order of the batch."""
        order, sizes = self._order(keys)
        y = jnp.moveaxis(_placed(self.static.mesh, y, ()), axis, 1)
        if y.shape[:2] != order.shape:
            _refuse(f"spread rows must be {order.shape[0]} of {order.shape[1]} "
                    "tokens", f"{y.shape[0]} of {y.shape[1]}")
        order = order.reshape(-1)
        flat = y.reshape(-1, *y.shape[2:])
        # Padding is written to one extra row at the end, which is cut off.
        size = sizes[0] * sizes[1]
        out = jnp.zeros((size + 1, *flat.shape[1:]), y.dtype)
        out = out.at[jnp.where(order < 0, size, order)].set(flat)[:size]
        return jnp.moveaxis(out.reshape(*sizes, *flat.shape[1:]), 1, axis)


jax.tree_util.register_pytree_node(
    ShardArrays, lambda s: (tuple(s.arrays), (s.static, s.names)),
    lambda static, arrays: ShardArrays(*static, arrays))


def shard_arrays(shards: _core.Shards, mesh: Mesh, *, lane: str | None = None,
                 target: str | None = None, lowering_reason: str | None = None,
                 numbers: str = "finite",
                 abstract: bool = False) -> ShardArrays:
    """The arrays of `ts.shard(...)` that `sharded_attention` reads, on a JAX
    mesh.

    The mesh must have the axis names and sizes of the shards' mesh; of
    "dp:data=2,cp:seq=4" the axes are dp=2 and cp=4. The arrays are placed on
    their devices. With `abstract` they are only shapes, to lower a program for
    devices that are not present. Batches under the same `ceilings` have equal
    trees: a function that takes one is traced once and compiled once.

    `lane` is "xla" (plain operations) or "mosaic" (our TPU kernels, which begin
    while tiles travel). By default it is "mosaic" on a mesh of TPUs, else
    "xla". `target` is the TPU to make kernels for; by default that of the mesh.
    `numbers` is "finite", a promise that the kernels read only finite numbers,
    or "any".
    """
    if not isinstance(shards, _core.Shards):
        _refuse("shards must be of ts.shard", type(shards).__name__)
    if not isinstance(mesh, Mesh):
        _refuse("mesh must be a jax.sharding.Mesh", type(mesh).__name__)
    found = ",".join(f"{name}={n}" for name, n in mesh.shape.items())
    if found != re.sub(r":\w+", "", shards.mesh):
        _refuse(f"the mesh must be that of the shards, {shards.mesh}", found)
    if not getattr(jax.config, "jax_use_shardy_partitioner", True):
        _refuse("JAX must use Shardy", "jax_use_shardy_partitioner=False")
    if (jax.sharding.AxisType.Explicit in mesh.axis_types
            and not hasattr(jax.sharding, "reshard")):
        _refuse("explicit axes of a mesh must have a JAX with "
                "jax.sharding.reshard", jax.__version__)
    device = mesh.devices.flat[0]
    lane = lane or ("mosaic" if device.platform == "tpu" else "xla")
    if lane not in ("xla", "mosaic"):
        _refuse("lane must be 'xla' or 'mosaic'", repr(lane))
    if lane == "xla" and (target or lowering_reason or numbers != "finite"):
        _refuse("target, lowering_reason and numbers go with lane 'mosaic'",
                "'xla'")
    if lane == "mosaic":
        target = target or _core._tpu_target(device.device_kind)
        integers, contracts = {}, []
        for backward in (False, True):
            made, contract = shards.kernel_integers(
                target, backward, lowering_reason=lowering_reason,
                numbers=numbers)
            contracts.append(contract)
            integers |= {_prefix(True, backward) + name: value
                         for name, value in made.items()}
        static = Static(shards, mesh, target, lowering_reason, numbers,
                        tuple(contracts))
    else:
        integers = shards.integers()
        static = Static(shards, mesh, None, None, "finite", ())
    axes = next(s["axes"] for s in shards.specs if s["name"] == "q")[:3]
    arrays = {name: (value, _sharding(mesh, axes))
              for name, value in integers.items()}
    for name in ("query_order", "key_order"):
        order = getattr(shards, name)
        if order.max(initial=0) >= 2**31 - 1:
            _refuse(f"a batch must have less than {2**31 - 1} tokens", "more")
        arrays[name] = order.astype(np.int32), _sharding(mesh, ())
    return ShardArrays(static, tuple(arrays), tuple(
        _put(*array, abstract) for array in arrays.values()))


def _put(value: Any, place: NamedSharding, abstract: bool) -> Any:
    """The value as an array of this sharding, or its shape if `abstract`. Every
    process has the whole value, and places the parts of its own devices."""
    if abstract:
        return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=place)
    return jax.make_array_from_callback(value.shape, place,
                                        lambda at: value[at])


def _device(platform: str, number: int) -> jax.Device:
    found = next((d for d in jax.devices(platform) if d.id == number), None)
    if found is None:
        _refuse("the mesh's devices must be here", f"no {platform} {number}")
    return found


def _prefix(kernels: bool, backward: bool) -> str:
    # The forward and the backward kernel read different integers.
    return ("backward_" if backward else "forward_") if kernels else ""


def _call(static: Static, options: tuple[Any, ...], backward: bool, dlse: bool,
          tensors: dict[str, Any],
          integers: dict[str, Any]) -> dict[str, jax.Array]:
    call, takes, gives = static.program(backward, *options, dlse)
    prefix = _prefix(static.target is not None, backward)
    got = call(*(tensors[s["name"]] if s["name"] in tensors
                 else integers[prefix + s["name"]] for s in takes))
    return {s["name"]: _of_tokens(static, s, x, integers)
            for s, x in zip(gives, got)}


def _of_tokens(static: Static, made: dict[str, Any], x: jax.Array,
               integers: dict[str, Any]) -> jax.Array:
    """Result x with 0 in padding (-inf in lse), as in rows without a key.
    Kernels do not write padding, and a NaN left there would make gradients of
    parameters NaN, even times 0."""
    name = made["name"]
    if name not in ("out", "lse", "dq", "dk", "dv"):
        return x
    order = integers["key_order" if name in ("dk", "dv") else "query_order"]
    there = (order >= 0).reshape(order.shape[0], 1, -1, *[1] * (x.ndim - 3))
    there = _placed(static.mesh, jnp.broadcast_to(there, x.shape), made["axes"])
    return jnp.where(there, x, -jnp.inf if name == "lse" else 0).astype(x.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(static: Static, options: tuple[Any, ...], tensors: dict[str, Any],
            integers: dict[str, Any]) -> tuple[jax.Array, jax.Array]:
    got = _call(static, options, False, False, tensors, integers)
    return got["out"], got["lse"]


def _attend_forward(static: Static, options: tuple[Any, ...],
                    tensors: dict[str, Any], integers: dict[str, Any]) -> Any:
    out, lse = _attend(static, options, tensors, integers)
    return (out, lse), (tensors, integers, out, lse)


def _attend_backward(static: Static, options: tuple[Any, ...], saved: Any,
                     gradients: Any) -> Any:
    tensors, integers, out, lse = saved
    dout, dlse = gradients
    given = {**tensors, "out": out, "lse": lse, "dout": dout, "dlse": dlse}
    got = _call(static, options, True, True, {
        name: once(x, "sharded_attention") for name, x in given.items()},
        integers)
    made = {name: got["d" + name] for name in tensors}
    if "sink_logits" in made:  # one gradient from each device
        made["sink_logits"] = made["sink_logits"].sum((0, 1))
    none = jax.tree.map(
        lambda x: np.zeros(x.shape, jax.dtypes.float0), integers)
    return made, none


_attend.defvjp(_attend_forward, _attend_backward)


def numbers_of(scale: Any, softcap: Any) -> tuple[float | None, float]:
    """scale and softcap as floats: a program is compiled for their values."""
    try:
        return None if scale is None else float(scale), float(softcap)
    except (TypeError, ValueError, jax.errors.ConcretizationTypeError):
        found = " ".join(f"{scale!r} and {softcap!r}".split())
        _refuse("scale and softcap must be numbers", found)


def sharded_attention(
        q: jax.Array, k: jax.Array, v: jax.Array, shards: ShardArrays, *,
        scale: float | None = None, softcap: float = 0.0,
        sink_logits: jax.Array | None = None,
        return_lse: bool = False) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Attention over a mesh. Queries, keys and values are divided by tokens
    along "seq", by batch rows along "data" and by heads along "head". Tiles
    travel only to the devices that need them.

    q is [data, heads, tokens, head_dim]; k and v have their own number of
    heads. All are in the token order of `shards.spread`, and so are the results
    and the gradients of q, k and v. The call is differentiable by q, k, v and
    sink_logits, through both results. With `return_lse` it also returns the
    natural log-sum-exp.
    """
    if not isinstance(shards, ShardArrays):
        _refuse("shards must be of shard_arrays", type(shards).__name__)
    static = shards.static
    options = (*numbers_of(scale, softcap), sink_logits is not None)
    takes = {s["name"]: s for s in static.program(False, *options, False)[1]}
    tensors = {"q": q, "k": k, "v": v}
    if sink_logits is not None:
        tensors["sink_logits"] = sink_logits
    for name, x in tensors.items():
        if not hasattr(x, "shape"):
            _refuse(f"{name} must be an array", type(x).__name__)
        want = tuple(takes[name]["shape"]), _DTYPES[takes[name]["dtype"].lower()]
        if (x.shape, x.dtype) != want:
            _refuse(f"{name} must be {np.dtype(want[1])}{list(want[0])} on this "
                    "mesh", f"{x.dtype}{list(x.shape)}")
        tensors[name] = backward_only(
            _placed(static.mesh, x, takes[name]["axes"]), "sharded_attention")
    out, lse = _attend(static, options, tensors, shards.read())
    return (out, lse) if return_lse else out
