"""A Mosaic kernel: a module that can be run on arrays.

The last dimension of the grid runs fastest. A window's block is fetched when
its index changes. The block of the next step is fetched before this step's body
runs, as in a pipeline. An output's block is written back when its index changes
and at the end. The part of a block beyond an array's edge is garbage.
"""

import dataclasses
import itertools
import math
import sys

import numpy as np
from jaxlib.mlir import ir

import attributes as at
import hardware
import mlir_module
from errors import EvaluatorError
from kinds import DTYPES, SEMAPHORES, Kind, kind_of, scalar
from memory import DEFAULT_POISON, Machine, garbage
from translate import Translator, summary

WINDOW_FIELDS = {"transform_indices", "window_bounds", "pipeline_mode"}


@dataclasses.dataclass
class Window:
    """How one operand is cut into blocks; `transform` is None if it is not
    cut."""

    kind: Kind
    is_output: bool
    transform: object = None
    bounds: tuple = ()
    is_synchronous: bool = False


class Kernel:
    """A parsed, verified and translated module."""

    def __init__(self, body, name="kernel"):
        """`body` is text or bytecode, of stable_mosaic or of real
        operations."""
        self.name = name
        with mlir_module.context():
            # Kept, because errors show its operations.
            self.module = module = mlir_module.parse(body)
            # Mutations work on this text.
            self.text = mlir_module.text_of(module)
            self._read(module)

    def _read(self, module):
        functions = {}
        for op in module.body.operations:
            op = op.operation
            if op.name != "func.func":
                raise EvaluatorError(f"functions only, found {op.name}")
            functions[ir.StringAttr(op.attributes["sym_name"]).value] = op
        if not functions:
            raise EvaluatorError("a module with a function, found none")
        mains = [
            n for n, op in functions.items() if at.has(op, "scratch_operands")
        ]
        if len(mains) != 1:
            raise EvaluatorError(f"one kernel function, found {mains}")
        main = functions[mains[0]]
        self.functions, self.files, self.sources = {}, {}, {}
        for name, op in functions.items():
            translator = Translator(op)
            self.functions[name], file = translator.translate()
            self.files[file] = translator.ops
            self.sources[name] = "\n".join(translator.lines)
        self.main = mains[0]
        arguments = op_arguments(main)
        self.bounds = at.integers(main, "iteration_bounds", [])
        semantics = main.attributes["dimension_semantics"]
        if len(semantics) != len(self.bounds):
            raise EvaluatorError(
                f"semantics of every dimension, found {semantics} "
                f"for a grid {self.bounds}"
            )
        for i in range(len(self.bounds)):
            if arguments[i] != Kind("i32"):
                raise EvaluatorError(
                    f"grid indices are i32, found {arguments[i]}"
                )
        rank = len(self.bounds)
        prefetched = at.integer(main, "scalar_prefetch")
        scratch = at.integer(main, "scratch_operands")
        end = len(arguments) - scratch
        if rank + prefetched > end:
            raise EvaluatorError(f"enough arguments, found {len(arguments)}")
        self.prefetched = arguments[rank : rank + prefetched]
        self.scratch = arguments[end:]
        self.windows = [
            Window(kind, False) for kind in arguments[rank + prefetched : end]
        ]
        for kind in self.prefetched:
            if kind.space != "smem":
                raise EvaluatorError(f"prefetch is to smem, found {kind}")
        self._read_windows(main)

    def _read_windows(self, main):
        if not at.has(main, "window_params"):
            if self.bounds:
                raise EvaluatorError("a grid has window_params, found none")
            return
        params = ir.ArrayAttr(main.attributes["window_params"])
        if len(params) != len(self.windows):
            raise EvaluatorError(
                f"as many windows as operands, found {len(params)} "
                f"for {len(self.windows)}"
            )
        for window, param in zip(self.windows, params):
            fields = {named.name: named.attr for named in ir.DictAttr(param)}
            if not fields:
                continue
            unknown = set(fields) - WINDOW_FIELDS
            if unknown:
                raise EvaluatorError(
                    f"window fields the evaluator knows, found {unknown}"
                )
            window.bounds = tuple(at.integers_of(fields["window_bounds"]))
            name = ir.FlatSymbolRefAttr(fields["transform_indices"]).value
            window.transform = self.functions[name]
            if "pipeline_mode" in fields:
                mode = at.word_of(fields["pipeline_mode"])
                if mode not in ("synchronous", "double_buffered"):
                    raise EvaluatorError(f"a pipeline mode, found {mode}")
                window.is_synchronous = mode == "synchronous"
            if window.bounds != window.kind.shape:
                raise EvaluatorError(
                    f"a window of its memory's shape, found {window.bounds} "
                    f"for {window.kind}"
                )
            if window.kind.space not in ("vmem", "smem"):
                raise EvaluatorError(
                    f"a window in vmem or smem, found {window.kind.space}"
                )

    def run(
        self,
        arrays,
        outputs,
        aliases=None,
        poison=DEFAULT_POISON,
        max_trips=1_000_000,
        erring=None,
    ):
        """Runs on `arrays`; `outputs` are (shape, dtype) each.

        `aliases` maps an output to the array whose memory it takes;
        `erring` is the seed of a machine with errors (hardware.py).
        """
        with hardware.erring(erring):
            return Run(self, arrays, outputs, aliases or {}, poison, max_trips)()

    def locate(self, error):
        """Adds to an error the operation at which it was raised."""
        at_line = sys.exc_info()[2]
        where = None
        while at_line:
            file = at_line.tb_frame.f_code.co_filename
            if file in self.files:
                where = self.files[file][at_line.tb_lineno - 1] or where
            at_line = at_line.tb_next
        if where is not None and not isinstance(where, str):
            where = summary(where)
        if isinstance(error, EvaluatorError):
            error.op = error.op or where
            return error
        return EvaluatorError(f"a defined operation, found {error!r}", where)


def op_arguments(function):
    return [kind_of(a.type) for a in function.regions[0].blocks[0].arguments]


class Run:
    """One run of a kernel."""

    def __init__(self, kernel, arrays, outputs, aliases, poison, max_trips):
        self.kernel = kernel
        self.machine = Machine(poison, max_trips)
        self.machine.functions = kernel.functions
        arrays = [np.array(a) for a in arrays]
        dynamic = [i for i, b in enumerate(kernel.bounds) if b == at.DYNAMIC]
        count = len(dynamic) + len(kernel.prefetched)
        inputs = len(kernel.windows) - len(outputs)
        if len(arrays) != count + inputs or inputs < 0:
            raise EvaluatorError(
                f"an array for each operand, found {len(arrays)} arrays and "
                f"{len(outputs)} outputs for {kernel.name}"
            )
        self.bounds = list(kernel.bounds)
        for i, array in zip(dynamic, arrays):
            if array.shape != () or array.dtype != np.int32:
                raise EvaluatorError(f"a bound is one i32, found {array!r}")
            self.bounds[i] = int(array)
        if any(b < 0 for b in self.bounds):
            raise EvaluatorError(f"a grid, found {self.bounds}")
        self.machine.bounds = tuple(self.bounds)
        self.prefetched = [
            self.whole(array, kind, f"prefetched {i}")
            for i, (array, kind) in enumerate(
                zip(arrays[len(dynamic) : count], kernel.prefetched)
            )
        ]
        # The arrays in HBM: inputs, then outputs.
        self.hbm = arrays[count:]
        for i, (shape, dtype) in enumerate(outputs):
            if i not in aliases:
                array = garbage(tuple(shape), np.dtype(dtype), poison)
            elif aliases[i] < count:
                raise EvaluatorError(f"aliases of windows, found {aliases}")
            else:
                array = self.hbm[aliases[i] - count]
                if array.shape != tuple(shape) or array.dtype != dtype:
                    raise EvaluatorError(f"aliases alike, found {aliases}")
            self.hbm.append(array)
        aliased = {i - count for i in aliases.values()}
        self.windows = []
        for i, window in enumerate(kernel.windows):
            is_output = i >= inputs
            name = f"output {i - inputs}" if is_output else f"input {i}"
            self.windows.append(
                self.window(window, self.hbm[i], is_output, i in aliased, name)
            )
        self.inputs = inputs
        self.scratch = [
            self.machine.fresh(kind, f"scratch {i}")
            for i, kind in enumerate(kernel.scratch)
        ]

    def whole(self, array, kind, name):
        self.check(array, kind, name)
        return self.machine.array(array, kind.space, name)

    def check(self, array, kind, name):
        if array.shape != kind.shape or array.dtype != kind.dtype:
            raise EvaluatorError(
                f"an operand of its memory's type, found "
                f"{array.dtype}{array.shape} for {kind} of {name}"
            )

    def window(self, window, array, is_output, is_aliased, name):
        if window.transform:
            if len(array.shape) != len(window.bounds):
                raise EvaluatorError(
                    f"a window of the array's rank, found {window.bounds} "
                    f"for {array.shape} of {name}"
                )
            if array.dtype != window.kind.dtype:
                raise EvaluatorError(
                    f"a window of the array's type, found "
                    f"{window.kind.element} for {array.dtype} of {name}"
                )
            return Windowed(self, window, array, is_output, name)
        if window.kind.element in SEMAPHORES:
            raise EvaluatorError(f"semaphores as scratch, found {name}")
        self.check(array, window.kind, name)
        return Whole(self, window.kind, array, is_output, is_aliased, name)

    def __call__(self):
        run = self.kernel.functions[self.kernel.main]
        steps = list(itertools.product(*(range(b) for b in self.bounds)))
        with np.errstate(all="ignore"):
            try:
                for window in self.windows:
                    if steps:
                        window.start(steps[0])
                for step, after in zip(steps, steps[1:] + [None]):
                    for window in self.windows:
                        window.fetch_ahead(after)
                    run(
                        self.machine,
                        *step,
                        *self.prefetched,
                        *(window.ref for window in self.windows),
                        *self.scratch,
                    )
                    self.machine.leave(0)
                    for window in self.windows:
                        window.write_back(after)
                    for window in self.windows:
                        window.advance()
                self.machine.finish()
            except (
                EvaluatorError, ArithmeticError, LookupError, TypeError,
                ValueError,
            ) as error:
                located = self.kernel.locate(error)
                if located is error:
                    raise
                raise located from error
        self.copies_landed = self.machine.landed
        return self.hbm[self.inputs :]


class Whole:
    """An operand that is not cut. It stays in HBM, or is copied in and out."""

    def __init__(self, run, kind, array, is_output, is_aliased, name):
        self.machine, self.kind, self.array = run.machine, kind, array
        self.is_output, self.name = is_output, name
        self.is_in_hbm = kind.space in ("any", "hbm")
        writable = is_output or is_aliased
        if self.is_in_hbm:
            self.ref = self.machine.array(array, kind.space, name, writable)
        elif is_output:
            self.ref = self.machine.fresh(kind, name)
        else:
            self.ref = self.machine.array(array.copy(), kind.space, name)

    def start(self, step):
        pass

    def fetch_ahead(self, after):
        pass

    def write_back(self, after):
        if after is None and self.is_output and not self.is_in_hbm:
            self.machine.check_quiet(self.ref, "an output is written back")
            self.array[...] = self.ref.data

    def advance(self):
        pass


class Windowed:
    """An operand cut into blocks, one of them in fast memory at a time."""

    def __init__(self, run, window, array, is_output, name):
        self.machine, self.window, self.array = run.machine, window, array
        self.prefetched, self.is_output, self.name = (
            run.prefetched,
            is_output,
            name,
        )
        self.index = self.ref = self.next_index = self.next_ref = None

    def start(self, step):
        self.index = self.index_of(step)
        self.ref = self.fetch(self.index)

    def index_of(self, step):
        index = tuple(
            self.window.transform(self.machine, *step, *self.prefetched)
        )
        if len(index) != len(self.window.bounds):
            raise EvaluatorError(
                f"an index of every dimension, found {index} for {self.name}"
            )
        blocks = [
            math.ceil(dim / bound)
            for dim, bound in zip(self.array.shape, self.window.bounds)
        ]
        if any(not 0 <= i < n for i, n in zip(index, blocks)):
            raise EvaluatorError(
                f"a block inside {tuple(blocks)}, found {index} at step "
                f"{step} for {self.name}"
            )
        return index

    def boxes(self, index):
        """The box of a block in the array, and the same part in the window."""
        far, near = [], []
        for i, bound, dim in zip(index, self.window.bounds, self.array.shape):
            start = i * bound
            size = min(bound, dim - start)
            far.append(slice(start, start + size))
            near.append(slice(0, size))
        return tuple(far), tuple(near)

    def fetch(self, index):
        ref = self.machine.fresh(self.window.kind, self.name)
        if self.is_output:
            return ref
        far, near = self.boxes(index)
        ref.data[near] = self.array[far]
        ref.unwritten = self.machine.array(ref.data, "", "").unwritten
        ref.writable = False
        return ref

    def fetch_ahead(self, after):
        self.next_index = self.next_ref = None
        if after is None:
            return
        self.next_index = self.index_of(after)
        ahead = not self.is_output and not self.window.is_synchronous
        if ahead and self.next_index != self.index:
            self.next_ref = self.fetch(self.next_index)

    def write_back(self, after):
        if self.next_index == self.index:
            return
        self.machine.check_quiet(self.ref, "its window moves on")
        if self.is_output:
            far, near = self.boxes(self.index)
            self.machine.check_quiet(
                self.machine.array(self.array[far], "any", self.name),
                "its block is written back",
            )
            self.array[far] = self.ref.data[near]

    def advance(self):
        if self.next_index in (None, self.index):
            return
        self.ref = self.next_ref or self.fetch(self.next_index)
        self.index = self.next_index
