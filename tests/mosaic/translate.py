"""Turns a function of a Mosaic module into a Python function, once.

Walking MLIR objects is slow, so each operation becomes one line of Python that
calls the function of the operation; loops and branches become Python's. Line
numbers map errors back to operations.
"""

from jaxlib.mlir import ir

import attributes as at
from errors import EvaluatorError
from memory_ops import LOADS, MEMORY_OPS
from value_ops import VALUE_OPS

# Operations that only end a block; the operation around the block reads them.
TERMINATORS = {"scf.yield", "tpu.yield", "scf.condition", "func.return"}


def summary(op, limit=160):
    """An operation on one line. Slow, because MLIR numbers all values around
    it."""
    text = op.get_asm(enable_debug_info=False, large_elements_limit=8)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[:limit] + "..."


def walk(op):
    """An operation and all operations inside it, in order."""
    op = op.operation
    yield op
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from walk(inner)


def dead_operations(function):
    """Operations without effect whose result no live operation uses.

    Pallas loads a block before it overwrites it. Such a load may read unwritten
    memory, and a compiler removes it too.
    """
    dead = set()
    for op in reversed(list(walk(function))):
        if op.name not in VALUE_OPS and op.name not in LOADS:
            continue
        uses = (use.owner.operation for r in op.results for use in r.uses)
        if all(user in dead for user in uses):
            dead.add(op)
    return dead


class Translator:
    """Translates one function."""

    def __init__(self, function):
        self.function = function
        self.names = {}
        self.space = {}
        self.lines = []
        self.ops = []
        self.depth = 0
        self.dead = dead_operations(function)

    # Writing Python.

    def line(self, text, op=None):
        """Adds a line of Python and its source: an operation or text."""
        self.lines.append("  " * self.depth + text)
        self.ops.append(op)

    def bind(self, value, prefix="f"):
        name = f"{prefix}{len(self.space)}"
        self.space[name] = value
        return name

    def fresh(self, value):
        """A new name for an MLIR value."""
        self.names[value] = f"v{len(self.names)}"
        return self.names[value]

    def fresh_list(self, values):
        return [self.fresh(value) for value in values]

    def use(self, values):
        return [self.names[value] for value in values]

    def assign(self, targets, sources):
        if targets:
            self.line(f"{', '.join(targets)}, = {', '.join(sources)},")

    # Walking MLIR.

    def translate(self):
        """The Python function; it takes a machine and the function's
        arguments."""
        region = self.function.regions[0]
        if len(region.blocks) != 1:
            raise EvaluatorError("a function of one block, found more")
        block = region.blocks[0]
        arguments = ["m"] + self.fresh_list(block.arguments)
        self.line(f"def run({', '.join(arguments)}):")
        self.depth += 1
        self.block(block)
        self.depth -= 1
        file = f"<mosaic {self.function.attributes['sym_name']}>"
        code = compile("\n".join(self.lines), file, "exec")
        exec(code, self.space)
        return self.space["run"], file

    def block(self, block):
        """Translates a block; returns the names of its terminator's
        operands."""
        ended = None
        for op in block.operations:
            ended = self.operation(op.operation)
        if not len(block.operations) or ended is None:
            self.line("pass")
            return []
        return ended

    def operation(self, op):
        name = op.name
        if name in TERMINATORS:
            names = self.use(op.operands)
            if name == "func.return":
                self.line(f"return [{', '.join(names)}]")
            return names
        if op in self.dead:
            # Its name is never read.
            self.fresh_list(op.results)
            return None
        if name in VALUE_OPS or name in MEMORY_OPS:
            self.call(op)
            return None
        handler = getattr(self, name.replace(".", "_"), None)
        if handler is None:
            raise EvaluatorError(
                f"an operation the evaluator knows, found {name}", summary(op)
            )
        handler(op)
        return None

    def call(self, op):
        try:
            if op.name in VALUE_OPS:
                meaning, first = VALUE_OPS[op.name](op), []
            else:
                meaning, first = MEMORY_OPS[op.name](op), ["m"]
        except EvaluatorError as error:
            error.op = error.op or summary(op)
            raise
        arguments = ", ".join(first + self.use(op.operands))
        call = f"{self.bind(meaning)}({arguments})"
        if len(op.results) > 1:
            raise EvaluatorError("at most one result, found more", summary(op))
        if len(op.results):
            call = f"{self.fresh(op.results[0])} = {call}"
        self.line(call, op)

    # Operations with regions.

    def scf_if(self, op):
        results = self.fresh_list(op.results)
        self.line(f"if {self.names[op.operands[0]]}:", op)
        self.branch(op.regions[0], results)
        if len(op.regions) > 1 and len(op.regions[1].blocks):
            self.line("else:")
            self.branch(op.regions[1], results)

    def scf_index_switch(self, op):
        results = self.fresh_list(op.results)
        chosen = self.names[op.operands[0]]
        # The default comes first among the regions.
        for case, region in zip(at.integers(op, "cases"), op.regions[1:]):
            self.line(f"if {chosen} == {case}:", op)
            self.branch(region, results)
            self.line("else:")
            self.depth += 1
        self.line("if True:", op)
        self.branch(op.regions[0], results)
        self.depth -= len(at.integers(op, "cases"))

    def branch(self, region, results):
        self.depth += 1
        self.line("pass")
        self.assign(results, self.block(region.blocks[0]))
        self.depth -= 1

    def scf_for(self, op):
        if at.has(op, "unsignedCmp"):
            raise EvaluatorError("a signed loop, found another", summary(op))
        low, high, step, *starts = self.use(op.operands)
        block = op.regions[0].blocks[0]
        counter, *carried = self.fresh_list(block.arguments)
        self.assign(carried, starts)
        check = self.bind(_check_step)
        self.line(f"{counter} = {low}; {check}({step})", op)
        self.line(f"while {counter} < {high}:")
        self.depth += 1
        self.line("m.trip()", op)
        self.assign(carried, self.block(block))
        self.line(f"{counter} += {step}")
        self.depth -= 1
        self.assign(self.fresh_list(op.results), carried)

    def scf_while(self, op):
        before, after = (region.blocks[0] for region in op.regions)
        carried = self.fresh_list(before.arguments)
        passed = self.fresh_list(after.arguments)
        self.assign(carried, self.use(op.operands))
        self.line("while True:")
        self.depth += 1
        self.line("m.trip()", op)
        condition, *values = self.block(before)
        self.assign(passed, values)
        self.line(f"if not {condition}: break")
        self.assign(carried, self.block(after))
        self.depth -= 1
        self.assign(self.fresh_list(op.results), passed)

    def tpu_region(self, op):
        mark = f"mark{len(self.lines)}"
        self.line(f"{mark} = m.enter()")
        values = self.block(op.regions[0].blocks[0])
        self.line(f"m.leave({mark})", "the end of tpu.region")
        self.assign(self.fresh_list(op.results), values)

    def tpu_trace(self, op):
        values = self.block(op.regions[0].blocks[0])
        self.assign(self.fresh_list(op.results), values)

    def func_call(self, op):
        callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        name = self.bind(callee, "callee")
        arguments = ", ".join(["m"] + self.use(op.operands))
        call = f"m.functions[{name}]({arguments})"
        results = self.fresh_list(op.results)
        self.line(f"{', '.join(results)}, = {call}" if results else call, op)


def _check_step(step):
    if step <= 0:
        raise EvaluatorError(f"a step of 1 or more, found {step}")
