// run/operation_receipt.h: the receipt of an operation that JAX exported.
#pragma once

#include <cstdint>
#include <string>

#include "run/operation.h"

namespace tessera::run {

// Files of the artifact and its inputs; "": the caller had them in memory.
struct OperationSource {
  std::string artifact_file, shapes_file, inputs_file;
  bool drawn = false;  // every input is drawn from the seed
  uint64_t seed = 0;
};

// The receipt is sealed. `arrays` must have every array of the spec, even an
// input that the program does not take.
receipt::Receipt operation_receipt(const BridgeSpec& spec,
                                   const OperationArrays& arrays,
                                   const OperationRun& run,
                                   const OperationSource& source);

}  // namespace tessera::run
