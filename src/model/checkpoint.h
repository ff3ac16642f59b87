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

// Names of a parameter, and of its two moments, begin so.
inline constexpr std::array<std::string_view, 3> kStateNames = {"", "first.",
                                                                "second."};

// The metadata that holds the model.
inline constexpr std::string_view kModelName = "model";

// And digests: of its arrays, and of all other metadata. A file that others
// made need not have them.
inline constexpr std::string_view kDigestName = "digest";
inline constexpr std::string_view kMetadataDigestName = "digest_of_metadata";

struct TrainState {
  int64_t step = 0;
  // Parameters, first moments, second moments, each in the model's order.
  std::array<std::vector<std::vector<float>>, 3> values;
};

// The bytes of a file of ours, with its digests.
Result<std::string> write_state(Safetensors file);
// The precision plan and the mesh are said and not read: parameters are float32
// and whole in all.
Result<std::string> write_checkpoint(
    const ModelConfig& model, const Precision& precision, const Mesh& mesh,
    const std::vector<ModelParameter>& parameters, const TrainState& state);
// The model that the file says it is of.
Result<ModelConfig> model_of(const Safetensors& file);
// Parameters alone, whatever else the file has; in the model's order.
Result<std::vector<std::vector<float>>> read_parameters(
    const Safetensors& file, const std::vector<ModelParameter>& parameters);
// Moments that are not there are zeros, and the step is 0. `name` is how errors
// call the checkpoint.
Result<TrainState> read_checkpoint(
    std::string_view bytes, const ModelConfig& model,
    const std::vector<ModelParameter>& parameters, std::string_view name = {});

}  // namespace tessera::model
