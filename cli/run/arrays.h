// cli/run/arrays.h: the arrays of a run: checks that they fit into memory, then
// reads or draws them.
#pragma once

#include "cli/run/flags.h"
#include "cli/run/options.h"
#include "request/tensor_file.h"
#include "tessera/result.h"

namespace tessera::cli {

// The file's lengths must be those of the request.
Result<void> check_lengths(const request::InputFile& file,
                           const Request& request);

// Checks the memory for the arrays before anything is allocated, because sizes
// from flags may be absurd. The lane's own memory is included only without
// --fallback, since otherwise another lane may step in. `batch`: null if
// unknown.
Result<void> check_memory(const RunFlags& flags, const RunOptions& options,
                          LaneId lane, double routing = 0,
                          const Batch* batch = nullptr);

void make_inputs(RunOptions& options);

}  // namespace tessera::cli
