"""Attention in float64, in NumPy only, with the allowed error of each element
for a call that computes in fp32.

The sums of magnitudes are those of src/lanes/reference/bound.cc, which derives
them and explains the names used here. No code is shared with it, and
judge_test.py compares the two.
"""

import dataclasses
from types import SimpleNamespace

import numpy as np
from bound import (ROUNDING, TINY, U, Expected, check, dot_error, shares,
                   sum_error)

__all__ = ["ROUNDING", "U", "Expected", "attention", "check", "check_all",
           "check_grads_of_square", "shares", "sink_telemetry",
           "sum_error"]

BLOCK = 512  # queries computed at once


def check_all(found, expected):
    """Checks all or the first of the results of `attention`, or its four
    gradients."""
    names = ("out", "lse", "dq", "dk", "dv", "dsink")
    if len(found) == 4:
        expected, names = expected[2:], names[2:]
    return max(check(*x) for x in zip(found, expected, names))


def forward(q, k, v, legal, scale, softcap, sink, r):
    """A block of queries, [batch, heads, queries, ...]; `sink` [heads, 1]."""
    raw = scale * (q @ k.swapaxes(2, 3))
    size = np.abs(scale) * (np.abs(q) @ np.abs(k).swapaxes(2, 3))
    row = SimpleNamespace(n=legal.sum(-1), slope=1.0)
    score = raw
    if softcap:
        score = softcap * np.tanh(raw / softcap)
        row.slope = 1 / np.cosh(raw / softcap) ** 2
    score = np.where(legal, score, -np.inf)
    top = np.maximum(score.max(-1), sink)
    safe = np.where(np.isfinite(top), top, 0)
    weight = np.exp(score - safe[..., None])
    of_sink = np.exp(sink - safe)
    total = weight.sum(-1) + of_sink
    some = np.where(total > 0, total, 1)
    row.p, row.p_sink = weight / some[..., None], of_sink / some
    with np.errstate(divide="ignore"):
        row.lse = safe + np.log(total)
    row.out = row.p @ v
    row.alive = row.n > 0
    row.score_error = dot_error(q.shape[-1]) * np.where(legal, size, 0).max(-1)
    row.lse_error = row.alive * (
        sum_error(row.n) + 2 * row.score_error + r.lost)
    rho = r.product + sum_error(row.n) + 2 * row.score_error
    row.out_error = (rho[..., None] * row.p + TINY * legal) @ np.abs(v)
    row.out_error += (row.alive * (row.n + 1) * r.lost)[..., None]
    return row


def backward(q, k, v, legal, scale, softcap, sink, dout, dout_error, dlse, row,
             r, stored_every):
    """The results of a block of queries: dq, its parts of dk, dv and of the
    sinks' gradients, and for the last three the sizes of their terms."""
    g, h = np.abs(dout), dlse[..., None]
    dot = dot_error(v.shape[-1])
    delta = (dout * row.out).sum(-1, keepdims=True)
    x = (g * (row.out_error + r.output * np.abs(row.out) + r.output_tiny) +
         (dot * g + dout_error) * np.abs(row.out)).sum(-1, keepdims=True)
    a = dout @ v.swapaxes(2, 3)
    t = a - delta + h
    tau = (dot * g + dout_error) @ np.abs(v).swapaxes(2, 3) + x
    tau += 3 * U * (np.abs(a) + np.abs(delta) + np.abs(h))
    lse = np.where(row.alive, np.abs(row.lse), 0)
    pi = (4 * U + sum_error(row.n) + 3 * row.score_error +
          2 * U * lse)[..., None]
    omega = (8 * U + row.score_error / softcap)[..., None] if softcap else 0.0
    ds = row.p * t * row.slope
    ds_error = row.slope * np.abs(t) * (
        (pi + r.product + 8 * U) * row.p + TINY)
    ds_error += row.p * (row.slope * tau + (np.abs(t) + tau) * omega)
    ds_error = legal * (ds_error + (2 + 2 * v.shape[-1]) * r.lost)
    p_error = legal * ((pi + r.product) * row.p + TINY + r.lost)
    seen = legal.astype(np.float64)
    size = np.abs(scale)
    turn = lambda x: x.swapaxes(2, 3)
    n = sum_error(row.n, r, stored_every)[..., None]
    dq = Expected(scale * (ds @ k),
                  size * ((ds_error + n * np.abs(ds)) @ np.abs(k)) +
                  r.lost * (seen @ (1 + np.abs(k))))
    dk = Expected(scale * (turn(ds) @ q),
                  size * (turn(ds_error) @ np.abs(q)) +
                  r.lost * (turn(seen) @ (1 + np.abs(q))))
    dv = Expected(turn(row.p) @ dout,
                  turn(p_error) @ g + turn(row.p) @ dout_error +
                  r.lost * seen.sum(2)[..., None])
    z = np.where(np.isfinite(sink), np.abs(sink), 0)
    delta, t, x = delta[..., 0], (dlse - delta[..., 0]), x[..., 0]
    sink_error = ((pi[..., 0] + z * U) * row.p_sink + TINY) * np.abs(t)
    sink_error += row.p_sink * (
        x + 3 * U * (np.abs(delta) + np.abs(dlse))) + r.lost
    sinks = Expected((row.p_sink * t).sum((0, 2)),
                     (row.alive * sink_error).sum((0, 2)))
    sizes = (size * (turn(np.abs(ds)) @ np.abs(q)), turn(row.p) @ g,
             np.abs(row.p_sink * t).sum((0, 2)))
    return dq, (dk, dv, sinks), sizes


def attention(q, k, v, mask, scale=None, softcap=0.0, sinks=None, dout=None,
              dlse=None, dtype=None, dout_error=None, stored_every=0):
    """[out, lse], and if `dout` is given also dq, dk, dv and the gradient of
    the sink logits. Arrays are [batch, heads, tokens, dim] and finite; `mask`
    is [batch, q, k], or [batch, heads, q, k] if heads differ. `dtype` is that
    of the call's inputs, by default that of `q`. `dout_error` is the error of
    its `dout`. `stored_every` is the number of terms of a gradient after which
    the call stores the sum in `dtype`; 0: it does not."""
    dtype = str(q.dtype if dtype is None else dtype)
    r = ROUNDING[dtype]
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    batch, heads, q_len, dim = q.shape
    group = heads // k.shape[1]
    scale = dim**-0.5 if scale is None else scale
    kk, vv = np.repeat(k, group, 1), np.repeat(v, group, 1)
    mask = np.broadcast_to(mask if mask.ndim == 4 else mask[:, None],
                           (batch, heads, q_len, k.shape[2]))
    sink = np.full(heads, -np.inf) if sinks is None else sinks
    sink = sink.astype(np.float64)[:, None]
    if dout is not None:
        shape = (*q.shape[:3], v.shape[-1])
        filled = lambda x, n: np.broadcast_to(
            0.0 if x is None else x, n).astype(np.float64)
        given = (filled(dout, shape), filled(dout_error, shape),
                 filled(dlse, shape[:3]))
    blocks, sums = [], None
    for at in range(0, q_len, BLOCK):
        of = (slice(None), slice(None), slice(at, at + BLOCK))
        call = (q[of], kk, vv, mask[of], scale, softcap, sink)
        row = forward(*call, r)
        made = [Expected(row.out, row.out_error, dtype),
                Expected(row.lse, row.lse_error)]
        if dout is not None:
            dq, *parts = backward(*call, *(x[of] for x in given), row, r,
                                  stored_every)
            made.append(dataclasses.replace(dq, dtype=dtype))
            flat = [x for e in parts[0] for x in (e.value, e.error)] + [
                *parts[1]]
            sums = flat if sums is None else [
                x + y for x, y in zip(sums, flat)]
        blocks.append(made)
    join = lambda es: Expected(np.concatenate([e.value for e in es], 2),
                               np.concatenate([e.error for e in es], 2),
                               es[0].dtype)
    out = [join(es) for es in zip(*blocks)]
    if dout is None:
        return out
    fold = lambda x: x.reshape(batch, -1, group, *x.shape[2:]).sum(2)
    terms = sum_error(fold(mask.sum(2)), r, stored_every)[..., None]
    dk, dk_error, dv, dv_error, dsink, dsink_error, *sizes = sums
    if sinks is None:
        dsink, dsink_error = np.zeros(heads), np.zeros(heads)
    return out + [
        Expected(fold(dk), fold(dk_error) + terms * fold(sizes[0]), dtype),
        Expected(fold(dv), fold(dv_error) + terms * fold(sizes[1]), dtype),
        Expected(dsink, dsink_error + sum_error(batch * q_len) * sizes[2])]


def sink_telemetry(q, k, mask, first, scale=None, softcap=0.0, sinks=None):
    """[mass, entropy] of every query of every head. Arguments are those of
    `attention`; `first` is the mask of the pairs whose mass counts. The bounds
    are derived in src/lanes/reference/sink_row.cc."""
    q, k = (x.astype(np.float64) for x in (q, k))
    heads, dim = q.shape[1], q.shape[-1]
    k = np.repeat(k, heads // k.shape[1], 1)
    scale = dim**-0.5 if scale is None else scale
    sink = np.full(heads, -np.inf) if sinks is None else sinks
    row = forward(q, k, k, mask[:, None], scale, softcap,
                  sink.astype(np.float64)[:, None], ROUNDING["float32"])
    live = row.alive & np.ones(q.shape[:3], bool)
    n = sum_error((first[:, None] & mask[:, None]).sum(-1))
    mass = (row.p * first[:, None]).sum(-1)
    lse = np.where(live, row.lse, 0)
    with np.errstate(divide="ignore"):
        log_mass = np.where(mass > 0, np.log(mass), 0)
    error = sum_error(row.n) + n + 4 * row.score_error
    error = error + U * (np.abs(lse) + np.abs(lse + log_mass))
    mass_error = np.minimum(1, mass * np.expm1(error))

    p = np.concatenate([row.p, row.p_sink[..., None]], -1)
    log_p = np.log(np.where(p > 0, p, 1))
    entropy = -(p * log_p).sum(-1)
    top = np.where(p > 0, log_p, -np.inf).max(-1)
    d = np.where(p > 0, top[..., None] - log_p, 0)
    spread = (p * d).sum(-1)
    terms = row.n + 1
    deviation = (p * np.abs(log_p + entropy[..., None])).sum(-1)
    weights = (p * (sum_error(terms)[..., None] + 2 * U * d) *
               (1 + d + spread[..., None])).sum(-1)
    e = row.score_error
    scores = np.minimum(2 * e * np.exp(2 * e) * (deviation + e),
                        np.log(terms))
    entropy_error = (scores + weights + sum_error(terms) * spread +
                     8 * U * entropy + terms * 2.0**-119)
    of_live = lambda x: np.where(live, x, 0)
    return [Expected(of_live(mass), of_live(mass_error)),
            Expected(of_live(entropy), of_live(entropy_error))]


def check_grads_of_square(found, q, k, v, mask):
    """Checks the gradients of sum(out^2): dout is twice the output as
    stored."""
    out, _ = attention(q, k, v, mask)
    r = ROUNDING[out.dtype]
    stored = out.error + r.output * np.abs(out.value) + r.output_tiny
    want = attention(q, k, v, mask, dout=2 * out.value, dout_error=2 * stored)
    return max(check(*x) for x in zip(found, want[2:], ("dq", "dk", "dv")))
