// lanes/mosaic/kernel.h: a kernel in two steps: what it is, which gives its
// key, and then its text, which nobody needs who has the compiled program.
#pragma once

#include "lanes/mosaic/shape.h"
#include "tessera/mosaic.h"

namespace tessera::mosaic {

struct PlannedKernel {
  MosaicKernel kernel;  // without `text` and `program`
  KernelShape shape;
};

// As make_mosaic_kernel.
Result<PlannedKernel> plan_kernel(const Request& request, const Facts& present,
                                  const AttentionCall& call,
                                  const std::string& target,
                                  const MosaicOptions& options);

struct KernelText {
  std::string text, program;
};
KernelText write_kernel(const PlannedKernel& planned);

}  // namespace tessera::mosaic
