"""The core package against the NumPy oracle: plans, attention, sessions."""

import array
import ctypes
import functools
import gc
import html
import json
import multiprocessing
import os
import pickle
import re
import resource
import subprocess
import sys
import threading
import time

import judge
import ml_dtypes
import numpy as np
import oracle
import pytest
import tessera as ts
import tessera.data
import tessera.train
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_cases import cases, planned

FAST = settings(max_examples=60, deadline=None, derandomize=True,
                suppress_health_check=list(HealthCheck))


def dense_classes(w, lists):
    out = np.zeros((lists, w.rows, w.columns), int)
    for at in range(lists * w.rows):
        for i in range(w.row_start[at], w.row_start[at + 1]):
            out[at // w.rows, at % w.rows, w.column[i]] = w.tile_class[i]
    return out


@pytest.mark.parametrize("n", [1, 447, 448, 449, 896, 1000])
def test_ids_of_an_array_are_those_of_a_list(n):
    ids = np.sort(np.random.default_rng(n).integers(0, 9, n)).astype(np.int32)
    plan = lambda ids: ts.plan(ts.causal & ts.documents, q_len=n, kv_len=n,
                               tile=(16, 16), doc_ids=ids)
    digest = plan(ids).digest
    assert plan(ids.tolist()).digest == digest
    ids[-1] += 1
    assert plan(ids).digest != digest or n == 1


@FAST
@given(cases())
def test_worklists_are_the_oracles(case):
    made, mask = planned(case)
    want = np.stack([oracle.classes(m, *case[-1]) for m in mask])
    assert (dense_classes(made.forward, len(mask)) == want).all()
    assert (dense_classes(made.transposed, len(mask)) ==
            want.transpose(0, 2, 1)).all()
    assert (made.legal_pairs == mask.sum((1, 2))).all()


@FAST
@given(cases(), st.integers(0, 2**31), st.sampled_from(["bhsd", "bshd"]),
       st.booleans())
def test_attention_is_the_oracles(case, seed, layout, with_sinks):
    made, mask = planned(case)
    _, batch, q_len, kv_len = case[:4]
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((batch, 4, q_len, 8), np.float32)
    k = rng.standard_normal((batch, 2, kv_len, 8), np.float32)
    v = rng.standard_normal((batch, 2, kv_len, 16), np.float32)
    sinks = rng.standard_normal(4, np.float32) if with_sinks else None
    want = judge.attention(q, k, v, mask, sinks=sinks)
    turn = (lambda x: x) if layout == "bhsd" else (
        lambda x: np.ascontiguousarray(x.swapaxes(1, 2)))
    out, lse = ts.attention(turn(q), turn(k), turn(v), made, layout=layout,
                            sink_logits=sinks, return_lse=True)
    judge.check_all(
        (out if layout == "bhsd" else out.swapaxes(1, 2), lse), want)


def test_a_tree_gives_what_its_sequences_give():
    rng = np.random.default_rng(4)
    prompt = rng.integers(0, 9, 21).tolist()
    sequences = [prompt + rng.integers(0, 2, n).tolist()
                 for n in (5, 17, 8, 1)]
    tree = ts.pack_tree(sequences)
    assert len(tree) == len(tree.tokens) == len(tree.depth)
    assert tree.tokens_saved == sum(map(len, sequences)) - len(tree) >= 3 * 21
    batch = ts.plan(ts.tree, q_len=len(tree), tree_enter=tree.enter,
                    tree_leave=tree.leave, tile=(8, 16))
    assert (batch.facts["tree_enter"] == tree.enter).all()
    q, k, v = rng.standard_normal((3, 1, 2, len(tree), 8), np.float32)
    out = ts.attention(q, k, v, batch)
    for sequence, path in zip(sequences, tree.paths):
        n = len(sequence)
        assert list(tree.tokens[path]) == sequence
        assert list(tree.depth[path]) == list(range(n))
        want, _ = judge.attention(q[:, :, path], k[:, :, path], v[:, :, path],
                                  np.tri(n, dtype=bool)[None])
        judge.check(out[:, :, path], want)


def test_named_ids():
    rng = np.random.default_rng(5)
    images = np.repeat(rng.integers(-2, 4, 24), 4).astype(np.int32)
    frames = np.repeat(rng.integers(-1, 2, 12), 8).astype(np.int32)
    mask = (ts.causal | ts.same("a")) & ~ts.same("b")
    assert str(mask) == "(causal | same(a)) & !same(b)"
    made = ts.plan(mask, q_len=96, same={"a": images, "b": frames},
                   tile=(16, 16))
    assert (made.facts["same_a"] == images).all() and made.masks == [
        "!same(b) & (causal | same(a))"]
    again = pickle.loads(pickle.dumps(made))
    assert again == made and again.digest == made.digest
    q, k, v = rng.standard_normal((3, 1, 2, 96, 8), np.float32)
    out, lse = ts.attention(q, k, v, made, return_lse=True)
    pairs = oracle.legal(("and", ("or", ("causal",), ("same", "a")),
                          ("not", ("same", "b"))), 96, 96,
                         same={"a": images, "b": frames})
    judge.check_all((out, lse), judge.attention(q, k, v, pairs[None]))
    for arguments, message in (
            ({}, "needs same_a, found none"),
            ({"same": {"a": images}}, "needs same_b, found none"),
            ({"same": [images]}, "must be a dict of a letter"),
            ({"same": {"image": images}}, "letters from a to h, found 'image'"),
            ({"same": {"a": images[1:], "b": frames}}, "must have the shape")):
        with pytest.raises(ts.TesseraError, match=message):
            ts.plan(mask, q_len=96, **arguments)
    for name in "z", "A", "ab", "a) | full & same(b":
        with pytest.raises(ts.TesseraError, match="same takes a letter"):
            ts.same(name)


def test_a_tree_that_is_none_is_refused():
    for arguments, message in [
            ({}, "tree needs tree_enter, found none"),
            (dict(tree_enter=[0, 1, 2]), "tree needs tree_leave, found none"),
            (dict(tree_enter=[0, 2, 1], tree_leave=[3, 3, 3]),
             "tree_enter must rise from token to token, found 1 after 2 for "
             "token 2 of row 0")]:
        with pytest.raises(ts.TesseraError, match=message):
            ts.plan(ts.tree, q_len=3, **arguments)
    with pytest.raises(ts.TesseraError, match="found 0 for sequence 1"):
        ts.pack_tree([[1], []])


def packed(q_len=192, heads=4, kv_heads=2, dim=16, seed=0):
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(6, dtype=np.int32), q_len // 6)
    q = rng.standard_normal((1, heads, q_len, dim), np.float32)
    k, v = (rng.standard_normal((1, kv_heads, q_len, dim), np.float32)
            for _ in range(2))
    made = ts.plan(ts.causal & ts.window(20, 0) & ts.documents, q_len=q_len,
                   doc_ids=ids, tile=(32, 32))
    mask = oracle.legal(("and", ("causal",), ("window", 20, 0),
                         ("documents",)), q_len, q_len, ids)[None]
    return made, mask, q, k, v


@pytest.mark.parametrize("softcap", [0.0, 5.0])
@pytest.mark.parametrize("lane", ["cpu", "reference"])
def test_session_gradients(softcap, lane):
    made, mask, q, k, v = packed()
    rng = np.random.default_rng(1)
    sinks = rng.standard_normal(4, np.float32)
    dout = rng.standard_normal(q.shape, np.float32)
    dlse = rng.standard_normal(q.shape[:3], np.float32)
    session = ts.Session(lane)
    ready = session.prepare(made, heads=4, kv_heads=2, head_dim=16,
                            softcap=softcap, sink_logits=True, backward=True,
                            dlse=True)
    assert ready.lane == lane
    saved = ready.forward(q, k, v, sink_logits=sinks)
    got = [saved.out, saved.lse, *ready.backward(saved, dout, dlse=dlse)]
    judge.check_all(got, judge.attention(
        q, k, v, mask, softcap=softcap, sinks=sinks, dout=dout, dlse=dlse))
    assert ready.counters()["forwards"] == 1
    receipt = ready.receipt(saved)
    assert json.loads(receipt)["plan"]["digest"] == made.digest
    same = dict(softcap=softcap, sink_logits=sinks, dout=dout, dlse=dlse)
    assert ts.verify(receipt, q, k, v, made, **same) == []
    assert ts.verify(receipt, q * 2, k, v, made, **same) != []


def test_a_receipt_is_shown_as_text():
    made, _, q, k, v = packed()
    ready = ts.Session("cpu").prepare(made, heads=4, kv_heads=2, head_dim=16)
    receipt = ready.receipt(ready.forward(q, k, v))
    text = ts.receipt_text(receipt)
    assert text.startswith("asked       cpu (by caller)\nchosen      cpu: ")
    assert f"\nplan        {made.digest}\n" in text
    digest = json.loads(receipt)["receipt_digest"]
    assert text.endswith(f"\ndigest      {digest}, that of its fields\n")
    with pytest.raises(ts.TesseraError, match=r"^\[receipt\] "):
        ts.receipt_text("{}")


def test_backward_takes_its_own_saved():
    made, _, q, k, v = packed()
    session = ts.Session("cpu")
    call = dict(heads=4, kv_heads=2, head_dim=16, backward=True)
    one, two = session.prepare(made, **call), session.prepare(made, **call)
    saved = one.forward(q, k, v)
    with pytest.raises(ts.TesseraError, match="found another's"):
        two.backward(saved, q)
    one.next(packed(seed=3)[0])
    with pytest.raises(ts.TesseraError, match="found another's"):
        one.backward(saved, q)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_short_floats(dtype):
    made, mask, q, k, v = packed()
    q, k, v = (x.astype(dtype) for x in (q, k, v))
    out = ts.attention(q, k, v, made)
    assert out.dtype == dtype
    judge.check(out, judge.attention(q, k, v, mask)[0])


def first_keys(e, n):
    return ("and", e, ("sink", n))


@FAST
@given(cases(), st.integers(1, 9), st.integers(0, 2**31),
       st.sampled_from(["bhsd", "bshd"]), st.booleans(), st.booleans())
def test_sink_telemetry_is_the_oracles(case, n, seed, layout, with_sinks,
                                       short):
    made, mask = planned(case)
    _, first = planned((first_keys(case[0], n), *case[1:]))
    _, batch, q_len, kv_len = case[:4]
    rng = np.random.default_rng(seed)
    dtype = ml_dtypes.bfloat16 if short else np.float32
    q = rng.standard_normal((batch, 4, q_len, 8), np.float32).astype(dtype)
    k = rng.standard_normal((batch, 2, kv_len, 8), np.float32).astype(dtype)
    sinks = rng.standard_normal(4, np.float32) if with_sinks else None
    want = judge.sink_telemetry(q, k, mask, first, sinks=sinks)
    turn = (lambda x: x) if layout == "bhsd" else (
        lambda x: np.ascontiguousarray(x.swapaxes(1, 2)))
    out, told = ts.attention(turn(q), turn(k), turn(k), made, layout=layout,
                             sink_logits=sinks, sink_telemetry=n)
    judge.check(told.mass, want[0], "mass")
    judge.check(told.entropy, want[1], "entropy")
    dead = ~mask.any(2)[:, None] & np.ones(told.mass.shape, bool)
    assert (told.mass[dead] == 0).all() and (told.entropy[dead] == 0).all()
    plain = ts.attention(turn(q), turn(k), turn(k), made, layout=layout,
                         sink_logits=sinks)
    assert out.tobytes() == plain.tobytes()


def test_sink_telemetry_by_document():
    ids = np.repeat(np.int32([7, 9, 7, -1]), (20, 25, 19, 6))
    rng = np.random.default_rng(2)
    q = rng.standard_normal((1, 4, 70, 16), np.float32)
    k = rng.standard_normal((1, 2, 70, 16), np.float32)
    for mask, groups in [("causal & documents", [7, 9]),
                         ("causal & segments", [0, 1, 2]), ("causal", [None])]:
        made = ts.plan(mask, q_len=70, tile=(16, 16),
                       doc_ids=None if groups == [None] else ids)
        ready = ts.Session().prepare(made, heads=4, kv_heads=2, head_dim=16,
                                     sink_telemetry=True)
        saved = ready.forward(q, k, k)
        told = ready.sink_telemetry(saved, 3)
        assert told.first_keys == 3 and "first_keys=3" in repr(told)
        assert told.mass.shape == told.entropy.shape == (1, 4, 70)
        assert [d.document for d in told.documents] == groups
        numbers = (oracle.segments(ids) if "segments" in mask else ids)
        for d in told.documents:
            of = (np.ones(70, bool) if d.document is None
                  else (numbers == d.document) & (ids >= 0))
            assert d.batch_row == 0 and d.queries.tolist() == [of.sum()] * 4
            for mean, each in [(d.mass, told.mass), (d.entropy, told.entropy)]:
                total = np.add.accumulate(
                    each[0][:, of].astype(np.float64), axis=1)[:, -1]
                assert (mean == total / of.sum()).all()
        receipt = ready.receipt(saved)
        assert json.loads(receipt)["sink_telemetry"]["first_keys"] == 3
        assert ts.verify(receipt, q, k, k, made, sink_telemetry=3) == []
        assert ts.verify(receipt, q, k, k, made, sink_telemetry=4) != []
        assert ts.verify(receipt, q, k, k, made) != []
        del ready, saved
        assert told.mass.base is not None and told.documents[0].mass.sum() > 0


def test_sink_telemetry_is_refused():
    made, _, q, k, v = packed()
    call = dict(heads=4, kv_heads=2, head_dim=16)
    ready = ts.Session("cpu").prepare(made, **call)
    saved = ready.forward(q, k, v)
    asked = ts.Session("cpu").prepare(made, sink_telemetry=True, **call)
    own = asked.forward(q, k, v)
    mosaic = dict(call, head_dim=64, sink_telemetry=True)
    for refused, words in [
            (lambda: ready.sink_telemetry(saved, 3), "must say sink_telemetry"),
            (lambda: asked.sink_telemetry(saved, 3), "another's"),
            (lambda: asked.sink_telemetry(own, 0), "first_keys must be 1 to"),
            (lambda: asked.receipt(own), "sink telemetry must be given"),
            (lambda: ts.attention(q, k, v, made, sink_telemetry=0),
             "^.python. sink_telemetry must be 1 to"),
    ]:
        with pytest.raises(ts.TesseraError, match=words) as e:
            refused()
        assert "\n" not in str(e.value)
    rejected = ts.choose(made, **mosaic).rejected["mosaic"]
    assert "sink telemetry" not in rejected
    results = ts.attention(q, k, v, made, return_lse=True, sink_telemetry=3)
    out, lse = ts.attention(q, k, v, made, return_lse=True)
    assert (results[0] == out).all() and (results[1] == lse).all()
    assert results[2].mass.shape == lse.shape


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_joined_sinks_take_their_share(layout, dtype):
    rng = np.random.default_rng(5)
    shape = (2, 3, 7, 16)                 # batch, heads, q_len, dim
    out = rng.standard_normal(shape, np.float32).astype(dtype)
    lse = rng.standard_normal(shape[:3], np.float32)
    sinks = np.array([-1, 0.5, 40], np.float32)
    out[1, 2, 3], lse[1, 2, 3] = 0, -np.inf     # no legal key
    sums, logits = lse.astype(np.float64), sinks[:, None].astype(np.float64)
    want = out.astype(np.float64) / (1 + np.exp(logits - sums))[..., None]
    given = out if layout == "bhsd" else np.ascontiguousarray(
        out.swapaxes(1, 2))
    kept = given.copy()
    joined = ts.join_sinks(given, lse, sinks, layout=layout)
    assert joined.dtype == given.dtype and joined.shape == given.shape
    assert (given == kept).all()
    turned = joined if layout == "bhsd" else joined.swapaxes(1, 2)
    # exp() of libm and of NumPy may differ in the last of 53 bits, which may
    # change the rounding to dtype.
    unit = float(ml_dtypes.finfo(dtype).eps)
    least = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    assert (np.abs(turned.astype(np.float64) - want) <=
            np.maximum(unit / 2 * (1 + 2**-20) * np.abs(want), least)).all()
    assert (turned[1, 2, 3] == 0).all()
    # In place: the call returns the array that it wrote.
    assert ts.join_sinks(given, lse, sinks, layout=layout,
                         joined=given) is given
    assert (given == joined).all()


def test_joined_sinks_are_those_of_attention():
    made, mask, q, k, v = packed()
    sinks = np.linspace(-1, 2, 4, dtype=np.float32)
    out, lse = ts.attention(q, k, v, made, return_lse=True)
    want = judge.attention(q, k, v, mask, sinks=sinks)[0]
    judge.check(ts.join_sinks(out, lse, sinks), want, "out")
    for refused, words in [
            (lambda: ts.join_sinks(out, lse[:, :2].copy(), sinks),
             r"lse must have the shape \[1, 4, 192\], found \[1, 2, 192\]"),
            (lambda: ts.join_sinks(out, lse.swapaxes(1, 2).copy(), sinks),
             r"lse must have the shape \[1, 4, 192\], found \[1, 192, 4\]"),
            (lambda: ts.join_sinks(out, lse, sinks[:3]),
             r"sink_logits must have the shape \[4\], found \[3\]"),
            (lambda: ts.join_sinks(out, lse, sinks, joined=np.zeros(
                out.shape, np.float16)), r"^\[sinks\] joined must be"),
            (lambda: ts.join_sinks(out, lse.astype(np.float64), sinks), "lse"),
            (lambda: ts.join_sinks(out, lse, sinks, layout="sbhd"), "layout"),
    ]:
        with pytest.raises(ts.TesseraError, match=words) as e:
            refused()
        assert "\n" not in str(e.value)


def test_masks():
    m = ts.causal & ts.window(1023, 0) & ts.documents
    assert m == ts.Mask("documents & causal & window(1023, 0)")
    made = ts.plan(m, q_len=8, doc_ids=[0] * 8)
    for one in (m, made, made.contract):  # not equal to other types
        assert one == one and one != 3 and one != "causal" and one != None
    assert m != ts.causal and hash(m) == hash(ts.Mask(str(m)))
    assert str(~(ts.sink(3) | ts.chunk(8))) == str(ts.Mask("!(sink(3) | chunk(8))"))
    assert pickle.loads(pickle.dumps(m)) == m
    for joined in (lambda: ts.causal and m, lambda: m or ts.causal,
                   lambda: not m):  # Python would return one operand
        with pytest.raises(ts.TesseraError, match="joined by &, [|] and ~"):
            joined()
    with pytest.raises(ts.TesseraError, match="from a to h, found 'A'"):
        ts.same("A")
    with pytest.raises(ts.TesseraError) as e:
        ts.Mask("causal & windw(3, 0)")
    assert e.value.column > 0 and e.value.kind == "invalid"
    assert str(e.value).startswith("[mask] ")


def test_documents_from_anywhere():
    ids = np.array([0, 0, 0, 1, 1, 2, 2, 2], np.int32)
    base = dict(mask=ts.causal & ts.documents, q_len=8, tile=(8, 8))
    want = ts.plan(doc_ids=ids, **base)
    for facts in [dict(doc_ids=ids.tolist()), dict(doc_ids=[ids.tolist()]),
                  dict(cu_seqlens=[0, 3, 5, 8]),
                  dict(cu_seqlens=np.array([0, 3, 5, 8], np.int32)),
                  dict(doc_ids=array.array("i", ids)),  # by its buffer
                  dict(doc_ids=memoryview(ids)),
                  dict(position_ids=[0, 1, 2, 0, 1, 0, 1, 2])]:
        got = ts.plan(**facts, **base)
        assert got == want and got.digest == want.digest, facts
    ids[:] = 0  # the batch has its own copy
    assert want.facts["doc_ids"].tolist() == [[0, 0, 0, 1, 1, 2, 2, 2]]
    assert not want.facts["doc_ids"].flags.writeable
    assert not want.forward.row_start.flags.writeable


def test_batches_say_what_they_are():
    made, *_ = packed()
    assert repr(made).startswith("Batch('causal & documents & window(20, 0)'")
    said = json.loads(made.json())
    assert said["contract"] == made.contract.key
    assert said["statistics"]["tiles_active"] == len(made.forward)
    again = pickle.loads(pickle.dumps(made))
    assert again == made and again.contract == made.contract
    assert "<iframe" in made._repr_html_()
    column = made.forward.column
    keep = made.forward.row_start
    del made
    gc.collect()
    assert column[0] == 0 and keep[0] == 0
    assert ts.plan(ts.documents, q_len=8, doc_ids=[0] * 8).warnings == []
    assert ts.plan(ts.causal, q_len=8, doc_ids=[0] * 8).warnings == [
        "[plan] a fact should be named by a mask, found doc_ids unused"]


class Named:
    """An os.PathLike that is not a pathlib path."""

    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return str(self.path)


def test_a_path_is_whatever_names_a_file(tmp_path):
    made, *_ = packed()
    for i, kind in enumerate((str, os.fsencode, Named, lambda path: path)):
        path = kind(tmp_path / f"{i}.plan")
        made.save(path)
        assert ts.Batch.load(path) == made
    assert len(os.listdir(tmp_path)) == 4
    none = tmp_path / "none"
    ts.Session("cpu", plugin=none, cache_folder=tmp_path)
    for call in (lambda: ts.Batch.load(none),
                 lambda: ts.Session("splash", artifact=none, shapes=none),
                 lambda: tessera.train.import_hugging_face(none),
                 lambda: tessera.train.export_hugging_face(b"no", none),
                 lambda: next(tessera.data.Loader([none], tokens=8, rows=1))):
        with pytest.raises(ts.TesseraError) as e:
            call()
        assert "\n" not in str(e.value)
    with pytest.raises(ts.TesseraError, match=f"found no file for '{none}'"):
        tessera.train.Trainer({}, rows=1, tokens=64, plugin=none,
                              cache_folder=tmp_path)


def test_ceilings_fix_the_contract():
    rng = np.random.default_rng(5)
    keys = set()
    for _ in range(20):
        ids = np.sort(rng.integers(0, 9, 256)).astype(np.int32)
        keys.add(ts.plan(ts.causal & ts.documents, q_len=256, doc_ids=ids,
                         tile=(32, 32), max_steps=64, max_width=8).contract)
    assert len(keys) == 1
    with pytest.raises(ts.TesseraError, match="max_steps") as e:
        ts.plan(ts.causal, q_len=256, tile=(32, 32), max_steps=20)
    assert e.value.kind == "limit"


def test_bad_input_is_refused():
    made, _, q, k, v = packed()
    i64 = np.zeros(8, np.int64)
    frozen = np.zeros_like(q)
    frozen.flags.writeable = False
    doc = dict(mask=ts.documents, q_len=8)
    ready = ts.Session("cpu").prepare(made, heads=4, kv_heads=2, head_dim=16,
                                      backward=True, dlse=True)
    backward = functools.partial(ready.backward, ready.forward(q, k, v))
    for call, words in [
            (lambda: ts.plan(**doc), "needs doc_ids"),
            (lambda: ts.plan(doc_ids=i64, **doc), "int32, found ndarray of int64"),
            (lambda: ts.plan(doc_ids=[0] * 7, **doc), "shape"),
            (lambda: ts.plan(doc_ids=[0.5] * 8, **doc), "int32"),
            (lambda: ts.plan(doc_ids=[2**40] * 8, **doc), "int32"),
            (lambda: ts.plan(doc_ids=[[0] * 8, [0] * 7], **doc), "ragged"),
            (lambda: ts.plan(doc_ids=np.zeros(16, np.int32)[::2], **doc), "C order"),
            (lambda: ts.plan(doc_ids="x", **doc), "array"),
            (lambda: ts.plan(7, q_len=8), "mask"),
            (lambda: ts.plan(ts.causal, q_len=0), "q_len"),
            (lambda: ts.plan(ts.causal, q_len=8, batch=2, cu_seqlens=[0, 8]), "batch"),
            # One number is repeated for each row, only after `batch` is
            # checked.
            (lambda: ts.plan(ts.prefix, q_len=8, batch=2**45, prefix=1),
             "batch must be from 1 to 1048576, found 35184372088832"),
            (lambda: ts.plan(ts.causal, q_len=8, batch=2**45, q_offset=1),
             "batch must be from 1 to 1048576"),
            (lambda: ts.plan(ts.causal, q_len=8, batch=2**45,
                             valid_token_counts=1),
             "batch must be from 1 to 1048576"),
            (lambda: ts.attention(q[0], k, v, made), "4 dimensions"),
            (lambda: ts.attention(q[..., ::2], k, v, made), "contiguous"),
            (lambda: ts.attention(q[:, :3], k, v, made), "kv_heads"),
            (lambda: ts.attention(q.astype(np.float64), k, v, made), "f64"),
            (lambda: ts.attention(q.astype(np.float16), k, v, made), "F32"),
            (lambda: ts.attention(q[:, :, :9], k, v, made), "q"),
            (lambda: ts.attention(q.tolist(), k, v, made), "array"),
            # The size is right, the shape is not.
            (lambda: ts.attention(q, k, v, made, sink_logits=np.zeros(
                (2, 2), np.float32)), r"shape \[4\], found \[2, 2\]"),
            (lambda: backward(q, dlse=np.zeros((1, 192, 4), np.float32)),
             r"dlse must have the shape \[1, 4, 192\], found \[1, 192, 4\]"),
            # Strides of an empty array are not the error.
            (lambda: ts.attention(q[:, :0], k, v, made),
             r"^\[run\] heads must be from 1 to 65536, found 0"),
            (lambda: ts.attention(q[:, :, :0], k, v, made, return_lse=True),
             r"found \[1, 4, 0, 16\]"),
            (lambda: ts.plan(ts.blocks(4), q_len=8, block_mask=b"x"),
             "found bytes with 1 dimensions"),
            (lambda: ts.plan(doc_ids=np.zeros(8, np.uint32), **doc),
             "int32, .* found ndarray of uint32"),
            (lambda: ts.attention(q, k, v, made, layout="hbsd"), "layout"),
            (lambda: ts.attention(q, k, v, 3),
             "batch must be a tessera.Batch, found int"),
            (lambda: ts.attention(q, k, v, made, session="cpu"),
             "session must be a tessera.Session, found str"),
            (lambda: ts.choose(q, heads=4, head_dim=16), "found ndarray"),
            (lambda: ts.choose(made, heads=2**62, head_dim=16),
             r"^\[run\] heads must be from 1 to 65536, found 4611686018427387904"),
            (lambda: ts.fit(made, heads=2**30),
             r"^\[fit\] heads must be from 1 to 65536, found 1073741824"),
            (lambda: ts.choose(made, heads=4, head_dim=16, softcap=-1.0),
             "its softcap 0 or more, not 0.25 and -1"),
            (lambda: ts.Session().prepare(q, heads=4, head_dim=16),
             "found ndarray"),
            (lambda: ts.Session().prepare(made, heads=4, head_dim=16, dlse=True),
             r"\[run\] dlse goes with backward, found it alone"),
            (lambda: ts.shard(q, "seq=2"), "found ndarray"),
            (lambda: ts.attention(q, k, v, made, out=frozen), "writable"),
            (lambda: ts.attention(q, k, v, made, out=q), "out"),
            (lambda: ts.Session("gpu"), "gpu"),
            (lambda: ts.Batch.from_bytes(b"no plan"), "plan"),
    ]:
        with pytest.raises(ts.TesseraError, match=words) as e:
            call()
        assert "\n" not in str(e.value)
    with pytest.raises(TypeError):
        ts.attention(q, k, v)


def test_routed_batches():
    rng = np.random.default_rng(3)
    q = rng.standard_normal((1, 4, 128, 8), np.float32)
    k = rng.standard_normal((1, 2, 128, 8), np.float32)
    sizes = dict(compression=8, stride=8, query_tile=16, kv_tile=32)
    made = ts.route(ts.causal & ts.routed(2, 16), q, k, tile=(16, 16), **sizes)
    picks = made.facts["picks"]
    assert picks.shape == (1, 2, 128, 2)
    # Each 8 keys are pooled to one. The score of a block is the larger one of
    # its two pooled keys, of those that end at or before the query. A query picks
    # its own block and one more.
    pooled = k.reshape(1, 2, 16, 8, 8).astype(np.float64).mean(3)
    score = np.einsum("gqd,pd->qp", q[0, :2].astype(np.float64), pooled[0, 0])
    for at in range(128):
        whole = [max([score[at, p] for p in (2 * b, 2 * b + 1)
                      if 8 * p + 7 <= at], default=-np.inf)
                 for b in range(at // 16)]
        best = [int(np.argmax(whole))] if whole else []
        want = sorted([*best, at // 16])
        assert [p for p in picks[0, 0, at] if p >= 0] == want, at
    mask = np.zeros((4, 128, 128), bool)
    for h in range(4):
        for at in range(128):
            for b in picks[0, h // 2, at]:
                if b >= 0:
                    mask[h, at, 16 * b:16 * b + 16] = True
    mask &= np.tril(np.ones((128, 128), bool))
    out = ts.attention(q, k, k, made)
    judge.check(out, judge.attention(q, k, k, mask[None])[0])


def test_topk_idxs():
    rng = np.random.default_rng(7)
    q = rng.standard_normal((1, 4, 96, 8), np.float32)
    k, v = rng.standard_normal((2, 1, 2, 96, 8), np.float32)
    for block in 1, 4, 64:
        blocks = -(-96 // block)
        topk = np.full((96, 2, 3), -1, np.int32)
        mask = np.zeros((2, 96, 96), bool)
        for at in range(96):
            if at % 11 == 0:
                continue  # this query picks no block
            for group in range(2):
                some = rng.permutation(blocks)[:2]
                topk[at, group, [2, 0][:len(some)]] = some
                for b in some:
                    mask[group, at, block * b:block * b + block] = True
        mask &= np.tril(np.ones((96, 96), bool))
        made = ts.plan(ts.causal & ts.blocks(block), q_len=96,
                       topk_idxs=topk)
        np.testing.assert_array_equal(made.topk_idxs(), topk)
        out, lse = ts.attention(q, k, v, made, return_lse=True)
        judge.check_all((out, lse), judge.attention(
            q, k, v, np.repeat(mask, 2, 0)[None]))
        assert np.isneginf(lse[0, :, 0]).all() and not out[0, :, 0].any()
    rows = ts.plan(ts.blocks(4), q_len=2, kv_len=8, topk_idxs=[[0], [-1]])
    np.testing.assert_array_equal(rows.topk_idxs(), [[0], [-1]])
    for bad, why in (([[0], [2]], "must be from -1 to 1, blocks of 4 keys, "
                                  "found 2 for query 1"),
                     ([[0, 0], [1, -1]], "must differ, found 0 twice"),
                     ([0, 1], "must have the shape"),
                     (np.zeros((2, 1)), "must be int32")):
        with pytest.raises(ts.TesseraError, match=why):
            ts.plan(ts.blocks(4), q_len=2, kv_len=8, topk_idxs=bad)
    with pytest.raises(ts.TesseraError, match="found 2"):
        ts.plan(ts.blocks(4), q_len=2, kv_len=8, topk_idxs=[[0], [1]],
                picks=[[[[0], [1]]]])
    with pytest.raises(ts.TesseraError, match="blocks"):
        ts.plan(ts.causal, q_len=2).topk_idxs()


def worklist_of(cells):
    starts, columns = [0], []
    for row in cells.reshape(-1, cells.shape[-1]):
        columns.extend(np.flatnonzero(row))
        starts.append(len(columns))
    return starts, columns


def test_block_mask():
    rng = np.random.default_rng(8)
    cells = rng.random((3, 70, 130)) < 0.15
    cells[1] = True
    cells[2, 5] = False
    packed_cells = np.packbits(cells, -1, "little")
    for lists in (ts.block_lists(cells), ts.block_lists(cells.view(np.uint8)),
                  ts.block_lists(packed_cells, columns=130, isa="portable")):
        for made, want in ((lists.forward, cells),
                           (lists.transposed, cells.transpose(0, 2, 1))):
            starts, columns = worklist_of(want)
            np.testing.assert_array_equal(made.row_start, starts)
            np.testing.assert_array_equal(made.column, columns)
            assert (made.tile_class == 2).all() and made.lists == 3
    for bad, options, why in (
            (cells, {"max_tiles": 9}, "must be at most 9, found "),
            (cells[:, ::2], {}, "C order"), (cells[0, 0], {}, "1 dimensions"),
            (cells.astype(np.float32), {}, "float32 with 3 dimensions"),
            (cells, {"columns": 130}, "uint8, a bit a block"),
            (packed_cells, {"columns": 140}, "must hold 18 bytes a row"),
            (packed_cells | 128, {"columns": 130}, "must be 0, found others"),
            (cells, {"isa": "abacus"}, "abacus")):
        with pytest.raises(ts.TesseraError, match=why):
            ts.block_lists(bad, **options)


def test_a_block_mask_is_planned_and_attended():
    rng = np.random.default_rng(9)
    q = rng.standard_normal((1, 4, 90, 8), np.float32)
    k, v = rng.standard_normal((2, 1, 2, 90, 8), np.float32)
    cells = rng.random((2, 6, 6)) < 0.4
    pairs = np.kron(cells, np.ones((16, 16), bool))[:, :90, :90]
    for mask, rule in ((ts.blocks(16), True),
                       (ts.causal & ts.blocks(16), np.tri(90, dtype=bool))):
        made = ts.plan(mask, q_len=90, tile=(16, 16), block_mask=cells)
        out, lse = ts.attention(q, k, v, made, return_lse=True)
        judge.check_all((out, lse), judge.attention(
            q, k, v, np.repeat(pairs & rule, 2, 0)[None]))
    exact = ts.plan(ts.blocks(16), q_len=90, tile=(16, 16), block_mask=cells)
    lists = ts.block_lists(cells)
    np.testing.assert_array_equal(exact.forward.column, lists.forward.column)
    np.testing.assert_array_equal(exact.transposed.row_start,
                                  lists.transposed.row_start)
    with pytest.raises(ts.TesseraError, match=r"must be \[1, heads, 6, 6\]"):
        ts.plan(ts.blocks(16), q_len=90, block_mask=cells[:, :, :5].copy())
    with pytest.raises(ts.TesseraError, match="found 2"):
        ts.plan(ts.blocks(16), q_len=90, block_mask=cells, topk_idxs=[[0]])


def test_choices_and_tpu_programs():
    made, *_ = packed()
    choice = ts.choose(made, heads=4, head_dim=16)
    assert choice.lane == "cpu" and "mosaic" in choice.rejected
    ids = np.repeat(np.arange(4, dtype=np.int32), 512)
    for_tpu = ts.plan(ts.causal & ts.documents, q_len=2048, doc_ids=ids,
                      tile=(512, 256), max_steps=128)
    kernel = ts.compile(for_tpu, heads=8, kv_heads=2)
    assert "tpu_custom_call" in kernel.program_text
    found = kernel.arrays(for_tpu)
    assert found["kv_ids"].tolist() == [ids.reshape(-1, 128).tolist()]
    assert found["steps"].shape == (kernel.steps,)
    with pytest.raises(ts.TesseraError, match=r"^\[mosaic\]"):
        ts.compile(for_tpu, heads=8, head_dim=96)


def test_a_plan_that_is_not_the_kernels_is_refused():
    sizes = dict(q_len=4096, tile=(512, 512))
    for chunk in (None, 1024):
        kernel = ts.compile(ts.plan(ts.causal, **sizes), heads=8, backward=True,
                            query_chunk=chunk)
        for more, words in (
                (dict(tile=(128, 128)), "tile must be .* 512x512, found 128x128"),
                (dict(q_len=8192), "q_len must fit .* 4096, found 8192"),
                (dict(kv_len=8192), "kv_len must fit .* 4096, found 8192"),
                (dict(batch=2), "batch must fit .* 1, found 2")):
            with pytest.raises(ts.TesseraError, match=rf"^\[mosaic\] .*{words}"):
                kernel.arrays(ts.plan(ts.causal, **sizes | more))


def test_a_tile_below_the_granule_has_a_reason():
    small, large = (ts.plan(ts.causal, q_len=1024, tile=tile)
                    for tile in ((256, 128), (256, 256)))
    with pytest.raises(ts.TesseraError, match=r"^\[mosaic\] a tile below the "
                       r"granule of v6e, 256x256, .* found none for 256x128"):
        ts.compile(small, heads=2)
    one, other = (ts.compile(small, heads=2, lowering_reason=why)
                  for why in ("few tokens", "pr\u00fcfen"))
    assert '"lowering_reason":"few tokens"' in one.contract
    assert one.text == other.text and one.key != other.key
    assert "lowering" not in ts.compile(large, heads=2).contract
    with pytest.raises(ts.TesseraError, match="found one for 256x256"):
        ts.compile(large, heads=2, lowering_reason="few tokens")
    for bad in ("", "two\nlines", "a" * 201):
        with pytest.raises(ts.TesseraError, match="a lowering reason must be"):
            ts.compile(small, heads=2, lowering_reason=bad)
        with pytest.raises(ts.TesseraError, match="a lowering reason must be"):
            ts.Session(lowering_reason=bad)
    made, *_ = packed()
    with pytest.raises(ts.TesseraError, match="found one for the cpu lane"):
        ts.Session("cpu", lowering_reason="few tokens").prepare(
            made, heads=4, head_dim=16)


def test_the_setting_of_a_tpu_program():
    ids = np.repeat(np.arange(8, dtype=np.int32), 1024)
    mask = ts.causal & ts.documents
    seen = ts.plan(mask, q_len=8192, doc_ids=ids)
    assert seen.keys_per_query == 512  # the mean is 512.5
    usual = ts.tpu_setting(mask, q_len=8192)
    assert usual == ((512, 256), 4)  # without the lengths of documents
    tile, tiles = ts.tpu_setting(mask, q_len=8192,
                                 keys_per_query=seen.keys_per_query)
    assert (tile, tiles) != usual
    batch = ts.plan(mask, q_len=8192, doc_ids=ids, tile=tile)
    kernel = ts.compile(batch, heads=8, tiles_per_pass=tiles)
    assert f'"tiles_per_pass":{tiles}' in kernel.contract
    assert ts.tpu_setting("causal", q_len=8192, backward=True) != usual
    for wrong, why in (({"q_len": 0}, "q_len must be from 1 to"),
                       ({"kv_len": 2**62}, "kv_len must be from 1 to"),
                       ({"head_dim": 0}, "head_dim must be 1 or more, found 0"),
                       ({"keys_per_query": -1}, "must be 0 or more, found -1")):
        with pytest.raises(ts.TesseraError, match=why):
            ts.tpu_setting(mask, **{"q_len": 8192, **wrong})
    rounded = ts.compile(batch, heads=8, row_sum="rounded")
    assert '"row_sum_rounded":1' in rounded.contract
    assert '"row_sum_rounded":0' in kernel.contract
    for wrong, why in (
            ({"row_sum": "both"},
             r"^\[mosaic\] row_sum must be exact or rounded, found 'both'$"),
            ({"row_sum": "rounded", "backward": True}, "row sum")):
        with pytest.raises(ValueError, match=why):
            ts.compile(batch, heads=8, **wrong)
    with pytest.raises(ValueError, match="row_sum must be exact or rounded, fo"):
        ts.Session(row_sum="both")
    guarded = ts.compile(batch, heads=8, numbers="any")
    assert '"any_numbers":1' in guarded.contract
    assert '"any_numbers":0' in kernel.contract
    assert guarded.text != kernel.text
    assert ts.TpuKernel.from_json(guarded.json()).text == guarded.text
    with pytest.raises(ValueError, match="numbers must be finite or any, found"):
        ts.compile(batch, heads=8, numbers="some")


def test_threads_share_a_batch():
    made, mask, q, k, v = packed()
    want = ts.attention(q, k, v, made)
    wrong = []

    def work():
        for _ in range(20):
            if not np.array_equal(ts.attention(q, k, v, made), want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


# The first call opens the session that all calls share. The other threads must not
# hold the GIL while they wait, since the first one needs it to return. This runs in
# a new process, where the session is not open yet.
FIRST_CALLS = """
import threading
import numpy as np
import tessera as ts
x = np.ones((1, 1, 64, 16), np.float32)
batch = ts.plan(ts.causal, q_len=64)
start = threading.Barrier(8)
done = []
def work():
    start.wait()
    done.append(ts.attention(x, x, x, batch).shape)
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert done == [x.shape] * 8, done
"""


def test_first_calls_of_eight_threads():
    for _ in range(5):
        subprocess.run([sys.executable, "-c", FIRST_CALLS], check=True,
                       timeout=60)


def test_other_threads_run_during_a_call():
    x = np.zeros((1, 8, 4096, 64), np.float32)
    made = ts.plan(ts.full, q_len=4096)
    call = threading.Thread(target=ts.attention, args=(x, x, x, made))
    call.start()
    turns = 0
    while call.is_alive():
        turns += 1
        time.sleep(1e-4)
    # The call takes 10 ms or more. If it held the GIL, this loop would run once
    # or twice.
    assert turns > 10


class OfAnotherDevice:
    """float32 [1, 4, 192, 16] in memory of a GPU, by DLPack."""

    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2),
                    ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                    ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                    ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                    ("byte_offset", ctypes.c_uint64),
                    ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

    def __init__(self):
        self.shape = (ctypes.c_int64 * 4)(1, 4, 192, 16)
        self.held = self.Tensor(
            64, (2, 0), 4, 2, 32, 1, ctypes.addressof(self.shape), None, 0, None,
            None)

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.held), b"dltensor", None)


def test_memory_of_another_device_is_refused():
    made, _, q, k, v = packed()
    there = OfAnotherDevice()
    for call in (lambda: ts.attention(there, k, v, made),
                 lambda: ts.attention(q, k, v, made, out=there)):
        with pytest.raises(ts.TesseraError, match="must be in memory of the CPU,"
                           " found OfAnotherDevice on another device"):
            call()


def test_arrays_are_read_and_written_where_they_are():
    made, _, q, k, v = packed()
    want, lse = ts.attention(q, k, v, made, return_lse=True)
    out = np.full_like(q, np.nan)
    assert ts.attention(q, k, v, made, out=out) is out
    assert (out == want).all()
    assert (ts.attention(*map(memoryview, (q, k, v)), made) == want).all()
    # Any strides are allowed if the last dimension is contiguous.
    wide = np.full((4, 192, 3, 16), np.nan, np.float32)
    view = wide[None, :, :, 1]
    view[:] = q
    ready = ts.Session("cpu").prepare(made, heads=4, kv_heads=2, head_dim=16)
    saved = ready.forward(view, k, v)
    assert (saved.out == want).all() and (saved.lse == lse).all()
    wide[:] = np.nan
    assert np.isnan(ready.forward(view, k, v).out).any()  # the memory is read in place


def test_names_that_others_rely_on():
    ids = np.zeros((1, 8), np.int32)
    none = dict.fromkeys(("q_doc_ids", "cu_seqlens", "position_ids",
                          "valid_token_counts", "prefix", "q_offset", "picks"))
    made = ts.plan(ts.causal & ts.documents, q_len=8, kv_len=8, batch=1,
                   tile=(256, 256), doc_ids=ids, max_steps=4, max_width=2,
                   max_union=2, **none)
    assert ts.plan(ts.causal, q_len=512).tile == (256, 256)
    for lists in (made.forward, made.transposed):
        for name, dtype in (("row_start", np.uint32), ("column", np.int32),
                            ("tile_class", np.uint8)):
            found = getattr(lists, name)
            assert type(found) is np.ndarray and found.dtype == dtype
            assert not found.flags.writeable
    assert len(made.contract.key) == 32 and made.digest
    x = np.ones((1, 2, 8, 8), np.float32)
    for layout in ("bhsd", "bshd"):
        turned = x if layout == "bhsd" else x.swapaxes(1, 2)
        out, lse = ts.attention(
            turned, turned, turned, made, scale=0.5, softcap=2.0,
            sink_logits=np.zeros(2, np.float32), layout=layout, return_lse=True)
        assert out.shape == turned.shape and lse.shape == (1, 2, 8)
    assert isinstance(ts.attention(x, x, x, made), np.ndarray)
    assert issubclass(ts.TesseraError, ValueError)


def test_memory_does_not_grow():
    ids = np.repeat(np.arange(8, dtype=np.int32), 512)
    q = np.zeros((1, 2, 16, 8), np.float32)
    k = np.zeros((1, 2, 4096, 8), np.float32)

    def step():
        made = ts.plan(ts.causal & ts.documents, q_len=16, kv_len=4096,
                       doc_ids=ids)
        ts.attention(q, k, k, made)
        try:
            ts.plan(ts.documents, q_len=16)
        except ts.TesseraError:
            pass

    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * resource.getpagesize()

    for _ in range(200):
        step()
    before = resident()
    for _ in range(10_000):
        step()
    # A batch has 16 KiB of ids and more: 10,000 batches would be 160 MB if they
    # were kept.
    assert resident() - before < 8 << 20


def test_after_fork():
    made, _, q, k, v = packed()
    want = ts.attention(q, k, v, made)
    child = os.fork()
    if child == 0:
        same = np.array_equal(ts.attention(q, k, v, made), want)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def attend_in_a_new_process(made, q, k, v):
    return ts.attention(q, k, v, made)


def test_after_spawn():
    made, _, q, k, v = packed()
    want = ts.attention(q, k, v, made)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        got = pool.apply(attend_in_a_new_process, (made, q, k, v))
    assert np.array_equal(got, want)


def test_a_subinterpreter_is_refused():
    code = """if True:
        import sys
        import _xxsubinterpreters as interpreters
        if "first" in sys.argv:
            import tessera as ts
        other = interpreters.create()
        try:
            interpreters.run_string(other, "import tessera._core")
        except interpreters.RunFailedError as e:
            print(e)
        interpreters.destroy(other)
        import tessera as ts
        print(len(ts.plan(ts.causal, q_len=512).forward))
    """
    if sys.version_info >= (3, 13):
        pytest.skip("the module of this test has another name there")
    for first in ([], ["first"]):
        said = subprocess.run([sys.executable, "-c", code, *first],
                              capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        assert "main interpreter, found a subinterpreter" in said.stdout
        assert said.stdout.splitlines()[1:] == ["3"]


@pytest.mark.parametrize("mask, more", [
    (ts.documents & ts.causal, {"doc_ids": np.arange(200, dtype=np.int32) // 60}),
    ("causal & (window(9, 0) | sink(3))", {"batch": 2, "tile": (32, 16)}),
    (["causal", "window(9, 9)"], {}),
    (["causal & blocks(8)", "blocks(8)"],
     {"picks": np.zeros((1, 4, 200, 1), np.int32)})])
def test_the_page_is_that_of_the_program(mask, more, tmp_path):
    if not os.path.exists(os.path.join(os.path.dirname(ts.__file__), "_program")):
        pytest.skip("the program is not beside the package")
    made = ts.plan(mask, q_len=200, **{"tile": (16, 16), **more})
    made.save(tmp_path / "a.plan")
    subprocess.run([sys.executable, "-m", "tessera", "show", tmp_path / "a.plan",
                    "-o", tmp_path / "a.html"], check=True, capture_output=True)
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert made.html() == page
    # The notebook's picture is this page in a frame.
    (framed,) = re.findall('<iframe .*srcdoc="([^"]*)"', made._repr_html_())
    assert html.unescape(framed) == page


def test_the_program():
    where = os.path.dirname(ts.__file__)
    if not os.path.exists(os.path.join(where, "_program")):
        pytest.skip("the program is not beside the package")
    said = subprocess.run([sys.executable, "-m", "tessera", "--version"],
                          capture_output=True, text=True, check=True).stdout
    assert ts.__version__ in said
