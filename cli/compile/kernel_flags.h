// cli/compile/kernel_flags.h: a TPU kernel as it is asked for by request flags.
#pragma once

#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/run/options.h"
#include "tessera/mosaic.h"

namespace tessera::cli {

// As typed. The request's own --target is the device's, as v6e:1x1.
struct KernelFlags {
  RunFlags run;
  std::optional<std::string> tiles_per_pass, fetch_ahead;
  bool dlse = false;

  bool operator==(const KernelFlags&) const = default;
};

// The request flags of `plan` and `run`, less those that only a run has.
void add_kernel_flags(Command& command, KernelFlags& flags);

// Whether any flag asks for a kernel.
bool asks_for_kernel(const KernelFlags& flags);

struct AskedKernel {
  Request request;
  AttentionShape shape;
  MosaicKernel kernel;
};
// Facts that the mask names, or a flag gives, count as present; they are not
// read. `target` as v6e:1x1. A tile that is left open is the kernel's own.
Result<AskedKernel> make_asked_kernel(const KernelFlags& flags,
                                      const std::string& target);

}  // namespace tessera::cli
