"""The decoder of docs/train.md in plain JAX: dense masks, JAX's own gradients."""

import jax
import jax.numpy as jnp
import numpy as np


def norm(p, name, x, kind):
    if kind == "layer":
        x = x - x.mean(-1, keepdims=True)
    x = x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    x = x * p[name + ".weight"]
    return x + p[name + ".bias"] if kind == "layer" else x


def rope(x, positions, m):
    half = x.shape[-1] // 2
    turns = m.get("rope_theta", 1e4) ** (-np.arange(half) / half)
    if (factor := m.get("rope_factor", 1)) > 1:
        # Llama 3's scaling: slow rotations become slower.
        low, high = m.get("rope_low", 1), m.get("rope_high", 4)
        n = m.get("rope_tokens", 8192) * turns / (2 * np.pi)
        kept = np.clip((n - low) / (high - low), 0, 1)
        turns = turns * (kept + (1 - kept) / factor)
    angle = positions[:, None, :, None] * turns.astype(x.dtype)
    c, s = jnp.cos(angle), jnp.sin(angle)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1)


def block(p, i, x, positions, legal, m):
    kind, post = m.get("norm", "rms"), m.get("post_norms")
    h, g, d = m["heads"], m["kv_heads"], m["head_dim"]
    batch, tokens, _ = x.shape
    if m.get("routes"):
        raise ValueError("this model in JAX has no clustered layers")
    windows = m.get("windows") or [0]
    w = lambda name: p[f"layers.{i}.{name}.weight"]
    qkv = norm(p, f"layers.{i}.norm1", x, kind) @ w("linear_qkv").T
    q, k, v = (
        a.reshape(batch, tokens, -1, d).transpose(0, 2, 1, 3)
        for a in jnp.split(qkv, [h * d, (h + g) * d], -1))
    q, k = rope(q, positions, m), rope(k, positions, m)
    k, v = (jnp.repeat(a, h // g, 1) for a in (k, v))
    scale = m.get("score_scale") or d ** -0.5
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * np.asarray(scale, x.dtype)
    if cap := m.get("softcap"):
        scores = cap * jnp.tanh(scores / cap)
    if window := windows[i % len(windows)]:
        n = np.arange(tokens)
        legal = legal & (n[:, None] - n <= window)
    scores = jnp.where(legal[:, None], scores, -1e30)
    o = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), v)
    o = jnp.where(legal.any(-1)[:, None, :, None], o, 0)
    o = o.transpose(0, 2, 1, 3).reshape(batch, tokens, -1)
    o = o @ w("linear_proj").T
    x = x + (norm(p, f"layers.{i}.post_norm1", o, kind) if post else o)
    y = norm(p, f"layers.{i}.norm2", x, kind) @ w("linear_fc1").T
    mlp = m.get("mlp", "swiglu")
    if mlp == "gelu":
        y = jax.nn.gelu(y)
    else:
        gate, up = jnp.split(y, 2, -1)
        y = (jax.nn.silu if mlp == "swiglu" else jax.nn.gelu)(gate) * up
    y = y @ w("linear_fc2").T
    return x + (norm(p, f"layers.{i}.post_norm2", y, kind) if post else y)


def legal_pairs(ids):
    """The mask [batch, tokens, tokens]: causal, within documents."""
    n = np.arange(ids.shape[1])
    legal = (n[:, None] >= n) & (ids[:, :, None] == ids[:, None, :])
    return legal & (ids >= 0)[:, None, :]


def loss_of(p, x, row, m):
    """The final norm, the head and the loss, from the output of the blocks."""
    head = p.get("head.weight", p["embedding.weight"])
    logits = norm(p, "final_norm", x, m.get("norm", "rms")) @ head.T
    if cap := m.get("final_softcap"):
        logits = cap * jnp.tanh(logits / cap)
    at = jnp.take_along_axis(logits, row["target_ids"][..., None], -1)[..., 0]
    each = jax.nn.logsumexp(logits, -1) - at
    counts = row["loss_mask"].astype(x.dtype)
    return (each * counts).sum() / counts.sum()


def mean_loss(p, row, m):
    """The mean loss; `row` has arrays [batch, tokens]."""
    x = p["embedding.weight"][row["input_ids"]] * m.get("embedding_scale", 1)
    for name in m.get("columns", {}):
        ids = row[name]  # 0: no id
        x = x + p[f"columns.{name}.weight"][ids] * (ids > 0)[..., None]
    positions, legal = row["positions"].astype(x.dtype), legal_pairs(row["doc_ids"])
    for i in range(m["layers"]):
        x = block(p, i, x, positions, legal, m)
    return loss_of(p, x, row, m)


def adamw(p, first, second, grads, t, rate, max_norm=1.0, decay=0.1,
          betas=(0.9, 0.95), eps=1e-8):
    """A step's new parameters and moments; `t` counts from 1."""
    b1, b2 = betas
    total = jnp.sqrt(sum((g * g).sum() for g in grads.values()))
    scale = jnp.where(total > max_norm, max_norm / total, 1)
    out = ({}, {}, {})
    for k, g in grads.items():
        g = g * scale
        m1 = b1 * first[k] + (1 - b1) * g
        m2 = b2 * second[k] + (1 - b2) * g * g
        move = m1 / (1 - b1 ** t) / (jnp.sqrt(m2 / (1 - b2 ** t)) + eps)
        if g.ndim > 1:
            move = move + decay * p[k]
        for to, value in zip(out, (p[k] - rate * move, m1, m2)):
            to[k] = value
    return out
