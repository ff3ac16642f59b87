"""What refuses forward mode and gradients of gradients in our own words, at no
cost: in a program these operations are nothing."""

from typing import Any, NoReturn

from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ._refuse import refuse


def _no_tangent(*_: Any, of: str) -> NoReturn:
    refuse("jax", f"{of} must be differentiated backward (jax.grad, jax.vjp)",
           "forward mode (jax.jvp, jax.hessian)")


def _no_gradient(*_: Any, of: str) -> NoReturn:
    refuse("jax", f"{of} must be differentiated once",
           "a gradient of its gradient")


def _identity(name: str, lower: Any) -> Primitive:
    out = Primitive(name)
    out.def_impl(lower)
    out.def_abstract_eval(lambda x, of: x)
    mlir.register_lowering(out, lambda _, x, of: [lower(x, of=of)])
    batching.primitive_batchers[out] = lambda args, dims, of: (
        out.bind(*args, of=of), dims[0])
    return out


# What gradients pass and tangents do not: a tangent is in a program where
# somebody asks for it, for gradients are its transpose.
_backward_only = _identity("tessera_backward_only", lambda x, of: x)
_tangent = _identity("tessera_tangent", _no_tangent)
ad.primitive_jvps[_backward_only] = lambda primals, tangents, of: (
    _backward_only.bind(*primals, of=of), _tangent.bind(*tangents, of=of))
ad.deflinear2(_tangent, lambda gradient, _, of: [gradient])
# Before JAX refuses to make many tangents of one, in words of its own.
batching.primitive_batchers[_tangent] = _no_tangent
_once = _identity("tessera_once", lambda x, of: x)
ad.primitive_jvps[_once] = _no_gradient


def backward_only(x: Any, of: str) -> Any:
    """The same array, which forward mode refuses; `of` is the call's name."""
    return _backward_only.bind(x, of=of)


def once(x: Any, of: str) -> Any:
    """The same array, which no gradient flows through."""
    return _once.bind(x, of=of)
