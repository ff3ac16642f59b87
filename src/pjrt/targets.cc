// pjrt/targets.cc: TPU targets that programs have been compiled for.
#include "pjrt/topology.h"

namespace tessera::pjrt {

std::span<const std::string_view> known_targets() {
  static constexpr std::string_view kTargets[] = {
      "v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:1x1",
      "v6e:2x2",  "v6e:4x4", "v6e:16x16", "tpu7x:2x2x1"};
  return kTargets;
}

}  // namespace tessera::pjrt
