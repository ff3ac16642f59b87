// bench/kernels/decode.cc: the decode kernels: the heads of one query against
// all keys in one part, and the merge of that part.
#include "kernels/decode/decode.h"

#include <algorithm>
#include <memory>

#include "bench/kernels/kernels.h"
#include "lanes/cpu/call.h"

namespace tessera::bench {
namespace {

// The heads of a size are the rows of a task.
constexpr KernelSize kSizes[] = {{"full", 1, 512, 1, 128},
                                 {"full", 1, 512, 4, 128},
                                 {"full", 1, 512, kernels::kDecodeRows, 128},
                                 {"full", 1, 8192, 4, 128}};

class Call {
 public:
  Call(KernelCall& call, const kernels::DecodeVariant& variant)
      : variant_(variant),
        t_(call.data.forward_tensors()),
        heads_(call.data.shape.heads),
        keys_{0, call.data.kv_len},
        pitch_(kernels::decode_pitch(t_.v.dim)),
        sums_(static_cast<size_t>(heads_)),
        out_(floats(heads_ * pitch_)),
        scratch_(floats(kernels::decode_scratch(t_.q.dim, t_.v.dim))) {
    for (int64_t h = 0; h < heads_; ++h) {
      rows_.push_back(cpu::element(t_.q, 0, h, 0));
    }
    task_.dtype = call.data.dtype;
    task_.rows = heads_;
    task_.head_dim = t_.q.dim;
    task_.v_head_dim = t_.v.dim;
    task_.q = rows_.data();
    task_.k = t_.k.data;
    task_.v = t_.v.data;
    task_.k_stride = t_.k.token_stride;
    task_.v_stride = t_.v.token_stride;
    task_.scale = cpu::scale_of(call.data.shape);
    task_.runs = &keys_;
    task_.run_count = 1;
    task_.sums = sums_.data();
    task_.out = static_cast<float*>(out_.view().data);
    task_.scratch = static_cast<float*>(scratch_.view().data);
    task_.pairs = &pairs_;
  }
  Call(const Call&) = delete;  // its task points to its members

  void run() {
    std::fill(sums_.begin(), sums_.end(), kernels::DecodeSums{});
    std::fill_n(task_.out, heads_ * pitch_, 0.0F);
    variant_.run(task_);
    for (int64_t h = 0; h < heads_; ++h) {
      kernels::DecodeMerge merge;
      merge.dtype = task_.dtype;
      merge.parts = 1;
      merge.v_head_dim = task_.v_head_dim;
      merge.sums = sums_.data() + h;
      merge.sums_stride = heads_;
      merge.out = task_.out + h * pitch_;
      merge.out_stride = heads_ * pitch_;
      merge.live = true;
      merge.to = cpu::element(t_.out, 0, h, 0);
      merge.lse = t_.lse.data() + h;
      variant_.merge(merge);
    }
  }

 private:
  static request::Array floats(int64_t n) {
    return {Dtype::f32, request::Layout::bhsd, 1, 1, 1, n};
  }

  kernels::DecodeVariant variant_;
  ForwardTensors t_;
  int64_t heads_;
  kernels::KeyRun keys_;
  int64_t pitch_;
  std::vector<kernels::DecodeSums> sums_;
  request::Array out_, scratch_;
  std::vector<const void*> rows_;
  kernels::DecodeTask task_;
  int64_t pairs_ = 0;
};

std::vector<KernelVariant> variants(KernelCall& call) {
  return kernel_variants(kernels::decode_variants(), call,
                         [&call](const kernels::DecodeVariant& v) {
                           return [it = std::make_shared<Call>(call, v)] {
                             it->run();
                           };
                         });
}

}  // namespace

const KernelOperation& decode_operation() {
  static const KernelOperation operation = {"decode", false, 2, kSizes,
                                            variants};
  return operation;
}

}  // namespace tessera::bench
