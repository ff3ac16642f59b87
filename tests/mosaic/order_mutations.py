"""Seeded mistakes in the order of operations, in memory and in arithmetic."""

from jaxlib.mlir import ir

import attributes as at
from copy_mutations import views_of
from kinds import kind_of
from memory_mutations import sizes_of
from mutation_sites import INDEXED, constant_value, indices, maker, mutation
from translate import walk


def same_value(a, b):
    """Whether a and b are computed in the same way from the same values. (Lists
    are never written, so equal loads give equal values.)"""
    if a == b:
        return True
    a, b = maker(a), maker(b)
    if a is None or b is None or a.name != b.name or a.regions:
        return False
    if a.name == "arith.constant":
        return constant_value(a.results[0]) == constant_value(b.results[0])
    return len(a.operands) == len(b.operands) and all(
        same_value(x, y) for x, y in zip(a.operands, b.operands)
    )


def start_of(value):
    """An index as (computed value or None, constant that is added to it)."""
    number = constant_value(value)
    if number is not None:
        return None, int(number)
    op = maker(value)
    if op is not None and op.name == "arith.index_cast":
        return start_of(op.operands[0])
    if op is not None and op.name == "arith.addi":
        for base, term in (op.operands, reversed(list(op.operands))):
            if constant_value(term) is not None:
                base, more = start_of(base)
                return base, more + int(constant_value(term))
    return value, 0


class Part:
    """A part of memory, and whether it is written."""

    def __init__(self, value, writes):
        self.memory, views = views_of(value)
        self.writes, self.box = writes, None
        # A view that is not a single slice of its argument counts as all of it.
        slices = [op for op in views if op.name == "tpu.memref_slice"]
        if len(slices) == 1 and slices[0].operands[0] == self.memory:
            self.take(slices[0])

    def take(self, op):
        starts = [start_of(op.operands[i]) for i in indices(op)]
        self.box = list(zip(starts, sizes_of(op)))

    def meets(self, other):
        """Whether the two surely share memory, and one of them writes it."""
        if self.memory != other.memory or not (self.writes or other.writes):
            return False
        if self.box is None or other.box is None:
            return True
        for (start, size), (other_start, other_size) in zip(self.box, other.box):
            (base, low), (other_base, other_low) = start, other_start
            if base is None or other_base is None:
                if base is not other_base:
                    return False
            elif not same_value(base, other_base):
                return False
            if low + size <= other_low or other_low + other_size <= low:
                return False
        return True


def parts_of(op):
    """The memory that an operation, or one inside it, reads or writes."""
    out = []
    for inner in walk(op):
        if inner.name in INDEXED and inner.name != "tpu.memref_slice":
            memory = inner.operands[INDEXED[inner.name] - 1]
            part = Part(memory, INDEXED[inner.name] == 2)
            if maker(memory) is None:
                part.take(inner)
            out.append(part)
        elif inner.name == "tpu.enqueue_dma":
            (source,), sent, (target,), *_ = at.operands(inner, 7)
            out += [Part(source, False), Part(target, True)]
        elif inner.name == "tpu.wait_dma2":
            out.append(Part(inner.operands[2], True))
    return out


def blocks_of(op):
    for region in op.regions:
        for block in region.blocks:
            yield block
            for inner in block.operations:
                yield from blocks_of(inner.operation)


def needs(op, others):
    """Whether `op`, or an operation inside it, uses a result of `others`."""
    made = {result for other in others for result in other.results}
    return any(value in made for inner in walk(op) for value in inner.operands)


@mutation
def swapped_accesses(module):
    """An access is moved before the previous access to the same memory."""
    for block in blocks_of(module.main):
        ops = [op.operation for op in block.operations]
        parts = [parts_of(op) if module.is_live(op) else [] for op in ops]
        for j, op in enumerate(ops):
            i = next((
                i for i in range(j - 1, -1, -1)
                if any(a.meets(b) for a in parts[i] for b in parts[j])
            ), None)
            if i is None:
                continue
            if not needs(op, ops[i:j]):
                yield op, lambda op=op, other=ops[i]: op.move_before(other)
            elif not any(needs(x, [ops[i]]) for x in ops[i + 1 : j + 1]):
                yield ops[i], lambda op=op, other=ops[i]: other.move_after(op)


# Steps of one kind can be swapped without effect, so only different kinds are.
STEPS = {
    "arith.addf": "sum", "arith.subf": "sum", "arith.mulf": "product",
    "arith.divf": "product", "arith.maximumf": "maximum", "arith.select": "choice",
    "math.exp2": "exp", "math.exp": "exp", "math.log": "log", "math.tanh": "tanh",
}


def chain_operand(op):
    """The operand that a step works on: the first that is no constant or
    condition."""
    for i, value in enumerate(op.operands):
        if value.type == op.results[0].type and constant_value(value) is None:
            return i
    return None


@mutation
def swapped_steps(module):
    """Two successive steps of float arithmetic are swapped."""
    for outer in module.ops(*STEPS):
        for i, value in enumerate(outer.operands):
            inner = maker(value)
            if inner is None or inner.name not in STEPS:
                continue
            if STEPS[inner.name] == STEPS[outer.name]:
                continue
            kind = outer.results[0].type
            if value.type != kind or not kind_of(kind).is_float:
                continue
            place = chain_operand(inner)
            if place is not None:
                yield outer, lambda a=inner, b=outer, p=place, i=i: exchange(
                    a, b, p, i
                )


def exchange(inner, outer, place, i):
    first = outer.clone(ip=ir.InsertionPoint(outer))
    second = inner.clone(ip=ir.InsertionPoint(outer))
    first.operands[i] = inner.operands[place]
    second.operands[place] = first.results[0]
    outer.results[0].replace_all_uses_with(second.results[0])
