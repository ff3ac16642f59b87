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

// An error where there is none, before any plugin is loaded where the device
// files say so. The plugin by default is libtpu.
Result<Tpu> open_tpu(const XlaOptions& options,
                     const pjrt::ClientOptions& client = {});

}  // namespace tessera::mosaic
