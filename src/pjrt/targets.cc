// pjrt/targets.cc: TPU targets that programs have been compiled for.
#include "pjrt/topology.h"

namespace tessera::pjrt {

std::span<const std::string_view> known_targets() {
  static constexpr std::string_view kTargets[] = {
      "v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:1x1",
      "v6e:2x2",  "v6e:4x4", "v6e:16x16", "tpu7x:2x2x1"};
  return kTargets;
}

std::string_view generation_of(std::string_view kind) {
  struct Generation {
    std::string_view kind, name;
  };
  static constexpr Generation kGenerations[] = {{"TPU v4", "v4"},
                                                {"TPU v5 lite", "v5e"},
                                                {"TPU v5", "v5p"},
                                                {"TPU v6 lite", "v6e"},
                                                {"TPU7x", "tpu7x"}};
  for (const Generation& g : kGenerations) {
    if (g.kind == kind) return g.name;
  }
  return {};
}

}  // namespace tessera::pjrt
