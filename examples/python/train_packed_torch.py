#!/usr/bin/env python3
"""Trains a small language model on packed documents, in PyTorch, twice: with
tessera.torch.attention, compiled, and with a dense mask. The losses are the
same.

    pip install '.[torch]'
    python examples/python/train_packed_torch.py --steps 20
"""

import argparse
import subprocess
import sys
import time

import numpy as np
import tessera as ts
import tessera.torch
import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, WIDTH, HEADS, KV_HEADS, LAYERS = 64, 64, 4, 2, 2
DIM = WIDTH // HEADS
MASK = ts.causal & ts.documents


def roundings(length):
    """The allowed difference of the two losses in one step, in roundings. The two
    ways differ only in attention: each layer of each has float32 sums over DIM and
    twice over the keys of a document, at most a third of the length. A sum of n
    terms errs by 8 + sqrt(n) roundings (src/lanes/reference/bound.cc). Over 20
    steps of 1,024 tokens the difference was far smaller."""
    return 2 * LAYERS * sum(8 + n**0.5 for n in (DIM, length // 3, length // 3))


def pack(rng, length):
    """Packed documents, each of which counts upwards from a random number."""
    tokens, ids = np.zeros(length, np.int64), np.zeros(length, np.int32)
    at = document = 0
    while at < length:
        n = min(int(rng.integers(length // 16, length // 3)), length - at)
        tokens[at:at + n] = (rng.integers(VOCABULARY) +
                             np.arange(n) * rng.integers(1, 4)) % VOCABULARY
        ids[at:at + n] = document
        at, document = at + n, document + 1
    return torch.from_numpy(tokens), torch.from_numpy(ids)


def dense_attention(q, k, v, legal):
    """The usual way: a dense mask of tokens by tokens."""
    turn = lambda x: x.transpose(1, 2)
    return turn(F.scaled_dot_product_attention(
        turn(q), turn(k), turn(v), legal, enable_gqa=True))


def sparse_attention(q, k, v, batch):
    return tessera.torch.attention(q, k, v, batch, layout="bshd")


class Layer(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.attend = attend
        line = lambda i, o: nn.Linear(i, o, bias=False)
        self.q, self.o = line(WIDTH, HEADS * DIM), line(WIDTH, WIDTH)
        self.kv = line(WIDTH, 2 * KV_HEADS * DIM)
        self.up, self.down = line(WIDTH, 4 * WIDTH), line(4 * WIDTH, WIDTH)

    def forward(self, x, documents):
        y = F.rms_norm(x, (WIDTH,))
        split = lambda z, heads: z.view(1, -1, heads, DIM)
        k, v = self.kv(y).chunk(2, -1)
        seen = self.attend(split(self.q(y), HEADS), split(k, KV_HEADS),
                           split(v, KV_HEADS), documents)
        x = x + self.o(seen.reshape(x.shape))
        return x + self.down(F.silu(self.up(F.rms_norm(x, (WIDTH,)))))


class Model(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer(attend) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens, documents, ids):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, documents)
        logits = self.head(F.rms_norm(x, (WIDTH,)))[:-1]
        inside = ids[1:] == ids[:-1]  # the next token is of the same document
        losses = F.cross_entropy(logits, tokens[1:], reduction="none")
        return (losses * inside).sum() / inside.sum()


def train(attend, documents_of, length, steps, seed=0):
    """Returns the losses, the seconds of a step and the number of compiles."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    model = Model(attend)
    compiles = []

    def backend(graph, inputs):
        compiles.append(1)
        return torch._inductor.compile(graph, inputs)

    step = torch.compile(model, fullgraph=True, backend=backend)
    descent = torch.optim.SGD(model.parameters(), 0.1)
    losses, started = [], 0
    for i in range(steps):
        tokens, ids = pack(rng, length)
        descent.zero_grad()
        value = step(tokens, documents_of(ids), ids)
        value.backward()
        descent.step()
        losses.append(float(value.detach()))
        if i == 0:
            started = time.perf_counter()
    seconds = (time.perf_counter() - started) / max(1, steps - 1)
    return np.array(losses), seconds, len(compiles)


def plan(ids):
    return ts.plan(MASK, q_len=len(ids), doc_ids=ids, tile=(64, 64))


def legal(ids):
    place = torch.arange(len(ids))
    return (place[:, None] >= place) & (ids[:, None] == ids)


WAYS = {"sparse": (sparse_attention, plan), "dense": (dense_attention, legal)}


def report(way, length, steps):
    """Trains in a process of its own, to measure its peak memory alone."""
    ran = subprocess.run(
        [sys.executable, __file__, "--length", str(length), "--steps",
         str(steps), "--only", way], stdout=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        raise SystemExit(f"training with {way} attention failed")
    *losses, seconds, compiles, grown = ran.stdout.split()[-steps - 3:]
    return np.array(losses, float), float(seconds), int(compiles), int(grown)


def peak_mib():
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines
                    if line.startswith("VmHWM:")) // 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", choices=WAYS)
    args = parser.parse_args()
    if args.only:
        losses, seconds, compiles = train(*WAYS[args.only], args.length,
                                          args.steps)
        print(*losses, seconds, compiles, peak_mib())
        return
    ours, seconds, compiles, mib = report("sparse", args.length, args.steps)
    dense, dense_seconds, _, dense_mib = report("dense", args.length,
                                                args.steps)
    for i in range(0, args.steps, max(1, args.steps // 10)):
        print(f"step {i:3d}  loss {ours[i]:.5f}  dense {dense[i]:.5f}")
    difference = np.abs(ours - dense).max()
    print(f"largest difference {difference:.1e}; {compiles} compile; a step "
          f"{seconds * 1e3:.1f} ms, dense {dense_seconds * 1e3:.1f} ms; peak "
          f"{mib} MiB, dense {dense_mib} MiB")
    differ = np.abs(ours - dense) > roundings(args.length) * 2**-24 * dense
    if differ.any() or compiles != 1:
        raise SystemExit("the two runs differ")


if __name__ == "__main__":
    main()
