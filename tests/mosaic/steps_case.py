"""Requests whose probabilities are just below a step of bf16, or just below the
middle between two steps. They detect kernels that truncate, or round too early.

With random inputs most such errors stay below the bound of rounding errors.
"""

import numpy as np

# A step of bf16 between 1/2 and 1.
STEP = 2.0**-8
# Truncation takes nearly a step from the first. It takes half a step from the
# second, whose sum exceeds the bound once it is truncated as well.
BELOW_A_STEP = 0.5 + STEP - STEP / 64
BELOW_THE_MIDDLE = 0.5 + STEP / 2 - STEP / 64
# Probabilities of gradients are smaller by so many octaves.
OCTAVES = 20


def rising(n):
    """Numbers from 1 to 2, whose sums are rounded in every way."""
    return 1 + np.arange(n, dtype=np.float32) / 128 % 1


class Stepped:
    """A mixin of ForwardCase: the probability of each key is `stepped` times
    that of every 64th key."""

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
    """The same for a BackwardCase, for every pair, and for dS. In every second
    tile of queries the probabilities are below a step, in the others below the
    middle, so that the loss in one of two tiles exceeds the bound. Only every
    second head counts.

    `twice`: dS is below a step and probabilities are below the middle, which
    shows which of the two was rounded first.
    """

    turns = (0, 0)  # by batch row: the parity of tiles of 128 queries below a step
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
        """The log-sum-exp that gives these probabilities, and an output of
        0."""
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
