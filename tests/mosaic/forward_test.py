"""The kernel that `tessera compile` emits, run on arrays against fp64.

Requests, facts and sizes are drawn at random; the program's text comes from
`tessera compile --emit`, its arrays from `tessera export --layout mosaic`.
Every key that a count or a negative id vetoes, and every byte beyond the
lengths, is NaN.
"""

import json
import os
import subprocess
import tempfile
import unittest

import numpy as np
from ml_dtypes import bfloat16

import mutate
import oracle
from program import Program

TESSERA = os.environ.get("TESSERA", "../../build/tessera")
DIM = 128


def tessera(*arguments):
    done = subprocess.run(
        [TESSERA, *map(str, arguments)], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


def read_safetensors(path):
    with open(path, "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(size))
        data = f.read()
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(
            data[slice(*t["data_offsets"])], np.int32
        ).reshape(t["shape"])
        for name, t in header.items()
    }


class Case:
    """One request with its facts, arrays and what must come out."""

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
        ceilings=(),
    ):
        self.rng = rng
        self.mask, self.batch = mask, batch
        self.heads, self.kv_heads = heads, kv_heads
        self.q_len, self.kv_len = q_len, kv_len
        self.ids, self.valid, self.q_offset = ids, valid, q_offset
        self.tiles, self.scale = tiles, scale
        self.static = [
            *("--mask", mask, "--batch", batch, "--q-len", q_len),
            *("--kv-len", kv_len, "--tile", f"{tile[0]}x{tile[1]}"),
            *ceilings,
        ]
        self.ahead = ahead

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
        """The program's text and what the command says of it."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kernel.mlir")
            # Counts are there in every batch; what they say is not read.
            more = [] if self.valid is None else ["--valid", "1"]
            more += [] if self.scale is None else ["--scale", self.scale]
            said = tessera(
                *("compile", "--target", "v6e:1x1", "--emit", path),
                *("--no-compile", "--json", *self.static, *more),
                *("--heads", self.heads, "--kv-heads", self.kv_heads),
                *("--tiles-per-pass", self.tiles),
                *("--fetch-ahead", self.ahead),
            )
            with open(path) as f:
                return f.read(), json.loads(said)["kernel"]

    def arrays(self, room):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "arrays.safetensors")
            tessera(
                *("export", "--layout", "mosaic", "-o", path),
                *(*self.static, *self.facts(folder)),
                *("--tiles-per-pass", self.tiles),
            )
            arrays = read_safetensors(path)
        q, k, v = oracle.hard_inputs(
            self.rng.integers(1 << 30),
            (self.batch, self.heads, self.q_len, DIM),
            (self.batch, self.kv_heads, self.kv_len, DIM),
        )
        # Rows of large scores change places from tile to tile: what a kernel
        # keeps of the tile before does not fit.
        for at in range(0, self.q_len, 128):
            q[:, :, at : at + 128] = np.roll(
                q[:, :, at : at + 128], at // 128, axis=2
            )
        legal = np.stack([self.legal(b) for b in range(self.batch)])
        vetoed = np.stack([self.vetoed(b) for b in range(self.batch)])
        for x in (k, v):
            x[np.broadcast_to(vetoed[:, None, :], x.shape[:3])] = np.nan
        self.want = oracle.attention(q, k, v, legal, scale=self.scale)
        inputs = [arrays[name] for name in ("steps", "range", "bounds")]
        for x, tokens in ((q, "q_len"), (k, "kv_len"), (v, "kv_len")):
            full = np.full(
                (room["batch"], x.shape[1], room[tokens], DIM),
                np.nan,
                bfloat16,
            )
            full[: x.shape[0], :, : x.shape[2]] = x
            inputs.append(full)
        return inputs + [arrays["q_ids"], arrays["kv_ids"]]

    def vetoed(self, b):
        """The keys that a count or a negative id takes away altogether."""
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

    def error(self, outputs):
        """The largest share of the allowed error; above 1 is wrong."""
        out = outputs[0][: self.batch, :, : self.q_len]
        lse = outputs[1][: self.batch, :, 0, : self.q_len]
        want = self.want
        return max(
            oracle.worst(out, want.out, want.out_error),
            oracle.worst(lse, want.lse, want.lse_error),
        )


def random_ids(rng, batch, n):
    """Documents of uneven lengths, ids that come again, padding anywhere."""
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


def random_case(rng):
    mask = str(rng.choice(MASKS))
    batch = int(rng.integers(1, 4))
    kv_len = int(rng.integers(1, 640))
    q_len = int(rng.integers(1, kv_len + 1))
    if rng.random() < 0.5:
        q_len = kv_len
    named = "documents" in mask or "segments" in mask
    q_offset = None
    if rng.random() < 0.3:
        # Positions outside the keys are fine where no id is asked for.
        low = 0 if named else -50
        high = kv_len - q_len if named else kv_len
        q_offset = rng.integers(low, high + 1, batch)
    kv_heads = int(rng.integers(1, 3))
    return Case(
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
    )


class Forward(unittest.TestCase):
    def check(self, case):
        text, room = case.emit()
        program = Program(text)
        # A result that hangs on what nobody wrote would change with it.
        for poison in (-1, 7):
            outputs = program.run(
                case.arrays(room), poison=poison, max_trips=100_000
            )
            self.assertLessEqual(case.error(outputs), 1)

    def test_random_requests(self):
        for seed in range(40):
            with self.subTest(seed=seed):
                self.check(random_case(np.random.default_rng(seed)))

    def test_lengths_around_the_tile(self):
        rng = np.random.default_rng(5)
        for n in (1, 127, 128, 129, 255, 256, 257):
            with self.subTest(n=n):
                ids = np.sort(rng.integers(0, 3, (1, n)).astype(np.int32))
                self.check(
                    Case(rng, "causal & documents", q_len=n, kv_len=n, ids=ids)
                )

    def test_rows_without_a_key(self):
        rng = np.random.default_rng(6)
        ids = np.full((2, 400), -1, np.int32)
        ids[1, 130:140] = 3
        case = Case(
            rng, "causal & documents", batch=2, q_len=400, kv_len=400, ids=ids
        )
        text, room = case.emit()
        out, lse = Program(text).run(case.arrays(room), max_trips=10_000)
        empty = np.flatnonzero(ids[1] < 0)
        self.assertTrue((out[0, :, :400] == 0).all())
        self.assertTrue((out[1][:, empty] == 0).all())
        self.assertTrue((lse[1, :, 0][:, empty] == -np.inf).all())
        self.assertLessEqual(case.error([out, lse]), 1)

    def test_one_program_serves_every_batch_of_its_contract(self):
        """Ids, counts, offsets and lengths change; the text does not."""
        rng = np.random.default_rng(7)
        ceilings = ("--max-steps", 200, "--max-width", 8)
        programs, contracts, texts = {}, set(), set()
        for _ in range(12):
            n = int(rng.integers(400, 513))
            case = Case(
                rng,
                "causal & documents",
                batch=2,
                q_len=n,
                kv_len=n,
                ids=random_ids(rng, 2, n),
                valid=rng.integers(1, n + 1, 2),
                ceilings=ceilings,
            )
            text, room = case.emit()
            contracts.add(room["contract"])
            texts.add(text)
            if room["contract"] not in programs:
                programs[room["contract"]] = Program(text)
            outputs = programs[room["contract"]].run(
                case.arrays(room), max_trips=10_000
            )
            self.assertLessEqual(case.error(outputs), 1)
        self.assertEqual(len(contracts), 1)
        self.assertEqual(len(texts), 1)
        self.assertEqual(len(programs), 1)


# Mutations for which the kernel has no site.
ABSENT = ("window_off_by_one",)
# Why these mean the same as the kernel here.
EQUIVALENT = (
    # Only a head of a single pass would begin its second pass anew.
    "dropped_choice[11]",
    # Full tiles masked as well: slower, and the same.
    "ignored_condition[11]",
)


def mutation_cases():
    """Batches of one program that together tell its parts apart.

    Rows of one pass and of several, with full tiles first or late; rows and
    heads that the first copies cross; ids that come again; empty rows.
    """
    rng = np.random.default_rng(8)
    q_len, kv_len = 640, 1024
    cases = []
    for mean in (40, 130, 300, 900, 2000):
        ids = np.zeros((2, kv_len), np.int32)
        for row in ids:
            at = 0
            while at < kv_len:
                n = 1 + int(rng.exponential(mean))
                row[at : at + n] = rng.integers(-1, 5)
                at += n
        cases.append(
            Case(
                rng,
                "causal & documents",
                batch=2,
                heads=4,
                kv_heads=2,
                q_len=q_len,
                kv_len=kv_len,
                tile=(256, 128),
                tiles=2,
                ahead=9,
                ids=ids,
                valid=rng.integers(kv_len - 300, kv_len + 1, 2),
                q_offset=rng.integers(0, kv_len - q_len + 1, 2),
            )
        )
    return cases


class Mutants(unittest.TestCase):
    def test_all_are_caught(self):
        """TESSERA_MUTANTS: how many of each mutation [3]; 1000 is all."""
        cases = mutation_cases()
        text, room = cases[0].emit()
        for case in cases:
            self.assertEqual(case.emit()[0], text)
        program = Program(text)
        runs = [(case, case.arrays(room)) for case in cases]

        def judge(kernel):
            program.kernels[0] = kernel
            return all(
                case.error(program.run(arrays, max_trips=10_000)) <= 1
                for case, arrays in runs
            )

        kernel = program.kernels[0]
        self.assertTrue(judge(kernel))
        sample = int(os.environ.get("TESSERA_MUTANTS", "3"))
        found = mutate.mutants(kernel, absent=ABSENT, sample=sample, seed=1)
        self.assertGreater(len({mutant.mutation for mutant in found}), 15)
        drawn = {mutant.name for mutant in found}
        self.assertEqual(
            mutate.survivors(
                found, judge, [name for name in EQUIVALENT if name in drawn]
            ),
            [],
        )


if __name__ == "__main__":
    unittest.main()
