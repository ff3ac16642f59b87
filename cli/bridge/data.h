// cli/bridge/data.h: the arrays of a bridge run, owned: read, drawn, written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_bytes.h"
#include "tessera/bridge.h"

namespace tessera::cli {

// In the spec's order.
struct BridgeData {
  std::vector<AlignedBytes> inputs, outputs;

  std::vector<const void*> input_pointers() const;
  std::vector<void*> output_pointers() const;
};

// Whether all of it fits in memory, before any is allocated.
Result<void> check_arrays_fit(const BridgeSpec& spec);

// The tensors of the file must be the spec's inputs; it may hold outputs too,
// which are not read.
Result<std::vector<AlignedBytes>> read_bridge_inputs(const std::string& path,
                                                     const BridgeSpec& spec);
// Floats near to normal, integers over their range, BOOL evenly; the same on
// every machine.
Result<std::vector<AlignedBytes>> draw_bridge_inputs(const BridgeSpec& spec,
                                                     uint64_t seed);

// Every byte 0xff: what nobody writes is seen.
std::vector<AlignedBytes> make_bridge_outputs(const BridgeSpec& spec);

Result<void> write_bridge_outputs(const std::string& path,
                                  const BridgeSpec& spec,
                                  const std::vector<AlignedBytes>& outputs);

}  // namespace tessera::cli
