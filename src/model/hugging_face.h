// model/hugging_face.h: maps the names in Hugging Face's Llama and Gemma 2 to
// those in our models. Each of their arrays is a range of rows of one of ours.
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
  int64_t first = 0;   // row of our array
  std::vector<int64_t> shape;
  double plus = 0;  // ours = theirs + plus; Gemma's norms scale by 1 + weight
};
// The pieces cover each row of each parameter of the model once.
std::vector<Piece> pieces_of(Family family, const ModelConfig& model);

struct TheirModel {
  Family family = Family::llama;
  ModelConfig model;
};
// An error names a setting that our model cannot express.
Result<TheirModel> read_their_config(std::string_view json);
// The family that the model belongs to, or an error that names the setting.
Result<Family> family_of(const ModelConfig& model);
std::string write_their_config(Family family, const ModelConfig& model);

// The files of their folder: those to read, and in `names` every path that is
// looked at, whether the file exists or not.
struct TheirFiles {
  std::string config;
  std::vector<std::string> weights;
  std::vector<std::string> names;
};
// Reads an index file if it is used, and no other file.
Result<TheirFiles> their_files(const std::string& folder);

// Makes the folder, which must be new or empty, then calls `write`.
Result<void> write_their_folder(const std::string& folder,
                                const std::function<Result<void>()>& write);

}  // namespace tessera::model
