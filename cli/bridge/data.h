// cli/bridge/data.h: the arrays of a bridge run: read, drawn, written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_bytes.h"
#include "tessera/bridge.h"

namespace tessera::cli {

// The arrays in the spec's order.
struct BridgeData {
  std::vector<AlignedBytes> inputs, outputs;

  std::vector<const void*> input_pointers() const;
  std::vector<void*> output_pointers() const;
};

// Checks, before any allocation, that all arrays fit in memory.
Result<void> check_arrays_fit(const BridgeSpec& spec);

// Reads the spec's inputs from a file, which must hold no other tensors except
// the spec's outputs; these are not read.
Result<std::vector<AlignedBytes>> read_bridge_inputs(const std::string& path,
                                                     const BridgeSpec& spec);
// Draws nearly normal floats, integers uniform over their range, and uniform
// BOOL. The values are the same on every machine.
Result<std::vector<AlignedBytes>> draw_bridge_inputs(const BridgeSpec& spec,
                                                     uint64_t seed);

// Fills outputs with bytes 0xff, so that elements that the program does not
// write are noticed.
std::vector<AlignedBytes> make_bridge_outputs(const BridgeSpec& spec);

Result<void> write_bridge_outputs(const std::string& path,
                                  const BridgeSpec& spec,
                                  const std::vector<AlignedBytes>& outputs);

}  // namespace tessera::cli
