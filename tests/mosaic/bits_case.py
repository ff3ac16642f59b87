"""Requests whose masks cannot be told by bounds and ids: any atom under &, |
and !, masks by head, picks and trees. Legal pairs are computed here
independently, over whole arrays.
"""

import os
import tempfile

import numpy as np

from case import DIRECTIONS, Case, random_ids, tessera
from tensor_file import load, store


def text_of(e):
    name, *rest = e
    if name == "!":
        return f"!({text_of(rest[0])})"
    if name in "&|":
        return "(" + f" {name} ".join(map(text_of, rest)) + ")"
    return f"{name}({', '.join(map(str, rest))})" if rest else name


def names(e):
    if e[0] in "!&|":
        return set().union(*map(names, e[1:]))
    return {e[0]}


def same_letters(e):
    if e[0] in "!&|":
        return set().union(*map(same_letters, e[1:]))
    return {e[1]} if e[0] == "same" else set()


def random_expr(rng, atoms, depth):
    if depth == 0 or rng.random() < 0.3:
        return atoms[rng.integers(len(atoms))]
    kind = rng.choice(["!", "&", "|", "|"])
    count = 1 if kind == "!" else int(rng.integers(2, 4))
    return (kind, *(random_expr(rng, atoms, depth - 1) for _ in range(count)))


def random_tree(rng, batch, n):
    """enter and leave of tokens in depth-first order."""
    enter = np.tile(np.arange(n), (batch, 1))
    leave = np.zeros((batch, n), np.int64)
    for b in range(batch):
        depth, way = 0, []
        for t in range(n):
            depth = int(rng.integers(0, len(way) + 1)) if rng.random() < 0.05 else len(way)
            while len(way) > depth:
                leave[b, way.pop()] = t
            way.append(t)
        leave[b, way] = n
    return enter, leave


def ranks(ids):
    """For each token, how many tokens before it have the same id."""
    out = np.zeros(len(ids), np.int64)
    for value in np.unique(ids):
        at = np.flatnonzero(ids == value)
        out[at] = np.arange(len(at))
    return out


class Bits:
    """A mixin of a Case class of one direction."""

    @classmethod
    def draw_case(cls, rng, exprs, batch=1, picks=None, **settings):
        case = cls(rng, text_of(exprs[0]), batch=batch, **settings)
        case.exprs, case.picks = exprs, picks
        named = set().union(*map(names, exprs))
        n = case.kv_len
        most = np.full(batch, n) if case.valid is None else case.valid
        case.prefix = rng.integers(0, most + 1) if "prefix" in named else None
        case.tree = random_tree(rng, batch, n) if "tree" in named else None
        letters = {x for e in exprs for x in same_letters(e)}
        case.same = {x: random_ids(rng, batch, n) for x in sorted(letters)}
        if named & {"documents", "segments"} and case.ids is None:
            case.ids = random_ids(rng, batch, n)
        if not named & {"blocks", "routed"}:
            case.picks = None
        masks = [f for e in exprs for f in ("--mask", text_of(e))]
        case.static = masks + case.static[2:]
        return case

    def facts(self, folder):
        out = super().facts(folder)
        if self.prefix is not None:
            out += ["--prefix", ",".join(map(str, self.prefix))]
        for name, ids in self.same.items():
            path = os.path.join(folder, f"same_{name}.npy")
            np.save(path, ids.astype(np.int32))
            out += ["--same", f"{name}={path}"]
        for name in ("picks", "tree"):
            found = getattr(self, name)
            if found is None:
                continue
            path = os.path.join(folder, f"{name}.safetensors")
            arrays = (
                {"picks": found}
                if name == "picks"
                else dict(zip(("enter", "leave"), found))
            )
            store(path, {n: np.asarray(x, np.int32) for n, x in arrays.items()})
            out += [f"--{name}", path]
        return out

    def ids_veto(self):
        return self.ids is not None and all(
            names(e) & {"documents", "segments"} for e in self.exprs
        )

    def vetoed(self, b):
        ids = self.ids
        self.ids = ids if self.ids_veto() else None
        out = super().vetoed(b)
        self.ids = ids
        return out

    def vetoed_queries(self, b):
        ids = self.ids
        self.ids = ids if self.ids_veto() else None
        out = super().vetoed_queries(b)
        self.ids = ids
        return out

    def legal(self, b):
        """The legal pairs of a batch row, [heads, queries, keys]."""
        lists = max(len(self.exprs), 1 if self.picks is None else self.picks.shape[1])
        each = [self.legal_of(b, h, lists) for h in range(lists)]
        return np.repeat(np.stack(each), self.heads // lists, axis=0)

    def legal_of(self, b, h, lists):
        root = self.exprs[h * len(self.exprs) // lists]
        named = names(root)
        offset = self.kv_len - self.q_len
        if self.q_offset is not None:
            offset = self.q_offset[b]
        at = np.arange(self.q_len)[:, None] + offset
        key = np.arange(self.kv_len)[None, :]
        own = np.clip(at, 0, self.kv_len - 1)
        ids = runs = None
        if self.ids is not None:
            ids = self.ids[b]
            runs = np.cumsum(np.r_[0, ids[1:] != ids[:-1]])

        def sink(n):
            if "segments" in named:
                return (runs[own] == runs) & (ranks(runs) < n)
            if "documents" in named:
                return (ids[own] == ids) & (ranks(ids) < n)
            return np.broadcast_to(key < n, (self.q_len, self.kv_len))

        def holds(e):
            name, *rest = e
            if name == "!":
                return ~holds(rest[0])
            if name == "&":
                return np.logical_and.reduce([holds(x) for x in rest])
            if name == "|":
                return np.logical_or.reduce([holds(x) for x in rest])
            every = np.ones((self.q_len, self.kv_len), np.bool_)
            if name == "causal":
                return key <= at
            if name == "window":
                behind, ahead = rest
                out = every
                if behind >= 0:
                    out = out & (at - key <= behind)
                return out & (key - at <= ahead) if ahead >= 0 else out
            if name == "chunk":
                return at // rest[0] == key // rest[0]
            if name == "prefix":
                return every & (key < self.prefix[b])
            if name == "documents":
                return ids[own] == ids
            if name == "segments":
                return runs[own] == runs
            if name == "sink":
                return sink(rest[0])
            if name == "blocks":
                of = self.picks[b, h * self.picks.shape[1] // lists]
                return (of[:, :, None] == key // rest[0]).any(1)
            if name == "routed":
                of = self.picks[b, h * self.picks.shape[1] // lists]
                return self.united(of, at[:, 0], rest[1])[:, key[0] // rest[1]]
            if name == "tree":
                enter, leave = (x[b] for x in self.tree)
                return (enter <= enter[own]) & (enter[own] < leave)
            if name == "same":
                of = self.same[rest[0]][b]
                return (of[own] == of) & (of >= 0)
            if name == "full":
                return every
            raise AssertionError(name)

        out = holds(root)
        if self.valid is not None:
            out = out & (at < self.valid[b]) & (key < self.valid[b])
        if named & {"documents", "segments"}:
            out = out & (ids >= 0) & (ids[own] >= 0)
        return out


class Unions:
    """A mixin of a Bits class: with `routed` a query sees the blocks that any
    query of its row of tiles picks. This is read from a saved plan, since a
    file of picks means the picks of each query."""

    def lists(self):
        with tempfile.TemporaryDirectory() as folder:
            plan, path = (os.path.join(folder, name) for name in ("plan", "arrays"))
            static = list(map(str, self.static))
            at = static.index("--lowering-reason")
            reason = static[at : at + 2]
            tessera(
                *("plan", *static[:at], *static[at + 2 :], *self.facts(folder)),
                *("--meaning", "union", "--query-tile", self.tile_q, "-o", plan),
            )
            tessera(
                *("export", "--layout", "mosaic", "-o", path, "--plan", plan),
                *("--tiles-per-pass", self.tiles, *reason),
                *(f for f in self.direction if f in DIRECTIONS),
            )
            return load(path)

    def united(self, picks, at, block):
        """Booleans [queries, blocks]. Picks that begin after a query do not
        count."""
        own = np.zeros((self.q_len, -(-self.kv_len // block)), np.bool_)
        for t, of in enumerate(picks):
            own[t, of[(of >= 0) & (of * block <= at[t])]] = True
        for first in range(0, self.q_len, self.tile_q):
            row = slice(first, first + self.tile_q)
            own[row] = own[row].any(0)
        return own


ATOMS = (
    ("causal",), ("causal",), ("window", 70, 10), ("window", -1, 20), ("chunk", 96),
    ("prefix",), ("documents",), ("segments",), ("sink", 5), ("tree",), ("blocks",),
    ("full",), ("same", "a"), ("same", "b"),
)
# The granularities of index-sparse attention, and one that divides no tile.
GRANULARITIES = (1, 4, 48, 64, 128)


def random_picks(rng, batch, heads, q_len, kv_len, granularity):
    """For each query some blocks, ascending, with gaps; about 150 keys if
    blocks are small."""
    blocks = -(-kv_len // granularity)
    most = min(blocks, max(3, 150 // granularity))
    picks = rng.integers(0, blocks, (batch, heads, q_len, most))
    picks = np.sort(picks, axis=3)
    picks[..., 1:][picks[..., 1:] == picks[..., :-1]] = -1
    return picks


def random_bits_case(rng, kind, **settings):
    batch, heads = int(rng.integers(1, 3)), 4
    kv_len = int(rng.integers(1, 560))
    q_len = kv_len if rng.random() < 0.6 else int(rng.integers(1, kv_len + 1))
    lists = int(rng.choice([1, 1, 1, 2, 4]))
    granularity = int(rng.choice(GRANULARITIES))
    atoms = [ATOMS[i] for i in rng.choice(len(ATOMS), 3, replace=False)]
    atoms = [("blocks", granularity) if a[0] == "blocks" else a for a in atoms]
    exprs = [random_expr(rng, atoms, 2) for _ in range(lists)]
    picks = random_picks(rng, batch, 1, q_len, kv_len, granularity)
    return kind.draw_case(
        rng, exprs, batch=batch, picks=picks, heads=heads,
        kv_heads=int(rng.choice([1, 2, 4])), q_len=q_len, kv_len=kv_len,
        tile=(int(rng.choice([128, 256])), int(rng.choice([128, 256, 384]))),
        tiles=int(rng.integers(1, 4)), ahead=int(rng.integers(1, 6)),
        valid=rng.integers(0, kv_len + 1, batch) if rng.random() < 0.3 else None,
        **settings,
    )
