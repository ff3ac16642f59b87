"""Small Mosaic modules from their body's text, for tests."""

from kernel import Kernel

SPACE = "#tpu.memory_space<{}>"


def ref(shape, space):
    """A memref type: ref("8x128xf32", "vmem")."""
    return f"memref<{shape}, {SPACE.format(space)}>"


def module(arguments, body, scratch=0, prefetch=0, grid=None, others=""):
    """The text of a kernel. `arguments`: (name, type); `grid`: (bounds,
    window_params)."""
    listed = ", ".join(f"%{name}: {kind}" for name, kind in arguments)
    extra, semantics = "", ""
    if grid:
        bounds, windows = grid
        one = "#tpu.dimension_semantics<arbitrary>"
        semantics = ", ".join([one] * len(bounds))
        extra = (
            f", iteration_bounds = array<i64: {', '.join(map(str, bounds))}>"
            f", window_params = [{', '.join(windows)}]"
        )
    return f"""module {{
      func.func @main({listed}) attributes {{
        dimension_semantics = [{semantics}], scalar_prefetch = {prefetch} : i64,
        scratch_operands = {scratch} : i64,
        tpu.core_type = #tpu.core_type<tc>{extra}}} {{
        {body}
        return
      }}
      {others}
    }}"""


def load(*arguments, **options):
    return Kernel(module(*arguments, **options))


def window(function, bounds, extra=""):
    sizes = ", ".join(map(str, bounds))
    return (
        f"{{transform_indices = @{function}, "
        f"window_bounds = array<i64: {sizes}>{extra}}}"
    )
