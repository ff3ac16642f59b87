"""Seeded mistakes in a kernel, to see that a test notices them.

A mutation finds its sites by operations and their operands, so it works on any
kernel; one that finds none is an error, unless the caller knows better. Dead
operations are no sites. Some mutants mean the same as the kernel (a branch
that only saves work, taken always): the caller names those, with the reason.

    for mutant in mutants(kernel):
        caught = judge(mutant.kernel())
"""

import dataclasses
import random

import numpy as np
from jaxlib.mlir import ir

import attributes as at
import mlir_module
from errors import EvaluatorError
from kernel import Kernel
from kinds import SEMAPHORES, kind_of
from translate import dead_operations, summary, walk
from value_ops import SIGNED

MUTATIONS = {}


class MutationError(Exception):
    """A mutation has no site, or makes a module that does not verify."""


@dataclasses.dataclass
class Mutant:
    """One mutation at one site of a kernel."""

    original: Kernel
    mutation: str
    site: int
    sites: int  # that the mutation has in all
    where: str

    @property
    def name(self):
        return f"{self.mutation}[{self.site}]"

    def kernel(self):
        with mlir_module.context():
            module = mlir_module.parse(self.original.text)
            _, change = find_sites(module, self.mutation)[self.site]
            change()
            try:
                mlir_module.verify(module)
                text = mlir_module.text_of(module)
                return Kernel(text, f"{self.original.name} {self.name}")
            except EvaluatorError as error:
                raise MutationError(f"{self.name}: {error}") from error


def mutation(function):
    """Registers a generator of (where, change) over a Module."""
    MUTATIONS[function.__name__] = function
    return function


def mutants(kernel, names=None, absent=(), sample=None, seed=0):
    """Every mutant, or at most `sample` of each mutation, drawn by `seed`.

    A mutation without a site is an error. `absent`: those for which this
    kernel is known to have none. If one has a site after all, that is an error
    too: the list must not rot.
    """
    out = []
    for name in names or MUTATIONS:
        with mlir_module.context():
            module = mlir_module.parse(kernel.text)
            places = [where for where, _ in find_sites(module, name)]
        if bool(places) == (name in absent):
            found = f"{len(places)} sites" if places else "no site"
            raise MutationError(
                f"[mutate] {name} has a site unless said otherwise, found "
                f"{found} for {kernel.name}"
            )
        sites = range(len(places))
        if sample is not None and sample < len(places):
            # By name, so that one mutation's draw does not hang on others.
            draw = random.Random(f"{seed} {name}")
            sites = sorted(draw.sample(sites, sample))
        out += [
            Mutant(kernel, name, site, len(places), places[site])
            for site in sites
        ]
    return out


def survivors(found, judge, equivalent=()):
    """What is wrong: mutants that `judge` accepts, named with their place.

    `judge(kernel)` says whether the results are right; an EvaluatorError
    catches a mutant as well. `equivalent` names mutants, "dropped_store[3]",
    that mean the same as the kernel. They must survive: one that does not, or
    is not there, is returned too.
    """
    out = []
    for mutant in found:
        try:
            lives = judge(mutant.kernel())
        except EvaluatorError:
            lives = False
        if lives and mutant.name not in equivalent:
            out.append(f"{mutant.name} lives: {mutant.where}")
        if not lives and mutant.name in equivalent:
            out.append(f"{mutant.name} is caught: {mutant.where}")
    sites = {mutant.mutation: mutant.sites for mutant in found}
    for name in equivalent:
        kind, _, site = name.removesuffix("]").partition("[")
        if kind not in MUTATIONS or int(site) >= sites.get(kind, int(site) + 1):
            out.append(f"{name} is no mutant")
    return out


class Module:
    """What mutations ask of a module."""

    def __init__(self, module):
        self.functions = [op.operation for op in module.body.operations]
        (self.main,) = (
            f for f in self.functions if at.has(f, "scratch_operands")
        )
        self.others = [f for f in self.functions if f != self.main]

    def ops(self, *names, function=None):
        """Live operations with one of these names, in order."""
        function = function or self.main
        dead = dead_operations(function)
        return [
            op
            for op in walk(function)
            if op.name in names and op not in dead
        ]


def find_sites(module, name):
    return list(MUTATIONS[name](Module(module)))


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


def origin(value):
    """The same, seen through what only shapes."""
    op = maker(value)
    while op is not None and op.name in SHAPING:
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
    """The one value of a constant, folded or not, or None."""
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
    """Surely equal: one value, or constants of one value."""
    if a == b:
        return True
    a, b = constant_value(a), constant_value(b)
    return a is not None and a == b


def new_constant(value, like, before):
    """A constant of `like`'s type and one value, in front of `before`."""
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


def plus(value, amount, before):
    return ir.Operation.create(
        "arith.addi",
        results=[value.type],
        operands=[value, new_constant(amount, value, before)],
        ip=ir.InsertionPoint(before),
    ).results[0]


# Changes: each gives a function that does it later.


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


# The mutations. INDEXED: where an operation's indices start.

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
    """Memory that only tells waits how many bytes to wait for."""
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


@mutation
def swapped_index(module):
    """Two indices of one access change places."""
    for op in accesses(module):
        places = list(indices(op))
        pairs = [
            (i, j)
            for i in places
            for j in places
            if i < j and not is_same(op.operands[i], op.operands[j])
        ]
        for i, j in pairs:
            yield summary(op), swap_operands(op, i, j)


@mutation
def index_off_by_one(module):
    """An index that is computed is one too large."""
    for op in accesses(module):
        for i in indices(op):
            value = op.operands[i]
            if constant_value(value) is None:
                yield summary(op), set_operand(
                    op, i, lambda op=op, v=value: plus(v, 1, op)
                )


@mutation
def window_off_by_one(module):
    """A window's block is the one after the right one."""
    for function in module.others:
        for op in module.ops("func.return", function=function):
            for i, value in enumerate(op.operands):
                if constant_value(value) is None:
                    name = function.attributes["sym_name"]
                    yield f"{name}: {summary(op)}", set_operand(
                        op, i, lambda op=op, v=value: plus(v, 1, op)
                    )


@mutation
def dropped_mask_term(module):
    """Of two conditions that must hold, one is forgotten."""
    for op in module.ops("arith.andi"):
        if kind_of(op.results[0].type).element == "i1":
            for value in op.operands:
                yield summary(op), replace_result(op, lambda v=value: v)


@mutation
def dropped_choice(module):
    """A select takes the same value always: a mask is forgotten."""
    for op in module.ops("arith.select"):
        for value in list(op.operands)[1:]:
            yield summary(op), replace_result(op, lambda v=value: v)


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
                yield summary(op), set_operand(
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
            yield summary(op), set_operand(
                op,
                i,
                lambda op=op, v=value, n=number: new_constant(n * 1.25, v, op),
            )


def from_exponential(value, depth=4):
    """Made by exp, maybe selected; not looking past arithmetic."""
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
    """What was accumulated is not rescaled when the maximum grows."""
    for op in module.ops("arith.mulf"):
        found = [from_exponential(value) for value in op.operands]
        if found[0] != found[1]:
            kept = op.operands[found.index(False)]
            yield summary(op), replace_result(op, lambda v=kept: v)


@mutation
def dropped_accumulation(module):
    """Of two terms of a sum, one is forgotten."""
    for op in module.ops("arith.addf"):
        for value in op.operands:
            yield summary(op), replace_result(op, lambda v=value: v)


@mutation
def dropped_division(module):
    """The sum of the weights is not divided by."""
    for op in module.ops("arith.divf", "tpu.reciprocal"):
        value = op.operands[0]
        yield summary(op), replace_result(op, lambda v=value: v)


@mutation
def swapped_difference(module):
    """a - b is b - a."""
    for op in module.ops("arith.subf", "arith.subi"):
        if not is_same(*op.operands):
            yield summary(op), swap_operands(op, 0, 1)


@mutation
def dropped_cap(module):
    """A tanh is left out."""
    for op in module.ops("math.tanh"):
        value = op.operands[0]
        yield summary(op), replace_result(op, lambda v=value: v)


@mutation
def dropped_slope(module):
    """A factor 1 - x is forgotten."""
    for op in module.ops("arith.mulf"):
        for value, other in (op.operands, reversed(list(op.operands))):
            factor = origin(other)
            if factor is None or factor.name != "arith.subf":
                continue
            if constant_value(factor.operands[0]) == 1:
                yield summary(op), replace_result(op, lambda v=value: v)


@mutation
def wrong_base(module):
    """exp for exp2 and the other way round."""
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

        yield summary(op), replace_result(op, make)


@mutation
def zero_maximum(module):
    """What starts at the lowest number, or stands for it, is 0."""
    for op in module.ops("arith.constant"):
        value = op.results[0]
        number = constant_value(value) if kind_of(value.type).is_float else None
        if number is not None and number <= -1e30:
            # Each use apart: a start, a fill, the start of a reduction.
            for use in value.uses:
                user, i = use.owner.operation, use.operand_number
                yield summary(user), set_operand(
                    user,
                    i,
                    lambda user=user, v=value: new_constant(0.0, v, user),
                )


@mutation
def wrong_reduction(module):
    """A minimum for a maximum, a product for a sum."""
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
            yield summary(op), set_attribute(
                op,
                "kind",
                lambda w=word: ir.Attribute.parse(f"#vector.kind<{other[w]}>"),
            )


# sge for sgt and so on; eq for ne.
NEIGHBOUR = {0: 1, 1: 0, 2: 3, 3: 2, 4: 5, 5: 4, 6: 7, 7: 6, 8: 9, 9: 8}


@mutation
def wrong_predicate(module):
    """A comparison lets its edge in, or keeps it out."""
    for op in module.ops("arith.cmpi"):
        predicate = at.integer(op, "predicate")
        yield summary(op), set_attribute(
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
            yield f"{truth}: {summary(op)}", set_operand(
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
            yield f"{amount:+}: {summary(op)}", set_operand(
                op, 1, lambda op=op, v=value, n=amount: plus(v, n, op)
            )


def is_written(value):
    """Whether memory is stored to, or is where a copy goes."""
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
    """Two inputs of one type, K and V for example, change places."""
    block = module.main.regions[0].blocks[0]
    dead = dead_operations(module.main)
    inputs = [
        argument
        for argument in block.arguments
        if isinstance(argument.type, ir.MemRefType)
        and kind_of(argument.type).element not in SEMAPHORES
        and not is_written(argument)
        and any(use.owner.operation not in dead for use in argument.uses)
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
                where = f"arguments {a.arg_number} and {b.arg_number}"
                yield where, lambda a=a, b=b: change(a, b)


def erased(*names):
    def find(module):
        for op in module.ops(*names):
            yield summary(op), op.erase

    return find


@mutation
def dropped_wait(module):
    """A copy is not waited for."""
    yield from erased("tpu.wait_dma", "tpu.wait_dma2", "tpu.sem_wait")(module)


@mutation
def dropped_start(module):
    """A copy is not started."""
    yield from erased("tpu.enqueue_dma", "tpu.sem_signal")(module)


@mutation
def dropped_store(module):
    """A result is not stored."""
    yield from erased(
        "tpu.vector_store", "vector.store", "tpu.strided_store", "memref.store"
    )(module)
