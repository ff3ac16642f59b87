"""`tessera.jax.attention` for a TPU, on numbers and with no TPU: its kernels' text
is evaluated in NumPy on what the program passes to them (tests/mosaic)."""

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
    """Whether this JAX parses our kernels: JAX 0.6 knows Mosaic up to version 4."""
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


def with_other_list(batch, name):
    """The arrays with one change: the list's first step names a tile far away."""
    at = sum(batch.static.names(), ()).index(name)
    steps = batch.arrays[at].copy()
    steps[0] ^= 1 << 29
    return tessera.jax.BatchArrays(
        batch.static, [*batch.arrays[:at], steps, *batch.arrays[at + 1:]])


@pytest.mark.parametrize("chunk", [None, 128])
def test_a_list_that_is_another_is_not_run(monkeypatch, chunk):
    """Memory that no kernel writes is set to 0 here, so NaN is from the guard."""
    launch = tessera.jax._tpu._launch
    monkeypatch.setattr(tessera.jax._tpu, "_launch", lambda *words: tuple(
        jnp.where(jnp.isnan(x), 0, x) for x in launch(*words)))
    rng = np.random.default_rng(0)
    ids = np.sort(rng.integers(0, 4, LENGTH)).astype(np.int32)
    planned = ts.plan(ts.causal & ts.documents, q_len=LENGTH, doc_ids=ids,
                      tile=(128, 128))
    plain, own = (tessera.jax.arrays_for(
        planned, "tpu", lowering_reason="few tokens", query_chunk=chunk,
        checked=checked) for checked in (False, True))
    draw = lambda heads: rng.standard_normal((1, heads, LENGTH, DIM), np.float32)
    q, k, v, dout = draw(HEADS), draw(KV_HEADS), draw(KV_HEADS), draw(HEADS)
    sinks = rng.standard_normal(HEADS).astype(np.float32)
    dlse = rng.standard_normal(q.shape[:3]).astype(np.float32)
    attend = lambda batch, *args: tessera.jax.attention(
        *args[:3], batch, sink_logits=args[3], return_lse=True)

    def forward(batch):
        return jax.vjp(functools.partial(attend, batch), q, k, v, sinks)

    def run(batch):
        results, pull = forward(batch)
        return [np.asarray(x) for x in (*results, *pull((dout, dlse)))]

    due = run(plain)
    assert not any(np.isnan(x).any() for x in due)
    for x, y in zip(due, run(own)):
        assert x.tobytes() == y.tobytes()
    # No step ran.
    (out, lse), _ = forward(with_other_list(own, "forward_steps"))
    out, lse = np.asarray(out), np.asarray(lse)
    assert np.isnan(lse).all() and np.isnan(out[:, :, 0]).all()
    assert (out[:, :, 1:] == 0).all()
    *results, dq, dk, dv, dsinks = run(with_other_list(own, "backward_steps"))
    for x, y in zip(due, results):
        assert x.tobytes() == y.tobytes()
    for x in (dq, dk, dv):
        assert np.isnan(x[:, :, 0]).all() and (x[:, :, 1:] == 0).all()
    assert np.isnan(dsinks).all()
    # Without the check the wrong step is evaluated, which is an error.
    with pytest.raises(EvaluatorError):
        forward(with_other_list(plain, "forward_steps"))
