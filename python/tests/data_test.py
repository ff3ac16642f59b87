"""Packed rows in Python: every kind of source gives the oracle's rows."""

import gc
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
import tessera as ts
import tessera.data
from arrow_by_hand import ByHand
from bound import U

T, ROWS, PAD = 32, 3, 7
OPTIONS = dict(tokens=T, rows=ROWS, tile=(8, 8), pad_id=PAD, window_rows=4)


def documents(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 1000, rng.integers(0, 80)).astype(np.int32)
            for _ in range(n)]


def in_order(docs):
    """Rows of documents one after another: ids, targets, loss, docs, places."""
    tokens = [(t, d[i + 1] if i + 1 < len(d) else PAD, int(i + 1 < len(d)), n, i)
              for n, d in enumerate(docs) for i, t in enumerate(d)]
    for at in range(0, len(tokens), T):
        part = np.array(tokens[at:at + T])
        _, part[:, 3] = np.unique(part[:, 3], return_inverse=True)
        rest = np.array([[PAD, PAD, 0, -1, 0]] * (T - len(part)), int)
        yield len(part), np.concatenate([part, rest.reshape(-1, 5)]).T


def loader(source, **more):
    return tessera.data.Loader(source, **{**OPTIONS, **more})


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert np.array_equal(a[name], b[name]) if name != "batch" else (
            a["batch"] == b["batch"]), name


def test_rows_in_order_are_the_oracles():
    docs = documents()
    # Each window is packed by itself; here one window holds all documents.
    rows = [r for b in loader(docs, strategy="inorder", window_rows=4096)
            for r in [{k: v[i] for k, v in b.items() if isinstance(v, np.ndarray)}
                      for i in range(b["filled"])]]
    want = list(in_order(docs))
    assert len(rows) == len(want)
    for row, (valid, columns) in zip(rows, want):
        assert row["valid_token_count"] == valid
        assert row["num_docs"] == columns[3].max() + 1
        for name, column in zip(("input_ids", "target_ids", "loss_mask", "doc_ids",
                                 "positions"), columns):
            assert (row[name] == column).all(), name


@pytest.mark.parametrize("strategy", ["inorder", "firstfit", "bestfit", "cost"])
def test_batches_have_one_shape_and_the_plan_of_their_rows(strategy):
    docs = documents(seed=1)
    made = loader(docs, strategy=strategy, max_steps=64, max_width=4)
    batches = list(made)
    assert len({b["batch"].contract.key for b in batches}) == 1
    for b in batches:
        for name, array in b.items():
            if isinstance(array, np.ndarray):
                assert array.dtype == np.int32 and array.shape[0] == ROWS
                assert not array.flags.owndata and array.flags.writeable
        assert b["chunk_starts"].shape == (ROWS, 128)
        assert b["call_edges"].shape == (ROWS, 256, 2)
        alone = ts.plan("causal & documents", q_len=T, batch=ROWS, tile=(8, 8),
                        doc_ids=b["doc_ids"], max_steps=64, max_width=4,
                        valid_token_counts=b["valid_token_count"])
        assert alone == b["batch"]
        assert alone.digest == b["batch"].digest
    tokens = np.concatenate([b["input_ids"][b["doc_ids"] >= 0] for b in batches])
    assert (np.sort(tokens) == np.sort(np.concatenate(docs))).all()
    account = made.account()
    assert account["tokens_in"] == account["tokens_out"] == len(tokens)
    assert account["rows"] * T == account["tokens_out"] + account["padding"]


def loss_and_gradient(session, table, targets_table, ids, targets, mask, batch):
    """The loss, which is the sum of <attention, row of the target> over the
    tokens that count, its gradient, and the sums of magnitudes of both."""
    x = np.ascontiguousarray(table[ids].transpose(0, 2, 1, 3))
    dout = targets_table[targets] * mask[..., None, None]
    dout = np.ascontiguousarray(dout.transpose(0, 2, 1, 3).astype(np.float32))
    ready = session.prepare(batch, heads=2, kv_heads=2, head_dim=8, backward=True)
    saved = ready.forward(x, x, x)
    grads = ready.backward(saved, dout)[:3]
    out, size = np.zeros((2, *table.shape))
    for g in grads:
        g = g.transpose(0, 2, 1, 3).astype(np.float64)
        np.add.at(out, ids, g)
        np.add.at(size, ids, np.abs(g))
    terms = saved.out.astype(np.float64) * dout
    return terms.sum(), out, np.abs(terms).sum(), size


def test_training_on_rows_is_training_on_the_documents_apart():
    rng = np.random.default_rng(0)
    docs = [rng.integers(0, 50, rng.integers(2, T // 2)) for _ in range(30)]
    table, targets_table = rng.standard_normal((2, 50, 2, 8), np.float32)
    session = ts.Session("reference")
    packed = [0] * 4
    for b in loader(docs, pad_id=0):
        assert b["num_docs"].max() > 1
        got = loss_and_gradient(session, table, targets_table, b["input_ids"],
                                b["target_ids"], b["loss_mask"], b["batch"])
        packed = [p + g for p, g in zip(packed, got)]
    apart = [0] * 4
    for d in docs:
        alone = ts.plan("causal", q_len=len(d), tile=(8, 8))
        targets, mask = np.append(d[1:], 0), np.append(np.ones(len(d) - 1), 0)
        got = loss_and_gradient(session, table, targets_table, d[None],
                                targets[None], mask[None], alone)
        apart = [p + g for p, g in zip(apart, got)]
    # The reference computes in fp64 and rounds each number once. U / 1024
    # covers the order of sums in fp64.
    for a, b, size in zip(packed[:2], apart[:2], packed[2:]):
        assert (np.abs(a - b) <= (2 + 2**-10) * U * size).all()
        wrong = b * (1 + 2.0**-16)  # this error exceeds the bound
        assert (np.abs(a - wrong) > (2 + 2**-10) * U * size).any()


def doors(docs, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"input_ids": d.tolist()}) + "\n"
                            for d in docs))
    yield lambda: path
    yield lambda: [str(path)]
    yield lambda: docs
    yield lambda: (d.astype(np.uint16)[::1] for d in docs)
    yield lambda: ({"input_ids": d.tolist()} for d in docs)
    yield lambda: ByHand([{"input_ids": docs[:7]}, {"input_ids": []},
                          {"input_ids": docs[7:]}])


def test_every_door_gives_the_same_batches(tmp_path):
    docs = documents(seed=2)
    want = list(loader(docs))
    for door in doors(docs, tmp_path):
        got = list(loader(door()))
        assert len(got) == len(want)
        for a, b in zip(got, want):
            same(a, b)


def enriched():
    return [{"input_ids": np.arange(10), "ast_depth": [3] * 10,
             "chunk_starts": [0, 4], "chunk_ends": np.array([4, 9]),
             "call_edges": np.array([[1, 0]]), "loss_mask": np.ones(10, bool)},
            {"input_ids": [5, 6, 7], "ast_depth": None,
             "chunk_unit": "character", "token_spans": [[0, 2], (2, 3), [3, 9]],
             "chunk_starts": [1], "chunk_ends": [3]}]


def test_dicts_bring_structure():
    (b,) = loader(enriched(), strategy="inorder")
    assert (b["ast_depth"][0, :13] == [3] * 10 + [0] * 3).all()
    assert b["num_chunks"].tolist() == [3, 0, 0]
    assert b["chunk_starts"][0, :3].tolist() == [0, 4, 10]
    assert b["chunk_ends"][0, :3].tolist() == [4, 9, 12]
    assert b["call_edges"][0, 0].tolist() == [1, 0]


def test_resumed_anywhere_it_gives_the_same_batches(tmp_path):
    docs = documents(seed=3)
    for door in list(doors(docs, tmp_path))[1:]:
        made = loader(door(), strategy="cost")
        batches, states = [], [made.state()]
        for b in made:
            batches.append(b)
            states.append(json.loads(json.dumps(made.state())))
        for at in range(0, len(states), 3):
            goes_on = loader(door(), strategy="cost", state=states[at])
            again = list(goes_on)
            assert len(again) == len(batches) - at
            for a, b in zip(again, batches[at:]):
                same(a, b)
            assert goes_on.account() == made.account()
            assert goes_on.state() == made.state()
    with pytest.raises(ts.TesseraError, match="a state must be what"):
        loader(docs, state={"file": 0})
    for other in ({"strategy": "inorder"}, {"seed": 3}, {"tile": (16, 8)},
                  {"mask": "documents"}):
        with pytest.raises(ts.TesseraError, match="of the same options, found"):
            loader(docs, **{"strategy": "cost", "state": states[3], **other})
    for key, value in (("file", 3), ("offset", -4)):
        with pytest.raises(ts.TesseraError, match="must be one of these documents"):
            loader(docs, strategy="cost", state={**states[3], key: value})
    for key, value in (("open_rows", 10**12), ("open_rows", -5), ("window", -1),
                       ("open_cost", float("nan"))):
        with pytest.raises(ts.TesseraError, match="must be within a step of"):
            loader(docs, strategy="cost", state={**states[3], key: value})


def test_a_state_is_of_the_same_files(tmp_path):
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, d in zip(paths, ([1] * 8, [2] * 24)):
        path.write_text(json.dumps({"input_ids": d}) + "\n")
    made = loader(paths)
    state = made.state()
    assert len(list(loader(paths, state=state))) == 1
    for other in (paths[::-1], paths[:1], paths + paths[:1], [paths[0], paths[0]]):
        with pytest.raises(ts.TesseraError, match="of the same inputs"):
            loader(other, state=state)


def test_batches_are_alike_whatever_documents_have():
    plain = {"input_ids": [1] * 9}
    more = [{"loss_mask": [1] * 9}, {"structure_ids": [1] * 9},
            {"dep_levels": [2] * 9}, {"ast_depth": [3] * 9},
            {"sibling_index": [4] * 9}, {"node_type": [5] * 9},
            {"chunk_starts": [0, 4], "chunk_ends": [4, 9], "chunk_kinds": [1, 2],
             "call_edges": [[0, 1]], "type_edges": [[1, 0]]}]
    together = {k: v for columns in more for k, v in columns.items()}

    def schema(document):
        (batch,) = loader([document], tokens=16, rows=2)
        return {name: (x.shape, x.dtype) for name, x in batch.items()
                if isinstance(x, np.ndarray)}

    want = schema(plain)
    assert len(want) == 20
    for columns in [*more, together]:
        assert schema({**plain, **columns}) == want


def test_the_rule_for_chunks_without_room_is_named():
    chunks = {"input_ids": [1] * 3, "chunk_starts": [0, 1, 2],
              "chunk_ends": [1, 2, 3]}
    made = loader([chunks], tokens=8, max_chunks=2)
    list(made)
    assert made.account()["chunk_room"] == "drop"
    assert made.account()["chunks_no_room"] == 1
    made = loader([chunks], tokens=8, max_chunks=2, strict_chunks=True)
    assert made.account()["chunk_room"] == "refuse"
    with pytest.raises(ts.TesseraError, match="at most 2 of chunk_starts"):
        list(made)


@pytest.mark.parametrize("ends", [[], [[]] * 5, [[2] * 20] * 3])
def test_the_account_at_the_end_is_of_all_documents(ends):
    """Documents after the last row, empty or dropped, are counted too."""
    docs = [[1] * 8, *ends]
    made = loader(docs, tokens=8, rows=1, window_rows=1, strategy="inorder",
                  long_documents="drop")
    (only,) = list(made)
    told = made.account()
    assert told["documents"] == len(docs)
    assert told["tokens_in"] == sum(map(len, docs))
    assert told["tokens_dropped"] == told["tokens_in"] - 8
    assert told["documents_dropped"] == sum(len(d) == 20 for d in docs)
    assert told["dropped_by"] == "drop" and told["fill"] == 1
    at_end = loader(docs, tokens=8, rows=1, window_rows=1, strategy="inorder",
                    long_documents="drop", state=made.state())
    assert list(at_end) == [] and at_end.account() == told
    nothing = loader([{"input_ids": [1] * 20, "labels": 1}], tokens=8,
                     long_documents="drop")
    assert list(nothing) == []
    told = nothing.account()
    assert told["tokens_in"] == told["tokens_dropped"] == 20
    assert told["fill"] is None and told["ignored_columns"] == ["labels"]


@pytest.mark.parametrize("rule", ["split", "keep_head", "keep_tail", "drop"])
def test_chunks_and_edges_sum_whatever_is_dropped(rule):
    """A third of 12 documents are longer than a row. Each chunk has an edge to
    the chunk before it."""
    docs = []
    for n in range(12):
        chunks = 5 if n % 3 == 0 else 2
        docs.append({"input_ids": [1] * 4 * chunks,
                     "chunk_starts": [4 * c for c in range(chunks)],
                     "chunk_ends": [4 * c + 4 for c in range(chunks)],
                     "call_edges": [[c, c - 1] for c in range(1, chunks)]})
    made = loader(docs, tokens=16, rows=1, max_chunks=3, max_edges=2,
                  strategy="inorder", long_documents=rule)
    next(made)
    assert made.account()["chunks_dropped"] is None
    assert made.account()["edges_dropped"] is None
    list(made)
    told = made.account()
    assert told["chunks_in"] == 4 * 5 + 8 * 2 and told["edges_in"] == 4 * 4 + 8
    for what, lost in (("chunks", ["no_room", "dropped"]),
                       ("edges", ["no_room", "dropped", "across_rows"])):
        assert told[f"{what}_in"] == told[f"{what}_out"] + sum(
            told[f"{what}_{name}"] for name in lost)
    assert (told["chunks_dropped"] > 0) == (rule != "split")
    assert told["chunks_no_room"] > 0


def test_how_even_steps_are_is_that_of_the_program(tmp_path):
    docs = documents(seed=4)
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"input_ids": list(map(int, d))}) + "\n"
                            for d in docs))
    made = loader(docs, strategy="cost", rows_per_step=2)
    list(made)
    ran = subprocess.run(
        [sys.executable, "-m", "tessera", "pack", str(path), "--tokens", str(T),
         "--strategy", "cost", "--rows-per-step", "2", "--tile", "8x8",
         "--window-rows", "4", "--json"],
        check=True, capture_output=True, text=True)
    told, want = made.account(), json.loads(ran.stdout)
    assert told["full_steps"] > 2
    for name in ("full_steps", "cost_max_over_mean", "cost_worst_step",
                 "length_spread"):
        assert told[name] == want[name], name
    nothing = loader([], rows_per_step=2)
    assert list(nothing) == []
    assert nothing.account()["cost_max_over_mean"] is None


def test_fields_without_a_column_are_told():
    docs = [{"input_ids": [np.int64(1), np.uint8(2), 3], "ast_dept": [1], "labels": [2]},
            {"input_ids": [4], "name": "b"}]
    made = loader(docs)
    (only,) = list(made)
    assert only["input_ids"][only["doc_ids"] >= 0].sum() == 10
    assert made.account()["ignored_columns"] == ["ast_dept", "labels", "name"]


def test_mixing_is_of_cost():
    with pytest.raises(ts.TesseraError, match="mixing must come with the strategy cost"):
        loader([[1, 2]], mixing=0.5)


def test_several_masks_have_no_cost():
    masks = ["causal & documents", "documents"]
    with pytest.raises(ts.TesseraError, match="packed by cost must be of one mask"):
        loader([[1, 2]], strategy="cost", mask=masks)
    assert len(list(loader([[1, 2]], strategy="bestfit", mask=masks))) == 1


def test_any_number_of_workers_gives_the_same_batches():
    docs = documents(200, seed=7)
    want = list(loader(docs, strategy="cost"))
    for workers in (2, 5):
        made = loader(iter(docs), strategy="cost", workers=workers, ahead=8)
        states = [made.state()]
        got = []
        for b in made:
            got.append(b)
            states.append(made.state())
        assert len(got) == len(want) > 20
        for a, b in zip(got, want):
            same(a, b)
        (first, *_) = loader(docs, strategy="cost", workers=workers, state=states[9])
        same(first, want[9])


def test_any_number_of_workers_reads_the_same_lines(tmp_path):
    lines, *_ = doors(documents(1000, seed=7), tmp_path)
    one = loader(lines())
    want = list(one)
    for workers in (2, 5):
        made = loader(lines(), workers=workers)
        got = list(made)
        assert len(got) == len(want) > 20
        for a, b in zip(got, want):
            same(a, b)
        assert made.state() == one.state()
        assert made.account() == one.account()


def test_killed_anywhere_it_goes_on_with_the_same_rows(tmp_path):
    """Processes are killed while they load. Each next process goes on from the
    last state that was written."""
    path, log = tmp_path / "a.jsonl", tmp_path / "log"
    path.write_text("".join(json.dumps({"input_ids": d.tolist()}) + "\n"
                            for d in documents(300, seed=8)))
    code = ("import json, sys, time, zlib, tessera.data\n"
            "path, log, wait = sys.argv[1:]\n"
            "done = [json.loads(x) for x in open(log)]\n"
            "l = tessera.data.Loader(path, tokens=32, rows=3, window_rows=4,"
            " tile=(8, 8), strategy='cost', state=done[-1][1] if done else None)\n"
            "with open(log, 'a') as out:\n"
            "    for b in l:\n"
            "        rows = b''.join(b[k].tobytes() for k in sorted(b)"
            " if k not in ('batch', 'filled'))\n"
            "        out.write(json.dumps([zlib.crc32(rows), l.state()]) + '\\n')\n"
            "        out.flush()\n"
            "        time.sleep(float(wait))\n")
    run = [sys.executable, "-c", code, str(path), str(log)]

    def written():
        return [json.loads(x) for x in log.read_text().splitlines()]

    log.write_text("")
    subprocess.run([*run, "0"], check=True, timeout=60)
    whole = written()
    assert len(whole) > 100
    log.write_text("")
    for wanted in (5, 40):
        with subprocess.Popen([*run, "0.01"]) as process:
            while log.read_text().count("\n") < wanted and process.poll() is None:
                time.sleep(0.002)
            process.kill()
        # A line that is cut off is not a state.
        lines = log.read_text().splitlines(keepends=True)
        log.write_text("".join(x for x in lines if x.endswith("\n")))
        assert wanted <= len(written()) < len(whole)
    subprocess.run([*run, "0"], check=True, timeout=60)
    assert written() == whole


def test_arrays_outlive_the_loader():
    docs = documents(seed=4)
    made = loader(docs)
    first = next(made)
    want = {k: np.copy(v) for k, v in first.items() if isinstance(v, np.ndarray)}
    digest = first["batch"].digest
    made.close()
    del made
    gc.collect()
    for name, array in want.items():
        assert (first[name] == array).all()
    assert first["batch"].digest == digest


def test_what_is_refused_is_named():
    def said(docs, **more):
        with pytest.raises(ts.TesseraError) as e:
            list(loader(docs, **more))
        return str(e.value)

    assert said([[1], [1, -2]]) == (
        "[data] element 1 of input_ids of document 1 must be an integer of 0 to "
        "2147483647, found -2 for it")
    assert "found 1180591620717411303424 for it" in said([[2**70]])
    assert "found str for it" in said([["x"]])
    assert "found an array of 2 dimensions for it" in said([np.zeros((2, 2), int)])
    assert "found an array of another dtype for it" in said([np.zeros(3)])
    assert "found float for it" in said([1.5])
    assert "must have the column input_ids" in said([{"ast_depth": [1]}])
    assert "must be pairs of integers" in said(
        [{"input_ids": [1], "token_spans": [[1]]}])
    assert said([[1]], strategy="magic").startswith("[pack] ")
    assert said([[1]], rows=0).startswith("[data] a batch must have 1 to")
    assert "needs prefix_lengths" in said([[1]], mask="prefix & documents")
    assert "must be one mask or more, found none" in said([[1]], mask=[])
    assert said(ByHand([{"input_ids": [[1]]}, {"input_ids": [[2], [-3]]}])) == (
        "[data] element 0 of input_ids of row 1 of batch 1 of the stream must be "
        "an integer of 0 to 2147483647, found the integer -3 for it")
    assert "found error 5 ('the disk is gone')" in said(
        ByHand([{"input_ids": [[1]]}, None]))
    with pytest.raises(TypeError):
        loader(5)
    made = loader([[1]])
    made.close()
    with pytest.raises(ts.TesseraError, match="found a closed one"):
        next(made)


def test_packed_rows_are_no_documents():
    """Packed rows are refused as documents, in tables and in dicts."""
    said = (r"documents must not be packed rows already, found the columns of such "
            r"\(input_ids, target_ids, loss_mask, doc_ids, valid_token_count, num_docs\) "
            r"for ")
    (batch,) = loader([[1, 2, 3]])
    with pytest.raises(ts.TesseraError, match=said + "document 0"):
        next(loader([batch]))
    row = {name: batch[name][0] for name in ("input_ids", "target_ids", "loss_mask",
                                             "doc_ids", "valid_token_count")}
    assert len(list(loader([row]))) == 1  # documents may have some of the columns
    with pytest.raises(ts.TesseraError, match=said + "document 1"):
        list(loader([row, {**row, "num_docs": 1}]))
    columns = {name: [batch[name][0].tolist()] for name in row if name in (
        "input_ids", "target_ids", "loss_mask", "doc_ids")}
    columns |= {"valid_token_count": [[3]], "num_docs": [[1]]}
    with pytest.raises(ts.TesseraError, match=said + "the stream"):
        loader(ByHand([columns]))


HAS_ARROW = os.path.exists(os.path.join(os.path.dirname(ts.__file__),
                                        "tessera_arrow.so"))


@pytest.fixture(params=["rows", "rows --format parquet", "rows --format arrow",
                        "rows.parquet", "rows.arrow", "rows.arrows"])
def packed(request, tmp_path):
    """A file of documents, and the rows that `tessera pack` makes of it."""
    if request.param != "rows" and not HAS_ARROW:
        pytest.skip("this build has no component tessera_arrow.so")
    docs = tmp_path / "docs.jsonl"
    docs.write_text("".join(
        json.dumps({"input_ids": d.tolist(), "ast_depth": [3] * len(d),
                    "chunk_starts": [0], "chunk_ends": [1]} if len(d) else
                   {"input_ids": []}) + "\n" for d in documents(seed=9)))
    out, *more = request.param.split()
    subprocess.run(
        [sys.executable, "-m", "tessera", "pack", str(docs), "--tokens", str(T),
         "--pad-id", str(PAD), "--window-rows", "4", "--tile", "8x8",
         "--rows-per-file", "5", "-o", str(tmp_path / out), *more],
        check=True, capture_output=True, timeout=60)
    return docs, tmp_path / out


def test_bytes_are_tokens_and_no_path():
    for documents in [b"abc", b"de"], (b"abc", b"de"), iter([b"abc", b"de"]):
        row = next(loader(documents))
        assert list(row["input_ids"][row["doc_ids"] >= 0][:5]) == list(b"abcde")


def open_rows(path, **more):
    return tessera.data.Loader.open_rows(path, **{"rows": ROWS, "tile": (8, 8), **more})


def test_rows_of_files_are_those_of_their_documents(packed):
    docs, rows = packed
    want = list(loader(docs, max_steps=64, max_width=4))
    assert len(want) > 10 and want[-1]["filled"] < ROWS
    for workers in (1, 3):
        with open_rows(str(rows), max_steps=64, max_width=4, workers=workers) as made:
            got = list(made)
        assert len(got) == len(want)
        for a, b in zip(got, want):
            same(a, b)
            assert a["batch"].digest == b["batch"].digest
            assert a["batch"].contract.key == b["batch"].contract.key
    with pytest.raises(ts.TesseraError, match="found a closed one"):
        next(made)
    (row, *_) = open_rows(rows, mask="documents", rows=1)
    assert row["batch"] == ts.plan("documents", q_len=T, tile=(8, 8),
                                   doc_ids=row["doc_ids"],
                                   valid_token_counts=row["valid_token_count"])


def test_rows_of_files_are_resumed_anywhere(packed):
    made = open_rows(packed[1])
    batches, states = [], [made.state()]
    for b in made:
        batches.append(b)
        states.append(json.loads(json.dumps(made.state())))
    assert made.state() == states[-1]
    for at, state in enumerate(states):
        again = open_rows(packed[1], state=state)
        assert again.state() == state
        rest = list(again)
        assert len(rest) == len(batches) - at
        for a, b in zip(rest, batches[at:]):
            same(a, b)
    # A state also works with another batch size.
    one = next(open_rows(packed[1], state=states[2], rows=1))
    assert (one["input_ids"][0] == batches[2]["input_ids"][0]).all()
    with pytest.raises(ts.TesseraError, match="must be of a stream of the same options"):
        loader(packed[0], state=states[2])
    with pytest.raises(ts.TesseraError, match="must be of a stream of the same options"):
        open_rows(packed[1], state=loader(packed[0]).state())
    with pytest.raises(ts.TesseraError, match="found row 3 of file 99"):
        open_rows(packed[1], state={**states[1], "file": 99})
    with pytest.raises(ts.TesseraError, match="found row -1 of file 0"):
        open_rows(packed[1], state={**states[1], "offset": -1})
    with pytest.raises(ts.TesseraError, match=r"row 1000000 for|ends \d+ rows before the row"):
        open_rows(packed[1], state={**states[1], "offset": 10**6})


def test_rows_of_files_that_are_wrong_are_refused(packed, tmp_path):
    docs, rows = packed
    made = open_rows(rows)
    assert repr(made) == f"Loader(tokens={T}, rows={ROWS}, 0 rows handed out)"
    with pytest.raises(ts.TesseraError, match="account must be of documents, found rows"):
        made.account()
    with pytest.raises(ts.TesseraError, match="documents must not be packed rows"):
        list(loader(rows))
    with pytest.raises(ts.TesseraError, match="rows must be packed, as"):
        open_rows(docs)
    with pytest.raises(ts.TesseraError, match="'.*nothing"):
        open_rows(tmp_path / "nothing")
    with pytest.raises(ts.TesseraError, match="needs prefix_lengths"):
        open_rows(rows, mask="prefix & documents")
    with pytest.raises(ts.TesseraError, match="must be one mask or more, found none"):
        open_rows(rows, mask=[])
    with pytest.raises(TypeError):
        open_rows(5)
    (*_, last) = sorted(rows.iterdir()) if rows.is_dir() else [rows]
    last.write_bytes(last.read_bytes()[:-40])
    with pytest.raises(ts.TesseraError, match=str(last)):
        list(open_rows(rows))


def test_what_an_iterable_raises_is_raised_in_its_turn():
    def broken():
        yield from documents(40, seed=5)
        raise KeyError("gone")

    made = loader(broken())
    batches = 0
    with pytest.raises(KeyError, match="gone"):
        for _ in made:
            batches += 1
    assert batches > 3
    with pytest.raises(KeyError, match="gone"):
        next(made)
    # The exception may also come while a loader skips to its state.
    state = {**loader(documents(1)).state(), "offset": 50}
    with pytest.raises(KeyError, match="gone"):
        loader(broken(), state=state)


def test_what_is_exported_is_released():
    stream = ByHand([{"input_ids": [[1, 2]]}] * 3)
    with loader(stream) as made:
        assert len(list(made)) == 1
    # Released: the schema, three batches and the stream.
    assert stream.released == 5


def test_an_interpreter_with_an_open_loader_ends():
    code = ("import itertools, tessera.data\n"
            "l = tessera.data.Loader(itertools.repeat([1, 2, 3]), tokens=8, rows=2,"
            " window_rows=1)\n"
            "next(l)\n")
    done = subprocess.run([sys.executable, "-c", code], timeout=60,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


EXAMPLES = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "python")


def test_memory_is_flat_over_a_stream():
    code = ("import itertools, sys, tessera.data\n"
            "sys.path.insert(0, sys.argv[1])\n"
            "from peak_memory import peak_kib\n"
            "l = tessera.data.Loader(itertools.repeat(list(range(700))), tokens=2048,"
            " rows=8, window_rows=64)\n"
            "most = [0, 0]\n"
            "for n, _ in zip(range(800), l):\n"
            "    most[n > 200] = peak_kib()\n"
            "print(most[1] - most[0])\n")
    ran = subprocess.run([sys.executable, "-c", code, os.path.dirname(__file__)],
                         capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    # KiB. The columns of 600 batches would be 390 MB.
    assert int(ran.stdout) < 8192


def test_sources_become_rows_with_their_structure(tmp_path):
    tree_sitter = pytest.importorskip("tree_sitter")
    language = pytest.importorskip("tree_sitter_cpp").language()
    sys.path.insert(0, EXAMPLES)
    try:
        import source_rows
    finally:
        sys.path.remove(EXAMPLES)
    parser = tree_sitter.Parser(tree_sitter.Language(language))
    words = {}
    made = source_rows.document(
        b"struct A { int x; };\n"
        b"int f(A a) { return a.x; }\n"
        b"int g(A a) { return f(a); }\n", parser, words)
    (b,) = loader([made], tokens=128)
    row = {k: v[0] for k, v in b.items() if isinstance(v, np.ndarray)}
    text = {v: k for k, v in words.items()}
    chunks = [b"".join(text[t] for t in row["input_ids"][a:z]) for a, z in
              zip(row["chunk_starts"][:3], row["chunk_ends"][:3])]
    assert chunks == [b"struct A { int x; }", b"int f(A a) { return a.x; }",
                      b"int g(A a) { return f(a); }"]
    assert row["chunk_kinds"][:3].tolist() == [2, 1, 1]
    assert row["call_edges"][:2].tolist() == [[2, 1], [-1, -1]]
    assert row["type_edges"][:3].tolist() == [[1, 0], [2, 0], [-1, -1]]
    at = row["chunk_starts"]
    assert [row["dep_levels"][at[c]] for c in range(3)] == [0, 0, 1]
    assert [row["structure_ids"][at[c]] for c in range(3)] == [1, 2, 3]
    assert row["ast_depth"][at[1]] > 0 and row["node_type"][at[1]] > 0
    # A call is matched by the last part of its name, however it is written.
    def calls(text):
        made = source_rows.document(text, parser, {})
        return (made["call_edges"], made["dep_levels"][0])
    for declared in (b"int m() { return 1; }", b"int A::m() { return 1; }",
                     b"int& ns::A::m() { return x; }", b"int (*m())(int) { return 0; }",
                     b"template <class T> int m() { return 1; }"):
        for called in (b"m()", b"a.m()", b"this->m()", b"p->q.m()", b"::m()",
                       b"ns::m()", b"ns::A::m()", b"m<int>()", b"ns::m<int>()",
                       b"a.m<int>()", b"a.template m<int>()"):
            text = b"int f(A a) { return " + called + b"; }\n" + declared
            assert calls(text) == ([(0, 1)], 1), text
    for called in (b"a.n()", b"m.n()", b"m::n()", b"n<m>()", b"m", b"a.m", b"m[0]()",
                   b"(*m)()"):
        text = b"int f(A a) { return " + called + b"; }\nint m() { return 1; }"
        assert calls(text) == ([], 0), text
    # Functions without a plain name are not what a call without one goes to.
    assert calls(b"int f() { return table[0](); }\nA::operator bool() { return 1; }"
                 ) == ([], 0)
    # Of one name the first in the file is taken.
    assert calls(b"int f(A a) { return a.m(); }\nint B::m() { return 1; }\n"
                 b"int A::m() { return 1; }") == ([(0, 1)], 1)
    # A cycle of chunks counts as one chunk. A long chain must not recurse
    # deeply.
    assert source_rows.levels({(0, 1), (1, 0), (1, 2), (3, 0)}, 4) == [1, 1, 0, 2]
    chain = {(c, c + 1) for c in range(1199)}
    assert source_rows.levels(chain, 1200) == list(range(1199, -1, -1))
    # The headers of this project as sources.
    lines = tmp_path / "sources.jsonl"
    with lines.open("w") as out:
        subprocess.run([sys.executable, os.path.join(EXAMPLES, "source_rows.py"),
                        os.path.join(EXAMPLES, "..", "..", "include")],
                       stdout=out, check=True, timeout=120)
    made = loader(lines, tokens=2048, tile=(128, 128))
    assert sum(b["num_chunks"].sum() for b in made) == made.account()["chunks_out"]
    assert made.account()["chunks_in"] > 50
    assert made.account()["edges_out"] > 20


def test_the_sample_is_what_docs_say_that_it_is():
    pytest.importorskip("tree_sitter_cpp")
    parquet = pytest.importorskip("pyarrow.parquet")
    ran = subprocess.run([sys.executable, os.path.join(EXAMPLES, "source_rows.py"),
                          os.path.join(EXAMPLES, "..", "consumer")],
                         capture_output=True, check=True, text=True, timeout=120)
    sample = parquet.read_table(os.path.join(EXAMPLES, "..", "sources.parquet"))
    assert sample.to_pylist() == [json.loads(line) for line in ran.stdout.splitlines()]


def test_the_example_runs():
    example = os.path.join(EXAMPLES, "pack_rows.py")
    ran = subprocess.run([sys.executable, example, "--tokens", "512"],
                         capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "resumed after batch 0: the same rows" in ran.stdout
    assert " 0 dropped (split), " in ran.stdout


def printed_by(code):
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                         timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_ctrl_c_ends_the_wait_for_a_slow_source():
    code = ("import os, signal, threading, time, tessera.data\n"
            # Background jobs of a shell ignore SIGINT, and children inherit that.
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "def slow():\n"
            "    time.sleep(3)\n"
            "    yield [1]\n"
            "l = tessera.data.Loader(slow(), tokens=8, rows=1)\n"
            "begin = time.monotonic()\n"
            "try:\n"
            "    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
            "    next(l)\n"
            "except KeyboardInterrupt:\n"
            "    print(time.monotonic() - begin, next(l)['filled'])\n")
    waited, filled = printed_by(code).split()
    assert float(waited) < 2.5 and filled == "1"


def test_a_handler_of_a_signal_closes_the_loader_that_waits():
    code = ("import signal, time, tessera.data\n"
            "def slow():\n"
            "    while True:\n"
            "        time.sleep(0.01)\n"
            "        yield [1]\n"
            "l = tessera.data.Loader(slow(), tokens=1 << 20, rows=1)\n"
            "signal.signal(signal.SIGALRM, lambda *_: l.close())\n"
            "signal.setitimer(signal.ITIMER_REAL, 0.3)\n"
            "try:\n"
            "    next(l)\n"
            "except tessera.TesseraError as e:\n"
            "    print(e)\n")
    assert printed_by(code) == "[python] a loader must be open, found a closed one\n"


SOURCE = ("import gc, os, signal, sys, time, tessera.data\n"
          "said = []\n"
          "def say(f):\n"
          "    try: f()\n"
          "    except tessera.TesseraError as e: said.append(str(e))\n"
          "def opened(source):\n"
          "    return tessera.data.Loader(source, tokens=8, rows=1,\n"
          "                               window_rows=1, ahead=1)\n"
          "def endless():\n"
          "    while True:\n"
          "        time.sleep(0.001)\n"
          "        yield [1] * 8\n")


def test_a_source_that_uses_its_own_loader_is_refused():
    code = SOURCE + ("def source():\n"
                     "    yield [1] * 8\n"
                     "    while not have: time.sleep(0.001)\n"
                     "    say(lambda: next(have[0]))\n"
                     "    say(have[0].close)\n"
                     "    yield [2] * 8\n"
                     "have = []\n"
                     "have.append(opened(source()))\n"
                     "print(len(list(have[0])), *said, sep='\\n')\n")
    refusal = ("[python] a loader must be used by others than its source, found "
               "its own thread")
    assert printed_by(code).splitlines() == ["2", refusal, refusal]


def test_a_loader_that_its_own_thread_collects_ends():
    code = SOURCE + ("import weakref\n"
                     "def source():\n"
                     "    while not gone: time.sleep(0.001)\n"
                     "    said.append(gc.collect() > 0)\n"
                     "    yield from endless()\n"
                     "gc.disable()\n"
                     "gone = []\n"
                     "ring = [opened(source())]\n"
                     "ring.append(ring)\n"
                     "dead = weakref.ref(ring[0])\n"
                     "del ring\n"
                     "gone.append(1)\n"
                     "begin = time.monotonic()\n"
                     "while not said and time.monotonic() < begin + 20:\n"
                     "    time.sleep(0.001)\n"
                     "print(dead(), said)\n")
    assert printed_by(code) == "None [True]\n"


def test_a_fork_of_an_open_loader_is_refused_and_ends():
    code = SOURCE + ("loader = opened(endless())\n"
                     "next(loader)\n"
                     "child = os.fork()\n"
                     "if child == 0:\n"
                     "    signal.alarm(10)\n"
                     "    say(lambda: next(loader))\n"
                     "    say(loader.close)\n"
                     "    print(*said, sep='\\n')\n"
                     "    sys.exit(0)\n"
                     "print(os.waitpid(child, 0)[1], next(loader)['filled'])\n")
    refusal = ("[python] a loader must be used in the process that opened it, "
               "found a fork of it (keep state() and open one with it)")
    assert printed_by(code).splitlines() == [refusal, refusal, "0 1"]


def library_doors(docs):
    lists = [d.tolist() for d in docs]

    def pyarrow():
        pa = pytest.importorskip("pyarrow")
        column = pa.chunked_array([pa.array(lists[:9], pa.large_list(pa.uint16())),
                                   pa.array(lists[9:], pa.large_list(pa.uint16()))])
        return pa.table({"input_ids": column, "name": ["x"] * len(docs)})

    def reader():
        pa = pytest.importorskip("pyarrow")
        column = pa.array(lists, pa.list_(pa.int64()))
        return pa.RecordBatchReader.from_batches(
            pa.schema([("input_ids", column.type)]),
            pa.table({"input_ids": column})[3:].to_batches(max_chunksize=5))

    def polars():
        return pytest.importorskip("polars").DataFrame({"input_ids": lists})

    def duckdb():
        duckdb = pytest.importorskip("duckdb")
        pa = pytest.importorskip("pyarrow")
        made = pa.table({"input_ids": lists})
        return duckdb.from_arrow(made)

    def stream_of(dataset):
        pa = pytest.importorskip("pyarrow")
        made = dataset.with_format("arrow")
        return pa.RecordBatchReader.from_batches(
            made.features.arrow_schema,
            (batch for table in made.iter(7) for batch in table.to_batches()))

    def dataset():
        # select() reverses the order; the table in memory keeps the old one.
        made = pytest.importorskip("datasets").Dataset.from_dict(
            {"input_ids": lists[::-1], "name": ["x"] * len(docs)})
        return stream_of(made.select(range(len(docs) - 1, -1, -1)))

    def iterable_dataset():
        made = pytest.importorskip("datasets").Dataset.from_dict({"input_ids": lists})
        return stream_of(made.to_iterable_dataset(num_shards=3))

    return {f.__name__: f for f in (pyarrow, reader, polars, duckdb, dataset,
                                    iterable_dataset)}


@pytest.mark.parametrize("name", ["pyarrow", "reader", "polars", "duckdb", "dataset",
                                  "iterable_dataset"])
def test_libraries_hand_over_the_same(name):
    docs = documents(seed=6)
    source = library_doors(docs)[name]()
    want = list(loader(docs[3:] if name == "reader" else docs))
    got = list(loader(source))
    assert len(got) == len(want)
    for a, b in zip(got, want):
        same(a, b)
