"""Seeded mistakes in memory: indices, slots, stores."""

from jaxlib.mlir import ir

import attributes as at
from kinds import SEMAPHORES, kind_of
from mutation_sites import (
    INDEXED, VIEWS, accesses, constant_value, erased, indices, is_same, mutation,
    next_of, plus, set_operand, swap_operands,
)


@mutation
def swapped_index(module):
    """Two indices of one access are swapped."""
    for op in accesses(module):
        places = list(indices(op))
        pairs = [
            (i, j)
            for i in places
            for j in places
            if i < j and not is_same(op.operands[i], op.operands[j])
        ]
        for i, j in pairs:
            yield op, swap_operands(op, i, j)


@mutation
def index_off_by_one(module):
    """A computed index is one too large."""
    for op in accesses(module):
        for i in indices(op):
            value = op.operands[i]
            if constant_value(value) is None:
                yield op, set_operand(
                    op, i, lambda op=op, v=value: plus(v, 1, op)
                )


def sizes_of(op):
    """The size of an access in each dimension of its memory."""
    of = op.operands[0] if INDEXED[op.name] == 2 else op.results[0]
    shape = kind_of(of.type).shape or ()
    return (1,) * (len(indices(op)) - len(shape)) + tuple(shape)


@mutation
def wrong_slot(module):
    """Scratch with several slots is used at the next slot, cyclically."""
    scratch = set(module.scratch())
    for op in accesses(module):
        memory = op.operands[INDEXED[op.name] - 1]
        if memory not in scratch:
            continue
        dims = kind_of(memory.type).shape
        for i, size, dim in zip(indices(op), sizes_of(op), dims):
            value = op.operands[i]
            if size < dim and constant_value(value) is None:
                yield op, set_operand(
                    op,
                    i,
                    lambda op=op, v=value, n=size, d=dim: next_of(v, n, d, op),
                )


@mutation
def window_off_by_one(module):
    """A window's block is the one after the right one."""
    for function in module.others:
        for op in module.ops("func.return", function=function):
            for i, value in enumerate(op.operands):
                if constant_value(value) is None:
                    name = function.attributes["sym_name"]
                    yield (name, op), set_operand(
                        op, i, lambda op=op, v=value: plus(v, 1, op)
                    )


def is_written(value):
    """Whether memory is stored to, or is the target of a copy."""
    for use in value.uses:
        op = use.owner.operation
        if op.name in VIEWS:
            if is_written(op.results[0]):
                return True
        elif op.name == "tpu.enqueue_dma":
            source, sent, *_ = at.operands(op, 7)
            if use.operand_number >= len(source) + len(sent):
                return True
        elif op.name in INDEXED and use.operand_number == 1:
            if INDEXED[op.name] == 2:
                return True
    return False


@mutation
def exchanged_operands(module):
    """Two inputs of one type, for example K and V, are swapped."""
    block = module.main.regions[0].blocks[0]
    inputs = [
        argument
        for argument in block.arguments
        if isinstance(argument.type, ir.MemRefType)
        and kind_of(argument.type).element not in SEMAPHORES
        and not is_written(argument)
        and any(module.is_live(use.owner.operation) for use in argument.uses)
    ]

    def change(a, b):
        uses = [
            [(use.owner.operation, use.operand_number) for use in x.uses]
            for x in (a, b)
        ]
        for places, value in zip(uses, (b, a)):
            for op, i in places:
                op.operands[i] = value

    for i, a in enumerate(inputs):
        for b in inputs[i + 1 :]:
            if a.type == b.type:
                place = f"arguments {a.arg_number} and {b.arg_number}"
                yield place, lambda a=a, b=b: change(a, b)


@mutation
def dropped_store(module):
    """A result is not stored."""
    yield from erased(
        "tpu.vector_store", "vector.store", "tpu.strided_store", "memref.store"
    )(module)
