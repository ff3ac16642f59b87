// bench/kernels/forward.cc: the forward kernels, blocks of queries against
// chunks of keys.
#include "kernels/forward/forward.h"

#include <deque>
#include <memory>

#include "bench/kernels/kernels.h"
#include "lanes/cpu/call.h"

namespace tessera::bench {
namespace {

constexpr KernelSize kSizes[] = {{"full", 128, 128, 1, 64},
                                 {"full", 128, 128, 1, 128},
                                 {"full", 256, 512, 1, 128},
                                 {"causal", 256, 256, 1, 128}};

class Call {
 public:
  Call(KernelCall& call, void (*kernel)(const kernels::ForwardTask&))
      : call_(call),
        kernel_(kernel),
        scratch_(Dtype::f32, request::Layout::bhsd, 1, 1, 1,
                 kernels::forward_scratch(call.data.shape.head_dim,
                                          call.data.shape.v_head_dim)),
        live_(static_cast<size_t>(call.data.q_len), 1) {
    for (int64_t h = 0; h < call.data.shape.heads; ++h) {
      for (int64_t q = 0; q < call.data.q_len; q += kernels::kForwardRows)
        add(h, q);
    }
  }
  Call(const Call&) = delete;  // its tasks point to its members

  void run() const {
    for (const kernels::ForwardTask& task : tasks_) kernel_(task);
  }

 private:
  void add(int64_t h, int64_t q) {
    const int64_t keys = call_.data.kv_len;
    std::vector<kernels::KeyChunk>& chunks = chunks_.emplace_back();
    for (int64_t k = 0; k < keys; k += kernels::kForwardKeys) {
      kernels::KeyChunk chunk;
      chunk.begin = k;
      chunk.keys =
          static_cast<int32_t>(std::min(kernels::kForwardKeys, keys - k));
      bounds_.push_back(
          last_keys(call_, q, kernels::kForwardRows, k, chunk.keys));
      if (!bounds_.back().empty()) {
        chunk.layers = 1;
        chunk.last = bounds_.back().data();
        chunk.first = zeros_.data();
      }
      chunks.push_back(chunk);
    }
    const ForwardTensors t = call_.data.forward_tensors();
    kernels::ForwardTask task;
    task.dtype = call_.data.dtype;
    task.rows = std::min(kernels::kForwardRows, call_.data.q_len - q);
    task.head_dim = t.q.dim;
    task.v_head_dim = t.v.dim;
    task.q = cpu::element(t.q, 0, h, q);
    task.k = cpu::element(t.k, 0, 0, 0);
    task.v = cpu::element(t.v, 0, 0, 0);
    task.out = cpu::element(t.out, 0, h, q);
    task.q_stride = t.q.token_stride;
    task.k_stride = t.k.token_stride;
    task.v_stride = t.v.token_stride;
    task.out_stride = t.out.token_stride;
    task.lse = t.lse.data() + h * call_.data.q_len + q;
    task.scale = cpu::scale_of(call_.data.shape);
    task.chunks = chunks.data();
    task.chunk_count = static_cast<int64_t>(chunks.size());
    task.live = live_.data() + q;
    task.scratch = static_cast<float*>(scratch_.view().data);
    task.pairs = &pairs_;
    tasks_.push_back(task);
  }

  KernelCall& call_;
  void (*kernel_)(const kernels::ForwardTask&);
  request::Array scratch_;
  std::vector<uint8_t> live_;
  std::vector<int32_t> zeros_ = std::vector<int32_t>(kernels::kForwardRows);
  std::deque<std::vector<int32_t>> bounds_;
  std::deque<std::vector<kernels::KeyChunk>> chunks_;
  std::vector<kernels::ForwardTask> tasks_;
  int64_t pairs_ = 0;
};

std::vector<KernelVariant> variants(KernelCall& call) {
  return kernel_variants(kernels::forward_variants(), call,
                         [&call](const kernels::ForwardVariant& v) {
                           return [it = std::make_shared<Call>(call, v.run)] {
                             it->run();
                           };
                         });
}

}  // namespace

const KernelOperation& forward_operation() {
  static const KernelOperation operation = {"forward", false, 2, kSizes,
                                            variants};
  return operation;
}

}  // namespace tessera::bench
