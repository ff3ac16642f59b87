// lanes/mosaic/kernel.h: a kernel in two steps: what it is, which gives its
// key, and then its text, which nobody needs who has the compiled program.
#pragma once

#include <string>
#include <string_view>

#include "lanes/mosaic/program.h"
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

std::string_view name_of(const PlannedKernel& planned);  // "tessera_forward"
std::string text_of(const PlannedKernel& planned);
// What a program around it hands to it and has from it.
CallArrays arrays_of(const PlannedKernel& planned);

struct KernelText {
  std::string text, program;
};
KernelText write_kernel(const PlannedKernel& planned);

}  // namespace tessera::mosaic
