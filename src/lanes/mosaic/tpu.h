// lanes/mosaic/tpu.h: the TPU of this machine that kernels run on.
#pragma once

#include <string>

#include "pjrt/place.h"
#include "tessera/result.h"

namespace tessera::mosaic {

struct Tpu {
  pjrt::Place on;
  std::string target;  // that kernels are made for: "v6e:1x1"
};

// An error where the device files say that there is none. No plugin is loaded.
Result<void> check_tpu_here(const XlaOptions& options);
// The one that the options name; by default libtpu.
std::string tpu_plugin(const XlaOptions& options);
// An error where it is no TPU, or none that is known.
Result<std::string> target_of(const pjrt::Place& on);
Result<Tpu> open_tpu(const XlaOptions& options,
                     const pjrt::ClientOptions& client = {});

}  // namespace tessera::mosaic
