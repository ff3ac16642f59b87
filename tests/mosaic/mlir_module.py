"""jaxlib's parser, verifier and deserialiser for Mosaic modules.

A body has `stable_mosaic.*` operations, which are opaque to MLIR. jaxlib's pass
`mosaic-serde` turns them into operations of the real dialects, which can be
verified.
"""

import base64
import contextlib
import json

from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib import tpu
from jaxlib.mlir import ir
from jaxlib.mlir.passmanager import PassManager

from errors import EvaluatorError


@contextlib.contextmanager
def context():
    """A context that knows the dialects of both programs and kernels."""
    with jax_mlir.make_ir_context() as ctx:
        tpu.register_dialect(ctx)
        # stable_mosaic.* has no registered dialect before it is deserialised.
        ctx.allow_unregistered_dialects = True
        with ir.Location.unknown():
            yield ctx


def parse(body):
    """A module, from text or bytecode, deserialised and verified."""
    try:
        module = ir.Module.parse(body)
        version = "stable_mosaic.version"
        if version in module.operation.attributes:
            PassManager.parse(
                "builtin.module(mosaic-serde{serialize=false})"
            ).run(module.operation)
            del module.operation.attributes[version]
    except ir.MLIRError as error:
        raise EvaluatorError(
            f"a module that jaxlib parses, found {one_line(error)}"
        ) from error
    verify(module)
    return module


def one_line(error):
    return " ".join(str(error).split())


def verify(module):
    try:
        ok = module.operation.verify()
    except ir.MLIRError as error:
        raise EvaluatorError(
            f"a module that jaxlib verifies, found {one_line(error)}"
        ) from error
    if not ok:
        raise EvaluatorError("a module that jaxlib verifies, found otherwise")


def text_of(module):
    """Text that parses back to the same module."""
    return module.operation.get_asm(print_generic_op_form=True)


def body_of(backend_config):
    """The Mosaic module in a backend config: bytes of text or bytecode."""
    try:
        config = json.loads(backend_config)["custom_call_config"]
        body = base64.b64decode(config["body"], validate=True)
    except (ValueError, KeyError, TypeError) as error:
        raise EvaluatorError(
            f"a backend config with a body in base64, found {error!r}"
        ) from error
    # Without these passes the body has layouts, which are not evaluated here.
    if not config.get("needs_layout_passes", False):
        raise EvaluatorError("needs_layout_passes is true, found otherwise")
    return body
