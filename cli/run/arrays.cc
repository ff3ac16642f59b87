// cli/run/arrays.cc: checks lengths and memory, then makes the arrays.
#include "cli/run/arrays.h"

#include "base/fail.h"
#include "base/trace.h"
#include "lanes/lane.h"
#include "receipt/machine.h"
#include "request/random_inputs.h"

namespace tessera::cli {
namespace {

// Whether the forced lane's device has a memory of its own.
bool elsewhere(const RunOptions& o) {
  if (o.lanes.lane != LaneId::xla) return false;
  const auto place = o.session->place();
  return place && place->platform != "cpu";
}

}  // namespace

Result<void> check_lengths(const request::InputFile& file,
                           const Request& request) {
  struct Length {
    std::string_view name;
    int64_t found, in_file;
  };
  for (const Length& l : {Length{"batch", request.batch, file.batch},
                          Length{"q_len", request.q_len, file.q_len},
                          Length{"kv_len", request.kv_len, file.kv_len}}) {
    if (l.found != l.in_file) {
      return invalid("inputs", "{} must be the file's {}, found {}", l.name,
                     l.in_file, l.found);
    }
  }
  return {};
}

Result<void> check_memory(const RunFlags& flags, const RunOptions& o,
                          LaneId lane, double routing, const Batch* batch) {
  const request::DataBytes bytes = data_bytes(o.data);
  double needed = bytes.all + routing;
  if (o.lanes.fallback.empty()) {
    Request lengths;
    lengths.batch = o.data.batch;
    lengths.q_len = o.data.q_len;
    lengths.kv_len = o.data.kv_len;
    const AttentionCall call = o.data.call();
    needed += lanes::lane_bytes(lane, lengths, call, elsewhere(o));
    if (batch) needed += lanes::sink_batch_bytes(lane, *batch, call);
  }
  if (flags.outputs) needed += bytes.outputs;
  return receipt::check_free("run", needed, "the arrays");
}

void make_inputs(RunOptions& o) {
  const TraceSpan span("run", "inputs");
  request::AttentionData& d = o.data;
  const auto drawn = [&](std::string_view name) {
    return !o.inputs || !o.inputs->has(name);
  };
  if (o.sink_logits || !drawn("sink_logits")) {
    d.sink_logits.emplace(static_cast<size_t>(d.shape.heads));
  }
  d.allocate();
  if (o.inputs) {
    take_inputs(*o.inputs, d);
  } else {
    fill_inputs(d, o.seed);
  }
  if (d.sink_logits && drawn("sink_logits")) {
    fill_random(*d.sink_logits, o.seed, request::Stream::sink_logits);
  }
  if (!d.backward) return;
  if (!o.inputs) {
    d.dlse.resize(d.lse.size());
    fill_random(d.dlse, o.seed, request::Stream::dlse);
  } else if (drawn("dout")) {
    fill_random(d.dout.view(), o.seed, request::Stream::dout);
  }
}

}  // namespace tessera::cli
