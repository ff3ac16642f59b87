"""`tessera.jax.sharded_attention`: query rows are divided over devices. Results
are compared with the NumPy oracle, the traffic is counted, and two processes give
what one gives."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
# Shards need Shardy; an old JAX uses it only if this is set.
os.environ["JAX_USE_SHARDY_PARTITIONER"] = "1"

import importlib.util
import pickle

import jax
import jax.numpy as jnp
import judge
import numpy as np
import oracle
import pytest
import tessera as ts
import tessera.jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tessera.jax import shard_arrays, sharded_attention

LENGTH, HEADS, KV_HEADS, DIM = 200, 4, 2, 16
TUPLE = ("and", ("causal",), ("documents",))
AXES = ("data", "head", "seq", "copy")
KINDS = ["Auto"] + ["Explicit"] * hasattr(jax.sharding, "reshard")


def packed(seed=0, batch=1):
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.integers(0, 5, (batch, LENGTH)), 1).astype(np.int32)
    made = ts.plan(ts.causal & ts.documents, q_len=LENGTH, batch=batch,
                   doc_ids=ids, tile=(16, 16))
    legal = np.stack([oracle.legal(TUPLE, LENGTH, LENGTH, row) for row in ids])
    draw = lambda heads: rng.standard_normal((batch, heads, LENGTH, DIM),
                                             np.float32)
    return made, legal, draw(HEADS), draw(KV_HEADS), draw(KV_HEADS), rng


def mesh_of(text, kind="Auto"):
    sizes = {part.split("=")[0].split(":")[0]: int(part.split("=")[1])
             for part in text.split(",")}
    kind = getattr(jax.sharding.AxisType, kind)
    return Mesh(np.array(jax.devices()).reshape(*sizes.values()), tuple(sizes),
                axis_types=(kind,) * len(sizes))


def shard(made, mesh, **more):
    return ts.shard(made, mesh, heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM,
                    dtype="f32", **more)


def attend(q, k, v, shards, **more):
    """Takes tensors in the order of the batch and returns both results in it."""
    q, k, v = (shards.spread(x, keys=i > 0, axis=2)
               for i, x in enumerate((q, k, v)))
    out, lse = sharded_attention(q, k, v, shards, return_lse=True, **more)
    return shards.gather(out, axis=2), shards.gather(lse, axis=2)


def gradients(q, k, v, shards, dout, dlse, sinks=None, **more):
    def loss(*tensors):
        out, lse = attend(*tensors[:3], shards, **more,
                          **(dict(sink_logits=tensors[3]) if sinks is not None
                             else {}))
        return (out * dout).sum() + (lse * dlse).sum(), (out, lse)
    given = (q, k, v) if sinks is None else (q, k, v, sinks)
    (_, made), of = jax.value_and_grad(
        loss, argnums=tuple(range(len(given))), has_aux=True)(*given)
    return *made, *of


@pytest.mark.parametrize("kind", KINDS)
def test_pickled_shards_lie_on_the_same_devices(kind):
    made, _, q, k, v, _ = packed(batch=2)
    one = shard_arrays(shard(made, "data=2,seq=2"),
                       mesh_of("data=2,seq=2", kind))
    again = pickle.loads(pickle.dumps(one))
    assert jax.tree.structure(again) == jax.tree.structure(one)
    assert [x.sharding for x in again.arrays] == [
        x.sharding for x in one.arrays]
    for x, y in zip(attend(q, k, v, again), attend(q, k, v, one)):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mesh,balance,batch,more", [
    ("seq=4", "rows", 1, {}),
    ("data=2,seq=2", "tasks", 2, dict(softcap=5.0)),
    ("head=2,seq=2", "contiguous", 2, dict(scale=0.3, sinks=True)),
    ("seq=2,copy=2", "headtail", 1, dict(sinks=True, softcap=3.0)),
    ("data=2,head=2", "rows", 2, {}),
    ("dp:data=2,cp:seq=2", "tasks", 2, dict(sinks=True))])
def test_is_exact(mesh, balance, batch, more, kind):
    more = dict(more)
    made, legal, q, k, v, rng = packed(seed=batch, batch=batch)
    sinks = more.pop("sinks", False) and rng.standard_normal(HEADS).astype(
        np.float32)
    sinks = None if sinks is False else sinks
    dout = rng.standard_normal(q.shape).astype(np.float32)
    dlse = rng.standard_normal(q.shape[:3]).astype(np.float32)
    shards = shard_arrays(shard(made, mesh, balance=balance),
                          mesh_of(mesh, kind))
    got = jax.jit(lambda *args: gradients(*args, sinks=sinks, **more))(
        q, k, v, shards, dout, dlse)
    want = judge.attention(q, k, v, legal, dout=dout, dlse=dlse, sinks=sinks,
                           **more)
    judge.check_all([np.asarray(x) for x in got], want)


@pytest.mark.parametrize("mesh", ["head=2,seq=2", "data=2,head=2"])
def test_masks_lie_with_their_heads(mesh):
    _, _, q, k, v, rng = packed(batch=2)
    ids = np.sort(rng.integers(0, 5, (2, LENGTH)), 1).astype(np.int32)
    made = ts.plan([ts.causal & ts.documents, ts.window(30, 5)], q_len=LENGTH,
                   batch=2, doc_ids=ids, tile=(16, 16))
    legal = np.stack([np.repeat([
        oracle.legal(e, LENGTH, LENGTH, row)
        for e in (TUPLE, ("window", 30, 5))], HEADS // 2, 0) for row in ids])
    dout = rng.standard_normal(q.shape).astype(np.float32)
    dlse = rng.standard_normal(q.shape[:3]).astype(np.float32)
    got = jax.jit(gradients)(
        q, k, v, shard_arrays(shard(made, mesh), mesh_of(mesh)), dout, dlse)
    want = judge.attention(q, k, v, legal, dout=dout, dlse=dlse)
    judge.check_all([np.asarray(x) for x in got], want)


def test_batches_under_ceilings_are_one_program():
    traces = 0

    @jax.jit
    def run(q, k, v, shards):
        nonlocal traces
        traces += 1
        return attend(q, k, v, shards)

    for seed in range(100):
        made, legal, q, k, v, _ = packed(seed)
        shards = shard_arrays(
            shard(made, "seq=4", ceilings="rows=5,steps=256,kv=5:5:5"),
            mesh_of("seq=4"))
        got = run(q, k, v, shards)
        if seed % 17 == 0:
            judge.check_all([np.asarray(x) for x in got],
                            judge.attention(q, k, v, legal))
    assert traces == 1 and run._cache_size() == 1


def test_vmap_runs_each():
    _, _, q, k, v, rng = packed(seed=2, batch=2)
    made, legal, *_ = packed(seed=3, batch=2)
    shards = shard_arrays(shard(made, "data=2,seq=2"), mesh_of("data=2,seq=2"))
    q, k, v, dout = (rng.standard_normal((3, *x.shape)).astype(np.float32)
                     for x in (q, k, v, q))
    dlse = rng.standard_normal(q.shape[:-1]).astype(np.float32)
    got = jax.jit(jax.vmap(gradients, (0, 0, 0, None, 0, 0)))(
        q, k, v, shards, dout, dlse)
    for i in range(3):
        judge.check_all([np.asarray(x[i]) for x in got], judge.attention(
            q[i], k[i], v[i], legal, dout=dout[i], dlse=dlse[i]))
    # Nested vmap, with keys and values that all calls share.
    got = jax.jit(jax.vmap(jax.vmap(attend, (0, None, None, None)),
                           (0, None, None, None)))(
        q[:2, None], k[0], v[0], shards)
    for i in range(2):
        judge.check_all([np.asarray(x[i, 0]) for x in got],
                        judge.attention(q[i], k[0], v[0], legal))


def test_vmap_takes_a_batch_of_each():
    many = [packed(seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *(
        shard_arrays(shard(made, "seq=4",
                           ceilings="rows=5,steps=256,kv=5:5:5"),
                     mesh_of("seq=4")) for made, *_ in many))
    tensors = [np.stack(x) for x in zip(*(of[2:5] for of in many))]
    got = jax.jit(jax.vmap(attend))(*tensors, stacked)
    for i, (_, legal, q, k, v, _) in enumerate(many):
        judge.check_all([np.asarray(x[i]) for x in got],
                        judge.attention(q, k, v, legal))


def test_forward_mode_and_second_gradients_are_refused():
    made, _, q, k, v, _ = packed()
    shards = shard_arrays(shard(made, "seq=4"), mesh_of("seq=4"))
    of = lambda q, shards: attend(q, k, v, shards)[0]
    tangent = lambda run, q, shards: jax.jvp(
        lambda q: run(q, shards), (q,), (q,))[1]
    slope = lambda q, shards: jax.grad(lambda q: (of(q, shards) ** 2).sum())(q)
    twice = lambda q, shards: jax.grad(lambda q: slope(q, shards).sum())(q)
    forward = r"^\[jax\] .* must be differentiated backward .* found forward mode"
    again = r"^\[jax\] .* must be differentiated once, found a gradient of its"
    for words, call in [
            (forward, lambda: tangent(of, q, shards)),
            (forward, lambda: tangent(jax.jit(of), q, shards)),
            (forward, lambda: jax.jit(tangent, static_argnums=0)(of, q, shards)),
            (again, lambda: twice(q, shards)),
            (again, lambda: jax.jit(twice)(q, shards))]:
        with pytest.raises(ts.TesseraError, match=words) as e:
            call()
        assert "\n" not in str(e.value)


def test_other_lengths_of_a_contract_are_spread_as_their_own():
    run = jax.jit(lambda x, shards: shards.gather(shards.spread(x)))
    for length in (500, 512):
        made = ts.plan(ts.causal, q_len=length, batch=2, tile=(16, 16))
        shards = shard_arrays(shard(
            made, "seq=4", ceilings="rows=16,steps=1024,kv=16:16:16"),
            mesh_of("seq=4"))
        x = np.arange(2 * length, dtype=np.int32).reshape(2, length)
        np.testing.assert_array_equal(run(x, shards), x)


def in_place(shards, mesh, *arrays):
    place = NamedSharding(mesh, PartitionSpec(None, None, "seq", None))
    return [jax.device_put(shards.spread(x, keys=i > 0, axis=2), place)
            for i, x in enumerate(arrays)]


def test_only_tiles_travel():
    made, _, q, k, v, _ = packed()
    mesh = mesh_of("seq=4")
    of = shard(made, "seq=4")
    shards = shard_arrays(of, mesh)
    placed = in_place(shards, mesh, q, k, v)
    text = jax.jit(sharded_attention).lower(*placed, shards).compile().as_text()
    assert text.count("collective-permute(") + text.count(
        "collective-permute-start(") == 2 * sum(
            n > 0 for n in map(int, of.ceilings.split("kv=")[1].split(":")))
    for other in ("all-gather", "all-reduce", "all-to-all"):
        assert other not in text
    # The output has the sharding of q.
    out = jax.jit(sharded_attention)(*placed, shards)
    assert out.sharding.is_equivalent_to(placed[0].sharding, 4)


def test_spread_and_gather_are_each_others_inverse():
    made, *_ = packed(batch=2)
    shards = shard_arrays(shard(made, "data=2,seq=2"), mesh_of("data=2,seq=2"))
    x = np.arange(1, 2 * LENGTH + 1, dtype=np.int32).reshape(2, LENGTH)
    for keys in (False, True):
        there = shards.spread(x, keys=keys)
        assert sorted(np.asarray(there)[np.asarray(there) > 0]) == list(x.flat)
        np.testing.assert_array_equal(shards.gather(there, keys=keys), x)


def test_kernels_of_any_numbers_are_others():
    made = ts.plan(ts.causal, q_len=1900, tile=(256, 256))
    of = ts.shard(made, "seq=4", heads=2, kv_heads=1, head_dim=128, dtype="bf16")
    finite, any_numbers = (
        shard_arrays(of, mesh_of("seq=4"), lane="mosaic", target="v6e:2x2",
                     numbers=numbers) for numbers in ("finite", "any"))
    assert finite.static != any_numbers.static
    for backward in (False, True):
        texts = {s.static.shards.kernel_program(
            "v6e:2x2", backward, numbers=s.static.numbers)["text"]
            for s in (finite, any_numbers)}
        assert len(texts) == 2


def test_kernels_in_chunks_read_the_integers_of_any_call():
    """The integer arrays are made before the call is known. Here a v4 does not
    hold dQ of all queries of a device, so the kernels work in chunks."""
    made = ts.plan(ts.causal & ts.window(1023, 0), q_len=1 << 16,
                   tile=(512, 512))
    of = ts.shard(made, "seq=4", heads=8, kv_heads=8, head_dim=128)
    plain, _ = of.kernel_integers("v4", True)
    assert plain["range"].shape[-1] >= 3 + 2 * 4  # at least two chunks
    for words in (dict(sink_logits=True), dict(dlse=True),
                  dict(sink_logits=True, dlse=True)):
        others, _ = of.kernel_integers("v4", True, **words)
        assert others.keys() == plain.keys()
        for name, value in others.items():
            np.testing.assert_array_equal(value, plain[name])


def test_what_kernels_leave_unwritten_is_nothing(monkeypatch):
    """Memory that no kernel writes may hold NaN. A program that stays in the
    order of the shards multiplies it by 0 in gradients of parameters, and NaN * 0
    is NaN."""
    made = ts.plan(ts.causal, q_len=1900, tile=(256, 256))
    of = ts.shard(made, "seq=4", heads=2, kv_heads=1, head_dim=128, dtype="f32")
    shards = shard_arrays(of, mesh_of("seq=4"), lane="mosaic", target="v6e:2x2")
    program = type(shards.static).program

    def unwritten(static, *options):
        _, takes, gives = program(static, *options)
        there = {keys: (np.asarray(order) >= 0).reshape(1, 1, -1, 1)
                 for keys, order in ((False, of.query_order),
                                     (True, of.key_order))}
        def give(s):
            rows = there[s["name"] in ("dk", "dv")]
            ones = np.ones(s["shape"], np.float32)
            if s["name"] == "dsink_logits":
                return ones
            return np.where(rows[..., 0] if ones.ndim == 3 else rows, ones,
                            np.nan)
        return lambda *_: tuple(jnp.asarray(give(s)) for s in gives), takes, gives

    monkeypatch.setattr(type(shards.static), "program", unwritten)
    there = [jnp.zeros(next(s["shape"] for s in of.specs if s["name"] == name))
             for name in "qkv"]
    sinks = jnp.zeros(2)
    out, lse = jax.jit(lambda *args: sharded_attention(
        *args[:3], args[3], sink_logits=args[4], return_lse=True))(
            *there, shards, sinks)
    empty = np.asarray(of.query_order[0]) < 0
    assert empty.any() and (np.asarray(out)[:, :, empty] == 0).all()
    assert (np.asarray(lse)[:, :, empty] == -np.inf).all()
    assert (np.asarray(out)[:, :, ~empty] == 1).all()
    grads = jax.jit(jax.grad(
        lambda q, k, v, sinks, shards: sharded_attention(
            q, k, v, shards, sink_logits=sinks).sum(), argnums=(0, 1, 2, 3)))(
                *there, sinks, shards)
    for grad, order in zip(grads, (of.query_order, of.key_order, of.key_order)):
        np.testing.assert_array_equal(
            np.asarray(grad), np.broadcast_to(
                (np.asarray(order) >= 0).reshape(1, 1, -1, 1), grad.shape))


def test_what_cannot_be_is_refused():
    made, _, q, k, v, _ = packed()
    mesh = mesh_of("seq=4")
    shards = shard_arrays(shard(made, "seq=4"), mesh)
    shapes = shard_arrays(shard(made, "seq=4"), mesh, abstract=True)
    there = [shards.spread(x, axis=2) for x in (q, k, v)]
    for words, call in [
            ("to be called with, found shapes alone",
             lambda: sharded_attention(*there, shapes)),
            ("to be called with, found shapes alone",
             lambda: shapes.spread(q, axis=2)),
            ("to be called with, found shapes alone",
             lambda: shapes.gather(there[0], axis=2)),
            ("must be of ts.shard, found Batch", lambda: shard_arrays(made, mesh)),
            ("lane must be 'xla' or 'mosaic', found 'cpu'",
             lambda: shard_arrays(shard(made, "seq=4"), mesh, lane="cpu")),
            ("go with lane 'mosaic', found 'xla'",
             lambda: shard_arrays(shard(made, "seq=4"), mesh, target="v6e")),
            ("and numbers go with lane 'mosaic', found 'xla'",
             lambda: shard_arrays(shard(made, "seq=4"), mesh, numbers="any")),
            ("numbers must be finite or any, found 'some'",
             lambda: shard_arrays(shard(made, "seq=4"), mesh, lane="mosaic",
                                  target="v6e", numbers="some")),
            ("a jax.sharding.Mesh, found str",
             lambda: shard_arrays(shard(made, "seq=4"), "seq=4")),
            ("1 rows of 200 tokens, found 1 of 100",
             lambda: shards.spread(q[:, :, :100], axis=2)),
            ("1 rows of 200 tokens, found 1 of 4", lambda: shards.spread(q)),
            ("1 of 256 tokens, found 1 of 200", lambda: shards.gather(q, axis=2)),
            ("q must be an array, found list",
             lambda: sharded_attention([1], k, v, shards)),
            ("numbers must be finite and 0 or more, found -1 for softcap",
             lambda: sharded_attention(q, k, v, shards, softcap=-1)),
            ("must be numbers, found None and None",
             lambda: sharded_attention(q, k, v, shards, softcap=None)),
            ("that of the shards, seq=2, found seq=4",
             lambda: shard_arrays(shard(made, "seq=2"), mesh)),
            ("must be of shard_arrays, found Batch",
             lambda: sharded_attention(q, k, v, made)),
            (r"q must be float32\[1, 4, 256, 16\] on this mesh, found "
             r"float32\[1, 4, 200, 16\]",
             lambda: sharded_attention(q, k, v, shards)),
            (r"k must be float32\[1, 2, 256, 16\] .* found bfloat16",
             lambda: sharded_attention(
                 *(shards.spread(x, axis=2) for x in (q, k.astype(jnp.bfloat16), v)),
                 shards)),
            (r"sink_logits must be float32\[4\] on this mesh, found float64\[4\]",
             lambda: sharded_attention(*there, shards, sink_logits=np.ones(4)))]:
        with pytest.raises(ts.TesseraError, match=words):
            call()


def test_explicit_axes_of_an_old_jax_are_refused(monkeypatch):
    monkeypatch.delattr(jax.sharding, "reshard", raising=False)
    made, *_ = packed()
    with pytest.raises(ts.TesseraError, match=r"explicit axes of a mesh must have "
                       rf"a JAX with jax.sharding.reshard, found {jax.__version__}"):
        shard_arrays(shard(made, "seq=4"), mesh_of("seq=4", "Explicit"))


@pytest.mark.skipif(not importlib.util.find_spec("libtpu"),
                    reason="libtpu is not installed")
@pytest.mark.parametrize("lane", ["xla", "mosaic"])
def test_a_training_step_compiles_for_four_chips(lane):
    from jax.experimental import topologies
    ids = np.repeat(np.arange(2, dtype=np.int32), [5000, 3192])
    made = ts.plan(ts.causal & ts.documents, q_len=8192, doc_ids=ids,
                   tile=(512, 512))
    of = ts.shard(made, "seq=4", heads=4, kv_heads=2, head_dim=128)
    mesh = Mesh(np.array(topologies.get_topology_desc("v6e:2x2", "tpu").devices),
                ("seq",))
    shards = shard_arrays(of, mesh, lane=lane, abstract=True)
    if lane == "mosaic":  # the lane of the mesh by default
        assert shards.static == shard_arrays(of, mesh, abstract=True).static
    place = NamedSharding(mesh, PartitionSpec(None, None, "seq", None))
    q, k, v = (jax.ShapeDtypeStruct((1, h, 8192, 128), jnp.bfloat16,
                                    sharding=place) for h in (4, 2, 2))
    step = jax.jit(jax.grad(
        lambda *args: sharded_attention(*args, softcap=30.0).astype(
            jnp.float32).sum(), argnums=(0, 1, 2)))
    text = step.lower(q, k, v, shards).compile().as_text()
    assert "collective-permute" in text and "all-gather" not in text
    assert (lane == "mosaic") == ("tpu_custom_call" in text)
