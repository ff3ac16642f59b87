// model/precision.cc: the type of each kind of array, rounded or not.
#include "model/precision.h"

#include <nlohmann/json.hpp>

namespace tessera {

std::vector<std::pair<std::string, Dtype>> precision_plan(const Precision& p) {
  std::vector<std::pair<std::string, Dtype>> out = {{"products", p.products},
                                                    {"attention", p.products}};
  for (const char* exact : {"softmax", "norms", "residual", "loss", "gradients",
                            "parameters", "moments"}) {
    out.emplace_back(exact, Dtype::f32);
  }
  return out;
}

std::string model::precision_json(const Precision& p) {
  nlohmann::ordered_json out;
  for (const auto& [what, dtype] : precision_plan(p)) {
    out[what] = to_string(dtype);
  }
  return out.dump();
}

}  // namespace tessera
