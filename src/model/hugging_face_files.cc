// model/hugging_face_files.cc: a model's folder as Hugging Face lays it out.
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "base/json_read.h"
#include "base/out_folder.h"
#include "base/text.h"
#include "model/hugging_face.h"
#include "tessera/train.h"

namespace tessera {
namespace {

constexpr std::string_view kWhere = "hugging face";
constexpr const char* kConfig = "/config.json";
constexpr const char* kWhole = "/model.safetensors";
constexpr const char* kIndex = "/model.safetensors.index.json";
constexpr int64_t kMaxText = int64_t{1} << 26;
constexpr int64_t kMaxWeights = int64_t{1} << 40;

// The names of the files of an index, each once. They must be in its folder.
Result<std::vector<std::string>> read_index(const std::string& text) {
  const auto parsed = parse_json(text, kWhere);
  if (!parsed) return parsed.error();
  const Json& json = **parsed;
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object() || map->empty()) {
    return invalid(kWhere, "an index must have a weight_map, found {}",
                   describe(json));
  }
  std::set<std::string> files;
  for (const auto& [name, file] : map->items()) {
    auto read = read_line(file, kWhere, "a file of the index");
    if (!read) return read.error();
    if (read->empty() || read->find('/') != std::string::npos) {
      return invalid(kWhere, "files of the index must lie beside it, found {}",
                     in_quotes(*read));
    }
    files.insert(std::move(*read));
  }
  return std::vector<std::string>(files.begin(), files.end());
}

}  // namespace

Result<model::TheirFiles> model::their_files(const std::string& folder) {
  const std::string whole = folder + kWhole, index = folder + kIndex;
  TheirFiles out{folder + kConfig, {}, {}};
  out.names = {out.config, whole, index};
  // If a folder has both, the single file is used, as Hugging Face does.
  std::error_code unknown;
  if (std::filesystem::exists(whole, unknown) ||
      !std::filesystem::exists(index, unknown)) {
    out.weights = {whole};
    return out;
  }
  auto text = read_file(index, kMaxText);
  if (!text) return text.error();
  auto parts = read_index(*text);
  if (!parts) return in_file(parts.error(), index);
  for (const std::string& file : *parts) {
    out.weights.push_back(folder + "/" + file);
    out.names.push_back(out.weights.back());
  }
  return out;
}

Result<HuggingFaceModel> read_hugging_face(const std::string& folder) {
  auto files = model::their_files(folder);
  if (!files) return files.error();
  HuggingFaceModel out;
  auto config = read_file(files->config, kMaxText);
  if (!config) return config.error();
  out.config = std::move(*config);
  out.config_name = std::move(files->config);
  for (const std::string& file : files->weights) {
    auto bytes = read_file(file, kMaxWeights);
    if (!bytes) return bytes.error();
    out.weights.push_back(std::move(*bytes));
    out.names.push_back(file);
  }
  return out;
}

Result<void> model::write_their_folder(
    const std::string& folder, const std::function<Result<void>()>& write) {
  return write_out_folder({kWhere, "a model's folder"}, folder, write);
}

Result<void> write_hugging_face(const HuggingFaceModel& theirs,
                                const std::string& folder) {
  if (theirs.weights.size() != 1) {
    return invalid(kWhere, "a model must be written as 1 file, found {}",
                   theirs.weights.size());
  }
  return model::write_their_folder(folder, [&]() -> Result<void> {
    const std::string config = folder + kConfig;
    if (auto e = write_file(config, theirs.config); !e) return e;
    auto e = write_file(folder + kWhole, theirs.weights[0]);
    // A config without weights is no model, and would make the next write fail.
    std::error_code ignored;
    if (!e) std::filesystem::remove(config, ignored);
    return e;
  });
}

}  // namespace tessera
