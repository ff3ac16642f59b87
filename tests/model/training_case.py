"""Empty rows to fill, random parameters, and runs of `tessera train` on
them."""

import json
import os
import subprocess
import sys
import unittest

import numpy as np

PROGRAM = os.environ.get("TESSERA", "../../build/tessera")


def empty_rows(rows, tokens):
    """Packed rows with padding only."""
    shape = (rows, tokens)
    out = {n: np.zeros(shape, np.int32)
           for n in ("input_ids", "target_ids", "loss_mask", "positions")}
    out["doc_ids"] = np.full(shape, -1, np.int32)
    out["valid_token_count"] = np.zeros(rows, np.int32)
    out["num_docs"] = np.zeros(rows, np.int32)
    return out


def draw_parameters(rng, m):
    width, dim = m["width"], m["head_dim"]
    layer_norm = m.get("norm") == "layer"
    gated = m.get("mlp", "swiglu") != "gelu"
    out = {"embedding.weight": rng.normal(0, 0.1, (m["vocab"], width))}
    for name, size in m.get("columns", {}).items():
        out[f"columns.{name}.weight"] = rng.normal(0, 0.1, (size, width))
    norms = ["final_norm"]
    for i in range(m["layers"]):
        p = f"layers.{i}."
        shapes = {
            "linear_qkv": ((m["heads"] + 2 * m["kv_heads"]) * dim, width),
            "linear_proj": (width, m["heads"] * dim),
            "linear_fc1": ((1 + gated) * m["mlp_width"], width),
            "linear_fc2": (width, m["mlp_width"]),
        }
        for name, shape in shapes.items():
            out[f"{p}{name}.weight"] = rng.normal(0, shape[1] ** -0.5, shape)
        norms += [p + "norm1", p + "norm2"]
        if m.get("post_norms"):
            norms += [p + "post_norm1", p + "post_norm2"]
    for n in norms:
        out[n + ".weight"] = rng.normal(1, 0.1, width)
        if layer_norm:
            out[n + ".bias"] = rng.normal(0, 0.1, width)
    if not m.get("tied_head", True):
        out["head.weight"] = rng.normal(0, width ** -0.5, (m["vocab"], width))
    return {k: v.astype(np.float32) for k, v in out.items()}


def our_run(folder, m, spec, *flags):
    """The JSON of `tessera train` on the rows and parameters in `folder`."""
    command = [PROGRAM, "train", "--data", f"{folder}/rows.safetensors",
               "--model", f"{folder}/model.json", "--spec", spec,
               "--resume", f"{folder}/start.safetensors",
               "--cache", "off", "--json", *flags]
    with open(f"{folder}/model.json", "w") as f:
        json.dump(m, f)
    done = subprocess.run(command, capture_output=True, text=True,
                          env={"TESSERA_PYTHON": sys.executable, **os.environ})
    if "must be installed" in done.stderr:
        raise unittest.SkipTest(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
