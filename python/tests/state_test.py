"""Pickles and JSON of objects: loading gives an equal object; a state that was
changed is refused with one line."""

import copy
import importlib.util
import json
import os
import pickle
import re

# Shards need Shardy; an old JAX uses it only if this is set.
os.environ.setdefault("JAX_USE_SHARDY_PARTITIONER", "1")

import numpy as np
import pytest
import tessera as ts
import tessera.data


def batch_of(mask=ts.causal & ts.window(700, 0) & ts.documents, **more):
    ids = np.repeat(np.arange(4, dtype=np.int32), 512)
    if "documents" in str(mask):
        more["doc_ids"] = ids
    return ts.plan(mask, q_len=2048, tile=(512, 256), **more)


def choice():
    return ts.choose(batch_of(), heads=4, head_dim=16)


def told():
    q = np.random.default_rng(0).standard_normal((1, 2, 2048, 8), np.float32)
    return ts.attention(q, q, q, batch_of(), sink_telemetry=3)[1]


def kernels():
    picks = ts.plan(ts.causal & ts.blocks(256), q_len=2048, tile=(512, 256),
                    topk_idxs=np.zeros((2048, 2, 1), np.int32))
    same = ts.plan(ts.same("b"), q_len=2048, tile=(512, 256),
                   same={"b": np.zeros(2048, np.int32)})
    return [ts.compile(batch_of(max_steps=64), heads=8, kv_heads=2),
            ts.compile(batch_of(), heads=4, backward=True, dlse=True,
                       dtype="f32", softcap=20.5, scale=0.25, sink_logits=True,
                       query_chunk=1024),
            ts.compile(picks, heads=4, kv_heads=2, row_sum="rounded"),
            ts.compile(same, heads=4, head_dim=64, v_head_dim=128),
            ts.compile(ts.plan("causal", q_len=1024, tile=(256, 128)), heads=2,
                       tiles_per_pass=2, fetch_ahead=2,
                       lowering_reason="few tokens")]


def shards():
    return ts.shard(batch_of(), "seq=4", balance="tasks", heads=4, kv_heads=2,
                    head_dim=64, v_head_dim=128, dtype="f32")


def tree():
    return ts.pack_tree([[1, 2, 3], [1, 2, 4], [5]])


def blocks():
    return ts.block_lists(np.random.default_rng(0).random((3, 7, 13)) < 0.4)


def values(one):
    """All public values of an object, as plain values."""
    if isinstance(one, np.ndarray):
        return [str(one.dtype), one.tolist()]
    if isinstance(one, dict):
        return {key: values(of) for key, of in one.items()}
    if isinstance(one, (list, tuple)):
        return [values(of) for of in one]
    if not type(one).__module__.startswith("tessera"):
        return one
    return {name: values(getattr(one, name)) for name, kind
            in vars(type(one)).items()
            if isinstance(kind, property) and name != "plan_ms"}


KEPT = {
    "Budget": lambda: ts.fit(batch_of(), heads=4, backward=True),
    "Batch": batch_of, "Worklist": lambda: batch_of().transposed,
    "Worklist of blocks": lambda: blocks().forward, "BlockLists": blocks,
    "Contract": lambda: batch_of().contract, "Choice": choice,
    "PackedTree": tree, "Shards": shards, "SinkTelemetry": told,
    "SinkDocument": lambda: told().documents[1],
    "Schedule": lambda: ts.Schedule({"target": "v6e:1x1", "cycles": 12.0,
                                     "cycles_per_tile": 3.25,
                                     "own": {"tile": [512, 256],
                                             "tiles_per_pass": 4}}, "<svg/>"),
}


def same(one, other):
    assert type(one) is type(other)
    assert repr(one) == repr(other) and values(one) == values(other)
    assert one.json() == other.json()


@pytest.mark.parametrize("name", KEPT)
def test_what_is_pickled_comes_back(name):
    one = KEPT[name]()
    assert values(one)  # the object has values to compare
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        same(one, pickle.loads(pickle.dumps(one, protocol)))
    same(one, copy.copy(one))
    same(one, copy.deepcopy(one))
    assert isinstance(json.loads(one.json()), dict)


def test_masks_are_pickled_and_their_text_is_their_json():
    mask = ts.causal & ts.window(7, 0) | ts.sink(4)
    assert pickle.loads(pickle.dumps(mask)) == mask == ts.Mask(
        json.loads(json.dumps(str(mask))))


@pytest.mark.parametrize("kernel", kernels(), ids=repr)
def test_a_kernel_comes_back_as_the_same_program(kernel):
    for again in (pickle.loads(pickle.dumps(kernel)),
                  ts.TpuKernel.from_json(kernel.json())):
        same(kernel, again)
        assert again == kernel and hash(again) == hash(kernel)
        assert again.program_text == kernel.program_text
    others = [k for k in kernels() if k == kernel]
    assert len(others) == 1


def test_a_kernel_that_came_back_takes_the_same_arrays():
    kernel = kernels()[0]
    again = pickle.loads(pickle.dumps(kernel))
    batch = batch_of(max_steps=64)
    again.check(kernel.arrays(batch))
    assert values(again.arrays(batch)) == values(kernel.arrays(batch))


def test_contracts_as_json():
    contract = batch_of().contract
    again = ts.Contract.from_json(contract.json())
    same(contract, again)
    assert again == contract and hash(again) == hash(contract)


def test_json_says_what_the_object_says():
    lists = batch_of().forward
    said = json.loads(lists.json())
    for name in ("row_start", "column", "tile_class"):
        assert said[name] == getattr(lists, name).tolist()
    assert json.loads(tree().json())["paths"] == [
        p.tolist() for p in tree().paths]
    spread = shards()
    said = json.loads(spread.json())
    assert said["steps"] == spread.steps and said["forward"] == spread.forward
    assert said["key_tiles"] == [t.tolist() for t in spread.key_tiles]
    seen = told()
    said = json.loads(seen.json())
    assert np.float32(said["mass"]).tolist() == seen.mass.tolist()
    assert [d["document"] for d in said["documents"]] == [0, 1, 2, 3]
    assert json.loads(choice().json())["rejected"] == choice().rejected


LINE = r"^\[[a-z ]+\] [^\n]+, found [^\n]+$"


def refused(call):
    with pytest.raises(ts.TesseraError) as e:
        call()
    assert re.match(LINE, str(e.value)), str(e.value)


def of_state(one, state):
    made = type(one).__new__(type(one))
    made.__setstate__(state)


# Budget and Schedule are Python classes, which Python itself pickles.
@pytest.mark.parametrize("name", sorted(
    KEPT.keys() - {"Batch", "Budget", "Schedule"}))
def test_a_state_that_is_none_is_refused(name):
    one = KEPT[name]()
    state = one.__getstate__()
    of_state(one, state)
    for other in (None, 3, b"x", [], {}):
        refused(lambda: of_state(one, other))
    for key in state:
        refused(lambda: of_state(one, {k: v for k, v in state.items()
                                       if k != key}))
        refused(lambda: of_state(one, {**state, key: object()}))


@pytest.mark.parametrize("kind,one", [(ts.Contract, batch_of().contract),
                                      (ts.TpuKernel, kernels()[0])],
                         ids=["Contract", "TpuKernel"])
def test_text_that_was_changed_is_refused(kind, one):
    text = one.json()
    for bad in ("", "{", "[]", "3", "{}", text[:-1], "[" * 100_000):
        refused(lambda: kind.from_json(bad))
    state = json.loads(text)
    for key in state:
        refused(lambda: kind.from_json(json.dumps(
            {k: v for k, v in state.items() if k != key})))
        refused(lambda: kind.from_json(json.dumps({**state, key: {"a": 1}})))


@pytest.mark.parametrize("key,value", [
    ("key", "0" * 32), ("text", "{}"), ("text", '{"steps":'), ("steps", 7),
    ("union_blocks", 3)])
def test_a_contract_that_was_changed_is_refused(key, value):
    state = batch_of().contract.__getstate__()
    refused(lambda: of_state(batch_of().contract, {**state, key: value}))


@pytest.mark.parametrize("key,value", [
    ("masks", ["full"]), ("masks", []), ("masks", ["causl"]), ("batch", 2),
    ("q_len", 10**12), ("kv_len", 0), ("tile", [512, 512]), ("tile", [512]),
    ("max_steps", 65), ("facts", []), ("facts", ["doc_ids"] * 2),
    ("facts", ["doc_ids", "colour"]), ("heads", 4), ("heads", -1),
    ("head_dim", 64), ("dtype", "f32"), ("dtype", "f64"), ("scale", 0.5),
    ("softcap", 3.0), ("sink_logits", True), ("target", "v5e"),
    ("backward", True), ("tiles_per_pass", 1), ("fetch_ahead", 99),
    ("row_sum", "rounded"), ("row_sum", "both"), ("numbers", "any"),
    ("numbers", "some"), ("picks_meaning", "x"),
    ("lowering_reason", "none is due"), ("key", "0" * 32)])
def test_a_kernel_that_was_changed_is_refused(key, value):
    kernel = kernels()[0]
    state = json.loads(kernel.json())
    assert state[key] != value
    refused(lambda: ts.TpuKernel.from_json(json.dumps({**state, key: value})))


@pytest.mark.parametrize("make,key,value", [
    (shards, "of", ts.causal), (shards, "mesh", "seq=3"),
    (shards, "balance", "x"), (shards, "exchange", "x"),
    (shards, "exchange", "ragged"), (shards, "heads", 8), (shards, "contract", "0"),
    (choice, "lane", "gpu"), (choice, "rule", "mine"),
    (choice, "request_class", "mine"), (choice, "rejected", {"gpu": "x"}),
    (tree, "sequences", [[1], []]), (tree, "sequences", [["a"]]),
    (blocks, "columns", 99), (blocks, "cells", np.zeros(3, np.uint8)),
    (blocks, "cells", np.full((3, 7, 2), 255, np.uint8)),
    (lambda: batch_of().forward, "of", ts.causal),
    (told, "first_keys", 0), (told, "mass", np.zeros(3, np.float32)),
    (told, "mass", np.zeros((1, 1, 1), np.float32)),
    (told, "documents", [3]),
    (lambda: told().documents[0], "mass", np.zeros(3)),
    (lambda: told().documents[0], "queries", np.zeros(2, np.int32))])
def test_what_was_changed_is_refused(make, key, value):
    one = make()
    state = one.__getstate__()
    refused(lambda: of_state(one, {**state, key: value}))


def test_a_batch_that_was_changed_is_refused():
    made = batch_of()
    data = bytearray(made.to_bytes())
    for at in range(0, len(data), 7):
        broken = bytearray(data)
        broken[at] ^= 0x20
        refused(lambda: of_state(made, bytes(broken)))


def test_what_belongs_to_its_process_is_not_pickled():
    session = ts.Session("cpu")
    q = np.zeros((1, 4, 2048, 16), np.float32)
    ready = session.prepare(batch_of(), heads=4, head_dim=16)
    loader = tessera.data.Loader([[1, 2, 3]] * 40, tokens=32, rows=2)
    for one, instead in ((session, "open one where it is used"),
                         (ready, "pickle its batch"),
                         (ready.forward(q, q, q), "keep out and lse"),
                         (loader, "keep state()")):
        for call in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(ts.TesseraError, match=re.escape(instead)) as e:
                call(one)
            assert re.match(LINE, str(e.value))


needs_jax = pytest.mark.skipif(not importlib.util.find_spec("jax"),
                               reason="jax is not installed")


def pytrees():
    """The pytrees of batches and shards in programs of JAX."""
    import jax
    import tessera.jax
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("seq",))
    spread = ts.shard(batch_of(), "seq=1", heads=4, kv_heads=2)
    whole = tessera.jax.arrays_for(batch_of(max_steps=64), "cpu", "tpu")
    return [whole, tessera.jax.arrays_for(batch_of(), "cpu"),
            jax.device_put(batch_of()),
            jax.eval_shape(lambda x: x, batch_of(max_steps=64)),
            tessera.jax.shard_arrays(spread, mesh),
            tessera.jax.shard_arrays(spread, mesh, lane="mosaic", target="v6e",
                                     abstract=True)]


@needs_jax
def test_pytrees_come_back_as_the_same_trees():
    import jax
    for one in pytrees():
        for again in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one),
                      copy.copy(one)):
            assert type(one) is type(again)
            assert (repr(one), one.json()) == (repr(again), again.json())
            (a, of), (b, to) = map(jax.tree.flatten, (one, again))
            assert of == to and hash(of) == hash(to) and len(a) == len(b) > 0
            for x, y in zip(a, b):
                if isinstance(x, jax.ShapeDtypeStruct):
                    assert x == y
                else:
                    assert values(np.asarray(x)) == values(np.asarray(y))


@needs_jax
def test_a_function_takes_what_came_back_without_a_trace():
    import jax
    import tessera.jax
    q = np.random.default_rng(0).standard_normal((1, 4, 2048, 8), np.float32)
    kv = q[:, :2].copy()
    attend = jax.jit(lambda b: tessera.jax.attention(q, kv, kv, b))
    batch = tessera.jax.arrays_for(batch_of(), "cpu")
    want = attend(batch)
    found = attend(pickle.loads(pickle.dumps(batch)))
    np.testing.assert_array_equal(found, want)
    assert attend._cache_size() == 1
    spread = next(x for x in pytrees() if isinstance(x, tessera.jax.ShardArrays))
    rows = jax.jit(lambda s: s.spread(q, axis=2))
    np.testing.assert_array_equal(rows(pickle.loads(pickle.dumps(spread))),
                                  rows(spread))
    assert rows._cache_size() == 1


@needs_jax
def test_json_of_pytrees():
    import jax
    whole, cpu, *_, spread, abstract = pytrees()
    said = json.loads(whole.json())
    # The text has the class of the window; the exact bound is an argument.
    assert said["masks"] == ["causal & documents & window(1024, 0)"]
    assert (said["q_len"], said["tile"]) == (2048, [512, 256])
    assert (said["platforms"], said["target"]) == (["cpu", "tpu"], "v6e")
    assert json.loads(cpu.json())["platforms"] == ["cpu"]
    for one in (whole, cpu, spread, abstract):
        assert [(x["dtype"], tuple(x["shape"])) for x in json.loads(
            one.json())["arrays"].values()] == [
                (str(x.dtype), x.shape) for x in jax.tree.leaves(one)]
    assert json.loads(spread.json())["lane"] == "xla"
    said = json.loads(abstract.json())
    assert (said["mesh"], said["lane"], said["target"]) == (
        "seq=1", "mosaic", "v6e")
    # In a traced program arrays have no values, so pickling is refused.
    def told(one):
        assert one.json() == cpu.json()
        refused(lambda: pickle.dumps(one))
        return 0
    jax.jit(told)(cpu)


@needs_jax
def test_shards_whose_devices_are_not_here_are_refused():
    one = pytrees()[-2]
    state = one.__getstate__()
    refused(lambda: of_state(one, {**state, "devices": [("cpu", 99)]}))


def test_every_public_class_is_here():
    refuse = {"Session", "Prepared", "Saved"}
    kept = {name.split()[0] for name in KEPT} | {"Mask", "TpuKernel"}
    classes = {name for name in ts.__all__ if isinstance(
        getattr(ts, name), type)} - {"TesseraError"}
    assert classes == kept | refuse


def test_errors_are_pickled_with_what_they_say():
    with pytest.raises(ts.TesseraError) as e:
        ts.Mask("causal & windw(3, 0)")
    again = pickle.loads(pickle.dumps(e.value))
    assert (str(again), again.kind, again.column) == (
        str(e.value), e.value.kind, e.value.column)
