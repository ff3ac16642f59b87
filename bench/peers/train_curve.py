"""Compares the losses of a run of `tessera train` to JAX's from the same start,
and to JAX's own in another order of summation: the same model with the channels
of its residual stream and of its MLP permuted.

    export PYTHONPATH=build/python
    python train_curve.py rows model.json --program build/tessera --steps 200
    python train_curve.py rows model.json --batch 2 --mesh seq=4 data=2,head=2 \\
        --results bench/results

Prints one JSON object: the largest distance of our losses from JAX's over all
steps, on one device and on each mesh; the distance of each other order of JAX;
and the ratio of ours to the largest of those. All steps of one of our runs must
use one program. With --results or -o the object is stored, with the machine and
all losses. With --keep the losses of each run are stored when it ends, and a
later call with the same arguments continues after them.
"""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import tessera.train

sys.path[:0] = [str(pathlib.Path(__file__).parents[2] / folder)
                for folder in ("bench", "tests/model", "python/tests")]
import machine  # noqa: E402
from jax_model import adamw, mean_loss  # noqa: E402
from tensor_file import load, parameters, store  # noqa: E402

COLUMNS = ("input_ids", "target_ids", "loss_mask", "positions", "doc_ids")


def reordered(p, m, seed):
    """Parameters of the same function of the tokens, with permuted channels."""
    rng = np.random.default_rng(seed)
    wide = rng.permutation(m["width"])
    hidden = rng.permutation(m["mlp_width"])
    gated = m.get("mlp", "swiglu") != "gelu"
    of_fc1 = np.concatenate([hidden, hidden + m["mlp_width"]]) if gated else hidden
    out = {}
    for name, a in p.items():
        a = np.asarray(a)
        if "norm" in name:
            a = a[wide]
        elif "linear_proj" in name:
            a = a[wide]
        elif "linear_fc2" in name:
            a = a[wide][:, hidden]
        elif "linear_fc1" in name:
            a = a[of_fc1][:, wide]
        else:  # linear_qkv, embeddings, head
            a = a[:, wide]
        out[name] = jnp.asarray(a)
    return out


def jax_losses(p, rows, m, steps, peak, batch):
    first = {k: jnp.zeros_like(v) for k, v in p.items()}
    second = {k: jnp.zeros_like(v) for k, v in p.items()}

    def step(p, first, second, row, t, rate):
        loss, grads = jax.value_and_grad(mean_loss)(p, row, m)
        return loss, adamw(p, first, second, grads, t, rate)

    step = jax.jit(step, donate_argnums=(0, 1, 2))
    p = {k: jnp.array(v) for k, v in p.items()}
    losses = []
    count = len(rows["input_ids"])
    for t in range(1, steps + 1):
        at = ((t - 1) % count * batch + np.arange(batch)) % count
        row = {k: rows[k][at] for k in COLUMNS}
        rate = tessera.train.cosine_rate(t, steps=steps, peak=peak)
        loss, (p, first, second) = step(p, first, second, row, float(t), rate)
        losses.append(float(loss))
    return {"losses": losses}


class Kept:
    """Stored results of runs by name, in a folder for these arguments."""

    def __init__(self, folder, arguments):
        self.folder = None
        if folder:
            words = hashlib.sha256(repr(arguments).encode()).hexdigest()[:16]
            self.folder = pathlib.Path(folder) / words
            self.folder.mkdir(parents=True, exist_ok=True)

    def get(self, name, run):
        file = self.folder / f"{name}.json" if self.folder else None
        if file and file.exists():
            return json.loads(file.read_text())
        told = run()
        if file:
            file.with_suffix(".new").write_text(json.dumps(told))
            file.with_suffix(".new").rename(file)
        losses = told["losses"]
        print(f"{name}: {losses[0]:.4f} to {losses[-1]:.4f}", file=sys.stderr,
              flush=True)
        return told


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("rows", help="a folder with one file of rows")
    flags.add_argument("model")
    flags.add_argument("--program", default="build/tessera")
    flags.add_argument("--steps", type=int, default=200)
    flags.add_argument("--rate", type=float, default=3e-4)
    flags.add_argument("--orders", type=int, default=3)
    flags.add_argument("--batch", type=int, default=1, help="rows of a step")
    flags.add_argument("--mesh", nargs="*", default=[],
                       help="meshes that it runs on too")
    flags.add_argument("--keep", metavar="FOLDER", help="folder of losses by run")
    machine.add_keep_flags(flags.add_argument)
    args = flags.parse_args()
    with open(args.model) as f:
        m = json.load(f)
    files = sorted(pathlib.Path(args.rows).glob("*.safetensors"))
    if len(files) != 1:
        sys.exit(f"[train_curve] rows must be one file (tessera pack "
                 f"--rows-per-file), found {len(files)} in {args.rows}")
    file, = files
    rows = load(file)
    digest = lambda path: hashlib.sha256(
        pathlib.Path(path).read_bytes()).hexdigest()
    kept = Kept(args.keep, ("told", m, digest(file), digest(args.program),
                            jax.__version__, args.steps, args.rate, args.batch))
    with tempfile.TemporaryDirectory() as folder, machine.Others() as others:
        state = pathlib.Path(kept.folder or folder) / "start.safetensors"
        train = [args.program, "train", "--data", args.rows, "--model",
                 args.model, "--rate", str(args.rate), "--rows",
                 str(args.batch), "--json"]
        if not state.exists():
            first = f"{folder}/first.safetensors"
            subprocess.run(train + ["--steps", "1", "--checkpoint", first],
                           check=True, stdout=subprocess.DEVNULL)
            # Only the parameters are stored, so that a new run starts from
            # them.
            whole = state.with_suffix(".new")
            store(whole, parameters(first))
            whole.rename(state)
        p = load(state)

        def trained(mesh):
            told = subprocess.run(
                train + ["--steps", str(args.steps), "--resume", state]
                + (["--mesh", mesh] if mesh else []),
                check=True, stdout=subprocess.PIPE)
            told = json.loads(told.stdout)
            programs = told["compiles"] + sum(told["cache_hits"].values())
            if programs != 1:  # compiled, or read from a cache
                sys.exit(f"[train_curve] all steps must be of one program, found "
                         f"{programs} for '{mesh}'")
            return {"losses": told["losses"], "compiles": told["compiles"],
                    "plugin": told["plugin"]["file"].split("/")[-1]}

        ours = {mesh or "one device":
                kept.get(mesh or "one device", lambda: trained(mesh))
                for mesh in [""] + args.mesh}
        from_start = lambda p: jax_losses(p, rows, m, args.steps, args.rate,
                                          args.batch)
        theirs = kept.get("jax", lambda: from_start(p))
        orders = [kept.get(f"jax, order {seed}",
                           lambda: from_start(reordered(p, m, seed)))
                  for seed in range(args.orders)]
    far = lambda a: float(np.abs(np.array(a["losses"]) -
                                 np.array(theirs["losses"])).max())
    moved = [far(a) for a in orders]
    result = {
        "steps": args.steps, "first_loss": theirs["losses"][0],
        "last_loss": theirs["losses"][-1],
        "ours_from_jax": {on: far(a) for on, a in ours.items()},
        "other_orders_from_jax": moved,
        "ratio": {on: far(a) / max(moved) if any(moved) else None
                  for on, a in ours.items()}}
    print(json.dumps(result))
    machine.keep_where_asked({
        "bench": "train_curve", **machine.facts(), "other_cores": others.cores,
        "jax": jax.__version__, "model": m, "tokens": rows["input_ids"].shape[1],
        "batch": args.batch, "rate": args.rate, **result, "ours": ours,
        "theirs": theirs, "orders": orders}, args)


if __name__ == "__main__":
    main()
