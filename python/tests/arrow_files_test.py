"""Parquet and Arrow IPC files give the rows of JSON lines in every encoding; a
broken file is refused with the place of the fault."""

import itertools
import json
import os
import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest
import tessera as ts
import tessera.data

if not os.path.exists(os.path.join(os.path.dirname(ts.__file__), "tessera_arrow.so")):
    pytest.skip("this build has no component tessera_arrow.so",
                allow_module_level=True)

OPTIONS = dict(tokens=64, rows=3, tile=(8, 8), window_rows=4, strategy="cost")


def loader(source, **more):
    return tessera.data.Loader(source, **{**OPTIONS, **more})


def documents(n=120, seed=0):
    """Documents with every field; each field is absent in some."""
    rng = random.Random(seed)
    out = []
    for _ in range(n):
        tokens = rng.choice([0, 1, 5, 30, 90])
        d = {"input_ids": [rng.randrange(60000) for _ in range(tokens)],
             "ast_depth": [rng.randrange(-9, 9) for _ in range(tokens)],
             "loss_mask": [rng.randrange(2) for _ in range(tokens)],
             "name": rng.choice(["a", "b"])}
        cuts = sorted(rng.sample(range(tokens + 1), min(tokens + 1, 4)))
        d["chunk_starts"], d["chunk_ends"] = cuts[:-1], cuts[1:]
        chunks = len(cuts) - 1
        d["call_edges"] = [[rng.randrange(chunks), rng.randrange(chunks)]
                           for _ in range(2 if chunks else 0)]
        for field in ("ast_depth", "loss_mask", "call_edges", "name"):
            if rng.random() < 0.2:
                d[field] = None
        out.append(d)
    return out


def json_file(docs, path):
    """An absent field is null in every other document, and missing in the rest."""
    path.write_text("".join(
        json.dumps({k: v for k, v in d.items() if v is not None or at % 2}) + "\n"
        for at, d in enumerate(docs)))
    return path


WIDTHS = [pa.int32(), pa.int64(), pa.uint16(), pa.uint64()]


def table(docs, number=pa.int32(), list_of=pa.list_, mask=pa.int8()):
    pair = pa.list_(pa.int16(), 2)
    return pa.table({
        "name": pa.array([d["name"] for d in docs]),
        "input_ids": pa.array([d["input_ids"] for d in docs], list_of(number)),
        "ast_depth": pa.array([d["ast_depth"] for d in docs], list_of(pa.int8())),
        "loss_mask": pa.array([d["loss_mask"] and [mask == pa.bool_() and bool(x) or x
                                                   for x in d["loss_mask"]]
                               for d in docs], pa.list_(mask)),
        "chunk_starts": pa.array([d["chunk_starts"] for d in docs],
                                 pa.list_(pa.uint8())),
        "chunk_ends": pa.array([d["chunk_ends"] for d in docs], pa.list_(pa.int64())),
        "call_edges": pa.array([d["call_edges"] for d in docs], list_of(pair))})


def write_ipc(made, path, new, **options):
    with new(path, made.schema, options=ipc.IpcWriteOptions(**options)) as out:
        out.write_table(made, max_chunksize=37)


def files(docs, folder):
    """Writes the same documents to files of many encodings; yields the paths."""
    for number, width in enumerate(WIDTHS):
        path = folder / f"{number}.parquet"
        pq.write_table(table(docs, width), path, row_group_size=31,
                       compression=["none", "snappy", "zstd", "gzip"][number],
                       data_page_version=["1.0", "2.0"][number % 2],
                       use_dictionary=number < 2, data_page_size=256)
        yield path
    path = folder / "large.parquet"
    pq.write_table(table(docs, list_of=pa.large_list, mask=pa.uint64()), path,
                   store_schema=False)
    yield path
    for compression in (None, "lz4", "zstd"):
        path = folder / f"{compression}.arrow"
        write_ipc(table(docs, pa.uint32(), pa.large_list), path, ipc.new_file,
                  compression=compression)
        yield path
        path = folder / f"{compression}.arrows"
        write_ipc(table(docs), path, ipc.new_stream, compression=compression)
        yield path
    path = folder / "dictionary.feather"
    words = pa.array([d["input_ids"] for d in docs], pa.list_(pa.int32()))
    flat = words.flatten().dictionary_encode()
    made = table(docs).set_column(1, "input_ids", pa.ListArray.from_arrays(
        words.offsets, flat))
    write_ipc(made, path, ipc.new_file)
    yield path


def same(got, want):
    got, want = list(got), list(want)
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert a.keys() == b.keys()
        for name in a:
            assert (a["batch"] == b["batch"] if name == "batch"
                    else np.array_equal(a[name], b[name])), name


def test_every_encoding_gives_the_rows_of_json_lines(tmp_path):
    docs = documents()
    want = list(loader(json_file(docs, tmp_path / "a.jsonl")))
    for path in files(docs, tmp_path):
        same(loader(path), want)


@pytest.mark.parametrize("item", [pa.int32(), pa.int64()])
@pytest.mark.parametrize("null", [False, True])
def test_lists_are_read_whatever_may_be_null(item, null, tmp_path):
    """Thousands of short lists, some empty, over pages of a few numbers."""
    rng = random.Random(3)
    docs = [{"input_ids": [rng.randrange(100) for _ in range(rng.randrange(7))]}
            for _ in range(9000)]
    for d in docs:
        d["ast_depth"] = (None if null and rng.random() < 0.3 else
                          [t - 50 for t in d["input_ids"]])
    lists = pa.list_(pa.field("element", item, nullable=null))
    schema = pa.schema([pa.field("input_ids", lists, nullable=null),
                        pa.field("ast_depth", lists, nullable=null)])
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(docs, schema), path, data_page_size=128,
                   row_group_size=5000, write_batch_size=16)
    got, want = loader(path, workers=2), loader(json_file(docs, tmp_path / "a.jsonl"))
    for a, b in zip(got, want, strict=True):
        assert all(np.array_equal(a[k], b[k]) for k in a if k != "batch")
    if null:
        docs[6000]["ast_depth"] = [1, None] + [2] * 5
        docs[6000]["input_ids"] = [1] * 7
        pq.write_table(pa.Table.from_pylist(docs, schema), path, data_page_size=128)
        with pytest.raises(ts.TesseraError,
                           match="element 1 of ast_depth of row 6000 of .*null"):
            list(loader(path))


@pytest.mark.parametrize("item", [pa.int32(), pa.int64()])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_without_values_are_passed_over(item, version, tmp_path):
    """PyArrow writes pages without values between others if pages are small."""
    docs = [{"input_ids": list(range(n))} for n in (3, 2, 0, 0, 5, 1)]
    path = tmp_path / "a.parquet"
    schema = pa.schema([("input_ids", pa.list_(item))])
    for page, batch in itertools.product((1, 8, 64, 1024), (1, 2, 16)):
        pq.write_table(pa.Table.from_pylist(docs, schema), path, data_page_size=page,
                       write_batch_size=batch, data_page_version=version)
        same(loader(path), list(loader(json_file(docs, tmp_path / "a.jsonl"))))


def test_resumed_anywhere_in_files_of_many_kinds(tmp_path):
    docs = documents(90, seed=1)
    paths = [json_file(docs[:20], tmp_path / "a.jsonl"), tmp_path / "b.parquet",
             tmp_path / "c.arrow", tmp_path / "d.arrows", tmp_path / "e.parquet"]
    pq.write_table(table(docs[20:50]), paths[1], row_group_size=7)
    write_ipc(table(docs[50:70]), paths[2], ipc.new_file)
    write_ipc(table(docs[70:]), paths[3], ipc.new_stream)
    pq.write_table(table(docs[:0]), paths[4])
    made = loader(paths, window_rows=1, rows=2)
    states, batches = [made.state()], []
    for b in made:
        batches.append(b)
        states.append(made.state())
    same(batches, loader(json_file(docs, tmp_path / "all.jsonl"), window_rows=1, rows=2))
    assert {s["file"] for s in states} >= {0, 1, 2, 3}
    for at, state in enumerate(states):
        same(loader(paths, window_rows=1, rows=2, state=state), batches[at:])


def said(*arguments, **more):
    with pytest.raises(ts.TesseraError) as e:
        list(loader(*arguments, **more))
    return str(e.value)


def test_a_bad_value_is_told_by_file_row_and_column(tmp_path):
    path = tmp_path / "a.parquet"
    ids = [[1, 2]] * 200 + [[3, 4, -5]]
    pq.write_table(pa.table({"input_ids": ids}), path, row_group_size=64)
    want = (f"[data] element 2 of input_ids of row 200 of '{path}' must be an "
            "integer of 0 to 2147483647, found the integer -5 for it")
    assert said(path) == want
    # The error counts rows of the file, also if reading starts later.
    made = loader(path, window_rows=1, rows=1)
    next(made), next(made)
    assert said(path, window_rows=1, rows=1, state=made.state()) == want
    pq.write_table(pa.table({"input_ids": [[1], None]}), path)
    assert said(path) == ("[data] a document must have the column input_ids, found "
                          f"none for row 1 of '{path}'")
    pq.write_table(pa.table({"input_ids": [["x"]]}), path)
    assert f"found Arrow's format '+l' of 'u' for '{path}'" in said(path)
    pq.write_table(pa.table({"ids": [[1]]}), path)
    assert said(path) == ("[data] documents must have the column input_ids, found "
                          f"none for '{path}'")


def test_what_is_no_such_file_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    assert "No such file" in said(path)
    path.write_bytes(b"")
    assert "neither Parquet nor Arrow IPC" in said(path)
    path.write_text('{"input_ids": [1]}\n')
    assert "neither Parquet nor Arrow IPC" in said(path)
    folder = tmp_path / "b.arrow"
    folder.mkdir()
    assert "must be a file" in said(folder)
    pq.write_table(pa.table({"input_ids": [[1]]}), path)
    made = loader(path)
    next(made)
    state = dict(made.state(), file=0, offset=7)
    assert "ends 6 rows before" in said(path, state=state)


def test_every_cut_is_refused(tmp_path):
    docs = documents(40, seed=2)
    made = table(docs)
    pq.write_table(made, tmp_path / "whole.parquet", row_group_size=16)
    write_ipc(made, tmp_path / "whole.arrow", ipc.new_file)
    write_ipc(made, tmp_path / "whole.arrows", ipc.new_stream)
    for kind in ("parquet", "arrow", "arrows"):
        whole = (tmp_path / f"whole.{kind}").read_bytes()
        assert list(loader(tmp_path / f"whole.{kind}"))
        cut = tmp_path / f"cut.{kind}"
        for length in range(0, len(whole), 41):
            cut.write_bytes(whole[:length])
            with pytest.raises(ts.TesseraError) as e:
                list(loader(cut))
            assert str(cut) in str(e.value), e.value


def test_a_stream_cut_between_batches_is_refused(tmp_path):
    path = tmp_path / "a.arrows"
    made = table(documents(40, seed=2))
    ends = []
    with open(path, "wb") as file, ipc.new_stream(file, made.schema) as out:
        ends.append(file.tell())
        for batch in made.to_batches(max_chunksize=16):
            out.write_batch(batch)
            ends.append(file.tell())
    whole = path.read_bytes()
    assert len(ends) == 4 and len(whole) == ends[-1] + 8
    for number, end in enumerate(ends):
        path.write_bytes(whole[:end])
        want = (f"record batch {number}: the file ends before the mark that ends a "
                "stream") if end else "a file must give"
        assert want in said(path)


def test_a_file_that_shrinks_gives_its_own_rows_alone(tmp_path):
    """If a file shrinks while it is read, Arrow takes stale memory, such as
    the previous batch, for the missing bytes. Such rows must not appear."""
    made = pa.table({"input_ids": [list(range(100 * d, 100 * d + 60))
                                   for d in range(80)]})
    options = dict(tokens=60, rows=1, window_rows=1, strategy="inorder", ahead=1)
    for kind in ("parquet", "arrow", "arrows"):
        path = tmp_path / f"a.{kind}"
        for part in (3, 4, 5, 6, 7):
            if kind == "parquet":
                pq.write_table(made, path, row_group_size=37)
            else:
                write_ipc(made, path, ipc.new_file if kind == "arrow" else
                          ipc.new_stream)
            rows = loader(path, **options)
            read = [next(rows)]
            os.truncate(path, path.stat().st_size * part // 8)
            with pytest.raises(ts.TesseraError, match=f"must give .* for '{path}'"):
                read += rows
            assert 37 <= len(read) < 80
            for d, row in enumerate(read):
                assert (row["input_ids"][0] == 100 * d + np.arange(60)).all()


def test_a_broken_column_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    docs = documents(200, seed=3)
    pq.write_table(table(docs), path, row_group_size=100, compression="zstd")
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(2)
    assert chunk.path_in_schema == "ast_depth.list.element"
    broken = bytearray(path.read_bytes())
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    middle = begin + chunk.total_compressed_size // 2
    broken[middle:middle + 16] = b"\xff" * 16
    path.write_bytes(broken)
    assert "column ast_depth of row group 1: " in said(path)
    assert f"for '{path}'" in said(path)


def test_bytes_that_changed_are_rows_or_an_error(tmp_path):
    rng = random.Random(4)
    docs = documents(60, seed=4)
    made = table(docs)
    pq.write_table(made, tmp_path / "whole.parquet", row_group_size=16)
    write_ipc(made, tmp_path / "whole.arrow", ipc.new_file)
    write_ipc(made, tmp_path / "whole.arrows", ipc.new_stream, compression="lz4")
    refused = 0
    for n in range(240):
        kind = ("parquet", "arrow", "arrows")[n % 3]
        broken = bytearray((tmp_path / f"whole.{kind}").read_bytes())
        for _ in range(rng.choice([1, 4, 30])):
            at = rng.randrange(len(broken))
            if rng.random() < 0.5:  # the metadata of both formats is at the end
                at = len(broken) - 1 - rng.randrange(1200)
            broken[at] = rng.randrange(256)
        path = tmp_path / f"broken.{kind}"
        path.write_bytes(broken)
        try:
            for b in loader(path, workers=1 + n % 2):
                assert b["valid_token_count"].max() <= 64
        except ts.TesseraError as e:
            assert str(path) in str(e), e
            refused += 1
    assert 60 < refused < 240


def hostile_files(folder):
    """Small files that claim huge sizes; yields each path and its error."""
    most = 2**31 - 1
    ids = pa.array([[1]], pa.list_(pa.int32()))
    # Nulls, and lists of width 0, take no bytes.
    nulls = pa.ListArray.from_arrays(pa.array([0, most], pa.int32()), pa.nulls(most))
    nothing = pa.Array.from_buffers(pa.list_(pa.int32(), 0), 2**40, [None],
                                    children=[pa.array([], pa.int32())])
    for name, columns, says in [
            ("nulls", {"input_ids": nulls}, "at most 268435456 elements"),
            ("wide", {"input_ids": pa.FixedSizeListArray.from_arrays(
                pa.nulls(most), most)}, "at most 268435456 elements"),
            ("chunks", {"input_ids": ids, "chunk_starts": nulls},
             "chunk_starts must have at most 268435456 elements"),
            ("nothing", {"input_ids": nothing}, "'+w:0' of 'i'"),
            ("pairs", {"input_ids": ids, "call_edges": pa.LargeListArray.from_arrays(
                pa.array([0, 2**40]), nothing)}, "'+w:0' of 'i'")]:
        batch = pa.record_batch(columns)
        path = folder / f"{name}.arrow"
        with ipc.new_file(path, batch.schema, options=ipc.IpcWriteOptions(
                allow_64bit=True)) as out:
            out.write_batch(batch)
        yield path, says
    # A row of nulls, which Parquet stores as runs; the error names the first
    # null.
    n = 2**24
    many = pa.Array.from_buffers(pa.int32(), n, [pa.py_buffer(bytes(n // 8)),
                                                 pa.py_buffer(bytes(4 * n))])
    path = folder / "nulls.parquet"
    pq.write_table(pa.table({"input_ids": pa.ListArray.from_arrays(
        pa.array([0, n], pa.int32()), many)}), path, compression="zstd")
    yield path, "element 0 of input_ids of row 0 of "
    # A batch of 4008 bytes; its length is stored before it and in the footer.
    path = folder / "length.arrow"
    write_ipc(pa.table({"input_ids": [list(range(500))]}), path, ipc.new_file)
    whole, length = path.read_bytes(), (4008).to_bytes(8, "little")
    assert whole.count(length) == 2
    path.write_bytes(whole.replace(length, (2**40).to_bytes(8, "little")))
    yield path, "record batch 0: "


def test_a_few_bytes_that_claim_much_take_little_memory(tmp_path):
    code = ("import sys, tessera as ts, tessera.data\n"
            "try:\n"
            "    print(len(list(tessera.data.Loader(sys.argv[1], tokens=8, rows=1))))\n"
            "except ts.TesseraError as e:\n"
            "    print(e)\n"
            "sys.path.insert(0, sys.argv[2])\n"
            "from peak_memory import peak_kib\n"
            "print(peak_kib())\n")
    for path, says in hostile_files(tmp_path):
        assert path.stat().st_size < 20000
        ran = subprocess.run([sys.executable, "-c", code, str(path),
                              os.path.dirname(__file__)],
                             capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        error, memory = ran.stdout.splitlines()
        assert error.startswith("[data] ") and says in error, error
        assert f"'{path}'" in error
        assert int(memory) < 128 * 1024, (path, memory)  # KiB


def tokens_of_90_mb(path):
    column = pa.array([list(range(700))] * 2000, pa.list_(pa.int32()))
    batch = pa.table({"input_ids": column})
    if path.suffix == ".jsonl":
        with open(path, "w") as out:
            for _ in range(16 * 2000):
                out.write('{"input_ids": %s}\n' % list(range(700)))
        return
    with {".parquet": pq.ParquetWriter, ".arrow": ipc.new_file,
          ".arrows": ipc.new_stream}[path.suffix](path, batch.schema) as out:
        for _ in range(16):
            out.write_table(batch)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "arrows", "jsonl"])
def test_memory_is_flat_over_a_file(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    tokens_of_90_mb(path)
    code = ("import sys, tessera.data\n"
            "sys.path.insert(0, sys.argv[2])\n"
            "from peak_memory import peak_kib\n"
            "l = tessera.data.Loader(sys.argv[1], tokens=2048, rows=8, window_rows=64)\n"
            "most = [0, 0]\n"
            "for n, _ in enumerate(l):\n"
            "    most[n > 300] = peak_kib()\n"
            "print(n, most[1] - most[0])\n")
    ran = subprocess.run([sys.executable, "-c", code, str(path),
                          os.path.dirname(__file__)],
                         capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    batches, grown = map(int, ran.stdout.split())
    assert batches > 1200 and grown < 16384  # KiB


def pack(*arguments):
    return subprocess.run([sys.executable, "-m", "tessera", "pack", *arguments],
                          capture_output=True, text=True, timeout=60)


def read_rows(path):
    if path.suffix == ".parquet":
        assert pq.ParquetFile(path).metadata.row_group(0).num_rows == 5
        return pq.read_table(path)
    open_it = ipc.open_stream if path.suffix == ".arrows" else ipc.open_file
    return open_it(path).read_all()


@pytest.mark.parametrize("kind", ["parquet", "arrow", "arrows"])
def test_rows_in_one_file_are_those_of_the_loader(kind, tmp_path):
    docs = json_file(documents(seed=5), tmp_path / "a.jsonl")
    out = tmp_path / f"rows.{kind}"
    ran = pack(str(docs), "--tokens", "64", "--window-rows", "4", "--strategy", "cost",
               "--pad-id", "9", "--rows-per-file", "5", "-o", str(out))
    assert ran.returncode == 0, ran.stderr
    got = read_rows(out)
    got.validate(full=True)
    assert got.schema.metadata[b"pad_id"] == b"9"
    batches = list(loader(docs, tile=(256, 256), pad_id=9))
    rows = sum(b["filled"] for b in batches)
    assert got.num_rows == rows > 10
    for name in got.column_names:
        want = np.concatenate([b[name] for b in batches])[:rows]
        column = got[name].combine_chunks()
        while pa.types.is_fixed_size_list(column.type):
            column = column.flatten()
        assert column.type == pa.int32() and column.null_count == 0
        assert (column.to_numpy().reshape(want.shape) == want).all(), name
    assert {"call_edges", "node_type"} < set(got.column_names)


def test_rows_in_one_file_are_whole_or_not_there(tmp_path):
    docs = documents(60, seed=6)
    good = json_file(docs, tmp_path / "a.jsonl")
    bad = tmp_path / "b.jsonl"
    bad.write_text(good.read_text() + '{"input_ids": [-1]}\n')
    out = tmp_path / "rows.parquet"
    options = ["--tokens", "64", "--window-rows", "1", "--rows-per-file", "1",
               "-o", str(out)]
    ran = pack(str(bad), *options)
    assert ran.returncode == 2 and "line 61 of" in ran.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl"]
    assert pack(str(good), *options).returncode == 0
    before = out.read_bytes()
    assert pack(str(bad), *options).returncode == 2
    assert out.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 3
    nowhere = pack(str(good), "-o", str(tmp_path / "none" / "rows.parquet"))
    assert "output must lie in a directory that exists" in nowhere.stderr


def test_without_the_component_a_user_is_told(tmp_path):
    lines = json_file(documents(3), tmp_path / "a.jsonl")
    code = ("import sys, tessera.data\n"
            "print(len(list(tessera.data.Loader(sys.argv[1], tokens=8, rows=2))))\n")

    def run(path, component):
        return subprocess.run([sys.executable, "-c", code, str(path)], text=True,
                              capture_output=True, timeout=60,
                              env={**os.environ, "TESSERA_ARROW": str(component)})

    nowhere = tmp_path / "none.so"
    assert run(lines, nowhere).returncode == 0
    ran = run("a.parquet", nowhere)
    assert ran.returncode == 1
    assert "Parquet and Arrow files need the component tessera_arrow.so" in ran.stderr
    assert "Python may give a pyarrow RecordBatchReader of the file" in ran.stderr
    assert f"found no file '{nowhere}'" in ran.stderr
    nowhere.write_text("no library")
    assert "the Arrow component must load" in run("a.parquet", nowhere).stderr
