// model/hugging_face_test.cc: converts their names and settings, and back.
#include "model/hugging_face.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/files.h"
#include "base/float16.h"
#include "base/json_read.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "model/checkpoint.h"
#include "model/start.h"
#include "tests/full_disk.h"
#include "tests/temp_folder.h"

namespace tessera::model {
namespace {

ModelConfig llama() {
  ModelConfig m;
  m.layers = 3;
  m.tied_head = false;
  m.rope_theta = 5e5;
  m.rope_factor = 8;
  return m;
}

ModelConfig gemma() {
  ModelConfig m;
  m.layers = 4;
  m.mlp = MlpKind::geglu;
  m.post_norms = true;
  m.embedding_scale = std::sqrt(static_cast<double>(m.width));
  m.softcap = 50;
  m.final_softcap = 30;
  m.score_scale = 0.125;
  m.windows = {31, 0};
  return m;
}

std::vector<ModelParameter> parameters_of(const ModelConfig& m) {
  return *model_parameters(m, *find_layer_spec("reference"));
}

std::string start_of(const ModelConfig& m) {
  const std::vector<ModelParameter> parameters = parameters_of(m);
  TrainState state;
  for (const ModelParameter& p : parameters) {
    state.values[0].push_back(start_values(p, 7));
    for (const size_t kind : {1, 2}) {
      state.values[kind].emplace_back(static_cast<size_t>(p.size()), 0.5F);
    }
  }
  return *write_checkpoint(m, {}, {}, parameters, state);
}

// Each row of each parameter is one row of one of their arrays, and only one.
void expect_covered(Family family, const ModelConfig& m) {
  std::map<std::string, std::vector<int>> rows;
  for (const ModelParameter& p : parameters_of(m)) {
    rows[p.name].resize(static_cast<size_t>(p.shape[0]));
  }
  std::set<std::string> theirs;
  for (const Piece& p : pieces_of(family, m)) {
    EXPECT_TRUE(theirs.insert(p.theirs).second) << p.theirs;
    ASSERT_TRUE(rows.contains(p.ours)) << p.ours;
    for (int64_t r = p.first; r < p.first + p.shape[0]; ++r) {
      ++rows[p.ours].at(static_cast<size_t>(r));
    }
  }
  for (const auto& [name, counts] : rows) {
    for (const int n : counts) EXPECT_EQ(n, 1) << name;
  }
}

TEST(HuggingFace, PiecesAreEveryParameterOnce) {
  expect_covered(Family::llama, llama());
  expect_covered(Family::gemma2, gemma());
}

// The examples that users copy.
TEST(HuggingFace, ExamplesAreOfTheirFamilies) {
  for (const auto& [file, family] :
       {std::pair("examples/models/llama_small.json", Family::llama),
        std::pair("examples/models/gemma_small.json", Family::gemma2)}) {
    const auto text = read_file(file, 1 << 20);
    ASSERT_TRUE(text) << text.error().message;
    const auto model = parse_model_config(*text);
    ASSERT_TRUE(model) << model.error().message;
    const auto found = family_of(*model);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(*found, family) << file;
    auto out = export_hugging_face(start_of(*model));
    ASSERT_TRUE(out) << out.error().message;
    EXPECT_EQ(read_their_config(out->config)->model, *model);
  }
}

TEST(HuggingFace, ModelsGoOutAndComeBack) {
  for (const ModelConfig& m : {llama(), gemma()}) {
    const std::string ours = start_of(m);
    auto out = export_hugging_face(ours);
    ASSERT_TRUE(out) << out.error().message;
    auto back = import_hugging_face(*out);
    ASSERT_TRUE(back) << back.error().message;
    const auto parameters = parameters_of(m);
    // Their settings cannot express the form of our MLP, so it has its default.
    EXPECT_EQ(to_json(*checkpoint_model(*back)), to_json(m));
    auto before = read_checkpoint(ours, m, parameters);
    auto after = read_checkpoint(*back, m, parameters);
    ASSERT_TRUE(after) << after.error().message;
    EXPECT_EQ(after->step, 0);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto &a = before->values[0][i], &b = after->values[0][i];
      // A norm stored as weight - 1 has lost bits below the precision of 1.
      EXPECT_EQ(a, b) << parameters[i].name;
      EXPECT_EQ(after->values[1][i], std::vector<float>(a.size()));
    }
  }
}

// Rows are in their library's order, and norms of Gemma have 1 added.
TEST(HuggingFace, ArraysAreRowsOfOurs) {
  const ModelConfig m = gemma();
  auto out = export_hugging_face(start_of(m));
  ASSERT_TRUE(out) << out.error().message;
  auto file = parse_safetensors(out->weights[0]);
  ASSERT_TRUE(file);
  const auto value = [&](const char* name, int64_t row, int64_t column) {
    const Tensor t = *file->find(name);
    float v = 0;
    const int64_t width = t.shape.size() > 1 ? t.shape[1] : 1;
    std::memcpy(&v, t.bytes.data() + 4 * (row * width + column), 4);
    return v;
  };
  const auto ours = [&](const std::string& name) {
    const auto parameters = parameters_of(m);
    for (const ModelParameter& p : parameters) {
      if (p.name == name) return start_values(p, 7);
    }
    return std::vector<float>();
  };
  const auto at = [&](const std::vector<float>& v, int64_t row,
                      int64_t column) {
    return v.at(static_cast<size_t>(row * m.width + column));
  };
  const std::vector<float> qkv = ours("layers.2.linear_qkv.weight");
  const std::vector<float> fc1 = ours("layers.2.linear_fc1.weight");
  const int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  EXPECT_EQ(value("model.layers.2.self_attn.q_proj.weight", 3, 5),
            at(qkv, 3, 5));
  EXPECT_EQ(value("model.layers.2.self_attn.k_proj.weight", 3, 5),
            at(qkv, q + 3, 5));
  EXPECT_EQ(value("model.layers.2.self_attn.v_proj.weight", 3, 5),
            at(qkv, q + kv + 3, 5));
  EXPECT_EQ(value("model.layers.2.mlp.gate_proj.weight", 3, 5), at(fc1, 3, 5));
  EXPECT_EQ(value("model.layers.2.mlp.up_proj.weight", 3, 5),
            at(fc1, m.mlp_width + 3, 5));
  EXPECT_EQ(value("model.norm.weight", 2, 0), 0.0F);  // ours is 1
}

// Moments are ignored: these lack their step, which a resumed run needs.
TEST(HuggingFace, ParametersAloneAreRead) {
  const std::string whole = start_of(llama());
  Safetensors cut = *parse_safetensors(whole);
  ASSERT_EQ(cut.metadata.erase("step"), 1U);
  cut.metadata.erase(std::string(kMetadataDigestName));
  const std::string stepless = *write_safetensors(cut);
  EXPECT_FALSE(read_checkpoint(stepless, llama(), parameters_of(llama())));
  auto a = export_hugging_face(whole), b = export_hugging_face(stepless);
  ASSERT_TRUE(b) << b.error().message;
  EXPECT_EQ(a->weights, b->weights);
  EXPECT_EQ(a->config, b->config);
}

TEST(HuggingFace, NarrowArraysAreWidened) {
  auto out = export_hugging_face(start_of(llama()));
  ASSERT_TRUE(out);
  auto file = parse_safetensors(out->weights[0]);
  Safetensors narrow;
  std::map<std::string, std::vector<uint16_t>> kept;
  bool bf16 = false;
  for (const auto& [name, t] : file->tensors) {
    bf16 = !bf16;
    std::vector<uint16_t>& bits = kept[name];
    for (size_t i = 0; i < t.bytes.size(); i += 4) {
      float v = 0;
      std::memcpy(&v, t.bytes.data() + i, 4);
      bits.push_back(bf16 ? to_bf16(v) : to_f16(v));
    }
    narrow.tensors[name] = {bf16 ? Dtype::bf16 : Dtype::f16, t.shape,
                            bytes_of(std::span<const uint16_t>(bits))};
  }
  auto back = import_hugging_face({out->config, {*write_safetensors(narrow)}});
  ASSERT_TRUE(back) << back.error().message;
  auto ours = parse_safetensors(*back);
  for (const Piece& p : pieces_of(Family::llama, llama())) {
    const Tensor& from = narrow.tensors.at(p.theirs);
    const Tensor& to = ours->tensors.at(p.ours);
    uint16_t bits = 0;
    std::memcpy(&bits, from.bytes.data(), 2);
    float v = 0;
    const int64_t row = static_cast<int64_t>(to.bytes.size()) / to.shape[0];
    std::memcpy(&v, to.bytes.data() + p.first * row, 4);
    EXPECT_EQ(
        v, from.dtype == Dtype::bf16 ? bf16_to_float(bits) : f16_to_float(bits))
        << p.theirs;
  }
}

std::string with(const std::string& config, const char* name, Json value) {
  Json json = Json::parse(config);
  json[name] = std::move(value);
  return json.dump();
}
std::string without(const std::string& config, const char* name) {
  Json json = Json::parse(config);
  json.erase(name);
  return json.dump();
}

TEST(HuggingFace, SettingsThatWouldChangeTheModelAreRefused) {
  const std::string config = write_their_config(Family::llama, llama());
  const auto why = [](const std::string& text) {
    auto read = read_their_config(text);
    return read ? std::string() : read.error().message;
  };
  EXPECT_EQ(why(config), "");
  EXPECT_EQ(why(with(config, "model_type", "mamba")),
            "[config.json] model_type must be one of llama, gemma2, found the "
            "string 'mamba'");
  EXPECT_EQ(
      why(without(config, "model_type")),
      "[config.json] model_type must be one of llama, gemma2, found none");
  EXPECT_EQ(why(without(config, "hidden_size")),
            "[config.json] hidden_size must be a number, found none");
  EXPECT_EQ(why(with(config, "attention_bias", true)),
            "[config.json] attention_bias must be false, found true");
  EXPECT_EQ(why(with(config, "hidden_act", "relu")),
            "[config.json] hidden_act must be silu, found the string 'relu'");
  EXPECT_EQ(why(with(config, "rope_scaling", {{"type", "linear"}})),
            "[config.json] rope_scaling must be of rope_type default or "
            "llama3, found the string 'linear'");
  EXPECT_EQ(why(with(config, "rope_parameters", {{"rope_type", "yarn"}})),
            "[config.json] rope_parameters must be of rope_type default or "
            "llama3, found the string 'yarn'");
  EXPECT_EQ(why(with(config, "quantization_config", {{"bits", 4}}))
                .find("[config.json] quantization_config must be absent"),
            0U);
  EXPECT_NE(
      why(with(
              config, "rope_scaling",
              {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}}))
          .find("rope_low"),
      std::string::npos);
  EXPECT_NE(why(with(config, "num_attention_heads", 3)).find("must divide"),
            std::string::npos);
  EXPECT_NE(why("{").find("[config.json]"), std::string::npos);
  // Null counts as absent; theta is read from both places.
  EXPECT_EQ(why(with(config, "rope_scaling", nullptr)), "");
  auto theta =
      read_their_config(with(config, "rope_parameters",
                             {{"rope_type", "default"}, {"rope_theta", 5e5}}));
  EXPECT_EQ(theta->model.rope_theta, 5e5);

  const std::string gemma2 = write_their_config(Family::gemma2, gemma());
  EXPECT_NE(why(with(gemma2, "layer_types", {"full_attention"}))
                .find("layer_types must be a list of 4, found 1"),
            std::string::npos);
  // layer_types is read only after the number of layers is checked.
  EXPECT_EQ(why(with(gemma2, "num_hidden_layers", 3'000'000)),
            "[model] layers must be 1 to 1024, found 3000000");
  auto plain = read_their_config(without(gemma2, "layer_types"));
  EXPECT_EQ(plain->model.windows, (std::vector<int64_t>{31, 0}));
  auto off = read_their_config(with(gemma2, "attn_logit_softcapping", nullptr));
  EXPECT_EQ(off->model.softcap, 0);
  auto usual = read_their_config(without(gemma2, "attn_logit_softcapping"));
  EXPECT_EQ(usual->model.softcap, 50);
}

TEST(HuggingFace, ArraysThatDoNotFitAreRefused) {
  auto out = export_hugging_face(start_of(llama()));
  auto file = parse_safetensors(out->weights[0]);
  const auto why = [&](const Safetensors& changed) {
    auto read =
        import_hugging_face({out->config, {*write_safetensors(changed)}});
    return read ? std::string() : read.error().message;
  };
  Safetensors less = *file;
  less.tensors.erase("model.norm.weight");
  EXPECT_NE(why(less).find("the files must have model.norm.weight"),
            std::string::npos);
  Safetensors more = *file;
  more.tensors["model.layers.0.self_attn.q_proj.bias"] =
      file->tensors.at("model.norm.weight");
  EXPECT_NE(why(more).find("found none for "
                           "'model.layers.0.self_attn.q_proj.bias'"),
            std::string::npos);
  Safetensors other = *file;
  other.tensors.at("model.norm.weight").shape = {8, 8};
  EXPECT_NE(why(other).find("model.norm.weight must be F32, BF16 or F16 [64], "
                            "found F32 [8, 8]"),
            std::string::npos);
  // Old files also have the angles of RoPE, which follow from the settings.
  Safetensors old = *file;
  old.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] =
      file->tensors.at("model.norm.weight");
  EXPECT_EQ(why(old), "");
  auto twice =
      import_hugging_face({out->config, {out->weights[0], out->weights[0]}});
  ASSERT_FALSE(twice);
  auto cut =
      import_hugging_face({out->config, {out->weights[0], "abc"}, {"a", "b"}});
  ASSERT_FALSE(cut);
  EXPECT_TRUE(cut.error().message.ends_with("for at least 8 (in 'b')"))
      << cut.error().message;
  EXPECT_NE(twice.error().message.find("an array must be in one file"),
            std::string::npos);
}

TEST(HuggingFace, AnErrorOfTheConfigNamesItsFile) {
  const std::string config = write_their_config(Family::llama, llama());
  const auto why = [](const std::string& text) {
    return import_hugging_face({text, {}, {}, "a/config.json"}).error().message;
  };
  EXPECT_EQ(why(without(config, "hidden_size")),
            "[config.json] hidden_size must be a number, found none (in "
            "'a/config.json')");
  // The error has our model's rule and our name of the setting.
  EXPECT_EQ(why(with(config, "num_hidden_layers", 3'000'000)),
            "[model] layers must be 1 to 1024, found 3000000 (in "
            "'a/config.json')");
}

TEST(HuggingFace, IsWrittenIntoAFolderOfItsOwn) {
  const testing::TempFolder folder;
  const auto theirs = export_hugging_face(start_of(llama()));
  ASSERT_TRUE(theirs) << theirs.error().message;
  const std::string made = folder.file("new/deep");
  ASSERT_TRUE(write_hugging_face(*theirs, made));
  auto back = read_hugging_face(made);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->weights, theirs->weights);
  EXPECT_EQ(back->names, std::vector<std::string>{made + "/model.safetensors"});
  EXPECT_EQ(back->config_name, made + "/config.json");
  HuggingFaceModel other = *theirs;
  other.config = "{}";
  const auto refused = write_hugging_face(other, made);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "[hugging face] a model's folder must be new or empty, found files "
            "in " +
                in_quotes(made));
  EXPECT_EQ(read_hugging_face(made)->config, theirs->config);
}

TEST(HuggingFace, WhereTheDiskFillsUpNothingIsLeft) {
  const testing::TempFolder folder;
  const auto theirs = export_hugging_face(start_of(llama()));
  ASSERT_TRUE(theirs) << theirs.error().message;
  // An existing empty folder is kept; the disk has room for the config only.
  for (const std::string& made : {folder.file("new"), folder.path().string()}) {
    ASSERT_LT(theirs->config.size(), theirs->weights[0].size());
    {
      const testing::FullDisk full(theirs->config.size());
      ASSERT_TRUE(full.holds());
      EXPECT_FALSE(write_hugging_face(*theirs, made));
    }
    EXPECT_EQ(std::filesystem::exists(made), made == folder.path());
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
  EXPECT_TRUE(write_hugging_face(*theirs, folder.path()));
}

TEST(HuggingFace, ModelsThatTheyDoNotHaveAreRefused) {
  const auto why = [](const ModelConfig& m) {
    auto family = family_of(m);
    return family ? std::string() : family.error().message;
  };
  ModelConfig m = llama();
  m.norm = NormKind::layer;
  EXPECT_NE(why(m).find("found the norm"), std::string::npos);
  m = llama();
  m.windows = {16};
  EXPECT_NE(why(m).find("found windows"), std::string::npos);
  m = gemma();
  m.windows = {16, 8};
  EXPECT_NE(why(m).find("found windows"), std::string::npos);
  m = gemma();
  m.score_scale = 0.3;
  EXPECT_NE(why(m).find("found score_scale"), std::string::npos);
  m = gemma();
  m.columns["dep_levels"] = 4;
  EXPECT_NE(why(m).find("found columns"), std::string::npos);
  m = llama();
  m.routes = {{4, 64}};
  EXPECT_NE(why(m).find("found routes"), std::string::npos);
}

}  // namespace
}  // namespace tessera::model
