"""The examples that put packed rows into grain, PyTorch and Ray Data."""

import hashlib
import importlib
import importlib.util
import itertools
import json
import os
import random
import subprocess
import sys
import types

import numpy as np
import pytest
import tessera.data

EXAMPLES = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "python")


@pytest.fixture
def files(tmp_path):
    """Files of various numbers of documents; one file is empty."""
    rng = random.Random(0)
    out = []
    for number, documents in enumerate([30, 1, 0, 12, 7, 25, 3, 9]):
        path = tmp_path / f"{number}.jsonl"
        path.write_text("".join(
            json.dumps({"input_ids": [rng.randrange(999) for _ in
                                      range(rng.randrange(200))]}) + "\n"
            for _ in range(documents)))
        out.append(str(path))
    return out


def example(name, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    sys.modules.pop(name, None)
    return importlib.import_module(name)


def run(name, *arguments, without_arrow=False):
    more = {"TESSERA_ARROW": "none.so"} if without_arrow else {}
    ran = subprocess.run([sys.executable, os.path.join(EXAMPLES, name), *arguments],
                         capture_output=True, text=True, timeout=300,
                         env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", **more})
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def same(got, want):
    assert len(got) == len(want) > 0
    for a, b in zip(got, want):
        for name in b:
            if name not in ("batch", "filled"):
                assert (np.asarray(a[name]) == b[name]).all(), name


OPTIONS = dict(tokens=128, rows=3, strategy="cost", window_rows=8)


def packed(files):
    """The packed rows of each file, as arrays."""
    for path in files:
        for b in tessera.data.Loader(path, tokens=128, strategy="cost"):
            yield {name: array[:b["filled"]] for name, array in b.items()
                   if isinstance(array, np.ndarray)}


def ray_says(files):
    digest, rows, tokens = hashlib.sha256(), 0, 0
    for b in packed(files):
        for r in range(len(b["input_ids"])):
            for name in sorted(b):
                digest.update(b[name][r].tobytes())
        rows += len(b["input_ids"])
        tokens += int(b["valid_token_count"].sum())
    return (f"{rows} rows, {tokens} tokens, {digest.hexdigest()}\n"
            + account_of(files, rows * 128))


def account_of(files, room):
    """What an example says of these files, whose rows have `room` for tokens."""
    read = []
    for path in files:
        with open(path, encoding="utf-8") as lines:
            read += [len(json.loads(line)["input_ids"]) for line in lines]
    tokens = sum(read)
    return (f"{len(read)} documents, {tokens} tokens in, {tokens} out, 0 dropped "
            f"(split), {room - tokens} of padding\n")


def test_ray_gives_the_same_rows_for_any_number_of_workers(files):
    pytest.importorskip("ray")
    for workers in ("1", "4"):
        assert run("rows_with_ray.py", "--workers", workers, "--tokens", "128",
                   *files) == ray_says(files)


def parquet(files, folder):
    """The same documents in Parquet files, two documents in a row group."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq
    out = []
    for number, path in enumerate(files):
        with open(path, encoding="utf-8") as lines:
            ids = [json.loads(line)["input_ids"] for line in lines]
        out.append(str(folder / f"{number}.parquet"))
        pq.write_table(pa.table({"input_ids": pa.array(ids, pa.list_(pa.int64()))}),
                       out[-1], row_group_size=2)
    return out


def test_ray_writes_row_files_that_are_trained_on(files, tmp_path):
    """Ray itself reads the Parquet files; our reader is not available here."""
    pytest.importorskip("ray")
    out = tmp_path / "rows"
    said = run("rows_with_ray.py", "--workers", "4", "--tokens", "128", "--out",
               str(out), *parquet(files, tmp_path), without_arrow=True)
    assert said == ray_says(files)
    # The third file has no document.
    parts = sorted(out.iterdir())
    assert [p.name for p in parts] == [
        f"rows-{n:05}.parquet" for n in range(len(files)) if n != 2]
    import pyarrow.parquet as pq
    want, got = list(packed(files)), [pq.read_table(p) for p in parts]
    rows = sum(len(b["input_ids"]) for b in want)
    for name in want[0]:
        columns = [t[name].combine_chunks() for t in got]
        while columns[0].type != "int32":
            columns = [c.flatten() for c in columns]
        assert (np.concatenate(columns).reshape(rows, -1)
                == np.concatenate([b[name] for b in want]).reshape(rows, -1)).all(), name
    model = tmp_path / "model.json"
    model.write_text(json.dumps({"vocab": 1000, "layers": 1, "width": 16, "heads": 2,
                                 "kv_heads": 1, "head_dim": 8, "mlp_width": 16}))
    venv = os.path.join(EXAMPLES, "..", "..", ".venv", "bin", "python")
    ran = subprocess.run(
        [sys.executable, "-m", "tessera", "train", "--data", str(out), "--model",
         str(model), "--steps", "1", "--json"], capture_output=True, text=True,
        timeout=120, env={"TESSERA_PYTHON": venv, **os.environ})
    if "must be installed (pip install" in ran.stderr:
        pytest.skip("no plugin is installed")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["steps"] == 1


def test_grain_gives_the_loaders_batches_and_resumes(files, monkeypatch):
    pytest.importorskip("grain")
    made = example("rows_with_grain", monkeypatch).Rows(files, **OPTIONS)
    want = list(tessera.data.Loader(files, **OPTIONS))
    batches, got, states = iter(made), [], []
    states.append(batches.get_state())
    for b in batches:
        got.append(b)
        states.append(json.loads(json.dumps(batches.get_state())))
    same(got, want)
    for at in range(0, len(want), 4):
        again = iter(made)
        again.set_state(states[at])
        same(list(again), want[at:])
    said = run("rows_with_grain.py", "--tokens", "128", *files)
    assert "resumed after batch 0: the same rows" in said
    one = tessera.data.Loader(files, tokens=128, rows=4, strategy="cost")
    rows = sum(b["filled"] for b in one)
    assert account_of(files, rows * 128) in said


@pytest.fixture
def torch_worker(monkeypatch):
    """PyTorch's worker info, settable; without PyTorch a stand-in for the parts
    that the example needs."""
    chosen = {"worker": None}
    try:
        from torch.utils import data
        monkeypatch.setattr(data, "get_worker_info", lambda: chosen["worker"])
    except ImportError:
        data = types.SimpleNamespace(IterableDataset=object,
                                     get_worker_info=lambda: chosen["worker"])
        utils = types.SimpleNamespace(data=data)
        monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(
            from_numpy=np.asarray, utils=utils))
        monkeypatch.setitem(sys.modules, "torch.utils", utils)
        monkeypatch.setitem(sys.modules, "torch.utils.data", data)
    return chosen


def test_torch_dataset_gives_the_loaders_batches_and_resumes(
        files, torch_worker, monkeypatch):
    made = example("rows_with_torch", monkeypatch).Rows(files, **OPTIONS)
    want = list(tessera.data.Loader(files, **OPTIONS))
    got = []
    for b in made:
        got.append(b)
        if len(got) == 5:
            state = json.loads(json.dumps(made.state_dict()))
    same(got, want)
    assert all(a["batch"] == b["batch"] for a, b in zip(got, want))
    made.load_state_dict(state)
    same(list(made), want[5:])
    same(list(made), want)  # the next epoch starts from the beginning
    assert made.account["dropped_by"] == "split"


def test_torch_workers_take_every_file_once(files, torch_worker, monkeypatch):
    made = example("rows_with_torch", monkeypatch).Rows(files, **OPTIONS)
    for workers in (1, 4, 11):
        for number in range(workers):
            torch_worker["worker"] = types.SimpleNamespace(id=number,
                                                           num_workers=workers)
            part = files[number::workers]
            got = list(made)
            assert all("batch" not in b for b in got)
            if part and any(os.path.getsize(f) for f in part):
                same(got, list(tessera.data.Loader(part, **OPTIONS)))
            else:
                assert not got


def parts(batches):
    """The tokens of each part of a document, sorted."""
    out = []
    for b in batches:
        for r in range(b["filled"]):
            ids, tokens = (np.asarray(b[name][r]) for name in ("doc_ids", "input_ids"))
            out += [tokens[ids == n].tolist() for n in range(int(b["num_docs"][r]))]
    return sorted(out)


# Not a skip: dev/check engines has no torch and allows no skipped test.
if importlib.util.find_spec("torch"):
    def test_torch_data_loader_gives_every_document_once(files, monkeypatch):
        from torch.utils.data import DataLoader
        made = example("rows_with_torch", monkeypatch).Rows(files, **OPTIONS)
        one, two = (list(DataLoader(made, batch_size=None, num_workers=workers,
                                    timeout=60 if workers else 0))
                    for workers in (0, 2))
        same(one, list(tessera.data.Loader(files, **OPTIONS)))
        # The workers take turns; each one reads its own part of the files.
        turns = itertools.zip_longest(*(
            tessera.data.Loader(files[n::2], **OPTIONS) for n in (0, 1)))
        same(two, [b for turn in turns for b in turn if b is not None])
        assert all("batch" not in b for b in two)
        assert parts(two) == parts(one)

    def test_the_torch_example_says_where_tokens_went(files):
        said = run("rows_with_torch.py", "--tokens", "128", *files)
        rows = sum(b["filled"] for b in tessera.data.Loader(
            files, tokens=128, rows=4, strategy="cost"))
        assert said.endswith(account_of(files, rows * 128))
