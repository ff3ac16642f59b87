// lanes/mosaic/tpu.h: the TPU of this machine that kernels run on.
#pragma once

#include <string>

#include "pjrt/place.h"
#include "tessera/result.h"

namespace tessera::mosaic {

struct Tpu {
  pjrt::Place on;
  std::string target;  // what kernels are made for: "v6e:1x1"
};

// An error if the device files show no TPU. Loads no plugin.
Result<void> check_tpu_here(const XlaOptions& options);
// The plugin that the options name; libtpu by default.
std::string tpu_plugin(const XlaOptions& options);
// The target of a device; an error if the device is no TPU of a known chip.
Result<std::string> target_of(const pjrt::Place& on);
Result<Tpu> open_tpu(const XlaOptions& options,
                     const pjrt::ClientOptions& client = {});

}  // namespace tessera::mosaic
