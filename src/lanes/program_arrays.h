// lanes/program_arrays.h: one run of a plugin's program over tensors. Inputs
// are copied into the dense, padded arrays of the program, and results are
// copied back. A tensor that has the program's layout is not copied.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "pjrt/execute.h"
#include "pjrt/place.h"
#include "tessera/attention.h"
#include "tessera/result.h"

namespace tessera::lanes {

using ArrayDims = std::vector<int64_t>;

// An input array: the caller's memory read in place, or a padded copy.
class Staged {
 public:
  // `dims`: [batch, heads, tokens, dim], at least the tensor's; padded with 0.
  Staged(const TensorView& tensor, const ArrayDims& dims);
  // `from` and `dims`: [batch, heads, tokens]. The padding is `beyond`.
  Staged(const float* data, const ArrayDims& from, const ArrayDims& dims,
         float beyond);

  const void* data() const { return data_; }

 private:
  const void* data_ = nullptr;
  std::vector<uint8_t> copy_;
};

// A result that a program must give, and where it goes: to, copy or stays.
struct ProgramOutput {
  pjrt::ArrayType type;
  void* to = nullptr;  // the bytes as they are; null: `copy` stores them
  std::function<void(const void* from)> copy;
  std::vector<pjrt::Buffer>* stays = nullptr;  // keeps the device buffer
};
ProgramOutput to_device(pjrt::ArrayType type, std::vector<pjrt::Buffer>& to);
ProgramOutput to_tensor(const MutableTensorView& tensor, const ArrayDims& dims);
// Copies [batch, heads, tokens] = `have` out of a padded array of `dims`; an
// empty `to` takes nothing. `type`: the result's dimensions, which are `dims`
// with dimensions of 1 added.
ProgramOutput to_floats(std::span<float> to, const ArrayDims& have,
                        const ArrayDims& dims, ArrayDims type);

// Waits for the result and stores it.
Result<void> read_output(const pjrt::Buffer& result,
                         const ProgramOutput& output);

// Fails unless the program gives exactly these outputs.
Result<void> check_outputs(std::string_view where, const pjrt::Loaded& program,
                           std::span<const pjrt::ArrayType> outputs);

// Runs the program and adds to the times. The outputs are checked first, since
// results are written into the caller's arrays and a plugin may be wrong.
Result<void> run_program(std::string_view where, const pjrt::Loaded& program,
                         std::span<const pjrt::HostArray> arrays,
                         std::span<const ProgramOutput> outputs,
                         const StopFlag* stop, double& transfer_ms,
                         double& run_ms);

}  // namespace tessera::lanes
