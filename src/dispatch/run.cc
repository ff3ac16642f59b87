// dispatch/run.cc: one call from request to outputs and receipt.
#include "tessera/run.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/fail.h"
#include "base/tensor_rows.h"
#include "dispatch/again.h"
#include "dispatch/fallback.h"
#include "dispatch/pick.h"
#include "dispatch/told.h"
#include "receipt/digests.h"
#include "receipt/read.h"
#include "receipt/routing.h"

namespace tessera {
namespace {

RequestFeatures features_of_call(const RunCall& call,
                                 const AttentionOptions& options) {
  CallFeatures features;
  features.dtype = call.forward.q.dtype;
  features.sink_logits = call.forward.sink_logits.has_value();
  features.backward = call.backward != nullptr;
  features.bridge_artifact = options.artifact.has_value();
  return features_of(call.request, call.facts, call.shape, features);
}

TensorView view_of(const MutableTensorView& t) {
  return {t.data, t.dtype,        t.batch,       t.heads,       t.tokens,
          t.dim,  t.batch_stride, t.head_stride, t.token_stride};
}

bool lie_alike(const TensorView& a, const TensorView& b) {
  return a.batch_stride == b.batch_stride && a.head_stride == b.head_stride &&
         a.token_stride == b.token_stride;
}

// "bhsd" or "bshd" where all arrays lie so, else "strided".
std::string layout_of(const RunCall& call) {
  const ForwardTensors& f = call.forward;
  std::vector<TensorView> arrays = {f.q, f.k, f.v, view_of(f.out)};
  if (const BackwardTensors* b = call.backward) {
    arrays.insert(arrays.end(),
                  {b->dout, view_of(b->dq), view_of(b->dk), view_of(b->dv)});
  }
  const auto all = [&](auto layout) {
    return std::ranges::all_of(arrays, [&](const TensorView& t) {
      return lie_alike(
          t, layout(t.data, t.dtype, t.batch, t.heads, t.tokens, t.dim));
    });
  };
  if (all(TensorView::bhsd)) return "bhsd";
  return all(TensorView::bshd) ? "bshd" : "strided";
}

std::map<std::string, std::string> digests_of(const RunCall& call) {
  std::map<std::string, std::string> out = {
      {"q", array_digest(call.forward.q)},
      {"k", array_digest(call.forward.k)},
      {"v", array_digest(call.forward.v)}};
  if (call.forward.sink_logits) {
    out["sink_logits"] = array_digest(*call.forward.sink_logits);
  }
  if (!call.backward) return out;
  out["dout"] = array_digest(call.backward->dout);
  if (!call.backward->dlse.empty()) {
    out["dlse"] = array_digest(call.backward->dlse);
  }
  return out;
}

Result<Receipt> start(const RunCall& call, const AttentionOptions& options,
                      const Batch& batch) {
  auto started =
      tell_asked({.batch = batch,
                  .shape = call.shape,
                  .dtype = call.forward.q.dtype,
                  .sink_logits = call.forward.sink_logits.has_value(),
                  .backward = call.backward != nullptr,
                  .lane = options.lane,
                  .fallback = options.fallback});
  if (!started) return started;
  started->lane.source = options.lane ? "caller" : "default";
  started->shape.layout = layout_of(call);
  if (options.input_digests) started->inputs.digests = digests_of(call);
  started->routing = given_routing(batch.state());
  return started;
}

// One array of a call, as it must be.
struct Due {
  std::string_view name;
  TensorView found;
  int64_t heads, tokens, dim;
};

bool same_array(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.dtype == b.dtype && a.batch == b.batch &&
         a.heads == b.heads && a.tokens == b.tokens && a.dim == b.dim &&
         lie_alike(a, b);
}

struct DueFloats {
  std::string_view name;
  size_t found, due;
};

// The arrays' own errors are nobody's failure to start. Lanes with kernels
// check more; this is what the oracle needs too.
Result<void> check_call(const RunCall& c) {
  const Request& r = c.request;
  const AttentionShape& s = c.shape;
  if (s.heads < 1 || s.kv_heads < 1 || s.heads % s.kv_heads != 0) {
    return invalid("run", "kv_heads must divide heads, found {} for {}",
                   s.kv_heads, s.heads);
  }
  const ForwardTensors& f = c.forward;
  std::vector<Due> arrays = {
      {"q", f.q, s.heads, r.q_len, s.head_dim},
      {"k", f.k, s.kv_heads, r.kv_len, s.head_dim},
      {"v", f.v, s.kv_heads, r.kv_len, s.v_head_dim},
      {"out", view_of(f.out), s.heads, r.q_len, s.v_head_dim}};
  const auto heads = static_cast<size_t>(s.heads);
  const auto rows = static_cast<size_t>(r.batch * s.heads * r.q_len);
  std::vector<DueFloats> floats;
  if (!f.lse.empty() || c.backward) {
    floats.push_back({"lse", f.lse.size(), rows});
  }
  if (f.sink_logits) {
    floats.push_back({"sink_logits", f.sink_logits->size(), heads});
  }
  if (c.backward) {
    const BackwardTensors& b = *c.backward;
    arrays.insert(arrays.end(),
                  {{"dout", b.dout, s.heads, r.q_len, s.v_head_dim},
                   {"dq", view_of(b.dq), s.heads, r.q_len, s.head_dim},
                   {"dk", view_of(b.dk), s.kv_heads, r.kv_len, s.head_dim},
                   {"dv", view_of(b.dv), s.kv_heads, r.kv_len, s.v_head_dim}});
    if (!b.dlse.empty()) floats.push_back({"dlse", b.dlse.size(), rows});
    if (f.sink_logits) {
      floats.push_back({"dsink_logits", b.dsink_logits.size(), heads});
    }
    const bool same_sinks =
        f.sink_logits.has_value() == b.sink_logits.has_value() &&
        (!f.sink_logits || f.sink_logits->data() == b.sink_logits->data());
    if (!same_array(b.q, f.q) || !same_array(b.k, f.k) ||
        !same_array(b.v, f.v) || !same_array(b.out, view_of(f.out)) ||
        b.lse.data() != f.lse.data() || b.lse.size() != f.lse.size() ||
        !same_sinks) {
      return invalid("run",
                     "backward must take the inputs, out and lse of forward, "
                     "found others");
    }
  }
  for (const Due& a : arrays) {
    const TensorView& t = a.found;
    if (!t.data || t.batch != r.batch || t.heads != a.heads ||
        t.tokens != a.tokens || t.dim != a.dim) {
      return invalid("run",
                     "{} must have shape [{}, {}, {}, {}], found [{}, {}, {}, "
                     "{}]{}",
                     a.name, r.batch, a.heads, a.tokens, a.dim, t.batch,
                     t.heads, t.tokens, t.dim, t.data ? "" : " without data");
    }
    if (!is_float_dtype(t.dtype) || t.dtype != f.q.dtype) {
      return invalid("run",
                     "arrays must be of one type, F32, BF16 or F16, "
                     "found {} for {}",
                     to_string(t.dtype), a.name);
    }
    if (t.batch_stride < 0 || t.head_stride < 0 || t.token_stride < 0) {
      return invalid("run", "strides must be 0 or more, found one below for {}",
                     a.name);
    }
  }
  for (const DueFloats& a : floats) {
    if (a.found != a.due) {
      return invalid("run", "{} must have {} values, found {}", a.name, a.due,
                     a.found);
    }
  }
  return {};
}

// The one that a caller chose, rather than left as it is by default.
std::optional<std::string> own_plugin(const AttentionOptions& options) {
  if (options.xla.plugin == XlaOptions().plugin) return {};
  return options.xla.plugin;
}

}  // namespace

struct AttentionRunner::State {
  AttentionOptions options;
  std::optional<Machine> machine;
  // Open xla lanes by method: dispatch may choose any.
  std::array<LaneOptions, 3> lanes;

  LaneOptions& lane_options(const Choice& choice) {
    XlaOptions xla = options.xla;
    if (!options.lane && !choice.plugin.empty()) {
      xla.plugin = choice.plugin;
      xla.method = choice.method;
    }
    LaneOptions& out = lanes[static_cast<size_t>(xla.method)];
    out.cpu = options.cpu;
    if (out.xla.plugin != xla.plugin) {
      out.opened.reset();
      out.bridge.reset();
    }
    out.xla = xla;
    if (!out.artifact) out.artifact = options.artifact;
    return out;
  }
};

AttentionRunner::AttentionRunner(AttentionOptions options)
    : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  state_->machine = state_->options.machine;
}
AttentionRunner::AttentionRunner(AttentionRunner&&) noexcept = default;
AttentionRunner& AttentionRunner::operator=(AttentionRunner&&) noexcept =
    default;
AttentionRunner::~AttentionRunner() = default;

Result<AttentionRun> AttentionRunner::run(const RunCall& call) {
  const AttentionOptions& options = state_->options;
  if (auto e = check_fallback(options.fallback); !e) return e.error();
  AttentionRun out;
  auto batch = BorrowedBatch::make(call.request, call.facts);
  if (!batch) return batch.error();
  out.plan = batch->plan();
  if (auto e = check_call(call); !e) return e.error();
  const RequestFeatures features = features_of_call(call, options);
  auto choice = pick_lane({options.lane, options.fallback, options.gate},
                          features, plan_facts(out.plan),
                          options.machine.has_value(), state_->machine);
  if (!choice) return choice.error();
  out.choice = std::move(*choice);
  auto receipt = start(call, options, *batch);
  if (!receipt) return receipt.error();
  receipt->plan_ms = batch->plan_ms();
  receipt->lane.chosen = to_string(out.choice.lane);
  receipt->choice = tell(out.choice);
  receipt->machine = tell(*state_->machine);

  LaneOptions& lane = state_->lane_options(out.choice);
  const auto start_lane = [&](const Runner& runner,
                              bool& forward_ran) -> Result<LaneRun> {
    if (auto e = runner.open(lane); !e) return e.error();
    return runner.run({*batch, call.shape, call.forward, call.backward, lane},
                      forward_ran);
  };
  auto ran = execute(out.choice.lane, options.fallback, features, start_lane);
  if (!ran) return ran.error();
  tell_run(*ran, lane, *receipt);
  receipt->output_digest = outputs_digest(call.forward, call.backward);
  out.executed = ran->lane;
  out.fallback = ran->reason();
  out.tiles_run = ran->run.tiles_run;
  out.tiles_skipped = ran->run.tiles_skipped;
  out.pairs_run = ran->run.pairs_run;
  out.receipt = receipt_json(*receipt);
  return out;
}

Result<AttentionRun> run_attention(const RunCall& call,
                                   const AttentionOptions& options) {
  return AttentionRunner(options).run(call);
}

Result<std::vector<std::string>> verify_run(const std::string& text,
                                            const RunCall& call,
                                            const AttentionOptions& options) {
  auto receipt = read_receipt(text);
  if (!receipt) return receipt.error();
  const Json& claimed = *receipt;
  std::vector<std::string> out;
  if (auto e = check_digest(claimed); !e) return std::vector{e.error().message};
  for (std::string& c : contradictions(claimed)) out.push_back(std::move(c));
  // What contradicts itself need not run.
  if (!out.empty()) return out;
  if (claimed["lane"]["executed"].is_null()) {
    return unavailable("receipt", "a run must have run, found compiled only");
  }
  AttentionOptions again = options;
  auto lane = parse_lane(claimed["lane"]["executed"].get<std::string>());
  if (!lane) return lane.error();
  again.lane = *lane;
  again.fallback.clear();
  again.input_digests = !claimed["inputs"]["digests"].empty();
  if (*lane == LaneId::cpu && claimed["isa"].is_string()) {
    auto isa = parse_isa(claimed["isa"].get<std::string>());
    if (!isa) return isa.error();
    again.cpu.isa = *isa;
    if (claimed["threads"].is_number()) again.cpu.threads = claimed["threads"];
  }
  if (*lane == LaneId::xla && claimed["method"].is_string()) {
    auto method = parse_xla_method(claimed["method"].get<std::string>());
    if (!method) return method.error();
    again.xla.method = *method;
  }
  if (claimed["plugin"].is_object()) {
    auto plugin = plugin_to_load(claimed, own_plugin(options));
    if (!plugin) return plugin.error();
    again.xla.plugin = std::move(*plugin);
    again.xla.device = claimed["plugin"]["number"];
  }
  auto ran = run_attention(call, again);
  if (!ran) return ran.error();
  const RunsCompared compared =
      compare_runs(claimed, Json::parse(ran->receipt),
                   features_of_call(call, options), plan_facts(ran->plan));
  for (const ReceiptDifference& d : compared.wrong) {
    out.push_back(fmt::format("{} is {}, found {}", d.field,
                              d.a.empty() ? "nothing" : d.a,
                              d.b.empty() ? "nothing" : d.b));
  }
  return out;
}

}  // namespace tessera
