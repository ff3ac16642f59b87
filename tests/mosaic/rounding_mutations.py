"""Seeded mistakes in rounding: too early, or towards 0."""

from jaxlib.mlir import ir

import attributes as at
from kinds import kind_of
from mutation_sites import binary, maker, mutation, new_constant, origin, set_operand

# (maximumf is left out: any number near the highest score can be the maximum.)
ARITHMETIC = (
    "arith.addf", "arith.subf", "arith.mulf", "arith.divf",
    "math.exp", "math.exp2", "math.log", "math.log2", "math.tanh", "tpu.matmul",
    "tpu.reciprocal", "vector.multi_reduction",
)


def cast(name, value, element, before):
    """`value` of another element type."""
    kind, target = value.type, ir.Type.parse(element)
    if kind_of(kind).shape is not None:
        target = ir.VectorType.get(kind_of(kind).shape, target)
    return ir.Operation.create(
        name, results=[target], operands=[value], ip=ir.InsertionPoint(before)
    ).results[0]


@mutation
def early_rounding(module):
    """A float32 result is rounded to bf16 too early."""
    for op in module.ops(*ARITHMETIC):
        value = op.results[0]
        users = [use.owner.operation.name for use in value.uses]
        if kind_of(value.type).element != "f32" or set(users) == {"arith.truncf"}:
            continue
        if at.word(op, "kind") == "maximumf":
            continue

        def change(op=op, value=value):
            uses = [(use.owner.operation, use.operand_number) for use in value.uses]
            rounded = cast("arith.truncf", value, "bf16", op)
            wide = cast("arith.extf", rounded, "f32", op)
            # The casts were made before `op`, which now moves before them.
            op.move_before(maker(rounded))
            for user, i in uses:
                user.operands[i] = wide

        yield op, change


def was_narrow(value):
    """Whether a value was widened from bf16, so that rounding it changes
    nothing."""
    op = origin(value, {"vector.broadcast", "vector.shape_cast", "tpu.transpose"})
    if op is not None and op.name == "arith.select":
        return all(was_narrow(choice) for choice in list(op.operands)[1:])
    return op is not None and op.name in ("arith.extf", "arith.constant")


@mutation
def cut_rounding(module):
    """Rounding to nearest becomes truncation."""
    for op in module.ops("arith.truncf"):
        value = op.operands[0]
        if was_narrow(value):
            continue

        def make(op=op, value=value):
            bits = cast("arith.bitcast", value, "i32", op)
            mask = new_constant(-(1 << 16), bits, op)
            cut = binary("arith.andi", bits, mask, op)
            return cast("arith.bitcast", cut, "f32", op)

        yield op, set_operand(op, 0, make)
