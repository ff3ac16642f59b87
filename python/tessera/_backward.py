"""Identities that refuse forward mode and gradients of gradients with an error
of this package. They lower to no operation, so they cost nothing."""

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


# A gradient passes through `backward_only`, a tangent does not. The tangent is
# `_tangent`, which cannot be lowered. A gradient uses only its transpose, so
# `_tangent` stays in a program only if that program uses forward mode.
_backward_only = _identity("tessera_backward_only", lambda x, of: x)
_tangent = _identity("tessera_tangent", _no_tangent)
ad.primitive_jvps[_backward_only] = lambda primals, tangents, of: (
    _backward_only.bind(*primals, of=of), _tangent.bind(*tangents, of=of))
ad.deflinear2(_tangent, lambda gradient, _, of: [gradient])
# Under a vmap over tangents, as in jax.hessian, JAX would raise an error of its
# own later. This raises ours first.
batching.primitive_batchers[_tangent] = _no_tangent
_once = _identity("tessera_once", lambda x, of: x)
ad.primitive_jvps[_once] = _no_gradient


def backward_only(x: Any, of: str) -> Any:
    """x itself. Forward mode through the result is an error, which names the
    call `of`."""
    return _backward_only.bind(x, of=of)


def once(x: Any, of: str) -> Any:
    """x itself. A gradient through the result is an error, which names the call
    `of`."""
    return _once.bind(x, of=of)
