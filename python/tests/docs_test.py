"""The Python in README and docs/ runs as it is shown: the blocks of a page run
one after the other, in one namespace."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import plugins
import pytest
import tessera as ts

# The examples train on one device first, then on meshes (docs/train.md).
os.environ.setdefault("NPROC", "8")
if importlib.util.find_spec("jax"):
    import jax
    jax.config.update("jax_num_cpu_devices", 4)  # for docs/shard.md

ROOT = pathlib.Path(__file__).parents[2]
N = 4096
# Blocks with these words show another library's code and do not run.
OTHERS = ("flash_attn_varlen_func(", "make_splash_mha",
          "from export_jax import", "dataset.with_format(")


def arrays(heads=8, kv_heads=8, dim=64, tokens=N):
    rng = np.random.default_rng(1)
    draw = lambda h: rng.standard_normal((1, h, tokens, dim), np.float32)
    return draw(heads), draw(kv_heads), draw(kv_heads)


def tensors(gradients=True, **sizes):
    import torch
    return (torch.from_numpy(x).requires_grad_(gradients) for x in arrays(**sizes))


def tiny_model():
    """A small model of transformers, and a row of two documents for it."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig
    return dict(
        model=AutoModelForCausalLM.from_config(LlamaConfig(
            vocab_size=61, hidden_size=32, intermediate_size=48,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=8, max_position_embeddings=128)),
        input_ids=torch.arange(24)[None],
        position_ids=torch.cat([torch.arange(10), torch.arange(14)])[None])


def documents(count=40):
    rng = np.random.default_rng(2)
    return [(np.arange(rng.integers(20, 400)) % 200).astype(np.int32)
            for _ in range(count)]


def ids_of(seed=0):
    cuts = np.random.default_rng(seed).integers(0, 9, N)
    return np.sort(cuts).astype(np.int32)


def usual():
    q, k, v = arrays()
    return {"np": np, "ts": ts, "n": N, "ids": ids_of(), "q": q, "k": k, "v": v,
            "dout": np.ones_like(q), "batches": [ids_of(1), ids_of(2)]}


def given(page):
    """The names that a page's first block expects."""
    if page == "docs/first_steps.md":  # this page needs no names
        return {}
    names = usual()
    if page == "docs/topk.md":
        q, k, v = arrays(4, 2, 64, 1024)
        names.update(q=q, k=k, v=v)
    if page == "docs/facts.md":
        names.update(prompt=[1, 2, 3], answers=[[4, 5], [4, 6, 7]],
                     embed=lambda tokens, positions: np.asarray(tokens),
                     logits=np.zeros((32, 11), np.float32))
    if page == "docs/train.md":
        names["documents"] = documents()
    if page == "docs/shard.md":
        q, k, v = arrays(8, 2)
        names.update(q=q, k=k, v=v, batch=ts.plan(
            ts.causal & ts.documents, q_len=N, doc_ids=ids_of()))
    if page == "docs/data.md":
        pyarrow = pytest.importorskip("pyarrow")
        import pyarrow.parquet
        table = pyarrow.table({"input_ids": [d.tolist() for d in documents()]})
        pyarrow.parquet.write_table(table, "train.parquet")
        rows = pyarrow.array([[7] * 8192] * 9, pyarrow.list_(pyarrow.int32(), 8192))
        pyarrow.parquet.write_table(pyarrow.table({"input_ids": rows}), "rows.parquet")
        pathlib.Path("documents.jsonl").write_text(
            '{"input_ids": [11, 12, 13, 14, 15]}\n{"input_ids": [21, 22, 23]}\n' * 3)
        subprocess.run([sys.executable, "-m", "tessera", "pack", "documents.jsonl",
                        "--tokens", "8", "-o", "rows"], check=True, capture_output=True)
        pathlib.Path("sources.jsonl").write_text('{"input_ids": [1, 2]}\n' * 4)
        names.update(pyarrow=pyarrow, json=json)
    return names


def before(page, block, names):
    """Adds the names that this block expects and no earlier block makes."""
    if page == "docs/python.md" and "ready.forward" in block:
        q, k, v = arrays(8, 2)
        names.update(q=q, k=k, v=v, dout=np.ones_like(q))
    if page == "docs/python.md" and "arrays_for" in block:
        names["q"], names["k"], names["v"] = (
            x.astype(ml_dtypes.bfloat16) for x in arrays(2, 2, 128))
    if page == "docs/python.md" and "tessera.torch.attention(" in block:
        names["q"], names["k"], names["v"] = tensors()
    if "tessera.transformers" in block:
        names.update(tiny_model())
    if page == "docs/migrate.md" and "flex_attention(" in block:
        # On the CPU, Flex holds all scores and has no gradients: small inputs.
        import tessera.torch
        import torch
        from torch.nn.attention.flex_attention import (create_block_mask,
                                                       flex_attention)
        names.update(tessera=tessera, n=512, ids=torch.from_numpy(ids_of()[::8].copy()),
                     create_block_mask=create_block_mask,
                     flex_attention=flex_attention)
        names["q"], names["k"], names["v"] = tensors(False, tokens=512)
    if page == "docs/migrate.md" and "cu_seqlens=" in block:
        import tessera.torch
        names.update(tessera=tessera, cu_seqlens=np.array([0, 1500, 2200, N], np.int32))
        names["q"], names["k"], names["v"] = (
            x[0].transpose(0, 1) for x in tensors())  # [tokens, heads, dim]
    if page == "docs/migrate.md" and "tessera.jax" in block:
        import tessera.jax
        names.update(tessera=tessera, n=N, ids=ids_of(), q=arrays()[0][0],
                     k=arrays()[1][0], v=arrays()[2][0])


def blocks(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)


def needs(block):
    """The modules and plugins that a block needs and that are missing."""
    out = [name for name in ("torch", "transformers", "jax")
           if re.search(rf"(import|from) .*\b{name}\b|tessera\.{name}\b", block)]
    if "flex_attention(" in block:
        out.append("torch")
    out = [n for n in out if not importlib.util.find_spec(n)]
    if "Trainer(" in block and not plugins.is_there("lammps_jax_pjrt_cpu"):
        out.append(plugins.called("lammps_jax_pjrt_cpu"))
    return out


PAGES = [p for p in ["README.md"] + sorted(
    f"docs/{f.name}" for f in (ROOT / "docs").glob("*.md")) if blocks(p)]


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = given(page)
    ran, without = 0, set()
    for block in blocks(page):
        if any(other in block for other in OTHERS):
            continue
        missing = needs(block)
        if missing:
            without.update(missing)
            continue
        before(page, block, names)
        exec(compile(block, page, "exec"), names)
        ran += 1
    if without and not ran:
        pytest.skip(f"its blocks need {', '.join(sorted(without))}")
    assert ran or page == "docs/bridge.md"
