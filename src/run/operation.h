// run/operation.h: runs an operation that JAX exported once and, if asked,
// compares its output with fp64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "receipt/receipt.h"
#include "tessera/bridge.h"

namespace tessera::run {

// Arrays in the order of the spec.
struct OperationArrays {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;  // written
};
// The array's size. The parser has checked that it does not overflow.
size_t bridge_bytes(const BridgeArray& array);

struct OperationOptions {
  BridgeOptions bridge;
  bool check = false;  // only for an operation that is declared as attention
  uint64_t seed = 0;   // of a sampled check
  std::function<void(double)> progress = {};  // of the check, 0 to 1
};

// What a receipt holds of the run.
struct OperationRun {
  BridgeRun ran;
  receipt::Receipt::Plugin plugin;
  receipt::Receipt::Check check;
};

// A declaration or facts that do not fit are refused before anything runs.
Result<OperationRun> run_operation(const BridgeArtifact& artifact,
                                   const OperationArrays& arrays,
                                   const OperationOptions& options);

}  // namespace tessera::run
