"""`tessera.jax` on the CPU against the NumPy oracle, under JAX's transforms."""

import functools
import os
import resource
import threading

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import finite_differences
import jax
import jax.numpy as jnp
import judge
import numpy as np
import oracle
import pytest
import tessera as ts
import tessera.data
import tessera.jax
from column_sets import column_sets
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jax_versions import shard_map

LENGTH = 96
# Which class is raised depends on whether JAX runs the program at once.
REFUSED = (ValueError, jax.errors.JaxRuntimeError)
MASK = ts.causal & ts.window(20, 0) & ts.documents
TUPLE = ("and", ("causal",), ("window", 20, 0), ("documents",))


def ids_of(rng, length=LENGTH):
    return np.sort(rng.integers(0, 6, length)).astype(np.int32)


def planned(ids, mask=MASK, **more):
    return ts.plan(mask, q_len=LENGTH, doc_ids=ids, tile=(16, 16),
                   max_steps=64, **more)


def legal(ids, batch=1, mask=TUPLE):
    return np.repeat(oracle.legal(mask, LENGTH, LENGTH, ids)[None], batch, 0)


def arrays(rng, batch=1, heads=4, kv_heads=2, dim=8, dtype=np.float32):
    shape = lambda h: (batch, h, LENGTH, dim)
    return tuple(rng.standard_normal(shape(h), np.float32).astype(dtype)
                 for h in (heads, kv_heads, kv_heads))


def test_one_trace_and_one_compile_for_100_batches():
    rng = np.random.default_rng(0)
    traced = []

    @jax.jit
    def f(q, k, v, batch):
        traced.append(1)
        return tessera.jax.attention(q, k, v, batch, return_lse=True)

    q, k, v = arrays(rng)
    seen = set()
    for _ in range(100):
        ids = ids_of(rng)
        batch = planned(ids)
        seen.add(ids.tobytes())
        out, lse = f(q, k, v, batch)
        judge.check_all((out, lse), judge.attention(q, k, v, legal(ids)))
    assert len(seen) == 100
    assert len(traced) == 1 and f._cache_size() == 1
    # Exact window bounds are arguments: 20 and 25 have one class.
    out, _ = f(q, k, v, planned(ids, ts.causal & ts.window(25, 0) & ts.documents))
    wider = ("and", ("causal",), ("window", 25, 0), ("documents",))
    judge.check(out, judge.attention(q, k, v, legal(ids, mask=wider))[0])
    assert len(traced) == 1 and f._cache_size() == 1
    # Another mask needs another program.
    f(q, k, v, planned(ids, ts.causal & ts.documents))
    assert len(traced) == 2


def test_one_compile_over_data_sets_with_and_without_each_column():
    """One step that reads all columns serves data sets that lack some."""
    traced, forms, given = [], set(), {}

    @jax.jit
    def step(columns, batch):
        traced.append(1)
        q = columns["input_ids"].astype(jnp.float32)[:, None, :, None] + jnp.zeros(
            8, jnp.float32)
        out = tessera.jax.attention(q, q, q, batch)
        return out.sum(), {name: x.sum() for name, x in columns.items()}

    for called, documents in column_sets(longest=LENGTH):
        for b in tessera.data.Loader(documents, tokens=LENGTH, rows=2, tile=(16, 16),
                                     max_steps=256, max_width=16):
            columns = {k: v for k, v in b.items() if isinstance(v, np.ndarray)}
            forms.add(tuple((k, v.shape, v.dtype) for k, v in columns.items()))
            _, sums = step(columns, b["batch"])
            for name, x in columns.items():
                assert sums[name] == x.sum(), (called, name)
                given.setdefault(name, set()).add(bool(x.any()))
    assert len(forms) == len(traced) == step._cache_size() == 1
    # Each optional column was all padding in some batch, and not in another.
    assert all(given[name] == {False, True} for name in (
        "structure_ids", "dep_levels", "ast_depth", "sibling_index", "node_type",
        "num_chunks", "chunk_kinds", "num_call_edges", "num_type_edges"))


def test_without_ceilings_there_is_one_trace_and_one_compile_a_bucket():
    rng = np.random.default_rng(18)
    traced = []

    @jax.jit
    def f(q, k, v, batch):
        traced.append(1)
        return tessera.jax.attention(q, k, v, batch)

    q, k, v = arrays(rng)
    contracts, steps, worklists = set(), set(), set()
    for i in range(100):
        # One document up to almost one for each token: worklists of many sizes.
        ids = np.sort(rng.integers(0, 1 + i, LENGTH)).astype(np.int32)
        batch = ts.plan(ts.causal & ts.documents, q_len=LENGTH, doc_ids=ids,
                        tile=(8, 8))
        leaves, tree = jax.tree.flatten(batch)
        contracts.add((tree, tuple(x.shape for x in leaves)))
        steps.add(batch.contract.steps)
        worklists.add(len(batch.forward))
        judge.check(f(q, k, v, batch), judge.attention(q, k, v, legal(
            ids, mask=("and", ("causal",), ("documents",))))[0])
    # Buckets are 2^k and 1.5 * 2^k.
    assert len(worklists) > len(steps) > 2
    assert all(bin(n).count("1") <= 2 for n in steps)
    assert len(traced) == f._cache_size() == len(contracts) == len(steps)


@pytest.mark.parametrize("softcap", [0.0, 5.0])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_gradients_are_finite_differences(layout, softcap):
    rng = np.random.default_rng(20)
    ids = ids_of(rng)
    batch = planned(ids)
    turn = lambda x: x if layout == "bhsd" else x.swapaxes(1, 2)
    given, weights = finite_differences.drawn(rng, LENGTH)

    @jax.jit
    def results(q, k, v, sinks):
        out, lse = tessera.jax.attention(
            turn(q), turn(k), turn(v), batch, sink_logits=sinks,
            softcap=softcap, layout=layout, return_lse=True)
        return turn(out), lse

    def loss(*arrays):
        return sum((x * w).sum() for x, w in zip(results(*arrays), weights))

    judged = lambda q, k, v, sinks: judge.attention(
        q, k, v, legal(ids), softcap=softcap, sinks=sinks)
    finite_differences.check(results, judged, jax.grad(loss, (0, 1, 2, 3)), given,
                             weights)


def test_eight_threads_get_the_bits_of_one():
    rng = np.random.default_rng(19)

    def loss(q, k, v, batch):
        out, lse = tessera.jax.attention(q, k, v, batch, return_lse=True)
        return (out ** 2).sum() + lse.sum(where=jnp.isfinite(lse)), (out, lse)

    step = jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))
    # Eight different batches for one program.
    inputs = [(*arrays(rng), planned(ids_of(rng))) for _ in range(8)]
    bits = lambda found: [np.asarray(x).tobytes()
                          for x in jax.tree.leaves(found)]
    want = [bits(step(*one)) for one in inputs]
    assert len({w[1] for w in want}) == 8  # outputs differ
    together, wrong = threading.Barrier(8), []

    def work(number):
        together.wait()
        for turn in range(25):
            at = (number + turn) % 8
            try:
                if bits(step(*inputs[at])) != want[at]:
                    wrong.append(at)
            except Exception as e:
                wrong.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong
    assert step._cache_size() == 1


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("softcap", [0.0, 5.0])
def test_gradients(layout, softcap):
    rng = np.random.default_rng(1)
    ids = ids_of(rng)
    batch = planned(ids)
    q, k, v = arrays(rng)
    sinks = rng.standard_normal(4).astype(np.float32)
    dout = rng.standard_normal(q.shape).astype(np.float32)
    dlse = rng.standard_normal(q.shape[:3]).astype(np.float32)
    turn = (lambda x: x) if layout == "bhsd" else (lambda x: x.swapaxes(1, 2))

    def loss(q, k, v, sinks, batch):
        out, lse = tessera.jax.attention(
            turn(q), turn(k), turn(v), batch, sink_logits=sinks,
            softcap=softcap, layout=layout, return_lse=True)
        return (turn(out) * dout).sum() + (lse * dlse).sum()

    got = jax.jit(jax.grad(loss, (0, 1, 2, 3)))(q, k, v, sinks, batch)
    judge.check_all(got, judge.attention(
        q, k, v, legal(ids), softcap=softcap, sinks=sinks, dout=dout,
        dlse=dlse))


def check_gradients_of_the_square(seed):
    """Checks gradients; returns the ids, the batch and the arrays."""
    rng = np.random.default_rng(seed)
    ids = ids_of(rng)
    batch = planned(ids)
    q, k, v = arrays(rng)
    loss = lambda q, k, v: (tessera.jax.attention(q, k, v, batch) ** 2).sum()
    grads = jax.grad(loss, (0, 1, 2))(q, k, v)
    judge.check_grads_of_square(grads, q, k, v, legal(ids))
    return ids, batch, q, k, v


def test_gradients_of_a_loss_of_the_output():
    check_gradients_of_the_square(2)


def test_without_jit():
    with jax.disable_jit():
        ids, batch, q, k, v = check_gradients_of_the_square(21)
        many = jax.vmap(lambda q: tessera.jax.attention(q, k, v, batch))(
            np.stack([q, -q]))
    for x, out in zip((q, -q), many):
        judge.check(out, judge.attention(x, k, v, legal(ids))[0])


def test_a_program_that_is_compiled_ahead():
    rng = np.random.default_rng(22)
    q, k, v = arrays(rng)
    moved = [jax.device_put(planned(ids_of(rng))) for _ in range(2)]
    program = jax.jit(tessera.jax.attention).lower(q, k, v, moved[0]).compile()
    for batch in moved:
        assert (program(q, k, v, batch) ==
                tessera.jax.attention(q, k, v, batch)).all()


def test_a_program_that_is_compiled_ahead_takes_no_other_contract():
    q, k, v = arrays(np.random.default_rng(22))
    of = lambda steps: ts.plan(ts.causal, q_len=LENGTH, tile=(16, 16),
                               max_steps=steps)
    program = jax.jit(tessera.jax.attention).lower(
        q, k, v, jax.device_put(of(64))).compile()
    with pytest.raises(TypeError, match="steps=64.* now given .*steps=128"):
        program(q, k, v, jax.device_put(of(128)))
    with pytest.raises(TypeError, match="input pytree does not match"):
        program(q, k, v, of(64))


@pytest.mark.parametrize("around", [lambda f: f, jax.jit, jax.checkpoint])
def test_forward_mode_and_second_gradients_are_refused(around):
    rng = np.random.default_rng(24)
    batch = planned(ids_of(rng))
    q, k, v = arrays(rng)
    of = around(lambda *x: (tessera.jax.attention(*x, batch) ** 2).sum())
    tangent = lambda at: jax.jvp(
        lambda x: of(*(x if i == at else y for i, y in enumerate((q, k, v)))),
        ((q, k, v)[at],), ((q, k, v)[at],))
    slope = jax.grad(of)
    forward = r"^\[jax\] attention must be .* backward .* found forward mode"
    again = r"^\[jax\] attention must be .* once, found a gradient of its"
    for words, call in [
            *((forward, functools.partial(tangent, at)) for at in range(3)),
            (forward, lambda: jax.jit(tangent, static_argnums=0)(0)),
            (forward, lambda: jax.linearize(of, q, k, v)[1](q, k, v)),
            (forward, lambda: jax.hessian(of)(q, k, v)),
            (forward, lambda: jax.jvp(slope, (q, k, v), (q, k, v))),
            (again, lambda: jax.grad(lambda q: slope(q, k, v).sum())(q)),
            (again, lambda: jax.jit(jax.grad(
                lambda v: slope(q, k, v).sum()))(v))]:
        with pytest.raises(ts.TesseraError, match=words) as e:
            call()
        assert "\n" not in str(e.value)


def test_scale_and_softcap_are_numbers_of_the_program():
    rng = np.random.default_rng(26)
    batch = planned(ids_of(rng))
    q, k, v = arrays(rng)
    by = lambda name: lambda x: tessera.jax.attention(
        q, k, v, batch, **{name: x}).sum()
    for name in ("scale", "softcap"):
        for call in (lambda: jax.jit(by(name))(0.5),
                     lambda: jax.grad(by(name))(0.5),
                     lambda: by(name)("half"), lambda: by(name)([0.5])):
            with pytest.raises(ts.TesseraError,
                               match="^.jax. scale and softcap must be numbers"):
                call()
    assert by("scale")(jnp.float32(0.5)) == by("scale")(0.5)


def test_what_gradients_keep_is_the_arguments_themselves():
    rng = np.random.default_rng(25)
    batch = planned(ids_of(rng))
    tensors = [jnp.asarray(x) for x in arrays(rng)]
    _, back = jax.vjp(jax.jit(lambda *x: tessera.jax.attention(*x, batch)),
                      *tensors)
    kept = jax.tree.leaves(back)
    assert all(any(x is y for y in kept) for x in tensors)


def test_vmap_over_arrays_and_over_batches():
    rng = np.random.default_rng(3)
    many = [ids_of(rng) for _ in range(3)]
    batches = [planned(ids) for ids in many]
    q, k, v = (np.stack(x) for x in zip(*(arrays(rng) for _ in many)))
    out = jax.jit(jax.vmap(tessera.jax.attention, (0, 0, 0, None)))(
        q, k, v, batches[0])
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches)
    each = jax.jit(jax.vmap(tessera.jax.attention))(q, k, v, stacked)
    for i, ids in enumerate(many):
        for got, of in ((out, many[0]), (each, ids)):
            judge.check(got[i], judge.attention(q[i], k[i], v[i], legal(of))[0])
    grads = jax.grad(lambda *x: (jax.vmap(tessera.jax.attention)(
        *x, stacked) ** 2).sum(), (0, 1, 2))(q, k, v)
    for i, ids in enumerate(many):
        judge.check_grads_of_square([g[i] for g in grads], q[i], k[i], v[i],
                                    legal(ids))


def test_scan_over_layers_and_over_batches():
    rng = np.random.default_rng(4)
    many = [ids_of(rng) for _ in range(3)]
    batches = [planned(ids) for ids in many]
    q, k, v = arrays(rng)

    @jax.jit
    def layers(q, k, v, batch):
        def layer(x, _):
            x = tessera.jax.attention(x, k, v, batch)
            return x, x
        return jax.lax.scan(jax.checkpoint(layer), q, None, length=3)[1]

    outs = layers(q, k, v, batches[0])
    for x, out in zip((q, *np.asarray(outs)), outs):
        judge.check(out, judge.attention(x, k, v, legal(many[0]))[0])
    grad = jax.grad(lambda q: layers(q, k, v, batches[0])[-1].sum())(q)
    assert bool(jnp.isfinite(grad).all())

    stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches)
    outs = jax.lax.scan(
        lambda c, b: (c, tessera.jax.attention(q, k, v, b)), 0, stacked)[1]
    for i, ids in enumerate(many):
        judge.check(outs[i], judge.attention(q, k, v, legal(ids))[0])


def test_equal_ceilings_give_equal_trees_and_facts_come_from_jax():
    rng = np.random.default_rng(14)
    one, other = ids_of(rng), ids_of(rng)
    batches = planned(one), planned(jnp.asarray(other))
    assert batches[1] == planned(other) != batches[0]
    assert jax.tree.structure(batches[0]) == jax.tree.structure(batches[1])
    shapes = [jax.tree.map(lambda x: (x.shape, x.dtype), b) for b in batches]
    assert jax.tree.leaves(shapes[0]) == jax.tree.leaves(shapes[1])
    with pytest.raises(ts.TesseraError, match="doc_ids must be int32"):
        planned(jnp.asarray(other, jnp.float32))


def test_an_exported_program_takes_other_batches():
    export = pytest.importorskip("jax.export")  # an old one needs absl
    rng = np.random.default_rng(15)
    q, k, v = arrays(rng)
    call = jax.jit(lambda q, k, v, *arrays: tessera.jax.attention(
        q, k, v, jax.tree.unflatten(tree, arrays)))
    ids = ids_of(rng)
    leaves, tree = jax.tree.flatten(planned(ids))
    checks = [export.DisabledSafetyCheck.custom_call(name)
              for name in ("tessera_forward", "tessera_backward")]
    made = export.export(call, disabled_checks=checks)(q, k, v, *leaves)
    made = export.deserialize(made.serialize())
    for ids in (ids, ids_of(rng)):
        out = jax.jit(made.call)(q, k, v, *jax.tree.leaves(planned(ids)))
        judge.check(out, judge.attention(q, k, v, legal(ids))[0])


def test_short_floats_and_batch_rows():
    rng = np.random.default_rng(5)
    ids = np.stack([ids_of(rng), ids_of(rng)])
    counts = np.array([LENGTH, 50], np.int32)
    batch = ts.plan(MASK, q_len=LENGTH, batch=2, doc_ids=ids,
                    valid_token_counts=counts, tile=(16, 16))
    q, k, v = arrays(rng, batch=2, dtype=jnp.bfloat16)
    out = jax.jit(tessera.jax.attention)(q, k, v, batch)
    assert out.dtype == jnp.bfloat16
    mask = np.stack([oracle.legal(TUPLE, LENGTH, LENGTH, i, count=c)
                     for i, c in zip(ids, counts)])
    judge.check(out, judge.attention(q, k, v, mask)[0])
    assert (np.asarray(out[1, :, 50:]) == 0).all()


def test_decode_and_prefix():
    rng = np.random.default_rng(6)
    q = rng.standard_normal((2, 4, 1, 8), np.float32)
    k = rng.standard_normal((2, 2, LENGTH, 8), np.float32)
    where = np.array([30, 60], np.int32)
    batch = ts.plan(ts.causal | ts.prefix, q_len=1, kv_len=LENGTH, batch=2,
                    q_offset=where, prefix=[5, 70], tile=(8, 16))
    out = jax.jit(tessera.jax.attention)(q, k, k, batch)
    mask = np.stack([oracle.legal(("or", ("causal",), ("prefix",)), 1, LENGTH,
                                  prefix=p, offset=w)
                     for p, w in zip((5, 70), where)])
    judge.check(out, judge.attention(q, k, k, mask)[0])


def test_named_ids_are_arguments_of_one_program():
    rng = np.random.default_rng(17)
    q = rng.standard_normal((1, 4, LENGTH, 8), np.float32)
    k, v = rng.standard_normal((2, 1, 2, LENGTH, 8), np.float32)
    traces = []

    @jax.jit
    def call(q, k, v, batch):
        traces.append(1)
        return tessera.jax.attention(q, k, v, batch)

    for _ in range(3):
        groups = {name: np.repeat(rng.integers(-1, 3, LENGTH), 5)[:LENGTH]
                  .astype(np.int32) for name in "ab"}
        batch = ts.plan((ts.causal | ts.same("a")) & ~ts.same("b"),
                        q_len=LENGTH, same=groups, tile=(16, 16),
                        max_steps=1024)
        mask = oracle.legal(("and", ("or", ("causal",), ("same", "a")),
                             ("not", ("same", "b"))), LENGTH, LENGTH,
                            same=groups)
        judge.check(call(q, k, v, batch),
                    judge.attention(q, k, v, mask[None])[0])
    assert len(traces) == 1


def test_drafts_are_a_tree_behind_the_cache():
    rng = np.random.default_rng(16)
    # Two drafts of three tokens after the cache. The second row has one token
    # less.
    enter = np.tile(np.arange(LENGTH, dtype=np.int32), (2, 1))
    leave = np.full((2, LENGTH), LENGTH, np.int32)
    leave[:, -6:-3] = LENGTH - 3
    counts = np.array([LENGTH, LENGTH - 1], np.int32)
    q = rng.standard_normal((2, 4, 6, 8), np.float32)
    k, v = rng.standard_normal((2, 2, 2, LENGTH, 8), np.float32)
    batch = ts.plan(ts.tree, q_len=6, kv_len=LENGTH, batch=2, tree_enter=enter,
                    tree_leave=leave, valid_token_counts=counts, tile=(8, 16))
    mask = np.stack([oracle.legal(("tree",), 6, LENGTH, count=counts[b],
                                  tree=(enter[b], leave[b]))
                     for b in range(2)])
    assert not mask[0, 3, -4] and mask[0, 3, -7]
    want, _, *grads = judge.attention(q, k, v, mask, dout=np.ones_like(q))
    out = jax.jit(tessera.jax.attention)(q, k, v, batch)
    judge.check(out, want)
    got = jax.jit(jax.grad(
        lambda *x: tessera.jax.attention(*x, batch).sum(), (0, 1, 2)))(q, k, v)
    for g, w in zip(got, grads):
        judge.check(g, w)


def test_names_that_simplifying_drops_keep_their_veto():
    rng = np.random.default_rng(7)
    ids = ids_of(rng)
    ids[-9:] = -1
    q, k, v = arrays(rng)
    out = tessera.jax.attention(
        q, k, v, planned(ids, ts.full | ts.documents))
    want, _ = judge.attention(
        q, k, v, legal(ids, mask=("or", ("full",), ("documents",))))
    judge.check(out, want)
    assert (np.asarray(out)[:, :, -9:] == 0).all()


def test_a_batch_moved_once_and_a_batch_closed_over():
    rng = np.random.default_rng(8)
    batch = planned(ids_of(rng))
    q, k, v = arrays(rng)
    want = tessera.jax.attention(q, k, v, batch)
    moved = jax.device_put(batch)
    assert isinstance(moved, tessera.jax.BatchArrays)
    assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(moved))
    for got in (jax.jit(tessera.jax.attention)(q, k, v, moved),
                jax.jit(lambda q: tessera.jax.attention(q, k, v, batch))(q)):
        assert (got == want).all()


def test_what_is_not_a_batch_of_its_facts_is_refused():
    rng = np.random.default_rng(9)
    batch = planned(ids_of(rng))
    q, k, v = arrays(rng)
    f = jax.jit(tessera.jax.attention)
    sinks = lambda z: tessera.jax.attention(q, k, v, batch, sink_logits=z)
    whole = jax.device_put(batch)

    def broken(i, change):
        parts = list(whole.arrays)
        parts[i] = change(parts[i])
        return tessera.jax.BatchArrays(whole.static, parts)

    for wrong in [
            broken(1, lambda x: x + 1),           # row starts
            broken(1, lambda x: x.at[-1].set(2**30)),
            broken(1, lambda x: x.at[1].set(-5)),
            broken(2, lambda x: x ^ 3),           # classes
            broken(2, lambda x: x | jnp.uint32(0xfffffffc)),  # columns
            broken(2, lambda x: x[:3]),
            broken(3, lambda x: x[:-1]),
            broken(4, lambda x: x + 4),
            broken(5, jnp.zeros_like),
            broken(5, lambda x: x[:, :-1]),
            broken(5, lambda x: x.astype(jnp.float32)),
            broken(0, lambda x: x[:1]),
            broken(0, lambda x: jnp.concatenate([x, x])),
    ]:
        with pytest.raises(REFUSED, match=r"\[[a-z]+\] "):
            jax.block_until_ready(f(q, k, v, wrong))
    for call, words in [
            (lambda: f(q[0], k, v, batch), "4 dimensions"),
            (lambda: f(q, k, v, 3), "tessera.Batch"),
            (lambda: tessera.jax.attention(q, k, v, batch, layout="x"),
             "layout"),
            (lambda: sinks(jnp.zeros((2, 2))), r"float32 \[4\], found .*\[2, 2\]"),
            (lambda: sinks(jnp.zeros(3)), r"float32 \[4\], found .*\[3\]")]:
        with pytest.raises(ts.TesseraError, match=words):
            call()
    for call, words in [
            (lambda: f(q[:, :3], k, v, batch), "kv_heads"),
            (lambda: f(q[:, :, :-1], k, v, batch), "python|facts|q_len"),
            (lambda: f(q, k.astype(np.float16), v, batch), "F16|F32"),
            (lambda: f(q.astype(np.int32), k, v, batch),
             "q must be of float32, bfloat16 or float16, found int32"),
            (lambda: sinks(jnp.zeros(4, jnp.bfloat16)),
             "sink_logits must be of float32, found bfloat16")]:
        with pytest.raises(REFUSED, match=words):
            jax.block_until_ready(call())


def test_a_changed_batch_is_never_answered_with_the_last_ones():
    """Cached batches are found by value: here shapes and buffers are the same
    and the numbers differ."""
    rng = np.random.default_rng(10)
    q, k, v = arrays(rng)
    f = jax.jit(functools.partial(tessera.jax.attention, return_lse=True))
    for _ in range(30):
        ids = rng.integers(0, 2, LENGTH).astype(np.int32)
        batch = ts.plan(ts.documents, q_len=LENGTH, doc_ids=ids,
                        tile=(LENGTH, LENGTH))  # the same lists, other ids
        out, _ = f(q, k, v, batch)
        judge.check(out, judge.attention(q, k, v, oracle.legal(
            ("documents",), LENGTH, LENGTH, ids)[None])[0])


def test_memory_does_not_grow():
    rng = np.random.default_rng(12)
    q, k, v = arrays(rng)
    f = jax.jit(tessera.jax.attention)

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    def calls(n):
        for i in range(n):  # 20 batches exceed the cache, so each call prepares its own
            f(q, k, v, batches[i % len(batches)])
        return resident()

    batches = [planned(ids_of(rng)) for _ in range(20)]
    before = calls(1000)
    # A prepared batch is at least 2 KB: 10,000 would be 20 MB if they were
    # kept.
    assert calls(10_000) - before < 8 << 20


def test_shard_map_over_heads_and_over_rows():
    rng = np.random.default_rng(11)
    ids = np.stack([ids_of(rng), ids_of(rng)])
    made = ts.plan(MASK, q_len=LENGTH, batch=2, doc_ids=ids, tile=(16, 16),
                   max_steps=128)
    q, k, v = arrays(rng, batch=2)
    mesh = Mesh(np.array(jax.devices()), ("d",))
    assert mesh.size == 2
    mask = np.stack([oracle.legal(TUPLE, LENGTH, LENGTH, i) for i in ids])
    want, _ = judge.attention(q, k, v, mask)

    heads = P(None, "d")
    by_heads = jax.jit(shard_map(
        tessera.jax.attention, mesh=mesh, in_specs=(heads, heads, heads, P()),
        out_specs=heads))
    judge.check(by_heads(q, k, v, made), want)
    text = by_heads.lower(q, k, v, made).compile().as_text()
    assert "all-gather" not in text and "all-reduce" not in text
    grads = jax.grad(lambda *x: (by_heads(*x, made) ** 2).sum(), (0, 1, 2))(
        q, k, v)
    judge.check_grads_of_square(grads, q, k, v, mask)

    # All devices share one KV head; its gradients are sums over devices.
    sinks = jnp.linspace(-1, 1, q.shape[1])
    call = lambda q, k, v, z, batch: tessera.jax.attention(
        q, k, v, batch, sink_logits=z)
    shared = shard_map(call, mesh=mesh, in_specs=(heads, P(), P(), P("d"), P()),
                       out_specs=heads)
    of = lambda f: jax.jit(jax.grad(
        lambda *x: jnp.sin(f(*x)).sum(), (0, 1, 2, 3)))(
            q, k[:, :1], v[:, :1], sinks, made)
    for got, due in zip(of(shared), of(call)):
        np.testing.assert_allclose(
            got, due, rtol=0, atol=q.shape[1] * np.finfo(np.float32).eps *
            float(jnp.abs(due).max()))

    # Each device has a batch of its own row.
    rows = [ts.plan(MASK, q_len=LENGTH, doc_ids=i, tile=(16, 16), max_steps=64)
            for i in ids]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *rows)
    one = lambda q, k, v, batch: tessera.jax.attention(
        q, k, v, jax.tree.map(lambda x: x[0], batch))
    by_rows = jax.jit(shard_map(
        one, mesh=mesh, in_specs=P("d"), out_specs=P("d")))
    judge.check(by_rows(q, k, v, stacked), want)
