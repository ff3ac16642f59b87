#!/usr/bin/env python3
"""Times packing documents with structure from a Parquet file into rows of one
length: tessera.data.Loader, pyarrow with NumPy and padding in Python, and
pyarrow's reading alone, which nothing that reads by pyarrow can beat; on one core.
The Loader can: it decodes with Arrow's C++ too, but makes no Arrow arrays of lists.
Then the same documents are packed from memory, in GB of rows a second, and
compared to a plain copy of those rows. Each time is the best of several rounds,
in turns, after one that warms up: by the clock, and as CPU time of all threads,
which is the time that one core needs.

    PYTHONPATH=build/python taskset -c 1 .venv/bin/python bench/pack_enriched.py \
      --documents 8000 --results bench/results

Memory is measured in a process of its own, for a file and for files of four and
sixteen times its documents, with windows of 256 rows, of which the first file
fills several.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import machine
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tessera.data

TOKENS, ROWS = 8192, 8
CHUNKS = max(128, TOKENS // 32)
EDGES = 2 * CHUNKS
TOKEN_COLUMNS = ("structure_ids", "dep_levels", "ast_depth", "sibling_index",
                 "node_type")


def documents(n, mean, seed=1):
    """Documents with chunks of some 64 tokens. Every two chunks have one call
    edge and one type edge to earlier chunks."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(np.log(mean) - 0.5, 1, n), 1,
                      TOKENS).astype(np.int64)
    ends = np.concatenate(([0], np.cumsum(lengths)))
    lists = lambda values, ends: pa.ListArray.from_arrays(
        pa.array(ends.astype(np.int32)), pa.array(values))
    columns = {"input_ids": lists(rng.integers(1, 50_000, ends[-1], np.int32),
                                  ends)}
    for name in TOKEN_COLUMNS:
        columns[name] = lists(np.repeat(rng.integers(
            0, 40, ends[-1] // 8 + 1, np.int32), 8)[:ends[-1]], ends)
    counts = np.maximum(lengths // 64, 1)
    chunk_ends = np.concatenate(([0], np.cumsum(counts)))
    place = np.arange(chunk_ends[-1]) - np.repeat(chunk_ends[:-1], counts)
    last = place + 1 == np.repeat(counts, counts)
    ended = np.where(last, np.repeat(lengths, counts), 64 * (place + 1))
    columns["chunk_starts"] = lists((64 * place).astype(np.int32), chunk_ends)
    columns["chunk_ends"] = lists(ended.astype(np.int32), chunk_ends)
    columns["chunk_kinds"] = lists((place % 2 + 1).astype(np.int32), chunk_ends)
    of = place[place % 2 == 1].astype(np.int32)
    edge_ends = np.concatenate(([0], np.cumsum(counts // 2)))
    pairs = pa.FixedSizeListArray.from_arrays(
        pa.array(np.stack([of, of - 1], 1).ravel()), 2)
    for name in ("call_edges", "type_edges"):
        columns[name] = pa.ListArray.from_arrays(
            pa.array(edge_ends.astype(np.int32)), pairs)
    return pa.table(columns), int(ends[-1])


def ours(source, strategy, **more):
    loader = tessera.data.Loader(
        source, tokens=TOKENS, rows=ROWS, strategy=strategy,
        mask="causal & documents", max_steps=1 << 16, **more)
    used = size = 0
    for row in loader:
        used += int(row["valid_token_count"].sum())
        size += sum(x.nbytes for x in row.values() if isinstance(x, np.ndarray))
    return used, size


def new_row():
    whole = lambda n, pad: np.full(n, pad, np.int32)
    return {"input_ids": whole(TOKENS, 0), "target_ids": whole(TOKENS, 0),
            "loss_mask": whole(TOKENS, 0), "doc_ids": whole(TOKENS, -1),
            "positions": whole(TOKENS, 0),
            **{name: whole(TOKENS, 0) for name in TOKEN_COLUMNS},
            "chunk_starts": whole(CHUNKS, -1), "chunk_ends": whole(CHUNKS, -1),
            "chunk_kinds": whole(CHUNKS, 0),
            "call_edges": whole((EDGES, 2), -1),
            "type_edges": whole((EDGES, 2), -1),
            "valid_token_count": 0, "num_docs": 0, "num_chunks": 0,
            "num_call_edges": 0, "num_type_edges": 0}


def put(row, document):
    """Adds a document to a row with NumPy."""
    at, n = row["valid_token_count"], len(document["input_ids"])
    tokens = document["input_ids"]
    row["input_ids"][at:at + n] = tokens
    row["target_ids"][at:at + n - 1] = tokens[1:]
    row["loss_mask"][at:at + n - 1] = 1
    row["doc_ids"][at:at + n] = row["num_docs"]
    row["positions"][at:at + n] = np.arange(n)
    for name in TOKEN_COLUMNS:
        row[name][at:at + n] = document[name]
    first = row["num_chunks"]
    m = min(len(document["chunk_starts"]), CHUNKS - first)
    row["chunk_starts"][first:first + m] = document["chunk_starts"][:m] + at
    row["chunk_ends"][first:first + m] = document["chunk_ends"][:m] + at
    row["chunk_kinds"][first:first + m] = document["chunk_kinds"][:m]
    for name in ("call_edges", "type_edges"):
        edge = row["num_" + name]
        pairs = document[name].reshape(-1, 2)[:EDGES - edge]
        pairs = pairs[(pairs < m).all(1)] + first
        row[name][edge:edge + len(pairs)] = pairs
        row["num_" + name] += len(pairs)
    row["num_chunks"] += m
    row["num_docs"] += 1
    row["valid_token_count"] += n


def by_hand(path):
    """Packs in order with NumPy: a document that does not fit begins the next
    row. There is no search for a better row, no plan and no check."""
    used, rows, batches = 0, [new_row()], 0
    names = None
    for batch in pq.ParquetFile(path).iter_batches(4096):
        names = names or batch.schema.names
        columns = {}
        for name in names:
            column = batch.column(name)
            values, width = column.values, 1
            if pa.types.is_list(values.type) or pa.types.is_fixed_size_list(
                    values.type):
                values, width = values.flatten(), 2
            columns[name] = (values.to_numpy(),
                             column.offsets.to_numpy() * width)
        for i in range(batch.num_rows):
            document = {name: values[ends[i]:ends[i + 1]]
                        for name, (values, ends) in columns.items()}
            n = len(document["input_ids"])
            if rows[-1]["valid_token_count"] + n > TOKENS:
                if len(rows) == ROWS:
                    used += emit(rows)
                    batches += 1
                    rows = []
                rows.append(new_row())
            put(rows[-1], document)
    return used + emit(rows), batches + 1


def read_alone(path):
    """Reads the file into Arrow arrays and uses nothing of them."""
    tokens = 0
    for batch in pq.ParquetFile(path).iter_batches(4096):
        tokens += len(batch.column("input_ids").values)
    return tokens, 0


def emit(rows):
    batch = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return int(batch["valid_token_count"].sum())


def copied(table):
    """Copies batches of rows, array by array, into memory that is allocated
    before."""
    loader = tessera.data.Loader(table, tokens=TOKENS, rows=ROWS,
                                 mask="causal & documents", max_steps=1 << 16)
    held = [[x for x in row.values() if isinstance(x, np.ndarray)]
            for row, _ in zip(loader, range(20))]
    into = [np.empty_like(x) for x in held[0]]

    def run():
        for batch in held:
            for x, y in zip(batch, into):
                np.copyto(y, x)
    size = sum(x.nbytes for batch in held for x in batch)
    return run, size


def peak_mb(path):
    code = ("import sys; sys.path[:0] = sys.argv[2:]; "
            "import pack_enriched as b, peak_memory; "
            "b.ours(sys.argv[1], 'bestfit', window_rows=256); "
            "print(peak_memory.peak_kib() / 1024)")
    here = pathlib.Path(__file__).parent
    return float(subprocess.run(
        [sys.executable, "-c", code, path, here, here.parent / "python/tests"],
        check=True, capture_output=True, text=True).stdout)


def parse_flags():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--documents", type=int, default=20_000)
    add("--mean", type=float, default=1500)
    add("--rounds", type=int, default=5)
    machine.add_keep_flags(add)
    return parser.parse_args()


def measure_files(table, tokens, folder, rounds):
    """One row for each way to read the documents from one file."""
    path = os.path.join(folder, "documents.parquet")
    pq.write_table(table, path, compression="zstd", row_group_size=2048)
    found = machine.best_of({
        "Loader, best fit": lambda: ours(path, "bestfit"),
        "Loader, in order": lambda: ours(path, "inorder"),
        "NumPy, in Python": lambda: by_hand(path),
        "pyarrow's reading": lambda: read_alone(path)}, rounds)
    rows = []
    for name, row in found.items():
        used, _ = row.pop("gave")
        if used != tokens:
            raise SystemExit(f"{name}: {used} of {tokens} tokens came out")
        rows.append({"case": name, **row})
    return rows


def measure_peaks(table, folder):
    """Peak memory in MB, by how often the documents are repeated in the
    file."""
    peaks = {}
    for times in (1, 4, 16):
        path = os.path.join(folder, "long.parquet")
        with pq.ParquetWriter(path, table.schema, compression="zstd") as out:
            for _ in range(times):
                out.write_table(table, row_group_size=2048)
        peaks[str(times)] = peak_mb(path)
    return peaks


def measure_memory(table, rounds):
    """GB of rows per second of CPU time, of our loader and of a copy. Each runs
    by itself, because the copy holds all rows that it reads. The copy takes a
    few milliseconds, so it has more rounds."""
    speed = lambda run, rounds: max(
        row["gave"][1] / row["seconds"] / 1e9
        for row in machine.best_of({"": run}, rounds).values())
    ours_ = speed(lambda: ours(table, "bestfit"), rounds)
    run, size = copied(table)
    return {"rows": ours_, "copy": speed(lambda: (run(), size), 5 * rounds)}


def show(result):
    tokens, of = result["tokens"], {row["case"]: row for row in result["cases"]}
    print(f"{result['cpu']}, {result['cores_used']} of {result['cores']} cores, others "
          f"kept {result['other_cores']} busy; {result['documents']} documents, "
          f"{tokens / 1e6:.1f} M tokens, rows of {result['row']}\n")
    print("| M tokens/s | by the clock | of processor time | times Python's |")
    print("| --- | ---: | ---: | ---: |")
    for name, row in of.items():
        times = of["NumPy, in Python"]["seconds"] / row["seconds"]
        print(f"| {name} | {tokens / row['clock_seconds'] / 1e6:.1f} | "
              f"{tokens / row['seconds'] / 1e6:.1f} | {times:.2f} |")
    peaks, memory = result["peak_mb"], result["memory_gb_s"]
    print(f"\npeak: {peaks['1']:.0f} MB, of four times the documents "
          f"{peaks['4']:.0f} MB, of sixteen times {peaks['16']:.0f} MB\nfrom memory: rows of {memory['rows']:.2f} GB/s, "
          f"a plain copy {memory['copy']:.2f} GB/s")


def main():
    flags = parse_flags()
    table, tokens = documents(flags.documents, flags.mean)
    with tempfile.TemporaryDirectory() as folder, machine.Others() as others:
        cases = measure_files(table, tokens, folder, flags.rounds)
        peaks = measure_peaks(table, folder)
        memory = measure_memory(table, flags.rounds)
    result = {"bench": "pack_enriched", **machine.facts(),
              "cores_used": len(os.sched_getaffinity(0)),
              "other_cores": others.cores, "documents": flags.documents,
              "mean": flags.mean, "row": TOKENS, "tokens": tokens,
              "rounds": flags.rounds, "cases": cases, "peak_mb": peaks,
              "memory_gb_s": memory}
    show(result)
    machine.keep_where_asked(result, flags)


if __name__ == "__main__":
    main()
