// lanes/program_arrays.cc: copies arrays row by row and runs the program.
#include "lanes/program_arrays.h"

#include <algorithm>
#include <cstring>

#include "base/fail.h"
#include "base/shape.h"
#include "base/timed.h"
#include "lanes/stop.h"

namespace tessera::lanes {
namespace {

template <class Pointer>
bool is_dense(const BasicTensorView<Pointer>& t, const ArrayDims& dims) {
  return ArrayDims{t.batch, t.heads, t.tokens, t.dim} == dims &&
         (t.tokens == 1 || t.token_stride == t.dim) &&
         (t.heads == 1 || t.head_stride == t.tokens * t.dim) &&
         (t.batch == 1 || t.batch_stride == t.heads * t.tokens * t.dim);
}

// Calls f(element of the tensor, element of the array) where each row begins.
template <class Pointer, class F>
void for_each_row(const BasicTensorView<Pointer>& t, const ArrayDims& dims,
                  F f) {
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t s = 0; s < t.tokens; ++s) {
        f(b * t.batch_stride + h * t.head_stride + s * t.token_stride,
          ((b * dims[1] + h) * dims[2] + s) * dims[3]);
      }
    }
  }
}

// Copies the tensor's elements out of the padded array.
void unstage(const void* array, const ArrayDims& dims,
             const MutableTensorView& t) {
  const int64_t width = byte_width(t.dtype);
  const auto* from = static_cast<const uint8_t*>(array);
  auto* to = static_cast<uint8_t*>(t.data);
  const auto bytes = static_cast<size_t>(t.dim * width);
  for_each_row(t, dims, [&](int64_t at, int64_t source) {
    std::memcpy(to + at * width, from + source * width, bytes);
  });
}

void unstage(const float* array, const ArrayDims& dims, float* to,
             const ArrayDims& from) {
  for (int64_t b = 0; b < from[0]; ++b) {
    for (int64_t h = 0; h < from[1]; ++h) {
      std::copy_n(array + (b * dims[1] + h) * dims[2], from[2],
                  to + (b * from[1] + h) * from[2]);
    }
  }
}

}  // namespace

Result<void> check_outputs(std::string_view where, const pjrt::Loaded& program,
                           std::span<const pjrt::ArrayType> outputs) {
  const std::vector<pjrt::ArrayType>& found = program.outputs();
  if (found.size() != outputs.size()) {
    return invalid(where, "a program must give {} arrays, found {}",
                   outputs.size(), found.size());
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (found[i] == outputs[i]) continue;
    return invalid(where, "a program must give {}, found {} for output {}",
                   pjrt::describe(outputs[i]), pjrt::describe(found[i]), i);
  }
  return {};
}

Result<void> read_output(const pjrt::Buffer& result,
                         const ProgramOutput& output) {
  auto bytes = pjrt::byte_size(result.type());
  if (!bytes) return bytes.error();
  if (output.to) return pjrt::to_host(result, output.to, *bytes);
  std::vector<uint8_t> copy(static_cast<size_t>(*bytes));
  if (auto e = pjrt::to_host(result, copy.data(), *bytes); !e) return e;
  output.copy(copy.data());
  return {};
}

Staged::Staged(const TensorView& t, const ArrayDims& dims) {
  if (is_dense(t, dims)) {
    data_ = t.data;
    return;
  }
  const int64_t width = byte_width(t.dtype);
  copy_.resize(static_cast<size_t>(elements_of(dims) * width));
  const auto* from = static_cast<const uint8_t*>(t.data);
  const auto bytes = static_cast<size_t>(t.dim * width);
  for_each_row(t, dims, [&](int64_t at, int64_t to) {
    std::memcpy(copy_.data() + to * width, from + at * width, bytes);
  });
  data_ = copy_.data();
}

Staged::Staged(const float* data, const ArrayDims& from, const ArrayDims& dims,
               float beyond) {
  if (from == dims) {
    data_ = data;
    return;
  }
  copy_.resize(static_cast<size_t>(elements_of(dims)) * sizeof(float));
  auto* to = reinterpret_cast<float*>(copy_.data());
  std::fill_n(to, elements_of(dims), beyond);
  for (int64_t b = 0; b < from[0]; ++b) {
    for (int64_t h = 0; h < from[1]; ++h) {
      std::copy_n(data + (b * from[1] + h) * from[2], from[2],
                  to + (b * dims[1] + h) * dims[2]);
    }
  }
  data_ = copy_.data();
}

ProgramOutput to_device(pjrt::ArrayType type, std::vector<pjrt::Buffer>& to) {
  return {std::move(type), nullptr, {}, &to};
}

ProgramOutput to_tensor(const MutableTensorView& tensor,
                        const ArrayDims& dims) {
  return {{tensor.dtype, dims},
          is_dense(tensor, dims) ? tensor.data : nullptr,
          [tensor, dims](const void* from) { unstage(from, dims, tensor); }};
}

ProgramOutput to_floats(std::span<float> to, const ArrayDims& have,
                        const ArrayDims& dims, ArrayDims type) {
  return {{Dtype::f32, std::move(type)},
          have == dims ? to.data() : nullptr,
          [to, have, dims](const void* from) {
            if (!to.empty()) {
              unstage(static_cast<const float*>(from), dims, to.data(), have);
            }
          }};
}

Result<void> run_program(std::string_view where, const pjrt::Loaded& program,
                         std::span<const pjrt::HostArray> arrays,
                         std::span<const ProgramOutput> outputs,
                         const StopFlag* stop, double& transfer_ms,
                         double& run_ms) {
  if (auto e = check_stop(stop, where, "before it ran"); !e) return e;
  std::vector<pjrt::ArrayType> types;
  types.reserve(outputs.size());
  for (const ProgramOutput& output : outputs) types.push_back(output.type);
  if (auto e = check_outputs(where, program, types); !e) return e;
  auto results = pjrt::send_and_execute(program, arrays, transfer_ms, run_ms);
  if (!results) return results.error();
  if (auto e = check_stop(stop, where, "after it ran"); !e) return e;
  return timed(transfer_ms, [&]() -> Result<void> {
    for (size_t i = 0; i < outputs.size(); ++i) {
      pjrt::Buffer& result = (*results)[i];
      if (outputs[i].stays) {
        outputs[i].stays->push_back(std::move(result));
      } else if (auto e = read_output(result, outputs[i]); !e) {
        return e;
      }
    }
    return {};
  });
}

}  // namespace tessera::lanes
