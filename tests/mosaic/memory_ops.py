"""The meaning of each operation on memory.

MEMORY_OPS maps an operation's name to a function of the operation, which
returns a function of the machine and the operands' values.
"""

import numpy as np

import attributes as at
from errors import EvaluatorError
from kinds import kind_of, scalar
from memory import garbage

MEMORY_OPS = {}
# Operations whose only effect is their result: dead ones need not run.
LOADS = {
    "vector.load",
    "memref.load",
    "tpu.load",
    "tpu.vector_load",
    "tpu.strided_load",
    "tpu.sem_read",
    "tpu.memref_slice",
    "tpu.memref_squeeze",
    "tpu.memref_reshape",
    "tpu.memref_bitcast",
}


def memory_op(*names):
    def register(function):
        for name in names:
            MEMORY_OPS[name] = function
        return function

    return register


def padded(sizes, rank):
    """Sizes for all dimensions: a vector with fewer takes the last ones."""
    if len(sizes) > rank:
        raise EvaluatorError(f"at most {rank} dimensions, found {sizes}")
    return (1,) * (rank - len(sizes)) + tuple(sizes)


def box_of(ref, starts, shape, strides=None):
    """The part of memory that a vector occupies, in the vector's shape."""
    rank = len(ref.data.shape)
    if strides:
        strides = (1,) * (rank - len(strides)) + tuple(strides)
    box = ref.region(starts, padded(shape, rank), strides or None)
    return box.view(lambda array: array.reshape(shape))


def strides_of(op):
    strides = at.integers(op, "strides", [])
    if any(s < 1 for s in strides):
        raise EvaluatorError(f"strides of 1 or more, found {strides}")
    return tuple(strides)


def read(box, mask, poison):
    values = box.read(mask)
    if mask is not None:
        values[~mask] = garbage((), values.dtype, poison)
    return values


@memory_op("vector.load", "tpu.vector_load", "tpu.strided_load")
def _(op):
    shape = kind_of(op.results[0].type).shape
    strides = strides_of(op)
    count = len(op.operands) - 1
    if op.name == "tpu.vector_load":
        count = len(at.operands(op, 3)[1])

    def run(machine, ref, *rest):
        box = box_of(ref, rest[:count], shape, strides)
        mask = rest[count] if len(rest) > count else None
        return read(box, mask, machine.poison)

    return run


@memory_op("vector.store", "tpu.strided_store")
def _(op):
    strides = strides_of(op)

    def run(machine, values, ref, *starts):
        box_of(ref, starts, values.shape, strides).write(values)

    return run


@memory_op("tpu.vector_store")
def _(op):
    _, _, indices, _ = at.operands(op, 4)
    strides, count, is_add = strides_of(op), len(indices), at.flag(op, "add")

    def run(machine, values, ref, *rest):
        box = box_of(ref, rest[:count], values.shape, strides)
        mask = rest[count] if len(rest) > count else None
        if is_add:
            values = (box.read(mask) + values).astype(values.dtype)
        box.write(values, mask)

    return run


def sublanes(op, shape):
    """Sublane mask and stride, as a mask and strides of the vector."""
    mask = at.integers(op, "sublane_mask")
    stride = at.integer(op, "sublane_stride", 1)
    if len(shape) < 2 or len(mask) != shape[-2] or stride < 1:
        raise EvaluatorError(f"a mask of sublanes, found {op}")
    strides = (1,) * (len(shape) - 2) + (stride, 1)
    rows = np.array(mask, np.bool_)[:, None]
    return None if rows.all() else np.broadcast_to(rows, shape), strides


@memory_op("tpu.load")
def _(op):
    shape = kind_of(op.results[0].type).shape
    mask, strides = sublanes(op, shape)

    def run(machine, ref, *starts):
        return read(box_of(ref, starts, shape, strides), mask, machine.poison)

    return run


@memory_op("tpu.store")
def _(op):
    value, _, indices, lanes = at.operands(op, 4)
    if lanes or at.flag(op, "add"):
        raise EvaluatorError(f"a plain store, found {op}")
    mask, strides = sublanes(op, kind_of(value[0].type).shape)

    def run(machine, values, ref, *starts):
        box_of(ref, starts, values.shape, strides).write(values, mask)

    return run


def _scalar_box(ref, starts):
    if ref.space != "smem":
        raise EvaluatorError(f"scalars are in smem, found {ref.space}")
    return ref.region(starts, (1,) * len(ref.data.shape))


@memory_op("memref.load")
def _(op):
    kind = kind_of(op.results[0].type)

    def run(machine, ref, *starts):
        values = _scalar_box(ref, starts).read()
        return scalar(values.reshape(-1)[0], kind)

    return run


@memory_op("memref.store")
def _(op):
    def run(machine, value, ref, *starts):
        _scalar_box(ref, starts).write(value)

    return run


@memory_op("memref.alloca")
def _(op):
    kind = kind_of(op.results[0].type)
    if len(op.operands):
        raise EvaluatorError(f"scratch of a known shape, found {op}")
    return lambda machine: machine.allocate(kind, "alloca")


@memory_op("tpu.sem_alloc")
def _(op):
    kind = kind_of(op.results[0].type)
    return lambda machine: machine.allocate(kind, "semaphore")


@memory_op("tpu.memref_slice")
def _(op):
    _, starts, sizes = at.operands(op, 3)
    count = len(starts)
    shape = kind_of(op.results[0].type).shape

    def run(machine, ref, *rest):
        dynamic = list(rest[count:])
        sizes = tuple(dynamic.pop(0) if n == -1 else n for n in shape)
        return ref.region(rest[:count], sizes)

    return run


@memory_op("tpu.memref_squeeze")
def _(op):
    source = kind_of(op.operands[0].type).shape
    target = kind_of(op.results[0].type).shape
    # Unit dimensions that are not in the target are dropped.
    keep, rest = [], list(target)
    for d, size in enumerate(source):
        left = len(source) - d
        if rest and rest[0] == size and (size != 1 or left == len(rest)):
            keep.append(d)
            rest.pop(0)
        elif size != 1:
            raise EvaluatorError(f"a squeeze of ones, found {op}")
    ones = len(source) - len(keep)
    if rest or ones != sum(1 for s in source if s == 1) - sum(
        1 for s in target if s == 1
    ):
        raise EvaluatorError(f"a squeeze of ones, found {op}")
    box = tuple(slice(None) if d in keep else 0 for d in range(len(source)))
    if not keep:
        # Indexing every dimension would not give a view.
        return lambda machine, ref: ref.view(lambda a: a.reshape(()))
    return lambda machine, ref: ref.view(lambda array: array[box])


@memory_op("tpu.memref_reshape")
def _(op):
    shape = kind_of(op.results[0].type).shape
    return lambda machine, ref: ref.view(lambda array: array.reshape(shape))


@memory_op("tpu.memref_bitcast")
def _(op):
    source = kind_of(op.operands[0].type)
    target = kind_of(op.results[0].type)
    if source.bits != target.bits or source.shape != target.shape:
        raise EvaluatorError(f"a bitcast to the same width, found {op}")

    def run(machine, ref):
        out = ref.view(lambda array: array)
        out.data = ref.data.view(target.dtype)
        if target.is_float:
            out.unwritten = None
        elif out.unwritten is None:
            out.unwritten = np.zeros(out.data.shape, np.bool_)
        return out

    return run


@memory_op("tpu.erase_memref_layout")
def _(op):
    return lambda machine, ref: ref


# Copies and semaphores.


@memory_op("tpu.enqueue_dma")
def _(op):
    source, sent, target, arrived, *remote = at.operands(op, 7)
    if sent or any(remote) or not arrived:
        raise EvaluatorError(f"a copy within this core, found {op}")

    def run(machine, source, target, semaphore):
        machine.start_copy(source, target, semaphore)

    return run


@memory_op("tpu.wait_dma2")
def _(op):
    _, _, _, *remote = at.operands(op, 5)
    if any(remote):
        raise EvaluatorError(f"a copy within this core, found {op}")

    def run(machine, semaphore, source, target):
        machine.wait_copy(semaphore, source, target)

    return run


@memory_op("tpu.sem_signal")
def _(op):
    _, _, *remote = at.operands(op, 5)
    if any(remote):
        raise EvaluatorError(f"a signal within this core, found {op}")
    return lambda machine, ref, amount: machine.signal(ref, amount)


@memory_op("tpu.sem_wait")
def _(op):
    return lambda machine, ref, amount: machine.wait(ref, amount)


@memory_op("tpu.sem_read")
def _(op):
    return lambda machine, ref: machine.read_semaphore(ref)


# Operations about the grid, and operations without effect.


@memory_op("tpu.iteration_bound")
def _(op):
    dim = at.integer(op, "dim")
    return lambda machine: machine.bounds[dim]


@memory_op("tpu.trace_start", "tpu.trace_stop")
def _(op):
    return lambda machine: None


@memory_op("tpu.delay")
def _(op):
    return lambda machine, nanos: None


@memory_op("cf.assert")
def _(op):
    message = str(op.attributes["msg"])

    def run(machine, condition):
        if not condition:
            raise EvaluatorError(f"an assertion holds, found {message}")

    return run
