"""A second oracle, pair by pair and row by row: slow, but simple.

Arguments and results are those of oracle.py, which is checked against this one.
"""

import dataclasses

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


def sink_part(z, dout, up, stored, has_key):
    """A query's part of its sink's gradient, and the error of it. `stored` has
    the results of the query."""
    if not has_key:
        return up, TINY32 * abs(up) + 3 * EPS32 * abs(up)
    p, delta = np.exp(z - stored.lse), dout @ stored.out
    t = up - delta
    tau = (len(dout) + 4) * EPS32 * (np.abs(dout) @ np.abs(stored.out))
    roundings = 3 * EPS32 * (abs(delta) + abs(up))
    tau += roundings + np.abs(dout) @ stored.out_error
    pi = stored.lse_error
    if p > 0:
        pi += (12 + 3 * abs(z - stored.lse)) * EPS32
    return p * t, (pi * p + TINY32) * abs(t) + p * tau


def as_stored(full, out, lse):
    """The stored results, taken as exact; or the computed ones."""
    if out is not None:
        full.out, full.lse = (x.astype(np.float64) for x in (out, lse))
        full.out_error = np.zeros_like(full.out_error)
        full.lse_error = 0 * full.lse_error
    return full


def query_gradients(q, k, v, dout, up, stored, scale, softcap, eps_p):
    """p and ds of one query with its legal keys, each with its error."""
    dim = len(q)
    size = np.abs(scale) * (np.abs(k) @ np.abs(q))
    scores, slope, omega, factors = scale * (k @ q), 1, 0, dim + 4
    if softcap:
        factors += 6
        slope = 1 / np.cosh(scores / softcap) ** 2
        scores = softcap * np.tanh(scores / softcap)
        omega = (12 + (dim + 4) * size / softcap) * EPS32
    p = np.exp(scores - stored.lse)
    pi = (12 + factors * size + 3 * np.abs(stored.lse)) * EPS32
    # (If lse is computed, its error has the size of the row's largest score.)
    pi += np.where(np.isfinite(stored.lse), stored.lse_error, 0)
    a, delta = v @ dout, dout @ stored.out
    t = a - delta + up
    tau = (dim + 4) * EPS32 * (
        np.abs(v) @ np.abs(dout) + np.abs(dout) @ np.abs(stored.out)
    )
    tau += 3 * EPS32 * (np.abs(a) + abs(delta) + abs(up))
    tau += np.abs(dout) @ stored.out_error
    ds = p * t * slope
    ds_error = np.abs(t) * ((pi + eps_p + 8 * EPS32) * p + TINY32) * slope
    ds_error += slope * p * tau + (2 + 2 * dim) * TINY32
    ds_error += omega * np.abs(t) * p
    return p, (pi + eps_p) * p + TINY32, ds, ds_error


def add_sinks(result, parts, errors):
    """The gradients of the sinks [H] from the parts of every query [H, B * Q]."""
    sums = (8 + np.sqrt(parts.shape[1])) * EPS32
    result.dsinks = np.array([sum(x) for x in parts])
    result.dsinks_error = (
        errors + EPS32 * np.abs(result.dsinks) + TINY32
        + sums * np.array([np.abs(x).sum() for x in parts])
    )


def add_sums(result, seen_by, sizes):
    """The errors of sums over queries, whose magnitudes are `sizes`."""
    sums = ((8 + np.sqrt(seen_by)) * EPS32)[..., None]
    result.dk_error += sums * sizes[0]
    result.dv_error += sums * sizes[1]


def add_cast(result, eps_out, tiny_out):
    """The errors of the cast to the type of the results."""
    for name in ("dq", "dk", "dv"):
        error, value = getattr(result, f"{name}_error"), getattr(result, name)
        # Without a legal pair it is exactly 0.
        some = error > 0
        error[some] += eps_out * np.abs(value[some]) + tiny_out


def gradients(
    q, k, v, dout, legal, dlse=None, scale=None, out=None, lse=None,
    softcap=0.0, sinks=None,
):
    eps_p, rounding = rounding_of_p(q.dtype), ROUNDING[q.dtype]
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
    of_sinks = [[] for _ in range(heads)]  # p t of every query
    sinks_error = np.zeros(heads)
    for b, h, i in np.ndindex(batch, heads, q_len):
        keys = np.flatnonzero(legal[b, i])
        qq, go = q[b, h, i], dout[b, h, i]
        up = 0.0 if dlse is None else float(dlse[b, h, i])
        stored = Expected(
            *(getattr(full, x.name)[b, h, i] for x in dataclasses.fields(full))
        )
        if sinks is not None:
            part, error = sink_part(
                float(sinks[h]), go, up, stored, len(keys) > 0
            )
            of_sinks[h].append(part)
            sinks_error[h] += error
        if not len(keys):
            continue
        g = h // group
        kk = k[b, g, keys]
        p, p_error, ds, ds_error = query_gradients(
            qq, kk, v[b, g, keys], go, up, stored, scale, softcap, eps_p
        )
        sums = (8 + np.sqrt(len(keys))) * EPS32
        result.dq[b, h, i] = scale * (ds @ kk)
        result.dq_error[b, h, i] = np.abs(scale) * (
            (ds_error + sums * np.abs(ds)) @ np.abs(kk)
        )
        result.dk[b, g, keys] += scale * np.outer(ds, qq)
        result.dk_error[b, g, keys] += np.abs(scale * np.outer(ds_error, qq))
        result.dv[b, g, keys] += np.outer(p, go)
        result.dv_error[b, g, keys] += np.outer(p_error, np.abs(go))
        seen_by[b, g, keys] += 1
        sizes[0][b, g, keys] += np.abs(scale * np.outer(ds, qq))
        sizes[1][b, g, keys] += np.outer(p, np.abs(go))
    if sinks is not None:
        add_sinks(result, np.array(of_sinks), sinks_error)
    add_sums(result, seen_by, sizes)
    add_cast(result, *rounding)
    return result
