"""Models of transformers are imported, trained and exported again. Their logits
are compared with those of transformers in float32; they differ by at most three
times the effect of the last bit of every weight there (last_bits.py)."""

import last_bits
import numpy as np
import plugins
import pytest
import tessera.train
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig

pytestmark = plugins.needs("lammps_jax_pjrt_cpu")
torch.set_num_threads(1)

VOCAB, T = 29, 32
LENGTHS = (13, 17)  # tokens of the row's documents; two more are padding
SIZES = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48,
             num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             head_dim=8, max_position_embeddings=128, pad_token_id=0,
             bos_token_id=1, eos_token_id=None)
CONFIGS = {
    "llama": lambda: LlamaConfig(**SIZES, tie_word_embeddings=False),
    "tied": lambda: LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama3": lambda: LlamaConfig(
        **SIZES, tie_word_embeddings=True, rope_parameters=dict(
            rope_type="llama3", rope_theta=5000.0, factor=8.0,
            low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=64)),
    "gemma2": lambda: Gemma2Config(
        **SIZES, sliding_window=7, attn_logit_softcapping=2.0,
        final_logit_softcapping=5.0, query_pre_attn_scalar=12),
}


def random_model(name, dtype=torch.float32):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        CONFIGS[name](), attn_implementation="eager").to(dtype)
    with torch.no_grad():
        for p in model.parameters():
            p.uniform_(-0.3, 0.3)
    return model.eval()


def logits_of(model, ids):
    """The logits [T, VOCAB] of documents that run one by one."""
    out, at = [], 0
    with torch.no_grad():
        for n in LENGTHS:
            out.append(model(input_ids=torch.from_numpy(ids[None, at:at + n]),
                             use_cache=False).logits[0])
            at += n
    return torch.cat(out).double().numpy()


def row(ids, targets, counts):
    valid = sum(LENGTHS)
    doc_ids = np.full(T, -1)
    doc_ids[:valid] = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    pad = lambda a: np.concatenate([a, np.zeros(T - valid)])
    columns = dict(input_ids=pad(ids), target_ids=pad(targets),
                   loss_mask=pad(counts), doc_ids=doc_ids,
                   positions=pad(np.concatenate([np.arange(n) for n in LENGTHS])))
    rows = {k: np.asarray(v, np.int32)[None] for k, v in columns.items()}
    return rows | dict(valid_token_count=np.array([valid], np.int32),
                       num_docs=np.array([len(LENGTHS)], np.int32))


def opened(folder):
    start = tessera.train.import_hugging_face(str(folder))
    trainer = tessera.train.Trainer(tessera.train.checkpoint_model(start),
                                    rows=1, tokens=T, tile=(16, 16))
    trainer.restore(start)
    return trainer


def check_same(trainer, model, ids):
    none = np.zeros(len(ids))
    found = trainer.logits(row(ids, none, none))
    assert found.shape == (1, T, VOCAB) and found.dtype == np.float32
    last_bits.check_same({"logits": found[0, :len(ids)]}, model,
                         lambda: {"logits": logits_of(model, ids)})


def loaded(folder):
    return AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_theirs(name, dtype, tmp_path):
    random_model(name, dtype).save_pretrained(tmp_path)
    ids = np.random.default_rng(1).integers(0, VOCAB, sum(LENGTHS))
    check_same(opened(tmp_path), loaded(tmp_path), ids)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_trained_model_goes_back(name, tmp_path):
    random_model(name).save_pretrained(tmp_path / "before")
    trainer = opened(tmp_path / "before")
    ids = np.random.default_rng(2).integers(0, VOCAB, sum(LENGTHS))
    counts = np.ones(len(ids))
    for _ in range(3):
        trainer.step(row(ids, np.roll(ids, -1), counts), learning_rate=1e-2)
    after = tmp_path / "after"
    after.mkdir()
    tessera.train.export_hugging_face(trainer.checkpoint(), str(after))
    model = loaded(after)
    assert model.config.model_type == CONFIGS[name]().model_type
    check_same(trainer, model, ids)


def test_files_of_an_index_are_one_model(tmp_path):
    model = random_model("llama")
    model.save_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "many", max_shard_size="20KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 1
    one, many = (tessera.train.import_hugging_face(str(tmp_path / f))
                 for f in ("one", "many"))
    assert one == many
