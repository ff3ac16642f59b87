"""Calls of our kernels in a program that XLA partitions among devices.

XLA cannot partition a foreign call by itself: without a rule it silently
gathers sharded arguments, and every device does all the work. These rules
divide a call by batch rows and by heads, so that each device computes its own.
A call whose arguments are divided in any other way is refused when the program
is compiled.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import (
    ArrayMapping, CompoundFactor, SdyShardingRule, custom_partitioning)
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from . import _core
from ._refuse import refuse

# Arguments after the tensors: window bounds, (row starts, entries) of the
# forward and of the transposed list, facts. The numbers below are offsets of
# the lists.
_LISTS = 5
_FORWARD, _TRANSPOSED = 1, 3


def _refuse(rule, found):
    refuse("jax", f"{rule}, or the call must be in a jax.shard_map over all axes",
           found)


def _dims(call, n):
    """A letter for each dimension: of the tensors, of the results and of the
    other arguments, n arguments in all. b is batch rows, h heads, g kv heads;
    dimensions of any other letter cannot be divided."""
    q, k, v, lse = "bhtd", "bgsd", "bgse", "bht"
    if call.bshd:
        q, k, v = "bthd", "bsgd", "bsge"
    out = q[:-1] + "e"
    tensors = [q, k, v] + ["h"] * call.sinks
    results = [out, lse]
    if call.backward:
        results = list(tensors)
        tensors += [out, lse, out, lse]
    facts = n - len(tensors) - _LISTS
    return tensors, results, [""] * _LISTS + ["b"] * facts


def _names(call):
    return ["q", "k", "v"] + ["sink_logits"] * call.sinks + [
        "out", "lse", "dout", "dlse"] * call.backward


def _leading(lead, dims):
    return ["n" * is_led + d for is_led, d in zip(lead, dims)]


def _spec(x, mesh):
    if x.sharding is None or x.sharding.is_fully_replicated:
        return (None,) * len(x.shape)
    if mesh.empty or not isinstance(x.sharding, NamedSharding):
        _refuse("attention on several devices must have arrays of a named mesh",
                x.sharding)
    spec = tuple(axes or None for axes in x.sharding.spec)
    return spec + (None,) * (len(x.shape) - len(spec))


class _Division:
    """How a call of these arguments is divided on a mesh. Arguments that cannot
    be divided so are refused. `lead` says which arguments have a leading
    dimension of vmap (letter n)."""

    def __init__(self, call, lead, mesh, given):
        self.call, self.mesh = call, mesh
        self.lead = lead or (False,) * len(given)
        tensors, self.results, self.rest = _dims(call, len(given))
        self.first = len(tensors)  # index of the first list
        self.tensors = _leading(self.lead, tensors)
        self.given = given
        self.sizes = {d: n for dims, x in zip(self.tensors, given)
                      for d, n in zip(dims, x.shape)}
        self.axes = {}
        placed = [_spec(x, mesh) for x in given[:self.first]]
        for dims, spec in zip(self.tensors, placed):
            for d, axes in zip(dims.replace("g", "h"), spec):
                if axes is not None and d in "nbh":
                    self.axes.setdefault(d, axes)
        if self.sizes["g"] > 1 and "h" in self.axes:
            self.axes["g"] = self.axes["h"]
        self._check(placed)

    def parts(self, d):
        axes = self.axes.get(d, ())
        axes = axes if isinstance(axes, tuple) else (axes,)
        return math.prod(self.mesh.shape[a] for a in axes)

    def row_starts(self, at):
        """The row starts that one batch row has in the list at offset `at`."""
        n = self.given[self.first + at].shape[-1] - 1
        return n // self.sizes["b"]

    def _check(self, placed):
        for d, name in (("n", "rows"), ("b", "batch rows"), ("h", "heads"),
                        ("g", "kv_heads")):
            if d in self.axes and self.sizes[d] % self.parts(d):
                _refuse(f"{name} must be a multiple of the devices that they "
                        "are divided among",
                        f"{self.sizes[d]} for {self.parts(d)}")
        for name, dims, spec, x in zip(_names(self.call), self.tensors, placed,
                                       self.given):
            if any(axes not in (None, self.axes.get(d))
                   for d, axes in zip(dims, spec)):
                _refuse("attention must be divided by batch rows and heads "
                        "alone, all arrays alike",
                        f"{name} {list(x.shape)} as {x.sharding.spec}")
        lists = self.row_starts(_FORWARD) // -(-self.sizes["t"] //
                                               self.call.tile_q)
        if "h" in self.axes and lists > 1:
            _refuse("heads must share one list to be divided",
                    f"{lists} of a batch row")

    def place(self, dims):
        return NamedSharding(self.mesh, P(*map(self.axes.get, dims)))

    def argument_places(self):
        return tuple(map(self.place, self.tensors + _leading(
            self.lead[self.first:], self.rest)))

    def result_places(self):
        led = "n" * any(self.lead)
        return tuple(self.place(led + d) for d in self.results)


def _own_rows(starts, entries, part, count):
    """Part number `part` of a list that is cut into parts of `count` rows. The
    entries keep their length, with zeros at the end."""
    starts = jax.lax.dynamic_slice(starts, (part * count,), (count + 1,))
    more = jnp.concatenate([entries, jnp.zeros_like(entries)])
    return starts - starts[0], jax.lax.dynamic_slice(
        more, (starts[0],), entries.shape)


def _run_part(run, division, args):
    """This device's part of a call."""
    args = list(args)
    if "b" in division.axes:
        part = jax.lax.axis_index(division.axes["b"])
        for at in (_FORWARD, _TRANSPOSED):
            i = division.first + at
            count = (division.row_starts(at) * division.sizes["b"] //
                     division.parts("b"))
            args[i:i + 2] = _own_rows(*args[i:i + 2], part, count)
    found = list(run(division.call, args))
    for i, dims in enumerate(division.results):
        # A result without a divided dimension is a partial sum: gradients of
        # sinks are summed over batch rows, those of a single kv head over
        # heads.
        for d, missing in (("b", "b" not in dims),
                           ("h", not set("hg") & set(dims) or (
                               "g" in dims and "g" not in division.axes))):
            if missing and d in division.axes:
                found[i] = jax.lax.psum(found[i], division.axes[d])
    return tuple(found)


def _for_each(lead, run, args):
    """run(args), or one run after the other for each index of the leading
    dimension of those arguments that have one."""
    if lead is None:
        return run(args)
    led = [x for x, is_led in zip(args, lead) if is_led]

    def one(led):
        led = iter(led)
        return run([next(led) if is_led else x
                    for x, is_led in zip(args, lead)])
    return jax.lax.map(one, led)


def _rule(call, lead, mesh, given, made):
    """The division as a sharding rule of Shardy, which asks for it before the
    arguments have shardings."""
    lead = lead or (False,) * len(given)
    tensors, results, rest = _dims(call, len(given))
    tensors = _leading(lead, tensors)
    sizes = {d: n for dims, x in zip(tensors, given)
             for d, n in zip(dims, x.shape)}
    heads, kv_heads = sizes["h"], sizes["g"]
    # Query heads of a group are placed with the group's kv head. Head counts
    # that form no groups are refused by the call.
    group = heads // kv_heads if kv_heads > 1 and heads % kv_heads == 0 else 0
    count = iter(range(1 << 20))

    def factor(d):
        if d == "h" and group > 1:
            return CompoundFactor("g", "r")
        if d == "h" and group == 1:
            return "g"
        return d if d and d in "nbhg" else f"x{next(count)}"

    def mapping(dims, x):
        return ArrayMapping(*map(factor, dims + "x" * (len(x.shape) - len(dims))))

    dims = tensors + _leading(lead[len(tensors):], rest)
    led = "n" * any(lead)
    return SdyShardingRule(
        tuple(map(mapping, dims, given)),
        tuple(mapping(led + d, x) for d, x in zip(results, made)),
        **({"r": group} if group > 1 else {}))


def divided(run, check):
    """run(call, args), a foreign call with the static terms `call`, as a call
    that XLA can divide. XLA lowers `run` late, in a callback. So check(call,
    argument), which returns the argument, is lowered with the program and
    raises its errors there."""
    @functools.partial(custom_partitioning, static_argnums=(0, 1))
    def whole(call, lead, *args):
        return _for_each(lead, lambda args: tuple(run(call, args)), args)

    def infer(call, lead, mesh, given, made):
        try:
            return _Division(call, lead, mesh, given).result_places()
        except _core.TesseraError:  # raised here it would end the process
            return (NamedSharding(mesh, P()),) * len(made)

    def partition(call, lead, mesh, given, made):
        division = _Division(call, lead, mesh, given)
        lower = lambda *args: _for_each(
            lead, functools.partial(_run_part, run, division), args)
        return (mesh, lower, division.result_places(),
                division.argument_places())

    whole.def_partition(partition, infer, sharding_rule=_rule)

    # Jitted, so that a call outside of any program becomes a program too.
    @functools.partial(jax.jit, static_argnums=0)
    def call(terms, *args):
        args = (*args[:-1], check(terms, args[-1]))

        @jax.custom_batching.custom_vmap
        def one(*args):
            return whole(terms, None, *args)

        @one.def_vmap
        def many(_, batched, *args):
            again = jax.custom_batching.sequential_vmap(
                lambda *args: whole(terms, tuple(batched), *args))
            return again(*args), (True,) * len(_dims(terms, len(args))[1])
        return one(*args)
    return call


def undivided(run, check):
    """The same for a call that XLA must not divide. A program of several
    devices is refused, unless the call is inside a shard_map, where its arrays
    are those of one device."""
    @functools.partial(custom_partitioning, static_argnums=(0,))
    def whole(call, *args):
        return tuple(run(call, args))

    def no_kernel(call, mesh, given, made):
        _refuse("attention by a TPU's kernel must be of one device",
                "a program for several")

    def infer(call, mesh, given, made):
        return (NamedSharding(mesh, P()),) * len(made)

    whole.def_partition(no_kernel, infer, sharding_rule=no_kernel)

    @functools.partial(jax.jit, static_argnums=0)
    def call(terms, *args):
        args = (*args[:-1], check(terms, args[-1]))
        return jax.custom_batching.sequential_vmap(
            functools.partial(whole, terms))(*args)
    return call
