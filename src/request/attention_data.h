// request/attention_data.h: the arrays of one attention call, owned.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_bytes.h"
#include "tessera/session.h"

namespace tessera::request {

// The order of [batch, heads, tokens, dim] in memory.
enum class Layout : uint8_t { bhsd, bshd };
std::string_view to_string(Layout layout);

// A dense array, aligned for every kernel.
class Array {
 public:
  Array() = default;
  // Every byte is 0xff, a NaN in each dtype, so that a value that is never
  // written shows. The caller has checked that the size does not overflow.
  Array(Dtype dtype, Layout layout, int64_t batch, int64_t heads,
        int64_t tokens, int64_t dim);

  MutableTensorView view() { return view_; }
  TensorView view() const;
  std::vector<int64_t> shape() const;  // in the layout's order
  std::string_view bytes() const { return bytes_.view(); }
  void fill(std::string_view bytes);  // of exactly the array's size

 private:
  Layout layout_ = Layout::bhsd;
  MutableTensorView view_;
  AlignedBytes bytes_;
};

struct AttentionData {
  int64_t batch = 1, q_len = 0, kv_len = 0;
  AttentionShape shape;
  Dtype dtype = Dtype::f32;
  Layout layout = Layout::bhsd;
  bool backward = false;
  int64_t first_keys = 0;  // of sink telemetry; 0: none

  Array q, k, v;
  std::optional<std::vector<float>> sink_logits;  // [heads]
  Array out;
  std::vector<float> lse;  // [batch, heads, q_len]
  // [batch, heads, q_len] of a run with sink telemetry, else empty.
  std::vector<float> sink_mass, sink_entropy;
  // Arrays of the backward pass.
  Array dout;
  std::vector<float> dlse;  // as lse, or empty
  Array dq, dk, dv;
  std::vector<float> dsink_logits;

  void allocate();  // by the fields above; dlse stays empty
  double scale() const;
  ForwardTensors forward_tensors();
  Gradients gradients();
  AttentionCall call() const;
  RunCall over(const Batch& batch);  // the call with its arrays
};

// Bytes that allocate() takes, as doubles, since sizes may overflow an integer.
// `outputs`: those that the lane writes.
struct DataBytes {
  double all = 0, outputs = 0;
};
DataBytes data_bytes(const AttentionData& data);

}  // namespace tessera::request
