"""Shared by all attention peers: flags, cases, inputs, timing, checks, output.

A peer runs the cases of `tessera-bench attention` on one length, head dim and
dtype, and prints a line of JSON for each measurement as soon as it has it. It
reads the document ids from the same file as ours. The last head of every
measured call is checked once, against fp64 and the bounds of the judge.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python/tests"))
import judge

HEADS = 8
WINDOW = 1024  # keys that a query sees, with its own
SOFTCAP = 30.0
DECODE_HEADS, DECODE_KV_HEADS, DECODE_KEYS = 32, 8, 32768
CASES = ("full", "causal", "softcap", "window", "documents", "both", "decode")
FORWARD, BACKWARD = "forward", "forward+backward"
DTYPES = {"f32": "float32", "bf16": "bfloat16"}  # to NumPy's names
MAX_DENSE = 8192  # up to so many tokens every query is judged
SAMPLED = 64  # queries that are judged above that


def parse(description):
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    add("--docs", metavar="FILE.npy", help="int32 document ids [tokens]")
    add("--tokens", type=int, default=4096)
    add("--head-dim", type=int, default=128)
    add("--dtype", choices=DTYPES, default="f32")
    add("--threads", type=int, default=2)
    add("--cases", default=",".join(CASES), help="default: %(default)s")
    add("--backward", action="store_true", help="forward and backward too")
    add("--seconds", type=float, default=2, help="seconds of runs a measurement")
    add(
        "--budget",
        type=float,
        default=240,
        help="seconds after which no further measurement begins",
    )
    args = parser.parse_args()
    args.cases = args.cases.split(",")
    unknown = [c for c in args.cases if c not in CASES]
    if unknown:
        parser.error(f"--cases must be of {', '.join(CASES)}, found {unknown}")
    args.ids = np.zeros(args.tokens, np.int32)
    if args.docs:
        args.ids = np.load(args.docs)
    elif {"documents", "both"} & set(args.cases):
        parser.error("--cases documents and both need --docs")
    if args.ids.dtype != np.int32 or args.ids.shape != (args.tokens,):
        parser.error(
            f"--docs must hold int32 [{args.tokens}], found "
            f"{args.ids.dtype} {list(args.ids.shape)}"
        )
    return args


def to_bf16(x):
    """float32 rounded to values of bfloat16, to nearest, ties to even."""
    bits = x.view(np.uint32)
    bits = bits + 0x7FFF + ((bits >> 16) & 1)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


def document_bounds(ids):
    """[(first token, end)] of the packed documents."""
    cuts = (np.flatnonzero(np.diff(ids)) + 1).tolist()
    return list(zip([0] + cuts, cuts + [len(ids)]))


def key_ranges(case, ids):
    """First and last legal key of every query; in all cases legal keys are an
    interval."""
    tokens = len(ids)
    last = np.arange(tokens)
    first = np.zeros(tokens, np.int64)
    if case == "full":
        last = np.full(tokens, tokens - 1)
    if case in ("window", "both"):
        first = np.maximum(first, last - WINDOW + 1)
    if case in ("documents", "both"):
        for start, end in document_bounds(ids):
            first[start:end] = np.maximum(first[start:end], start)
    return first, last


def legal(case, ids, queries, keys):
    """The mask of two ranges of tokens: booleans [queries, keys]."""
    first, last = (x[queries.start : queries.stop] for x in key_ranges(case, ids))
    k = np.arange(keys.start, keys.stop)
    return (k >= first[:, None]) & (k <= last[:, None])


def work_items(case, ids, chunk):
    """A mask as calls of a dense kernel: (first query, end, first key, whether
    the mask is just causal). A document is one call, or under a window chunks
    of queries with the keys that they may see. `end` is that of queries and
    keys."""
    documents = case in ("documents", "both")
    items = []
    for start, end in document_bounds(ids) if documents else [(0, len(ids))]:
        if case == "documents" or end - start <= chunk:
            items.append((start, end, start, True))
            continue
        for q in range(start, end, chunk):
            # Rounded down to whole blocks of the kernel.
            key = max(start, (q - WINDOW + 1) // 64 * 64)
            items.append((q, min(q + chunk, end), key, False))
    return items


def additive_mask(case, ids, item):
    """0 where legal, -inf where not: [queries, keys] of one work item."""
    q, end, key, _ = item
    allowed = legal(case, ids, range(q, end), range(key, end))
    return np.where(allowed, np.float32(0), np.float32("-inf"))


def expected(case, ids, rows, q, k, v, dout, dtype, stored_every):
    """The results of one head in fp64, with bounds: `out` of the rows and,
    given `dout`, their `dq`; also `dk` and `dv` if the rows are all queries."""
    first, last = key_ranges(case, ids)
    keys = np.arange(len(k))
    legal = (keys >= first[rows, None]) & (keys <= last[rows, None])
    one = lambda x: None if x is None else x[None, None]
    want = judge.attention(
        one(q[rows]),
        one(k),
        one(v),
        legal[None],
        softcap=SOFTCAP if case == "softcap" else 0.0,
        dout=None if dout is None else one(dout[rows]),
        dtype=DTYPES[dtype],
        stored_every=stored_every,
    )
    got = {n: w[0, 0] for n, w in zip(("out", "lse", "dq", "dk", "dv"), want)}
    del got["lse"]
    if len(rows) < len(q):
        got = {n: w for n, w in got.items() if n in ("out", "dq")}
    return got


class Session:
    """The inputs of one process, and what it measures with them."""

    def __init__(self, args, stored_every=None):
        self.args = args
        self.stored_every = stored_every or {}  # by case, an argument of judge
        self.end = time.perf_counter() + args.budget
        self.known = {}  # fp64 results, by case
        self.inputs = {}

    def tensors(self, case):
        """q, k, v and dout as float32 [1, heads, tokens, dim]; for bfloat16
        they are rounded to its values."""
        kind = "decode" if case == "decode" else "packed"
        if kind not in self.inputs:
            dim, tokens = self.args.head_dim, self.args.tokens
            q = do = (1, HEADS, tokens, dim)
            k = v = q
            if kind == "decode":
                q = do = (1, DECODE_HEADS, 1, dim)
                k = v = (1, DECODE_KV_HEADS, DECODE_KEYS, dim)
            random = np.random.default_rng(0)
            made = [
                random.standard_normal(s, np.float32) for s in (q, k, v, do)
            ]
            if self.args.dtype == "bf16":
                made = [to_bf16(x) for x in made]
            self.inputs[kind] = made
        return self.inputs[kind]

    def wanted(self, case, backward):
        """(rows, fp64 arrays) of the last head; made once, with gradients if
        any measurement may need them."""
        if case not in self.known:
            q, k, v, dout = (x[0, -1] for x in self.tensors(case))
            if case == "decode":
                ids, rows, name = np.zeros(DECODE_KEYS, np.int32), [0], "full"
            else:
                ids, name = self.args.ids, case
                rows = np.arange(len(ids))
                if len(rows) > MAX_DENSE:
                    rows = rows[:: len(rows) // SAMPLED]
            use = self.args.backward and case not in ("softcap", "decode")
            self.known[case] = (
                np.asarray(rows),
                expected(
                    name,
                    ids,
                    np.asarray(rows),
                    *(q, k, v, dout if use else None, self.args.dtype),
                    self.stored_every.get(case, 0),
                ),
            )
        rows, want = self.known[case]
        names = ("out", "dq", "dk", "dv") if backward else ("out",)
        return rows, {n: want[n] for n in names if n in want}

    def pairs(self, case):
        if case == "decode":
            return DECODE_KEYS
        first, last = key_ranges(case, self.args.ids)
        return int((last - first + 1).sum())

    def error(self, case, direction, results):
        """Errors of the last head: the largest as a share of the largest value,
        and the largest as a share of its bound."""
        rows, want = self.wanted(case, direction == BACKWARD)
        errors, shares = [], []
        for name, right in want.items():
            got = results[name]
            if name in ("out", "dq"):
                got = got[rows]
            off, largest = np.abs(got - right.value), np.abs(right.value)
            errors.append(off.max() / largest.max())
            shares.append(judge.shares(got, right).max())
        return float(np.max(errors)), float(np.max(shares))  # NaN if any is NaN

    def measure(self, peer, case, direction, prepare):
        """Times and checks a call. `prepare()` returns the call, and a function
        that returns the last head's results of the latest run, {"out": [tokens,
        dim], "dq": ...}."""
        args = self.args
        line = {
            "peer": peer,
            "case": case,
            "dtype": args.dtype,
            "direction": direction,
        }
        if time.perf_counter() > self.end:
            return self.skip(line, "no time was left")
        try:
            begin = time.perf_counter()
            call, results = prepare()
            call()
            line["first_ms"] = round((time.perf_counter() - begin) * 1e3, 1)
            error, share = self.error(case, direction, results())
            line["error"], line["bound_share"] = round(error, 9), round(share, 4)
            if not share <= 1:
                return self.skip(line, f"its error is {share:.2g} of its bound")
            runs = time_runs(call, args.seconds)
        except Exception as e:  # any error of a library
            words = f"{type(e).__name__}: {e}".splitlines() or ["?"]
            return self.skip(line, words[0][:200])
        line["ms"] = round(min(runs) * 1e3, 4)
        line["median_ms"] = round(statistics.median(runs) * 1e3, 4)
        line["runs"] = len(runs)
        line["pairs"] = self.pairs(case)
        print(json.dumps(line), flush=True)
        return None

    def skip(self, line, why):
        print(json.dumps({**line, "state": "not measured", "why": why}), flush=True)


def time_runs(call, seconds, least=3, most=200):
    """Seconds of each run, until the time is spent. At least `least` runs,
    unless they take more than four times that time."""
    runs = []
    while len(runs) < most:
        spent = sum(runs)
        if spent > seconds and (len(runs) >= least or spent > 4 * seconds):
            break
        begin = time.perf_counter()
        call()
        runs.append(time.perf_counter() - begin)
    return runs


def announce(peer, versions):
    """Prints the first line: the peer and its versions."""
    print(json.dumps({"peer": peer, "versions": versions}), flush=True)
