// lanes/bytes.cc: byte counts of arrays, copies and lists.
#include "lanes/bytes.h"

#include "tessera/batch.h"

namespace tessera::lanes {

double call_bytes(const Request& r, const AttentionCall& call, double width) {
  const AttentionShape& s = call.shape;
  const auto values = [&](int64_t heads, int64_t tokens, int64_t dim) {
    return static_cast<double>(r.batch) * static_cast<double>(heads) *
           static_cast<double>(tokens) * static_cast<double>(dim);
  };
  const double lse = 4 * values(s.heads, r.q_len, 1);
  const double out = width * values(s.heads, r.q_len, s.v_head_dim);
  const double inputs =
      width * (values(s.heads, r.q_len, s.head_dim) +
               values(s.kv_heads, r.kv_len, s.head_dim + s.v_head_dim));
  return (call.backward ? 2 : 1) * (inputs + out + lse);
}

namespace {

// Bytes of sink telemetry for each query: three floats, a live flag, and the 8
// output values that the cpu lane's kernels write and nothing reads.
double sink_bytes(const Request& r, const AttentionCall& call, double width) {
  if (!call.sink_telemetry) return 0;
  return static_cast<double>(r.batch) * static_cast<double>(call.shape.heads) *
         static_cast<double>(r.q_len) * (3 * 4 + 1 + 8 * width);
}

}  // namespace

double lane_bytes(LaneId lane, const Request& request,
                  const AttentionCall& call, bool elsewhere) {
  const auto width = static_cast<double>(byte_width(call.dtype));
  switch (lane) {
    case LaneId::cpu:
      // dq in fp32 for backward: at most a quarter of q, out, dout and dq.
      return (call.backward ? 0.25 * call_bytes(request, call, 4) : 0) +
             sink_bytes(request, call, width);
    case LaneId::reference:
      // An fp64 copy of every array.
      return 2 * call_bytes(request, call, 4) + sink_bytes(request, call, 0);
    case LaneId::jax_bridge:
      // A CPU plugin's buffers lie in this machine's memory.
      return call_bytes(request, call, width);
    case LaneId::splash:
      // The plugin's buffers, and a copy in the kernel's layout.
      return 2 * call_bytes(request, call, width);
    case LaneId::mosaic:
    case LaneId::xla: {
      // A copy padded to the program's lengths, and on a CPU one more, since a
      // CPU plugin's buffers lie in this machine's memory. The program's own
      // memory is known, and asked for, when it is compiled.
      Request padded;
      padded.batch = bucket(request.batch);
      padded.q_len = bucket(request.q_len);
      padded.kv_len = bucket(request.kv_len);
      return (elsewhere ? 1 : 2) *
             (call_bytes(padded, call, width) + sink_bytes(padded, call, 0));
    }
    case LaneId::cuda:
      break;
  }
  return 0;
}

namespace {

double facts_bytes(const Facts& f) {
  double numbers = 0;
  const auto add = [&](const std::optional<Ints>& ints) {
    if (ints) numbers += static_cast<double>(ints->size());
  };
  for (const auto& ints :
       {f.doc_ids, f.q_doc_ids, f.valid_token_counts, f.valid_slot_counts,
        f.prefix_lengths, f.q_offsets, f.tree_enter, f.tree_leave}) {
    add(ints);
  }
  for (const auto& ints : f.same_ids) add(ints);
  if (f.picks) numbers += static_cast<double>(f.picks->blocks.size());
  return numbers * sizeof(int32_t);
}

double list_bytes(const Worklist& w) {
  return static_cast<double>(w.row_start.size() * sizeof(uint32_t) +
                             w.entries.size() * sizeof(Entry));
}

}  // namespace

double sink_batch_bytes(LaneId lane, const Batch& batch,
                        const AttentionCall& call) {
  const bool plans = lane == LaneId::cpu || lane == LaneId::mosaic ||
                     lane == LaneId::reference;
  if (!plans || !call.sink_telemetry) return 0;
  const Plan& plan = batch.plan();
  const double spans = static_cast<double>(plan.forward.lists) *
                       static_cast<double>(plan.q_len) * 2 * sizeof(int64_t);
  return facts_bytes(batch.facts()) + list_bytes(plan.forward) +
         list_bytes(plan.transposed) + spans;
}

}  // namespace tessera::lanes
