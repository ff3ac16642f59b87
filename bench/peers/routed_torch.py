"""MoBA-style routed attention in PyTorch on the CPU, on the inputs of
`tessera-bench routed`.

The rule is that of MoBA (Lu et al., 2025, "MoBA: Mixture of Block Attention for
Long-Context LLMs"); none of its code is used. Keys are pooled to the mean of
their block, and each query head scores the blocks before its own by an inner
product. A query picks its own block and the best others, `top` in all.
Attention over the picks is timed in two ways, and the faster one is the peer:

  tiles   for each tile of queries, all heads: the unions of its heads' blocks
          are gathered, and scaled_dot_product_attention runs with a mask of the
          picks
  blocks  for each block of keys: the queries that picked it are gathered, a
          dense call computes their part, and parts are merged by log-sum-exp

Each way prints a line of JSON. For the sampled queries in the file of inputs,
picks are compared to ours. Outputs of some of them are checked against fp64
over the same picks, within the bounds of the judge.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python/tests"))
import judge
from near_ties import worst_swap

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16}
NUMPY = {"F32": np.float32, "BF16": np.int16, "I32": np.int32}
QUERIES = 4096  # queries whose scores are in memory at once
JUDGED = 32  # sampled queries of each head that are judged
INF = float("inf")
flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--inputs", required=True, metavar="FILE.safetensors")
    add("--top", type=int, required=True)
    add("--block", type=int, default=256)
    add("--threads", type=int, default=2)
    add("--seconds", type=float, default=2, help="seconds of runs a way")
    add("--budget", type=float, default=600, help="no run begins after")
    return parser.parse_args()


def read_tensors(path):
    """Tensors by name. They map the file, so bytes are read when needed."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    out = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        kind = NUMPY[about["dtype"]]
        data = np.fromfile(
            path, kind, (end - begin) // np.dtype(kind).itemsize, "", 8 + size + begin
        )
        tensor = torch.from_numpy(data).view(about["shape"])
        if about["dtype"] == "BF16":
            tensor = tensor.view(torch.bfloat16)
        out[name] = tensor
    return out


class Problem:
    def __init__(self, tensors, top, block):
        self.q, self.k, self.v = (tensors[n][0] for n in ("q", "k", "v"))
        self.heads, self.tokens, self.dim = self.q.shape
        self.top, self.block = top, block
        self.blocks = self.tokens // block
        # The head of K and V of each query head.
        self.kv = torch.arange(self.heads) // (self.heads // len(self.k))
        shape = (len(self.k), self.blocks, block, self.dim)
        self.k_blocks, self.v_blocks = self.k.view(shape), self.v.view(shape)

    def route(self):
        """Picks [heads, tokens, top], unordered, -1 for unused."""
        pooled = self.k_blocks.mean(2, dtype=torch.float32)[self.kv].mT
        picks = torch.full(
            (self.heads, self.tokens, self.top), -1, dtype=torch.int64
        )
        for begin in range(0, self.tokens, QUERIES):
            end = min(begin + QUERIES, self.tokens)
            own = torch.arange(begin, end) // self.block
            past = int(own[-1]) + 1  # blocks that some query here may see
            scores = self.q[:, begin:end].float() @ pooled[:, :, :past]
            number = torch.arange(past)
            scores.masked_fill_(number > own[:, None], -INF)
            scores.masked_fill_(number == own[:, None], INF)
            k = min(self.top, past)
            best, blocks = scores.topk(k, sorted=False)
            picks[:, begin:end, :k] = blocks.masked_fill_(best == -INF, -1)
        return picks

    def tiles(self, picks):
        out = torch.empty_like(self.q)
        heads, block = self.heads, self.block
        own_mask = torch.zeros(block, block)
        own_mask.masked_fill_(
            torch.ones(block, block, dtype=torch.bool).triu(1), -INF
        )
        for tile in range(self.blocks):
            rows = slice(tile * block, (tile + 1) * block)
            # The last column collects unused picks and the own block. The own
            # block is then handled separately, under a causal mask.
            others = picks[:, rows]
            others = others.masked_fill((others < 0) | (others == tile), tile)
            picked = torch.zeros(heads, block, tile + 1, dtype=torch.bool)
            picked.scatter_(2, others, True)
            picked = picked[:, :, :tile]
            some = picked.any(1)
            width = int(some.sum(1).max()) if tile else 0
            chosen = some.byte().topk(width).indices if width else None
            k = self.k_blocks[self.kv, tile][:, None]
            v = self.v_blocks[self.kv, tile][:, None]
            mask = own_mask.expand(heads, block, block)
            if width:
                index = (self.kv[:, None], chosen)
                k = torch.cat((k, self.k_blocks[index]), 1)
                v = torch.cat((v, self.v_blocks[index]), 1)
                bits = picked.gather(
                    2, chosen[:, None].expand(heads, block, width)
                )
                more = torch.zeros(heads, block, width)
                more.masked_fill_(~bits, -INF)
                more = more[..., None].expand(heads, block, width, block)
                mask = torch.cat((mask, more.reshape(heads, block, -1)), 2)
            out[:, rows] = F.scaled_dot_product_attention(
                self.q[None, :, rows],
                k.reshape(1, heads, -1, self.dim),
                v.reshape(1, heads, -1, self.dim),
                attn_mask=mask[None].to(self.q.dtype),
            )[0]
        return out

    def by_blocks(self, picks):
        heads, block, dim = self.heads, self.block, self.dim
        shape = (heads * self.blocks, 1, block, dim)
        # The own blocks of all queries, in one call.
        out, lse = flash(
            self.q.reshape(shape),
            self.k_blocks[self.kv].view(shape),
            self.v_blocks[self.kv].view(shape),
            0.0,
            True,
        )
        out = out.reshape(heads, self.tokens, dim).float()
        lse = lse.reshape(heads, self.tokens, 1).float()
        own = (torch.arange(self.tokens) // block)[:, None]
        for h in range(heads):
            kv = int(self.kv[h])
            others = picks[h].masked_fill(picks[h] == own, -1).flatten()
            order = others.argsort()
            counts = torch.bincount(others + 1, minlength=self.blocks + 1)
            ends = counts.cumsum(0).tolist()
            queries = order // self.top
            for b in range(self.blocks):
                chosen = queries[ends[b] : ends[b + 1]]
                if len(chosen) == 0:
                    continue
                part, part_lse = flash(
                    self.q[h].index_select(0, chosen)[None, None],
                    self.k_blocks[kv, b][None, None],
                    self.v_blocks[kv, b][None, None],
                )
                part, part_lse = part[0, 0], part_lse.reshape(-1, 1)
                old = lse[h].index_select(0, chosen)
                both = torch.logaddexp(old, part_lse)
                sums = out[h].index_select(0, chosen)
                sums.mul_((old - both).exp_())
                sums.addcmul_(part.float(), (part_lse - both).exp_())
                out[h].index_copy_(0, chosen, sums)
                lse[h].index_copy_(0, chosen, both)
        return out.to(self.q.dtype)


def compare(problem, tensors, picks, out):
    """Four figures: the share of sampled picks that equal ours; the largest
    swap of a pick, as a share of its bound; the largest error of the judged
    outputs, as a share of the largest value and as a share of its bound."""
    queries = tensors["queries"].long()
    own = (queries // problem.block).numpy()
    ours = tensors["picks"].long().sort(-1).values
    theirs = picks[:, queries].sort(-1).values
    used = theirs >= 0
    found = (theirs[..., None] == ours[..., None, :]).any(-1)
    same = found[used].double().mean()
    swap = error = largest = share = 0.0
    judged = torch.linspace(0, len(queries) - 1, JUDGED).long()
    for h in range(problem.heads):
        q = problem.q[h, queries].double().numpy()
        k = problem.k_blocks[problem.kv[h]].double().numpy()
        swap = max(swap, worst_swap(q, k, own, ours[h].numpy(), theirs[h].numpy()))
        for some in judged.split(8):  # queries whose keys are in memory at once
            want = expected(problem, h, queries[some], theirs[h, some])
            got = out[h, queries[some]].float().numpy()[:, None, None]
            error = np.maximum(error, np.abs(got - want.value).max())
            largest = max(largest, np.abs(want.value).max())
            share = max(share, judge.shares(got, want).max())
    return float(same), swap, float(error / largest), float(share)


def expected(problem, h, queries, picks):
    """The outputs of one head's queries, each with the keys of its blocks."""
    keys = picks.clamp(min=0)[..., None] * problem.block
    keys = (keys + torch.arange(problem.block)).flatten(1)
    used = (picks >= 0).repeat_interleave(problem.block, 1)
    legal = (used & (keys <= queries[:, None])).numpy()
    kv = problem.kv[h]
    q = problem.q[h, queries][:, None, None]
    k, v = (x[kv, keys][:, None] for x in (problem.k, problem.v))
    dtype = str(problem.q.dtype).removeprefix("torch.")
    arrays = (x.float().numpy() for x in (q, k, v))
    return judge.attention(*arrays, legal[:, None], dtype=dtype)[0]


def main():
    args = parse()
    end = time.perf_counter() + args.budget
    torch.set_num_threads(args.threads)
    tensors = read_tensors(args.inputs)
    print(
        json.dumps(
            {"versions": {"torch": torch.__version__, "numpy": np.__version__}}
        ),
        flush=True,
    )
    problem = Problem(tensors, args.top, args.block)
    ways = {"tiles": problem.tiles, "blocks": problem.by_blocks}
    for way, attend in ways.items():
        line = {"way": way}
        try:
            runs = []
            with torch.no_grad():
                picks = problem.route()
                out = attend(picks)
                same, swap, error, share = compare(problem, tensors, picks, out)
                line.update(same_picks=same, error=error, bound_share=share)
                if not swap <= 1:
                    raise ValueError(
                        f"a pick is not ours, its score off by {swap:.2g} of the bound"
                    )
                if not share <= 1:
                    raise ValueError(f"its error is {share:.2g} of its bound")
                del picks, out
                start = time.perf_counter()
                while not runs or (
                    len(runs) < 50
                    and time.perf_counter() - start < args.seconds
                    and time.perf_counter() < end
                ):
                    a = time.perf_counter()
                    picks = problem.route()
                    b = time.perf_counter()
                    attend(picks)
                    c = time.perf_counter()
                    runs.append((c - a, b - a, c - b))
            middle = sorted(runs)[(len(runs) - 1) // 2]
            for name, seconds in zip(("ms", "route_ms", "attend_ms"), middle):
                line[name] = round(seconds * 1e3, 4)
            line["best_ms"] = round(min(runs)[0] * 1e3, 4)
            line["median_ms"] = round(
                statistics.median(r[0] for r in runs) * 1e3, 4
            )
            line["runs"] = len(runs)
        except Exception as e:  # any error of a library
            words = f"{type(e).__name__}: {e}".splitlines() or ["?"]
            line["why"] = words[0][:200]
        print(json.dumps(line), flush=True)


main()
