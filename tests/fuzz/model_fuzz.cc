// tests/fuzz/model_fuzz.cc: any bytes are a model, which is written as it was
// read, or a checkpoint of a small one, or give an error.
#include "model/checkpoint.h"
#include "tessera/train.h"
#include "tests/fuzz/must.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result<ModelConfig> model = parse_model_config(bytes);
  if (model) {
    const Result<ModelConfig> again = parse_model_config(to_json(*model));
    must(again.ok() && *again == *model);
  } else {
    must(model.error().message.starts_with("["));
  }
  const std::vector<ModelParameter> parameters = {{"a", {2, 3}, 0, 1, {}},
                                                  {"b", {3}, 1, 0, {}}};
  const ModelConfig small;
  const auto state = model::read_checkpoint(bytes, small, parameters);
  if (!state) {
    must(state.error().message.starts_with("["));
    return 0;
  }
  must(state->values[0][0].size() == 6 && state->values[2][1].size() == 3);
  const auto written =
      model::write_checkpoint(small, {}, {}, parameters, *state);
  must(written.ok());
  const auto again = model::read_checkpoint(*written, small, parameters);
  must(again.ok() && again->step == state->step);
  return 0;
}
