// cli/compile/kernel_flags.h: the flags of a TPU kernel.
#pragma once

#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/run/options.h"
#include "tessera/mosaic.h"

namespace tessera::cli {

// The flags of the kernel's numeric options, not yet parsed.
struct KernelSizes {
  std::optional<std::string> tiles_per_pass, fetch_ahead, page_steps,
      query_chunk;

  bool open() const {
    return !tiles_per_pass && !fetch_ahead && !page_steps && !query_chunk;
  }
};
// Parses the flags that are given into `options`.
Result<void> read_kernel_sizes(const KernelSizes& flags,
                               MosaicOptions& options);

// The flags, not yet parsed. The request's --target is a topology, "v6e:1x1".
struct KernelFlags : KernelSizes {
  RunFlags run;
  std::optional<std::string> keys_per_query;
  bool dlse = false;
  bool sink_telemetry = false;
};

// Adds the request flags of `plan` and `run` except those of a run only.
void add_kernel_flags(Command& command, KernelFlags& flags);

inline constexpr const char* kNumbersHelp =
    "Numbers that our TPU kernel may read: finite, a promise, or any, where "
    "NaN and infinity reach what they are legal for and nothing else [finite]";
Result<Numbers> read_numbers(const std::optional<std::string>& text);

// Whether any flag asks for a kernel.
bool asks_for_kernel(const KernelFlags& flags);

}  // namespace tessera::cli
