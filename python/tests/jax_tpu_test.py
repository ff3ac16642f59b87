"""`tessera.jax.attention` lowered for a TPU, and compiled ahead of time for one
that is not here. Its numbers are proved where its text is evaluated
(tests/mosaic, jax_tpu_values_test.py)."""

import base64
import json
import math
import os
import pickle
import re
import subprocess
from typing import NamedTuple

os.environ.update(TPU_SKIP_MDS_QUERY="1", TPU_ACCELERATOR_TYPE="v6e-4",
                  TPU_WORKER_HOSTNAMES="localhost",
                  ALLOW_MULTIPLE_LIBTPU_LOAD="true", JAX_PLATFORMS="cpu")

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tessera as ts
import tessera.jax
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from tessera._launch import program

LENGTH = 2048
attention, arrays_for = tessera.jax.attention, tessera.jax.arrays_for


def planned(seed, mask=ts.causal & ts.documents, **more):
    ids = np.sort(np.random.default_rng(seed).integers(0, 6, LENGTH))
    return ts.plan(mask, q_len=LENGTH, tile=(512, 256),
                   doc_ids=ids.astype(np.int32), max_steps=64, **more)


def shapes(x, sharding=None):
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(
        a.shape, a.dtype, sharding=sharding), x)


def on_tpu(seed=0, sharding=None, **words):
    return shapes(arrays_for(planned(seed), "tpu", **words), sharding)


def array(heads, dim=128, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct((1, heads, LENGTH, dim), dtype)


def lowered(f, *args, platforms=("tpu",)):
    return jax.jit(f).trace(*args).lower(lowering_platforms=platforms)


def body(kernel):
    return json.loads(kernel.backend_config)["custom_call_config"]["body"]


def payloads(text):
    """The payloads of the kernel calls in a program, in order."""
    return re.findall(r'\\22body\\22: ?\\22([^\\]*)\\22', text)


@pytest.mark.parametrize("words", [
    {}, dict(softcap=30.0, scale=0.25), dict(sink_logits=True, dtype="float32"),
    dict(head_dim=192, v_head_dim=128), dict(return_lse=True)])
def test_payloads_are_the_librarys_byte_for_byte(words):
    words = dict(words)
    lse = words.pop("return_lse", False)
    dtype = words.get("dtype", "bfloat16")
    kernel, back = (ts.compile(planned(0), heads=4, kv_heads=2, **words, **more)
                    for more in ({}, dict(backward=True, dlse=lse)))
    assert base64.b64decode(body(kernel)).decode() == kernel.text

    def loss(q, k, v, z, batch):
        found = attention(
            q, k, v, batch, softcap=words.get("softcap", 0.0),
            scale=words.get("scale"), return_lse=lse,
            sink_logits=z if kernel.sink_logits else None)
        return sum(x.astype(jnp.float32).sum() for x in jax.tree.leaves(found))

    args = (array(4, kernel.head_dim, dtype), array(2, kernel.head_dim, dtype),
            array(2, kernel.v_head_dim, dtype),
            jax.ShapeDtypeStruct((4,), jnp.float32), on_tpu())
    assert payloads(lowered(loss, *args).as_text()) == [body(kernel)]
    step = lowered(jax.grad(loss, (0, 1, 2, 3)), *args)
    assert payloads(step.as_text()) == [body(kernel), body(back)]
    assert [x.shape for x in step.out_info] == [x.shape for x in args[:4]]


def test_the_payload_is_the_programs_too(tmp_path):
    """A payload has the bytes that `tessera compile --emit` writes."""
    words = ["--mask", "causal & documents", "--q-len", str(LENGTH), "--heads",
             "4", "--kv-heads", "2", "--tile", "512x256", "--tiles-per-pass",
             "2", "--max-steps", "64", "--target", "v6e:1x1", "--no-compile"]
    for backward in (False, True):
        kernel = ts.compile(planned(0), heads=4, kv_heads=2, tiles_per_pass=2,
                            backward=backward)
        file = tmp_path / "kernel.mlir"
        subprocess.run([program(), "compile", *words, "--emit", file] +
                       ["--backward"] * backward, check=True,
                       capture_output=True)
        assert file.read_text() == kernel.program_text


@pytest.mark.parametrize("mask, more", [
    (ts.causal & ts.window(300, 0) & ts.documents, {}),
    (ts.causal & (ts.documents | ts.sink(4)), {}),  # takes bitmaps
    (ts.full | ts.documents, {}),  # a name whose atom is simplified away
    ([ts.causal & ts.documents, ts.causal], {}),
    (ts.causal & ts.prefix, dict(prefix=[7])),
    (ts.causal & ts.same("a"), dict(same={"a": np.zeros(LENGTH, np.int32)})),
    (ts.blocks(256), dict(picks=np.zeros((1, 2, LENGTH, 1), np.int32)))])
def test_masks_and_facts_come_through(mask, more):
    batch = planned(0, mask, **more)
    kernel, back = (ts.compile(batch, heads=2, backward=backward)
                    for backward in (False, True))
    made = arrays_for(batch, "tpu")
    for of, direction in ((kernel, "forward"), (back, "backward")):
        due = of.arrays(batch)
        names = [f"{direction}_{name}" for name in due]
        found = dict(zip(sum(made.static.names(), ()), made.arrays))
        assert [n for n in found if n.startswith(direction)] == names
        assert all((found[n] == due[n.removeprefix(direction + "_")]).all()
                   for n in names)
    q = array(2)
    step = jax.grad(lambda q, batch: attention(q, q, q, batch).astype(
        jnp.float32).sum())
    assert payloads(lowered(step, q, shapes(made)).as_text()) == [
        body(kernel), body(back)]


def test_what_a_kernel_is_made_with_can_be_said():
    kernel = ts.compile(planned(0), heads=2, row_sum="rounded", numbers="any",
                        tiles_per_pass=2, fetch_ahead=3)
    back = ts.compile(planned(0), heads=2, tiles_per_pass=1, fetch_ahead=2,
                      backward=True, query_chunk=512, numbers="any")
    assert back.query_chunk == 512
    batch = on_tpu(row_sum="rounded", tiles_per_pass=(2, 1), fetch_ahead=(3, 2),
                   query_chunk=512, numbers="any")
    q = array(2)
    step = jax.grad(lambda q, batch: attention(q, q, q, batch).astype(
        jnp.float32).sum())
    assert payloads(lowered(step, q, batch).as_text()) == [
        body(kernel), body(back)]
    for words in (dict(tiles_per_pass=2), dict(fetch_ahead=(1, 2, 3))):
        with pytest.raises(ts.TesseraError, match="must be a pair, of the for"):
            arrays_for(planned(0), "tpu", **words)
    for words in (dict(query_chunk=512), dict(tiles_per_pass=(9, 9)),
                  dict(target="v6e:1x1"), dict(row_sum="rounded"),
                  dict(numbers="any"), dict(checked=True)):
        with pytest.raises(ts.TesseraError, match="goes with the platform 'tpu'"):
            arrays_for(planned(0), "cpu", **words)
    small = ts.plan(ts.causal, q_len=LENGTH, tile=(128, 128))
    with pytest.raises(ts.TesseraError, match="reason"):
        arrays_for(small, "tpu")
    reason = dict(lowering_reason="few tokens")
    text = lowered(attention, q, q, q, shapes(arrays_for(
        small, "tpu", **reason))).as_text()
    assert payloads(text) == [body(ts.compile(small, heads=2, **reason))]


def test_gradients_in_chunks_of_queries():
    """Arrays are cut into chunks for 8 KV heads, or for a given query_chunk."""
    grads = jax.grad(lambda q, k, v, batch: attention(q, k, v, batch).astype(
        jnp.float32).sum(), (0, 1, 2))

    def step(of, kv_heads, **words):
        q, k = (jax.ShapeDtypeStruct((1, heads, of.q_len, 128), jnp.bfloat16)
                for heads in (8, kv_heads))
        made = shapes(arrays_for(of, "tpu", **words))
        return payloads(lowered(grads, q, k, k, made).as_text())[1]

    long, short = (ts.plan(ts.causal & ts.window(500, 0), q_len=n,
                           tile=(512, 512), max_steps=2000)
                   for n in (1 << 18, 1 << 16))
    back = ts.compile(long, heads=8, backward=True)
    assert 0 < back.query_chunk < long.q_len and len(back.kept_shapes) == 2
    assert step(long, 8) == body(back)
    assert step(long, 1) == body(ts.compile(
        long, heads=8, kv_heads=1, backward=True, query_chunk=back.query_chunk))
    # With 8 KV heads of their own, chunks let more heads run together, so the
    # kernel works in chunks unless all queries are asked for.
    chunk = ts.compile(short, heads=8, backward=True).query_chunk
    assert 0 < chunk < short.q_len
    whole = dict(heads=8, backward=True, query_chunk=1 << 16)
    assert ts.compile(short, **whole).query_chunk == 0
    assert step(short, 8, query_chunk=1 << 16) == body(ts.compile(short, **whole))
    assert step(short, 1) == body(ts.compile(
        short, heads=8, kv_heads=1, backward=True, query_chunk=chunk))
    shared = ts.compile(short, heads=8, kv_heads=1, backward=True)
    with pytest.raises(ts.TesseraError, match="told a query_chunk of at most "
                       f"{shared.query_chunk} .* found none"):
        step(short, 1, query_chunk=1 << 16)
    assert step(short, 1, query_chunk=shared.query_chunk) == body(shared)
    with pytest.raises(ts.TesseraError, match="of a head stays there"):
        step(long, 1, query_chunk=1 << 18)
    # If the arrays are whole, so is the call, although its heads alone would
    # get chunks.
    even = ts.plan(ts.causal & ts.window(500, 0), q_len=1 << 15,
                   tile=(512, 512), max_steps=2000)
    assert ts.compile(even, heads=8, backward=True).query_chunk == 0
    assert ts.compile(even, heads=8, kv_heads=1, backward=True).query_chunk > 0
    assert step(even, 1) == body(ts.compile(
        even, heads=8, kv_heads=1, backward=True, query_chunk=1 << 15))


def test_both_layouts_are_one_kernel():
    kernel = ts.compile(planned(0), heads=4, kv_heads=2)
    turns = {}
    for layout in ("bhsd", "bshd"):
        shape = lambda heads: jax.ShapeDtypeStruct(
            (1, heads, LENGTH, 128) if layout == "bhsd" else
            (1, LENGTH, heads, 128), jnp.bfloat16)
        made = lowered(lambda q, k, v, batch: attention(
            q, k, v, batch, layout=layout, return_lse=True),
            shape(4), shape(2), shape(2), on_tpu())
        assert [x.shape for x in made.out_info] == [
            shape(4).shape, (1, 4, LENGTH)]
        text = made.as_text()
        assert payloads(text) == [body(kernel)]
        turns[layout] = text.count("stablehlo.transpose")
        assert "stablehlo.pad" not in text
    # Transposes of q, k, v and the output.
    assert turns == {"bhsd": 0, "bshd": 4}


def one_chip():
    """The sharding of one v6e chip, for which libtpu compiles."""
    pytest.importorskip("libtpu")
    return SingleDeviceSharding(topologies.get_topology_desc(
        platform="tpu", topology_name="v6e:2x2").devices[0])


def compiled(f, *args):
    """The HLO text of the program that libtpu compiles for one chip."""
    return lowered(f, *shapes(args, one_chip())).compile().as_text()


def copies(text, size):
    """The number of copies and transposes of arrays of `size` elements."""
    found = [math.prod(map(int, dims.split(","))) for dims in re.findall(
        r"= \w+\[([\d,]+)\]\S* (?:copy|transpose)\(",
        text[text.index("\nENTRY"):])]
    return found.count(size)


def test_projections_to_tokens_first_cost_no_copy():
    heads, width, size = 2, 512, LENGTH * 2 * 128
    attend = lambda q, k, v, batch: attention(q, k, v, batch, layout="bshd")

    def layer(x, wq, wk, wv, wo, batch):
        q, k, v = (jnp.einsum("btm,mhd->bthd", x, w) for w in (wq, wk, wv))
        return jnp.einsum("bthd,hdm->btm", attend(q, k, v, batch), wo)

    bf16 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    w = bf16(width, heads, 128)
    step = jax.grad(lambda *args: layer(*args).astype(jnp.float32).sum(),
                    tuple(range(5)))
    trained = compiled(step, bf16(1, LENGTH, width), w, w, w,
                       bf16(heads, 128, width), on_tpu())
    assert copies(trained, size) == 0
    # The log-sum-exp is not copied between the passes either.
    assert copies(trained, heads * LENGTH) == 0
    # The calls have the names that profiles show.
    for name in ("forward", "backward"):
        assert len(re.findall(
            rf"%tessera_{name}[.\d]* = .* custom-call\(", trained)) == 1
    # The layout of a program argument is fixed, so it is copied.
    q = bf16(1, LENGTH, heads, 128)
    assert copies(compiled(attend, q, q, q, on_tpu()), size) > 0


def test_a_whole_training_step_is_compiled_ahead():
    """A step of loss, gradients, momentum and weights, in donated buffers."""
    heads, width, words = 2, 512, 1024
    f32 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    weights = {"words": f32(words, width), "out": f32(heads, 128, width),
               **{name: f32(width, heads, 128) for name in "qkv"}}
    tokens = jax.ShapeDtypeStruct((1, LENGTH), jnp.int32)

    def loss(weights, tokens, targets, batch):
        w = jax.tree.map(lambda x: x.astype(jnp.bfloat16), weights)
        x = w["words"][tokens]
        q, k, v = (jnp.einsum("btm,mhd->bthd", x, w[name]) for name in "qkv")
        out = attention(q, k, v, batch, layout="bshd")
        x += jnp.einsum("bthd,hdm->btm", out, w["out"])
        scores = jnp.einsum("btm,wm->btw", x, w["words"],
                            preferred_element_type=jnp.float32)
        at = jnp.take_along_axis(scores, targets[..., None], -1)[..., 0]
        return (jax.nn.logsumexp(scores, -1) - at).mean()

    def step(weights, moments, tokens, targets, batch):
        value, grads = jax.value_and_grad(loss)(weights, tokens, targets, batch)
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, grads)
        return (jax.tree.map(lambda w, m: w - 0.1 * m, weights, moments),
                moments, value)

    args = shapes((weights, weights, tokens, tokens, on_tpu()), one_chip())
    made = jax.jit(step, donate_argnums=(0, 1)).trace(*args).lower(
        lowering_platforms=("tpu",))
    assert payloads(made.as_text()) == [
        body(ts.compile(planned(0), heads=heads, backward=backward))
        for backward in (False, True)]
    kept, moments, value = made.out_info
    assert value.shape == () and value.dtype == jnp.float32
    for tree in (kept, moments):
        assert jax.tree.map(lambda x: x.shape, tree) == jax.tree.map(
            lambda x: x.shape, weights)
    assert made.compile().memory_analysis().alias_size_in_bytes == 2 * sum(
        4 * math.prod(x.shape) for x in jax.tree.leaves(weights))


def test_scanned_mapped_and_exported():
    export = pytest.importorskip("jax.export")  # an old one needs absl
    batch, q = on_tpu(), array(2)
    leaves, tree = jax.tree.flatten(batch)
    call = jax.jit(lambda q, k, v, *leaves: attention(
        q, k, v, jax.tree.unflatten(tree, leaves)))
    many = jax.ShapeDtypeStruct((3, *q.shape), q.dtype)
    made = export.export(call, platforms=["tpu"])(q, q, q, *leaves)
    made = export.deserialize(made.serialize())
    assert made.platforms == ("tpu",)
    assert body(ts.compile(planned(0), heads=2)) in made.mlir_module()

    def layers(attend):
        return lambda q, k, v, *leaves: jax.lax.scan(
            lambda x, _: (attend(x, k, v, *leaves), None), q, None, length=4)[0]

    text = compiled(layers(made.call), q, q, q, *leaves)
    assert text.count('custom_call_target="tpu_custom_call"') == 1
    mapped = jax.vmap(layers(call), (0, 0, 0) + (None,) * len(leaves))
    text = compiled(mapped, many, many, many, *leaves)
    assert text.count('custom_call_target="tpu_custom_call"') == 1
    # Rows with a batch each, and gradients.
    stacked = jax.tree.map(lambda a: jax.ShapeDtypeStruct(
        (3, *a.shape), a.dtype), batch)
    step = jax.grad(lambda q, batch: jax.vmap(attention)(
        q, q, q, batch).astype(jnp.float32).sum())
    text = compiled(step, many, stacked)
    assert text.count('custom_call_target="tpu_custom_call"') == 2


def test_100_batches_trace_once_and_are_one_program():
    traced, seen, texts = [], set(), set()

    @jax.jit
    def step(q, batch):
        traced.append(1)
        return jax.grad(lambda q: attention(q, q, q, batch).astype(
            jnp.float32).sum())(q)

    for seed in range(100):
        batch = arrays_for(planned(seed), "tpu")
        seen.add(b"".join(x.tobytes() for x in batch.arrays))
        texts.add(step.trace(array(2), shapes(batch)).lower(
            lowering_platforms=("tpu",)).as_text())
    assert len(seen) == 100 and len(traced) == 1 and len(texts) == 1
    # Exact window bounds are arguments: 300 and 400 have one class.
    bound = lambda n: jax.tree.structure(arrays_for(planned(
        0, ts.causal & ts.window(n, 0) & ts.documents), "tpu"))
    assert bound(300) == bound(400) != bound(600)


def test_one_program_for_both_platforms():
    export = pytest.importorskip("jax.export")
    both = ("cpu", "tpu")
    small = ts.plan(ts.causal & ts.documents, q_len=256, doc_ids=np.sort(
        np.arange(256, dtype=np.int32) % 5))
    q = np.random.default_rng(0).standard_normal((1, 2, 256, 64), np.float32)
    passes = (2, 1)
    leaves, tree = jax.tree.flatten(
        arrays_for(small, *both, tiles_per_pass=passes))
    assert len(leaves) > len(jax.tree.leaves(small))

    @jax.jit
    def step(q, *leaves):
        return jax.grad(lambda q: (attention(
            q, q, q, jax.tree.unflatten(tree, leaves)) ** 2).sum())(q)

    made = export.export(step, platforms=both, disabled_checks=[
        export.DisabledSafetyCheck.custom_call(f"tessera_{name}")
        for name in ("forward", "backward")])(q, *leaves)
    words = dict(heads=2, head_dim=64, dtype="float32")
    for backward in (False, True):
        kernel = ts.compile(small, backward=backward,
                            tiles_per_pass=passes[backward], **words)
        assert body(kernel) in made.mlir_module()
    # On this platform the result equals that of a program for it alone.
    alone = jax.jit(jax.grad(lambda q, batch: (attention(
        q, q, q, batch) ** 2).sum()))(q, small)
    assert (step(q, *leaves) == alone).all()
    assert (made.call(q, *leaves) == alone).all()


class Device(NamedTuple):
    device_kind: str


def run_on(monkeypatch, kind):
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [Device(kind)])


@pytest.mark.parametrize("kind, target", [
    ("TPU v4", "v4"), ("TPU v5 lite", "v5e"), ("TPU v5", "v5p"),
    ("TPU v6 lite", "v6e"), ("TPU7x", "tpu7x")])
def test_kernels_are_for_the_tpu_that_jax_runs_on(monkeypatch, kind, target):
    assert arrays_for(planned(0), "tpu").static.tpu.target == "v6e"
    run_on(monkeypatch, kind)
    terms = arrays_for(planned(0), "tpu").static.tpu
    assert terms.target == target
    # The 16 MiB of a v4 hold less, so its passes are smaller.
    usual = arrays_for(planned(0), "tpu", target="v6e").static.tpu
    same = (terms.tiles_per_pass, terms.fetch_ahead) == (
        usual.tiles_per_pass, usual.fetch_ahead)
    assert same == (target != "v4")
    other = arrays_for(planned(0), "tpu", target="v6e")
    assert other.static.tpu.target == "v6e"


def test_a_tpu_of_no_known_kind_is_refused(monkeypatch):
    run_on(monkeypatch, "TPU v99")
    with pytest.raises(ts.TesseraError, match="of a known kind, found 'TPU v99'"):
        arrays_for(planned(0), "tpu")


def test_where_jax_runs_on_a_tpu_a_batch_is_for_it(monkeypatch):
    run_on(monkeypatch, "TPU v6 lite")
    copied = jax.tree.map(lambda x: x, planned(0))
    made = arrays_for(planned(0), "tpu")
    assert copied.static == made.static
    assert all((x == y).all() for x, y in zip(copied.arrays, made.arrays))
    assert jax.tree.structure(planned(0)) == jax.tree.structure(planned(1))
    q = array(2)
    assert payloads(lowered(attention, q, q, q, planned(0)).as_text()) == [
        body(ts.compile(planned(0), heads=2))]


@pytest.mark.parametrize("platforms, made_for, words", [
    (("tpu",), None, r"as arrays_for\(batch, 'tpu'\) makes it, found one for "
     "cpu alone for a program for tpu"),
    (("cpu",), "tpu", r"as arrays_for\(batch, 'cpu'\) makes it"),
    (("cpu", "tpu"), "tpu", r"as arrays_for\(batch, 'cpu'\)"),
    (("cpu", "tpu"), None, r"as arrays_for\(batch, 'tpu'\)"),
    (("cuda",), None, "lowered for cpu or tpu, found cuda"),
    (("rocm",), "tpu", "lowered for cpu or tpu, found rocm"),
    (("cpu", "cuda"), None, "lowered for cpu or tpu, found cuda")])
def test_other_platforms_are_refused(platforms, made_for, words):
    batch = planned(0)
    if made_for:
        batch = arrays_for(batch, made_for)
    q = array(2)
    with pytest.raises(ts.TesseraError, match=r"^\[jax\] .*" + words):
        lowered(attention, q, q, q, batch, platforms=platforms)


def test_what_the_kernels_cannot_is_refused_where_it_is_lowered():
    q = array(2)
    f32 = array(2, dtype=jnp.float32)
    short = jax.ShapeDtypeStruct((1, 2, LENGTH - 1, 128), jnp.bfloat16)
    z = lambda n, dtype=jnp.float32: jax.ShapeDtypeStruct((n,), dtype)
    sinks = lambda q, k, v, batch, z: attention(q, k, v, batch, sink_logits=z)
    of = lambda x: (x, x, x, on_tpu())
    for f, args, words in (
            (attention, of(array(2, dtype=jnp.float16)),
             r"^\[mosaic\] the type must be bf16 or f32, found F16"),
            (attention, of(array(2, 96)),
             r"^\[mosaic\] .* a multiple of 64 up to 256"),
            (attention, (f32, q, q, on_tpu()), "of one dtype, found float32"),
            (attention, of(short), r"q must be \[1, 2, 2048, 128\]"),
            (attention, (q, short, q, on_tpu()), "k must be"),
            (attention, (array(4), array(3), array(3), on_tpu()),
             r"^\[mosaic\] kv heads must divide heads"),
            (lambda *x: attention(*x, softcap=1e7), of(q), "softcap must be 0"),
            (sinks, (*of(q), z(3)), r"sink_logits must be float32 \[2\]"),
            (sinks, (*of(q), z(2, jnp.bfloat16)), "sink_logits must be float")):
        with pytest.raises(ts.TesseraError, match=words):
            lowered(f, *args)
    # The arrays of one batch with the static terms of another.
    made, other = (arrays_for(b, "tpu") for b in (
        planned(0), ts.plan(ts.causal & ts.documents, q_len=LENGTH,
                            doc_ids=np.zeros(LENGTH, np.int32))))
    with pytest.raises(ts.TesseraError, match=r"steps must be \[\d+\], found"):
        lowered(attention, q, q, q, tessera.jax.BatchArrays(
            made.static, shapes(other.arrays)))
    for platforms in ((), ("gpu",), ("cpu", "cuda")):
        with pytest.raises(ts.TesseraError, match="'cpu', 'tpu' or both"):
            arrays_for(planned(0), *platforms)
    with pytest.raises(ts.TesseraError, match="tessera.Batch, found BatchArr"):
        arrays_for(made, "tpu")


def test_gradients_that_do_not_fit_the_chip_are_refused_alone():
    """The forward kernel alone is lowered."""
    batch = shapes(arrays_for(
        ts.plan(ts.causal, q_len=LENGTH, tile=(512, 512)), "tpu", target="v4",
        tiles_per_pass=(1, 8), fetch_ahead=(1, 1)))
    q = array(2)
    assert len(payloads(lowered(attention, q, q, q, batch).as_text())) == 1
    with pytest.raises(ts.TesseraError,
                       match=r"^\[mosaic\] the scratch must fit"):
        lowered(jax.grad(lambda q, batch: attention(
            q, q, q, batch).astype(jnp.float32).sum()), q, batch)


def test_what_no_kernel_has_is_refused_when_it_is_said():
    for words, why in (
            (dict(query_chunk=100), "of whole tiles of 512, found 100"),
            (dict(query_chunk=0), "query_chunk must be a number of queries, found 0"),
            (dict(query_chunk=-512), "of whole tiles of 512, found -512"),
            (dict(tiles_per_pass=(1, 9)), "tiles a pass must be .* found 9"),
            (dict(fetch_ahead=(1, 0)), "to fetch ahead must be .* found 0"),
            (dict(head_dim=96), "head dim must be .* found 96"),
            (dict(target="v1"), "target must be .* found 'v1'")):
        with pytest.raises(ts.TesseraError, match=rf"^\[\w+\] .*{why}"):
            arrays_for(planned(0), "tpu", **words)
    long = ts.plan(ts.causal & ts.window(500, 0), q_len=1 << 19,
                   tile=(512, 512), max_steps=4096)
    with pytest.raises(ts.TesseraError, match="dQ of a chunk stays there"):
        arrays_for(long, "tpu", query_chunk=1 << 18)


def test_foreign_arrays_of_a_kernel_are_found():
    kernel = ts.compile(planned(0), heads=2)
    own, other = kernel.arrays(planned(0)), kernel.arrays(planned(1))
    kernel.check(dict(sorted(own.items())))
    assert {n: x.shape for n, x in own.items() if n != "digests"} == (
        kernel.array_shapes)
    changed = own["steps"].copy()
    changed[3] ^= 1 << 18
    coarse = ts.plan(ts.causal & ts.documents, q_len=LENGTH, tile=(512, 512),
                     doc_ids=np.zeros(LENGTH, np.int32), max_steps=64)
    foreign = ts.compile(coarse, heads=2, tiles_per_pass=2).arrays(coarse)
    for arrays, words in (
            (own | dict(steps=changed), "steps must be as it was made"),
            (own | dict(q_ids=other["q_ids"]), "q_ids must be as it was made"),
            (own | dict(q_ids=own["q_ids"].T), "int32 in C order"),
            (own | dict(range=own["range"].astype(np.int64)), "int32"),
            ({k: v for k, v in own.items() if k != "digests"}, "digests"),
            ({k: v for k, v in own.items() if k != "kv_ids"}, "kv_ids"),
            (foreign, "steps must")):
        with pytest.raises(ts.TesseraError, match=words):
            kernel.check(arrays)


@pytest.mark.parametrize("chunk, checked", [
    (None, False), (512, False), (None, True), (512, True)])
def test_arrays_that_are_not_as_they_were_made_are_found(chunk, checked):
    own, other = (arrays_for(planned(seed), "cpu", "tpu", query_chunk=chunk,
                             checked=checked) for seed in range(2))
    jax.device_put(own).check()
    pickle.loads(pickle.dumps(own)).check()
    arrays_for(planned(0), "cpu").check()
    for arrays in ((*own.arrays, own.arrays[0]), own.arrays[:-1]):
        with pytest.raises(ts.TesseraError, match=r"\[jax\] arrays must be all"):
            tessera.jax.BatchArrays(own.static, arrays).check()
    with pytest.raises(ts.TesseraError, match="here to be checked, found one"):
        jax.jit(lambda batch: batch.check())(own)
    _, *kernels = own.static.names()
    first = len(own.arrays) - sum(map(len, kernels))
    for i, name in enumerate(sum(kernels, ()), first):
        changed = np.array(own.arrays[i])
        changed.flat[-1] ^= 1
        for array in (changed, other.arrays[i]):
            if (array == own.arrays[i]).all():
                continue
            arrays = (*own.arrays[:i], array, *own.arrays[i + 1:])
            # A wrong digest is reported as the array that it is for.
            due = "" if name.endswith("digests") else name.split("_", 1)[1]
            due += " must be as it was made"
            with pytest.raises(ts.TesseraError, match=due):
                tessera.jax.BatchArrays(own.static, arrays).check()
    with pytest.raises(ts.TesseraError, match="must"):
        jax.tree.map(lambda *x: np.stack(x), own, own).check()


def test_a_checked_program_looks_for_itself():
    """The sums are checked before each call; NaN goes into a row of each result."""
    q = array(2)
    step = jax.grad(lambda q, k, v, batch: attention(q, k, v, batch).astype(
        jnp.float32).sum(), (0, 1, 2))
    plain, checked = (lowered(step, q, q, q, on_tpu(checked=c)).as_text()
                      for c in (False, True))
    assert payloads(checked) == payloads(plain)
    count = lambda text, word: text.count(word)
    assert count(plain, "xui32>") == 0 < count(checked, "xui32>")
    rows = "stablehlo.dynamic_update_slice"  # of out, dq, dk and dv
    assert (count(plain, rows), count(checked, rows)) == (0, 4)


def test_a_checked_program_copies_no_result():
    q = array(2)
    step = jax.grad(lambda q, k, v, batch: attention(q, k, v, batch).astype(
        jnp.float32).sum(), (0, 1, 2))
    plain, checked = (compiled(step, q, q, q, on_tpu(checked=c))
                      for c in (False, True))
    size = 2 * LENGTH * 128
    assert copies(checked, size) == copies(plain, size)
    assert checked.count('custom_call_target="tpu_custom_call"') == 2


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("mask", [ts.causal & ts.documents,
                                  ts.causal & (ts.documents | ts.sink(4))])
def test_a_checksum_is_of_every_number(monkeypatch, mask, backward):
    """A program and NumPy compute the same sum, whole and in pieces."""
    of = tessera.jax._tpu
    made = arrays_for(planned(0, mask), "tpu", checked=True)
    text, terms = made.static.text, made.static.tpu
    arrays = dict(zip(terms.leaves(), made._split()[1 + backward]))
    given = arrays.pop(of.CHECKSUM)
    del arrays[of.DIGESTS]
    assert list(arrays) == list(terms.names)
    in_program = jax.jit(lambda arrays: of._checksum_of(
        jnp, text, terms, backward, arrays))
    found = in_program(arrays)
    assert found.dtype == given.dtype == np.uint32
    assert found.tolist() == given.tolist()
    for name, array in arrays.items():
        for at in (0, array.size // 2, array.size - 1):
            changed = array.copy()
            changed.flat[at] ^= 1 << 7
            found = in_program(arrays | {name: changed})
            # Both words of the sum change with any one number.
            assert (np.asarray(found) != given).all(), (name, at)
    swapped = arrays["steps"].copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    assert (np.asarray(in_program(arrays | dict(steps=swapped))) != given).any()
    # Another direction, other passes or another text give other sums.
    tiles = terms._replace(tiles_per_pass=tuple(
        n + 1 for n in terms.tiles_per_pass))
    for words in ((text, terms, not backward), (text, tiles, backward),
                  (text + ";", terms, backward)):
        assert (of._checksum_of(np, *words, arrays) != given).any()
    monkeypatch.setattr(of, "_PIECE", 100)
    pieces = of._checksum_of(np, text, terms, backward, arrays)
    assert pieces.tolist() == given.tolist()


def test_float32_and_a_softcap_are_terms_of_a_kernel():
    words = dict(heads=2, dtype="float32", sink_logits=True)
    kernel = ts.compile(planned(0), **words)
    back = ts.compile(planned(0), **words, backward=True)
    assert kernel.dtype == back.dtype == "float32"
    assert kernel.key != ts.compile(planned(0), heads=2, sink_logits=True).key
    assert "bf16" not in kernel.text + back.text
    assert ts.tpu_setting("causal", q_len=LENGTH, dtype="f32")
    kernels = [ts.compile(planned(0), heads=2, softcap=cap, backward=backward)
               for cap in (0, 30, 50) for backward in (False, True)]
    assert len({k.key for k in kernels}) == 6
    assert [k.softcap for k in kernels] == [0, 0, 30, 30, 50, 50]
    assert ["math.tanh" in k.text for k in kernels] == [False] * 2 + [True] * 4


def test_it_compiles_for_v6e_alone_and_on_four_chips():
    pytest.importorskip("libtpu")
    chips = topologies.get_topology_desc(
        platform="tpu", topology_name="v6e:2x2").devices

    def layer(q, k, v, batch):
        out, lse = attention(q * 2, k, v, batch, return_lse=True)
        return out.astype(jnp.float32).sum(-1) + lse

    one = one_chip()
    q = shapes(array(2), one)
    step = jax.grad(lambda q, k, v, z, batch: attention(
        q, k, v, batch, softcap=30, sink_logits=z).astype(jnp.float32).sum(),
        (0, 1, 2, 3))
    sinks = shapes(jax.ShapeDtypeStruct((2,), jnp.float32), one)
    trained = lowered(step, q, q, q, sinks, on_tpu(sharding=one)).compile()
    assert trained.out_info[3].shape == (2,)
    trained = trained.as_text()
    assert "tessera_forward" in trained and "tessera_backward" in trained

    mesh = Mesh(np.array(chips), ("h",))
    heads, nowhere = P(None, "h"), NamedSharding(mesh, P())
    q = shapes(array(8), NamedSharding(mesh, heads))
    spread = jax.shard_map(
        layer, mesh=mesh, in_specs=(heads, heads, heads, P()),
        out_specs=heads)
    trained = lambda q, batch: jax.grad(lambda q: spread(
        q, q, q, batch).sum())(q)
    text = lowered(trained, q, on_tpu(sharding=nowhere)).compile().as_text()
    assert "tessera_forward" in text and "tessera_backward" in text
    for collective in ("all-gather", "all-reduce", "collective-permute",
                       "all-to-all"):
        assert collective not in text
    # Without shard_map every chip would compute all heads.
    with pytest.raises(ts.TesseraError, match="must be in a jax.shard_map"):
        lowered(layer, q, q, q, on_tpu(sharding=nowhere))
    # A batch for a CPU is refused in shard_map too.
    with pytest.raises(ts.TesseraError, match="arrays_for"):
        lowered(layer, q, q, q, shapes(jax.tree.map(
            lambda x: x, planned(0)), nowhere))
