// lanes/program_arrays.h: one run of a plugin's program over tensors: each as
// the dense, padded array that the program reads, and its results back. A
// tensor that is such an array already is not copied.
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

// Memory that is read in place, or a copy.
class Staged {
 public:
  // [batch, heads, tokens, dim], no dimension below the tensor's; zeros beyond
  // it.
  Staged(const TensorView& tensor, const ArrayDims& dims);
  // [batch, heads, tokens] of the same; `beyond` where the array ends before.
  Staged(const float* data, const ArrayDims& from, const ArrayDims& dims,
         float beyond);

  const void* data() const { return data_; }

 private:
  const void* data_ = nullptr;
  std::vector<uint8_t> copy_;
};

// A result that a program must give, and where it goes.
struct ProgramOutput {
  pjrt::ArrayType type;
  void* to = nullptr;  // as it is; null: through `copy`
  std::function<void(const void* from)> copy;
  std::vector<pjrt::Buffer>* stays = nullptr;  // on the device: added to these
};
ProgramOutput to_device(pjrt::ArrayType type, std::vector<pjrt::Buffer>& to);
ProgramOutput to_tensor(const MutableTensorView& tensor, const ArrayDims& dims);
// [batch, heads, tokens] of an array that has `dims` of it; an empty `to` takes
// nothing. `type` may have dimensions of 1 among them.
ProgramOutput to_floats(std::span<float> to, const ArrayDims& have,
                        const ArrayDims& dims, ArrayDims type);

// Waits for it.
Result<void> read_output(const pjrt::Buffer& result,
                         const ProgramOutput& output);

// A program must give just these, whatever its plugin says.
Result<void> check_outputs(std::string_view where, const pjrt::Loaded& program,
                           std::span<const pjrt::ArrayType> outputs);

// Adds to the times. No plugin is believed: results are written where the
// caller's arrays are, so the program must give just these outputs.
Result<void> run_program(std::string_view where, const pjrt::Loaded& program,
                         std::span<const pjrt::HostArray> arrays,
                         std::span<const ProgramOutput> outputs,
                         const StopFlag* stop, double& transfer_ms,
                         double& run_ms);

}  // namespace tessera::lanes
