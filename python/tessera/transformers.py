"""Attention of Hugging Face models by our own kernels.

    import tessera.transformers

    tessera.transformers.register()
    model.set_attn_implementation("tessera")

Packed documents are found from `position_ids`, by transformers itself. A mask
is read exactly, from the functions that transformers composes it of. A function
that cannot be read exactly is refused, and the error names it.
"""

from collections.abc import Iterator
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers import __version__ as _version
from transformers import masking_utils as _masks

from . import _core
from . import torch as _torch
from ._block_mask import _mask_mod
from ._refuse import refuse

__all__ = ["register"]


def register(name: str = "tessera") -> None:
    """Registers our attention and its mask under one name, for
    `attn_implementation`.

    Both are needed: if no mask is registered under an attention's name,
    transformers silently passes no mask to it.

    A mask is read from the functions of transformers that made it. Raises a
    TesseraError, and registers nothing, if one of these means something else
    in the installed version than in the versions that are tested.
    """
    _check_makers()
    AttentionInterface.register(name, _attention)
    AttentionMaskInterface.register(name, _mask)


def _refuse(rule: str, found: object) -> NoReturn:
    refuse("transformers", rule, found)


# None if this version has no such maker: then no function of its kind is read.
def _make(maker: str, *args: Any) -> Any:
    try:
        return getattr(_masks, maker)(*args)
    except (AttributeError, TypeError):
        return None


# The code object identifies an inner function: all functions that one maker of
# transformers returns share it. They may hold these variables and no others.
_KINDS = {
    made.__code__: kind for made, kind, *variables in (
        (_make("and_masks"), "and", "mask_functions"),
        (_make("or_masks"), "or", "mask_functions"),
        (_make("sliding_window_overlay", 1), "window", "sliding_window"),
        (_make("sliding_window_bidirectional_overlay", 1), "both ways",
         "sliding_window"),
        (_make("chunked_overlay", 1, None), "chunk", "chunk_size",
         "left_padding"),
        (_make("packed_sequence_mask_function", None), "packed",
         "packed_sequence_mask"),
        (_make("remap_positions_for_packed_sequence", None, None), "remap",
         "mask_function", "position_ids"))
    if hasattr(made, "__code__") and
    sorted(made.__code__.co_freevars) == variables}


def _joined(maker: str, *functions: Any) -> Any:
    return None if None in functions else _make(maker, *functions)


def _samples() -> Iterator[tuple[str, Any]]:
    """Mask functions of each maker, with its name, for two rows of 12 tokens.
    Functions that are made of others come after these."""
    causal = _masks.causal_mask_function
    both = _masks.bidirectional_mask_function
    yield "causal_mask_function", causal
    yield "bidirectional_mask_function", both
    for n in (1, 2, 5):
        for maker in ("sliding_window_overlay",
                      "sliding_window_bidirectional_overlay"):
            yield maker, _make(maker, n)
        yield "chunked_overlay", _make("chunked_overlay", n,
                                       torch.zeros(2, dtype=torch.long))
    near = _make("sliding_window_overlay", 3)
    wide = _make("sliding_window_bidirectional_overlay", 4)
    yield "and_masks", _joined("and_masks", near, wide, causal)
    yield "or_masks", _joined("or_masks", wide, causal)
    ids = torch.tensor([[0] * 3 + [1] * 5 + [2] * 4, [0] * 12])
    packed = _make("packed_sequence_mask_function", ids)
    yield "packed_sequence_mask_function", packed
    positions = torch.tensor([[*range(3), *range(5), *range(4)], [*range(12)]])
    for function in (causal, both, near, wide):
        remap = "remap_positions_for_packed_sequence"
        yield remap, _joined("and_masks", function and _make(
            remap, function, positions), packed)


def _check_makers() -> None:
    with torch.device("cpu"):
        for maker, function in _samples():
            if function is None:
                continue
            # Queries, and the key at which they begin.
            sizes = [(12, 0)] if "packed" in maker else [(12, 0), (4, 8)]
            try:
                found = "" if all(_is_read(function, *n) for n in sizes) else (
                    "another mask")
            except Exception as error:  # whatever another version raises
                found = " ".join(f"{type(error).__name__}: {error}".split())
            if found:
                _refuse(f"{maker} must mean what it does in transformers 5.23.0 "
                        "and 5.24.0", f"{found}, in {_version}")


def _is_read(function: Any, q_length: int, q_offset: int) -> bool:
    """Whether a function is read as the mask that it evaluates to."""
    mod = _mask_mod(_plan(2, q_length, 12, q_offset, 0, function, None), 1,
                    "cpu")
    row, head = torch.arange(2)[:, None, None, None], torch.tensor([0])
    q, k = torch.arange(q_length)[:, None], torch.arange(12)
    want, read = (x.expand(2, 1, q_length, 12) for x in (
        function(row, head, q + q_offset, k), mod(row, head, q, k)))
    return torch.equal(want, read)


class _Reader:
    """Reads a mask function of transformers as a Mask. `ids` become the
    document ids of its packed rows, if it has any."""

    def __init__(self, kv_offset: int) -> None:
        self.kv_offset = kv_offset
        self.ids: torch.Tensor | None = None

    def read(self, function: Any, packed: Any = None,
             remapped: bool = False) -> _core.Mask:
        """`packed`: document ids whose mask is and-ed with this function's.
        `remapped`: the function's positions count within a document."""
        if function is _masks.causal_mask_function:
            return _core.causal
        if function is _masks.bidirectional_mask_function:
            return _core.full
        kind = _KINDS.get(getattr(function, "__code__", None))
        parts = {} if kind is None else dict(
            zip(function.__code__.co_freevars,
                (cell.cell_contents for cell in function.__closure__)))
        if kind in ("and", "or"):
            return self._join(kind, parts["mask_functions"], packed, remapped)
        if kind in ("window", "both ways"):
            n = parts["sliding_window"]
            if not isinstance(n, int) or n < 1:
                _refuse("a sliding window must be a number of 1 or more", n)
            return (_core.window(n - 1, -1) if kind == "window"
                    else _core.window(n, n))
        if kind == "chunk":
            return self._chunk(parts["chunk_size"], parts["left_padding"],
                               remapped)
        if kind == "packed":
            return self._packed(parts["packed_sequence_mask"])
        if kind == "remap" and packed is not None and not remapped:
            self._follow(parts["position_ids"], packed)
            return self.read(parts["mask_function"], packed, True)
        _refuse("a mask function must be one that can be read exactly",
                getattr(function, "__qualname__", repr(function)))

    def _join(self, kind: str, functions: Any, packed: Any,
              remapped: bool) -> _core.Mask:
        if kind == "and":
            for function in functions:
                if _KINDS.get(getattr(function, "__code__", None)) == "packed":
                    packed = function.__closure__[0].cell_contents
        read = [self.read(f, packed if kind == "and" else None, remapped)
                for f in functions]
        out = read[0]
        for mask in read[1:]:
            out = out & mask if kind == "and" else out | mask
        return out

    def _chunk(self, size: int, left_padding: Any,
               remapped: bool) -> _core.Mask:
        if (left_padding != 0).any():
            _refuse("chunked attention must have no padding on the left",
                    left_padding.tolist())
        if remapped:
            _refuse("chunked attention must be of rows that are not packed",
                    "packed documents")
        if self.kv_offset % size != 0:
            _refuse(f"the keys of chunks of {size} must begin at one",
                    f"an offset of {self.kv_offset}")
        return _core.chunk(size)

    def _packed(self, ids: torch.Tensor) -> _core.Mask:
        if self.ids is not None and not torch.equal(ids, self.ids):
            _refuse("a mask must have one packing", "two")
        self.ids = ids
        return _core.documents

    def _follow(self, positions: torch.Tensor, ids: torch.Tensor) -> None:
        # If positions rise by one within a document, a distance of positions is
        # the distance in the row.
        steps = positions.diff(dim=-1) == 1
        if not (steps | (ids.diff(dim=-1) != 0)).all():
            _refuse("positions within a packed document must rise by one",
                    "others")


# Arguments that say how to make or to skip a dense mask, not what it means.
_OF_DENSE_MASKS = {
    "allow_is_bidirectional_skip", "allow_is_causal_skip", "config", "device",
    "dtype", "local_size", "use_vmap"}


@torch._dynamo.disable  # a plan depends on the values of the ids
def _mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0,
          kv_offset: int = 0,
          mask_function: Any = _masks.causal_mask_function,
          attention_mask: Any = None, **kwargs: Any) -> torch.Tensor:
    """The batch, as a tensor of one number with the four dimensions of a dense
    mask, so that code of transformers passes it on as a mask."""
    for name in kwargs.keys() - _OF_DENSE_MASKS:
        _refuse("a mask must be made of arguments that are known", name)
    return _torch._tensor_of(_plan(
        batch_size, q_length, kv_length, q_offset, kv_offset, mask_function,
        attention_mask)).view(1, 1, 1, 1)


def _plan(batch_size: int, q_length: int, kv_length: int, q_offset: Any,
          kv_offset: int, mask_function: Any,
          attention_mask: Any) -> _core.Batch:
    q_offset = int(q_offset)
    reader = _Reader(kv_offset)
    mask = reader.read(mask_function)
    ids = reader.ids
    if ids is not None and (q_length != kv_length or q_offset != kv_offset):
        _refuse("packed documents must have as many keys as queries",
                f"{kv_length} and {q_length}")
    keys = _keys_that_are_real(attention_mask, kv_length, kv_offset)
    facts: dict[str, torch.Tensor] = {}
    if ids is not None:
        facts["doc_ids"] = ids = ids.expand(batch_size, -1).int()
    if keys is not None:
        # Padding hides keys but no queries, as in transformers.
        mask = mask & _core.documents
        if ids is None:
            ids = torch.zeros(batch_size, 1, dtype=torch.int32)
        facts["doc_ids"] = torch.where(keys, ids, -1)
        facts["q_doc_ids"] = ids.expand(batch_size, q_length)
    return _core.plan(mask, q_len=q_length, kv_len=kv_length, batch=batch_size,
                      q_offset=[q_offset - kv_offset] * batch_size,
                      **{name: x.contiguous() for name, x in facts.items()})


def _keys_that_are_real(attention_mask: Any, kv_length: int,
                        kv_offset: int) -> torch.Tensor | None:
    if attention_mask is None:
        return None
    if attention_mask.dim() != 2:
        _refuse("attention_mask must have 2 dimensions", attention_mask.dim())
    missing = kv_offset + kv_length - attention_mask.shape[1]
    keys = F.pad(attention_mask.bool(), (0, max(0, missing)))
    keys = keys[:, kv_offset:kv_offset + kv_length]
    return None if keys.all() else keys


def _attention(module: Any, query: torch.Tensor, key: torch.Tensor,
               value: torch.Tensor, attention_mask: Any,
               scaling: float | None = None, dropout: float = 0.0,
               softcap: float | None = None, s_aux: torch.Tensor | None = None,
               is_causal: bool | None = None, **kwargs: Any
               ) -> tuple[torch.Tensor, None]:
    """Attention of one layer: the output, [batch, tokens, heads, dim], and None
    for the weights."""
    if dropout:
        _refuse("dropout must be 0", dropout)
    for name in ("output_attentions", "position_bias", "head_mask", "cache"):
        if kwargs.get(name) is not None and kwargs[name] is not False:
            _refuse(f"there must be no {name}", type(kwargs[name]).__name__)
    batch = attention_mask
    if batch is not None and (not isinstance(batch, torch.Tensor) or
                              batch.dtype != torch.int64 or
                              batch.shape != (1, 1, 1, 1)):
        _refuse("attention_mask must be what the mask of the same name made",
                f"{type(batch).__name__} {list(getattr(batch, 'shape', []))}")
    if batch is None:
        causal = getattr(module, "is_causal", True)
        if causal if is_causal is None else is_causal:
            _refuse("causal attention must have a mask", "None")
        if kwargs.get("sliding_window") is not None:
            _refuse("attention with a sliding window must have a mask", "None")
        batch = _torch._batch_of(query, key, False)
    sinks = None if s_aux is None else s_aux.float()
    turn = lambda x: x.transpose(1, 2)  # the result must be [b, t, h, d]
    out, _ = _torch._run(
        turn(query), turn(key), turn(value), sinks, batch, scaling,
        float(softcap or 0), True)
    return out, None
