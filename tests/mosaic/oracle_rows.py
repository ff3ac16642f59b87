"""A second oracle, pair by pair and row by row: slow, but simple.

Arguments and results are those of oracle.py, which is checked against this one.
"""

import numpy as np

from oracle import (
    EPS32, ROUNDING, TINY32, Expected, Gradients, rounding_of_p,
)


def legal_pairs(
    q_len,
    kv_len,
    causal=False,
    window=(-1, -1),
    doc_ids=None,
    valid_count=None,
    q_offset=None,
):
    offset = kv_len - q_len if q_offset is None else q_offset
    count = kv_len if valid_count is None else valid_count
    # Without a count, a query may be beyond the keys.
    end = max(kv_len, q_len + offset) if valid_count is None else valid_count
    legal = np.zeros((q_len, kv_len), np.bool_)
    for i in range(q_len):
        position = i + offset
        if position >= end:
            continue
        if doc_ids is not None and not 0 <= position < kv_len:
            raise ValueError(f"query {i} stands outside the keys: {position}")
        for j in range(min(kv_len, count)):
            legal[i, j] = (
                (not causal or j <= position)
                and (window[0] < 0 or position - j <= window[0])
                and (window[1] < 0 or j - position <= window[1])
                and (
                    doc_ids is None
                    or (doc_ids[j] >= 0 and doc_ids[j] == doc_ids[position])
                )
            )
    return legal


def attention(
    q, k, v, legal, scale=None, softcap=0.0,
    rounded_sum=False, sinks=None,
):
    out_dtype = q.dtype
    q, k, v = (np.asarray(x).astype(np.float64) for x in (q, k, v))
    batch, heads, q_len, dim = q.shape
    group = heads // k.shape[1]
    scale = dim**-0.5 if scale is None else scale
    eps_p = rounding_of_p(out_dtype)
    eps_out, tiny_out = ROUNDING[np.dtype(out_dtype)]
    out = np.zeros((batch, heads, q_len, v.shape[-1]))
    lse = np.full((batch, heads, q_len), np.nan)
    out_error, lse_error = np.zeros_like(out), np.zeros_like(lse)
    for b, h, i in np.ndindex(batch, heads, q_len):
        keys = np.flatnonzero(legal[b, i])
        z = -np.inf if sinks is None else float(sinks[h])
        if not len(keys):
            # Exactly 0, and -inf or the sink.
            lse[b, h, i] = z
            continue
        kk, vv = k[b, h // group, keys], v[b, h // group, keys]
        scores = scale * (kk @ q[b, h, i])
        size = (np.abs(scale) * (np.abs(kk) @ np.abs(q[b, h, i]))).max()
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        top = scores.max()
        weights = np.exp(scores - top)
        keys_alone = top + np.log(weights.sum())
        lse[b, h, i] = np.logaddexp(keys_alone, z)
        p = weights / weights.sum() * np.exp(keys_alone - lse[b, h, i])
        out[b, h, i] = p @ vv
        sums = (8 + np.sqrt(len(keys))) * EPS32
        scores_error = 2 * (dim + 4) * EPS32 * size
        of_keys = 0
        if np.isfinite(z):
            share = np.exp(keys_alone - lse[b, h, i])
            step = 3 * abs(z - top) * EPS32
            sums += 8 * EPS32
            if z > top and share > 0:
                sums += step * share
                of_keys = step
            elif z <= top and share < 1:
                sums += step * (1 - share)
        rho = (0 if rounded_sum else eps_p) + sums + scores_error + of_keys
        out_error[b, h, i] = (rho * p + TINY32) @ np.abs(vv)
        if rounded_sum:
            # The last factor is more than 1 / (1 - eps_p).
            spread = p @ np.abs(vv - out[b, h, i])
            out_error[b, h, i] += eps_p * (1 + 2 * eps_p) * spread
            lse_error[b, h, i] += eps_p * (1 + eps_p)
        out_error[b, h, i] += eps_out * np.abs(out[b, h, i]) + tiny_out
        lse_error[b, h, i] += EPS32 * np.abs(lse[b, h, i]) + sums + scores_error
    return Expected(out, lse, out_error, lse_error)


def sink_part(z, lse, lse_error, dout, out, out_error, up, has_key):
    """A query's part of its sink's gradient, and the error of it."""
    if not has_key:
        return up, TINY32 * abs(up) + 3 * EPS32 * abs(up)
    p, delta = np.exp(z - lse), dout @ out
    t = up - delta
    tau = (len(out) + 4) * EPS32 * (np.abs(dout) @ np.abs(out))
    tau += 3 * EPS32 * (abs(delta) + abs(up)) + np.abs(dout) @ out_error
    pi = lse_error
    if p > 0:
        pi += (12 + 3 * abs(z - lse)) * EPS32
    return p * t, (pi * p + TINY32) * abs(t) + p * tau


def gradients(
    q, k, v, dout, legal, dlse=None, scale=None, out=None, lse=None,
    softcap=0.0, sinks=None,
):
    eps_p = rounding_of_p(q.dtype)
    eps_out, tiny_out = ROUNDING[q.dtype]
    full = attention(
        q, k, v, legal, scale=scale, softcap=softcap, sinks=sinks
    )
    out_error, lse_error = full.out_error, full.lse_error
    if out is not None:
        full.out, full.lse = (x.astype(np.float64) for x in (out, lse))
        out_error, lse_error = np.zeros_like(out_error), 0 * lse_error
    q, k, v, dout = (x.astype(np.float64) for x in (q, k, v, dout))
    batch, heads, q_len, dim = q.shape
    group = heads // k.shape[1]
    scale = dim**-0.5 if scale is None else scale
    result = Gradients(*(np.zeros(x.shape) for x in (q, k, v, q, k, v)))
    seen_by = np.zeros((batch, k.shape[1], k.shape[2]))
    sizes = [np.zeros_like(k), np.zeros_like(v)]
    of_sinks = [[] for _ in range(heads)]  # p t of every query
    sinks_error = np.zeros(heads)
    for b, h, i in np.ndindex(batch, heads, q_len):
        keys = np.flatnonzero(legal[b, i])
        if sinks is not None:
            part, error = sink_part(
                float(sinks[h]), full.lse[b, h, i], lse_error[b, h, i],
                dout[b, h, i], full.out[b, h, i], out_error[b, h, i],
                0.0 if dlse is None else float(dlse[b, h, i]), len(keys) > 0,
            )
            of_sinks[h].append(part)
            sinks_error[h] += error
        if not len(keys):
            continue
        g = h // group
        kk, vv, go = k[b, g, keys], v[b, g, keys], dout[b, h, i]
        size = np.abs(scale) * (np.abs(kk) @ np.abs(q[b, h, i]))
        top = full.lse[b, h, i]
        scores, slope, omega, factors = scale * (kk @ q[b, h, i]), 1, 0, dim + 4
        if softcap:
            factors += 6
            slope = 1 / np.cosh(scores / softcap) ** 2
            scores = softcap * np.tanh(scores / softcap)
            omega = (12 + (dim + 4) * size / softcap) * EPS32
        p = np.exp(scores - top)
        pi = (12 + factors * size + 3 * np.abs(top)) * EPS32
        # (If lse is computed, its error has the size of the row's largest
        # score.)
        pi += np.where(np.isfinite(top), lse_error[b, h, i], 0)
        a, delta = vv @ go, go @ full.out[b, h, i]
        up = 0.0 if dlse is None else float(dlse[b, h, i])
        t = a - delta + up
        tau = (dim + 4) * EPS32 * (
            np.abs(vv) @ np.abs(go) + np.abs(go) @ np.abs(full.out[b, h, i])
        )
        tau += 3 * EPS32 * (np.abs(a) + abs(delta) + abs(up))
        tau += np.abs(go) @ out_error[b, h, i]
        ds = p * t * slope
        ds_error = np.abs(t) * ((pi + eps_p + 8 * EPS32) * p + TINY32) * slope
        ds_error += slope * p * tau + (2 + 2 * dim) * TINY32
        ds_error += omega * np.abs(t) * p
        sums = (8 + np.sqrt(len(keys))) * EPS32
        result.dq[b, h, i] = scale * (ds @ kk)
        result.dq_error[b, h, i] = np.abs(scale) * (
            (ds_error + sums * np.abs(ds)) @ np.abs(kk)
        )
        result.dk[b, g, keys] += scale * np.outer(ds, q[b, h, i])
        result.dk_error[b, g, keys] += np.abs(
            scale * np.outer(ds_error, q[b, h, i])
        )
        result.dv[b, g, keys] += np.outer(p, go)
        result.dv_error[b, g, keys] += np.outer(
            (pi + eps_p) * p + TINY32, np.abs(go)
        )
        seen_by[b, g, keys] += 1
        sizes[0][b, g, keys] += np.abs(scale * np.outer(ds, q[b, h, i]))
        sizes[1][b, g, keys] += np.outer(p, np.abs(go))
    if sinks is not None:
        sums = (8 + np.sqrt(batch * q_len)) * EPS32
        result.dsinks = np.array([sum(x) for x in of_sinks])
        result.dsinks_error = (
            sinks_error + EPS32 * np.abs(result.dsinks) + TINY32
            + sums * np.array([np.abs(x).sum() for x in of_sinks])
        )
    sums = ((8 + np.sqrt(seen_by)) * EPS32)[..., None]
    result.dk_error += sums * sizes[0]
    result.dv_error += sums * sizes[1]
    for name in ("dq", "dk", "dv"):
        error, value = getattr(result, f"{name}_error"), getattr(result, name)
        # Without a legal pair it is exactly 0.
        some = error > 0
        error[some] += eps_out * np.abs(value[some]) + tiny_out
    return result
