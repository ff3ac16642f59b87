// cli/run_lane.cc: what `tessera run` must know of a lane beside how it runs.
#include "cli/run_lane.h"

#include <utility>

#include "base/fail.h"
#include "lanes/tensors.h"
#include "tessera/contract.h"

namespace tessera::cli {
namespace {

double f32_bytes(const AttentionData& d) {
  return data_bytes(d).all * 4 / static_cast<double>(byte_width(d.dtype));
}

}  // namespace

Result<void> check_dims(const AttentionData& d, std::string_view lane) {
  for (const auto& [dim, what] :
       {std::pair(d.shape.head_dim, "--head-dim"),
        std::pair(d.shape.v_head_dim, "--v-head-dim")}) {
    if (dim % kDimStep != 0 || dim > kMaxDim) {
      return invalid("cli",
                     "{} must be a multiple of {} up to {} for --lane {}, "
                     "found {}",
                     what, kDimStep, kMaxDim, lane, dim);
    }
  }
  return {};
}

double more_bytes(LaneId lane, const AttentionData& d,
                  const LaneOptions& options) {
  // fp64 beside every array.
  if (lane == LaneId::reference) return 2 * f32_bytes(d);
  // A CPU plugin's buffers lie in this machine's memory.
  if (lane == LaneId::jax_bridge) return data_bytes(d).all;
  if (lane != LaneId::xla) {
    // Backward sums dq in fp32: at most a quarter of q, out, dout and dq.
    return d.backward ? 0.25 * f32_bytes(d) : 0;
  }
  // A copy in the program's own lengths, and on a CPU one more: its buffers lie
  // in this machine's memory. What the program itself takes is known when it is
  // compiled, and asked then.
  AttentionData padded;
  padded.shape = d.shape;
  padded.dtype = d.dtype;
  padded.backward = d.backward;
  padded.batch = bucket(d.batch);
  padded.q_len = bucket(d.q_len);
  padded.kv_len = bucket(d.kv_len);
  const bool elsewhere =
      options.opened && options.opened->place().platform != "cpu";
  return (elsewhere ? 1 : 2) * data_bytes(padded).all;
}

Result<LaneRun> run_lane(const Runner& runner, const Batch& batch,
                         AttentionData& data, const LaneOptions& options,
                         bool& forward_ran) {
  const ForwardTensors forward = data.forward_tensors();
  const BackwardTensors backward =
      data.backward ? data.backward_tensors() : BackwardTensors{};
  return runner.run({batch, data.shape, forward,
                     data.backward ? &backward : nullptr, options},
                    forward_ran);
}

}  // namespace tessera::cli
