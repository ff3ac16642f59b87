// model/hugging_face_config.cc: reads and writes config.json of both families.
#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "base/json_read.h"
#include "base/of_layer.h"
#include "base/text.h"
#include "model/hugging_face.h"
#include "tessera/plan.h"

namespace tessera::model {
namespace {

constexpr std::string_view kWhere = "config.json";
constexpr std::string_view kFamilies[] = {"llama", "gemma2"};
constexpr int64_t kMaxSize = int64_t{1} << 31;

// Reads fields by name. A field that is missing or null has the default of
// Hugging Face's library. The first error is kept for done().
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}

  bool has(const char* name) const {
    const auto at = json_.find(name);
    return at != json_.end() && !at->is_null();
  }
  int64_t size(const char* name, int64_t otherwise) {
    if (!has(name)) return otherwise;
    return keep(read_int(json_[name], kWhere, name, 0, kMaxSize), otherwise);
  }
  int64_t size(const char* name) {
    if (!has(name)) refuse(name, "a number", "none");
    return size(name, 0);
  }
  double number(const char* name, double otherwise) {
    if (!has(name)) return otherwise;
    if (json_[name].is_number()) return json_[name].get<double>();
    refuse(name, "a number", describe(json_[name]));
    return otherwise;
  }
  bool flag(const char* name, bool otherwise) {
    if (!has(name)) return otherwise;
    return keep(read_bool(json_[name], kWhere, name), otherwise);
  }
  void refuse(std::string_view name, std::string_view must,
              std::string_view found) {
    if (failed_) return;
    failed_ = invalid(kWhere, "{} must be {}, found {}", name, must, found);
  }
  const Json& operator[](const char* name) const { return json_[name]; }
  Result<void> done() const { return failed_ ? *failed_ : Result<void>(); }

 private:
  template <class T>
  T keep(Result<T> read, T otherwise) {
    if (read) return *read;
    if (!failed_) failed_ = read.error();
    return otherwise;
  }

  const Json& json_;
  std::optional<Result<void>> failed_;
};

// Refuses settings that our block cannot express.
void check_plain(Fields& f, Family family) {
  for (const char* name :
       {"attention_bias", "mlp_bias", "use_bidirectional_attention"}) {
    if (f.flag(name, false)) f.refuse(name, "false", "true");
  }
  if (f.has("quantization_config")) {
    f.refuse("quantization_config", "absent",
             describe(f["quantization_config"]));
  }
  if (f.number("partial_rotary_factor", 1) != 1) {
    f.refuse("partial_rotary_factor", "1",
             describe(f["partial_rotary_factor"]));
  }
  const bool llama = family == Family::llama;
  const std::string_view act = llama ? "silu" : "gelu_pytorch_tanh";
  const char* named = llama ? "hidden_act" : "hidden_activation";
  if (f.has(named) && f[named] != act) {
    f.refuse(named, act, describe(f[named]));
  }
}

// Scaled angles are supported for Llama 3's scaling only. Old files have
// rope_theta and rope_scaling, new ones rope_parameters, which holds both.
void read_rope(Fields& f, ModelConfig& m) {
  m.rope_theta = f.number("rope_theta", 10000);
  const char* where =
      f.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!f.has(where)) return;
  const Json& rope = f[where];
  if (!rope.is_object()) {
    f.refuse(where, "an object", describe(rope));
    return;
  }
  const auto number = [&](const char* name, double otherwise) {
    const auto at = rope.find(name);
    if (at == rope.end() || at->is_null()) return otherwise;
    if (at->is_number()) return at->get<double>();
    f.refuse(name, "a number", describe(*at));
    return otherwise;
  };
  m.rope_theta = number("rope_theta", m.rope_theta);
  auto kind = rope.find("rope_type");
  if (kind == rope.end()) kind = rope.find("type");
  if (kind == rope.end() || *kind == "default") return;
  if (*kind != "llama3") {
    f.refuse(where, "of rope_type default or llama3", describe(*kind));
    return;
  }
  m.rope_factor = number("factor", m.rope_factor);
  m.rope_low = number("low_freq_factor", m.rope_low);
  m.rope_high = number("high_freq_factor", m.rope_high);
  m.rope_tokens = number("original_max_position_embeddings", m.rope_tokens);
}

// The shortest period that gives the same window to each layer.
std::vector<int64_t> shortest(std::vector<int64_t> windows) {
  for (size_t n = 1; n < windows.size(); ++n) {
    bool same = true;
    for (size_t i = n; i < windows.size(); ++i) {
      same = same && windows[i] == windows[i - n];
    }
    if (same) {
      windows.resize(n);
      break;
    }
  }
  if (windows.size() == 1 && windows[0] == 0) windows.clear();
  return windows;
}

// Their window counts the query itself; ours does not.
std::vector<int64_t> read_windows(Fields& f, int64_t layers) {
  const int64_t window = f.size("sliding_window", 4096) - 1;
  if (window < 1 || window > kMaxTokens) {
    f.refuse("sliding_window", fmt::format("2 to {}", kMaxTokens),
             std::to_string(window + 1));
    return {};
  }
  if (!f.has("layer_types")) return shortest({window, 0});
  const Json& types = f["layer_types"];
  if (!types.is_array() || static_cast<int64_t>(types.size()) != layers) {
    f.refuse(
        "layer_types", fmt::format("a list of {}", layers),
        types.is_array() ? fmt::format("{}", types.size()) : describe(types));
    return {};
  }
  std::vector<int64_t> out;
  for (const Json& type : types) {
    const bool slides = type == "sliding_attention";
    if (!slides && type != "full_attention") {
      f.refuse("layer_types", "of sliding_attention and full_attention",
               describe(type));
      return {};
    }
    out.push_back(slides ? window : 0);
  }
  return shortest(std::move(out));
}

// Gemma's query_pre_attn_scalar is an integer n; scores scale by n^(-1/2).
double score_scale(int64_t n) {
  return 1 / std::sqrt(static_cast<double>(std::max<int64_t>(n, 1)));
}
int64_t scalar_of(const ModelConfig& m) {
  if (m.score_scale == 0) return m.head_dim;
  const double n = 1 / (m.score_scale * m.score_scale);
  return n < static_cast<double>(kMaxSize) ? std::llround(n) : kMaxSize;
}

// The factor by which Gemma multiplies embeddings.
double width_root(const ModelConfig& m) {
  return std::sqrt(static_cast<double>(m.width));
}

Result<void> must_be(bool holds, Family family, std::string_view setting,
                     const ModelConfig& m) {
  if (holds) return {};
  return invalid("hugging face",
                 "a model must be a Llama or a Gemma 2, found {} that {} does "
                 "not have in {}",
                 setting, to_string(family), to_json(m));
}

}  // namespace

std::string_view to_string(Family family) {
  return kFamilies[static_cast<size_t>(family)];
}

Result<TheirModel> read_their_config(std::string_view text) {
  const auto parsed = parse_json(text, kWhere);
  if (!parsed) return parsed.error();
  const Json& json = **parsed;
  if (auto e = check_object(json, kWhere, "a model"); !e) return e.error();
  const auto type = json.find("model_type");
  const auto* family = std::ranges::find_if(kFamilies, [&](const auto& name) {
    return type != json.end() && *type == name;
  });
  if (family == std::end(kFamilies)) {
    return invalid(kWhere, "model_type must be one of {}, found {}",
                   fmt::join(kFamilies, ", "),
                   type == json.end() ? "none" : describe(*type));
  }
  TheirModel out;
  out.family = static_cast<Family>(family - std::begin(kFamilies));
  const bool gemma = out.family == Family::gemma2;
  Fields f(json);
  check_plain(f, out.family);
  ModelConfig& m = out.model;
  m.vocab = f.size("vocab_size");
  m.layers = f.size("num_hidden_layers");
  m.width = f.size("hidden_size");
  m.heads = f.size("num_attention_heads");
  m.mlp_width = f.size("intermediate_size");
  m.kv_heads = f.size("num_key_value_heads", m.heads);
  m.head_dim = f.size("head_dim", gemma         ? 256
                                  : m.heads > 0 ? m.width / m.heads
                                                : 0);
  m.norm_eps = f.number("rms_norm_eps", 1e-6);
  read_rope(f, m);
  m.tied_head = f.flag("tie_word_embeddings", gemma);
  if (gemma) {
    m.mlp = MlpKind::geglu;
    m.post_norms = true;
    m.embedding_scale = width_root(m);
    // An absent cap has its default; a null cap is off.
    const auto cap = [&](const char* name, double otherwise) {
      return json.contains(name) ? f.number(name, 0) : otherwise;
    };
    m.softcap = cap("attn_logit_softcapping", 50);
    m.final_softcap = cap("final_logit_softcapping", 30);
    m.score_scale = score_scale(f.size("query_pre_attn_scalar", 256));
  }
  if (auto e = f.done(); !e) return e.error();
  if (auto e = check_model(m); !e) return e.error();
  // Quadratic in the number of layers, which check_model() has bounded.
  if (gemma) m.windows = read_windows(f, m.layers);
  if (auto e = f.done(); !e) return e.error();
  return out;
}

Result<Family> family_of(const ModelConfig& m) {
  const Family family =
      m.mlp == MlpKind::geglu ? Family::gemma2 : Family::llama;
  const bool gemma = family == Family::gemma2;
  const bool one_window = [&] {
    std::vector<int64_t> some = m.windows;
    std::erase(some, 0);
    return std::ranges::adjacent_find(some, std::not_equal_to()) == some.end();
  }();
  const bool slides = std::ranges::any_of(m.windows, [](auto w) { return w; });
  const double scale = score_scale(scalar_of(m));
  const std::pair<bool, std::string_view> rules[] = {
      {m.norm == NormKind::rms, "the norm"},
      {m.mlp != MlpKind::gelu, "the mlp"},
      {m.columns.empty(), "columns"},
      {m.rope_factor == 1 || std::round(m.rope_tokens) == m.rope_tokens,
       "rope_tokens"},
      {m.post_norms == gemma, "post_norms"},
      {m.embedding_scale == (gemma ? width_root(m) : 1), "embedding_scale"},
      {gemma || (m.softcap == 0 && m.final_softcap == 0), "a softcap"},
      {m.score_scale == 0 ||
           (m.score_scale == scale && (gemma || scalar_of(m) == m.head_dim)),
       "score_scale"},
      {gemma ? one_window : !slides, "windows"},
      {m.routes.empty(), "routes"},
  };
  for (const auto& [holds, setting] : rules) {
    if (auto e = must_be(holds, family, setting, m); !e) return e.error();
  }
  return family;
}

std::string write_their_config(Family family, const ModelConfig& m) {
  const bool gemma = family == Family::gemma2;
  Json out = {
      {"architectures", {gemma ? "Gemma2ForCausalLM" : "LlamaForCausalLM"}},
      {"model_type", to_string(family)},
      {"vocab_size", m.vocab},
      {"num_hidden_layers", m.layers},
      {"hidden_size", m.width},
      {"num_attention_heads", m.heads},
      {"num_key_value_heads", m.kv_heads},
      {"head_dim", m.head_dim},
      {"intermediate_size", m.mlp_width},
      {"hidden_act", gemma ? "gelu_pytorch_tanh" : "silu"},
      {"rms_norm_eps", m.norm_eps},
      {"rope_theta", m.rope_theta},
      {"tie_word_embeddings", m.tied_head},
      {"torch_dtype", "float32"},
  };
  if (m.rope_factor > 1) {
    out["rope_scaling"] = {
        {"rope_type", "llama3"},
        {"factor", m.rope_factor},
        {"low_freq_factor", m.rope_low},
        {"high_freq_factor", m.rope_high},
        {"original_max_position_embeddings", std::llround(m.rope_tokens)}};
  }
  if (!gemma) return out.dump(2) + "\n";
  const auto cap = [](double v) { return v > 0 ? Json(v) : Json(nullptr); };
  out["hidden_activation"] = out["hidden_act"];
  out["attn_logit_softcapping"] = cap(m.softcap);
  out["final_logit_softcapping"] = cap(m.final_softcap);
  out["query_pre_attn_scalar"] = scalar_of(m);
  int64_t window = 0;
  Json types = Json::array();
  for (int64_t i = 0; i < m.layers; ++i) {
    const int64_t w = of_layer(m.windows, i);
    window = std::max(window, w);
    types.push_back(w > 0 ? "sliding_attention" : "full_attention");
  }
  out["layer_types"] = types;
  out["sliding_window"] = (window > 0 ? window : 4095) + 1;
  return out.dump(2) + "\n";
}

}  // namespace tessera::model
