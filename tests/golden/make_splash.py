"""Writes the golden files of JAX Splash attention's MaskInfo arrays.

    JAX_PLATFORMS=cpu python tests/golden/make_splash.py [FOLDER]

Each file has one mask: the request in Tessera's language, and the results of
process_mask and process_mask_dkv for the same mask, built from Splash's own
classes, under many options. A table has each array once, as runs ("value*count"
or "first..last"); booleans are the hex of numpy.packbits. If Splash raises, the
run has the exception instead. Absent options have their default, absent arrays
are None. The output has every version that it depends on.
"""

import itertools
import json
import pathlib
import platform
import sys

import jax
import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_mask as mask_lib,
)
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_mask_info as info_lib,
)

VERSIONS = {
    "jax": jax.__version__,
    "numpy": np.__version__,
    "python": platform.python_version(),
}
FIELDS = (
    "data_next",
    "mask_next",
    "block_mask",
    "partial_mask_blocks",
    "q_sequence",
)
# The values of options that a run does not name.
DEFAULTS = {
    "dkv": False,
    "shrink": True,
    "downcast": True,
    "q_shards": 1,
    "head_shards": 1,
    "heads": 1,
    "computable": False,
}


def runs(values):
    """The values as text: "7*3" is 7 7 7, "4..6" is 4 5 6."""
    out, i = [], 0
    while i < len(values):
        j = i + 1
        while j < len(values) and values[j] == values[i]:
            j += 1
        if j - i > 1:
            out.append(f"{values[i]}*{j - i}")
            i = j
            continue
        while j < len(values) and values[j] == values[j - 1] + 1:
            j += 1
        if j - i > 2:
            out.append(f"{values[i]}..{values[j - 1]}")
            i = j
        else:
            out.append(str(values[i]))
            i += 1
    return " ".join(out)


def encode(array):
    array = np.asarray(array)
    if array.dtype == np.bool_:
        data = np.packbits(array.ravel()).tobytes().hex()
    else:
        data = runs([int(x) for x in array.ravel()])
    return {"dtype": str(array.dtype), "shape": list(array.shape), "data": data}


def dense(mask):
    """One head's mask as booleans, whatever its class."""
    rows, columns = mask.shape
    return np.array(mask[slice(0, rows), slice(0, columns)], dtype=np.bool_)


class Case:
    """One mask per head group, and the options to run it under."""

    def __init__(self, name, texts, masks, tile, heads=None, q_offset=None,
                 shards=((1, 1),), computable=False, facts=None,
                 downcast=(True,)):
        self.name = name
        self.texts = texts  # in Tessera's language, one per group of heads
        self.masks = masks  # Splash objects, one per query head
        self.tile = tile
        self.heads = heads or len(masks)
        self.q_offset = q_offset
        self.shards = shards  # (q_shards, head_shards)
        self.computable = computable
        self.facts = facts or {}
        self.downcast = downcast

    def request(self):
        q_len, kv_len = self.masks[0].shape
        r = {
            "masks": self.texts,
            "q_len": q_len,
            "kv_len": kv_len,
            "tile": list(self.tile),
        }
        if self.q_offset is not None:
            r["q_offset"] = self.q_offset
        for name, value in self.facts.items():
            if name == "picks":
                r[name] = {
                    "heads": value.shape[0],
                    "k": value.shape[2],
                    "blocks": runs([int(x) for x in value.ravel()]),
                }
            else:
                r[name] = runs([int(x) for x in np.ravel(value)])
        return r

    def write(self, folder):
        arrays, numbers, records = [], {}, []
        forms = [(False, [mask_lib.NumpyMask(dense(m)) for m in self.masks]
                  if self.computable else self.masks)]
        if self.computable:
            forms.append((True, self.masks))
        for (computable, masks), (q_shards, head_shards), dkv, shrink, down in (
                itertools.product(forms, self.shards, (False, True),
                                  (True, False), self.downcast)):
            options = {
                "dkv": dkv,
                "shrink": shrink,
                "downcast": down,
                "q_shards": q_shards,
                "head_shards": head_shards,
                "heads": self.heads,
                "computable": computable,
            }
            record = {k: v for k, v in options.items() if v != DEFAULTS[k]}
            process = (info_lib.process_mask_dkv if dkv
                       else info_lib.process_mask)
            try:
                info, _ = process(
                    mask_lib.MultiHeadMask(masks), self.tile,
                    downcast_smem_data=down, head_shards=head_shards,
                    q_seq_shards=q_shards, shrink_grid=shrink)
            except (AssertionError, ValueError) as error:
                record["error"] = f"{type(error).__name__}: {error}"
            else:
                for field in FIELDS:
                    value = getattr(info, field)
                    if value is None:
                        continue
                    entry = json.dumps(encode(value))
                    if entry not in numbers:
                        numbers[entry] = len(arrays)
                        arrays.append(entry)
                    record[field] = numbers[entry]
            records.append(json.dumps(record))
        path = folder / f"{self.name}.json"
        with path.open("w") as f:
            f.write("{\n")
            f.write(f'"made_by": {json.dumps(VERSIONS)},\n')
            f.write(f'"request": {json.dumps(self.request())},\n')
            f.write('"arrays": [\n' + ",\n".join(arrays) + "\n],\n")
            f.write('"runs": [\n' + ",\n".join(records) + "\n]\n}\n")
        return len(records)


def causal(q, kv, offset=0):
    return mask_lib.CausalMask((q, kv), offset=offset)


def local(q, kv, left, right, offset=0):
    return mask_lib.LocalMask((q, kv), (left, right), offset=offset)


def chunked(q, kv, n):
    return mask_lib.ChunkedCausalMask((q, kv), chunk_size=n)


def full(q, kv):
    return mask_lib.FullMask((q, kv))


def from_rule(q, kv, offset, rule):
    """A NumpyMask of rule(position, key), by plain numpy."""
    position = np.arange(q)[:, None] + offset
    key = np.arange(kv)[None, :]
    allowed = np.broadcast_to(rule(position, key), (q, kv))
    return mask_lib.NumpyMask(np.array(allowed, dtype=np.bool_))


def documents_of(lengths, n):
    ids = np.full(n, -1, dtype=np.int32)
    at = 0
    for number, length in enumerate(lengths):
        ids[at:at + length] = number
        at += length
    return ids


def same_document(ids):
    return (ids[:, None] == ids[None, :]) & (ids[:, None] >= 0)


ALL = ((1, 1), (2, 1), (4, 1))


def simple_cases():
    """Splash's own classes, each also as an array."""
    for q, kv, tile, offset in (
            (256, 256, (32, 32), 0),
            (256, 256, (64, 32), 0),
            (256, 256, (16, 64), 0),
            (128, 256, (32, 32), 128),
            (128, 256, (16, 32), 40),
            (256, 128, (32, 16), 0),
            (512, 512, (128, 128), 0),
            (64, 64, (8, 8), 0),
    ):
        shape = f"q{q}_kv{kv}_t{tile[0]}x{tile[1]}_o{offset}"
        common = dict(tile=tile, q_offset=offset, shards=ALL, computable=True)
        yield Case(f"causal_{shape}", ["causal"], [causal(q, kv, offset)],
                   **common)
        for left, right in ((31, 0), (40, 17), (None, 20), (50, None),
                            (0, 0)):
            text = (f"window({-1 if left is None else left}, "
                    f"{-1 if right is None else right})")
            name = f"local_{left}_{right}_{shape}".replace("None", "any")
            if (left, right) != (31, 0) and tile in ((16, 64), (128, 128)):
                continue
            yield Case(name, [text], [local(q, kv, left, right, offset)],
                       **common)
        if offset == 0 and tile[0] < 128:
            for n in (32, 48, 100):
                yield Case(f"chunked_{n}_{shape}", [f"causal & chunk({n})"],
                           [chunked(q, kv, n)], **common)
        yield Case(f"full_{shape}", ["full"], [full(q, kv)], tile=tile,
                   q_offset=offset, shards=ALL)
    # The first queries are before every key: empty rows.
    yield Case("causal_negative_offset", ["causal"], [causal(128, 128, -40)],
               tile=(16, 16), q_offset=-40, shards=ALL, computable=True)
    # A computable mask that is full everywhere.
    yield Case("computable_full_local", ["window(-1, -1)"],
               [local(128, 128, None, None)], tile=(32, 32), q_offset=0,
               shards=ALL, computable=True)
    yield Case("computable_full_causal", ["causal"], [causal(128, 128, 128)],
               tile=(32, 32), q_offset=128, shards=ALL, computable=True)


def composed_cases():
    q = kv = 256
    c, w = causal(q, kv), local(q, kv, 70, 30)
    for tile in ((32, 32), (16, 64)):
        t = f"t{tile[0]}x{tile[1]}"
        common = dict(tile=tile, q_offset=0, shards=ALL)
        yield Case(f"and_{t}", ["causal & window(70, 30)"], [c & w], **common)
        yield Case(f"or_{t}", ["causal & chunk(48) | window(9, 12)"],
                   [chunked(q, kv, 48) | local(q, kv, 9, 12)], **common)
        yield Case(f"nested_{t}",
                   ["(causal & chunk(64) | window(5, 0)) & window(100, -1)"],
                   [(chunked(q, kv, 64) | local(q, kv, 5, 0))
                    & local(q, kv, 100, None)], **common)
        yield Case(f"full_and_causal_{t}", ["full & causal"],
                   [full(q, kv) & c], **common)
        yield Case(f"full_or_causal_{t}", ["full | causal"],
                   [full(q, kv) | c], **common)
        yield Case(f"not_{t}", ["!window(40, 8) & causal"],
                   [from_rule(q, kv, 0, lambda i, j: (j <= i) & (i - j > 40))],
                   **common)
        yield Case(f"sink_{t}", ["causal & (window(24, 0) | sink(5))"],
                   [from_rule(q, kv, 0, lambda i, j: (j <= i)
                              & ((i - j <= 24) | (j < 5)))], **common)
        yield Case(f"prefix_{t}", ["causal | prefix"],
                   [from_rule(q, kv, 0, lambda i, j: (j <= i) | (j < 77))],
                   facts={"prefix_lengths": [77]}, **common)
        yield Case(f"valid_{t}", ["causal"],
                   [from_rule(q, kv, 0, lambda i, j: (j <= i) & (i < 150))],
                   facts={"valid_token_counts": [150]}, **common)
        yield Case(f"chunk_{t}", ["chunk(50)"],
                   [from_rule(q, kv, 0, lambda i, j: i // 50 == j // 50)],
                   **common)
    for n, offset in ((8, 0), (40, 24)):
        picks = np.full((1, 128, 3), -1, dtype=np.int32)
        rng = np.random.default_rng(n)
        allowed = np.zeros((128, 160), dtype=np.bool_)
        for i in range(128):
            for slot in range(rng.integers(0, 4)):
                block = rng.integers(0, 160 // n)
                picks[0, i, slot] = block
                allowed[i, block * n:(block + 1) * n] = True
        yield Case(f"picks_{n}", [f"blocks({n})"],
                   [mask_lib.NumpyMask(allowed)], tile=(16, 32),
                   q_offset=offset, shards=ALL, facts={"picks": picks})


def document_cases():
    n = 256
    for name, lengths in (
            ("packed", [60, 100, 96]),
            ("aligned", [64, 64, 128]),
            ("padded", [30, 7, 90]),  # the last 129 tokens are padding
            ("small", [9] * 28),
            ("all_padding", []),
    ):
        ids = documents_of(lengths, n)
        same = same_document(ids)
        order = np.tril(np.ones((n, n), dtype=np.bool_))
        common = dict(tile=(32, 32), q_offset=0, shards=ALL,
                      facts={"doc_ids": ids})
        yield Case(f"documents_{name}", ["documents"],
                   [mask_lib.NumpyMask(same)], **common)
        yield Case(f"causal_documents_{name}", ["causal & documents"],
                   [mask_lib.NumpyMask(same & order)], **common)
    # Padding in the middle, a document that occurs twice, padding over an "or".
    ids = np.repeat(np.array([3, -1, 5, 3, -1, 0], dtype=np.int32),
                    [50, 20, 60, 40, 36, 50])
    same = same_document(ids)
    live = (ids[:, None] >= 0) & (ids[None, :] >= 0)
    begins = np.r_[True, ids[1:] != ids[:-1]]
    run = np.cumsum(begins)
    position = np.arange(n)
    common = dict(tile=(32, 16), q_offset=0, shards=ALL,
                  facts={"doc_ids": ids})
    yield Case("documents_return", ["documents"], [mask_lib.NumpyMask(same)],
               **common)
    yield Case("segments", ["segments"], [mask_lib.NumpyMask(
        (run[:, None] == run[None, :]) & live)], **common)
    yield Case("documents_veto", ["window(8, 8) | documents"],
               [mask_lib.NumpyMask(
                   (same | (np.abs(position[:, None] - position) <= 8))
                   & live)], **common)


def head_cases():
    q = kv = 128
    c = causal(q, kv)
    w = local(q, kv, 20, 0)
    x = local(q, kv, 5, 30)
    f = full(q, kv)
    texts = {"c": "causal", "w": "window(20, 0)", "x": "window(5, 30)",
             "f": "full"}
    masks = {"c": c, "w": w, "x": x, "f": f}
    # (per plan head, query heads a plan head, shards)
    for groups, each, heads in (
            ("c", 4, ((1, 1), (1, 2), (1, 4), (2, 2))),
            ("cw", 1, ((1, 1), (1, 2), (2, 1), (4, 2))),
            ("cw", 2, ((1, 1), (1, 2), (2, 4))),
            ("cwcw", 1, ((1, 1), (1, 2), (2, 2), (1, 4))),
            ("cwxf", 1, ((1, 1), (2, 2), (4, 4))),
            ("ccww", 1, ((1, 1), (1, 2), (2, 2))),
            ("cccc", 1, ((1, 1), (2, 1), (1, 2), (2, 4))),
            ("ff", 2, ((1, 1), (1, 2))),
            ("fc", 1, ((1, 1), (1, 2))),
            ("cccw", 1, ((1, 1), (1, 2), (2, 4))),
    ):
        for tile in ((32, 32), (16, 64)):
            name = f"heads_{groups}_{each}_t{tile[0]}x{tile[1]}"
            yield Case(name, [texts[g] for g in groups],
                       [masks[g] for g in groups for _ in range(each)],
                       tile=tile, q_offset=0, shards=heads,
                       computable="f" not in groups)
    # A head with an empty mask beside one with pairs.
    empty = from_rule(q, kv, 0, lambda i, j: np.zeros_like(i + j, dtype=bool))
    yield Case("heads_empty", ["!full", "causal"], [empty, c], tile=(32, 32),
               q_offset=0, shards=((1, 1), (1, 2), (2, 1)))


def edge_cases():
    # A fully masked query inside a live tile.
    q = kv = 128
    ids = np.full(q, 7, dtype=np.int32)
    ids[[3, 40, 41, 90]] = -1
    live = (ids[:, None] >= 0) & (ids[None, :] >= 0)
    yield Case("masked_row_in_live_tile", ["causal & documents"],
               [mask_lib.NumpyMask(live & dense(causal(q, kv)))],
               tile=(32, 32), q_offset=0, shards=ALL, facts={"doc_ids": ids})
    # A tile row without a legal pair; with four shards, a shard without one.
    ids = np.full(q, 7, dtype=np.int32)
    ids[32:64] = -1
    live = (ids[:, None] >= 0) & (ids[None, :] >= 0)
    for tile in ((32, 32), (16, 16)):
        yield Case(f"dead_tile_row_t{tile[0]}", ["causal & documents"],
                   [mask_lib.NumpyMask(live & dense(causal(q, kv)))],
                   tile=tile, q_offset=0, shards=ALL, facts={"doc_ids": ids})
    yield Case("nothing", ["!full"], [mask_lib.NumpyMask(
        np.zeros((q, kv), dtype=np.bool_))], tile=(32, 32), q_offset=0,
               shards=ALL)
    # One shard with wide rows, another with narrow ones: the padding repeats.
    yield Case("uneven_shards", ["prefix & !window(-1, 0) | window(4, 4)"],
               [from_rule(256, 256, 0, lambda i, j: ((j > i) & (j < 130))
                          | (abs(i - j) <= 4))],
               tile=(16, 16), q_offset=0, shards=((2, 1), (4, 1), (8, 1)),
               facts={"prefix_lengths": [130]})
    # Wider types: many columns, many distinct blocks, a far column.
    yield Case("int16_columns", ["window(30, 9)"],
               [local(16, 1200, 30, 9, 1150)], tile=(8, 8), q_offset=1150,
               shards=((1, 1), (2, 1)), downcast=(True, False), computable=True)
    rng = np.random.default_rng(7)
    picks = np.stack([rng.choice(48, 12, replace=False)
                      for _ in range(96)])[None].astype(np.int32)
    allowed = np.zeros((96, 96), dtype=np.bool_)
    for i in range(96):
        for block in picks[0, i]:
            allowed[i, block * 2:block * 2 + 2] = True
    yield Case("int16_blocks", ["blocks(2)"], [mask_lib.NumpyMask(allowed)],
               tile=(8, 8), q_offset=0, facts={"picks": picks},
               shards=((1, 1), (2, 1)), downcast=(True, False))
    for name, column in (("int8_last_column", 127), ("int16_column", 128),
                         ("int16_last_column", 32767),
                         ("int32_column", 32768)):
        far = 8 * column
        yield Case(name, ["window(3, 0)"], [local(8, far + 8, 3, 0, far)],
                   tile=(8, 8), q_offset=far, computable=True)
    # Requests that Splash refuses.
    for name, shape, tile, shards in (
            ("refuses_q", (100, 128), (32, 32), ((1, 1),)),
            ("refuses_kv", (128, 100), (32, 32), ((1, 1),)),
            ("refuses_q_shards", (128, 128), (32, 32),
             ((3, 1), (8, 1), (1, 2))),
    ):
        yield Case(name, ["causal"], [causal(*shape)], tile=tile, q_offset=0,
                   shards=shards, computable=True)


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                          pathlib.Path(__file__).parent / "splash")
    folder.mkdir(parents=True, exist_ok=True)
    files = total = 0
    for case in itertools.chain(simple_cases(), composed_cases(),
                                document_cases(), head_cases(), edge_cases()):
        total += case.write(folder)
        files += 1
    size = sum(p.stat().st_size for p in folder.glob("*.json"))
    print(f"{files} masks, {total} runs, {size} bytes in {folder}")
    print(", ".join(f"{k} {v}" for k, v in VERSIONS.items()))


if __name__ == "__main__":
    main()
