"""Writes the golden files of PyTorch FlexAttention's BlockMask arrays.

    python tests/golden/make_flex.py [FOLDER]

Each file has one case: the request in Tessera's language, and the eight arrays
that create_block_mask made from the same mask. The mask_mod is written by hand
and does not read the mask text. Facts are arrays; doc_ids are runs [id,
length], one list for each batch row. `torch` and `python` are the versions.
"""

import json
import pathlib
import platform
import sys

import torch
from torch.nn.attention.flex_attention import create_block_mask

ARRAYS = (
    "kv_num_blocks",
    "kv_indices",
    "full_kv_num_blocks",
    "full_kv_indices",
    "q_num_blocks",
    "q_indices",
    "full_q_num_blocks",
    "full_q_indices",
)


class Facts:
    """One case's facts as tensors, and each query's position among the keys."""

    def __init__(self, batch, q_len, kv_len, facts):
        self.q_len, self.kv_len = q_len, kv_len
        offsets = facts.get("q_offsets") or [kv_len - q_len] * batch
        self.offset = torch.tensor(offsets)
        self.doc = None
        if "doc_ids" in facts:
            rows = [
                [value for value, n in runs for _ in range(n)]
                for runs in facts["doc_ids"]
            ]
            assert all(len(row) == kv_len for row in rows), "doc_ids"
            self.doc = torch.tensor(rows)
        self.q_doc = None
        if "q_doc_ids" in facts:
            self.q_doc = torch.tensor(facts["q_doc_ids"])
        self.prefix = torch.tensor(facts.get("prefix_lengths", [0] * batch))
        self.valid = torch.tensor(
            facts.get("valid_token_counts", [1 << 40] * batch)
        )
        self.picks = None
        if "picks" in facts:
            self.picks = torch.tensor(facts["picks"])  # [batch, heads, q_len, k]

    def at(self, b, q):
        return q + self.offset[b]

    def id_of_query(self, b, q):
        if self.q_doc is not None:
            return self.q_doc[b, q]
        # A position outside the keys has no id; only queries that the count
        # excludes have one.
        return self.doc[b, self.at(b, q).clamp(0, self.kv_len - 1)]


# Atoms: mask_mods with the facts in front.
def full(f, b, h, q, k):
    return q >= 0


def causal(f, b, h, q, k):
    return k <= f.at(b, q)


def window(left, right):
    def atom(f, b, h, q, k):
        p = f.at(b, q)
        legal = q >= 0
        if left >= 0:
            legal = legal & (p - k <= left)
        if right >= 0:
            legal = legal & (k - p <= right)
        return legal

    return atom


def chunk(n):
    def atom(f, b, h, q, k):
        p = torch.div(f.at(b, q), n, rounding_mode="floor")
        return p == torch.div(k, n, rounding_mode="floor")

    return atom


def prefix(f, b, h, q, k):
    return k < f.prefix[b]


def documents(f, b, h, q, k):
    return f.id_of_query(b, q) == f.doc[b, k]


def sink(n):
    return lambda f, b, h, q, k: k < n


def blocks(n):
    def atom(f, b, h, q, k):
        head = h if f.picks.shape[1] > 1 else h * 0
        return (f.picks[b, head, q] == torch.div(k, n, rounding_mode="floor")).any()

    return atom


def negate(a):
    return lambda f, b, h, q, k: ~a(f, b, h, q, k)


def both(*atoms):
    def atom(f, b, h, q, k):
        legal = atoms[0](f, b, h, q, k)
        for a in atoms[1:]:
            legal = legal & a(f, b, h, q, k)
        return legal

    return atom


def either(*atoms):
    def atom(f, b, h, q, k):
        legal = atoms[0](f, b, h, q, k)
        for a in atoms[1:]:
            legal = legal | a(f, b, h, q, k)
        return legal

    return atom


def by_head(heads, atoms):
    """The mask of each group of heads."""

    def atom(f, b, h, q, k):
        group = torch.div(h * len(atoms), heads, rounding_mode="floor")
        legal = q < 0
        for g, a in enumerate(atoms):
            legal = legal | ((group == g) & a(f, b, h, q, k))
        return legal

    return atom


def with_vetoes(atom, f):
    """The mask_mod: the expression, and then the conditions that always
    apply."""

    def mod(b, h, q, k):
        legal = atom(f, b, h, q, k)
        legal = legal & (k < f.valid[b]) & (f.at(b, q) < f.valid[b])
        if f.doc is not None:
            legal = legal & (f.doc[b, k] >= 0) & (f.id_of_query(b, q) >= 0)
        return legal

    return mod


def runs(*lengths):
    """Documents of these lengths; a negative length is padding."""
    return [[i if n > 0 else -1, abs(n)] for i, n in enumerate(lengths)]


PACKED = {"doc_ids": [runs(37, 100, 64, 3, 52)]}  # 256
PADDED = {"doc_ids": [runs(70, 90, -96)]}  # 256
TWO = {"doc_ids": [runs(128, 128), runs(11, 150, 40, -55)]}  # 256 each
RAGGED = {"doc_ids": [runs(37, 100, 60)]}  # 197
CUT = {"doc_ids": [runs(30, -20, 50)]}  # 100
AGAIN = {"doc_ids": [[[4, 60], [9, 50], [4, 60], [-1, 30], [-7, 16], [9, 40]]]}
PICKS = {
    "picks": [
        [
            [[i // 64, (i * 7 + h) // 50 % 6, -1] for i in range(192)]
            for h in range(2)
        ]
    ]
}

# name, masks, mask_mod, batch, heads, q_len, kv_len, tile (q, kv), facts
CASES = (
    ("full", ["full"], full, 1, 1, 256, 256, (64, 64), {}),
    ("full_ragged", ["full"], full, 1, 1, 200, 150, (64, 64), {}),
    ("full_one_block", ["full"], full, 1, 1, 64, 64, (64, 64), {}),
    ("full_smaller_than_block", ["full"], full, 1, 1, 40, 24, (64, 64), {}),
    ("nothing", ["!full"], negate(full), 1, 1, 256, 192, (64, 64), {}),
    ("causal", ["causal"], causal, 1, 1, 512, 512, (64, 64), {}),
    ("causal_default_block", ["causal"], causal, 1, 1, 512, 512, (128, 128), {}),
    ("causal_ragged", ["causal"], causal, 1, 1, 200, 200, (64, 64), {}),
    ("causal_one_over", ["causal"], causal, 1, 1, 129, 129, (64, 64), {}),
    ("causal_wide_blocks", ["causal"], causal, 1, 1, 256, 256, (32, 128), {}),
    ("causal_tall_blocks", ["causal"], causal, 1, 1, 256, 256, (128, 32), {}),
    ("causal_odd_blocks", ["causal"], causal, 1, 1, 250, 250, (24, 40), {}),
    ("causal_more_keys", ["causal"], causal, 1, 1, 96, 320, (32, 64), {}),
    ("causal_more_queries", ["causal"], causal, 1, 1, 320, 96, (32, 64), {}),
    ("causal_one_query", ["causal"], causal, 1, 1, 1, 300, (64, 64), {}),
    ("causal_offsets", ["causal"], causal, 3, 1, 96, 200, (32, 32),
     {"q_offsets": [0, 104, -40]}),
    ("not_causal", ["!causal"], negate(causal), 1, 1, 200, 200, (64, 64), {}),
    ("window", ["window(63, 0)"], window(63, 0), 1, 1, 512, 512, (64, 64), {}),
    ("window_both_sides", ["window(50, 20)"], window(50, 20), 1, 1, 300, 300,
     (64, 32), {}),
    ("window_open_left", ["window(-1, 40)"], window(-1, 40), 1, 1, 200, 260,
     (32, 64), {}),
    ("window_wide", ["causal & window(200, 0)"], both(causal, window(200, 0)),
     1, 1, 384, 384, (32, 32), {}),
    ("chunk", ["chunk(100)"], chunk(100), 1, 1, 256, 256, (64, 64), {}),
    ("chunk_aligned", ["causal & chunk(128)"], both(causal, chunk(128)), 1, 1,
     512, 512, (64, 64), {}),
    ("chunk_more_queries", ["chunk(48)"], chunk(48), 1, 1, 200, 104, (32, 24),
     {}),
    ("prefix", ["causal | prefix"], either(causal, prefix), 2, 1, 256, 256,
     (64, 64), {"prefix_lengths": [100, 0]}),
    ("prefix_ragged", ["causal | prefix"], either(causal, prefix), 1, 1, 150,
     190, (64, 64), {"prefix_lengths": [128]}),
    ("documents", ["documents"], documents, 1, 1, 256, 256, (32, 32), PACKED),
    ("documents_causal", ["causal & documents"], both(causal, documents), 1, 1,
     256, 256, (32, 32), PACKED),
    ("documents_padding", ["causal & documents"], both(causal, documents), 1, 1,
     256, 256, (32, 32), PADDED),
    ("documents_only_padding", ["documents"], documents, 1, 1, 64, 64, (32, 32),
     {"doc_ids": [runs(-64)]}),
    ("documents_negative_ids", ["documents"], documents, 1, 1, 256, 256,
     (16, 16), AGAIN),
    ("documents_kept_by_name", ["full | documents"], full, 1, 1, 256, 256,
     (32, 32), PADDED),
    ("documents_two_rows", ["causal & documents"], both(causal, documents), 2,
     1, 256, 256, (64, 32), TWO),
    ("documents_ragged", ["documents"], documents, 1, 1, 197, 197, (64, 64),
     RAGGED),
    ("documents_more_keys", ["causal & documents"], both(causal, documents), 1,
     1, 80, 197, (32, 64), RAGGED),
    ("documents_padding_within", ["causal & documents"],
     both(causal, documents), 1, 1, 100, 100, (8, 16), CUT),
    ("documents_of_queries", ["documents"], documents, 1, 1, 48, 197, (16, 32),
     {**RAGGED, "q_doc_ids": [[2] * 20 + [-1] * 8 + [0] * 20]}),
    ("documents_window", ["causal & window(40, 0) & documents"],
     both(causal, window(40, 0), documents), 1, 1, 256, 256, (32, 32), PACKED),
    ("documents_not_window", ["documents & !window(30, 30)"],
     both(documents, negate(window(30, 30))), 1, 1, 256, 256, (32, 32),
     PACKED),
    ("valid_counts", ["causal"], causal, 3, 1, 256, 256, (64, 64),
     {"valid_token_counts": [256, 130, 0]}),
    ("valid_counts_ragged", ["full"], full, 2, 1, 150, 150, (32, 64),
     {"valid_token_counts": [150, 96]}),
    ("composed", ["causal & (window(60, 0) | sink(20)) | chunk(32)"],
     either(both(causal, either(window(60, 0), sink(20))), chunk(32)), 1, 1,
     300, 300, (32, 32), {}),
    ("composed_facts",
     ["(causal | prefix) & documents & window(90, 25) | chunk(16)"],
     either(both(either(causal, prefix), documents, window(90, 25)),
            chunk(16)), 2, 1, 200, 256, (24, 40),
     {**TWO, "prefix_lengths": [30, 190], "valid_token_counts": [256, 201]}),
    ("two_masks", ["causal", "window(40, 40)"],
     by_head(4, [causal, window(40, 40)]), 2, 4, 200, 200, (64, 32), {}),
    ("picks", ["causal & blocks(32)"], both(causal, blocks(32)), 1, 2, 192,
     192, (32, 64), PICKS),
)


def write_case(folder, name, masks, atom, batch, heads, q_len, kv_len, tile, facts):
    mod = with_vetoes(atom, Facts(batch, q_len, kv_len, facts))
    made = create_block_mask(
        mod, batch, heads, q_len, kv_len, device="cpu", BLOCK_SIZE=tile
    )
    out = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "masks": masks,
        "batch": batch,
        "heads": heads,
        "q_len": q_len,
        "kv_len": kv_len,
        "tile": tile,
        "facts": facts,
    }
    for array in ARRAYS:
        tensor = getattr(made, array)
        assert tensor.is_contiguous()
        out[array] = {
            "dtype": str(tensor.dtype),
            "shape": list(tensor.shape),
            "data": tensor.flatten().tolist(),
        }
    fields = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in out.items()]
    (folder / f"{name}.json").write_text("{" + ",\n ".join(fields) + "}\n")


def main():
    folder = pathlib.Path(__file__).parent / "flex"
    if len(sys.argv) > 1:
        folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        write_case(folder, *case)
    print(f"{len(CASES)} cases in {folder}, torch {torch.__version__}")


main()
