// model/checkpoint.h: the state of training as a .safetensors file.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/safetensors.h"
#include "tessera/train.h"

namespace tessera::model {

// Prefixes of the names of a parameter, its first and its second moment.
inline constexpr std::array<std::string_view, 3> kStateNames = {"", "first.",
                                                                "second."};

// The metadata entry that holds the model.
inline constexpr std::string_view kModelName = "model";

// The metadata entries with digests: of the arrays, and of all other metadata.
// Files that other programs wrote may lack them.
inline constexpr std::string_view kDigestName = "digest";
inline constexpr std::string_view kMetadataDigestName = "digest_of_metadata";

struct TrainState {
  int64_t step = 0;
  // Parameters, first moments and second moments, each in the model's order.
  std::array<std::vector<std::vector<float>>, 3> values;
};

// The bytes of the file, after its digests are added to its metadata.
Result<std::string> write_state(Safetensors file);
// The precision plan and the mesh are written for information only: in every
// checkpoint parameters are float32 and whole.
Result<std::string> write_checkpoint(
    const ModelConfig& model, const Precision& precision, const Mesh& mesh,
    const std::vector<ModelParameter>& parameters, const TrainState& state);
// The model that the file's metadata names.
Result<ModelConfig> model_of(const Safetensors& file);
// The parameters in the model's order; other arrays of the file are ignored.
Result<std::vector<std::vector<float>>> read_parameters(
    const Safetensors& file, const std::vector<ModelParameter>& parameters);
// Without moments in the file, they are zeros and the step is 0. Errors call
// the file `name`.
Result<TrainState> read_checkpoint(
    std::string_view bytes, const ModelConfig& model,
    const std::vector<ModelParameter>& parameters, std::string_view name = {});

}  // namespace tessera::model
