"""The TPU program inside JAX: compiled ahead of time, for a TPU that is not
here. Its numbers are proved where its text is evaluated (tests/mosaic)."""

import base64
import importlib.util
import json
import math
import os
import re
import subprocess

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


def planned(seed):
    ids = np.sort(np.random.default_rng(seed).integers(0, 6, LENGTH))
    return ts.plan(ts.causal & ts.documents, q_len=LENGTH, tile=(512, 256),
                   doc_ids=ids.astype(np.int32), max_steps=64)


def shapes(x, sharding=None):
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(
        a.shape, a.dtype, sharding=sharding), x)


def array(heads):
    return jax.ShapeDtypeStruct((1, heads, LENGTH, 128), jnp.bfloat16)


def test_the_payload_is_the_librarys():
    kernel = ts.compile(planned(0), heads=2)
    config = json.loads(kernel.backend_config)["custom_call_config"]
    assert base64.b64decode(config["body"]).decode() == kernel.text
    f = jax.jit(lambda q, k, v, a: tessera.jax.tpu_attention(q, k, v, a, kernel))
    q = array(2)
    text = f.trace(q, q, q, shapes(kernel.arrays(planned(0)))).lower(
        lowering_platforms=("tpu",)).as_text()
    assert config["body"] in text and "tpu_custom_call" in text


def test_the_payload_is_the_programs_too(tmp_path):
    """Byte for byte what `tessera compile --emit` writes."""
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
        assert file.read_text() == kernel.program


def test_both_layouts_are_one_kernel():
    kernel = ts.compile(planned(0), heads=4, kv_heads=2)
    config = json.loads(kernel.backend_config)["custom_call_config"]
    a = shapes(kernel.arrays(planned(0)))
    turns = {}
    for layout in ("bhsd", "bshd"):
        shape = lambda heads: jax.ShapeDtypeStruct(
            (1, heads, LENGTH, 128) if layout == "bhsd" else
            (1, LENGTH, heads, 128), jnp.bfloat16)
        f = jax.jit(lambda q, k, v, a: tessera.jax.tpu_attention(
            q, k, v, a, kernel, layout=layout, return_lse=True))
        traced = f.trace(shape(4), shape(2), shape(2), a)
        assert [x.shape for x in traced.out_info] == [
            shape(4).shape, (1, 4, LENGTH)]
        text = traced.lower(lowering_platforms=("tpu",)).as_text()
        assert config["body"] in text
        turns[layout] = text.count("stablehlo.transpose")
    # Of q, k, v and the output.
    assert turns == {"bhsd": 0, "bshd": 4}
    q = jnp.zeros((1, 16, 2, 128), jnp.bfloat16)
    for x, layout, words in (
            (q, "bsdh", "layout must be 'bhsd' or 'bshd', found 'bsdh'"),
            (q.astype(jnp.float32), "bshd", r"\[batch, tokens, heads, 128\]"),
            (jnp.zeros((1, 4096, 2, 128), jnp.bfloat16), "bshd",
             "at most 2048 tokens, found bfloat16")):
        with pytest.raises(ts.TesseraError, match=words):
            tessera.jax.tpu_attention(
                x, x, x, kernel.arrays(planned(0)), kernel, layout=layout)


def compiled(f, *args):
    """By libtpu for one chip of v6e, as text of its HLO."""
    pytest.importorskip("libtpu")
    one = SingleDeviceSharding(topologies.get_topology_desc(
        platform="tpu", topology_name="v6e:2x2").devices[0])
    return jax.jit(f).trace(*shapes(args, one)).lower(
        lowering_platforms=("tpu",)).compile().as_text()


def copies(text, size):
    """Of arrays of so many numbers: what a transpose is where it is not free."""
    found = [math.prod(map(int, dims.split(","))) for dims in re.findall(
        r"= \w+\[([\d,]+)\]\S* (?:copy|transpose)\(",
        text[text.index("\nENTRY"):])]
    return found.count(size)


def test_projections_to_tokens_first_cost_no_copy():
    heads, width, size = 2, 512, LENGTH * 2 * 128
    batch = planned(0)
    kernel = ts.compile(batch, heads=heads)
    back = ts.compile(batch, heads=heads, backward=True)
    a, b = shapes(kernel.arrays(batch)), shapes(back.arrays(batch))

    def attend(q, k, v, a, b):
        return tessera.jax.tpu_attention(
            q, k, v, a, kernel, layout="bshd", gradients=back,
            gradient_arrays=b)

    def layer(x, wq, wk, wv, wo, a, b):
        q, k, v = (jnp.einsum("btm,mhd->bthd", x, w) for w in (wq, wk, wv))
        return jnp.einsum("bthd,hdm->btm", attend(q, k, v, a, b), wo)

    bf16 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    w = bf16(width, heads, 128)
    step = jax.grad(lambda *args: layer(*args).astype(jnp.float32).sum(),
                    tuple(range(5)))
    trained = compiled(step, bf16(1, LENGTH, width), w, w, w,
                       bf16(heads, 128, width), a, b)
    assert copies(trained, size) == 0
    # By their own names, as profiles show them.
    for name in ("forward", "backward"):
        assert len(re.findall(rf"%tessera_{name}[.\d]* = ", trained)) == 1
    # What the program itself is given lies as it lies.
    q = bf16(1, LENGTH, heads, 128)
    assert copies(compiled(attend, q, q, q, a, b), size) > 0


def test_scanned_mapped_and_exported():
    export = pytest.importorskip("jax.export")  # an old one needs absl
    kernel = ts.compile(planned(0), heads=2)
    a = shapes(kernel.arrays(planned(0)))
    call = jax.jit(lambda q, k, v, a: tessera.jax.tpu_attention(
        q, k, v, a, kernel))
    q = array(2)
    many = jax.ShapeDtypeStruct((3, *q.shape), q.dtype)
    made = export.export(call, platforms=["tpu"])(q, q, q, a)
    if importlib.util.find_spec("flatbuffers"):  # which its bytes need
        made = export.deserialize(made.serialize())
    body = json.loads(kernel.backend_config)["custom_call_config"]["body"]
    assert made.platforms == ("tpu",) and body in made.mlir_module()

    def layers(attend):
        return lambda q, k, v, a: jax.lax.scan(
            lambda x, _: (attend(x, k, v, a), None), q, None, length=4)[0]

    text = compiled(layers(made.call), q, q, q, a)
    assert text.count('custom_call_target="tpu_custom_call"') == 1
    mapped = jax.vmap(layers(call), (0, 0, 0, None))
    text = compiled(mapped, many, many, many, a)
    assert text.count('custom_call_target="tpu_custom_call"') == 1


def test_batches_of_one_contract_trace_once():
    kernel = ts.compile(planned(0), heads=2)
    traced = set()
    for seed in range(20):
        batch = planned(seed)
        assert ts.compile(batch, heads=2).key == kernel.key
        traced.add(str(jax.tree.map(lambda a: (a.shape, a.dtype),
                                    kernel.arrays(batch))))
    assert len(traced) == 1


def test_wrong_arrays_are_refused():
    kernel = ts.compile(planned(0), heads=2)
    q = jnp.zeros((1, 2, 16, 128), jnp.float32)
    with pytest.raises(ts.TesseraError, match="bfloat16"):
        tessera.jax.tpu_attention(q, q, q, kernel.arrays(planned(0)), kernel)
    q = jnp.zeros((1, 2, 16, 128), jnp.bfloat16)
    for words in (dict(gradients=kernel), dict(gradients=ts.compile(
            planned(0), heads=2, backward=True), return_lse=True)):
        with pytest.raises(ts.TesseraError, match="gradients"):
            tessera.jax.tpu_attention(
                q, q, q, kernel.arrays(planned(0)), kernel, **words)
    for words in (dict(softcap=30), dict(scale=0.5)):
        gradients = ts.compile(planned(0), heads=2, backward=True, **words)
        with pytest.raises(ts.TesseraError, match="scale and softcap"):
            tessera.jax.tpu_attention(
                q, q, q, kernel.arrays(planned(0)), kernel, gradients=gradients)


def test_foreign_arrays_are_refused_before_they_are_read():
    kernel = ts.compile(planned(0), heads=2)
    own, other = kernel.arrays(planned(0)), kernel.arrays(planned(1))
    q = jnp.zeros((1, 2, 16, 128), jnp.bfloat16)

    def call(arrays):
        return jax.eval_shape(
            lambda q: tessera.jax.tpu_attention(q, q, q, arrays, kernel), q)

    assert call(own).shape == call(other).shape == (1, 2, 16, 128)
    kernel.check(dict(sorted(own.items())))
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
            call(arrays)
        with pytest.raises(ts.TesseraError, match=words):
            kernel.check(arrays)


def test_values_may_have_a_dim_of_their_own():
    words = dict(heads=2, head_dim=192, v_head_dim=128)
    kernel = ts.compile(planned(0), **words)
    back = ts.compile(planned(0), **words, backward=True)
    assert (kernel.head_dim, kernel.v_head_dim) == (192, 128)

    def loss(q, k, v, a, b):
        out = tessera.jax.tpu_attention(
            q, k, v, a, kernel, gradients=back, gradient_arrays=b)
        assert out.shape == (1, 2, LENGTH, 128)
        return out.astype(jnp.float32).sum()

    q = jax.ShapeDtypeStruct((1, 2, LENGTH, 192), jnp.bfloat16)
    v = array(2)
    made = jax.eval_shape(jax.grad(loss, (0, 1, 2)), q, q, v,
                          shapes(kernel.arrays(planned(0))),
                          shapes(back.arrays(planned(0))))
    assert [x.shape[3] for x in made] == [192, 192, 128]
    small = jnp.zeros((1, 2, 16, 128), jnp.bfloat16)
    with pytest.raises(ts.TesseraError, match="q must be bfloat16 .*, 192"):
        tessera.jax.tpu_attention(
            small, small, small, kernel.arrays(planned(0)), kernel)
    wide = jnp.zeros((1, 2, 16, 192), jnp.bfloat16)
    with pytest.raises(ts.TesseraError, match="the kernel's head dims"):
        tessera.jax.tpu_attention(
            wide, wide, small, kernel.arrays(planned(0)), kernel,
            gradients=ts.compile(planned(0), heads=2, backward=True))
    with pytest.raises(ts.TesseraError, match="a multiple of 64 up to 256"):
        ts.compile(planned(0), heads=2, head_dim=96)


def test_float32():
    words = dict(heads=2, dtype="float32", sink_logits=True)
    kernel = ts.compile(planned(0), **words)
    back = ts.compile(planned(0), **words, backward=True)
    assert kernel.dtype == back.dtype == "float32"
    assert kernel.key != ts.compile(planned(0), heads=2, sink_logits=True).key
    assert "bf16" not in kernel.text + back.text
    q = jax.ShapeDtypeStruct((1, 2, LENGTH, 128), jnp.float32)

    def loss(q, z, a, b, back=back):
        return tessera.jax.tpu_attention(
            q, q, q, a, kernel, gradients=back, gradient_arrays=b,
            sink_logits=z).sum()

    shape = jax.ShapeDtypeStruct((2,), jnp.float32)
    given = (shape, shapes(kernel.arrays(planned(0))),
             shapes(back.arrays(planned(0))))
    made = jax.eval_shape(jax.grad(loss), q, *given)
    assert made.dtype == jnp.float32
    narrow = ts.compile(planned(0), heads=2, sink_logits=True, backward=True)
    with pytest.raises(ts.TesseraError, match="the kernel's dtype, found bf"):
        jax.eval_shape(lambda *x: loss(*x, back=narrow), q, *given)
    with pytest.raises(ts.TesseraError, match="q must be float32 .*bfloat16"):
        jax.eval_shape(loss, array(2), *given)
    with pytest.raises(ts.TesseraError, match="or f32, found F16, which the"):
        ts.compile(planned(0), heads=2, dtype="f16")
    assert ts.tpu_setting("causal", q_len=LENGTH, dtype="f32")


def test_a_softcap_is_static():
    kernels = [ts.compile(planned(0), heads=2, softcap=cap, backward=backward)
               for cap in (0, 30, 50) for backward in (False, True)]
    assert len({k.key for k in kernels}) == 6
    assert [k.softcap for k in kernels] == [0, 0, 30, 30, 50, 50]
    assert ["math.tanh" in k.text for k in kernels] == [False] * 2 + [True] * 4
    with pytest.raises(ts.TesseraError, match="softcap must be 0 or from"):
        ts.compile(planned(0), heads=2, softcap=1e7)


def test_sink_logits_are_the_kernels_or_none():
    kernel = ts.compile(planned(0), heads=2, sink_logits=True)
    assert kernel.sink_logits and not ts.compile(planned(0), heads=2).sink_logits
    q = jnp.zeros((1, 2, 16, 128), jnp.bfloat16)
    a = kernel.arrays(planned(0))
    for sinks in (None, jnp.zeros(3), jnp.zeros(2, jnp.bfloat16)):
        with pytest.raises(ts.TesseraError, match="sink_logits must be float32"):
            tessera.jax.tpu_attention(q, q, q, a, kernel, sink_logits=sinks)
    plain = ts.compile(planned(0), heads=2)
    with pytest.raises(ts.TesseraError, match="sink_logits must be float32"):
        tessera.jax.tpu_attention(q, q, q, a, plain, sink_logits=jnp.zeros(2))
    with pytest.raises(ts.TesseraError, match="sink_logits must be float32"):
        tessera.jax.tpu_attention(
            q, q, q, a, kernel, sink_logits=jnp.zeros(2),
            gradients=ts.compile(planned(0), heads=2, backward=True))


def test_it_compiles_for_v6e_alone_and_on_four_chips():
    pytest.importorskip("libtpu")
    chips = topologies.get_topology_desc(
        platform="tpu", topology_name="v6e:2x2").devices
    kernel = ts.compile(planned(0), heads=2)
    arrays = kernel.arrays(planned(0))

    def layer(q, k, v, a):
        out, lse = tessera.jax.tpu_attention(
            q * 2, k, v, a, kernel, return_lse=True)
        return out.astype(jnp.float32).sum(-1) + lse

    one = SingleDeviceSharding(chips[0])
    q = shapes(array(2), one)
    compiled = jax.jit(layer).trace(q, q, q, shapes(arrays, one)).lower(
        lowering_platforms=("tpu",)).compile()
    assert "tpu_custom_call" in compiled.as_text()

    cap = dict(heads=2, softcap=30, sink_logits=True)
    capped = ts.compile(planned(0), **cap)
    back = ts.compile(planned(0), **cap, backward=True)
    words = dict(gradients=back)
    step = jax.grad(lambda q, k, v, z, a, b: tessera.jax.tpu_attention(
        q, k, v, a, capped, gradient_arrays=b, sink_logits=z, **words).astype(
            jnp.float32).sum(), (0, 1, 2, 3))
    sinks = shapes(jax.ShapeDtypeStruct((2,), jnp.float32), one)
    trained = jax.jit(step).trace(
        q, q, q, sinks, shapes(arrays, one),
        shapes(back.arrays(planned(0)), one)).lower(
            lowering_platforms=("tpu",)).compile()
    assert trained.out_info[3].shape == (2,)
    trained = trained.as_text()
    assert "tessera_forward" in trained and "tessera_backward" in trained

    mesh = Mesh(np.array(chips), ("h",))
    heads = P(None, "h")
    spread = jax.jit(jax.shard_map(
        layer, mesh=mesh, in_specs=(heads, heads, heads, P()),
        out_specs=heads, check_vma=False))
    q = shapes(array(8), NamedSharding(mesh, heads))
    text = spread.trace(q, q, q, shapes(arrays, NamedSharding(mesh, P()))).lower(
        lowering_platforms=("tpu",)).compile().as_text()
    assert "tpu_custom_call" in text
    for collective in ("all-gather", "all-reduce", "collective-permute",
                       "all-to-all"):
        assert collective not in text
    # Without it every chip would do all heads.
    with pytest.raises(ts.TesseraError, match="must be in a jax.shard_map"):
        jax.jit(layer).trace(q, q, q, shapes(arrays, NamedSharding(mesh, P()))
                             ).lower(lowering_platforms=("tpu",))
