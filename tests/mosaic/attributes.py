"""MLIR attributes as Python values."""

import re

import numpy as np
from jaxlib.mlir import ir

from errors import EvaluatorError
from kinds import INDEX, kind_of, scalar

DYNAMIC = -(1 << 63)


def has(op, name):
    return name in op.attributes


def integer(op, name, default=None):
    if not has(op, name):
        if default is None:
            raise EvaluatorError(f"attribute {name} is there, found none")
        return default
    return int(ir.IntegerAttr(op.attributes[name]).value)


def flag(op, name):
    return has(op, name) and bool(ir.BoolAttr(op.attributes[name]).value)


def integers(op, name, default=None):
    """A list of integers, from any of MLIR's three ways to write one."""
    if not has(op, name):
        if default is None:
            raise EvaluatorError(f"attribute {name} is there, found none")
        return default
    return integers_of(op.attributes[name])


def integers_of(attribute):
    if isinstance(attribute, ir.ArrayAttr):
        return [int(ir.IntegerAttr(a).value) for a in attribute]
    return [int(x) for x in attribute]


def word(op, name, default=None):
    """The word in an enum such as #tpu.pipeline_mode<synchronous>."""
    if not has(op, name):
        return default
    return word_of(op.attributes[name])


def word_of(attribute):
    match = re.fullmatch(r"#[\w.]+<(\w+)>", str(attribute))
    if not match:
        raise EvaluatorError(f"an enum attribute, found {attribute}")
    return match.group(1)


def operands(op, segments):
    """The operands, a list for each segment; the operation has the lengths."""
    values = list(op.operands)
    lengths = integers(op, "operandSegmentSizes")
    if len(lengths) != segments or sum(lengths) != len(values):
        raise EvaluatorError(f"{segments} operand segments, found {lengths}")
    out, at = [], 0
    for length in lengths:
        out.append(values[at : at + length])
        at += length
    return out


def constant(op):
    """The value of arith.constant or stablehlo.constant."""
    attribute = op.attributes["value"]
    kind = kind_of(op.results[0].type)
    if kind.shape is None:
        if isinstance(attribute, ir.FloatAttr):
            return scalar(attribute.value, kind)
        if isinstance(attribute, (ir.BoolAttr, ir.IntegerAttr)):
            if kind.element == "i1":
                return bool(attribute.value)
            return int(attribute.value)
        raise EvaluatorError(f"a scalar constant, found {attribute}")
    if not isinstance(attribute, ir.DenseElementsAttr):
        raise EvaluatorError(f"a dense constant, found {attribute}")
    if attribute.is_splat:
        splat = attribute.get_splat_value()
        value = getattr(splat, "value", splat)
        out = np.full(kind.shape, value, kind.dtype)
    elif kind.element == "i1":
        out = np.array([bool(x) for x in attribute]).reshape(kind.shape)
    elif kind.is_float and kind.element != "f32":
        out = np.array([float(x) for x in attribute], np.float32)
        out = out.astype(kind.dtype).reshape(kind.shape)
    else:
        out = np.array(attribute).reshape(kind.shape)
        if kind.element != INDEX and out.dtype.itemsize != kind.dtype.itemsize:
            raise EvaluatorError(f"a constant of {kind}, found {out.dtype}")
        out = out.astype(kind.dtype)
    out.setflags(write=False)
    return out
