// cli/compile/kernel_flags.h: the flags of a TPU kernel.
#pragma once

#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/run/options.h"
#include "tessera/mosaic.h"

namespace tessera::cli {

// As typed: what is a number of the kernel's options.
struct KernelSizes {
  std::optional<std::string> tiles_per_pass, fetch_ahead, page_steps,
      query_chunk;

  bool open() const {
    return !tiles_per_pass && !fetch_ahead && !page_steps && !query_chunk;
  }
};
// Into the options, those that are given.
Result<void> read_kernel_sizes(const KernelSizes& flags,
                               MosaicOptions& options);

// As typed. The request's own --target is the device's, as v6e:1x1.
struct KernelFlags : KernelSizes {
  RunFlags run;
  std::optional<std::string> keys_per_query;
  bool dlse = false;
  bool sink_telemetry = false;
};

// The request flags of `plan` and `run`, less those that only a run has.
void add_kernel_flags(Command& command, KernelFlags& flags);

inline constexpr const char* kNumbersHelp =
    "Numbers that our TPU kernel may read: finite, a promise, or any, where "
    "NaN and infinity reach what they are legal for and nothing else [finite]";
Result<Numbers> read_numbers(const std::optional<std::string>& text);

// Whether any flag asks for a kernel.
bool asks_for_kernel(const KernelFlags& flags);

}  // namespace tessera::cli
