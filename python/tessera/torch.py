"""Block-sparse attention inside PyTorch, by our own kernels.

    import tessera as ts
    import tessera.torch

    batch = ts.plan(ts.causal & ts.documents, q_len=4096, doc_ids=ids)
    out = tessera.torch.attention(q, k, v, batch)

`attention` is one operator with gradients. It runs eager and under
`torch.compile`. A batch is an argument of a compiled function and never a
constant, so different batches run the same compiled function.
"""

import functools
from typing import Any, NoReturn, Optional

import torch
from torch.autograd.forward_ad import unpack_dual

from . import _core
from ._block_mask import block_mask
from ._refuse import refuse

__all__ = ["attention", "block_mask", "scaled_dot_product_attention"]


def _number(batch: _core.Batch) -> torch.Tensor:
    # The operator's argument: a tensor that identifies the batch and keeps it
    # alive. Autograd saves it, so it must not be an inference tensor, even if
    # the batch was planned in inference mode.
    with torch.inference_mode(False):
        return torch.from_numpy(_core._torch_number(batch))


def _known(batch: Any) -> None:
    batch._torch = _number(batch)


# Each new batch gets its tensor at once: torch.compile reads it as an
# attribute.
_core._watch_batches(_known)


def _results(q: torch.Tensor, v: torch.Tensor,
             bshd: bool) -> tuple[torch.Tensor, torch.Tensor]:
    b, h, t = q.shape[:3]
    lse = (b, t, h) if bshd else (b, h, t)
    return (q.new_empty((*q.shape[:3], v.shape[3])),
            q.new_empty(lse, dtype=torch.float32))


def _gradients(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
               sink_logits: Optional[torch.Tensor]
               ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor,
                          torch.Tensor]:
    like = lambda x: x.new_empty(x.shape)
    sinks = (q.new_empty(0, dtype=torch.float32) if sink_logits is None
             else like(sink_logits))
    return like(q), like(k), like(v), sinks


def _plain(x: torch.Tensor, bshd: bool) -> torch.Tensor:
    # Kernels read contiguous rows that do not overlap. A gradient that autograd
    # made may have others: that of a sum is one number with strides of 0.
    dim, token = x.shape[3], 1 if bshd else 2
    dense = (dim == 1 or x.stride(3) == 1) and (x.shape[token] == 1 or
                                                x.stride(token) >= dim)
    return x if dense else x.contiguous()


@torch.library.custom_op("tessera::attention", mutates_args=())
def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
               sink_logits: Optional[torch.Tensor], batch: torch.Tensor,
               scale: Optional[float], softcap: float,
               bshd: bool) -> tuple[torch.Tensor, torch.Tensor]:
    _check(q, k, v, sink_logits)
    out, lse = _results(q, v, bshd)
    _core._torch_forward(q, k, v, sink_logits, batch, scale, softcap, bshd,
                         torch.get_num_threads(), out, lse)
    return out, lse


@_attention.register_fake
def _(q, k, v, sink_logits, batch, scale, softcap, bshd):
    _check(q, k, v, sink_logits)
    return _results(q, v, bshd)


@torch.library.custom_op("tessera::attention_backward", mutates_args=())
def _attention_backward(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
        sink_logits: Optional[torch.Tensor], batch: torch.Tensor,
        out: torch.Tensor, lse: torch.Tensor, dout: torch.Tensor,
        dlse: Optional[torch.Tensor], scale: Optional[float], softcap: float,
        bshd: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor,
                             torch.Tensor]:
    found = _gradients(q, k, v, sink_logits)
    _core._torch_backward(
        q, k, v, sink_logits, batch, scale, softcap, bshd,
        torch.get_num_threads(), out, lse, _plain(dout, bshd),
        None if dlse is None else dlse.contiguous(), *found)
    return found


@_attention_backward.register_fake
def _(q, k, v, sink_logits, batch, out, lse, dout, dlse, scale, softcap, bshd):
    return _gradients(q, k, v, sink_logits)


def _refuse_derivative(found: str) -> NoReturn:
    refuse("torch", "attention must be differentiated backward and once", found)


def _refuse_tangents(*tensors: torch.Tensor | None) -> None:
    # A custom operator silently drops the tangents of forward mode.
    if any(x is not None and unpack_dual(x).tangent is not None
           for x in tensors):
        _refuse_derivative("a tangent of forward mode")


def _refuse_second(ctx: Any, *gradients: Any) -> NoReturn:
    _refuse_derivative("a gradient of its gradient")


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.set_materialize_grads(False)
    *tensors, ctx.scale, ctx.softcap, ctx.bshd = inputs
    ctx.save_for_backward(*tensors, *output)


def _differentiate(ctx: Any, dout: Any, dlse: Any) -> Any:
    q, k, v, sink_logits, batch, out, lse = ctx.saved_tensors
    if dout is None and dlse is None:
        return (None,) * 8
    if dout is None:
        dout = torch.zeros_like(out)
    _refuse_tangents(q, k, v, sink_logits, dout, dlse)
    run = (_Gradients.apply if _are_transformed()
           else torch.ops.tessera.attention_backward)
    dq, dk, dv, dsinks = run(
        q, k, v, sink_logits, batch, out, lse, dout, dlse, ctx.scale,
        ctx.softcap, ctx.bshd)
    return (dq, dk, dv, None if sink_logits is None else dsinks, None, None,
            None, None)


_attention.register_autograd(_differentiate, setup_context=_save)
_attention_backward.register_autograd(_refuse_second)


# torch.func differentiates these two functions, since it knows no gradients of
# custom operators. They have no jvp that refuses, because torch.compile could
# not trace one.
class _Attention(torch.autograd.Function):
    generate_vmap_rule = True
    setup_context = staticmethod(_save)
    backward = staticmethod(_differentiate)

    @staticmethod
    def forward(*args: Any) -> Any:
        return torch.ops.tessera.attention(*args)


class _Gradients(torch.autograd.Function):
    generate_vmap_rule = True
    backward = staticmethod(_refuse_second)

    @staticmethod
    def forward(*args: Any) -> Any:
        return torch.ops.tessera.attention_backward(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass


_are_transformed = torch._C._are_functorch_transforms_active


def _run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> Any:
    # Under autocast q, k and v are cast as for PyTorch's own attention.
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        short = (torch.float32, torch.bfloat16, torch.float16)
        q, k, v = (x.to(dtype) if x.dtype in short else x for x in (q, k, v))
    args = (q, k, v, *rest)
    _refuse_tangents(*args[:4])
    run = (_Attention.apply if _are_transformed()
           else torch.ops.tessera.attention)
    return run(*args)


def _numbers(scale: Any, softcap: Any) -> tuple[Optional[float], float]:
    for name, x in (("scale", scale), ("softcap", softcap)):
        if not isinstance(x, torch.Tensor):
            continue
        _refuse_tangents(x)
        if x.requires_grad:
            refuse("torch", f"{name} must be a number",
                   "a tensor that requires a gradient")
    return None if scale is None else float(scale), float(softcap)


def _check_tensors(**named: Any) -> None:
    for name, x in named.items():
        if not isinstance(x, torch.Tensor):
            refuse("torch", f"{name} must be a tensor", type(x).__name__)


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
           sink_logits: Optional[torch.Tensor] = None) -> None:
    # Checks what the shapes of the results depend on; the library checks the
    # rest. If one tensor is on `meta`, PyTorch calls only the fake operator.
    named = {"q": q, "k": k, "v": v}
    for name, x in named.items():
        if x.dim() != 4:
            refuse("torch", f"{name} must have 4 dimensions", x.dim())
    for name, x in (*named.items(), ("sink_logits", sink_logits)):
        if x is not None and x.device != q.device:
            refuse("torch", f"{name} must be where q is, on {q.device}", x.device)


def _tensor_of(batch: Any) -> torch.Tensor:
    if not isinstance(batch, _core.Batch):
        refuse("torch", "batch must be a tessera.Batch", type(batch).__name__)
    found = getattr(batch, "_torch", None)
    if found is None:
        if torch.compiler.is_compiling():
            refuse("torch", "a batch of a compiled function must be planned after "
                   "tessera.torch is imported", "an older one")
        _known(batch)
        found = batch._torch
    return found


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
              batch: _core.Batch, *, scale: float | None = None,
              softcap: float = 0.0, sink_logits: torch.Tensor | None = None,
              layout: str = "bhsd", return_lse: bool = False
              ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of one batch: the output, and with `return_lse` also the
    natural log-sum-exp.

    The arguments are those of `tessera.attention`. The call is differentiable
    by q, k, v and sink_logits, through both results. Tensors are not copied.
    They are float32, bfloat16 or float16 in CPU memory; the last dimension must
    be contiguous, and the other strides are free. The gradients that autograd
    gives for the results are copied only where the kernels cannot read them
    (docs/python.md). The call uses `torch.get_num_threads()` threads.
    """
    if layout not in ("bhsd", "bshd"):
        refuse("torch", "layout must be 'bhsd' or 'bshd'", repr(layout))
    _check_tensors(q=q, k=k, v=v)
    if sink_logits is not None:
        _check_tensors(sink_logits=sink_logits)
    out, lse = _run(
        q, k, v, sink_logits, _tensor_of(batch), *_numbers(scale, softcap),
        layout == "bshd")
    return (out, lse) if return_lse else out


@functools.lru_cache(maxsize=64)
def _plain_batch(batch: int, q_len: int, kv_len: int,
                 is_causal: bool) -> _core.Batch:
    return _core.plan(_core.causal if is_causal else _core.full, q_len=q_len,
                      kv_len=kv_len, batch=batch, q_offset=[0] * batch)


# An operator, so that a compiled function plans for the sizes of each call.
@torch.library.custom_op("tessera::plain_batch", mutates_args=())
def _plain_tensor(batch: int, q_len: int, kv_len: int,
                  is_causal: bool) -> torch.Tensor:
    return _number(_plain_batch(batch, q_len, kv_len, is_causal))


@_plain_tensor.register_fake
def _(batch, q_len, kv_len, is_causal):
    return torch.empty(1, dtype=torch.int64)


def _batch_of(q: torch.Tensor, k: torch.Tensor,
              is_causal: bool) -> torch.Tensor:
    return torch.ops.tessera.plain_batch(q.shape[0], q.shape[2], k.shape[2],
                                         is_causal)


def scaled_dot_product_attention(query: torch.Tensor, key: torch.Tensor,
                                 value: torch.Tensor,
                                 attn_mask: _core.Batch | None = None,
                                 dropout_p: float = 0.0,
                                 is_causal: bool = False,
                                 scale: float | None = None,
                                 enable_gqa: bool = False) -> torch.Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`, where `attn_mask` is
    a `tessera.Batch` or None.

    Dropout and masks that are tensors are refused. With `is_causal`, query i
    sees keys 0 to i, as in PyTorch.
    """
    _check_tensors(q=query, k=key, v=value)
    _check(query, key, value)
    if dropout_p != 0:
        refuse("torch", "dropout_p must be 0", dropout_p)
    if attn_mask is not None and is_causal:
        refuse("torch", "is_causal must be False beside attn_mask", True)
    if not enable_gqa and query.shape[1] != key.shape[1]:
        refuse("torch", "query and key must have the same heads without enable_gqa",
               f"{query.shape[1]} and {key.shape[1]}")
    batch = (_batch_of(query, key, is_causal) if attn_mask is None
             else _tensor_of(attn_mask))
    return _run(
        query, key, value, None, batch, *_numbers(scale, 0.0), False)[0]
