"""What pytrees of JAX are pickled as, and what their JSON says of arrays."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ._refuse import refuse


def kinds_of(names: Sequence[str], arrays: Sequence[Any]) -> dict[str, Any]:
    """Of each array dtype and shape, which it has inside a program too."""
    return {name: {"dtype": str(x.dtype), "shape": list(x.shape)}
            for name, x in zip(names, arrays)}


def values_of(arrays: Sequence[Any], purpose: str) -> tuple[Any, ...]:
    """In memory of the CPU; of an array that is a shape alone, its shape."""
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
