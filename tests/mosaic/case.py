"""Requests with their facts, whose kernels are run on arrays and checked by
fp64.

Masks, facts and sizes are random. The program's text comes from `tessera
compile --emit`, its arrays from `tessera export --layout mosaic`. Numbers that
a count or a negative id excludes, and numbers beyond the lengths, are NaN.
"""

import json
import os
import subprocess
import tempfile

import numpy as np
from ml_dtypes import bfloat16

import oracle
from program import Program
from tensor_file import load

TESSERA = os.environ.get("TESSERA", "../../build/tessera")
# Arrays that a kernel reads before the tensors and after them; bits if it has
# them.
SCALARS = ("steps", "range", "bounds", "bits_of")
IDS = ("q_ids", "kv_ids", "bits")
# Flags that `export` has too.
DIRECTIONS = ("--backward", "--sink-telemetry")
# Types of tensors, as the program names them.
WORDS = {np.dtype(bfloat16): "bf16", np.dtype(np.float32): "f32"}


def tessera(*arguments):
    done = subprocess.run(
        [TESSERA, *map(str, arguments)], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


class Case:
    """One request with its facts, for kernels of any direction."""

    direction = ()  # flags

    def __init__(
        self,
        rng,
        mask,
        batch=1,
        heads=2,
        kv_heads=1,
        q_len=300,
        kv_len=300,
        tile=(128, 128),
        tiles=2,
        ahead=4,
        ids=None,
        valid=None,
        q_offset=None,
        scale=None,
        softcap=0.0,
        ceilings=(),
        dims=(128, 128),
        sinks=False,
        dtype=bfloat16,
    ):
        self.rng = rng
        self.dim, self.v_dim = dims
        self.dtype = np.dtype(dtype)
        self.mask, self.batch = mask, batch
        self.heads, self.kv_heads = heads, kv_heads
        self.q_len, self.kv_len = q_len, kv_len
        self.ids, self.valid, self.q_offset = ids, valid, q_offset
        self.tiles, self.scale, self.softcap = tiles, scale, softcap
        self.static = [
            *("--mask", mask, "--batch", batch, "--q-len", q_len),
            *("--kv-len", kv_len, "--tile", f"{tile[0]}x{tile[1]}"),
            *ceilings,
        ]
        if min(tile) < 256:
            self.static += ["--lowering-reason", "a test of few tokens"]
        self.ahead, self.tile_q = ahead, tile[0]
        self.sinks = self.draw_sinks() if sinks else None

    def draw_sinks(self):
        """A logit for each head: among its scores, far below them, far above
        some (oracle.hard_inputs), without any share or with all of it."""
        rng = self.rng
        kinds = [2 * rng.standard_normal(), -160 + 2 * rng.standard_normal(),
                 30.0, -np.inf, -3e38, 3e38]
        odds = [0.4, 0.3, 0.15, 0.05, 0.05, 0.05]
        return np.array([rng.choice(kinds, p=odds) for _ in range(self.heads)],
                        np.float32)

    def facts(self, folder):
        out = []
        if self.ids is not None:
            path = os.path.join(folder, "ids.npy")
            np.save(path, self.ids.astype(np.int32))
            out += ["--docs", path]
        if self.valid is not None:
            out += ["--valid", ",".join(map(str, self.valid))]
        if self.q_offset is not None:
            out += [f"--q-offset={','.join(map(str, self.q_offset))}"]
        return out

    def emit(self):
        """The program's text, and the JSON of the command."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kernel.mlir")
            # Only the presence of counts matters here, not their values.
            more = [] if self.valid is None else ["--valid", "1"]
            more += [] if self.scale is None else ["--scale", self.scale]
            more += [] if self.softcap == 0 else ["--softcap", self.softcap]
            more += [] if self.sinks is None else ["--sink-logits"]
            said = tessera(
                *("compile", "--target", "v6e:1x1", "--emit", path),
                *("--no-compile", "--json", *self.static, *more),
                *("--heads", self.heads, "--kv-heads", self.kv_heads),
                *("--head-dim", self.dim, "--v-head-dim", self.v_dim),
                *("--dtype", WORDS[self.dtype]),
                *("--tiles-per-pass", self.tiles),
                *("--fetch-ahead", self.ahead),
                *self.direction,
            )
            with open(path) as f:
                return f.read(), json.loads(said)["kernel"]

    def lists(self):
        """The arrays of ids and steps, by name."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "arrays.safetensors")
            tessera(
                *("export", "--layout", "mosaic", "-o", path),
                *(*self.static, *self.facts(folder)),
                *("--tiles-per-pass", self.tiles),
                *(f for f in self.direction if f in DIRECTIONS),
            )
            return load(path)

    def scalars(self, lists):
        """The arrays that a kernel reads before the tensors."""
        out = [lists[name] for name in SCALARS if name in lists]
        return out if self.sinks is None else [*out, self.sinks]

    def draw(self):
        """q, k, v, and the legal pairs."""
        q, k, v = oracle.hard_inputs(
            self.rng.integers(1 << 30),
            (self.batch, self.heads, self.q_len, self.dim),
            (self.batch, self.kv_heads, self.kv_len, self.dim),
            v_dim=self.v_dim,
            dtype=self.dtype,
        )
        # Rows with large scores differ from tile to tile, so that state left
        # from the tile before is wrong.
        for at in range(0, self.q_len, 128):
            q[:, :, at : at + 128] = np.roll(
                q[:, :, at : at + 128], at // 128, axis=2
            )
        legal = np.stack([self.legal(b) for b in range(self.batch)])
        vetoed = np.stack([self.vetoed(b) for b in range(self.batch)])
        for x in (k, v):
            x[np.broadcast_to(vetoed[:, None, :], x.shape[:3])] = np.nan
        return q, k, v, legal

    def padded(self, x, room, tokens, axis=2):
        """x in an array of the kernel's size, with NaN beyond the batch's
        own."""
        shape = list(x.shape)
        shape[0], shape[axis] = room["batch"], room[tokens]
        full = np.full(shape, np.nan, x.dtype)
        full[tuple(slice(n) for n in x.shape)] = x
        return full

    def vetoed_queries(self, b):
        """The queries that a count or a negative id excludes; they see no
        key."""
        offset = self.kv_len - self.q_len
        if self.q_offset is not None:
            offset = self.q_offset[b]
        position = np.arange(self.q_len) + offset
        out = np.zeros(self.q_len, np.bool_)
        if self.valid is not None:
            out |= position >= self.valid[b]
        if self.ids is not None:
            out |= self.ids[b][np.clip(position, 0, self.kv_len - 1)] < 0
        return out

    def vetoed(self, b):
        """The keys that a count or a negative id excludes for all queries."""
        count = self.kv_len if self.valid is None else self.valid[b]
        out = np.arange(self.kv_len) >= count
        return out if self.ids is None else out | (self.ids[b] < 0)

    def legal(self, b):
        window = (-1, -1)
        if "window" in self.mask:
            text = self.mask.split("window(")[1].split(")")[0]
            window = tuple(int(x) for x in text.split(","))
        ids = None if self.ids is None else self.ids[b].copy()
        if "segments" in self.mask:
            runs = np.cumsum(np.r_[0, ids[1:] != ids[:-1]])
            ids = np.where(ids < 0, -1, runs)
        if "documents" not in self.mask and "segments" not in self.mask:
            ids = None
        return oracle.legal_pairs(
            self.q_len,
            self.kv_len,
            causal="causal" in self.mask,
            window=window,
            doc_ids=ids,
            valid_count=None if self.valid is None else self.valid[b],
            q_offset=None if self.q_offset is None else self.q_offset[b],
        )


def random_ids(rng, batch, n):
    """Documents of uneven lengths, with repeated ids and padding anywhere."""
    ids = np.zeros((batch, n), np.int32)
    for b in range(batch):
        cuts = np.sort(rng.integers(0, n, rng.integers(0, 7)))
        edges = [0, *cuts, n]
        for begin, end in zip(edges, edges[1:]):
            ids[b, begin:end] = rng.integers(-1, 4)
    return ids


MASKS = (
    "causal & documents",
    "causal & documents",
    "causal",
    "full",
    "documents",
    "causal & segments",
    "causal & window(90, 0) & documents",
    "window(70, 40)",
    "window(-1, 30) & documents",
)


def random_case(rng, kind, **settings):
    mask = str(rng.choice(MASKS))
    batch = int(rng.integers(1, 4))
    kv_len = int(rng.integers(1, 640))
    q_len = int(rng.integers(1, kv_len + 1))
    if rng.random() < 0.5:
        q_len = kv_len
    named = "documents" in mask or "segments" in mask
    q_offset = None
    if rng.random() < 0.3:
        # Positions may be outside the keys if no ids are read.
        low = 0 if named else -50
        high = kv_len - q_len if named else kv_len
        q_offset = rng.integers(low, high + 1, batch)
    kv_heads = int(rng.integers(1, 3))
    return kind(
        rng,
        mask,
        batch=batch,
        heads=kv_heads * int(rng.integers(1, 3)),
        kv_heads=kv_heads,
        q_len=q_len,
        kv_len=kv_len,
        tile=(int(rng.choice([128, 256])), int(rng.choice([128, 256]))),
        tiles=int(rng.integers(1, 5)),
        ahead=int(rng.integers(1, 7)),
        ids=random_ids(rng, batch, kv_len) if named else None,
        valid=(
            rng.integers(0, kv_len + 1, batch)
            if rng.random() < 0.3
            else None
        ),
        q_offset=q_offset,
        scale=float(rng.choice([1.0, 0.02, 30.0])) if rng.random() < 0.4 else None,
        **settings,
    )


def run_one_contract(make_case, **settings):
    """Runs twelve batches of one contract with the program of the first."""
    rng = np.random.default_rng(7)
    first = program = None
    for _ in range(12):
        n = int(rng.integers(400, 513))
        case = make_case(
            rng,
            "causal & documents",
            batch=2,
            q_len=n,
            kv_len=n,
            ids=random_ids(rng, 2, n),
            valid=rng.integers(1, n + 1, 2),
            ceilings=("--max-steps", 200, "--max-width", 8),
            **settings,
        )
        text, room = case.emit()
        if program is None:
            first, program = (room["contract"], text), Program(text)
        if (room["contract"], text) != first:
            raise AssertionError("a batch must have the contract and text of "
                                 "the first")
        outputs = program.run(case.arrays(room), max_trips=10_000)
        error = case.error(outputs)
        if not error <= 1:
            raise AssertionError(f"error of {error} of its bound")
