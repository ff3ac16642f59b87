"""Pickle and JSON of our JAX pytrees: the values and the kinds of arrays."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ._refuse import refuse


def kinds_of(names: Sequence[str], arrays: Sequence[Any]) -> dict[str, Any]:
    """The dtype and shape of each array. Traced arrays have them too."""
    return {name: {"dtype": str(x.dtype), "shape": list(x.shape)}
            for name, x in zip(names, arrays)}


def values_of(arrays: Sequence[Any], purpose: str) -> tuple[Any, ...]:
    """The arrays in CPU memory; a ShapeDtypeStruct stays one. Arrays that are
    traced or span several processes are refused; `purpose` is for that
    error."""
    def one(x: Any) -> Any:
        if isinstance(x, jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct(x.shape, x.dtype)
        found = None
        if isinstance(x, jax.core.Tracer):
            found = "one that is traced"
        elif isinstance(x, jax.Array) and not x.is_fully_addressable:
            found = "one of several processes"
        if found is not None:
            refuse("jax", f"arrays must have values here to be {purpose}", found)
        return np.asarray(x)
    return tuple(map(one, arrays))
