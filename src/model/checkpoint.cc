// model/checkpoint.cc: writes checkpoints, and checks names, shapes, the step
// and digests when it reads them.
#include "model/checkpoint.h"

#include <charconv>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/fail.h"
#include "base/shape.h"
#include "base/text.h"
#include "base/trace.h"
#include "model/precision.h"

namespace tessera::model {
namespace {

constexpr std::string_view kStep = "step", kPrecision = "precision",
                           kMesh = "mesh";

std::string digest_of_arrays(const Safetensors& file) {
  Digest digest;
  for (const auto& [name, tensor] : file.tensors) {
    digest.add_text(name);
    for (const int64_t size : tensor.shape) digest.add(size);
    digest.add(tensor.bytes.data(), tensor.bytes.size());
  }
  return digest.hex();
}

std::string digest_of_metadata(const Safetensors& file) {
  Digest digest;
  for (const auto& [name, value] : file.metadata) {
    if (name == kDigestName || name == kMetadataDigestName) continue;
    digest.add_text(name);
    digest.add_text(value);
  }
  return digest.hex();
}

Result<void> check_digest(const Safetensors& file, std::string_view what,
                          std::string_view name,
                          std::string (*of)(const Safetensors&)) {
  const auto said = file.metadata.find(name);
  if (said == file.metadata.end()) return {};
  const std::string found = of(file);
  if (found == said->second) return {};
  return invalid("checkpoint",
                 "the digest of the {} must be what {} in the metadata says "
                 "(the file is damaged, or was changed and that entry left "
                 "in), found {} for {}",
                 what, in_quotes(name), found, in_quotes(said->second));
}

// Without this check, numbers damaged on disk would be trained with unnoticed.
Result<void> check_digests(const Safetensors& file) {
  auto e =
      check_digest(file, "metadata", kMetadataDigestName, digest_of_metadata);
  if (!e) return e;
  return check_digest(file, "arrays", kDigestName, digest_of_arrays);
}

Result<std::vector<float>> read_values(const Safetensors& file,
                                       const std::string& name,
                                       const ModelParameter& p) {
  auto tensor = file.find(name);
  if (!tensor) return tensor.error();
  if (tensor->dtype != Dtype::f32 || tensor->shape != p.shape) {
    return invalid("checkpoint", "{} must be F32 {}, found {} {}", name,
                   shape_text(p.shape), to_string(tensor->dtype),
                   shape_text(tensor->shape));
  }
  return load_array<float>(tensor->bytes);
}

// Reads the arrays of one prefix: the parameters, or one of their moments.
Result<std::vector<std::vector<float>>> read_kind(
    const Safetensors& file, std::string_view kind,
    const std::vector<ModelParameter>& parameters) {
  std::vector<std::vector<float>> out;
  for (const ModelParameter& p : parameters) {
    auto values = read_values(file, std::string(kind) + p.name, p);
    if (!values) return values.error();
    out.push_back(std::move(*values));
  }
  return out;
}

// More steps than any run takes; counting on from it does not overflow.
constexpr int64_t kMaxStep = int64_t{1} << 48;

Result<int64_t> read_step(const Safetensors& file) {
  const auto at = file.metadata.find(kStep);
  int64_t step = -1;
  if (at != file.metadata.end()) {
    const char* end = at->second.data() + at->second.size();
    const auto [stop, error] = std::from_chars(at->second.data(), end, step);
    if (error != std::errc() || stop != end) step = -1;
  }
  if (step < 0 || step > kMaxStep) {
    return invalid(
        "checkpoint", "moments must come with their step, 0 to {}, found {}",
        kMaxStep, at == file.metadata.end() ? "none" : in_quotes(at->second));
  }
  return step;
}

Result<TrainState> read_state(std::string_view bytes, const ModelConfig& model,
                              const std::vector<ModelParameter>& parameters) {
  auto file = parse_safetensors(bytes);
  if (!file) return file.error();
  if (auto e = check_digests(*file); !e) return e.error();
  const auto said = file->metadata.find(kModelName);
  if (said != file->metadata.end()) {
    auto its = parse_model_config(said->second);
    if (!its) return its.error();
    if (*its != model) {
      return invalid(
          "checkpoint",
          "a checkpoint must be of the model that it is restored to, "
          "found {} for {}",
          to_json(*its), to_json(model));
    }
  }
  TrainState out;
  const bool moments = file->tensors.contains(std::string(kStateNames[1]) +
                                              parameters.front().name);
  if (moments) {
    auto step = read_step(*file);
    if (!step) return step.error();
    out.step = *step;
  }
  for (size_t kind = 0; kind < kStateNames.size(); ++kind) {
    if (kind > 0 && !moments) {
      for (const ModelParameter& p : parameters) {
        out.values[kind].emplace_back(static_cast<size_t>(p.size()), 0.0F);
      }
      continue;
    }
    auto values = read_kind(*file, kStateNames[kind], parameters);
    if (!values) return values.error();
    out.values[kind] = std::move(*values);
  }
  return out;
}

}  // namespace

Result<std::string> write_state(Safetensors file) {
  file.metadata[std::string(kDigestName)] = digest_of_arrays(file);
  file.metadata[std::string(kMetadataDigestName)] = digest_of_metadata(file);
  return write_safetensors(file);
}

Result<std::string> write_checkpoint(
    const ModelConfig& model, const Precision& precision, const Mesh& mesh,
    const std::vector<ModelParameter>& parameters, const TrainState& state) {
  Safetensors file;
  for (size_t kind = 0; kind < kStateNames.size(); ++kind) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::span<const float> values = state.values[kind][i];
      file.tensors[std::string(kStateNames[kind]) + parameters[i].name] = {
          Dtype::f32, parameters[i].shape, bytes_of(values)};
    }
  }
  file.metadata[std::string(kStep)] = std::to_string(state.step);
  file.metadata[std::string(kModelName)] = to_json(model);
  file.metadata[std::string(kPrecision)] = precision_json(precision);
  if (!mesh.axes.empty()) {
    file.metadata[std::string(kMesh)] = to_string(mesh);
  }
  return write_state(std::move(file));
}

Result<ModelConfig> model_of(const Safetensors& file) {
  const auto said = file.metadata.find(kModelName);
  if (said == file.metadata.end()) {
    return invalid("checkpoint",
                   "a checkpoint must say of which model it is, found no {} in "
                   "its metadata",
                   in_quotes(kModelName));
  }
  return parse_model_config(said->second);
}

Result<std::vector<std::vector<float>>> read_parameters(
    const Safetensors& file, const std::vector<ModelParameter>& parameters) {
  if (auto e = check_digests(file); !e) return e.error();
  return read_kind(file, kStateNames[0], parameters);
}

Result<TrainState> read_checkpoint(
    std::string_view bytes, const ModelConfig& model,
    const std::vector<ModelParameter>& parameters, std::string_view name) {
  const TraceSpan span("checkpoint", "read");
  return in_file(read_state(bytes, model, parameters), name);
}

}  // namespace tessera::model

namespace tessera {

Result<ModelConfig> checkpoint_model(std::string_view bytes,
                                     std::string_view name) {
  auto file = parse_safetensors(bytes);
  if (!file) return in_file(file.error(), name);
  return in_file(model::model_of(*file), name);
}

}  // namespace tessera
