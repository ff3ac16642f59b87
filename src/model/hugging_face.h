// model/hugging_face.h: how Hugging Face's Llama and Gemma 2 call what our
// models have. Each of their arrays is rows of one of ours.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/train.h"

namespace tessera::model {

enum class Family : uint8_t { llama, gemma2 };
std::string_view to_string(Family family);  // "gemma2", as `model_type` is

struct Piece {
  std::string theirs;  // "model.layers.0.self_attn.k_proj.weight"
  std::string ours;    // "layers.0.linear_qkv.weight"
  int64_t first = 0;   // row of ours
  std::vector<int64_t> shape;
  double plus = 0;  // ours is theirs plus it: Gemma's norms scale by 1 + weight
};
// Together they are every parameter of the model, each row once.
std::vector<Piece> pieces_of(Family family, const ModelConfig& model);

struct TheirModel {
  Family family = Family::llama;
  ModelConfig model;
};
// A setting that would change what the model means is refused by its name.
Result<TheirModel> read_their_config(std::string_view json);
// The family that has such models, or an error that names the setting that
// neither has.
Result<Family> family_of(const ModelConfig& model);
std::string write_their_config(Family family, const ModelConfig& model);

// The files of their folder: what is read, and every name that is looked for,
// there or not.
struct TheirFiles {
  std::string config;
  std::vector<std::string> weights;
  std::vector<std::string> names;
};
// An index is read; nothing else is.
Result<TheirFiles> their_files(const std::string& folder);

// Makes the folder, new or empty, before `write` does its work.
Result<void> write_their_folder(const std::string& folder,
                                const std::function<Result<void>()>& write);

}  // namespace tessera::model
