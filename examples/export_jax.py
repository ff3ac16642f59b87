#!/usr/bin/env python3
"""examples/export_jax.py: exports a JAX function for `tessera bridge`.

    .venv/bin/python examples/export_jax.py attention out
    TESSERA_PYTHON=.venv/bin/python build/tessera bridge out/attention.mlirbc \\
        --shapes out/attention.json --inputs out/attention.in.safetensors \\
        --outputs out/mine.safetensors --check

Examples are `attention` within documents, `tree`, `same` and `blocks`, whose
facts are arrays of their own, and `rms_norm`.

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

# Element types that JAX and Tessera have, by their names in .safetensors.
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
    """Writes named arrays to a .safetensors file."""
    # Widest elements first, so that each array is aligned to its element size.
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
    """In this context, programs do not contain the names of source files."""
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
    """Exports `function` for these arguments, runs it and writes four files.

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
        # With several platforms the first argument is the index of the platform.
        "platform_index": len(exported.platforms) > 1,
        "inputs": describe(inputs, exported.in_avals, ranges or {}),
        # JAX drops inputs that do not affect the outputs.
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


def attend(q, k, v, legal, softcap=None):
    """Attention over the pairs in `legal`, [batch, 1 or heads, queries, keys].
    Each query must have a legal key, else its output is NaN."""
    heads, dim = q.shape[1], q.shape[3]
    k, v = (jnp.repeat(x, heads // x.shape[1], axis=1) for x in (k, v))
    exact = {"precision": jax.lax.Precision.HIGHEST,
             "preferred_element_type": jnp.float32}
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, **exact) / math.sqrt(dim)
    if softcap:
        scores = softcap * jnp.tanh(scores / softcap)
    scores = jnp.where(legal, scores, -jnp.inf)
    lse = jax.nn.logsumexp(scores, axis=-1)
    out = jnp.einsum("bhqk,bhkd->bhqd", jnp.exp(scores - lse[..., None]),
                     v.astype(jnp.float32), **exact)
    return out.astype(q.dtype), lse


def keys_back(q, k):
    """The distance of each key before its query, [queries, keys]."""
    return jnp.arange(q.shape[2])[:, None] - jnp.arange(k.shape[2])[None, :]


def attention(q, k, v, doc_ids, *, window, softcap):
    """Causal attention within a window and within documents."""
    back = keys_back(q, k)
    legal = (back >= 0) & (back <= window)
    legal = legal & (doc_ids[:, :, None] == doc_ids[:, None, :])
    return attend(q, k, v, legal[:, None], softcap)


def tree_attention(q, k, v, tree_enter, tree_leave):
    """A token sees itself and its ancestors."""
    token = tree_enter[:, :, None]
    legal = (tree_enter[:, None, :] <= token) & (token < tree_leave[:, None, :])
    return attend(q, k, v, legal[:, None])


def same_attention(q, k, v, same_a):
    """Causal attention in which the tokens of an image also see each other. A
    token outside of images has a negative id."""
    together = (same_a[:, :, None] == same_a[:, None, :]) & (
        same_a[:, None, :] >= 0)
    return attend(q, k, v, ((keys_back(q, k) >= 0) | together)[:, None])


def picked_attention(q, k, v, picks, *, block):
    """Causal attention to the blocks of keys that each query picked, for each
    K/V head. `picks` has block numbers, -1 in unused slots."""
    blocks = jnp.arange(k.shape[2]) // block
    picked = (picks[..., None] == blocks).any(axis=-2)
    legal = picked & (keys_back(q, k) >= 0)
    legal = jnp.repeat(legal, q.shape[1] // legal.shape[1], axis=1)
    out, lse = attend(q, k, v, legal)
    # For a query that sees no key, lse is -inf and the output 0.
    return jnp.where(legal.any(axis=-1, keepdims=True), out, 0), lse


BATCH, HEADS, KV_HEADS, TOKENS, DIM = 1, 4, 2, 256, 64


def save_any_attention(folder, name, function, facts, mask, dtype, platforms,
                       ranges=None, **declared):
    """Saves an attention function of q, k, v and facts. The name of each array is
    its role."""
    keys = jax.random.split(jax.random.key(0), 3)
    q, k, v = (
        jax.random.normal(key, (BATCH, h, TOKENS, DIM), dtype)
        for key, h in zip(keys, (HEADS, KV_HEADS, KV_HEADS)))
    inputs = ["q", "k", "v", *facts]
    outputs = ["out", "lse"]
    arrays = [jnp.asarray(fact, jnp.int32) for fact in facts.values()]
    save(function, (q, k, v, *arrays), folder, name, inputs, outputs, platforms,
         operation="attention",
         attention={
             "mask": mask,
             "layout": "bhsd",
             **declared,
             "roles": {name: name for name in inputs + outputs},
         },
         ranges=ranges)


def save_attention(folder, dtype, platforms):
    window, softcap = 99, 30.0
    doc_ids = np.repeat(np.arange(4), TOKENS // 4)[None]
    save_any_attention(
        folder, "attention",
        functools.partial(attention, window=window, softcap=softcap),
        {"doc_ids": doc_ids}, f"causal & window({window}, 0) & documents",
        dtype, platforms, {"doc_ids": (0, 3)}, softcap=softcap)


def save_tree(folder, dtype, platforms):
    # A prompt of 64 tokens, followed by three answers of 64 tokens each.
    enter = np.arange(TOKENS)
    leave = np.where(enter < 64, TOKENS, (enter // 64 + 1) * 64)
    # No ranges, because drawn numbers would not form a tree.
    save_any_attention(folder, "tree", tree_attention,
                       {"tree_enter": enter[None], "tree_leave": leave[None]},
                       "tree", dtype, platforms)


def save_same(folder, dtype, platforms):
    images = np.full(TOKENS, -1)
    images[40:104], images[150:200] = 0, 1
    save_any_attention(folder, "same", same_attention, {"same_a": images[None]},
                       "causal | same(a)", dtype, platforms,
                       {"same_a": (-1, 1)})


def save_blocks(folder, dtype, platforms):
    block = 32
    random = np.random.default_rng(0)
    own = np.broadcast_to(np.arange(TOKENS) // block, (BATCH, KV_HEADS, TOKENS))
    others = [random.integers(-1, own + 1) for _ in range(2)]
    picks = np.stack([own, *others], axis=-1)
    save_any_attention(folder, "blocks",
                       functools.partial(picked_attention, block=block),
                       {"picks": picks}, f"causal & blocks({block})", dtype,
                       platforms, {"picks": (-1, TOKENS // block - 1)})


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


EXAMPLES = {"attention": save_attention, "tree": save_tree, "same": save_same,
            "blocks": save_blocks, "rms_norm": save_rms_norm}


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
