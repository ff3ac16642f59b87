"""Requests whose probabilities stand just below a step of bf16, or just below the
middle between two: with them what is cut off, or rounded too early, shows.

At random most such errors stay below what roundings may add up to.
"""

import numpy as np

# Of bf16 between 1/2 and 1.
STEP = 2.0**-8
# A cut takes nearly a step of the first; the second loses half of one, and what it
# adds up to is beyond the bound once that is cut as well.
BELOW_A_STEP = 0.5 + STEP - STEP / 64
BELOW_THE_MIDDLE = 0.5 + STEP / 2 - STEP / 64
# Gradients' are smaller by so many, for exponents that bf16 has no room for.
OCTAVES = 20


def rising(n):
    """1 to 2, whose sums are rounded in every way."""
    return 1 + np.arange(n, dtype=np.float32) / 128 % 1


class Stepped:
    """Mixed in before a ForwardCase: each key but every 64th has the probability
    `stepped` of those."""

    stepped = BELOW_A_STEP

    def draw(self):
        q, k, v, legal = super().draw()
        of_score = -np.log(self.stepped)
        if self.softcap:
            of_score = self.softcap * np.arctanh(of_score / self.softcap)
        of_score *= self.dim**0.5  # scores are minus that
        first = np.asarray(of_score / 4).astype(self.dtype)
        q[...], q[..., 0] = 0, first
        q[..., 1] = (of_score - 4 * float(first)) * 64
        is_top = np.arange(self.kv_len) % 64 == 0
        for x, values in ((k, [-4, -1 / 64]), (v, rising(self.v_dim))):
            gone = np.isnan(x.astype(np.float32))
            x[...] = 0
            x[..., : len(values)] = values
            x[:, :, is_top] = 0
            x[gone] = np.nan
        return q, k, v, legal


class SteppedGradients:
    """The same of a BackwardCase, of every pair, and of dS. Those of every second
    tile of queries stand below a step, of the others below the middle, so that what
    one of two tiles loses is beyond the bound; every second head is all that counts.

    `twice`: what stands below a step is then dS, of probabilities below the middle,
    so that it shows which was rounded first.
    """

    turns = (0, 0)  # of each batch row: of the tiles of 128 queries below a step
    head = 0
    twice = False

    def draw(self):
        q, k, v, legal = super().draw()
        half = self.dim // 2
        for x, part in ((q, slice(0, half)), (k, slice(half, None))):
            gone = np.isnan(x.astype(np.float32))
            x[...] = 0  # scores are 0
            x[..., part] = rising(half)
            x[gone] = np.nan
        v[~np.isnan(v.astype(np.float32))] = 0
        return q, k, v, legal

    def by_turn(self, in_turn, other):
        tiles = np.arange(self.q_len) // 128 % 2
        return np.where(tiles == np.reshape(self.turns, (-1, 1, 1)), in_turn, other)

    def draw_gradients(self, legal):
        dout, dlse = super().draw_gradients(legal)
        dout[...], dlse[...] = 0, 0
        dout[:, self.head :: 2], dlse[:, self.head :: 2] = rising(self.v_dim), 1
        if self.twice:
            dlse *= self.by_turn(
                BELOW_A_STEP / BELOW_THE_MIDDLE,
                (BELOW_THE_MIDDLE + STEP) / BELOW_A_STEP,
            )
        return dout, dlse

    def saved(self, *arguments):
        """The log-sum-exp that makes it so, and an output of 0."""
        saved = super().saved(*arguments)
        saved.out[...] = 0
        stepped = [BELOW_A_STEP, BELOW_THE_MIDDLE]
        lse = -np.log(self.by_turn(*stepped[:: -1 if self.twice else 1]))
        lse = np.broadcast_to(lse + OCTAVES * np.log(2), saved.lse.shape)
        seen = saved.lse > -np.inf
        saved.lse[seen] = lse[seen]
        return saved


# A product of q and k, and the softcap that gives it, at head dim 128, a slope just
# below the middle.
SLOPED = 16, 25
SOFTCAP = 16 * 25 * 128**-0.5 / np.arctanh((1 - BELOW_THE_MIDDLE) ** 0.5)
