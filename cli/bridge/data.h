// cli/bridge/data.h: the arrays of a bridge run, owned: read, drawn, written.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/bridge.h"

namespace tessera::cli {

// Aligned, so that a plugin on the CPU reads it in place. Never null.
class Bytes {
 public:
  explicit Bytes(size_t size);
  std::byte* data() const { return bytes_.get(); }
  std::string_view view() const {
    return {reinterpret_cast<const char*>(bytes_.get()), size_};
  }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  size_t size_;
  std::unique_ptr<std::byte[], Free> bytes_;
};

// The program, and the file of shapes beside it.
Result<BridgeArtifact> read_artifact(const std::string& file,
                                     const std::string& shapes_file);

// In the spec's order.
struct BridgeData {
  std::vector<Bytes> inputs, outputs;

  std::vector<const void*> input_pointers() const;
  std::vector<void*> output_pointers() const;
};

// Whether all of it fits in memory, before any is allocated.
Result<void> check_arrays_fit(const BridgeSpec& spec);

// The tensors of the file must be the spec's inputs; it may hold outputs too,
// which are not read.
Result<std::vector<Bytes>> read_bridge_inputs(const std::string& path,
                                              const BridgeSpec& spec);
// Floats near to normal, integers over their range, BOOL evenly; the same on
// every machine.
Result<std::vector<Bytes>> draw_bridge_inputs(const BridgeSpec& spec,
                                              uint64_t seed);

// Every byte 0xff: what nobody writes is seen.
std::vector<Bytes> make_bridge_outputs(const BridgeSpec& spec);

Result<void> write_bridge_outputs(const std::string& path,
                                  const BridgeSpec& spec,
                                  const std::vector<Bytes>& outputs);

// Of each array by its name, and of all together.
std::map<std::string, std::string> digests_of(
    const std::vector<BridgeArray>& arrays, const std::vector<Bytes>& bytes);
std::string digest_of_all(const std::vector<Bytes>& bytes);

}  // namespace tessera::cli
