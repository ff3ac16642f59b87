"""The meaning of each operation on values, in NumPy.

VALUE_OPS maps an operation's name to a function of the operation, which returns
a function of its operands' values. Scalars are Python ints and bools (wrapped
to their width) or NumPy floats. Vectors are arrays and are never changed in
place. Floats are rounded to their type after every operation.
"""

import math
import re

import numpy as np

import attributes as at
import hardware
from errors import EvaluatorError
from kinds import BF16, kind_of, scalar

VALUE_OPS = {}


def value_op(*names):
    def register(function):
        for name in names:
            VALUE_OPS[name] = function
        return function

    return register


def kind_in(op, index=0):
    return kind_of(op.operands[index].type)


def kind_out(op):
    return kind_of(op.results[0].type)


def finish(op, function):
    """Rounds and shapes the result of `function` as the operation's result."""
    kind = kind_out(op)
    if kind.shape is None:
        return lambda *values: scalar(function(*values), kind)
    dtype, shape = kind.dtype, kind.shape

    def run(*values):
        out = np.asarray(function(*values))
        if out.shape != shape:
            raise EvaluatorError(
                f"a result of {shape}, found {out.shape} for {op.name}"
            )
        return out if out.dtype == dtype else out.astype(dtype)

    return run


# Constants and integers.


@value_op("arith.constant")
def _(op):
    value = at.constant(op)
    return lambda: value


def _int_op(name, function):
    @value_op(name)
    def _(op):
        return finish(op, function)


_int_op("arith.andi", lambda a, b: a & b)
_int_op("arith.ori", lambda a, b: a | b)
_int_op("arith.xori", lambda a, b: a ^ b)
_int_op("arith.maxsi", np.maximum)
_int_op("arith.minsi", np.minimum)
_int_op("math.absi", abs)


@value_op("arith.addi", "arith.subi", "arith.muli")
def _(op):
    """On i1 these count modulo 2; NumPy's + on booleans would be or."""
    name = op.name
    if kind_out(op).element == "i1":
        if name == "arith.muli":
            return finish(op, lambda a, b: a & b)
        return finish(op, lambda a, b: a ^ b)
    functions = {
        "arith.addi": lambda a, b: a + b,
        "arith.subi": lambda a, b: a - b,
        "arith.muli": lambda a, b: a * b,
    }
    return finish(op, functions[name])


def unsigned(kind):
    """A function that reads the same bits as unsigned."""
    if kind.element == "i1":
        return lambda a: a
    if kind.shape is None:
        mask = (1 << kind.bits) - 1
        return lambda a: a & mask
    dtype = np.dtype(f"u{kind.dtype.itemsize}")
    return lambda a: a.view(dtype)


def _unsigned_op(name, function):
    @value_op(name)
    def _(op):
        cast = unsigned(kind_in(op))
        return finish(op, lambda a, b: function(cast(a), cast(b)))


_unsigned_op("arith.maxui", np.maximum)
_unsigned_op("arith.minui", np.minimum)


@value_op("math.ctpop")
def _(op):
    # For signed numbers NumPy would count the bits of the magnitude.
    cast = unsigned(kind_in(op))
    return finish(op, lambda a: np.bitwise_count(cast(a)))


def checked_divisor(b):
    if not np.all(b):
        raise EvaluatorError("a divisor is not 0, found 0")
    return b


def truncated_remainder(a, b):
    checked_divisor(b)
    if isinstance(a, int):
        return a - b * truncated_quotient(a, b)
    return np.fmod(a, b)


def truncated_quotient(a, b):
    checked_divisor(b)
    if isinstance(a, int):
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    return (a - np.fmod(a, b)) // b


def _division(name, function, is_unsigned=False):
    @value_op(name)
    def _(op):
        cast = unsigned(kind_in(op)) if is_unsigned else lambda a: a
        return finish(op, lambda a, b: function(cast(a), cast(b)))


def _floor(a, b):
    return a // checked_divisor(b)


def _ceil(a, b):
    return -(-a // checked_divisor(b))


_division("arith.divsi", truncated_quotient)
_division("arith.remsi", truncated_remainder)
_division("arith.divui", _floor, is_unsigned=True)
_division("arith.remui", lambda a, b: a % checked_divisor(b), is_unsigned=True)
_division("arith.floordivsi", _floor)
_division("arith.ceildivsi", _ceil)


def _shift(name, function, is_unsigned):
    @value_op(name)
    def _(op):
        kind = kind_in(op)
        bits = kind.bits
        cast = unsigned(kind) if is_unsigned else lambda a: a
        amount_cast = unsigned(kind)

        def run(a, b):
            amount = amount_cast(b)
            if np.any(np.asarray(amount) >= bits):
                raise EvaluatorError(
                    f"a shift is less than {bits}, found {np.max(amount)}"
                )
            return function(cast(a), amount if is_unsigned else b)

        return finish(op, run)


_shift("arith.shli", lambda a, b: a << b, False)
_shift("arith.shrsi", lambda a, b: a >> b, False)
_shift("arith.shrui", lambda a, b: a >> b, True)

SIGNED = {
    0: np.equal,
    1: np.not_equal,
    2: np.less,
    3: np.less_equal,
    4: np.greater,
    5: np.greater_equal,
}
UNSIGNED = {6: 2, 7: 3, 8: 4, 9: 5}


@value_op("arith.cmpi")
def _(op):
    predicate = at.integer(op, "predicate")
    kind = kind_in(op)
    cast = lambda a: a
    if predicate in UNSIGNED:
        cast = unsigned(kind)
    elif kind.element == "i1":
        # As a signed number, true is -1.
        cast = lambda a: -np.asarray(a, np.int8)
    compare = SIGNED[UNSIGNED.get(predicate, predicate)]
    return finish(op, lambda a, b: compare(cast(a), cast(b)))


@value_op("arith.select")
def _(op):
    kind = kind_out(op)
    if kind.shape is None:
        return lambda c, a, b: a if c else b
    if kind_in(op).shape is None:
        return lambda c, a, b: a if c else b
    return lambda c, a, b: np.where(c, a, b)


@value_op("arith.extsi", "arith.trunci", "arith.index_cast")
def _(op):
    if kind_in(op).element == "i1" and op.name != "arith.trunci":
        return finish(op, lambda a: -np.asarray(a, np.int64))
    if kind_out(op).element == "i1":
        return finish(op, lambda a: np.not_equal(np.bitwise_and(a, 1), 0))
    return finish(op, lambda a: a)


@value_op("arith.extui", "arith.index_castui")
def _(op):
    cast = unsigned(kind_in(op))
    return finish(op, lambda a: cast(a))


# Floats.


def to_f32(a):
    return np.asarray(a).astype(np.float32)


def _float_op(name, function, is_elementary=False):
    """Types below f32 are computed in f32 and rounded once."""

    @value_op(name)
    def _(op):
        def run(*values):
            return hardware.result(function(*values), is_elementary)

        if kind_in(op).dtype == np.float32:
            return finish(op, run)
        return finish(op, lambda *v: run(*(to_f32(a) for a in v)))


def _elementary_op(name, function):
    _float_op(name, function, is_elementary=True)


_float_op("arith.addf", np.add)
_float_op("arith.subf", np.subtract)
_float_op("arith.mulf", np.multiply)
_float_op("arith.remf", np.fmod)
_float_op("arith.negf", np.negative)
_float_op("arith.maximumf", np.maximum)
_float_op("arith.minimumf", np.minimum)
_float_op("arith.maxnumf", np.fmax)
_float_op("arith.minnumf", np.fmin)
_float_op("math.absf", np.abs)
_float_op("math.floor", np.floor)
_float_op("math.ceil", np.ceil)
_float_op("math.roundeven", np.rint)
_float_op("math.copysign", np.copysign)
_elementary_op("arith.divf", np.divide)
_elementary_op("math.exp", np.exp)
_elementary_op("math.exp2", np.exp2)
_elementary_op("math.expm1", np.expm1)
_elementary_op("math.log", np.log)
_elementary_op("math.log2", np.log2)
_elementary_op("math.log1p", np.log1p)
_elementary_op("math.tanh", np.tanh)
_elementary_op("math.sqrt", np.sqrt)
_elementary_op("math.rsqrt", lambda a: np.float32(1) / np.sqrt(a))
_elementary_op("math.sin", np.sin)
_elementary_op("math.cos", np.cos)
_elementary_op("math.powf", np.power)


@value_op("math.fma")
def _(op):
    def run(a, b, c):
        # The product of two f32 is exact in f64.
        product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
        return hardware.result(product + c)

    return finish(op, run)


@value_op("tpu.reciprocal")
def _(op):
    def reciprocal(a):
        return hardware.result(np.float32(1) / to_f32(a), is_elementary=True)

    if not at.flag(op, "approx"):
        return finish(op, reciprocal)

    def run(a):
        # The hardware's accuracy is not documented, so only the 8 bits of bf16
        # are kept.
        return reciprocal(a).astype(BF16).astype(np.float32)

    return finish(op, run)


ORDERED = {
    1: np.equal,
    2: np.greater,
    3: np.greater_equal,
    4: np.less,
    5: np.less_equal,
    6: np.not_equal,
}


@value_op("arith.cmpf")
def _(op):
    predicate = at.integer(op, "predicate")

    def run(a, b):
        a, b = to_f32(a), to_f32(b)
        nan = np.isnan(a) | np.isnan(b)
        if predicate == 0:
            return np.zeros(a.shape, np.bool_)
        if predicate == 15:
            return np.ones(a.shape, np.bool_)
        if predicate == 7:
            return ~nan
        if predicate == 14:
            return nan
        if predicate <= 6:
            return ORDERED[predicate](a, b) & ~nan
        return ORDERED[predicate - 7](a, b) | nan

    return finish(op, run)


@value_op("arith.extf", "tpu.extf")
def _(op):
    return finish(op, lambda a: a)


@value_op("arith.truncf")
def _(op):
    if at.has(op, "roundingmode"):
        raise EvaluatorError(f"default rounding, found {op}")
    return finish(op, lambda a: a)


@value_op("tpu.truncf")
def _(op):
    if at.word(op, "rounding_mode") != "to_nearest_even":
        raise EvaluatorError(f"rounding to nearest even, found {op}")
    return finish(op, lambda a: a)


@value_op("arith.sitofp", "tpu.sitofp")
def _(op):
    kind = kind_in(op)
    if kind.element == "i1":
        return finish(op, lambda a: -np.asarray(a, np.float32))
    mode = at.word(op, "rounding_mode", "to_nearest_even")
    if mode != "to_nearest_even":
        raise EvaluatorError(f"rounding to nearest even, found {mode}")
    return finish(op, lambda a: np.asarray(a).astype(np.float32))


@value_op("arith.uitofp", "tpu.uitofp")
def _(op):
    cast = unsigned(kind_in(op))
    return finish(op, lambda a: np.asarray(cast(a)).astype(np.float32))


@value_op("arith.fptosi", "tpu.fptosi")
def _(op):
    bits = kind_out(op).bits
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    rounding = np.trunc
    if op.name == "tpu.fptosi":
        if at.word(op, "rounding_mode") == "to_nearest_even":
            rounding = np.rint

    def run(a):
        # The cast saturates, and NaN becomes 0.
        whole = rounding(np.asarray(a).astype(np.float64))
        return np.nan_to_num(np.clip(whole, low, high)).astype(np.int64)

    return finish(op, run)


@value_op("arith.bitcast")
def _(op):
    kind, dtype = kind_in(op), kind_out(op).dtype
    if kind.shape is None:
        return finish(op, lambda a: np.array(a, kind.dtype).view(dtype)[()])
    return finish(op, lambda a: np.ascontiguousarray(a).view(dtype))


@value_op("tpu.bitcast")
def _(op):
    """Between widths, the narrow elements of a wide one are in successive
    rows."""
    source, target = kind_in(op), kind_out(op)
    if source.bits == target.bits:
        return finish(op, lambda a: np.ascontiguousarray(a).view(target.dtype))
    if len(source.shape) < 2:
        raise EvaluatorError(f"a bitcast of two dimensions, found {source}")
    if source.bits > target.bits:
        ratio = source.bits // target.bits

        def narrow(a):
            parts = np.ascontiguousarray(a).view(target.dtype)
            parts = parts.reshape(*a.shape, ratio)
            return np.moveaxis(parts, -1, -2).reshape(target.shape)

        return finish(op, narrow)
    ratio = target.bits // source.bits

    def widen(a):
        parts = a.reshape(*a.shape[:-2], a.shape[-2] // ratio, ratio, -1)
        parts = np.ascontiguousarray(np.moveaxis(parts, -2, -1))
        return parts.view(target.dtype).reshape(target.shape)

    return finish(op, widen)


@value_op("tpu.pack_elementwise")
def _(op):
    target = kind_of(_type_attribute(op, "target_type"))
    bits = target.bits

    def run(*sources):
        out = np.zeros(sources[0].shape, np.uint32)
        unsigned_dtype = np.dtype(f"u{bits // 8}")
        for i, source in enumerate(sources):
            half = source.astype(target.dtype).view(unsigned_dtype)
            out |= half.astype(np.uint32) << np.uint32(i * bits)
        return out.view(np.int32)

    return finish(op, run)


@value_op("tpu.unpack_elementwise")
def _(op):
    source = kind_of(_type_attribute(op, "source_type"))
    bits, index = source.bits, at.integer(op, "index")

    def run(a):
        part = a.view(np.uint32) >> np.uint32(index * bits)
        part = part.astype(np.dtype(f"u{bits // 8}"))
        return part.view(source.dtype)

    return finish(op, run)


def _type_attribute(op, name):
    return op.attributes[name].value


# Shapes.


@value_op("vector.broadcast", "vector.splat")
def _(op):
    kind = kind_out(op)
    if kind_in(op).shape is None:
        return lambda a: np.full(kind.shape, a, kind.dtype)
    return lambda a: np.broadcast_to(a, kind.shape)


@value_op("vector.shape_cast", "tpu.reshape")
def _(op):
    shape = kind_out(op).shape
    return finish(op, lambda a: a.reshape(shape))


@value_op("tpu.relayout", "tpu.assume_layout")
def _(op):
    return finish(op, lambda a: a)


@value_op("tpu.mask_cast")
def _(op):
    if kind_in(op) != kind_out(op):
        raise EvaluatorError(f"a mask cast to the same shape, found {op}")
    return lambda a: a


@value_op("vector.transpose", "tpu.transpose")
def _(op):
    permutation = at.integers(op, "permutation")
    return finish(op, lambda a: np.transpose(a, permutation))


@value_op("tpu.concatenate")
def _(op):
    axis = at.integer(op, "dimension")
    return finish(op, lambda *parts: np.concatenate(parts, axis))


@value_op("tpu.repeat")
def _(op):
    axis, times = at.integer(op, "dimension"), at.integer(op, "times")
    return finish(op, lambda a: np.concatenate([a] * times, axis))


@value_op("vector.extract")
def _(op):
    static = at.integers(op, "static_position")
    kind = kind_out(op)

    def run(a, *dynamic):
        rest = list(dynamic)
        position = tuple(
            rest.pop(0) if p == at.DYNAMIC else p for p in static
        )
        for p, dim in zip(position, a.shape):
            if not 0 <= p < dim:
                raise EvaluatorError(
                    f"a position inside {a.shape}, found {position}"
                )
        return a[position]

    if kind.shape is None:
        return lambda *v: scalar(run(*v), kind)
    return finish(op, run)


@value_op("vector.extract_strided_slice")
def _(op):
    offsets, sizes, strides = (
        at.integers(op, n) for n in ("offsets", "sizes", "strides")
    )
    box = tuple(
        slice(o, o + (n - 1) * s + 1, s)
        for o, n, s in zip(offsets, sizes, strides)
    )
    return finish(op, lambda a: a[box])


@value_op("vector.insert_strided_slice")
def _(op):
    offsets, strides = at.integers(op, "offsets"), at.integers(op, "strides")
    if any(s != 1 for s in strides):
        raise EvaluatorError(f"strides of 1, found {strides}")
    small = kind_in(op).shape
    padded = (1,) * (len(offsets) - len(small)) + small
    box = tuple(slice(o, o + n) for o, n in zip(offsets, padded))

    def run(a, into):
        out = np.array(into)
        out[box] = a.reshape(padded)
        return out

    return finish(op, run)


@value_op("tpu.iota")
def _(op):
    kind = kind_out(op)
    dimensions = at.integers(op, "dimensions")
    total = np.zeros(kind.shape, np.int64)
    for d in dimensions:
        shape = [1] * len(kind.shape)
        shape[d] = kind.shape[d]
        total = total * kind.shape[d] + np.arange(kind.shape[d]).reshape(shape)
    value = total.astype(kind.dtype)
    value.setflags(write=False)
    return lambda: value


@value_op("tpu.create_mask")
def _(op):
    shape = kind_out(op).shape
    rank = len(shape)

    def run(*ends):
        out = np.ones(shape, np.bool_)
        grids = np.indices(shape)
        for d in range(rank):
            out &= (grids[d] >= ends[d]) & (grids[d] < ends[rank + d])
        return out

    return run


@value_op("tpu.dynamic_rotate")
def _(op):
    axis = at.integer(op, "dimension")
    stride = at.integer(op, "stride", 0)
    along = at.integer(op, "stride_dimension", 0)

    def run(a, amount):
        if amount < 0:
            raise EvaluatorError(f"a rotation is not negative, found {amount}")
        if not stride:
            return np.roll(a, amount, axis)
        parts = [
            np.roll(a.take([i], along), amount + i * stride, axis)
            for i in range(a.shape[along])
        ]
        return np.concatenate(parts, along)

    return finish(op, run)


@value_op("tpu.gather")
def _(op):
    axis = at.integer(op, "dimension")
    picks = np.asarray(at.integers(op, "indices"))
    return finish(op, lambda a: np.take(a, picks, axis))


@value_op("tpu.dynamic_gather")
def _(op):
    dimensions = at.integers(op, "dimensions")
    if len(dimensions) != 1:
        raise EvaluatorError(f"a gather along one axis, found {dimensions}")
    axis = dimensions[0]

    def run(a, picks):
        if picks.min() < 0 or picks.max() >= a.shape[axis]:
            raise EvaluatorError(
                f"picks inside {a.shape[axis]}, found "
                f"{picks.min()} to {picks.max()}"
            )
        return np.take_along_axis(a, picks, axis)

    return finish(op, run)


@value_op("tpu.assume_multiple")
def _(op):
    multiple = at.integer(op, "multiple")

    def run(a):
        if a % multiple:
            raise EvaluatorError(f"a multiple of {multiple}, found {a}")
        return a

    return run


# Reductions and products.

REDUCTIONS = {
    "add": np.add,
    "mul": np.multiply,
    "maxsi": np.maximum,
    "minsi": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "maximumf": np.maximum,
    "minimumf": np.minimum,
    "maxnumf": np.fmax,
    "minnumf": np.fmin,
}


@value_op("vector.multi_reduction")
def _(op):
    word = at.word(op, "kind")
    if word not in REDUCTIONS:
        raise EvaluatorError(f"a known reduction, found {word}")
    ufunc = REDUCTIONS[word]
    axes = tuple(at.integers(op, "reduction_dims"))
    kind = kind_in(op)
    wide = np.float32 if kind.is_float else kind.dtype

    def run(a, start):
        # The start is a scalar if every axis is reduced.
        out = ufunc.reduce(a.astype(wide), axis=axes, dtype=wide)
        out = ufunc(out, np.asarray(start).astype(wide))
        return hardware.result(out) if kind.is_float else out

    return finish(op, run)


@value_op("tpu.all_reduce")
def _(op):
    words = {"sum": np.add, "max": np.maximum, "min": np.minimum}
    word, axis = at.word(op, "kind"), at.integer(op, "dim")
    if word not in words:
        raise EvaluatorError(f"a known reduction, found {word}")
    kind = kind_in(op)
    if kind_out(op) != kind:
        raise EvaluatorError(f"a reduction to its own shape, found {op}")
    wide = np.float32 if kind.is_float else kind.dtype

    def run(a):
        out = words[word].reduce(
            a.astype(wide), axis=axis, dtype=wide, keepdims=True
        )
        return np.broadcast_to(out, a.shape)

    return finish(op, run)


@value_op("tpu.reduce_index")
def _(op):
    words = {"arg_max": np.argmax, "arg_min": np.argmin}
    word, axis = at.word(op, "kind"), at.integer(op, "axis")
    if word not in words:
        raise EvaluatorError(f"a known reduction, found {word}")
    return finish(op, lambda a: words[word](a, axis=axis))


def dot_dimensions(op, left_rank, right_rank):
    """The lists of #tpu.dot_dimension_numbers, or those of a plain product."""
    if not at.has(op, "dimension_numbers"):
        left = 0 if at.flag(op, "transpose_lhs") else 1
        right = 1 if at.flag(op, "transpose_rhs") else 0
        if (left_rank, right_rank) != (2, 2):
            raise EvaluatorError(
                f"matrices where no dimensions are given, found ranks "
                f"{left_rank} and {right_rank}"
            )
        order = [0, 1 - left, 1, 1 - right]
        return [left], [right], [1 - left], [1 - right], order, [], []
    if at.flag(op, "transpose_lhs") or at.flag(op, "transpose_rhs"):
        raise EvaluatorError("transposes or dimension numbers, found both")
    text = str(op.attributes["dimension_numbers"])
    lists = re.findall(r"\[([^\]]*)\]", text)
    lists = [[int(x) for x in re.findall(r"-?\d+", one)] for one in lists]
    while len(lists) < 7:
        lists.append([])
    if len(lists) != 7:
        raise EvaluatorError(f"dot dimension numbers, found {text}")
    return lists


@value_op("tpu.matmul")
def _(op):
    left, right, acc = (kind_in(op, i) for i in range(3))
    (l_sum, r_sum, l_free, r_free, order, l_batch, r_batch) = dot_dimensions(
        op, len(left.shape), len(right.shape)
    )
    precision = at.word(op, "precision", "default")
    if left.is_float != right.is_float or acc.element not in ("f32", "i32"):
        raise EvaluatorError(f"a product into f32 or i32, found {op}")
    wide = np.dtype(np.float32 if left.is_float else np.int32)
    if acc.dtype != wide:
        raise EvaluatorError(f"a product into {wide}, found {acc}")
    # One pass of the matrix unit multiplies bf16, so f32 operands lose bits
    # without full precision.
    rounds = [k.element == "f32" and precision != "fp32" for k in (left, right)]
    l_order = l_batch + l_free + l_sum
    r_order = r_batch + r_sum + r_free
    batch = math.prod(left.shape[d] for d in l_batch)
    summed = math.prod(left.shape[d] for d in l_sum)
    # The place of each dimension of the output in batch, left, right.
    stands = [(0, d) for d in l_batch + l_free] + [(1, d) for d in r_free]
    pairs = list(zip(order[0::2], order[1::2]))
    pairs = [
        (0, l_batch[r_batch.index(d)]) if s == 1 and d in r_batch else (s, d)
        for s, d in pairs
    ]
    if sorted(pairs) != sorted(stands):
        raise EvaluatorError(f"an order of all dimensions, found {order}")
    permutation = [stands.index(pair) for pair in pairs]
    shape = [left.shape[d] for d in l_batch + l_free]
    shape += [right.shape[d] for d in r_free]

    def prepare(a, dims, is_rounded):
        if is_rounded:
            a = a.astype(BF16)
        return np.transpose(a.astype(wide), dims)

    def run(a, b, c):
        a = prepare(a, l_order, rounds[0]).reshape(batch, -1, summed)
        b = prepare(b, r_order, rounds[1]).reshape(batch, summed, -1)
        out = np.matmul(a, b).reshape(shape)
        out = np.transpose(out, permutation) + c
        return hardware.result(out) if left.is_float else out

    return finish(op, run)
