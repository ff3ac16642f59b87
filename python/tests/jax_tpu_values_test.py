"""`tessera.jax.attention` on a TPU on numbers, with no TPU: what it hands to its
kernels goes to their text, evaluated in NumPy (tests/mosaic)."""

import functools
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[2] / "tests/mosaic"))

import jax
import jax.numpy as jnp
import judge
import mlir_module
import numpy as np
import oracle
import pytest
import tessera as ts
import tessera.jax
from errors import EvaluatorError
from program import Program

HEADS, KV_HEADS, DIM, LENGTH = 4, 2, 64, 200
TUPLE = ("and", ("causal",), ("documents",))


def parser_reads_kernels():
    """That of JAX 0.6 knows versions of Mosaic up to 4."""
    with mlir_module.context():
        try:
            mlir_module.parse(
                "module attributes {stable_mosaic.version = 11 : i64} {}")
        except EvaluatorError:
            return False
    return True


pytestmark = pytest.mark.skipif(
    not parser_reads_kernels(),
    reason=f"the parser of jax {jax.__version__} does not read our kernels")


@pytest.fixture(autouse=True)
def kernels_are_evaluated(monkeypatch):
    program = functools.cache(lambda kernel: Program(kernel.program_text))

    def launch(kernel, results, args):
        made = program(kernel).run([np.asarray(x) for x in args])
        kept = kernel.kept_shapes
        assert [x.shape for x in made] + kept == [x.shape for x in results]
        return (*map(jnp.asarray, made), *map(jnp.zeros, kept))

    monkeypatch.setattr(tessera.jax._tpu, "_launch", launch)
    monkeypatch.setattr(tessera.jax, "_run", tessera.jax._tpu.attend)


@pytest.mark.parametrize("softcap, chunk", [(0.0, None), (5.0, None),
                                            (5.0, 128)])
def test_both_layouts_are_the_oracles_bit_for_bit(softcap, chunk):
    rng = np.random.default_rng(0)
    ids = np.sort(rng.integers(0, 4, LENGTH)).astype(np.int32)
    batch = tessera.jax.arrays_for(
        ts.plan(ts.causal & ts.documents, q_len=LENGTH, doc_ids=ids,
                tile=(128, 128)), "tpu", lowering_reason="few tokens",
        query_chunk=chunk)
    draw = lambda heads: rng.standard_normal((1, heads, LENGTH, DIM), np.float32)
    q, k, v, dout = draw(HEADS), draw(KV_HEADS), draw(KV_HEADS), draw(HEADS)
    sinks = rng.standard_normal(HEADS).astype(np.float32)
    dlse = rng.standard_normal(q.shape[:3]).astype(np.float32)
    found = {}
    for layout, turn in (("bhsd", lambda x: x),
                         ("bshd", lambda x: x.swapaxes(1, 2))):
        call = lambda q, k, v, sinks: tessera.jax.attention(
            q, k, v, batch, layout=layout, softcap=softcap, sink_logits=sinks,
            return_lse=True)
        (out, lse), pull = jax.vjp(call, turn(q), turn(k), turn(v), sinks)
        *grads, dsinks = pull((turn(dout), dlse))
        assert [x.shape for x in (out, *grads)] == [
            turn(x).shape for x in (q, q, k, v)]
        found[layout] = [np.asarray(x) for x in (
            turn(out), lse, *map(turn, grads), dsinks)]
    legal = oracle.legal(TUPLE, LENGTH, LENGTH, ids)[None]
    judge.check_all(found["bhsd"], judge.attention(
        q, k, v, legal, softcap=softcap, sinks=sinks, dout=dout, dlse=dlse))
    for one, other in zip(*found.values()):
        assert one.tobytes() == other.tobytes()
