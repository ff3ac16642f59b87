"""Seeded mistakes in values: numbers, masks, branches."""

from jaxlib.mlir import ir

import attributes as at
from kinds import kind_of
from mutation_sites import (
    constant_value, is_same, mutation, new_constant, origin, plus, replace_result,
    set_attribute, set_operand, swap_operands,
)


@mutation
def dropped_mask_term(module):
    """One of two and-ed conditions is dropped."""
    for op in module.ops("arith.andi"):
        if kind_of(op.results[0].type).element == "i1":
            for value in op.operands:
                yield op, replace_result(op, lambda v=value: v)


@mutation
def dropped_choice(module):
    """A select always takes the same value: a mask is dropped."""
    for op in module.ops("arith.select"):
        for value in list(op.operands)[1:]:
            yield op, replace_result(op, lambda v=value: v)


@mutation
def wrong_constant(module):
    """A factor, a term, a shift or a bit mask is one too large."""
    names = "addi subi muli divsi divui remsi remui andi ori shli shrsi shrui"
    for op in module.ops(*(f"arith.{name}" for name in names.split())):
        if kind_of(op.results[0].type).element == "i1":
            continue
        if constant_value(op.results[0]) is not None:
            continue
        for i, value in enumerate(op.operands):
            if constant_value(value) is not None:
                yield op, set_operand(
                    op, i, lambda op=op, v=value: plus(v, 1, op)
                )


@mutation
def wrong_scale(module):
    """A constant factor or divisor is a quarter too large."""
    for op in module.ops("arith.mulf", "arith.divf"):
        for i, value in enumerate(op.operands):
            number = constant_value(value)
            is_one = op.name == "arith.divf" and i == 0
            if number is None or number == 0 or is_one:
                continue
            yield op, set_operand(
                op,
                i,
                lambda op=op, v=value, n=number: new_constant(n * 1.25, v, op),
            )


def from_exponential(value, depth=4):
    """Whether a value is made by exp, possibly with a select; arithmetic is not
    followed."""
    op = origin(value)
    if op is None:
        return False
    if op.name in ("math.exp", "math.exp2"):
        return True
    if op.name == "arith.select" and depth:
        return any(from_exponential(v, depth - 1) for v in op.operands)
    return False


@mutation
def dropped_rescale(module):
    """A sum is not rescaled when the maximum grows."""
    for op in module.ops("arith.mulf"):
        found = [from_exponential(value) for value in op.operands]
        if found[0] != found[1]:
            kept = op.operands[found.index(False)]
            yield op, replace_result(op, lambda v=kept: v)


@mutation
def dropped_accumulation(module):
    """One of two terms of a sum is dropped."""
    for op in module.ops("arith.addf"):
        for value in op.operands:
            yield op, replace_result(op, lambda v=value: v)


@mutation
def dropped_division(module):
    """The division by the sum of weights is dropped."""
    for op in module.ops("arith.divf", "tpu.reciprocal"):
        value = op.operands[0]
        yield op, replace_result(op, lambda v=value: v)


@mutation
def swapped_difference(module):
    """a - b becomes b - a."""
    for op in module.ops("arith.subf", "arith.subi"):
        if not is_same(*op.operands):
            yield op, swap_operands(op, 0, 1)


@mutation
def dropped_cap(module):
    """A tanh is dropped."""
    for op in module.ops("math.tanh"):
        value = op.operands[0]
        yield op, replace_result(op, lambda v=value: v)


@mutation
def dropped_slope(module):
    """A factor 1 - x is dropped."""
    for op in module.ops("arith.mulf"):
        for value, other in (op.operands, reversed(list(op.operands))):
            factor = origin(other)
            if factor is None or factor.name != "arith.subf":
                continue
            if constant_value(factor.operands[0]) == 1:
                yield op, replace_result(op, lambda v=value: v)


@mutation
def wrong_base(module):
    """exp in place of exp2, and the reverse."""
    other = {
        "math.exp": "math.exp2",
        "math.exp2": "math.exp",
        "math.log": "math.log2",
        "math.log2": "math.log",
    }
    for op in module.ops(*other):

        def make(op=op):
            return ir.Operation.create(
                other[op.name],
                results=[op.results[0].type],
                operands=[op.operands[0]],
                ip=ir.InsertionPoint(op),
            ).results[0]

        yield op, replace_result(op, make)


@mutation
def zero_maximum(module):
    """A constant near the lowest number becomes 0."""
    for op in module.ops("arith.constant"):
        value = op.results[0]
        number = constant_value(value) if kind_of(value.type).is_float else None
        if number is not None and number <= -1e30:
            # Each use separately: an initial value, a fill, the start of a
            # reduction.
            for use in value.uses:
                user, i = use.owner.operation, use.operand_number
                yield user, set_operand(
                    user,
                    i,
                    lambda user=user, v=value: new_constant(0.0, v, user),
                )


@mutation
def wrong_reduction(module):
    """A minimum in place of a maximum, a product in place of a sum."""
    other = {
        "maximumf": "minimumf",
        "minimumf": "maximumf",
        "maxnumf": "minnumf",
        "minnumf": "maxnumf",
        "maxsi": "minsi",
        "minsi": "maxsi",
        "add": "mul",
    }
    for op in module.ops("vector.multi_reduction"):
        word = at.word(op, "kind")
        if word in other:
            yield op, set_attribute(
                op,
                "kind",
                lambda w=word: ir.Attribute.parse(f"#vector.kind<{other[w]}>"),
            )


# sge for sgt and so on; eq for ne.
NEIGHBOUR = {0: 1, 1: 0, 2: 3, 3: 2, 4: 5, 5: 4, 6: 7, 7: 6, 8: 9, 9: 8}


@mutation
def wrong_predicate(module):
    """A comparison includes its limit, or excludes it, wrongly."""
    for op in module.ops("arith.cmpi"):
        predicate = at.integer(op, "predicate")
        yield op, set_attribute(
            op,
            "predicate",
            lambda p=predicate: ir.IntegerAttr.get(
                ir.IntegerType.get_signless(64), NEIGHBOUR[p]
            ),
        )


@mutation
def ignored_condition(module):
    """A branch is taken always, or never."""
    for op in module.ops("scf.if"):
        value = op.operands[0]
        if constant_value(value) is not None:
            continue
        for truth in (True, False):
            yield (truth, op), set_operand(
                op,
                0,
                lambda op=op, v=value, t=truth: new_constant(t, v, op),
            )


@mutation
def wrong_loop_bound(module):
    """A loop ends one trip early or late."""
    for op in module.ops("scf.for"):
        for amount in (-1, 1):
            value = op.operands[1]
            yield (f"{amount:+}", op), set_operand(
                op, 1, lambda op=op, v=value, n=amount: plus(v, n, op)
            )
