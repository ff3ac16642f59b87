// bench/kernels/backward.cc: the backward kernels, blocks of keys against
// chunks of queries, with delta before them and the cast of dq after them.
#include "kernels/backward/backward.h"

#include <algorithm>
#include <deque>
#include <memory>

#include "bench/kernels/kernels.h"
#include "lanes/cpu/call.h"

namespace tessera::bench {
namespace {

// The keys of each size are whole blocks.
constexpr KernelSize kSizes[] = {{"full", 128, 128, 1, 64},
                                 {"full", 128, 128, 1, 128},
                                 {"full", 512, 256, 1, 128},
                                 {"causal", 256, 256, 1, 128}};

class Call {
 public:
  Call(KernelCall& call, const kernels::BackwardKernel& kernel)
      : t_(call.data.forward_tensors()),
        g_(call.data.gradients()),
        kernel_(kernel),
        queries_(call.data.q_len),
        dtype_(call.data.dtype),
        scale_(cpu::scale_of(call.data.shape)),
        row_(kernels::dq_row_floats(t_.q.dim)),
        scratch_(floats(kernels::backward_scratch(t_.q.dim, t_.v.dim))),
        dq_(floats(queries_ * row_)),
        live_(static_cast<size_t>(queries_), 1),
        delta_(static_cast<size_t>(queries_)) {
    for (const float lse : t_.lse) lse_.push_back(lse * 1.44269504F);
    for (int64_t k = 0; k < call.data.kv_len; k += kernels::kBackwardKeys) {
      add_block(call, k);
    }
  }
  Call(const Call&) = delete;  // its blocks point to its members

  void run() {
    auto* const dq = static_cast<float*>(dq_.view().data);
    std::fill_n(dq, queries_ * row_, 0.0F);
    kernel_.delta({dtype_, queries_, t_.v.dim, g_.dout.data, t_.out.data,
                   g_.dout.token_stride, t_.out.token_stride, delta_.data()});
    for (const Block& b : blocks_) {
      kernel_.begin(b.block);
      for (const kernels::BackwardChunk& chunk : b.chunks)
        kernel_.add(b.block, chunk);
      kernel_.end(b.block);
    }
    kernel_.write_dq({dtype_, queries_, t_.q.dim, dq, row_, scale_, g_.dq.data,
                      g_.dq.token_stride});
  }

 private:
  struct Block {
    kernels::BackwardBlock block;
    std::vector<kernels::BackwardChunk> chunks;
  };

  static request::Array floats(int64_t n) {
    return {Dtype::f32, request::Layout::bhsd, 1, 1, 1, n};
  }

  void add_block(const KernelCall& call, int64_t k) {
    Block& b = blocks_.emplace_back();
    kernels::BackwardBlock& block = b.block;
    block.dtype = dtype_;
    block.keys = kernels::kBackwardKeys;
    block.head_dim = t_.q.dim;
    block.v_head_dim = t_.v.dim;
    block.k = cpu::element(t_.k, 0, 0, k);
    block.v = cpu::element(t_.v, 0, 0, k);
    block.dk = cpu::element(g_.dk, 0, 0, k);
    block.dv = cpu::element(g_.dv, 0, 0, k);
    block.k_stride = t_.k.token_stride;
    block.v_stride = t_.v.token_stride;
    block.dk_stride = g_.dk.token_stride;
    block.dv_stride = g_.dv.token_stride;
    block.scale = scale_;
    block.dq_row = row_;
    block.scratch = static_cast<float*>(scratch_.view().data);
    block.pairs = &pairs_;
    for (int64_t q = 0; q < queries_; q += kernels::kBackwardRows) {
      kernels::BackwardChunk chunk;
      chunk.rows = std::min(kernels::kBackwardRows, queries_ - q);
      bounds_.push_back(last_keys(call, q, kernels::kBackwardRows, k,
                                  kernels::kBackwardKeys));
      if (!bounds_.back().empty()) {
        if (bounds_.back().back() == 0) continue;  // no query sees a key
        chunk.layers = 1;
        chunk.first = zeros_.data();
        chunk.last = bounds_.back().data();
      }
      chunk.q = cpu::element(t_.q, 0, 0, q);
      chunk.dout = cpu::element(g_.dout, 0, 0, q);
      chunk.q_stride = t_.q.token_stride;
      chunk.dout_stride = g_.dout.token_stride;
      chunk.lse = lse_.data() + q;
      chunk.delta = delta_.data() + q;
      chunk.live = live_.data() + q;
      chunk.dq = static_cast<float*>(dq_.view().data) + q * row_;
      b.chunks.push_back(chunk);
    }
  }

  ForwardTensors t_;
  Gradients g_;
  const kernels::BackwardKernel& kernel_;
  int64_t queries_;
  Dtype dtype_;
  float scale_;
  int64_t row_;
  request::Array scratch_, dq_;
  std::vector<uint8_t> live_;
  std::vector<float> lse_, delta_;
  std::vector<int32_t> zeros_ = std::vector<int32_t>(kernels::kBackwardRows);
  std::deque<std::vector<int32_t>> bounds_;
  std::deque<Block> blocks_;
  int64_t pairs_ = 0;
};

std::vector<KernelVariant> variants(KernelCall& call) {
  return kernel_variants(
      kernels::backward_variants(), call,
      [&call](const kernels::BackwardVariant& v) {
        return [it = std::make_shared<Call>(call, v.kernel())] { it->run(); };
      });
}

}  // namespace

const KernelOperation& backward_operation() {
  static const KernelOperation operation = {"backward", true, 5, kSizes,
                                            variants};
  return operation;
}

}  // namespace tessera::bench
