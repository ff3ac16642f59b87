"""A StableHLO program with Mosaic kernels, run on arrays.

    from program import run_program
    outputs = run_program(text, [q, k, v])

It knows only operations that occur around kernels: constants, shapes, casts,
calls.
"""

import re

import numpy as np
from jaxlib.mlir import ir

import attributes as at
import mlir_module
from errors import EvaluatorError
from kernel import Kernel
from kinds import kind_of
from translate import summary


def run_program(text, inputs, **options):
    """The outputs of `main`; options are those of Kernel.run."""
    return Program(text).run(inputs, **options)


def load_kernel(text):
    """The only kernel of a program, or of a Mosaic module's text."""
    if "tpu_custom_call" not in text:
        return Kernel(text)
    kernels = Program(text).kernels
    if len(kernels) != 1:
        raise EvaluatorError(f"a program of one kernel, found {len(kernels)}")
    return kernels[0]


class Program:
    """A parsed program; its `kernels` may be replaced, for example by
    mutants."""

    def __init__(self, text):
        with mlir_module.context():
            try:
                module = ir.Module.parse(text)
            except ir.MLIRError as error:
                raise EvaluatorError(
                    "a program that jaxlib parses, found "
                    f"{mlir_module.one_line(error)}"
                ) from error
            mlir_module.verify(module)
            self.kernels = []
            self.functions = {}
            for op in module.body.operations:
                op = op.operation
                if op.name != "func.func":
                    raise EvaluatorError(
                        f"functions only, found {op.name}", summary(op)
                    )
                name = ir.StringAttr(op.attributes["sym_name"]).value
                self.functions[name] = self.read(op)
        if "main" not in self.functions:
            raise EvaluatorError("a function main, found none")

    def run(self, inputs, **options):
        expected, _ = self.functions["main"]
        if len(inputs) != len(expected):
            raise EvaluatorError(
                f"{len(expected)} inputs, found {len(inputs)}"
            )
        for i, (array, (_, kind)) in enumerate(zip(inputs, expected)):
            if array.shape != kind.shape or array.dtype != kind.dtype:
                raise EvaluatorError(
                    f"an input of {kind}, found {array.dtype}{array.shape} "
                    f"for input {i}"
                )
        return self.call("main", list(inputs), options)

    def call(self, name, inputs, options):
        arguments, steps = self.functions[name]
        values = {key: v for (key, _), v in zip(arguments, inputs)}
        for operands, results, function in steps:
            out = function([values[key] for key in operands], options)
            if results is None:
                return out
            values.update(zip(results, out))
        raise EvaluatorError(f"a return, found none in {name}")

    def read(self, function):
        """Arguments and steps: (operand keys, result keys, function)."""
        keys = {}

        def key(value):
            return keys.setdefault(value, len(keys))

        block = function.regions[0].blocks[0]
        arguments = [(key(a), kind_of(a.type)) for a in block.arguments]
        steps = []
        for op in block.operations:
            op = op.operation
            operands = [key(v) for v in op.operands]
            if op.name == "func.return":
                steps.append((operands, None, lambda values, _: values))
                continue
            try:
                meaning = self.meaning(op)
            except EvaluatorError as error:
                error.op = error.op or summary(op)
                raise
            steps.append((operands, [key(r) for r in op.results], meaning))
        return arguments, steps

    def meaning(self, op):
        if op.name == "func.call":
            callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            return lambda values, options: self.call(callee, values, options)
        if op.name == "stablehlo.custom_call":
            return self.custom_call(op)
        if op.name not in HLO:
            raise EvaluatorError(
                f"an operation the evaluator knows, found {op.name}"
            )
        kind, function = kind_of(op.results[0].type), HLO[op.name](op)

        def run(values, _):
            out = np.asarray(function(*values))
            if out.shape != kind.shape or out.dtype != kind.dtype:
                raise EvaluatorError(f"a result of {kind}, found {out.shape}")
            return [out]

        return run

    def custom_call(self, op):
        target = ir.StringAttr(op.attributes["call_target_name"]).value
        if target != "tpu_custom_call":
            raise EvaluatorError(f"calls of tpu_custom_call, found {target}")
        for name in ("operand_layouts", "result_layouts"):
            for layout in op.attributes[name] if at.has(op, name) else []:
                dims = [int(x) for x in np.array(layout).reshape(-1)]
                if dims != sorted(dims, reverse=True):
                    raise EvaluatorError(f"row-major arrays, found {layout}")
        config = ir.StringAttr(op.attributes["backend_config"]).value
        name = "kernel"
        if at.has(op, "kernel_name"):
            name = ir.StringAttr(op.attributes["kernel_name"]).value
        number = len(self.kernels)
        self.kernels.append(Kernel(mlir_module.body_of(config), name))
        kinds = [kind_of(result.type) for result in op.results]
        outputs = [(kind.shape, kind.dtype) for kind in kinds]
        aliases = {}
        if at.has(op, "output_operand_aliases"):
            for alias in op.attributes["output_operand_aliases"]:
                index, operand = re.search(
                    r"output_tuple_indices = \[(\d*)\], operand_index = (\d+)",
                    str(alias),
                ).groups()
                aliases[int(index or 0)] = int(operand)

        def run(values, options):
            kernel = self.kernels[number]
            return kernel.run(values, outputs, aliases, **options)

        return run


def _slice(op):
    names = ("start_indices", "limit_indices", "strides")
    starts, limits, strides = (at.integers(op, name) for name in names)
    box = tuple(slice(*b) for b in zip(starts, limits, strides))
    return lambda a: a[box]


def _broadcast(op):
    shape = kind_of(op.results[0].type).shape
    dims = at.integers(op, "broadcast_dimensions")

    def run(a):
        unit = [1] * len(shape)
        for d, size in zip(dims, a.shape):
            unit[d] = size
        return np.broadcast_to(
            a.transpose(np.argsort(dims)).reshape(unit), shape
        )

    return run


def _constant(op):
    value = at.constant(op)
    return lambda: value


def _reshape(op):
    shape = kind_of(op.results[0].type).shape
    return lambda a: a.reshape(shape)


def _convert(op):
    source, target = (kind_of(v.type) for v in (op.operands[0], op.results[0]))
    if source.is_float and not target.is_float:
        raise EvaluatorError(f"no cast of floats to integers, found {target}")
    return lambda a: a.astype(target.dtype)


def _concatenate(op):
    axis = at.integer(op, "dimension")
    return lambda *parts: np.concatenate(parts, axis)


def _transpose(op):
    permutation = at.integers(op, "permutation")
    return lambda a: np.transpose(a, permutation)


HLO = {
    "stablehlo.constant": _constant,
    "stablehlo.reshape": _reshape,
    "stablehlo.convert": _convert,
    "stablehlo.slice": _slice,
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.transpose": _transpose,
}
