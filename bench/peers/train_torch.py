"""Times steps of training in PyTorch: the model of tests/model/jax_model.py on
packed rows, torch.compile, fused AdamW. FlexAttention has no backward on CPUs,
so attention is its flash kernel, called for each document (--attention
documents), or one call with a dense mask (--attention dense). --forward times
the loss without gradients, which FlexAttention can do too (--attention flex,
with a block mask made for each row).

    python train_torch.py rows/rows-00000.safetensors model.json --steps 5

Prints one JSON object: seconds of each step after the first, which compiles,
losses, and the peak of memory.
"""

import argparse
import json
import pathlib
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python/tests"))
from peak_memory import peak_kib  # noqa: E402
from tensor_file import load, parameters  # noqa: E402


def norm(x, weight):
    return F.rms_norm(x, x.shape[-1:], weight, 1e-5)


def angles(positions, d):
    turn = positions[:, None] * 10000.0 ** (-torch.arange(d // 2) / (d // 2))
    return torch.cos(turn), torch.sin(turn)


def rope(x, turn):
    c, s = turn
    a, b = x.chunk(2, -1)
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def before(p, x, turn, m):
    """The part of a block before attention: q, k, v as [1, heads, tokens, head
    dim]."""
    h, g, d = m["heads"], m["kv_heads"], m["head_dim"]
    qkv = norm(x, p["norm1"]) @ p["linear_qkv"].T
    q, k, v = (a.view(-1, n, d).transpose(0, 1)[None]
               for a, n in zip(qkv.split([h * d, g * d, g * d], -1), (h, g, g)))
    return rope(q, turn), rope(k, turn), v


def after(p, x, o):
    """The part of a block after attention; `o` is [1, heads, tokens, head
    dim]."""
    x = x + o[0].transpose(0, 1).flatten(1) @ p["linear_proj"].T
    gate, up = (norm(x, p["norm2"]) @ p["linear_fc1"].T).chunk(2, -1)
    return x + (F.silu(gate) * up) @ p["linear_fc2"].T


def by_document(q, k, v, lengths):
    parts = zip(*(a.split(lengths, 2) for a in (q, k, v)))
    return torch.cat([F.scaled_dot_product_attention(
        *part, is_causal=True, enable_gqa=True) for part in parts], 2)


def with_mask(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def with_blocks():
    """Attention by FlexAttention, and the function that makes its block mask
    from ids."""
    from torch.nn.attention.flex_attention import (create_block_mask,
                                                   flex_attention)
    flex = torch.compile(flex_attention, dynamic=False)
    make = torch.compile(create_block_mask)

    def blocks_of(ids):
        return make(lambda b, h, q, k: (q >= k) & (ids[q] == ids[k]), None, None,
                    len(ids), len(ids), device="cpu", BLOCK_SIZE=128)

    return (lambda q, k, v, blocks: flex(q, k, v, block_mask=blocks,
                                         enable_gqa=True)), blocks_of


def mean_loss(p, row, m, parts):
    before, after, attention, about, last = parts
    x = p["embedding.weight"][row["input_ids"]]
    turn = angles(row["positions"], m["head_dim"])
    for i in range(m["layers"]):
        here = f"layers.{i}."
        block = {k[len(here):-len(".weight")]: v for k, v in p.items()
                 if k.startswith(here)}
        x = after(block, x, attention(*before(block, x, turn, m), about))
    return last(p, x, row)


def last_of(p, x, row):
    head = p.get("head.weight", p["embedding.weight"])
    logits = norm(x, p["final_norm.weight"]) @ head.T
    each = F.cross_entropy(logits, row["target_ids"], reduction="none")
    return (each * row["loss_mask"]).sum() / row["loss_mask"].sum()


def documents_of(ids):
    """Lengths of documents (padding counts as one), and the dense mask."""
    cuts = torch.nonzero(ids[1:] != ids[:-1]).flatten() + 1
    ends = [0, *cuts.tolist(), len(ids)]
    n = torch.arange(len(ids))
    mask = (n[:, None] >= n) & (ids[:, None] == ids)
    return [b - a for a, b in zip(ends, ends[1:])], mask[None, None]


def learn(p, loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(list(p.values()), 1.0)
    optimizer.step()


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("rows")
    flags.add_argument("model")
    flags.add_argument("--start", required=True,
                       help="a checkpoint of `tessera train`")
    flags.add_argument("--steps", type=int, default=5)
    flags.add_argument("--rate", type=float, default=3e-4)
    flags.add_argument("--attention", choices=("documents", "dense", "flex"),
                       default="documents")
    flags.add_argument("--eager", action="store_true", help="no torch.compile")
    flags.add_argument("--forward", action="store_true", help="no gradients")
    args = flags.parse_args()
    if args.attention == "flex" and not args.forward:
        raise SystemExit("train_torch: FlexAttention has no backward on CPUs")
    rows = load(args.rows)
    with open(args.model) as f:
        m = json.load(f)
    m = {k: v for k, v in m.items() if v not in (None, [], False)}
    if "routes" in m:
        raise SystemExit("train_torch: its model has no clustered layers")
    p = {k: torch.tensor(v, requires_grad=True)
         for k, v in parameters(args.start).items()}
    flat = [v for v in p.values() if v.ndim < 2]
    wide = [v for v in p.values() if v.ndim > 1]
    optimizer = torch.optim.AdamW(
        [{"params": wide, "weight_decay": 0.1}, {"params": flat, "weight_decay": 0}],
        lr=args.rate, betas=(0.9, 0.95), fused=True)
    made = (lambda f: f) if args.eager else torch.compile
    attends = {"documents": (by_document, lambda ids: documents_of(ids)[0]),
               "dense": (with_mask, lambda ids: documents_of(ids)[1])}
    if args.attention == "flex":
        attends["flex"] = with_blocks()
    attend, about = attends[args.attention]
    parts = [made(before), made(after), attend]
    losses, seconds = [], []
    for t in range(args.steps + 1):
        row = {k: torch.from_numpy(np.array(rows[k][t])) for k in (
            "input_ids", "target_ids", "loss_mask", "positions", "doc_ids")}
        row["target_ids"] = row["target_ids"].long()
        begin = time.perf_counter()
        with torch.set_grad_enabled(not args.forward):
            loss = mean_loss(p, row, m, (*parts, about(row["doc_ids"]),
                                         made(last_of)))
        if not args.forward:
            learn(p, loss, optimizer)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({
        "losses": losses,
        "version": f"torch {torch.__version__}",
        "seconds": seconds[1:],
        "peak_mib": peak_kib() // 1024,
    }))


if __name__ == "__main__":
    main()
