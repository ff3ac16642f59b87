"""`tessera.jax` with sharded arguments and no `shard_map`: each device computes
its own rows and heads, or the program is refused."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import judge
import numpy as np
import oracle
import pytest
import tessera as ts
import tessera.jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax_versions import shard_map

BATCH, LENGTH = 4, 64
MASK = ts.causal & ts.documents
TUPLE = ("and", ("causal",), ("documents",))
COLLECTIVES = ("all-gather", "all-to-all", "collective-permute", "all-reduce")


def mesh():
    return Mesh(np.array(jax.devices()).reshape(2, 2), ("d", "h"))


def case(seed, heads=4, kv_heads=2):
    """A batch whose rows have their own documents and valid counts."""
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.integers(0, 5, (BATCH, LENGTH))).astype(np.int32)
    counts = np.array([LENGTH, 40, 9, LENGTH], np.int32)
    batch = ts.plan(MASK, q_len=LENGTH, batch=BATCH, doc_ids=ids,
                    valid_token_counts=counts, tile=(16, 16), max_steps=64)
    legal = np.stack([oracle.legal(TUPLE, LENGTH, LENGTH, i, count=c)
                      for i, c in zip(ids, counts)])
    shape = lambda h: (BATCH, h, LENGTH, 8)
    q, k, v = (rng.standard_normal(shape(h), np.float32)
               for h in (heads, kv_heads, kv_heads))
    return batch, legal, q, k, v, rng


def put(x, *spec):
    return jax.device_put(x, NamedSharding(mesh(), P(*spec)))


def test_rows_and_heads_are_each_devices_own():
    for seed, (spec, kv_heads) in enumerate([
            (("d",), 2), (("d", "h"), 2), ((("d", "h"),), 4),
            ((None, ("d", "h")), 4), (("d", "h"), 1)]):
        batch, legal, q, k, v, rng = case(seed, kv_heads=kv_heads)
        sinks = rng.standard_normal(4).astype(np.float32)
        dout = rng.standard_normal(q.shape).astype(np.float32)
        dlse = rng.standard_normal(q.shape[:3]).astype(np.float32)
        want = judge.attention(q, k, v, legal, sinks=sinks, dout=dout, dlse=dlse)
        own = spec if kv_heads > 1 else (spec[0],)

        @jax.jit
        def forward(q, k, v, sinks, batch):
            return tessera.jax.attention(q, k, v, batch, sink_logits=sinks,
                                         return_lse=True)

        def loss(q, k, v, sinks, batch):
            out, lse = forward(q, k, v, sinks, batch)
            return (out * dout).sum() + (lse * dlse).sum()

        args = (put(q, *spec), put(k, *own), put(v, *own), sinks, batch)
        text = forward.lower(*args).compile().as_text()
        assert not any(c in text for c in COLLECTIVES), spec
        out, lse = forward(*args)
        assert out.sharding.spec == P(*spec)
        judge.check_all((out, lse), want[:2])
        # The same outside of jit.
        eager = tessera.jax.attention(*args[:3], batch, sink_logits=sinks)
        assert eager.sharding.spec == P(*spec) and (eager == out).all()
        grads = jax.jit(jax.grad(loss, (0, 1, 2, 3)))(*args)
        judge.check_all((out, lse, *grads), want)
        assert grads[0].sharding.spec == P(*spec)


def test_tokens_first():
    batch, legal, q, k, v, _ = case(11)
    turn = lambda x: np.ascontiguousarray(x.swapaxes(1, 2))
    args = [put(turn(x), "d", None, "h") for x in (q, k, v)]
    call = jax.jit(lambda q, k, v, batch: tessera.jax.attention(
        q, k, v, batch, layout="bshd"))
    text = call.lower(*args, batch).compile().as_text()
    assert not any(c in text for c in COLLECTIVES)
    judge.check(np.asarray(call(*args, batch)).swapaxes(1, 2),
                judge.attention(q, k, v, legal)[0])


def test_projections_by_heads_need_no_gather():
    batch, legal, _, k, v, rng = case(12)
    x = rng.standard_normal((BATCH, LENGTH, 16)).astype(np.float32)
    w = rng.standard_normal((16, 4 * 8)).astype(np.float32)

    @jax.jit
    def layer(x, w, k, v, batch):
        q = (x @ w).reshape(BATCH, LENGTH, 4, 8).swapaxes(1, 2)
        return q, tessera.jax.attention(q, k, v, batch)

    args = (put(x, "d"), put(w, None, "h"), k, v, batch)
    q, out = layer(*args)
    judge.check(out, judge.attention(np.asarray(q), k, v, legal)[0])
    assert out.sharding.spec == P("d", "h")
    assert "all-gather" not in layer.lower(*args).compile().as_text()


def test_a_mapped_axis_is_divided_too():
    batches, legal, q, k, v, _ = zip(*(case(seed) for seed in range(20, 24)))
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches)
    q, k, v = (np.stack(x) for x in (q, k, v))
    call = jax.jit(jax.vmap(tessera.jax.attention))
    args = [put(x, "d", None, "h") for x in (q, k, v)]
    out = call(*args, stacked)
    assert out.sharding.spec == P("d", None, "h")
    text = call.lower(*args, stacked).compile().as_text()
    assert not any(c in text for c in COLLECTIVES)
    for i in range(4):
        judge.check(out[i], judge.attention(q[i], k[i], v[i], legal[i])[0])


def test_what_would_be_gathered_is_refused():
    batch, _, q, k, v, _ = case(30)
    attend = tessera.jax.attention
    by_head = ts.plan([MASK, ts.causal] * 2, q_len=LENGTH, batch=BATCH,
                      doc_ids=batch.facts["doc_ids"], tile=(16, 16))
    heads = (put(q, None, "h"), put(k, None, "h"), put(v, None, "h"))
    many = (put(q, None, ("d", "h")), k, v)
    for args, words in [
            ((put(q, None, None, "h"), k, v, batch), "batch rows and heads alone"),
            ((q, put(k, None, None, "d"), put(v, "d"), batch), r"found k \[.*\] as P"),
            ((put(q, None, "h"), put(k, None, "d"), v, batch), "alone|multiple"),
            ((put(q, None, None, None, "h"), k, v, batch), "alone"),
            ((*many, batch), "kv_heads must be a multiple .* 2 for 4"),
            ((*heads, by_head), "heads must share one list")]:
        for call in (jax.jit(attend), attend):
            with pytest.raises(jax.errors.JaxRuntimeError, match=words) as e:
                jax.block_until_ready(call(*args))
            assert "TesseraError: [jax] " in str(e.value)
    # In shard_map the program has no custom partitioning.
    one = jax.jit(shard_map(
        attend, mesh=mesh(), in_specs=(P(None, "h"),) * 3 + (P(),),
        out_specs=P(None, "h")))
    assert "CustomSPMD" not in one.lower(q, k, v, batch).as_text()
