"""Seeded mistakes in copies: their starts, waits and semaphores."""

from jaxlib.mlir import ir

import attributes as at
from kinds import SEMAPHORES, kind_of
from mutation_sites import VIEWS, erased, maker, mutation, next_of, set_operand


@mutation
def dropped_wait(module):
    """A copy is not waited for."""
    yield from erased("tpu.wait_dma", "tpu.wait_dma2", "tpu.sem_wait")(module)


@mutation
def dropped_start(module):
    """A copy is not started."""
    yield from erased("tpu.enqueue_dma", "tpu.sem_signal")(module)


def semaphore_at(op):
    """Which operand of a start or a wait is its semaphore."""
    if op.name == "tpu.wait_dma2":
        return 0
    source, sent, target, *_ = at.operands(op, 7)
    return len(source) + len(sent) + len(target)


def views_of(value):
    """The argument of a view, and the operations that make the view, last
    first."""
    views = []
    while (op := maker(value)) is not None and op.name in VIEWS:
        views.append(op)
        value = op.operands[0]
    return value, views


def view_again(argument, views, before, change=lambda op: None):
    """The same view of another argument, with its slice changed."""
    value = argument
    for op in reversed(views):
        op = op.clone(ip=ir.InsertionPoint(before))
        op.operands[0] = value
        if op.name == "tpu.memref_slice":
            change(op)
        value = op.results[0]
    return value


def of_semaphores(module):
    """The semaphores of a kernel's copies, by type."""
    out = {}
    for argument in module.scratch():
        if kind_of(argument.type).element == SEMAPHORES[0]:
            out.setdefault(argument.type, []).append(argument)
    return out


@mutation
def wrong_semaphore(module):
    """A copy is started, or waited for, with another semaphore."""
    alike = of_semaphores(module)
    for op in module.ops("tpu.enqueue_dma", "tpu.wait_dma2"):
        place = semaphore_at(op)
        argument, views = views_of(op.operands[place])
        for other in alike[argument.type]:
            if other != argument:
                yield ("another", op), set_operand(
                    op, place,
                    lambda o=other, v=views, op=op: view_again(o, v, op),
                )
        count = (kind_of(argument.type).shape or (1,))[0]
        if count > 1:

            def to_next(part, count=count):
                part.operands[1] = next_of(part.operands[1], 1, count, part)

            yield ("the next", op), set_operand(
                op, place,
                lambda a=argument, v=views, op=op, change=to_next: view_again(
                    a, v, op, change
                ),
            )


@mutation
def merged_semaphores(module):
    """Two semaphores are merged."""
    for alike in of_semaphores(module).values():
        for i, a in enumerate(alike):
            for b in alike[i + 1 :]:
                place = f"arguments {a.arg_number} and {b.arg_number}"
                yield place, lambda a=a, b=b: b.replace_all_uses_with(a)
