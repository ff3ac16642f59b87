"""Makes the seeds of receipt_fuzz.cc, a receipt of each kind, and of
pack_journal_fuzz.cc, the journal of a folder that was not finished.

    .venv/bin/python tests/fuzz/text_seeds.py build/tessera

Run it again if a receipt's schema or a journal's fields change: tests read all
seeds.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

# The program runs here with relative names, since receipts have names of files.
ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = pathlib.Path("tests/fuzz/corpus")
RECEIPTS, JOURNALS = CORPUS / "receipt", CORPUS / "pack_journal"
INPUTS = pathlib.Path("build/text_seeds")
PACKAGES = next((ROOT / ".venv/lib").glob("python3*")).relative_to(ROOT) \
    / "site-packages"
CPU = ["--plugin", str(PACKAGES / "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so")]
TPU = ["--plugin", str(PACKAGES / "libtpu/libtpu.so")]

DOCUMENTS = ["--docs", "lognormal:mean=20,seed=0"]
SHAPE = ["--q-len", "64", "--tile", "16", "--heads", "2", "--head-dim", "16"]
MODEL = {"vocab": 256, "layers": 1, "width": 32, "heads": 2, "kv_heads": 1,
         "head_dim": 16, "mlp_width": 32}


def call(tessera, *args):
    subprocess.run([tessera, *args], check=True, stdout=subprocess.DEVNULL,
                   env=os.environ | {"TESSERA_CACHE": "off"})


def kept(tessera, name, *args):
    path = RECEIPTS / name
    call(tessera, *args, "--receipt", str(path))
    # A plugin's path is absolute and of this machine; it is made relative, and
    # the digest is updated.
    path.write_text(path.read_text().replace(f"{ROOT}/", ""))
    told = subprocess.run([tessera, "receipt", "verify", str(path)],
                          capture_output=True, text=True)
    due = re.search(r"the other fields, (\w+), found (\w+)", told.stdout +
                    told.stderr)
    if due:
        path.write_text(path.read_text().replace(due[2], due[1]))


def documents(name, number):
    path = INPUTS / name
    with path.open("w") as out:
        for i in range(number):
            ids = [(7 * i + j) % MODEL["vocab"] for j in range(10 + i % 8)]
            print(json.dumps({"input_ids": ids, "title": ""}), file=out)
    return path


def journals(tessera):
    """The journal as it is, and without the digests, which the fuzzer adds."""
    rows = INPUTS / "unfinished"
    journal = rows / ".unfinished/journal"
    many = documents("many.jsonl", 50000)
    pack = subprocess.Popen(
        [tessera, "pack", many, "--tokens", "64", "--window-rows", "8",
         "--rows-per-file", "8", "--mask", "causal & documents", "-o", rows],
        stdout=subprocess.DEVNULL)
    lines = []
    while len(lines) < 3:
        assert pack.poll() is None, "it ended before it was killed"
        if journal.exists():
            lines = journal.read_text().splitlines(True)
    pack.kill()
    pack.wait()
    lines = lines[:3]
    (JOURNALS / "whole").write_text("".join(lines))
    (JOURNALS / "lines").write_text(
        "".join(line.split(" ", 1)[1] for line in lines))
    (JOURNALS / "short").write_text("".join(lines)[:-9])


def train(tessera):
    rows, model = INPUTS / "rows", INPUTS / "model.json"
    with model.open("w") as out:
        json.dump(MODEL, out)
    call(tessera, "pack", str(documents("documents.jsonl", 8)), "--tokens", "64",
         "-o", str(rows))
    kept(tessera, "training", "train", "--data", str(rows), "--model",
         str(model), "--steps", "2", "--spec", "xla", "--tile", "16", *CPU)


def main():
    tessera = str(pathlib.Path(sys.argv[1]).resolve())
    for folder in RECEIPTS, JOURNALS, INPUTS:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    kept(tessera, "attention", "run", "--mask",
         "causal & window(15, 0) & documents", *DOCUMENTS, *SHAPE, "--backward",
         "--check", "--sink-telemetry", "2")
    kept(tessera, "routed", "run", "--mask", "causal & routed(top=2, block=16)",
         *SHAPE)
    kept(tessera, "mesh", "run", "--mask", "causal & documents", *DOCUMENTS,
         *SHAPE, "--lane", "xla", "--mesh", "seq=2", "--backward", *CPU)
    kept(tessera, "compiled", "compile", "--mask", "causal & documents",
         "--q-len", "512", "--docs", "lognormal:mean=200,seed=0", "--heads", "2",
         "--head-dim", "128", "--target", "v6e:1x1", *TPU)
    kept(tessera, "bridge", "bridge", "tests/golden/bridge/small.mlirbc",
         "--shapes", "tests/golden/bridge/small.json", *CPU)
    train(tessera)
    journals(tessera)


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
