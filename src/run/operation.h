// run/operation.h: an operation that JAX exported, run once and, where that is
// asked for, held to fp64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "receipt/receipt.h"
#include "tessera/bridge.h"

namespace tessera::run {

// In the spec's order.
struct OperationArrays {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;  // written
};
// Of an array; the parser has seen that it fits.
size_t bridge_bytes(const BridgeArray& array);

struct OperationOptions {
  BridgeOptions bridge;
  bool check = false;  // of an operation that is declared as attention
  uint64_t seed = 0;   // of a sampled check
  std::function<void(double)> progress = {};  // of the check, 0 to 1
};

// What its receipt has of it.
struct OperationRun {
  BridgeRun ran;
  receipt::Receipt::Plugin plugin;
  receipt::Receipt::Check check;
};

// A declaration or facts that do not fit are refused before it runs.
Result<OperationRun> run_operation(const BridgeArtifact& artifact,
                                   const OperationArrays& arrays,
                                   const OperationOptions& options);

}  // namespace tessera::run
