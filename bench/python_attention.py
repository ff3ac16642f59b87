#!/usr/bin/env python3
"""Times tessera.torch, compiled FlexAttention, and PyTorch's own attention
called for each document, by its function and by direct calls of its flash
kernels: packed documents, 8 heads, head dim 128, every core. Then times
block_mask and create_block_mask. Each time is the best of many rounds.

    PYTHONPATH=build/python $TESSERA_TORCH_PYTHON bench/python_attention.py [-o FILE]
"""

import argparse
import json
import os
import pathlib
import sys
import time

import numpy as np
import tessera as ts
import tessera.torch
import torch
import torch.nn.functional as F
from packed_documents import starts
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python/tests"))
import judge

HEADS, DIM = 8, 128
DTYPES = (torch.float32, torch.bfloat16)
JUDGED = 64  # queries of each head that are compared to fp64
aten = torch.ops.aten


def best(call, seconds):
    call()
    taken, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until or len(taken) < 3:
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return min(taken)


def cut(tokens):
    edges = [0, *starts(tokens), tokens]
    ids = np.zeros(tokens, np.int32)
    for document, (a, b) in enumerate(zip(edges, edges[1:])):
        ids[a:b] = document
    return edges, ids


def per_document(edges):
    def attend(q, k, v):
        return torch.cat([F.scaled_dot_product_attention(
            *(x[:, :, a:b] for x in (q, k, v)), is_causal=True)
            for a, b in zip(edges, edges[1:])], 2)
    return attend


def with_gradients(attend, inputs, dout):
    def call():
        for x in inputs:
            x.grad = None
        attend(*inputs).backward(dout)
        return [x.grad for x in inputs]
    return call


def flash_calls(edges, arrays, dout):
    """Two functions, forward, and forward with backward, that call the flash
    kernels for each document, without autograd and with all results written in
    place."""
    out, *grads = map(torch.empty_like, (arrays[0], *arrays))
    parts, kept = list(zip(edges, edges[1:])), {}

    def forward(*_):
        for a, b in parts:
            kept[a] = aten._scaled_dot_product_flash_attention_for_cpu(
                *(x[:, :, a:b] for x in arrays), 0.0, True)
            out[:, :, a:b] = kept[a][0]
        return out

    def both():
        forward()
        for a, b in parts:
            found = aten._scaled_dot_product_flash_attention_for_cpu_backward(
                *(x[:, :, a:b] for x in (dout, *arrays)), *kept[a], 0.0, True)
            for x, part in zip(grads, found):
                x[:, :, a:b] = part
        return grads

    return forward, both


def largest_share(out, q, k, v, ids):
    """The largest error of the sampled queries, as a share of its bound."""
    tokens, share = len(ids), 0.0
    dtype = str(q.dtype).removeprefix("torch.")
    rows = np.linspace(0, tokens - 1, JUDGED).astype(int)
    legal = (ids[rows, None] == ids) & (rows[:, None] >= np.arange(tokens))
    for h in range(HEADS):
        head = lambda x, at=slice(None): x[:, h:h + 1, at].float().numpy()
        want, _ = judge.attention(head(q, rows), head(k), head(v), legal[None],
                                  dtype=dtype)
        share = max(share, judge.shares(head(out, rows), want).max())
    return share


def attention(tokens, dtype, seconds, rows):
    edges, ids = cut(tokens)
    batch = ts.plan(ts.causal & ts.documents, q_len=tokens, doc_ids=ids,
                    tile=(128, 128))
    blocks = tessera.torch.block_mask(batch)
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    rng = np.random.default_rng(0)
    draw = lambda: torch.from_numpy(rng.standard_normal(
        (1, HEADS, tokens, DIM), np.float32)).to(dtype)
    inputs, dout = [draw().requires_grad_() for _ in range(3)], draw()
    session = ts.Session("cpu")
    ready = session.prepare(batch, heads=HEADS, head_dim=DIM, backward=True,
                            dtype="f32" if dtype == torch.float32 else "bf16")
    plain = [x.detach() for x in inputs]

    def through_session():
        ready.backward(ready.forward(*plain), dout)

    flash, flash_both = flash_calls(edges, plain, dout)
    of_sdpa = with_gradients(per_document(edges), inputs, dout)
    # Both run the same kernels on the same numbers, so the bits must be equal.
    if not all(map(torch.equal, flash_both(), of_sdpa())):
        raise SystemExit("flash a document must have SDPA's gradients")
    # By name: the forward pass, and both passes if there is a backward one.
    ours = lambda q, k, v: tessera.torch.attention(q, k, v, batch)
    ways = {
        "tessera.torch": (ours, with_gradients(ours, inputs, dout)),
        "SDPA a document": (per_document(edges), of_sdpa),
        "flash a document": (flash, flash_both),
        "FlexAttention": (  # has no backward pass on a CPU
            lambda q, k, v: compiled(q, k, v, block_mask=blocks), None),
    }
    pairs = int(batch.legal_pairs.sum()) * HEADS
    flops = lambda a_pair, taken: pairs * a_pair * DIM / taken / 1e9
    print(f"{tokens} tokens, {str(dtype).removeprefix('torch.')}, useful GFLOP/s")
    for name, (attend, both) in ways.items():
        with torch.no_grad():
            out = attend(*plain)
            share = largest_share(out, *plain, ids)
            if not share <= 1:
                raise SystemExit(f"{name} errs by {share:.2g} of its bound")
            taken = best(lambda: attend(*plain), seconds)
        what = f"torch attention {tokens}, {str(dtype).removeprefix('torch.')}"
        rows.append([what + ", forward", name, flops(4, taken), "GFLOP/s"])
        row = f"  {name:16s} forward {flops(4, taken):6.1f}"
        if both:
            taken = best(both, seconds)
            rows.append([what + ", with backward", name, flops(14, taken),
                         "GFLOP/s"])
            row += f", with backward {flops(14, taken):6.1f}"
        print(row)
    taken = best(through_session, seconds)
    rows.append([what + ", with backward", "a session", flops(14, taken),
                 "GFLOP/s"])
    print(f"  {'a session':16s} {'':15s} with backward {flops(14, taken):6.1f}")


def masks(tokens, seconds, rows):
    edges, ids = cut(65536)
    ids = np.resize(ids, tokens) + np.arange(tokens, dtype=np.int32) // 65536 * 8
    batch = ts.plan(ts.causal & ts.documents, q_len=tokens,
                    doc_ids=ids.astype(np.int32), tile=(128, 128))
    kept = []

    def ours():
        kept[:] = [tessera.torch.block_mask(batch)]

    started = time.perf_counter()
    ours()
    first = time.perf_counter() - started
    again = best(ours, seconds)
    there = torch.from_numpy(ids)
    make = torch.compile(create_block_mask)
    theirs = lambda: make(
        lambda b, h, q, k: (q >= k) & (there[q] == there[k]), None, None,
        tokens, tokens, device="cpu", BLOCK_SIZE=128)
    same = theirs()
    for name in ("kv_indices", "full_kv_indices", "q_indices",
                 "full_q_indices", "kv_num_blocks", "full_kv_num_blocks"):
        if not torch.equal(getattr(kept[0], name), getattr(same, name)):
            raise SystemExit(f"{name} differs")
    their_time = best(theirs, seconds)
    rows += [[f"block_mask {tokens}", "tessera.torch", again * 1e3, "ms"],
             [f"block_mask {tokens}, the first", "tessera.torch", first * 1e3,
              "ms"],
             [f"block_mask {tokens}", "create_block_mask, compiled",
              their_time * 1e3, "ms"]]
    print(f"{tokens} tokens: block_mask {again * 1e3:.2f} ms, the first "
          f"{first * 1e3:.1f}; create_block_mask, compiled, "
          f"{their_time * 1e3:.0f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=4096,
                        choices=(1024, 4096, 8192, 65536))
    parser.add_argument("--mask-tokens", type=int, default=1 << 17)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("-o", "--out", type=pathlib.Path, metavar="FILE.json")
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {torch.get_num_threads()} threads, "
          f"torch {torch.__version__}")
    rows = []  # for bench/python_figures.py: what, who, value, unit
    for dtype in DTYPES:
        attention(args.tokens, dtype, args.seconds, rows)
    masks(args.mask_tokens, args.seconds, rows)
    print(f"load {os.getloadavg()[0]:.1f}")
    if args.out:
        args.out.write_text(json.dumps(
            [dict(zip(("what", "who", "value", "unit"), row)) for row in rows]))


if __name__ == "__main__":
    main()
