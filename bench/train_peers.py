#!/usr/bin/env python3
"""Times training by Tessera, JAX and PyTorch: one model, the same packed rows
and the same first parameters. They run one after the other, once each.

    .venv/bin/python bench/train_peers.py --tokens 4096 --results bench/results
    .venv/bin/python bench/train_peers.py --tokens 8192 \\
      --only "ours, spec cpu" "PyTorch, by document" --torch-python VENV/bin/python
    bench/train_peers.py --show bench/results/CPU/train_4096.json

Documents are this repository's C++ sources (bench/sources.py). Plugins and JAX
are those of the interpreter that runs this script; PyTorch is that of
--torch-python. Without the flag PyTorch is reported as left out. The model is
bench/peers/train_20m.json, unless --model names another.

Prints a table, and with --results or -o stores JSON: seconds of each step after
the first, peak memory of the process, and the loss of the first step. First
losses must agree: no two may differ by more than three times the change of our
loss when the last bits of the first parameters change. Our steps are timed as
the difference of two runs that differ by --steps steps, so that neither
compiling nor reading counts. The JSON also has the cores that other processes
kept busy. Progress goes to stderr. The last command prints the table of a
stored run.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import machine
import sources

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent
sys.path.insert(0, str(TOP / "python/tests"))
from peak_memory import peak_kib_of  # noqa: E402

OURS = {
    "ours, spec cpu": ["--spec", "cpu"],
    "ours, spec cpu, recompute": ["--spec", "cpu", "--recompute"],
    "ours, spec xla": ["--spec", "xla"],
    "ours, spec xla, recompute": ["--spec", "xla", "--recompute"],
}
PEERS = {
    "JAX": ["train_jax.py"],
    "PyTorch, by document": ["train_torch.py", "--attention", "documents"],
    "PyTorch, eager, by document": ["train_torch.py", "--attention", "documents",
                                    "--eager"],
    "PyTorch, dense mask": ["train_torch.py", "--attention", "dense"],
    # Forward only, because FlexAttention has no gradients on CPUs.
    "PyTorch, by document, forward alone": [
        "train_torch.py", "--attention", "documents", "--forward"],
    "PyTorch, FlexAttention, forward alone": [
        "train_torch.py", "--attention", "flex", "--forward"],
}


def fail(rule, found):
    sys.exit(f"[train_peers] {rule}, found {found}")


def run(command):
    """The output of the process, and its peak memory in MiB."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen([str(word) for word in command], stdout=out,
                                 stderr=err)
        peak = peak_kib_of(child)
        for file in (out, err):
            file.seek(0)
        if child.returncode != 0:
            said = err.read().decode(errors="replace").strip().splitlines()
            fail(f"{' '.join(map(str, command[:3]))} must succeed",
                 f"exit {child.returncode}: {(said or ['nothing said'])[-1]}")
        return out.read().decode(), peak // 1024


class Race:
    def __init__(self, args, folder):
        self.args, self.rows = args, folder / "rows"
        self.start = folder / "start.safetensors"
        documents = folder / "documents.jsonl"
        documents.write_text("".join(sources.documents(args.bytes)))
        run([args.program, "pack", documents, "--tokens", args.tokens, "-o",
             self.rows, "--rows-per-file", 4096])
        self.train = [args.program, "train", "--data", self.rows, "--model",
                      args.model, "--rate", args.rate, "--json"]
        first = folder / "first.safetensors"
        self.ours([], 1, ["--checkpoint", first])
        self.apart = self.begin_at(first, folder / "near.safetensors")

    def ours(self, flags, steps, more):
        text, peak = run(self.train + flags + ["--steps", steps] + more)
        return json.loads(text), peak

    def begin_at(self, checkpoint, near):
        """Makes all runs start at the checkpoint's parameters, and computes how
        far first losses may be apart."""
        import numpy as np
        from tensor_file import an_ulp_away, apart, parameters, store
        values = parameters(checkpoint)
        store(self.start, values)
        first = lambda start: self.ours([], 1, ["--resume", start])[0]["losses"][0]
        here, rng, most = first(self.start), np.random.default_rng(1), 0
        for _ in range(3):
            store(near, an_ulp_away(values, rng))
            most = max(most, abs(first(near) / here - 1))
        return float(apart(most))

    def of_ours(self, flags):
        resume = ["--resume", self.start]
        one, _ = self.ours(flags, 1, resume)
        all_of_them, peak = self.ours(flags, 1 + self.args.steps, resume)
        each = (all_of_them["seconds"] - one["seconds"]) / self.args.steps
        return {"seconds": [each], "peak_mib": peak,
                "first_loss": all_of_them["losses"][0],
                "plugin": all_of_them["plugin"]["file"].split("/")[-1]}

    def of_peer(self, python, script, *flags):
        file = min(self.rows.glob("*.safetensors"))  # each file has many rows
        text, _ = run([python, HERE / "peers" / script, file, self.args.model,
                       "--start", self.start, "--steps", self.args.steps,
                       "--rate", self.args.rate, *flags])
        told = json.loads(text.strip().splitlines()[-1])
        return {"seconds": told["seconds"], "peak_mib": told["peak_mib"],
                "first_loss": told["losses"][0], "version": told["version"]}


def check_first_losses(found, apart):
    losses = {name: one["first_loss"] for name, one in found.items()}
    if max(losses.values()) - min(losses.values()) > apart * max(losses.values()):
        fail("the first loss must be the same for all", losses)


def measure(args):
    os.environ["TESSERA_PYTHON"] = sys.executable
    found, left_out = {}, []
    with tempfile.TemporaryDirectory() as folder, machine.Others() as others:
        race = Race(args, pathlib.Path(folder))
        for name in args.only or [*OURS, *PEERS]:
            if name in OURS:
                one = race.of_ours(OURS[name])
            else:
                python = sys.executable if name == "JAX" else args.torch_python
                if not python:
                    left_out.append(name)
                    continue
                one = race.of_peer(python, *PEERS[name])
            found[name] = one
            print(f"{name}: {statistics.mean(one['seconds']):.2f} s",
                  file=sys.stderr, flush=True)
            check_first_losses(found, race.apart)
    return {"bench": f"train_{args.tokens}", **machine.facts(),
            "other_cores": others.cores, "tokens": args.tokens,
            "steps": args.steps,
            "model": json.loads(pathlib.Path(args.model).read_text()),
            "losses_apart_at_most": race.apart, "found": found,
            "left_out": left_out}


def show(result):
    print(f"{result['cpu']}, {result['cores']} cores, others kept "
          f"{result['other_cores']} busy\n")
    print(f"| {result['tokens']} tokens | s a step | GiB |\n| --- | ---: | ---: |")
    for name, one in result["found"].items():
        least, most = min(one["seconds"]), max(one["seconds"])
        seconds = f"{least:.2f}" if least == most else f"{least:.2f} to {most:.2f}"
        print(f"| {name} | {seconds} | {one['peak_mib'] / 1024:.1f} |")
    for name in result["left_out"]:
        print(f"left out: {name}, no --torch-python")


def parse_flags():
    flags = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = flags.add_argument
    add("--program", default=str(TOP / "build/tessera"))
    add("--torch-python", default=os.environ.get("TESSERA_TORCH_PYTHON"),
        help="with PyTorch; TESSERA_TORCH_PYTHON's if that is set")
    add("--model", default=str(HERE / "peers/train_20m.json"))
    add("--tokens", type=int, default=4096, help="tokens of a row")
    add("--bytes", type=int, help="bytes of the sources to take [all]")
    add("--steps", type=int, default=5, help="steps that are timed")
    add("--rate", type=float, default=3e-4)
    add("--only", nargs="+", metavar="NAME", choices=[*OURS, *PEERS],
        help="names to measure, of " + "; ".join([*OURS, *PEERS]))
    add("--show", type=pathlib.Path, metavar="FILE.json",
        help="print the table of this one")
    machine.add_keep_flags(add)
    args = flags.parse_args()
    for name in ("tokens", "steps"):
        if getattr(args, name) < 1:
            fail(f"--{name} must be 1 or more", getattr(args, name))
    for path in (args.torch_python, args.model):
        if path and not os.path.exists(path):
            fail("what is named must be there", f"no {path}")
    return args


def main():
    args = parse_flags()
    if args.show:
        return show(json.loads(args.show.read_text(encoding="utf-8")))
    if not os.path.exists(args.program):
        fail("what is named must be there", f"no {args.program}")
    result = measure(args)
    show(result)
    machine.keep_where_asked(result, args)


if __name__ == "__main__":
    main()
