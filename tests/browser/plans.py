"""Plans for the tests of pictures, and the class of each of their tiles.

Classes come from the definitions of the masks, pair by pair.
"""

import functools
import random
import subprocess

EMPTY, PARTIAL, FULL = range(3)


class Plan:
    """A request, and the tiles that its picture must show."""

    def __init__(self, name, masks, q_len, tile, documents=None, kv_len=None,
                 batch=1, prefixes=None, window=None, flags=()):
        self.name, self.masks = name, masks
        self.q_len, self.kv_len = q_len, kv_len or q_len
        self.tile_q, self.tile_kv = tile
        self.rows = -(-self.q_len // self.tile_q)
        self.columns = -(-self.kv_len // self.tile_kv)
        self.batch, self.heads = batch, len(masks)
        self.documents, self.prefixes = documents, prefixes
        self.window, self.flags = window, list(flags)
        self.q_offset = self.kv_len - self.q_len
        self.ids = []
        for i, length in enumerate(documents or ()):
            self.ids += [i] * length
        if documents:
            self.ids += [-1] * (self.kv_len - len(self.ids))

    def legal(self, query, key, batch_row=0, head=0):
        """Whether the mask lets the query see the key."""
        position, mask = query + self.q_offset, self.masks[head]
        if "prefix" in mask and key < self.prefixes[batch_row]:
            return True
        if "causal" in mask and key > position:
            return False
        if "window" in mask and key < position - self.window:
            return False
        if "documents" in mask:
            return self.ids[key] == self.ids[position] != -1
        return True

    def queries(self, row):
        first = row * self.tile_q
        return first, min(self.q_len, first + self.tile_q)

    def keys(self, column):
        first = column * self.tile_kv
        return first, min(self.kv_len, first + self.tile_kv)

    @functools.cache
    def class_of(self, row, column, batch_row=0, head=0):
        some, every = False, True
        for q in range(*self.queries(row)):
            for k in range(*self.keys(column)):
                if self.legal(q, k, batch_row, head):
                    some = True
                else:
                    every = False
                if some and not every:
                    return PARTIAL
        return FULL if every else EMPTY

    def classes(self, batch_row=0, head=0):
        return [
            [self.class_of(r, c, batch_row, head) for c in range(self.columns)]
            for r in range(self.rows)
        ]

    def draw(self, program, path):
        """Makes the program write the page."""
        command = [program, "show", "-o", path]
        for mask in self.masks:
            command += ["--mask", mask]
        command += ["--q-len", str(self.q_len), "--kv-len", str(self.kv_len)]
        command += ["--tile", f"{self.tile_q}x{self.tile_kv}"]
        command += ["--batch", str(self.batch)]
        if self.documents:
            lengths = ",".join(str(n) for n in self.documents)
            command += ["--docs", "lengths:" + lengths]
        if self.prefixes:
            command += ["--prefix", ",".join(str(n) for n in self.prefixes)]
        subprocess.run(command + self.flags, check=True, capture_output=True)


def million_documents():
    """Document lengths that fill 1 Mi tokens, many short and a few long."""
    draw, lengths, left = random.Random(7), [], 1 << 20
    while left:
        length = min(left, 1 + int(draw.lognormvariate(7.5, 1.2)))
        lengths.append(length)
        left -= length
    return lengths


PLANS = {
    plan.name: plan
    for plan in (
        # 22 x 22 tiles, the last of each axis partial, padding at the end.
        Plan("packed", ["causal & documents"], 700, (32, 32),
             documents=[230, 101, 66, 258]),
        # Two batch rows and two heads with four different lists.
        Plan("lists", ["causal | prefix", "causal & window(99, 0)"], 512,
             (32, 64), batch=2, prefixes=[64, 320], window=99),
        Plan("decode", ["causal & documents"], 1, (16, 32), kv_len=3000,
             documents=[1100, 1900]),
        # Its one query is padding: a warning, and no tile.
        Plan("padded", ["causal & documents"], 1, (16, 32), kv_len=1200,
             documents=[1000]),
        Plan("many", ["causal"], 64, (32, 32), batch=300,
             flags=["--batch-row", "299"]),
        Plan("million", ["causal & documents"], 1 << 20, (128, 128),
             documents=million_documents()),
    )
}
