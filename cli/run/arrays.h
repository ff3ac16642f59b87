// cli/run/arrays.h: the arrays of a run: whether they fit, then from a file or
// drawn.
#pragma once

#include "cli/run/flags.h"
#include "cli/run/options.h"
#include "request/tensor_file.h"
#include "tessera/result.h"

namespace tessera::cli {

// The file's lengths must be those of the request.
Result<void> check_lengths(const request::InputFile& file,
                           const Request& request);

// Before anything is allocated: sizes come from flags and may be absurd. What a
// lane takes beside the arrays is its own affair where another may step in.
// `batch`: where it is known.
Result<void> check_memory(const RunFlags& flags, const RunOptions& options,
                          LaneId lane, double routing = 0,
                          const Batch* batch = nullptr);

void make_inputs(RunOptions& options);

}  // namespace tessera::cli
