// run/operation_receipt.h: the receipt of an operation that JAX exported.
#pragma once

#include <cstdint>
#include <string>

#include "run/operation.h"

namespace tessera::run {

// Where the artifact and its inputs came from; "": the caller had them.
struct OperationSource {
  std::string artifact_file, shapes_file, inputs_file;
  bool drawn = false;  // every input, from the seed
  uint64_t seed = 0;
};

// Sealed. Of the run's arrays every one must be there, also an input that the
// program does not take.
receipt::Receipt operation_receipt(const BridgeSpec& spec,
                                   const OperationArrays& arrays,
                                   const OperationRun& run,
                                   const OperationSource& source);

}  // namespace tessera::run
