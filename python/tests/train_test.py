"""Training from Python on the rows of a loader."""

import json
import math
import os
import re
import subprocess
import sys

import numpy as np
import plugins
import pytest
import tessera as ts
import tessera.data
import tessera.train
from column_sets import column_sets
from tensor_file import an_ulp_away, parameters, store
from tensor_file import apart as losses_apart

has_plugin = plugins.needs("lammps_jax_pjrt_cpu")
has_other_plugin = plugins.needs("xla_cpu_pjrt")

# Trainers on one device come first here, then meshes (docs/train.md).
os.environ.setdefault("NPROC", "8")

MODEL = {"vocab": 40, "width": 32, "head_dim": 8, "mlp_width": 48,
         "columns": {"dep_levels": 6}}
T, ROWS = 64, 2


def batches(seed=0):
    rng = np.random.default_rng(seed)
    documents = []
    for _ in range(30):
        n = int(rng.integers(3, 60))
        ids = (np.arange(n) * 3 + rng.integers(40)) % 40
        documents.append({"input_ids": ids.astype(np.int32),
                          "dep_levels": (ids % 6).astype(np.int32)})
    return tessera.data.Loader(documents, tokens=T, rows=ROWS, tile=(16, 16),
                               pad_id=7)


def trainer(**more):
    return tessera.train.Trainer(
        MODEL, **{**dict(rows=ROWS, tokens=T, tile=(16, 16)), **more})


def apart(one, some, folder):
    """How far the losses of another program may differ in these steps: as far as
    changes of last bits moved the loss of a step or of one before it. The trainer's
    state is restored."""
    start, file = one.checkpoint(), folder / "state.safetensors"
    file.write_bytes(start)
    first = parameters(file)

    def losses(state):
        one.restore(state)
        return np.array([one.step(batch, 1e-2)["loss"] for batch in some])

    want, moved, rng = losses(start), np.zeros(len(some)), np.random.default_rng(1)
    for _ in range(8):
        store(file, an_ulp_away(first, rng))
        moved = np.maximum(moved, abs(losses(file.read_bytes()) / want - 1))
    one.restore(start)
    return losses_apart(np.maximum.accumulate(moved)) * want


@plugins.needs("lammps_jax_pjrt_cpu", sys.executable)
def test_plugins_are_those_of_the_interpreter_that_imports():
    code = ("import tessera.train\n"
            f"tessera.train.Trainer({MODEL!r}, rows=1, tokens=64, tile=(16, 16))")
    lean = {name: os.environ[name] for name in ("PYTHONPATH", "HOME")
            if name in os.environ}
    subprocess.run([sys.executable, "-c", code], check=True,
                   env={**lean, "PATH": os.defpath})


@has_plugin
def test_learns_and_goes_on_bit_for_bit():
    one = trainer()
    losses, middle = [], None
    for epoch in range(4):
        for batch in batches():
            told = one.step(batch, learning_rate=1e-2)
            assert told["tiles_run"] == told["tiles_planned"] > 0
            assert told["attention_flops"] > told["tiles_planned"]
            losses.append(told["loss"])
            if one.steps == 9:
                middle = one.checkpoint()
    assert one.steps == len(losses) == told["step"] > 20
    assert abs(losses[0] - np.log(40)) < 0.3 and losses[-1] < losses[0] - 1
    assert one.counters()["compiles"] == 1
    assert one.parameters()["columns.dep_levels.weight"] == (6, 32)

    other = trainer(seed=3)
    other.restore(middle)
    again, step = [], 0
    for epoch in range(4):
        for batch in batches():
            step += 1
            if step > 9:
                again.append(other.step(batch, 1e-2)["loss"])
    assert again == losses[9:]


@has_plugin
def test_one_compile_over_data_sets_with_and_without_each_column():
    columns = {name: 2 for name in ("structure_ids", "dep_levels", "ast_depth",
                                    "sibling_index", "node_type")}
    one = tessera.train.Trainer({**MODEL, "columns": columns}, rows=ROWS, tokens=T,
                                tile=(16, 16))
    sets = 0
    for called, documents in column_sets():
        sets += 1
        for batch in tessera.data.Loader(documents, tokens=T, rows=ROWS,
                                         tile=(16, 16)):
            assert np.isfinite(one.step(batch, 1e-3)["loss"]), called
    assert sets > 20 and one.steps > sets
    assert one.counters()["compiles"] == 1


@has_plugin
def test_a_limit_of_compiles_is_kept():
    one = trainer(max_compiles=1)
    batch = next(iter(batches()))
    for _ in range(2):
        one.step(batch, 1e-2)
    with pytest.raises(ts.TesseraError, match="compiles must be at most 1, found"):
        one.logits(batch)  # logits need a second program
    with pytest.raises(ts.TesseraError, match="max_compiles must be 0"):
        trainer(max_compiles=-1)


@has_plugin
def test_divides_rows_and_heads_among_devices(tmp_path):
    one, two = trainer(), trainer(mesh="data=2,head=2")
    some = list(batches())[:3]
    for batch, most in zip(some, apart(one, some, tmp_path)):
        a, b = one.step(batch, 1e-2), two.step(batch, 1e-2)
        assert b["tiles_run"] == a["tiles_run"]
        assert abs(a["loss"] - b["loss"]) < most
    assert two.counters()["compiles"] == 1
    assert two.counters()["warnings"] == []
    assert two.parameters() == one.parameters()
    with pytest.raises(ts.TesseraError, match="must divide along the axis head"):
        trainer(mesh="head=4")
    with pytest.raises(ts.TesseraError, match="must divide along the axis data"):
        trainer(mesh="data=3")
    with pytest.raises(ts.TesseraError, match="one of data, head, seq, copy"):
        trainer(mesh="foo=2")


@has_plugin
@has_other_plugin
def test_warns_of_a_mesh_whose_plugin_errs():
    with pytest.warns(UserWarning, match="whose are wrong once in a while, for "
                                         "'data=2'$") as told:
        one = trainer(mesh="data=2", plugin="xla_cpu_pjrt")
    assert one.counters()["warnings"] == [str(told[0].message)]


@has_plugin
def test_exchanges_tiles_of_a_divided_row(tmp_path):
    one = trainer()
    roomy = trainer(mesh="seq=2", exchange="rounds")  # has room for every batch
    some = list(batches())[:3]
    assert re.fullmatch(r"rows=\d+,steps=\d+,kv=\d+", roomy.ceilings(some[0]))
    close = trainer(mesh="seq=2", balance="headtail", ceilings="kv=4")
    for batch, most in zip(some, apart(one, some, tmp_path)):
        a = one.step(batch, 1e-2)
        for b in (roomy.step(batch, 1e-2), close.step(batch, 1e-2)):
            assert abs(a["loss"] - b["loss"]) < most
            assert b["tiles_run"] == a["tiles_run"]
            assert b["all_gather"] > 0 and b["tiles_max_over_mean"] >= 1
    assert close.counters()["compiles"] == roomy.counters()["compiles"] == 1
    with pytest.raises(ts.TesseraError, match="must be gather, rounds or ragged"):
        trainer(mesh="seq=2", exchange="ring")
    with pytest.raises(ts.TesseraError, match="an exchange of rounds or ragged"):
        one.ceilings(some[0])


@has_plugin
def test_attends_by_our_kernels(tmp_path):
    listed, ours = trainer(), trainer(spec="cpu")
    some = list(batches())[:3]
    for batch, most in zip(some, apart(listed, some, tmp_path)):
        a, b = listed.step(batch, 1e-2), ours.step(batch, 1e-2)
        assert b["tiles_run"] == b["tiles_planned"] == a["tiles_run"]
        assert abs(a["loss"] - b["loss"]) < most
    assert ours.counters()["compiles"] == 1


@has_other_plugin
def test_names_a_plugin_that_does_not_call_our_kernels():
    with pytest.raises(ts.TesseraError, match=r"as lammps_jax_pjrt_cpu does, "
                                              r"found .*xla_cpu_pjrt\.so'$"):
        trainer(spec="cpu", plugin="xla_cpu_pjrt")


def test_rates_are_those_of_their_formula():
    # Roundings of 2^-53, relative to the peak: those that
    # src/model/learning_rate_test.cc counts, and as many of the formula here.
    most = 2 * 13 * 2**-53
    for steps in (1, 7, 40, 200):
        for warmup in (None, 0, 1, steps, 2 * steps):
            rise = steps // 20 if warmup is None else warmup
            for step in range(1, steps + 1):
                if step <= rise:
                    share = step / rise
                else:
                    turn = math.pi * (step - rise) / (steps - rise)
                    share = 0.1 + 0.9 * (1 + math.cos(turn)) / 2
                rate = tessera.train.cosine_rate(step, steps=steps, peak=3e-4,
                                                 warmup=warmup)
                assert abs(rate - 3e-4 * share) <= most * 3e-4, (step, steps, warmup)
    with pytest.raises(ts.TesseraError, match="found step 41 of 40 and a warm-up of 2"):
        tessera.train.cosine_rate(41, steps=40, peak=1)
    with pytest.raises(ts.TesseraError, match="a learning rate must be at least 0"):
        tessera.train.cosine_rate(1, steps=40, peak=-1)


def small_llama(folder):
    """The checkpoint of a small folder as Hugging Face's library writes it."""
    folder.mkdir()
    size, inner = 8, 16
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "vocab_size": 12, "hidden_size": size,
        "intermediate_size": inner, "num_hidden_layers": 1,
        "num_attention_heads": 1, "tie_word_embeddings": True}))
    layer = {"input_layernorm": (size,), "post_attention_layernorm": (size,),
             "mlp.gate_proj": (inner, size), "mlp.up_proj": (inner, size),
             "mlp.down_proj": (size, inner)}
    layer |= {f"self_attn.{name}_proj": (size, size) for name in "qkvo"}
    shapes = {f"layers.0.{name}": shape for name, shape in layer.items()}
    shapes |= {"embed_tokens": (12, size), "norm": (size,)}
    rng = np.random.default_rng(5)
    store(folder / "model.safetensors",
          {f"model.{name}.weight": rng.normal(size=shape).astype(np.float32)
           for name, shape in shapes.items()})
    return tessera.train.import_hugging_face(str(folder))


def test_exports_into_a_folder_of_its_own(tmp_path):
    start = small_llama(tmp_path / "theirs")
    (tmp_path / "empty").mkdir()
    for name in ("new/deep", "empty"):
        tessera.train.export_hugging_face(start, str(tmp_path / name))
        assert tessera.train.import_hugging_face(str(tmp_path / name)) == start
    files = {"mine": "notes.txt", "theirs": "config.json"}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    for folder, file in files.items():
        kept = (tmp_path / folder / file).read_bytes()
        # The message is that of `tessera model export`, before any work.
        for checkpoint in (start, b"no checkpoint"):
            with pytest.raises(
                    ts.TesseraError,
                    match=r"^\[hugging face\] a model's folder must be new or "
                          r"empty, found files in '.*/" + folder + "'$"):
                tessera.train.export_hugging_face(checkpoint,
                                                  str(tmp_path / folder))
        assert (tmp_path / folder / file).read_bytes() == kept
    assert os.listdir(tmp_path / "mine") == ["notes.txt"]
    with pytest.raises(ts.TesseraError, match=r"\[safetensors\]"):
        tessera.train.export_hugging_face(b"no checkpoint", str(tmp_path / "no"))
    assert not (tmp_path / "no").exists()


def test_refuses():
    with pytest.raises(ts.TesseraError, match="no field of that name"):
        tessera.train.Trainer({"depth": 3}, tokens=T)
    with pytest.raises(ts.TesseraError, match="spec must be one of"):
        tessera.train.Trainer(MODEL, tokens=T, spec="cudnn")
    for float8 in ("f8e4m3", "float8_e5m2"):  # not supported
        with pytest.raises(ts.TesseraError, match=f"dtype must be f32, bf16 or "
                                                  f"f16, found '{float8}'"):
            tessera.train.Trainer(MODEL, tokens=T, dtype=float8)


@has_plugin
def test_refuses_rows_and_keeps_its_state():
    one = trainer()
    batch = next(batches())
    with pytest.raises(ts.TesseraError, match="rows must have the column"):
        one.step({k: v for k, v in batch.items() if k != "doc_ids"}, 1e-3)
    with pytest.raises(ts.TesseraError, match="must be 0 to 39, .* found 40"):
        ids = batch["input_ids"].copy()
        ids[0, 0] = 40
        one.step({**batch, "input_ids": ids}, 1e-3)
    with pytest.raises(ts.TesseraError, match="positions must rise by 1"):
        one.step({k: v for k, v in batch.items() if k != "positions"}, 1e-3)
    with pytest.raises(ts.TesseraError, match=r"\[safetensors\]"):
        one.restore(b"no file")
    for read in (one.restore, tessera.train.checkpoint_model):
        with pytest.raises(ts.TesseraError, match=r" \(in 'mine'\)$"):
            read(b"no file", name="mine")
    assert one.steps == 0
