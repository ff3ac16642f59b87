"""Counts how evenly PyTorch's context-parallel load balancers spread packed
documents, compared to ours and to greedy placements, on the same documents and
by the same exact count of tiles. No attention runs.

    PYTHONPATH=build/python TORCH_PYTHON bench/peers/shard_torch.py -o FILE

PyTorch's balancers reorder the tokens before they are cut into equal parts. Its
masks and lists then follow that order, for keys too. So here every way is an
order of tokens, which is cut into tiles again.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import numpy as np
import tessera as ts
import tessera.torch
import torch
from torch.distributed.tensor.experimental._context_parallel import (
    _load_balancer as balancers)
from torch.nn.attention.flex_attention import create_block_mask

BENCH = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))
import documents  # noqa: E402

MASK, TILE = "causal & documents", 256
# (tokens, mean length, shards), as in `tessera-bench shard`.
CASES = ((1 << 17, 1536, 8), (1 << 17, 16384, 8), (1 << 20, 4096, 32))
PADDING = -1


class Packed:
    """The documents of a seed, with our plan and the figures of our shards."""

    def __init__(self, tokens, mean, seed, program):
        self.ids = np.array(documents.lognormal_ids(mean, seed, tokens), np.int32)
        self.lengths = np.bincount(self.ids)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.batch = ts.plan(MASK, q_len=tokens, doc_ids=self.ids,
                             tile=(TILE, TILE))
        drawn = json.loads(subprocess.run(
            [program, "plan", "--mask", MASK, "--q-len", str(tokens), "--docs",
             f"lognormal:mean={mean},seed={seed}", "--json"],
            check=True, stdout=subprocess.PIPE).stdout)
        if drawn["digest"] != self.batch.digest:
            raise SystemExit(f"seed {seed}: the program draws other documents")
        self.pairs = drawn["pairs"]["needed"]
        self.work = drawn["steps"]
        # Active tiles of each row of tiles, in the batch's order.
        self.rows = np.diff(self.batch.forward.row_start.astype(np.int64))

    def document(self, i):
        return self.starts[i] + np.arange(self.lengths[i])


def active_tiles(ids, at, tile=TILE):
    """Booleans [rows, columns]: tiles with a legal pair, if slot x has token
    at[x]; negative tokens are padding. A key is legal for a query of the same
    document that is not before it."""
    tiles = len(at) // tile
    active = np.zeros((tiles, tiles), bool)
    slot = np.flatnonzero(at >= 0)
    if not slot.size:
        return active
    token = at[slot]
    # The first and the last token of each document within each tile.
    key = ids[token].astype(np.int64) * tiles + slot // tile
    order = np.argsort(key, kind="stable")
    key, token = key[order], token[order]
    begin = np.flatnonzero(np.diff(key, prepend=-1))
    first = np.minimum.reduceat(token, begin)
    last = np.maximum.reduceat(token, begin)
    document, of_tile = np.divmod(key[begin], tiles)
    for part in np.split(np.arange(len(begin)),
                         np.flatnonzero(np.diff(document)) + 1):
        active[np.ix_(of_tile[part], of_tile[part])] |= (
            first[part] <= last[part, None])
    return active


def count(packed, orders):
    """The figures of a placement; `orders` has the tokens of each shard."""
    orders = [np.pad(o, (0, -len(o) % TILE), constant_values=PADDING)
              for o in orders]
    n, batch = len(orders), packed.batch
    tiles = np.array([len(o) // TILE for o in orders])
    owner = np.repeat(np.arange(n), tiles)
    at = np.concatenate(orders)
    held = np.sort(at[at >= 0])
    if not np.array_equal(held, np.arange(batch.q_len)):
        raise SystemExit("an order does not hold every token once")
    active = active_tiles(packed.ids, at)
    # As in our count, a row without a tile is one step, which writes zeros.
    steps = np.maximum(active.sum(1), 1)
    work = np.bincount(owner, steps, n)
    needed = sum(int(active[owner == s][:, owner != s].any(0).sum())
                 for s in range(n))
    place = np.arange(batch.q_len) - packed.starts[packed.ids]
    pairs = np.array([(place[o[o >= 0]] + 1).sum() for o in orders])
    if pairs.sum() != packed.pairs:
        raise SystemExit("the pairs are not those of the plan")
    rows = batch.q_len / TILE
    return {"work_max_over_mean": work.max() / work.mean(),
            "most_work_beside_even_plan": work.max() * n / packed.work,
            "pairs_max_over_mean": pairs.max() / pairs.mean(),
            "tokens_max_over_mean": tiles.max() * n / rows,
            "needed_beside_all_gather": needed / ((n - 1) * rows)}


def ours(packed, shards, balance):
    made = ts.shard(packed.batch, f"seq={shards}", balance=balance, heads=32,
                    kv_heads=8, head_dim=128)
    moved = made.forward
    gathered = moved["all_gather_bytes"]
    return made, {
        "work_max_over_mean": made.work_max_over_mean,
        "most_work_beside_even_plan": max(made.steps) * shards / packed.work,
        "tokens_max_over_mean": made.tokens_max_over_mean,
        "needed_beside_all_gather": moved["needed_bytes"] / gathered,
        "sent_beside_all_gather": moved["sent_bytes"] / gathered}


def of_tiles(tiles):
    """The tokens of these tiles, in the batch's order."""
    return (np.sort(np.asarray(tiles))[:, None] * TILE + np.arange(TILE)).ravel()


# Counts are exact. Both sides compute a figure from them with at most three
# float64 roundings.
ROUNDINGS = 2 * 3 * 2**-53


def check_by_ours(packed, shards, balance):
    """Our shards, whose reported figures must equal those of count()."""
    made, said = ours(packed, shards, balance)
    found = count(packed, [of_tiles(t[:, 1]) for t in made.query_tiles])
    if balance != "tasks":  # with tasks, another shard computes some of the rows
        for name, value in said.items():
            if (name in found and
                    abs(found[name] - value) > ROUNDINGS * value):
                raise SystemExit(f"{balance}: {name} is {value}, and counted "
                                 f"{found[name]}")
        said["pairs_max_over_mean"] = found["pairs_max_over_mean"]
    return said


def cut(order, shards):
    """Cuts an order into equal parts, as PyTorch does after it has
    reordered."""
    return list(order.reshape(shards, -1))


def torch_head_tail(packed, shards):
    made = balancers._HeadTailLoadBalancer(packed.batch.q_len, shards, "cpu")
    return cut(made._generate_indices()[0].numpy(), shards)


def torch_per_document(packed, shards):
    """PyTorch's per-document head-tail order. It needs lengths that 2 * shards
    divides, so each document is padded. Its masks need parts of whole tiles, so
    a document of padding fills the last ones."""
    part = 2 * shards
    padded = packed.lengths + -packed.lengths % part
    fill = -padded.sum() % (shards * TILE)
    lengths = [int(n) for n in padded] + ([int(fill)] if fill else [])
    made = balancers._PerDocumentHeadTailLoadBalancer([lengths], shards, "cpu")
    slots = np.full(sum(lengths), PADDING)
    at = 0
    for i, n in enumerate(padded):
        slots[at:at + packed.lengths[i]] = packed.document(i)
        at += n
    return cut(slots[made._generate_indices()[0].numpy()], shards)


def torch_ptrr(packed, shards):
    made = balancers._PTRRLoadBalancer(
        tessera.torch.block_mask(packed.batch), shards)
    return cut(made._generate_indices()[0].numpy(), shards)


def greedy(costs, shards, best_fit, most=None):
    """Places the most expensive item first. With best_fit an item goes to the
    shard where it leaves the least room below the mean; if it fits none, or
    without best_fit, to the shard with the least work. A shard has at most
    `most` items."""
    mean = costs.sum() / shards
    load, items = np.zeros(shards), [[] for _ in range(shards)]
    for i in np.argsort(-costs, kind="stable"):
        open_ = np.array([most is None or len(x) < most for x in items])
        to = np.where(open_, load, np.inf).argmin()
        fits = open_ & (load + costs[i] <= mean)
        if best_fit and fits.any():
            to = np.where(fits, load, -1).argmax()
        load[to] += costs[i]
        items[to].append(int(i))
    return items


def rows_by(best_fit):
    def order(packed, shards):
        """Places rows of tiles by their cost. The limit of tokens is that of
        ours."""
        rows = len(packed.rows)
        most = max(int(1.02 * rows / shards + 1e-9), -(-rows // shards))
        return [of_tiles(x)
                for x in greedy(packed.rows, shards, best_fit, most)]
    return order


def documents_by(best_fit):
    def order(packed, shards):
        """Places each document whole on one shard. A token costs its share of
        its row of tiles, as if the document began at a tile."""
        costs = np.array([(np.arange(n) // TILE + 1).sum() / TILE
                          for n in packed.lengths])
        return [np.concatenate([np.empty(0, np.int64)]
                               + [packed.document(i) for i in sorted(x)])
                for x in greedy(costs, shards, best_fit)]
    return order


# PyTorch always gathers all K and V, or sends all of them around a ring.
PEERS = {
    "PyTorch head-tail": torch_head_tail,
    "PyTorch per-document head-tail": torch_per_document,
    "PyTorch PTRR": torch_ptrr,
    "best fit of rows": rows_by(True),
    "least work first, rows": rows_by(False),
    "best fit of documents": documents_by(True),
    "least work first, documents": documents_by(False),
}
OURS = ("contiguous", "headtail", "rows", "tasks")


def check_count():
    """Checks that active_tiles() of an order equals create_block_mask's
    tiles."""
    tokens, shards, tile = 4096, 4, 64
    ids = np.array(documents.lognormal_ids(700, 1, tokens), np.int32)
    padded = torch.tensor(np.bincount(ids) // 8 * 8)
    lengths = [int(n) for n in padded] + [tokens - int(padded.sum())]
    ids = np.repeat(np.arange(len(lengths)), lengths).astype(np.int32)
    made = balancers._PerDocumentHeadTailLoadBalancer([lengths], shards, "cpu")
    at = made._generate_indices()[0]
    of = torch.from_numpy(ids)[at]
    mask = create_block_mask(
        lambda b, h, q, k: (of[q] == of[k]) & (at[q] >= at[k]), None, None,
        tokens, tokens, device="cpu", BLOCK_SIZE=tile)
    theirs = (mask.kv_num_blocks + mask.full_kv_num_blocks)[0, 0].numpy()
    found = active_tiles(ids, at.numpy(), tile)
    if not np.array_equal(found.sum(1), theirs):
        raise SystemExit("tiles are not counted as create_block_mask does")


def spread(values):
    """Median and p90, as `tessera-bench shard` takes them."""
    s = sorted(values)
    n = len(s)
    return {"median": float(np.median(s)), "p90": float(s[(n * 9 + 9) // 10 - 1])}


def show(row):
    def cell(name, scale=1, digits=3):
        if name not in row:
            return "-".rjust(16)
        m, p = (scale * row[name][x] for x in ("median", "p90"))
        return f"{m:.{digits}f} ({p:.{digits}f})".rjust(16)
    print(f"{row['way']:<31}" + cell("work_max_over_mean")
          + cell("most_work_beside_even_plan") + cell("pairs_max_over_mean")
          + cell("tokens_max_over_mean")
          + cell("needed_beside_all_gather", 100, 1), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--cases", default="0,1,2", help="cases to measure, of the three")
    parser.add_argument("--tessera", default=BENCH.parent / "build" / "tessera")
    parser.add_argument("-o", "--out", metavar="FILE.json")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    check_count()
    print(f"{MASK}, tile {TILE}, torch {torch.__version__}, {flags.seeds} seeds: "
          "median (p90); needed in % of an all-gather of K and V")
    rows = []
    for c in flags.cases.split(","):
        tokens, mean, shards = CASES[int(c)]
        print(f"\n{tokens} tokens, mean {mean}, {shards} shards\n" + " " * 31
              + "".join(x.rjust(16) for x in (
                  "work max/mean", "beside the plan", "pairs max/mean", "tokens",
                  "needed")))
        found = {}
        for seed in range(flags.seeds):
            packed = Packed(tokens, mean, seed, flags.tessera)
            for way in OURS:
                found.setdefault(way, []).append(
                    check_by_ours(packed, shards, way))
            for way, order in PEERS.items():
                found.setdefault(way, []).append(
                    count(packed, order(packed, shards)))
        for way, seeds in found.items():
            rows.append({"tokens": tokens, "mean": mean, "shards": shards,
                         "way": way, **{x: spread(s[x] for s in seeds)
                                        for x in seeds[0]}})
            show(rows[-1])
    result = {"bench": "shard_torch", "torch": torch.__version__,
              "numpy": np.__version__, "tessera": ts.__version__,
              "mask": MASK, "tile": TILE, "seeds": flags.seeds, "rows": rows}
    if flags.out:
        pathlib.Path(flags.out).write_text(json.dumps(result, indent=1) + "\n",
                                           encoding="utf-8")
    else:
        print("\n" + json.dumps(result))


if __name__ == "__main__":
    main()
