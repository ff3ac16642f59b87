"""`tessera.transformers` compared with eager attention in tiny random models. Every
call of both is judged by fp64. Logits and gradients may differ from eager's by the
effect of the last bit of every weight there (last_bits.py)."""

import importlib.util

import numpy as np
import pytest
import tessera as ts
import tessera.torch
import tessera.transformers
import torch
import transformers
from attention_calls import check_calls, legal_pairs, recorded
from last_bits import check_same
from transformers import (AutoModelForCausalLM, BertConfig, BertModel,
                          Gemma2Config, GptOssConfig, LlamaConfig)
from transformers import masking_utils as masks

tessera.transformers.register()
torch.set_num_threads(1)

SIZES = dict(vocab_size=61, hidden_size=32, intermediate_size=48,
             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=8, max_position_embeddings=128, pad_token_id=0,
             bos_token_id=1, eos_token_id=None)
CONFIGS = {
    "llama": lambda: LlamaConfig(**SIZES),
    "gemma2": lambda: Gemma2Config(
        **SIZES, sliding_window=7, attn_logit_softcapping=2.0,
        final_logit_softcapping=5.0, query_pre_attn_scalar=8),
    "gpt_oss": lambda: GptOssConfig(
        **SIZES, sliding_window=7, num_local_experts=2, num_experts_per_tok=2),
}


def two(name):
    """Two models with the same weights, eager and ours."""
    torch.manual_seed(0)
    models = [AutoModelForCausalLM.from_config(
        CONFIGS[name](), attn_implementation=a) for a in ("eager", "tessera")]
    with torch.no_grad():
        for p in models[0].parameters():
            p.uniform_(-0.3, 0.3)
    models[1].load_state_dict(models[0].state_dict())
    return [m.eval() for m in models]


def tokens(*shape, seed=0):
    return torch.from_numpy(
        np.random.default_rng(seed).integers(2, 61, shape))


def packed_positions(*lengths):
    return torch.cat([torch.arange(n) for n in lengths])[None]


def gradients(model, loss):
    """The gradients of a loss, by parameter name."""
    model.zero_grad()
    loss.backward()
    return {n: p.grad.numpy() for n, p in model.named_parameters()
            if p.grad is not None}


def step(model, labels=None, read=None, **inputs):
    """The gradients of a loss by name, and the logits of the tokens that `read`
    selects."""
    out = model(**inputs, labels=inputs["input_ids"] if labels is None
                else labels, use_cache=False)
    logits = out.logits.detach().numpy()
    return gradients(model, out.loss) | {
        "logits": logits if read is None else logits[read]}


def of_each(models, run):
    """For each model the result of `run`, and the attention calls it made."""
    results, calls = [], []
    for model in models:
        with recorded(model) as made:
            results.append(run(model))
        calls.append(made)
    return results, calls


def check_steps(models, **inputs):
    run = lambda m: step(m, **inputs)
    (_, found), (eager, ours) = of_each(models, run)
    check_calls(ours, eager)
    check_same(found, models[0], lambda: run(models[0]))


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_and_gradients_are_eagers(name):
    models = two(name)
    check_steps(models, input_ids=tokens(2, 24))
    check_steps(models, input_ids=tokens(1, 24),
                position_ids=packed_positions(9, 1, 14))


# GptOss does not pass positions to its mask, so transformers finds no documents
# there.
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_packed_is_unpacked(name):
    models = two(name)
    lengths = (9, 4, 11)
    row = tokens(1, sum(lengths))
    with torch.no_grad():  # with a cache transformers ignores packed documents
        _, (eager, ours) = of_each(models, lambda m: m(
            row, position_ids=packed_positions(*lengths), use_cache=False))
        alone = [of_each(models[:1], lambda m: m(x))[1][0]
                 for x in row.split(lengths, 1)]
    check_calls(ours, eager)
    # A document has the pairs that it has when it runs alone, and no others.
    for layer, call in enumerate(eager):
        at, want = 0, np.zeros((1, row.shape[1], row.shape[1]), bool)
        for n, calls in zip(lengths, alone):
            want[:, at:at + n, at:at + n] = legal_pairs(calls[layer])
            at += n
        np.testing.assert_array_equal(legal_pairs(call), want)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_a_packed_row_has_eagers_logits_and_gradients_of_each_document(name):
    eager, ours = two(name)
    lengths = (9, 4, 11)
    row = tokens(1, sum(lengths))
    # The loss is a sum over tokens, so gradients of documents add up.
    weight = torch.from_numpy(np.random.default_rng(2).standard_normal(
        (*row.shape, SIZES["vocab_size"]), np.float32))

    def of(model, rows, **more):
        logits = torch.cat([model(x, use_cache=False, **more).logits
                            for x in rows], 1)
        return gradients(model, (logits * weight).sum()) | {
            "logits": logits.detach().numpy()}

    packed = of(ours, [row], position_ids=packed_positions(*lengths))
    check_same(packed, eager, lambda: of(eager, row.split(lengths, 1)))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", CONFIGS)
def test_padding(name, side):
    row = tokens(3, 20)
    real = torch.ones(3, 20, dtype=torch.bool)
    for i, n in enumerate((0, 5, 13)):
        real[i, (slice(0, n) if side == "left" else slice(20 - n, 20))] = False
    # No loss on predictions of padded tokens, nor on the first real token.
    labels = row.where(real & real.roll(1, 1), -100)
    check_steps(two(name), input_ids=row, labels=labels,
                attention_mask=real.long(), read=real)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", CONFIGS)
def test_generating_with_a_cache(name, cache):
    row = tokens(2, 10)
    real = torch.ones_like(row)
    real[1, :4] = 0
    found, (eager, ours) = of_each(two(name), lambda m: m.generate(
        row, attention_mask=real, max_new_tokens=12, do_sample=False,
        cache_implementation=cache, disable_compile=True))
    assert torch.equal(*found)
    check_calls(ours, eager)


def test_attention_without_causality():
    torch.manual_seed(0)
    # Each model has its own config, since that names its attention.
    config = lambda: BertConfig(
        vocab_size=61, hidden_size=32, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=48)
    models = [BertModel._from_config(config(), attn_implementation=a).eval()
              for a in ("eager", "tessera")]
    models[1].load_state_dict(models[0].state_dict())
    real = torch.ones(2, 16)
    real[1, 9:] = 0
    for more in ({}, {"attention_mask": real}):
        _, (eager, ours) = of_each(models, lambda m: m(tokens(2, 16), **more))
        check_calls(ours, eager)


def test_recomputed_layers():
    model = two("llama")[1]
    inputs = dict(input_ids=tokens(1, 24), position_ids=packed_positions(9, 15))
    want = step(model, **inputs)
    model.train().gradient_checkpointing_enable()
    found = step(model, **inputs)
    for name in want:
        np.testing.assert_array_equal(found[name], want[name], name)


def dense_of(batch):
    n = [torch.arange(x) for x in (batch.batch, 1, batch.q_len, batch.kv_len)]
    at = [x.reshape([-1 if i == j else 1 for j in range(4)])
          for i, x in enumerate(n)]
    mod = tessera.torch.block_mask(batch).mask_mod
    return mod(*at).expand(batch.batch, 1, batch.q_len, batch.kv_len)


ZEROS = torch.zeros(2, dtype=torch.long)
FUNCTIONS = {
    "causal": masks.causal_mask_function,
    "both": masks.bidirectional_mask_function,
    "window": masks.sliding_window_causal_mask_function(5),
    "both_ways": masks.sliding_window_bidirectional_mask_function(5),
    "chunk": masks.chunked_causal_mask_function(4, ZEROS),
    "or": masks.or_masks(masks.sliding_window_overlay(3),
                         masks.causal_mask_function),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_mask_is_read_as_transformers_evaluates_it(name):
    rng = np.random.default_rng(1)
    padding = torch.from_numpy(rng.integers(0, 4, (2, 40)) > 0)
    for q, kv, q_offset, kv_offset in ((12, 12, 0, 0), (1, 20, 19, 0),
                                       (5, 20, 15, 0), (3, 16, 21, 8)):
        for attention_mask in (None, padding, padding[:, :kv + kv_offset - 2]):
            given = dict(batch_size=2, q_length=q, kv_length=kv,
                         q_offset=q_offset, kv_offset=kv_offset,
                         mask_function=FUNCTIONS[name],
                         attention_mask=attention_mask)
            want = masks.sdpa_mask(**given, allow_is_causal_skip=False)
            found = dense_of(tessera.transformers._plan(**given))
            assert torch.equal(found, want), given


def packed_mask(function, positions, ids):
    """The mask as transformers composes it; up to 5.23 in one call."""
    if hasattr(masks, "packed_sequence_compatibility_function"):
        return masks.packed_sequence_compatibility_function(
            function, positions, ids)
    return masks.and_masks(
        masks.remap_positions_for_packed_sequence(function, positions),
        masks.packed_sequence_mask_function(ids))


def test_a_packed_mask_is_read_as_transformers_evaluates_it():
    positions = torch.stack([packed_positions(3, 8, 5)[0],
                             packed_positions(16)[0]])
    ids = masks.find_packed_sequence_indices(positions)
    for name in ("causal", "both", "window", "both_ways", "or"):
        given = dict(batch_size=2, q_length=16, kv_length=16, q_offset=0,
                     kv_offset=0, attention_mask=None,
                     mask_function=packed_mask(FUNCTIONS[name], positions, ids))
        want = masks.sdpa_mask(**given, allow_is_causal_skip=False)
        found = dense_of(tessera.transformers._plan(**given))
        assert torch.equal(found, want), name


def test_masks_that_cannot_be_read_are_refused_by_name():
    positions = packed_positions(3, 5)
    ids = masks.find_packed_sequence_indices(positions)
    packed = lambda f, p=positions: packed_mask(f, p, ids)

    def someones(b, h, q, k):
        return q >= k

    for function, words in [
            (someones, "someones"),
            (masks.and_masks(masks.causal_mask_function, someones), "someones"),
            (masks.blockwise_overlay(ids), "blockwise_overlay"),
            (masks.padding_mask_function(ids > 0), "padding_mask_function"),
            (masks.chunked_causal_mask_function(4, torch.tensor([1])),
             "no padding on the left"),
            (packed(masks.chunked_causal_mask_function(4, torch.tensor([0]))),
             "not packed"),
            (packed(masks.causal_mask_function, positions * 2), "rise by one"),
            (masks.remap_positions_for_packed_sequence(
                masks.causal_mask_function, positions),
             "remap_positions_for_packed_sequence"),
            (masks.or_masks(packed(masks.causal_mask_function),
                            masks.packed_sequence_mask_function(ids * 2)),
             "one packing"),
            (masks.sliding_window_causal_mask_function(0), "1 or more")]:
        with pytest.raises(ts.TesseraError, match=r"\[transformers\] .*"
                           + words):
            tessera.transformers._mask(1, 8, 8, mask_function=function)
    with pytest.raises(ts.TesseraError, match="as many keys"):
        tessera.transformers._mask(1, 4, 8, q_offset=4, mask_function=packed(
            masks.causal_mask_function))
    with pytest.raises(ts.TesseraError, match="begin at one"):
        tessera.transformers._mask(
            1, 4, 8, q_offset=7, kv_offset=3,
            mask_function=masks.chunked_causal_mask_function(4, ZEROS[:1]))


def loaded_again():
    """The module as it is when it is imported with the masks of another version
    of transformers."""
    of = importlib.util.spec_from_file_location(
        "tessera.again", tessera.transformers.__file__)
    module = importlib.util.module_from_spec(of)
    of.loader.exec_module(module)
    return module


# Makers that a later version could have, which mean something else.
OTHERS = {
    "causal_mask_function": lambda b, h, q, k: k < q,
    "bidirectional_mask_function": lambda b, h, q, k: (q >= 0) & (k > 0),
    "sliding_window_overlay": lambda sliding_window: (
        lambda b, h, q, k: k >= q - sliding_window),
    "sliding_window_bidirectional_overlay": lambda sliding_window: (
        lambda b, h, q, k: abs(q - k) < sliding_window),
    "chunked_overlay": lambda chunk_size, left_padding: (
        lambda b, h, q, k: (k - left_padding[b] + 1) // chunk_size ==
        (q + 1) // chunk_size),
    "packed_sequence_mask_function": lambda packed_sequence_mask: (
        lambda b, h, q, k: packed_sequence_mask[b, q] >=
        packed_sequence_mask[b, k]),
    "remap_positions_for_packed_sequence": lambda mask_function, position_ids: (
        lambda b, h, q, k: mask_function(
            b, h, position_ids[b, q] // 2 * 2, position_ids[b, k])),
    # Of all functions the first two alone, and exclusive or.
    "and_masks": lambda *mask_functions: lambda b, h, q, k: (
        mask_functions[0](b, h, q, k) & mask_functions[1](b, h, q, k)),
    "or_masks": lambda *mask_functions: lambda b, h, q, k: (
        mask_functions[0](b, h, q, k) ^ mask_functions[1](b, h, q, k)),
}


@pytest.mark.parametrize("maker", OTHERS)
def test_a_maker_that_means_something_else_is_refused(maker, monkeypatch):
    # A version without the maker reads no function of its kind.
    if not maker.endswith("l_mask_function"):
        with monkeypatch.context() as without:
            without.delattr(masks, maker)
            loaded_again()._check_makers()
    monkeypatch.setattr(masks, maker, OTHERS[maker])
    again = loaded_again()
    with pytest.raises(ts.TesseraError, match=(
            rf"\[transformers\] {maker} must mean what it does in transformers "
            r"5.23.0 and 5.24.0, found another mask, in \d")) as refused:
        again.register("another")
    assert "\n" not in str(refused.value)
    assert "another" not in transformers.AttentionInterface()


def test_a_maker_that_holds_more_is_refused(monkeypatch):
    def sliding_window_overlay(sliding_window, sinks=0):
        return lambda b, h, q, k: (k > q - sliding_window) | (k < sinks)

    monkeypatch.setattr(masks, "sliding_window_overlay", sliding_window_overlay)
    with pytest.raises(ts.TesseraError, match=(
            "sliding_window_overlay must .* read exactly, found "
            ".*sliding_window_overlay.<locals>.<lambda>, in")):
        loaded_again().register("another")


def test_a_maker_that_raises_is_refused(monkeypatch):
    def chunked_overlay(chunk_size, left_padding):
        def inner_mask(b, h, q, k):
            raise ValueError(f"{chunk_size}\nand {left_padding.tolist()}")
        return inner_mask

    monkeypatch.setattr(masks, "chunked_overlay", chunked_overlay)
    with pytest.raises(ts.TesseraError, match=(
            "chunked_overlay must .* found ValueError: 1 and "
            r"\[0, 0\], in")):
        loaded_again().register("another")


def test_an_argument_that_is_not_known_is_refused():
    with pytest.raises(ts.TesseraError, match="known, found block_ids"):
        tessera.transformers._mask(1, 8, 8, dtype=torch.float32, block_ids=None)


def test_what_attention_cannot_honour_is_refused_by_name():
    model = two("llama")[1]
    row = tokens(1, 8)
    model.config.attention_dropout = 0.1
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.1
    with pytest.raises(ts.TesseraError, match="dropout must be 0, found 0.1"):
        model.train()(row)
    model.eval()(row)  # no dropout in eval mode
    dense = torch.zeros(1, 1, 8, 8)
    with pytest.raises(ts.TesseraError, match="of the same name made"):
        model(row, attention_mask=dense)
    with pytest.raises(ts.TesseraError, match="no output_attentions"):
        model(row, output_attentions=True)
    x = torch.zeros(1, 4, 8, 8)
    for more, words in ((dict(), "must have a mask"),
                        (dict(is_causal=False, sliding_window=4), "window"),
                        (dict(is_causal=False, position_bias=x), "position")):
        with pytest.raises(ts.TesseraError, match=words):
            tessera.transformers._attention(model, x, x, x, None, **more)
