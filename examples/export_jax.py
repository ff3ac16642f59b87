#!/usr/bin/env python3
"""examples/export_jax.py: exports a JAX function for `tessera bridge`.

    .venv/bin/python examples/export_jax.py attention out
    TESSERA_PYTHON=.venv/bin/python build/tessera bridge out/attention.mlirbc \\
        --shapes out/attention.json --inputs out/attention.in.safetensors \\
        --outputs out/mine.safetensors --check

Writes NAME.mlirbc, what `jax.export` serializes of the program; NAME.json, its
shapes; NAME.in.safetensors, inputs; NAME.out.safetensors, what JAX itself makes
of them. `save` does so for any function: import it. docs/bridge.md describes
the files.
"""
import argparse
import contextlib
import functools
import json
import math
import os
import zlib

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

# Element types that both sides have, as .safetensors files spell them.
DTYPES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}


def save_tensors(path, arrays):
    """Named arrays as a .safetensors file."""
    # Widest first, so that each is aligned to its own width.
    items = sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)
    header, parts, at = {}, [], 0
    for name, array in items:
        data = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [at, at + len(data)],
        }
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text + b"".join(parts))


def describe(names, avals, ranges):
    if len(names) != len(avals):
        raise ValueError(f"{len(avals)} arrays must have names, found {names}")
    out = []
    for name, aval in zip(names, avals):
        if not all(isinstance(n, int) for n in aval.shape):
            raise ValueError(f"{name} must have known sizes, found {aval.shape}")
        if aval.dtype.name not in DTYPES:
            raise ValueError(
                f"{name} must be one of {', '.join(DTYPES)}, found {aval.dtype}")
        out.append({"name": name, "dtype": DTYPES[aval.dtype.name],
                    "shape": list(aval.shape)})
        if name in ranges:
            out[-1]["range"] = list(ranges[name])
    return out


@contextlib.contextmanager
def no_source_locations():
    """Within it, programs do not name the files that they were made from."""
    option = "jax_traceback_in_locations_limit"
    before = getattr(jax.config, option)
    jax.config.update(option, 0)
    try:
        yield
    finally:
        jax.config.update(option, before)


def save(function, arguments, folder, name, inputs, outputs, platforms=("cpu",),
         operation="other", attention=None, splash=None, ranges=None,
         run=True):
    """Exports `function` for arguments like these, runs it, writes four files.

    With `run=False` it is not run, and only the first two are written.
    `inputs` and `outputs` name the arrays in the order in which JAX flattens
    them. `attention` declares what is computed: `tessera bridge --check` then
    judges it. `splash` declares Splash's kernel (export_splash.py).
    `ranges` has the least and the largest value of integer inputs by
    name, so that `tessera bridge` may draw them.
    """
    with no_source_locations():
        exported = jax.export.export(
            jax.jit(function), platforms=list(platforms))(*arguments)
    if exported.nr_devices != 1:
        raise ValueError(f"it must be for one device, not {exported.nr_devices}")
    if exported.ordered_effects or exported.unordered_effects:
        raise ValueError("it must have no effects")
    program = exported.mlir_module_serialized
    shapes = {
        "format": "tessera bridge",
        "version": 1,
        "name": name,
        "artifact": {"bytes": len(program), "crc32": zlib.crc32(program)},
        "jax": jax.__version__,
        "calling_convention_version": exported.calling_convention_version,
        "platforms": list(exported.platforms),
        # Of several platforms the program is told which one it is on.
        "platform_index": len(exported.platforms) > 1,
        "inputs": describe(inputs, exported.in_avals, ranges or {}),
        # JAX drops inputs that do not matter.
        "kept_inputs": list(exported.module_kept_var_idx),
        "outputs": describe(outputs, exported.out_avals, {}),
        "operation": operation,
    }
    if attention:
        shapes["attention"] = attention
    if splash is not None:
        shapes["splash"] = splash
    path = os.path.join(folder, name)
    os.makedirs(folder, exist_ok=True)
    with open(path + ".mlirbc", "wb") as out:
        out.write(program)
    with open(path + ".json", "w") as out:
        json.dump(shapes, out, indent=1)
        out.write("\n")
    if not run:
        return path
    flat = [np.asarray(a) for a in jax.tree_util.tree_leaves(arguments)]
    made = jax.tree_util.tree_leaves(jax.jit(function)(*arguments))
    save_tensors(path + ".in.safetensors", dict(zip(inputs, flat)))
    save_tensors(path + ".out.safetensors",
                 dict(zip(outputs, map(np.asarray, made))))
    return path


def attention(q, k, v, doc_ids, *, window, softcap):
    """Causal attention within a window and within documents."""
    heads, tokens, dim = q.shape[1:]
    k, v = (jnp.repeat(x, heads // x.shape[1], axis=1) for x in (k, v))
    exact = {"precision": jax.lax.Precision.HIGHEST,
             "preferred_element_type": jnp.float32}
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, **exact) / math.sqrt(dim)
    scores = softcap * jnp.tanh(scores / softcap)
    back = jnp.arange(tokens)[:, None] - jnp.arange(tokens)[None, :]
    legal = (back >= 0) & (back <= window)
    legal = legal & (doc_ids[:, :, None] == doc_ids[:, None, :])
    scores = jnp.where(legal[:, None], scores, -jnp.inf)
    lse = jax.nn.logsumexp(scores, axis=-1)
    out = jnp.einsum("bhqk,bhkd->bhqd", jnp.exp(scores - lse[..., None]),
                     v.astype(jnp.float32), **exact)
    return out.astype(q.dtype), lse


def save_attention(folder, dtype, platforms):
    batch, heads, kv_heads, tokens, dim = 1, 4, 2, 256, 64
    window, softcap = 99, 30.0
    keys = jax.random.split(jax.random.key(0), 3)
    q, k, v = (
        jax.random.normal(key, (batch, h, tokens, dim), dtype)
        for key, h in zip(keys, (heads, kv_heads, kv_heads)))
    doc_ids = jnp.repeat(jnp.arange(4, dtype=jnp.int32), tokens // 4)[None]
    inputs = ["q", "k", "v", "doc_ids"]
    outputs = ["out", "lse"]
    save(functools.partial(attention, window=window, softcap=softcap),
         (q, k, v, doc_ids), folder, "attention", inputs, outputs, platforms,
         operation="attention",
         attention={
             "mask": f"causal & window({window}, 0) & documents",
             "layout": "bhsd",
             "softcap": softcap,
             "roles": {name: name for name in inputs + outputs},
         },
         ranges={"doc_ids": (0, 3)})


def rms_norm(x, weight, eps):
    x32 = x.astype(jnp.float32)
    size = jnp.mean(x32 * x32, axis=-1, keepdims=True)
    return (x32 * jax.lax.rsqrt(size + eps) * weight).astype(x.dtype)


def save_rms_norm(folder, dtype, platforms):
    keys = jax.random.split(jax.random.key(1), 2)
    x = jax.random.normal(keys[0], (4, 32, 256), dtype)
    weight = 1 + 0.1 * jax.random.normal(keys[1], (256,), jnp.float32)
    save(functools.partial(rms_norm, eps=1e-6), (x, weight), folder, "rms_norm",
         ["x", "weight"], ["y"], platforms, operation="rms_norm")


EXAMPLES = {"attention": save_attention, "rms_norm": save_rms_norm}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("example", choices=sorted(EXAMPLES))
    parser.add_argument("folder", help="where the four files go")
    parser.add_argument("--dtype", default="float32",
                        choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--platforms", default="cpu",
                        help="comma-separated: cpu, tpu, cuda [cpu]")
    options = parser.parse_args()
    EXAMPLES[options.example](options.folder, jnp.dtype(options.dtype),
                              options.platforms.split(","))


if __name__ == "__main__":
    main()
