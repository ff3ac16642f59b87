"""Times the matrix products of training, of a block and of the head of a model,
each alone: by jaxlib's own compiler and by the plugins that `tessera train`
runs on. All run in turns.

    .venv/bin/python bench/peers/matmul.py --results bench/results
    .venv/bin/python bench/peers/matmul.py --only f32 --plugins xla_cpu_pjrt

Each product is one program, exported by JAX, which repeats the product as often
as an argument says; `tessera bridge` runs it through a plugin. The time of a
product is that of --times products less that of one, divided by --times - 1,
each the least of --rounds runs. Prints GFLOP/s, and for each dtype the sum of
all products of a forward step. With --results or -o stores them as JSON.
Measure on a quiet machine.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / folder) for folder in ("bench", "examples")]
import machine  # noqa: E402
from export_jax import save, save_tensors  # noqa: E402

PLUGINS = ("lammps_jax_pjrt_cpu", "xla_cpu_pjrt")
DTYPES = {"f32": jnp.float32, "bf16": jnp.bfloat16}
JAXLIB = "jaxlib"


def products(m):
    """The products of a model: input size and output size for a token, and how
    often a step has it."""
    heads, kv, dim = m["heads"], m["kv_heads"], m["head_dim"]
    width, hidden, layers = m["width"], m["mlp_width"], m["layers"]
    gated = 1 if m.get("mlp") == "gelu" else 2
    return {"linear_qkv": (width, (heads + 2 * kv) * dim, layers),
            "linear_proj": (heads * dim, width, layers),
            "linear_fc1": (width, gated * hidden, layers),
            "linear_fc2": (hidden, width, layers),
            "head": (width, m["vocab"], 1)}


def repeated(x, weight, times):
    """x W^T, `times` times. One number of each result goes into the next x, so
    that no compiler removes a product."""
    def product(x):
        return jax.lax.dot_general(x, weight, (((1,), (1,)), ((), ())),
                                   precision=jax.lax.Precision.HIGHEST,
                                   preferred_element_type=jnp.float32)

    def body(_, carry):
        x, before = carry
        x = x.at[0, 0].set(before[0, 0].astype(x.dtype))
        return x, product(x)

    nothing = jnp.zeros((x.shape[0], weight.shape[0]), jnp.float32)
    return jax.lax.fori_loop(0, times, body, (x, nothing))[1]


def by_jaxlib(arrays, times):
    function = jax.jit(repeated)
    counts = [jnp.int32(n) for n in (1, times)]
    def run(count):
        begin = time.perf_counter()
        function(*arrays, count).block_until_ready()
        return time.perf_counter() - begin
    run(counts[0])  # compiles
    return lambda: tuple(run(count) for count in counts)


def exported(arrays, times, name, folder):
    """The path of the exported program, and its input files by number of
    products."""
    path = save(repeated, (*arrays, jnp.int32(times)), str(folder), name,
                ["x", "weight", "times"], ["y"], run=False)
    files = {}
    for n in (1, times):
        files[n] = f"{path}.{n}.safetensors"
        save_tensors(files[n], {"x": np.asarray(arrays[0]),
                                "weight": np.asarray(arrays[1]),
                                "times": np.asarray(n, np.int32)})
    return path, files


def by_plugin(plugin, program, path, files, folder):
    def run(n):
        told = subprocess.run(
            [program, "bridge", f"{path}.mlirbc", "--shapes", f"{path}.json",
             "--inputs", files[n], "--plugin", plugin, "--cache",
             str(folder / "cache"), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if told.returncode != 0:
            sys.exit(f"[matmul] {plugin} must run it, found "
                     f"{(told.stderr.strip().splitlines() or ['nothing'])[-1]}")
        return json.loads(told.stdout)["ms"]["run"] / 1e3
    return lambda: tuple(run(n) for n in files)


def seconds_of(pair, times, rounds):
    """Seconds of one product. The least times of both counts are subtracted,
    which removes the fixed time of a run."""
    found = [pair() for _ in range(rounds)]
    one, many = (min(each) for each in zip(*found))
    if many <= one:
        sys.exit(f"[matmul] {times} products must take longer than one, found "
                 f"{many:.4f} s for {one:.4f}: more --times, or a quiet machine")
    return (many - one) / (times - 1)


def measure(flags, m):
    rng = np.random.default_rng(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder, machine.Others() as others:
        folder = pathlib.Path(folder)
        for dtype in flags.only:
            for name, (inner, outer, calls) in products(m).items():
                arrays = [jnp.asarray(rng.standard_normal(shape, np.float32),
                                      DTYPES[dtype])
                          for shape in ((flags.tokens, inner), (outer, inner))]
                flops = 2 * flags.tokens * inner * outer
                who = {JAXLIB: by_jaxlib(arrays, flags.times)}
                path, files = exported(arrays, flags.times, f"{name}_{dtype}",
                                       folder)
                for plugin in flags.plugins:
                    who[plugin] = by_plugin(plugin, flags.program, path, files,
                                            folder)
                for one, pair in who.items():
                    taken = seconds_of(pair, flags.times, flags.rounds)
                    rows.append({"dtype": dtype, "product": name, "who": one,
                                 "calls": calls, "flops": flops,
                                 "seconds": taken, "gflops": flops / taken / 1e9})
                    print(f"{dtype} {name} {one}: {rows[-1]['gflops']:.0f}",
                          file=sys.stderr, flush=True)
    return {"bench": "matmul", **machine.facts(), "other_cores": others.cores,
            "jaxlib": jax.lib.__version__, "tokens": flags.tokens,
            "times": flags.times, "rounds": flags.rounds, "model": m,
            "products": rows}


def show(result):
    who = list(dict.fromkeys(r["who"] for r in result["products"]))
    at = {(r["dtype"], r["product"], r["who"]): r for r in result["products"]}
    print(f"{result['cpu']}, {result['cores']} cores, others kept "
          f"{result['other_cores']} busy; {result['tokens']} tokens, jaxlib "
          f"{result['jaxlib']}\n")
    print("| GFLOP/s | " + " | ".join(who) + " |\n| --- |" + " ---: |" * len(who))
    for dtype in dict.fromkeys(r["dtype"] for r in result["products"]):
        of = [r for r in result["products"] if r["dtype"] == dtype]
        for name in dict.fromkeys(r["product"] for r in of):
            print(f"| {name}, {dtype} | " + " | ".join(
                f"{at[dtype, name, w]['gflops']:.0f}" for w in who) + " |")
        sums = {w: [sum(r["calls"] * r[key] for r in of if r["who"] == w)
                    for key in ("flops", "seconds")] for w in who}
        print(f"| forward, {dtype}: of all | " + " | ".join(
            f"{f / s / 1e9:.0f}" for f, s in sums.values()) + " |")
        print(f"| forward, {dtype}: ms | " + " | ".join(
            f"{s * 1e3:.0f}" for _, s in sums.values()) + " |")


def main():
    flags = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = flags.add_argument
    add("--program", default=str(TOP / "build/tessera"))
    add("--model", default=str(TOP / "bench/peers/train_20m.json"))
    add("--tokens", type=int, default=4096)
    add("--times", type=int, default=21, help="products in a run, above 1")
    add("--rounds", type=int, default=3)
    add("--only", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    add("--plugins", nargs="+", default=list(PLUGINS))
    add("--show", type=pathlib.Path, metavar="FILE.json",
        help="print the table of this one")
    machine.add_keep_flags(add)
    flags = flags.parse_args()
    if flags.show:
        return show(json.loads(flags.show.read_text(encoding="utf-8")))
    if min(flags.tokens, flags.times - 1, flags.rounds) < 1:
        sys.exit("[matmul] there must be a token, two times and a round, found "
                 f"{flags.tokens}, {flags.times}, {flags.rounds}")
    os.environ.setdefault("TESSERA_PYTHON", sys.executable)
    result = measure(flags, json.loads(pathlib.Path(flags.model).read_text()))
    show(result)
    machine.keep_where_asked(result, flags)


if __name__ == "__main__":
    main()
