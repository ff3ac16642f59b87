"""The calls of a device's program of a mesh, run on arrays against fp64: the early,
the late and the last call, each of which continues in the arrays of the one before.
The legal pairs, and the call that takes each row or column, are drawn here, also in
ways that no shard would have."""

import base64
import os
import re
import tempfile
import unittest

import numpy as np
from ml_dtypes import bfloat16

import oracle
from case import tessera
from numbers_test import Strays, of_heads
from program import Program
from share_of_cases import some, stride

CALL = re.compile(
    r'"stablehlo\.custom_call"\((.*?)\) \{(call_target_name = "tpu_custom_call".*)\}'
    r' : \((.*?)\) -> \((.*?)\) loc\("(.*?)"\)'
)
MODULE = """module {{
  func.func public @main({arguments}) -> ({results}) {{
    %r:{count} = "stablehlo.custom_call"({operands}) {{{attributes}}} : ({types}) -> ({results})
    "func.return"({returned}) : ({results}) -> ()
  }}
}}
"""
NO_KEY, NOT_THERE = -1, -3
BEGINS, ENDS = 2, 1


def types_of(text):
    return re.findall(r"tensor<.*?>", text)


def shape_of(kind):
    return [int(n) for n in re.findall(r"(\d+)x", kind)]


def part_name(array, part):
    return f"{array}_{part}" if part else array


class Call:
    """One call as a separate program; `shapes` are those of its operands."""

    def __init__(self, found, turned):
        _, attributes, operands, results, self.label = found
        body = base64.b64decode(re.search(r"body\\22: \\22(.*?)\\22", attributes)[1])
        types = types_of(operands)
        # Tokens of a pass: keys, in backward calls queries.
        ring = "q_ring" if "backward" in self.label else "k_ring"
        found = re.search(rf"%{ring}: memref<\d+x(\d+)x(\d+)x", body.decode())
        self.pass_tokens = int(found[2 if turned else 1])
        self.shapes = [shape_of(t) for t in types]
        names = [f"%a{i}" for i in range(len(types))]
        count = len(types_of(results))
        self.program = Program(MODULE.format(
            arguments=", ".join(f"{n}: {t}" for n, t in zip(names, types)),
            operands=", ".join(names), types=", ".join(types), results=results,
            count=count, attributes=attributes,
            returned=", ".join(f"%r#{i}" for i in range(count)),
        ))

    def run(self, inputs, poison):
        return self.program.run(inputs, poison=poison, max_trips=100_000)


class Mesh:
    """The calls of the program that `tessera shard` emits for two devices, or for
    more: then the keys that travel lie in one array for each round. If `chunk` is
    given, backward works in chunks of that many rows of tiles."""

    def __init__(self, backward, heads, kv_heads, tile, sinks=False, dlse=False,
                 balance="rows", tokens=1280, dim=128, seq=2, numbers="finite",
                 chunk=None, row_sum="exact"):
        # A dim that does not fill lanes comes before the tokens.
        self.turned = dim % 128 != 0
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mesh.mlir")
            tessera(
                *("shard", "--mask", "full", "--q-len", tokens, "--mesh", f"seq={seq}"),
                *("--tile", f"{tile[0]}x{tile[1]}", "--heads", heads),
                *("--kv-heads", kv_heads, "--balance", balance, "--head-dim", dim),
                *("--lane", "mosaic", "--emit", path, "--numbers", numbers),
                *("--row-sum", row_sum),
                *("--lowering-reason", "a test of few tokens"),
                *["--backward"] * backward, *["--dlse"] * dlse,
                *["--sink-logits"] * sinks,
                *(("--query-chunk", chunk * tile[0]) if chunk else ()),
            )
            with open(path) as f:
                self.calls = [Call(found, self.turned)
                              for found in CALL.findall(f.read())]
        self.backward, self.sinks, self.dlse = backward, sinks, dlse
        self.heads, self.kv_heads, self.tile = heads, kv_heads, tile
        self.dim, self.chunk = dim, chunk
        self.rounded_sum = row_sum == "rounded"
        if chunk:
            rows = self.sizes()[0] // tile[0]
            first = self.calls[0]
            told = dict(zip(self.names(first), first.shapes))["rows"]
            assert rows > chunk and told == [-(-rows // chunk) * (2 + chunk)], told

    def turn(self, array):
        """Swaps tokens and dim if the calls have the tokens last."""
        return array.swapaxes(2, 3) if self.turned else array

    def names(self, call, parts=None):
        """The names of the call's operands, in the kernel's order."""
        parts = parts or self.parts(call)
        out = ["steps", "range", "bounds", "bits_of", "rows"]
        out += ["sink_logits"] * self.sinks + ["q"]
        out += [part_name(name, i) for name in "kv" for i in range(parts)]
        if self.backward:
            out += ["out", "dout", "lse"] + ["dlse"] * self.dlse
        out += ["q_ids", "kv_ids", "bits"]
        results = self.results()
        before = {
            "tessera_forward": results,
            "tessera_backward": ("dq", "dq_so_far"),
            "tessera_backward_last": ("dq", "dk", "dv", "dq_so_far"),
        }.get(call.label, ())
        return out + [f"{name}_before" for name in results if name in before]

    def parts(self, call):
        """The number of the call's arrays of keys. The late call has one for each
        round, forward after the device's own."""
        return 1 + (len(call.shapes) - len(self.names(call, 1))) // 2

    def came_tokens(self):
        """The number of tokens in each array of keys that travel."""
        late = self.calls[1]
        shapes = dict(zip(self.names(late), late.shapes))
        parts = range(not self.backward, self.parts(late))
        return [shapes[part_name("k", i)][3 if self.turned else 2] for i in parts]

    def results(self, call=None):
        if not self.backward:
            return ("out", "lse", "so_far")
        sinks = ("dsink_logits",) if self.sinks else ()
        parts = self.parts(call) if call else 1
        keys = [part_name(name, i) for name in ("dk", "dv") for i in range(parts)]
        # No other call reads the sums that wait between chunks.
        waits = ("dk_so_far", "dv_so_far") if self.chunk else ()
        return ("dq", *keys, *sinks, "dq_so_far", *waits)

    def sizes(self):
        """The numbers of queries, own keys and keys that travel, in tokens."""
        early = dict(zip(self.names(self.calls[0]), self.calls[0].shapes))
        tokens = 3 if self.turned else 2
        return early["q"][tokens], early["k"][tokens], sum(self.came_tokens())


class MeshCase:
    """Random arrays of a device, and the integers of each call."""

    full = 0.3  # share of tiles in which all pairs are legal
    there = 0.9, 0.95  # shares of queries that see, and of keys that are seen

    def __init__(self, rng, mesh, density):
        self.rng, self.mesh = rng, mesh
        bq, bkv = mesh.tile
        self.q_len, self.own, came = mesh.sizes()
        self.kv_len = self.own + came
        rows, columns = self.q_len // bq, self.kv_len // bkv
        self.rows, self.own_columns = rows, self.own // bkv
        full = rng.random((rows, columns)) < self.full
        active = rng.random((rows, columns)) < density
        pairs = rng.random((self.q_len, self.kv_len)) < 0.4
        tiles = np.kron(active, np.ones((bq, bkv), bool))
        pairs |= np.kron(full, np.ones((bq, bkv), bool))
        # Some queries and keys are missing or vetoed.
        self.q_ids = np.where(rng.random(self.q_len) < self.there[0], 0, -2)
        self.q_ids[-5:] = NOT_THERE
        self.kv_ids = np.where(rng.random(self.kv_len) < self.there[1], 0, NO_KEY)
        self.legal = pairs & tiles & (self.q_ids == 0)[:, None]
        self.legal &= (self.kv_ids == 0)[None]
        self.tiles = self.legal.reshape(rows, bq, columns, bkv)
        self.active = self.tiles.any((1, 3))
        self.draw()

    def draw(self):
        rng, mesh = self.rng, self.mesh
        q, k, v = oracle.hard_inputs(
            rng.integers(1 << 30), (1, mesh.heads, self.q_len, mesh.dim),
            (1, mesh.kv_heads, self.kv_len, mesh.dim), v_dim=mesh.dim,
            dtype=bfloat16,
        )
        legal = self.legal[None]
        sinks = None
        if mesh.sinks:
            sinks = rng.standard_normal(mesh.heads).astype(np.float32)
        self.arrays = {"q": q, "k": k, "v": v, "sink_logits": sinks}
        if not mesh.backward:
            self.want = oracle.attention(
                q, k, v, legal, rounded_sum=mesh.rounded_sum, sinks=sinks)
        else:
            self.draw_gradients(q, k, v, legal, sinks)
        gone = np.broadcast_to((self.q_ids < 0)[None, None], q.shape[:3])
        for name in ("q", "out", "dout", "lse"):
            if name in self.arrays:
                self.arrays[name][gone] = np.nan
        gone = np.broadcast_to((self.kv_ids < 0)[None, None], k.shape[:3])
        k[gone] = v[gone] = np.nan

    def draw_gradients(self, q, k, v, legal, sinks):
        rng, shape = self.rng, q.shape[:3]
        dout = rng.standard_normal((*shape, self.mesh.dim)).astype(bfloat16)
        dlse = rng.standard_normal(shape).astype(np.float32)
        # A missing query has no gradient.
        dout[:, :, -5:] = 0
        dlse[:, :, -5:] = 0
        dlse = dlse if self.mesh.dlse else None
        saved = oracle.attention(q, k, v, legal, sinks=sinks)
        out, lse = saved.out.astype(bfloat16), saved.lse.astype(np.float32)
        self.want = oracle.gradients(
            q, k, v, dout, legal, dlse, None, out, lse, 0.0, sinks=sinks
        )
        self.arrays |= {"out": out, "dout": dout, "lse": lse, "dlse": dlse}

    def run(self, poison):
        """The results of the calls by name, and those that only the late call has."""
        mesh = self.mesh
        calls = self.backward_calls() if mesh.backward else self.forward_calls()
        left, apart = {}, {}
        for call, told in zip(mesh.calls, calls):
            inputs = [
                left[name] if name.endswith("_before")
                else self.array(call, told, name, call.shapes[i])
                for i, name in enumerate(mesh.names(call))
            ]
            made = dict(zip(mesh.results(call), call.run(inputs, poison)))
            late = mesh.backward and call.label == "tessera_backward"
            if late:
                for name in ("dk", "dv"):
                    parts = [made.pop(part_name(name, i))
                             for i in range(mesh.parts(call))]
                    made[name] = np.concatenate(parts, 3 if mesh.turned else 2)
            for name, array in made.items():
                if name == "dsink_logits":
                    apart[name] = apart.get(name, 0) + array
                elif late and name in ("dk", "dv"):
                    apart[name] = array
                else:
                    left[f"{name}_before"] = array
        return left, apart

    def array(self, call, told, name, shape):
        if name in told:
            return np.resize(np.array(told[name], np.int32), shape)
        if name == "bounds":
            return np.zeros(shape, np.int32)
        if name == "bits":
            return self.bitmaps(shape)
        if name == "sink_logits":
            return self.arrays[name]
        late = call.label in ("tessera_forward", "tessera_backward")
        whole = late and not self.mesh.backward
        keys = slice(self.own, None) if late else slice(0, self.own)
        if name == "q_ids":
            return self.q_ids.astype(np.int32).reshape(shape)
        if name == "kv_ids":
            ids = self.kv_ids.astype(np.int32)
            return (ids if whole else ids[keys]).reshape(shape)
        if name[0] in "kv":
            return self.mesh.turn(self.keys_of(call, name))
        if name in ("q", "out", "dout"):
            return self.mesh.turn(self.arrays[name])
        return self.arrays[name].reshape(shape)

    def keys_of(self, call, name):
        """The tokens of K or V that an array of a call has."""
        mesh = self.mesh
        array, _, part = name.partition("_")
        part, late = int(part or 0), call is mesh.calls[1]
        if not late or (part == 0 and not mesh.backward):
            return self.arrays[array][:, :, :self.own]
        edges = self.own + np.cumsum([0, *mesh.came_tokens()])
        at = part if mesh.backward else part - 1
        return self.arrays[array][:, :, edges[at]:edges[at + 1]]

    def bitmaps(self, shape):
        """The bitmaps: no pair, all pairs, then one for each tile."""
        bq, bkv = self.mesh.tile
        words, lines = np.zeros(shape, np.uint32), shape[1]
        words[1] = (1 << (bkv // lines)) - 1
        rows, columns = self.active.shape
        for r, c in np.ndindex(rows, columns):
            tile = self.tiles[r, :, c, :].T.reshape(bkv // lines, lines, bq)
            bits = np.arange(bkv // lines, dtype=np.uint32)[:, None, None]
            number = 2 + r * columns + c
            words[number] = (tile.astype(np.uint32) << bits).sum(0, dtype=np.uint32)
        return words.view(np.int32)

    def steps(self, runs):
        """The steps of a call, from runs of (number, tiles, bitmap of a tile)."""
        words, bits = [], []
        side = self.mesh.tile[0 if self.mesh.backward else 1]
        of_pass = self.mesh.calls[0].pass_tokens // side
        for number, tiles, bitmap in runs:
            live = max(len(tiles), 1)
            filled = -(-live // of_pass) * of_pass
            for i in range(filled):
                flags = (i == 0) << 1 | (i + 1 == filled)
                at = tiles[min(i, live - 1)] if tiles else self.spare
                # Forward, class 3 has keys that must be cleaned, also without a
                # legal pair, and class 2 has all pairs. Padding is class 0.
                kind = 1 if self.mesh.backward else 3
                if tiles and i < live and self.is_full(bitmap(at)):
                    kind = 2
                if i >= live or (self.mesh.backward and not tiles):
                    kind = 0
                words.append(number << 18 | at << 4 | kind << 2 | flags)
                bits.append(bitmap(at) if kind and tiles else 0)
        return {"range": [0, len(words)], "steps": words or [0], "bits_of": bits or [0]}

    def number(self, r, c):
        return 2 + r * self.active.shape[1] + c

    def is_full(self, number):
        r, c = divmod(number - 2, self.active.shape[1])
        return self.tiles[r, :, c].all()

    def forward_calls(self):
        self.spare = 0
        own = np.arange(self.active.shape[1]) < self.own_columns
        # In some rows all tiles are late, like those of queries that travel.
        moved = self.rng.random(self.rows) < 0.2
        early = self.active & own & ~moved[:, None]
        late = self.active & ~early
        # A row without a key is late if its queries travel, else early.
        none = ~self.active.any(1)
        has = np.stack([early.any(1) | none & ~moved, late.any(1) | none & moved])
        out = []
        for call, part in enumerate((early, late)):
            told = self.steps([
                (r, list(map(int, np.flatnonzero(part[r]))),
                 lambda c, r=r: self.number(r, c))
                for r in map(int, np.flatnonzero(has[call]))
            ])
            words = [
                r << 2 | BEGINS * (not has[:call, r].any())
                | ENDS * (not has[call + 1:, r].any())
                for r in range(self.rows)
            ]
            told["rows"] = [self.rows, 0, *words]
            out.append(told)
        return [self.fit(told) for told in out]

    def backward_calls(self):
        cut = int(self.rng.integers(0, self.own_columns))
        spans = ((0, cut), (self.own_columns, self.active.shape[1]),
                 (cut, self.own_columns))
        has = np.stack([self.active[:, a:b].any(1) for a, b in spans])
        has[0] |= ~has.any(0)
        out = []
        for call, (begin, end) in enumerate(spans):
            words = {}
            for r in map(int, np.flatnonzero(has[call])):
                begins = not has[:call, r].any()
                ends = not has[call + 1:, r].any()
                words[r] = r << 2 | BEGINS * begins | ENDS * ends
            shift = begin if call == 1 else 0
            told = {"range": [0], "steps": [], "bits_of": [], "rows": []}
            chunks = self.chunks(begin, end)
            for rows, columns, _ in chunks:
                # If the chunk has no row of this column, one row is read and written.
                own = [words[r] for r in rows if r in words] or [rows[0] << 2]
                self.spare = own[0] >> 2
                part = self.steps([
                    (c - shift, [r for r in rows if c < end and self.active[r, c]],
                     lambda r, c=c: self.number(r, c)) for c in columns])
                told["range"].append(told["range"][-1] + part["range"][1])
                for name in ("steps", "bits_of"):
                    told[name] += part[name]
                told["rows"] += [len(own), columns[0] - shift, *own,
                                 *[0] * ((self.mesh.chunk or self.rows) - len(own))]
            if self.mesh.chunk:
                told["range"] += [c - shift if i != 2 or at else 0
                                  for at, chunk in enumerate(chunks)
                                  for i, c in enumerate(chunk[2])]
            out.append(told)
        return [self.fit(told) for told in out]

    def chunks(self, begin, end):
        """For each chunk of a call: its rows, its columns (at least one of those from
        `begin` to `end`), and the words of the columns (shape.h). The columns are those
        from the first to the last that the chunk needs, or all. First and last columns
        rise from chunk to chunk."""
        size = self.mesh.chunk or self.rows
        rows = [range(r, min(r + size, self.rows))
                for r in range(0, self.rows, size)]
        needs = [begin + np.flatnonzero(self.active[r.start:r.stop, begin:end].any(0))
                 for r in rows]
        end = max(end, begin + 1)
        first = [int(n[0]) if n.size else end - 1 for n in needs] + [end]
        first[0] = begin
        for i in reversed(range(1, len(rows))):
            first[i] = min(first[i], first[i + 1])
        last, before = [], begin
        for i, n in enumerate(needs):
            before = max(before, first[i] + 1, first[i + 1],
                         int(n[-1]) + 1 if n.size else 0)
            last.append(before)
        if self.mesh.chunk and self.rng.random() < 0.3:
            first[:-1] = [begin] * len(rows)
            last = [end] * len(rows)
        met = [begin, *last[:-1]]  # the end of the columns of earlier chunks
        due = [*first[1:-1], last[-1]]  # the first column of later chunks
        return [(rows[i], range(first[i], last[i]), (first[i], last[i], met[i], due[i]))
                for i in range(len(rows))]

    def fit(self, told):
        """Pads the integers to the sizes of the kernel's arrays."""
        room = dict(zip(self.mesh.names(self.mesh.calls[0]), self.mesh.calls[0].shapes))
        assert len(told["range"]) == room["range"][0], (told["range"], room["range"])
        for name, fill in (("steps", 0), ("bits_of", 0), ("rows", 0)):
            if name in told:
                n = room[name][0]
                assert len(told[name]) <= n, (name, len(told[name]), n)
                told[name] = told[name] + [fill] * (n - len(told[name]))
        return told

    def made(self, poison):
        """The results of all calls, by the oracle's names."""
        left, apart = self.run(poison)
        turn = self.mesh.turn
        if not self.mesh.backward:
            return {"out": turn(left["out_before"]),
                    "lse": left["lse_before"][:, :, 0]}
        out = {"dq": turn(left["dq_before"])}
        for name in ("dk", "dv"):
            out[name] = np.concatenate(
                [turn(left[f"{name}_before"]), turn(apart[name])], 2)
        if self.mesh.sinks:
            out["dsinks"] = apart["dsink_logits"]
        return out

    def worst(self, name, found):
        want = getattr(self.want, name), getattr(self.want, f"{name}_error")
        if name == "dsinks":
            want = (np.broadcast_to(x[:, None, None], found.shape) for x in want)
        clean = self.clean(name)
        return oracle.worst(*(x[clean] for x in (found, *want)))

    def clean(self, name):
        """The elements that are judged: all rows, and all heads of sinks."""
        return ...

    def claims(self):
        return np.ones(3, bool)

    def error(self, poison):
        return max(self.worst(name, x) for name, x in self.made(poison).items())


FORWARD = (
    dict(heads=2, kv_heads=1, tile=(128, 128)),
    dict(heads=4, kv_heads=4, tile=(128, 256), sinks=True),
    dict(heads=4, kv_heads=2, tile=(128, 128), dim=64),
    dict(heads=2, kv_heads=1, tile=(128, 128), tokens=1920, seq=4),
    # The keys of nine rounds are joined.
    dict(heads=1, kv_heads=1, tile=(128, 128), seq=10),
    # Two strips for each tile.
    dict(heads=2, kv_heads=1, tile=(512, 128), dim=256, tokens=2048),
)
BACKWARD = (
    dict(heads=2, kv_heads=1, tile=(128, 128)),
    dict(heads=4, kv_heads=2, tile=(128, 128), sinks=True, dlse=True),
    # Heads take turns over keys.
    dict(heads=6, kv_heads=1, tile=(256, 128), sinks=True),
    dict(heads=4, kv_heads=2, tile=(128, 128), dim=64, dlse=True),
    dict(heads=4, kv_heads=2, tile=(128, 128), tokens=1920, seq=4),
    dict(heads=1, kv_heads=1, tile=(128, 128), seq=10),
)
# `chunk` is in rows of tiles, of which a device has 3 to 5.
CHUNKS = (
    dict(heads=2, kv_heads=1, tile=(128, 128), chunk=2),
    dict(heads=4, kv_heads=2, tile=(128, 128), sinks=True, dlse=True, chunk=1),
    # Heads take turns over keys.
    dict(heads=6, kv_heads=1, tile=(256, 128), sinks=True, chunk=2),
    dict(heads=4, kv_heads=2, tile=(128, 128), dim=64, dlse=True, chunk=4),
    dict(heads=4, kv_heads=2, tile=(128, 128), tokens=1920, seq=4, chunk=3),
)
FORWARD_CALLS = ["tessera_forward_early", "tessera_forward"]
BACKWARD_CALLS = ["tessera_backward_early", "tessera_backward",
                  "tessera_backward_last"]


class StrayCase(Strays, MeshCase):
    """A case with NaN and infinity at tokens without a veto (numbers_test.py)."""

    batch = 1

    def draw(self):
        MeshCase.draw(self)
        # There are many pairs, so one stray reaches half of all results.
        self.odds = 1 / self.kv_len / 8
        self.heads, self.kv_heads = self.mesh.heads, self.mesh.kv_heads
        self.pairs = of_heads(self.legal[None], self.heads)
        arrays = self.arrays
        self.spoil([arrays[name] for name in "qkv"])
        if not self.mesh.backward:
            return
        arrays["out"][self.spoiled] = np.nan
        arrays["lse"][self.spoiled] = np.nan
        hit, _ = self.scatter(arrays["dout"], self.q_len)
        self.spoiled |= hit

    def clean(self, name):
        if name in ("dk", "dv"):
            return ~self.reached()
        if name == "dsinks":
            return ~self.spoiled.any((0, 2))
        return ~self.spoiled


class Shards(unittest.TestCase):
    def check(self, backward, kinds, calls, case_of=MeshCase, **more):
        judged = np.zeros(3, int)
        for at, kind in some(list(enumerate(kinds))):
            mesh = Mesh(backward, **kind, **more)
            self.assertEqual([c.label for c in mesh.calls], calls)
            for seed, density in enumerate((0.35, 0.1, 0.8)):
                with self.subTest(kind=kind, seed=seed):
                    rng = np.random.default_rng((at, seed))
                    case = case_of(rng, mesh, density)
                    self.assertLessEqual(case.error((-1, 7)[seed % 2]), 1)
                    judged += case.claims()
        if stride() == 1:  # with all cases, each claim is judged at least once
            self.assertTrue((judged > 0).all(), judged)

    def test_forward(self):
        self.check(False, FORWARD, FORWARD_CALLS)

    def test_a_rounded_sum(self):
        self.check(False, FORWARD[:4], FORWARD_CALLS, row_sum="rounded")

    def test_backward(self):
        self.check(True, BACKWARD, BACKWARD_CALLS)

    def test_backward_in_chunks_of_queries(self):
        self.check(True, CHUNKS, BACKWARD_CALLS)

    def test_chunks_of_a_device_without_work(self):
        """Gradients are 0, except a sink's, which has queries without a key."""
        for kind in some(CHUNKS[1:3]):
            with self.subTest(kind=kind):
                case = MeshCase(np.random.default_rng(7), Mesh(True, **kind), 0.0)
                self.assertFalse(case.active.any())
                made = case.made(-1)
                for name in ("dq", "dk", "dv"):
                    self.assertTrue((made[name] == 0).all(), name)
                self.assertLessEqual(case.worst("dsinks", made["dsinks"]), 1)

    def test_any_numbers(self):
        for backward, kinds, calls in ((False, FORWARD, FORWARD_CALLS),
                                       (True, BACKWARD, BACKWARD_CALLS),
                                       (True, CHUNKS, BACKWARD_CALLS)):
            self.check(backward, kinds[:4], calls, StrayCase, numbers="any")


if __name__ == "__main__":
    unittest.main()
