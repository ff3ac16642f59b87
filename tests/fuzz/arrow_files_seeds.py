"""Makes the seeds of arrow_files_fuzz.cc: small files of each kind.

    .venv/bin/python tests/fuzz/arrow_files_seeds.py build/tessera
"""

import pathlib
import struct
import subprocess
import sys
import tempfile

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

FOLDER = pathlib.Path(__file__).parent / "corpus" / "arrow_files"
DOCUMENTS, ROWS = 0, 1
FROM = 2  # factor of the first row in the input's first byte

IDS = [[1, 2, 3], [], [4], [5, 6, 7, 8, 9]] * 3
PLAIN = pa.table({"input_ids": pa.array(IDS, pa.list_(pa.int32()))})
# All columns of a document, in all shapes.
FULL = pa.table({
    "input_ids": pa.array(IDS, pa.list_(pa.int64())),
    "loss_mask": pa.array([[i % 2 == 0 for i in ids] for ids in IDS],
                          pa.list_(pa.bool_())),
    "ast_depth": pa.array([ids if len(ids) % 2 else None for ids in IDS],
                          pa.large_list(pa.int8())),
    "chunk_starts": pa.array([[0] if ids else [] for ids in IDS],
                             pa.list_(pa.uint8())),
    "chunk_ends": pa.array([[1] if ids else [] for ids in IDS],
                           pa.list_(pa.uint16())),
    "call_edges": pa.array([[[0, 0]] if ids else [] for ids in IDS],
                           pa.list_(pa.list_(pa.int16(), 2))),
    "chunk_unit": pa.array(["token"] * len(IDS)).dictionary_encode()})


def parquet(table, path, **options):
    pq.write_table(table, path, row_group_size=5, **options)


def arrow(new, **options):
    def write(table, path):
        with new(path, table.schema, options=ipc.IpcWriteOptions(**options)) as out:
            out.write_table(table, max_chunksize=5)
    return write


def with_long_body(content):
    """The first batch of PLAIN states that it has 20 GB."""
    at = content.index(struct.pack("<q", 72), content.index(b"\xff" * 4, 20))
    return content[:at] + struct.pack("<q", 5 << 32) + content[at + 8:]


def packed(program, folder, name):
    """Three rows of four tokens, as the program writes them."""
    lines = folder / "a.jsonl"
    lines.write_text('{"input_ids": [1, 2], "chunk_starts": [0], "chunk_ends": [1]}\n'
                     '{"input_ids": [3, 4, 5, 6, 7]}\n' * 2)
    out = folder / name
    subprocess.run([program, "pack", lines, "--tokens", "4", "--max-chunks", "2",
                    "--rows-per-file", "2", "-o", out], check=True,
                   stdout=subprocess.DEVNULL)
    return out.read_bytes()


def main(program):
    FOLDER.mkdir(exist_ok=True)

    def seed(name, how, content):
        (FOLDER / name).write_bytes(bytes([how]) + content)

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        path = folder / "a"
        for name, table, write in [
                ("plain.parquet", PLAIN, parquet),
                ("full.parquet", FULL, parquet),
                ("plain_v2.parquet", PLAIN, lambda t, p: parquet(
                    t, p, data_page_version="2.0", use_dictionary=False,
                    compression="none", store_schema=False)),
                ("plain.arrow", PLAIN, arrow(ipc.new_file)),
                ("full.arrow", FULL, arrow(ipc.new_file)),
                ("plain.arrows", PLAIN, arrow(ipc.new_stream, compression="lz4")),
                ("full.arrows", FULL, arrow(ipc.new_stream))]:
            write(table, path)
            seed(name, DOCUMENTS + FROM * 7, path.read_bytes())
            if name == "plain.arrow":
                seed("long_body.arrow", DOCUMENTS + FROM * 7,
                     with_long_body(path.read_bytes()))
        for name in ("rows.parquet", "rows.arrow", "rows.arrows"):
            seed(name, ROWS + FROM * 1, packed(program, folder, name))


if __name__ == "__main__":
    main(sys.argv[1])
