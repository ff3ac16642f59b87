"""Dense attention in fp64, from the definitions, with error bounds for fp32.

Nothing here uses tiles. `attention` returns outputs and log-sum-exps, each with
its allowed absolute error; `worst` compares. Whole heads are computed at once;
oracle_rows.py does the same row by row.
"""

import dataclasses

import numpy as np
from ml_dtypes import bfloat16

EPS32 = 2.0**-24
TINY32 = 2.0**-126
# Unit roundoff of a cast, and the error of a subnormal result, which may become
# 0.
ROUNDING = {
    np.dtype(bfloat16): (2.0**-8, TINY32),
    np.dtype(np.float16): (2.0**-11, 2.0**-25),
    np.dtype(np.float32): (EPS32, TINY32),
}


@dataclasses.dataclass
class Expected:
    """out [B, H, Q, Dv] and lse [B, H, Q], each with its allowed error."""

    out: np.ndarray
    lse: np.ndarray
    out_error: np.ndarray
    lse_error: np.ndarray


def legal_pairs(
    q_len,
    kv_len,
    causal=False,
    window=(-1, -1),
    doc_ids=None,
    valid_count=None,
    q_offset=None,
):
    """The legal pairs of one batch row.

    `window` has inclusive distances, -1 for no limit. A token with a negative
    id sees no key and is seen by no query. Without ids there are no documents.
    """
    offset = kv_len - q_len if q_offset is None else q_offset
    count = kv_len if valid_count is None else valid_count
    # Without a count, a query may be beyond the keys.
    end = max(kv_len, q_len + offset) if valid_count is None else valid_count
    position = np.arange(q_len)[:, None] + offset
    key = np.arange(kv_len)[None, :]
    legal = (position < end) & (key < count)
    if causal:
        legal &= key <= position
    if window[0] >= 0:
        legal &= position - key <= window[0]
    if window[1] >= 0:
        legal &= key - position <= window[1]
    if doc_ids is not None:
        ids = np.asarray(doc_ids)
        outside = (position < end) & ((position < 0) | (position >= kv_len))
        if outside.any():
            raise ValueError(
                f"queries {np.flatnonzero(outside)} stand outside the keys"
            )
        own = ids[np.clip(position, 0, kv_len - 1)]
        legal &= (ids >= 0) & (ids == own)
    return legal


def scores_of(q, k, pairs, scale, softcap):
    """Scores of rows and keys, -inf for illegal pairs; and for each row the
    largest sum of magnitudes of a score, and the highest score."""
    scores = scale * (q @ k.T)
    size = np.abs(scale) * (np.abs(q) @ np.abs(k).T)
    size = np.where(pairs, size, 0.0).max(1, initial=0.0)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    scores = np.where(pairs, scores, -np.inf)
    return scores, size, scores.max(1, initial=-np.inf)


def pairs_of(legal, b, h):
    """The legal pairs of one head; [B, Q, K] is the same for all heads."""
    return legal[b] if legal.ndim == 3 else legal[b, h]


def rounding_of_p(dtype):
    """The rounding of a float32 number that becomes an operand of this type."""
    dtype = np.dtype(dtype)
    return 0.0 if dtype == np.float32 else ROUNDING[dtype][0]


def seen(x, legal):
    """Keys or values [K, D] in fp64, with 0 for those that no query sees."""
    x = np.where(legal.any(0)[:, None], x.astype(np.float64), 0.0)
    if not np.isfinite(x).all():
        raise ValueError("what is seen must be finite")
    return x


def attention(
    q, k, v, legal, scale=None, softcap=0.0,
    rounded_sum=False, sinks=None,
):
    """Attention of q [B, H, Q, D], k [B, G, K, D], v [B, G, K, Dv] with legal
    pairs [B, Q, K], or [B, H, Q, K] if heads differ.

    The probabilities may be rounded to q's type for their product (for float32
    they are not). With `rounded_sum` they are divided by the sum of rounded
    ones, so that

      lse  errs by eps_p more: the sum of p (1 + d), |d| <= eps_p;
      out  = sum p (1 + d) v / sum p (1 + d) is a mean of the values, whose
           error sum p d (v - out) is at most eps_p sum p |v - out|.

    `sinks` [H] are logits that are added to a row's sum at its end. Let d be
    the distance of such a logit z from the highest score. The smaller of the
    two factors, exp(-d), errs by (3 d + 2) u, relative: a difference, a
    product, its constant, exp2. If it is the factor of the keys, all p have it;
    the sum has it times its share of the softmax. Product, sum and division are
    6 u at most.
    """
    out_dtype = q.dtype
    q, k, v = (np.asarray(x).astype(np.float64) for x in (q, k, v))
    batch, heads, q_len, dim = q.shape
    group = heads // k.shape[1]
    scale = dim**-0.5 if scale is None else scale
    eps_p = rounding_of_p(out_dtype)
    eps_out, tiny_out = ROUNDING[np.dtype(out_dtype)]
    out = np.zeros((batch, heads, q_len, v.shape[-1]))
    lse = np.full((batch, heads, q_len), -np.inf)
    if sinks is not None:
        lse[:] = sinks.astype(np.float64)[:, None]
    out_error, lse_error = np.zeros_like(out), np.zeros_like(lse)
    for b, h in np.ndindex(batch, heads):
        pairs = pairs_of(legal, b, h)
        rows = pairs.any(1)
        kk, vv = (seen(x[b, h // group], pairs) for x in (k, v))
        # Rows that see no key have exactly 0 and -inf.
        qq, pairs = q[b, h, rows], pairs[rows]
        scores, size, top = scores_of(qq, kk, pairs, scale, softcap)
        sums = (8 + np.sqrt(pairs.sum(1))) * EPS32
        of_keys = 0
        if sinks is not None and np.isfinite(sinks[h]):
            z = float(sinks[h])
            of_row = np.exp(scores - top[:, None]).sum(1)
            with np.errstate(over="ignore"):
                share = 1 / (1 + np.exp(z - top) / of_row)
            lower = np.where(z > top, share, 1 - share)
            step = 3 * np.abs(z - top) * EPS32
            sums = sums + 8 * EPS32 + np.where(lower > 0, step * lower, 0)
            of_keys = np.where((z > top) & (share > 0), step, 0)
            top = np.maximum(top, z)
        weights = np.exp(scores - top[:, None])
        total = weights.sum(1)
        if sinks is not None:
            total = total + np.exp(sinks[h].astype(np.float64) - top)
        lse[b, h, rows] = top + np.log(total)
        p = weights / total[:, None]
        mean = p @ vv
        scores_error = 2 * (dim + 4) * EPS32 * size
        rho = (0 if rounded_sum else eps_p) + sums + scores_error + of_keys
        allowed = (rho[:, None] * p + TINY32 * pairs) @ np.abs(vv)
        if rounded_sum:
            # The last factor is more than 1 / (1 - eps_p).
            spread = [
                row[own] @ np.abs(vv[own] - m)
                for row, m, own in zip(p, mean, pairs)
            ]
            allowed += eps_p * (1 + 2 * eps_p) * np.reshape(spread, mean.shape)
            lse_error[b, h, rows] += eps_p * (1 + eps_p)
        out[b, h, rows] = mean
        out_error[b, h, rows] = allowed + eps_out * np.abs(mean) + tiny_out
        lse_error[b, h, rows] += (
            EPS32 * np.abs(lse[b, h, rows]) + sums + scores_error
        )
    return Expected(out, lse, out_error, lse_error)


@dataclasses.dataclass
class Entropies:
    """The entropy of each query's probabilities, [B, H, Q], and its allowed
    error."""

    value: np.ndarray
    error: np.ndarray


def entropies(q, k, legal, scale=None, softcap=0.0):
    """H = -sum p log p over the legal keys; 0 if there are none.

    With d_j <= 0 the distance of score j from the highest, H = log l - t / l with
    l = sum e^d_j and t = sum e^d_j d_j, whose terms do not cancel. Let T = -t / l, N
    the number of keys, and A the mean of |s_j - mean s|; means are weighted by p.
      A score errs by e = (D + 8) u S: its product D u S, scale, cap with its tanh,
      and the roundings of its subtraction. The slope of H in s_j is -p_j (s_j -
      mean s), so H changes by at most 2 e e^2e (A + e), and never by more than log N.
      A weight has the relative error delta_j = (8 + sqrt N + 4 P) u + 2 u |d_j|. P is
      how often the highest score so far may rise (once in 128 keys); sums are scaled
      then. This changes H by sum p_j delta_j (1 + |d_j| + T).
      Sum t errs by (8 + sqrt N + 4 P) u T; logarithm, division, difference 8 u H.
      A subnormal weight may become 0: with its d_j, up to 2^-119 each.
    """
    q, k = (np.asarray(x).astype(np.float64) for x in (q, k))
    batch, heads, q_len, dim = q.shape
    group = heads // k.shape[1]
    scale = dim**-0.5 if scale is None else scale
    value, error = (np.zeros((batch, heads, q_len)) for _ in range(2))
    for b, h in np.ndindex(batch, heads):
        pairs = pairs_of(legal, b, h)
        rows = pairs.any(1)
        kk = seen(k[b, h // group], pairs)
        qq, pairs = q[b, h, rows], pairs[rows]
        scores, size, top = scores_of(qq, kk, pairs, scale, softcap)
        d = np.where(pairs, scores - top[:, None], 0.0)
        p = np.where(pairs, np.exp(d), 0.0)
        total = p.sum(1)
        p = p / total[:, None]
        spread = -(p * d).sum(1)
        of_row = np.log(total) + spread
        count = pairs.sum(1)
        sums = (8 + np.sqrt(count) + 4 * -(-k.shape[2] // 128)) * EPS32
        e = (dim + 8) * EPS32 * size
        mean = (p * d).sum(1)[:, None]
        deviation = (p * np.abs(d - mean)).sum(1)
        with np.errstate(over="ignore"):
            moved = 2 * e * np.exp(2 * e) * (deviation + e)
        delta = sums[:, None] + 2 * EPS32 * np.abs(d)
        weights = (p * delta * (1 + np.abs(d) + spread[:, None])).sum(1)
        value[b, h, rows] = of_row
        error[b, h, rows] = (
            np.minimum(moved, np.log(count)) + weights + sums * spread
            + 8 * EPS32 * of_row + count * 2.0**-119
        )
    return Entropies(value, error)


@dataclasses.dataclass
class Gradients:
    """dq [B, H, Q, D], dk and dv [B, G, K, D], each with its allowed error."""

    dq: np.ndarray
    dk: np.ndarray
    dv: np.ndarray
    dq_error: np.ndarray
    dk_error: np.ndarray
    dv_error: np.ndarray
    dsinks: np.ndarray | None = None  # [H], if there are sinks
    dsinks_error: np.ndarray | None = None


@dataclasses.dataclass
class Head:
    """What the gradients of one head depend on: its rows that see a key, and
    the keys and values that a row sees. lse, its error and dlse are columns.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    dout: np.ndarray
    dlse: np.ndarray | float
    out: np.ndarray
    lse: np.ndarray
    out_error: np.ndarray
    lse_error: np.ndarray
    pairs: np.ndarray


def capped(scores, size, dim, softcap):
    """Scores with the cap, their slope and its error, and the units of u S that
    a score errs by.

    With a softcap c, tanh (which errs by 4 u) and its two factors add 6 u S.
    The slope is w = 1 - tanh(s / c)^2. Its derivative is at most 0.77, so w errs
    by omega = 12 u + (D + 4) u S / c: the tanh and its square, then s.
    """
    if not softcap:
        return scores, 1.0, 0.0, dim + 4
    tanh = np.tanh(scores / softcap)
    omega = (12 + (dim + 4) * size / softcap) * EPS32
    return softcap * tanh, 1 - tanh**2, omega, dim + 10


def pulls(x):
    """t = g.v - g.out + h of each pair and its error tau = (D + 4) u (sum |g v| +
    sum |g out|) + 3 u (|g.v| + |g.out| + |h|), more by |g| times the error of out.
    """
    a, delta = x.dout @ x.v.T, (x.dout * x.out).sum(1, keepdims=True)
    tau = (x.q.shape[1] + 4) * EPS32 * (
        np.abs(x.dout) @ np.abs(x.v).T
        + (np.abs(x.dout) * np.abs(x.out)).sum(1, keepdims=True)
    )
    tau += 3 * EPS32 * (np.abs(a) + np.abs(delta) + np.abs(x.dlse))
    tau += (np.abs(x.dout) * x.out_error).sum(1, keepdims=True)
    return a - delta + x.dlse, tau


def p_and_ds(x, scale, softcap, eps_p):
    """P and dS of one head, each with its allowed error.

      p    errs by pi = 12 u + (D + 4) u S + 3 u |lse|, relative: products, scale,
           difference; the constant, product and difference of lse; exp2.
           The error of lse is added if it is not given.
      ds   = p t w errs by w |t| ((pi + e + 8 u) p + f) + w p tau + (2 + 2 D) f
           + |t| p omega, with the slope w of the cap (1 without one)
    """
    dim = x.q.shape[1]
    size = np.abs(scale) * (np.abs(x.q) @ np.abs(x.k).T)
    scores, slope, omega, factors = capped(
        scale * (x.q @ x.k.T), size, dim, softcap
    )
    # p is 0 for illegal pairs, so all products with p are 0 there too.
    p = np.exp(np.where(x.pairs, scores - x.lse, -np.inf))
    pi = (12 + factors * size + 3 * np.abs(x.lse)) * EPS32
    # (If lse is computed, its error has the size of the row's largest score.)
    pi += np.where(np.isfinite(x.lse), x.lse_error, 0)
    t, tau = pulls(x)
    ds = p * t * slope
    ds_error = slope * np.abs(t) * ((pi + eps_p + 8 * EPS32) * p + TINY32)
    ds_error += slope * p * tau + (2 + 2 * dim) * TINY32
    ds_error += np.abs(t) * p * omega
    ds_error *= x.pairs
    p_error = ((pi + eps_p) * p + TINY32) * x.pairs
    return p, p_error, ds, ds_error


def as_stored(full, out, lse):
    """What a kernel reads of the forward pass: `out` and `lse` exactly, or, if
    they are not given, the computed ones with their errors."""
    if out is None:
        return full
    return Expected(
        out.astype(np.float64), lse.astype(np.float64),
        np.zeros_like(full.out_error), 0 * full.lse_error,
    )


def gradients(
    q, k, v, dout, legal, dlse=None, scale=None, out=None, lse=None,
    softcap=0.0, sinks=None,
):
    """The gradients of attention in fp64, for kernels that round P and dS to
    q's type.

    A kernel reads `out` and `lse` as they were stored. If they are given, they
    are taken as exact; else they are computed, and the error of a forward
    kernel in them is allowed too.

    With u = 2^-24, n legal keys, D the head dim, S the size of a pair's score
    (of the row's largest, if lse is not given) and e the rounding to bf16 (0
    for float32), p_and_ds() derives the allowed errors of p and ds, to first
    order. Sums of n terms err by (8 + sqrt n) u of the sum of magnitudes.
    f = 2^-126: a subnormal number may become 0.
    """
    eps_p = rounding_of_p(q.dtype)
    eps_out, tiny_out = ROUNDING[q.dtype]
    full = as_stored(
        attention(q, k, v, legal, scale=scale, softcap=softcap, sinks=sinks),
        out, lse,
    )
    q, k, v, dout = (x.astype(np.float64) for x in (q, k, v, dout))
    batch, heads, q_len, dim = q.shape
    group = heads // k.shape[1]
    scale = dim**-0.5 if scale is None else scale
    result = Gradients(*(np.zeros(x.shape) for x in (q, k, v, q, k, v)))
    seen_by = np.zeros((batch, k.shape[1], k.shape[2]))
    sizes = [np.zeros_like(k), np.zeros_like(v)]
    for b, h in np.ndindex(batch, heads):
        g, pairs = h // group, pairs_of(legal, b, h)
        rows = pairs.any(1)
        at = (b, h, rows)
        x = Head(
            q[at], seen(k[b, g], pairs), seen(v[b, g], pairs), dout[at],
            0.0 if dlse is None else dlse[at][:, None].astype(float),
            full.out[at], full.lse[at][:, None],
            full.out_error[at], full.lse_error[at][:, None],
            pairs[rows],
        )
        p, p_error, ds, ds_error = p_and_ds(x, scale, softcap, eps_p)
        sums = (8 + np.sqrt(x.pairs.sum(1, keepdims=True))) * EPS32
        result.dq[at] = scale * (ds @ x.k)
        result.dq_error[at] = np.abs(scale) * (
            (ds_error + sums * np.abs(ds)) @ np.abs(x.k)
        )
        result.dk[b, g] += scale * (ds.T @ x.q)
        result.dk_error[b, g] += np.abs(scale) * (ds_error.T @ np.abs(x.q))
        result.dv[b, g] += p.T @ x.dout
        result.dv_error[b, g] += p_error.T @ np.abs(x.dout)
        seen_by[b, g] += x.pairs.sum(0)
        sizes[0][b, g] += np.abs(scale) * (np.abs(ds).T @ np.abs(x.q))
        sizes[1][b, g] += p.T @ np.abs(x.dout)
    if sinks is not None:
        found = sink_gradients(full, dout, dlse, legal, sinks)
        result.dsinks, result.dsinks_error = found
    sums = ((8 + np.sqrt(seen_by)) * EPS32)[..., None]
    result.dk_error += sums * sizes[0]
    result.dv_error += sums * sizes[1]
    for name in ("dq", "dk", "dv"):
        error, value = getattr(result, f"{name}_error"), getattr(result, name)
        # Without a legal pair it is exactly 0.
        some = error > 0
        error[some] += eps_out * np.abs(value[some]) + tiny_out
    return result


def sink_gradients(full, dout, dlse, legal, sinks):
    """The gradient of a sink z: the sum of p t over all real queries, with p =
    exp(z - lse) (1 without a key) and t = h - g.out. p has the relative error
    (12 + 3 |z - lse|) u, and t errs by tau without g.v.
    """
    batch, heads, q_len, dim = full.out.shape
    out, error = np.zeros(heads), np.zeros(heads)
    for h in range(heads):
        z = float(sinks[h])
        size = 0.0
        for b in range(batch):
            rows = pairs_of(legal, b, h).any(1)
            p, off = np.ones(q_len), np.zeros(q_len)
            below = z - full.lse[b, h, rows]
            p[rows] = np.exp(below)
            off[rows] = np.where(
                p[rows] > 0, (12 + 3 * np.abs(below)) * EPS32, 0
            ) + full.lse_error[b, h, rows]
            # dout of a query without a key does not count, whatever its values.
            go = np.where(rows[:, None], dout[b, h], 0)
            oo = np.where(rows[:, None], full.out[b, h], 0)
            up = np.zeros(q_len) if dlse is None else dlse[b, h].astype(float)
            delta = (go * oo).sum(1)
            t = up - delta
            tau = (dim + 4) * EPS32 * (np.abs(go) * np.abs(oo)).sum(1)
            tau += 3 * EPS32 * (np.abs(delta) + np.abs(up))
            tau += (np.abs(go) * full.out_error[b, h]).sum(1)
            out[h] += (p * t).sum()
            error[h] += ((off * p + TINY32) * np.abs(t) + p * tau).sum()
            size += np.abs(p * t).sum()
        error[h] += (8 + np.sqrt(batch * q_len)) * EPS32 * size
        error[h] += EPS32 * np.abs(out[h]) + TINY32
    return out, error


def worst(got, want, error):
    """The largest ratio of an error to its allowed error; above 1 fails.

    An unexpected NaN has an infinite ratio, and so has any other value where no
    error is allowed.
    """
    got = np.asarray(got).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        ratio = np.abs(got - want) / error
    ratio = np.where(same, 0.0, np.where(np.isfinite(ratio), ratio, np.inf))
    return float(ratio.max()) if ratio.size else 0.0


def hard_inputs(seed, q_shape, kv_shape, dtype=bfloat16, v_dim=None):
    """q, k, v whose rows differ in size: some scores are far below 0.

    On rows with such scores a wrong kernel underflows, for example one whose
    maximum starts at 0. On scores near 0 it would be right.
    """
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal(q_shape), rng.standard_normal(kv_shape)
    v_dim = kv_shape[-1] if v_dim is None else v_dim
    v = rng.standard_normal((*kv_shape[:-1], v_dim)) + 0.5
    k += 1.0
    # A quarter of the rows have scores near -160, where exp is 0 in f32.
    q[..., 1::4, :] -= 160.0 * q_shape[-1] ** -0.5
    q[..., 2::4, :] += 0.5
    q[..., 3::4, :] *= 0.1
    return [x.astype(np.float32).astype(dtype) for x in (q, k, v)]
