"""MLIR types as plain Python: element type, shape, memory space."""

import dataclasses

import ml_dtypes
import numpy as np
from jaxlib.mlir import ir

from errors import EvaluatorError

BF16 = np.dtype(ml_dtypes.bfloat16)
INDEX = "index"
SEMAPHORES = ("!tpu.dma_semaphore", "!tpu.semaphore")
DTYPES = {
    "f32": np.dtype(np.float32),
    "bf16": BF16,
    "f16": np.dtype(np.float16),
    "i32": np.dtype(np.int32),
    "i16": np.dtype(np.int16),
    "i8": np.dtype(np.int8),
    "i1": np.dtype(np.bool_),
    "index": np.dtype(np.int64),
}


@dataclasses.dataclass(frozen=True)
class Kind:
    """A scalar (shape None), a vector, or a memref (space not None)."""

    element: str
    shape: tuple | None = None
    space: str | None = None

    @property
    def dtype(self):
        if self.element not in DTYPES:
            raise EvaluatorError(f"element type unknown, found {self.element}")
        return DTYPES[self.element]

    @property
    def is_float(self):
        return self.element in ("f32", "bf16", "f16")

    @property
    def bits(self):
        if self.element == "i1":
            return 1
        return self.dtype.itemsize * 8


def kind_of(value_type):
    """The Kind of an MLIR type; a dynamic dimension is -1."""
    if isinstance(value_type, ir.MemRefType):
        space = str(value_type.memory_space)
        if not space.startswith("#tpu.memory_space<"):
            raise EvaluatorError(f"memory space unknown, found {value_type}")
        dims = [
            -1 if value_type.is_dynamic_dim(i) else value_type.get_dim_size(i)
            for i in range(value_type.rank)
        ]
        return Kind(
            str(value_type.element_type),
            tuple(dims),
            space.removeprefix("#tpu.memory_space<").removesuffix(">"),
        )
    if isinstance(value_type, (ir.VectorType, ir.RankedTensorType)):
        return Kind(str(value_type.element_type), tuple(value_type.shape))
    return Kind(str(value_type))


def wrap(value, bits):
    """A Python int as a signed integer of so many bits."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def scalar(value, kind):
    """A Python or NumPy value as the scalar the evaluator works with."""
    if kind.element == "i1":
        return bool(value)
    if kind.is_float:
        return np.asarray(value).astype(kind.dtype)[()]
    return wrap(int(value), kind.bits)
