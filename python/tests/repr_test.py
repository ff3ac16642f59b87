"""The repr of every public object is one short line of what a user wants to know;
every public function has a docstring."""

import ast
import importlib
import importlib.util
import inspect
import json
import os
import pathlib
import pickle

# Shards need Shardy; an old JAX uses it only if this is set.
os.environ.setdefault("JAX_USE_SHARDY_PARTITIONER", "1")

import numpy as np
import plugins
import pytest
import tessera as ts
import tessera.data
import tessera.train

LINE = 120
LONG = " | ".join(f"window({n}, {n + 2})" for n in range(1, 25))
MODULES = [ts, tessera.data, tessera.train]
for framework in ("jax", "torch", "transformers"):
    if importlib.util.find_spec(framework):
        MODULES.append(importlib.import_module(f"tessera.{framework}"))


def public(kind):
    return [(module, name, getattr(module, name)) for module in MODULES
            for name in module.__all__ if kind(getattr(module, name))]


def planned(mask, **more):
    return ts.plan(mask, q_len=2048, tile=(512, 256), **more)


def loader(**more):
    return tessera.data.Loader([[1, 2, 3]] * 40, tokens=32, rows=2,
                               tile=(8, 8), **more)


def of_a_batch(batch):
    """The objects of every class that is made from a batch."""
    q = np.zeros((1, 4, 2048, 16), np.float32)
    ready = ts.Session().prepare(batch, heads=4, head_dim=16, backward=True,
                                 sink_telemetry=True)
    saved = ready.forward(q, q, q)
    told = ready.sink_telemetry(saved, 2)
    ready.backward(saved, q)
    out = [batch, batch.forward, batch.contract, ready, saved, told,
           told.documents[0], ts.choose(batch, heads=4, head_dim=16),
           ts.shard(batch, "seq=4", heads=4), ts.compile(batch, heads=4),
           ts.fit(batch, heads=4)]
    if importlib.util.find_spec("jax"):
        jax = importlib.import_module("jax")
        out.append(jax.tree.map(lambda x: x, batch))  # BatchArrays
        one = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("seq",))
        out.append(importlib.import_module("tessera.jax").shard_arrays(
            ts.shard(batch, "seq=1", heads=4), one))
    return out


def some_of_each():
    session = ts.Session("cpu", threads=2)
    schedule = ts.Schedule({"target": "v6e:1x1", "cycles": 12.0,
                            "cycles_per_tile": 3.25}, "<svg/>")
    for mask in ("causal", LONG, [LONG] * 2 + ["causal"] * 2):
        yield from of_a_batch(planned(mask))
    yield from (ts.causal, ts.Mask(LONG), session, schedule, loader(),
                loader(mask=LONG), ts.pack_tree([[1, 2], [1, 3]]),
                ts.block_lists(np.ones((3, 7, 13), bool)))


def check(shown):
    line = repr(shown)
    assert line.startswith(type(shown).__name__ + "("), line
    assert line.endswith(")") and len(line) <= LINE, line
    assert line.isprintable() and " at 0x" not in line, line


def test_every_public_object_has_a_short_line():
    seen = set()
    for one in some_of_each():
        check(one)
        seen.add(type(one))
    classes = {c for _, _, c in public(inspect.isclass)}
    # The first is an exception; the second needs a plugin and is tested below.
    assert classes - seen == {ts.TesseraError, tessera.train.Trainer}


def test_a_schedule_says_what_is_not_known():
    for cycles, a_tile, line in (
            (12.0, 3.25, "Schedule(v6e:1x1, 12 cycles, 3.2 a tile)"),
            (12.0, None, "Schedule(v6e:1x1, 12 cycles, no active tile)"),
            (None, None, "Schedule(v6e:1x1, cycles not known, trips missing)")):
        fields = {"target": "v6e:1x1", "cycles": cycles,
                  "cycles_per_tile": a_tile}
        assert repr(ts.Schedule(fields, "<svg/>")) == line


def test_every_public_object_has_json():
    # The others belong to their process.
    for one in some_of_each():
        without = isinstance(one, (ts.Session, ts.Prepared, ts.Saved,
                                   tessera.data.Loader))
        assert hasattr(one, "json") != without, type(one)
        assert without or isinstance(json.loads(one.json()), dict)


def test_the_json_of_a_mask_is_its_text():
    for mask in (ts.documents & ts.causal, ~ts.window(3, 0), ts.Mask(LONG)):
        said = json.loads(mask.json())
        assert said == {"text": str(mask), "canonical": mask.canonical}
        assert ts.Mask(said["text"]) == ts.Mask(said["canonical"]) == mask


@plugins.needs("lammps_jax_pjrt_cpu")
def test_a_trainers_line():
    trainer = tessera.train.Trainer(
        {"vocab": 40, "width": 32, "head_dim": 8, "mlp_width": 48}, rows=2,
        tokens=64, tile=(16, 16))
    check(trainer)
    numbers = sum(int(np.prod(s)) for s in trainer.parameters().values())
    assert repr(trainer) == (
        f"Trainer('xla', rows=2, tokens=64, parameters={numbers}, steps=0)")
    with pytest.raises(ts.TesseraError, match=r"a Trainer \(keep checkpoint"):
        pickle.dumps(trainer)


def test_what_lines_say():
    batch = planned("causal")
    q = np.zeros((1, 4, 2048, 16), np.float32)
    ready = ts.Session("cpu").prepare(batch, heads=4, head_dim=16,
                                      backward=True, sink_telemetry=True)
    saved = ready.forward(q, q, q)
    told = ready.sink_telemetry(saved, 2)
    kernel = ts.compile(batch, heads=4, backward=True)
    for shown, line in (
            (ts.causal & ts.sink(4), "Mask('causal & sink(4)')"),
            (batch, "Batch('causal', batch=1, q_len=2048, kv_len=2048, "
                    "tiles=20/32)"),
            (batch.forward, "Worklist(lists=1, rows=4, columns=8, tiles=20)"),
            (batch.contract, f"Contract('{batch.contract.key}', "
                             f"steps={batch.contract.steps})"),
            (ready, "Prepared('cpu', 'causal', q_len=2048, kv_len=2048, "
                    "heads=4, head_dim=16, float32, backward)"),
            (saved, "Saved(batch=1, heads=4, q_len=2048, v_head_dim=16, "
                    "float32, with sink telemetry)"),
            (told, "SinkTelemetry(first_keys=2, documents=1)"),
            (told.documents[0], "SinkDocument(batch_row=0, document=None, "
                                "heads=4)"),
            (kernel, "TpuKernel('causal', q_len=2048, kv_len=2048, heads=4, "
                     f"backward, bfloat16, {kernel.key[:12]})"),
            (ts.Session(), "Session()"),
            (ts.Session("cpu", threads=2), "Session('cpu', threads=2)"),
            (ts.Session("xla", fallback=["cpu"]), "Session('xla', or 'cpu')"),
            (loader(), "Loader(tokens=32, rows=2, 0 rows handed out)"),
            (loader(mask="causal"),
             "Loader('causal', tokens=32, rows=2, 0 rows handed out)"),
            (ts.block_lists(np.ones((3, 7, 13), bool)),
             "BlockLists(lists=3, rows=7, columns=13, tiles=273)"),
            (ts.pack_tree([[1, 2], [1, 3]]),
             "PackedTree(sequences=2, tokens=3)")):
        assert repr(shown) == line
    ready.backward(saved, q)
    assert "with gradients" in repr(saved)
    # A mask that is too long for the line is cut at its end; nothing else is.
    long = repr(planned(LONG))
    assert len(long) == LINE and long.startswith("Batch('window(1, 3) | ")
    assert "...', batch=1, q_len=2048, kv_len=2048, tiles=" in long
    after = loader()
    next(after)
    assert repr(after) == "Loader(tokens=32, rows=2, 2 rows handed out)"
    windows = loader(window_rows=1)
    rows = sum(b["filled"] for b in windows)
    assert rows > 4  # more than one window
    assert repr(windows) == f"Loader(tokens=32, rows=2, {rows} rows handed out)"


def says_nothing(function):
    """Whether the docstring has no line but signatures."""
    lines = [line.strip() for line in (function.__doc__ or "").splitlines()]
    signature = function.__name__ + "("
    return not any(line and not line.startswith(signature) for line in lines)


def members(kind):
    """The public members that a class itself defines."""
    return {name: getattr(member, "__func__", member)
            for name, member in vars(kind).items() if not name.startswith("_")}


def test_every_public_name_says_what_it_is():
    silent = [module.__name__ for module in MODULES if not module.__doc__]
    for module, name, one in public(lambda x: True):
        if isinstance(one, (str, ts.Mask)):
            continue  # __version__, and values that their class documents
        if not inspect.isclass(one):
            silent += [f"{module.__name__}.{name}"] * says_nothing(one)
            continue
        silent += [name] * (not one.__doc__)
        for of, member in members(one).items():
            quiet = (says_nothing(member) if callable(member)
                     else not inspect.getdoc(member))
            silent += [f"{name}.{of}"] * quiet
    assert not silent


def stub():
    return ast.parse(
        (pathlib.Path(ts.__file__).parent / "_core.pyi").read_text())


def test_the_stubs_say_every_name_and_type():
    tree = stub()
    said = {getattr(node, "name", None) or node.target.id for node in tree.body
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AnnAssign))}
    made = {name for _, name, what in public(lambda x: True)
            if getattr(ts._core, name, None) is what}
    assert made and made <= said
    loose = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
            of = node.args
            types = [a.annotation for a in of.posonlyargs + of.args +
                     of.kwonlyargs if a.arg != "self"]
            gives = node.returns and ast.unparse(node.returns)
            if None in types or gives in (None, "object"):
                loose.append(node.name)
    assert not loose


def test_the_stubs_have_the_members_of_every_class():
    seen = 0
    for node in stub().body:
        if not isinstance(node, ast.ClassDef) or node.name == "TesseraError":
            continue
        said = {of.name for of in node.body if isinstance(of, ast.FunctionDef)}
        there = set(members(getattr(ts._core, node.name)))
        assert {name for name in said if not name.startswith("_")} == there
        seen += 1
    assert seen > 12


def annotated(function):
    of = inspect.signature(function)
    given = [p.annotation for p in of.parameters.values() if p.name != "self"]
    return inspect.Signature.empty not in [*given, of.return_annotation]


def test_python_sources_are_annotated():
    """Python sources have no stubs, so they must be annotated."""
    seen, bare = 0, []
    for module, name, one in public(lambda x: True):
        of = members(one) if inspect.isclass(one) else {"": one}
        if inspect.isclass(one) and "__init__" in vars(one):
            of["__init__"] = one.__init__
        for member, function in of.items():
            function = getattr(function, "fget", function)
            if not inspect.isfunction(function):
                continue
            seen += 1
            bare += [f"{module.__name__}.{name}.{member}"] * (
                not annotated(function))
    assert seen > 8 and not bare
