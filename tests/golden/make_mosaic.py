#!/usr/bin/env python3
"""Writes tests/golden/mosaic/: StableHLO programs around one Mosaic kernel.

The kernel is text in base64, as libtpu takes it. One program compiles, one has
a type error in the kernel, one needs more scalar memory than a core has.
"""
import base64
import json
import pathlib

WINDOW = "memref<8x128xf32, #tpu.memory_space<vmem>>"
VECTOR = "vector<8x128xf32>"
ARRAY = "tensor<8x128xf32>"


def kernel(scalars="", result=VECTOR):
    """A kernel that doubles an array. `scalars` is the type of a further
    operand."""
    first = f"%s: {scalars}, " if scalars else ""
    types = ", ".join(([scalars] if scalars else []) + [WINDOW, WINDOW])
    return f"""module attributes {{stable_mosaic.version = 11 : i64}} {{
  "stable_mosaic.func.func"() ({{
  ^bb0({first}%x: {WINDOW}, %y: {WINDOW}):
    %c0 = "stable_mosaic.arith.constant"() {{value = 0 : index}} : () -> index
    %v = "stable_mosaic.vector.load"(%x, %c0, %c0)
        : ({WINDOW}, index, index) -> {VECTOR}
    %d = "stable_mosaic.arith.addf"(%v, %v)
        {{fastmath = #arith.fastmath<none>}} : ({VECTOR}, {VECTOR}) -> {result}
    "stable_mosaic.tpu.vector_store"(%d, %y, %c0, %c0)
        {{operandSegmentSizes = array<i32: 1, 1, 2, 0>, strides = array<i32>}}
        : ({VECTOR}, {WINDOW}, index, index) -> ()
    "stable_mosaic.func.return"() : () -> ()
  }}) {{function_type = ({types}) -> (), sym_name = "main",
      dimension_semantics = []}} : () -> ()
}}
"""


def program(text, operands):
    body = base64.b64encode(text.encode()).decode()
    config = {
        "custom_call_config": {
            "body": body,
            "serialization_format": 1,
            "needs_layout_passes": True,
        }
    }
    config = json.dumps(config).replace('"', "\\22")
    names = ", ".join(f"%a{i}" for i in range(len(operands)))
    arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(operands))
    return f"""module @double {{
  func.func @main({arguments}) -> {ARRAY} {{
    %0 = stablehlo.custom_call @tpu_custom_call({names})
        {{backend_config = "{config}"}} : ({", ".join(operands)}) -> {ARRAY}
    return %0 : {ARRAY}
  }}
}}
"""


def main():
    folder = pathlib.Path(__file__).parent / "mosaic"
    scalars = "memref<2048x128xi32, #tpu.memory_space<smem>>"
    for name, text in {
        "double": program(kernel(), [ARRAY]),
        "wrong_type": program(kernel(result="vector<8x64xf32>"), [ARRAY]),
        "scalar_memory": program(
            kernel(scalars), ["tensor<2048x128xi32>", ARRAY]
        ),
    }.items():
        (folder / f"{name}.mlir").write_text(text)


if __name__ == "__main__":
    main()
