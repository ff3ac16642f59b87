// lanes/cpu/sink_rows.cc: the sink mass and the entropy of every query.
//
// The forward kernels run twice: over all legal keys, for the log-sum-exp and
// the entropy, and over the legal keys among the first keys, for their
// log-sum-exp. The mass is exp(lse of the first keys - lse). The output is not
// used, so a few numbers of each key stand in for its value.
#include "lanes/cpu/sink_rows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "base/isa.h"
#include "base/trace.h"
#include "lanes/cpu/blocks.h"
#include "lanes/cpu/work.h"
#include "lanes/tensors.h"

namespace tessera::cpu {
namespace {

constexpr int64_t kValues = lanes::kDimStep;  // the least value dim

// The mass of the first keys, from the log-sum-exp of these and of all keys.
float mass_of(float first, float all) {
  // `all` is finite, so no score is NaN or +inf. With `first` NaN, the scores
  // of all first keys are -inf.
  if (std::isnan(first)) return 0;
  return static_cast<float>(
      std::min(1.0, std::exp(static_cast<double>(first) - all)));
}

}  // namespace

Result<lanes::SinkRows> cpu_sink_rows(const CpuWork& work, const CpuWork& first,
                                      const AttentionShape& shape,
                                      const ForwardTensors& tensors,
                                      const CpuOptions& options,
                                      const StopFlag* stop) {
  const TraceSpan span("cpu", "sink telemetry");
  const CpuWork::State& all = work.state();
  auto isa = check_call(all, shape, tensors, options);
  if (!isa) return isa.error();

  const int64_t rows = all.sizes.batch * shape.heads * all.sizes.q_len;
  std::vector<std::byte> out(static_cast<size_t>(rows * kValues) *
                             static_cast<size_t>(byte_width(tensors.q.dtype)));
  std::vector<float> lse(static_cast<size_t>(rows));
  ForwardTensors sums = tensors;
  sums.v = tensors.k;
  sums.v.dim = kValues;
  sums.out =
      MutableTensorView::bhsd(out.data(), tensors.q.dtype, all.sizes.batch,
                              shape.heads, all.sizes.q_len, kValues);
  sums.lse = lse;
  AttentionShape narrow = shape;
  narrow.scale = shape.scale_or_default();
  narrow.v_head_dim = kValues;

  lanes::SinkRows to;
  to.entropy.resize(lse.size());
  auto ran = run_blocks(all, narrow, sums, to.entropy, options, *isa, stop);
  if (!ran) return ran.error();
  to.mass.resize(lse.size());
  sums.lse = to.mass;
  sums.sink_logits.reset();
  ran = run_blocks(first.state(), narrow, sums, {}, options, *isa, stop);
  if (!ran) return ran.error();

  to.live.resize(lse.size());
  const int64_t group = shape.heads / all.sizes.heads;
  for (size_t i = 0; i < lse.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    const int64_t list = row / all.sizes.q_len / group;
    to.live[i] = all.has_key(list, row % all.sizes.q_len) ? 1 : 0;
    if (to.live[i] == 0) {
      to.mass[i] = 0;
    } else if (!std::isfinite(lse[i])) {
      to.mass[i] = to.entropy[i] = std::numeric_limits<float>::quiet_NaN();
    } else {
      to.mass[i] = mass_of(to.mass[i], lse[i]);
    }
  }
  return to;
}

}  // namespace tessera::cpu
