"""Tools for mutations: the registry, a module's operations, the surroundings of
an operation, and changes.

A mutation is a generator over a Module of (place, change): the operation, or
(text, operation), and a function that changes the module.
"""

import numpy as np
from jaxlib.mlir import ir

import attributes as at
from kinds import kind_of
from translate import dead_operations, walk
from value_ops import SIGNED

MUTATIONS = {}


def mutation(function):
    """Registers a generator of (place, change) over a Module."""
    MUTATIONS[function.__name__] = function
    return function


class Module:
    """A module, with the queries of mutations."""

    def __init__(self, module):
        self.functions = [op.operation for op in module.body.operations]
        (self.main,) = (
            f for f in self.functions if at.has(f, "scratch_operands")
        )
        self.others = [f for f in self.functions if f != self.main]
        self.dead = {}  # by function

    def ops(self, *names, function=None):
        """Live operations with one of these names, in order."""
        function = function or self.main
        return [
            op
            for op in walk(function)
            if op.name in names and self.is_live(op, function)
        ]

    def scratch(self):
        """The arguments that last as long as the kernel, semaphores too."""
        arguments = list(self.main.regions[0].blocks[0].arguments)
        count = at.integer(self.main, "scratch_operands")
        return arguments[len(arguments) - count :]

    def is_live(self, op, function=None):
        function = function or self.main
        if function not in self.dead:
            self.dead[function] = dead_operations(function)
        return op not in self.dead[function]


# Looking around an operation.

SHAPING = {
    "vector.broadcast",
    "vector.shape_cast",
    "vector.extract_strided_slice",
    "vector.extract",
    "vector.transpose",
    "tpu.transpose",
    "tpu.reshape",
    "tpu.repeat",
    "tpu.concatenate",
    "arith.extf",
    "arith.truncf",
    "arith.index_cast",
    "arith.extui",
    "tpu.assume_multiple",
    "tpu.memref_slice",
    "tpu.memref_squeeze",
    "tpu.memref_reshape",
}


def maker(value):
    """The operation that makes a value; None for a block's argument."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def origin(value, shaping=SHAPING):
    """The same, looking through operations that only reshape."""
    op = maker(value)
    while op is not None and op.name in shaping:
        op = maker(op.operands[0])
    return op


FOLDED = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.andi": lambda a, b: int(a) & int(b),
    "arith.ori": lambda a, b: int(a) | int(b),
    "arith.shrui": lambda a, b: (int(a) & 0xFFFFFFFF) >> int(b),
}


def constant_value(value):
    """The value of a constant with a single value, folded or not; or None."""
    op = origin(value)
    if op is not None and op.name in FOLDED:
        parts = [constant_value(operand) for operand in op.operands]
        return None if None in parts else FOLDED[op.name](*parts)
    if op is not None and op.name == "arith.cmpi":
        predicate = at.integer(op, "predicate")
        parts = [constant_value(operand) for operand in op.operands]
        if None in parts or predicate not in SIGNED:
            return None
        return float(SIGNED[predicate](*parts))
    if op is None or op.name != "arith.constant":
        return None
    array = np.asarray(at.constant(op)).astype(np.float64)
    if not array.size or (array != array.reshape(-1)[0]).any():
        return None
    return float(array.reshape(-1)[0])


def is_same(a, b):
    """Whether a and b are known to be equal: one value, or equal constants."""
    if a == b:
        return True
    a, b = constant_value(a), constant_value(b)
    return a is not None and a == b


def new_constant(value, like, before):
    """A constant of `like`'s type with a single value, inserted before
    `before`."""
    kind = kind_of(like.type)
    element = like.type if kind.shape is None else like.type.element_type
    if kind.is_float:
        attribute = ir.FloatAttr.get(element, value)
    elif kind.element == "i1":
        attribute = ir.BoolAttr.get(bool(value))
    else:
        attribute = ir.IntegerAttr.get(element, int(value))
    if kind.shape is not None:
        attribute = ir.DenseElementsAttr.get_splat(like.type, attribute)
    return ir.Operation.create(
        "arith.constant",
        results=[like.type],
        attributes={"value": attribute},
        ip=ir.InsertionPoint(before),
    ).results[0]


def binary(name, a, b, before):
    return ir.Operation.create(
        name,
        results=[a.type],
        operands=[a, b],
        ip=ir.InsertionPoint(before),
    ).results[0]


def plus(value, amount, before):
    return binary("arith.addi", value, new_constant(amount, value, before), before)


def next_of(value, step, count, before):
    """The next slot in a ring of `count` slots."""
    after = plus(value, step, before)
    return binary("arith.remsi", after, new_constant(count, value, before), before)


# Looking at memory.

# Where an operation's indices start.
INDEXED = {
    "vector.load": 1,
    "tpu.vector_load": 1,
    "tpu.load": 1,
    "tpu.strided_load": 1,
    "memref.load": 1,
    "vector.store": 2,
    "tpu.vector_store": 2,
    "tpu.store": 2,
    "tpu.strided_store": 2,
    "memref.store": 2,
    "tpu.memref_slice": 1,
}
VIEWS = {
    "tpu.memref_slice",
    "tpu.memref_squeeze",
    "tpu.memref_reshape",
    "tpu.memref_bitcast",
}


def indices(op):
    """Positions of the operands that are indices."""
    first = INDEXED[op.name]
    memory = op.operands[first - 1]
    return range(first, first + len(kind_of(memory.type).shape))


def only_waited_with(op):
    """Whether memory is only used by waits, for a number of bytes."""
    uses = [use for result in op.results for use in result.uses]
    return bool(uses) and all(
        only_waited_with(use.owner.operation)
        if use.owner.operation.name in VIEWS
        else use.owner.operation.name == "tpu.wait_dma2"
        and use.operand_number > 0
        for use in uses
    )


def accesses(module):
    return [op for op in module.ops(*INDEXED) if not only_waited_with(op)]


# Changes: each returns a function that makes the change later.


def set_operand(op, index, make):
    def change():
        op.operands[index] = make()

    return change


def replace_result(op, make):
    def change():
        op.results[0].replace_all_uses_with(make())

    return change


def set_attribute(op, name, make):
    def change():
        op.attributes[name] = make()

    return change


def swap_operands(op, i, j):
    def change():
        a, b = op.operands[i], op.operands[j]
        op.operands[i] = b
        op.operands[j] = a

    return change


def erased(*names):
    def find(module):
        for op in module.ops(*names):
            yield op, op.erase

    return find
