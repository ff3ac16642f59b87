// model/hugging_face.cc: converts parameters from and to Hugging Face's names.
#include "model/hugging_face.h"

#include <cstring>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/float16.h"
#include "base/safetensors.h"
#include "base/shape.h"
#include "base/tensor_rows.h"
#include "base/text.h"
#include "model/checkpoint.h"

namespace tessera {
namespace model {
namespace {

constexpr std::string_view kWhere = "hugging face";
// Arrays in some files that do not affect the model.
constexpr std::string_view kIgnored = ".rotary_emb.inv_freq";

void read_floats(const Tensor& from, double plus, float* to) {
  const size_t n =
      from.bytes.size() / static_cast<size_t>(byte_width(from.dtype));
  const auto each = [&](auto sample, auto widen) {
    for (size_t i = 0; i < n; ++i) {
      std::memcpy(&sample, from.bytes.data() + i * sizeof(sample),
                  sizeof(sample));
      to[i] = static_cast<float>(static_cast<double>(widen(sample)) + plus);
    }
  };
  if (from.dtype == Dtype::f32) {
    each(0.0F, [](float v) { return v; });
  } else if (from.dtype == Dtype::bf16) {
    each(uint16_t{0}, bf16_to_float);
  } else {
    each(uint16_t{0}, f16_to_float);
  }
}

}  // namespace

std::vector<Piece> pieces_of(Family family, const ModelConfig& m) {
  std::vector<Piece> out;
  const double plus = family == Family::gemma2 ? 1 : 0;
  const auto norm = [&](std::string theirs, std::string ours) {
    out.push_back({std::move(theirs), std::move(ours), 0, {m.width}, plus});
  };
  out.push_back(
      {"model.embed_tokens.weight", "embedding.weight", 0, {m.vocab, m.width}});
  const int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  for (int64_t i = 0; i < m.layers; ++i) {
    const std::string theirs = fmt::format("model.layers.{}.", i);
    const std::string ours = fmt::format("layers.{}.", i);
    const auto rows = [&](const char* name, const char* into, int64_t first,
                          int64_t count, int64_t width) {
      out.push_back({theirs + name + ".weight",
                     ours + into + ".weight",
                     first,
                     {count, width}});
    };
    rows("self_attn.q_proj", "linear_qkv", 0, q, m.width);
    rows("self_attn.k_proj", "linear_qkv", q, kv, m.width);
    rows("self_attn.v_proj", "linear_qkv", q + kv, kv, m.width);
    rows("self_attn.o_proj", "linear_proj", 0, m.width, q);
    rows("mlp.gate_proj", "linear_fc1", 0, m.mlp_width, m.width);
    rows("mlp.up_proj", "linear_fc1", m.mlp_width, m.mlp_width, m.width);
    rows("mlp.down_proj", "linear_fc2", 0, m.width, m.mlp_width);
    // With post norms this name means the norm after attention; without them,
    // the norm before the MLP.
    const bool post = m.post_norms;
    norm(theirs + "input_layernorm.weight", ours + "norm1.weight");
    norm(theirs + "post_attention_layernorm.weight",
         ours + (post ? "post_norm1.weight" : "norm2.weight"));
    if (post) {
      norm(theirs + "pre_feedforward_layernorm.weight", ours + "norm2.weight");
      norm(theirs + "post_feedforward_layernorm.weight",
           ours + "post_norm2.weight");
    }
  }
  norm("model.norm.weight", "final_norm.weight");
  if (!m.tied_head) {
    out.push_back({"lm_head.weight", "head.weight", 0, {m.vocab, m.width}});
  }
  return out;
}

namespace {

// The arrays of all files, by name.
Result<std::map<std::string, Tensor>> gather(const HuggingFaceModel& from) {
  std::map<std::string, Tensor> out;
  for (size_t i = 0; i < from.weights.size(); ++i) {
    auto file = parse_safetensors(from.weights[i]);
    if (!file) {
      return in_file(file.error(), i < from.names.size() ? from.names[i] : "");
    }
    for (auto& [name, tensor] : file->tensors) {
      if (!out.emplace(name, tensor).second) {
        return invalid(kWhere, "an array must be in one file, found {} in two",
                       in_quotes(name));
      }
    }
  }
  return out;
}

Result<void> check_tensor(const Piece& p,
                          const std::map<std::string, Tensor>& tensors) {
  const auto at = tensors.find(p.theirs);
  if (at == tensors.end()) {
    return invalid(kWhere, "the files must have {}, found none among {} arrays",
                   p.theirs, tensors.size());
  }
  const Tensor& t = at->second;
  if (t.shape != p.shape || !is_float_dtype(t.dtype)) {
    return invalid(kWhere, "{} must be F32, BF16 or F16 {}, found {} {}",
                   p.theirs, shape_text(p.shape), to_string(t.dtype),
                   shape_text(t.shape));
  }
  return {};
}

Result<void> check_known(const std::vector<Piece>& pieces,
                         const std::map<std::string, Tensor>& tensors,
                         bool tied) {
  std::set<std::string_view> known;
  for (const Piece& p : pieces) known.insert(p.theirs);
  for (const auto& [name, tensor] : tensors) {
    if (known.contains(name) || name.ends_with(kIgnored)) continue;
    if (tied && name == "lm_head.weight") continue;
    return invalid(kWhere,
                   "the model must have a place for each array, found "
                   "none for {}",
                   in_quotes(name));
  }
  return {};
}

Tensor tensor_of(const std::vector<int64_t>& shape,
                 std::span<const float> values) {
  return {Dtype::f32, shape, bytes_of(values)};
}

int64_t row_size(const ModelParameter& p) { return p.size() / p.shape[0]; }

// All specs have the same parameters.
Result<std::vector<ModelParameter>> parameters_of(const ModelConfig& m) {
  auto spec = find_layer_spec("reference");
  if (!spec) return spec.error();
  return model_parameters(m, *spec);
}

}  // namespace
}  // namespace model

using model::Piece;

Result<std::string> import_hugging_face(const HuggingFaceModel& from) {
  auto theirs =
      in_file(model::read_their_config(from.config), from.config_name);
  if (!theirs) return theirs.error();
  const ModelConfig& m = theirs->model;
  auto tensors = model::gather(from);
  if (!tensors) return tensors.error();
  const std::vector<Piece> pieces = model::pieces_of(theirs->family, m);
  for (const Piece& p : pieces) {
    if (auto e = model::check_tensor(p, *tensors); !e) return e.error();
  }
  auto known = model::check_known(pieces, *tensors, m.tied_head);
  if (!known) return known.error();
  auto parameters = model::parameters_of(m);
  if (!parameters) return parameters.error();

  std::map<std::string, std::vector<float>> values;
  std::map<std::string, int64_t> row;
  for (const ModelParameter& p : *parameters) {
    values[p.name].resize(static_cast<size_t>(p.size()));
    row[p.name] = model::row_size(p);
  }
  for (const Piece& p : pieces) {
    float* to = values.at(p.ours).data() + p.first * row.at(p.ours);
    model::read_floats(tensors->at(p.theirs), p.plus, to);
  }
  Safetensors file;
  for (const ModelParameter& p : *parameters) {
    file.tensors[p.name] = model::tensor_of(p.shape, values.at(p.name));
  }
  file.metadata[std::string(model::kModelName)] = to_json(m);
  return model::write_state(std::move(file));
}

namespace {

Result<HuggingFaceModel> exported(std::string_view checkpoint) {
  auto parsed = parse_safetensors(checkpoint);
  if (!parsed) return parsed.error();
  auto m = model::model_of(*parsed);
  if (!m) return m.error();
  auto family = model::family_of(*m);
  if (!family) return family.error();
  auto parameters = model::parameters_of(*m);
  if (!parameters) return parameters.error();
  auto ours = model::read_parameters(*parsed, *parameters);
  if (!ours) return ours.error();

  std::map<std::string, size_t> at;
  for (size_t i = 0; i < parameters->size(); ++i) {
    at[(*parameters)[i].name] = i;
  }
  std::vector<Piece> pieces = model::pieces_of(*family, *m);
  std::vector<std::vector<float>> values;
  Safetensors file;
  for (const Piece& p : pieces) {
    const size_t i = at.at(p.ours);
    const auto from =
        (*ours)[i].begin() + p.first * model::row_size((*parameters)[i]);
    std::vector<float> some(from, from + *element_count(p.shape));
    for (float& v : some) v = static_cast<float>(v - p.plus);
    values.push_back(std::move(some));
    file.tensors[p.theirs] = model::tensor_of(p.shape, values.back());
  }
  file.metadata["format"] = "pt";  // transformers requires it
  auto weights = write_safetensors(file);
  if (!weights) return weights.error();
  HuggingFaceModel out;
  out.config = model::write_their_config(*family, *m);
  out.weights.push_back(std::move(*weights));
  return out;
}

}  // namespace

Result<HuggingFaceModel> export_hugging_face(std::string_view checkpoint,
                                             std::string_view name) {
  return in_file(exported(checkpoint), name);
}

}  // namespace tessera
