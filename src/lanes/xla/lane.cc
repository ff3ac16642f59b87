// lanes/xla/lane.cc: a call: its contract, its program, its arrays, its run.
#include <algorithm>
#include <charconv>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/fail.h"
#include "base/integers.h"
#include "base/text.h"
#include "base/timed.h"
#include "base/trace.h"
#include "lanes/tensors.h"
#include "lanes/xla/arrays.h"
#include "lanes/xla/shape.h"
#include "lanes/xla/staging.h"
#include "mask/bind.h"
#include "pjrt/compile_cache.h"
#include "pjrt/place.h"
#include "plan/batch_state.h"
#include "tessera/layouts.h"
#include "tessera/xla.h"

namespace tessera {
namespace {

using xla::Argument;
using xla::Dims;
using xla::Element;
using xla::Shape;
using xla::Staged;

// Of the programs' text; one of another number is another contract.
constexpr int64_t kKernelVersion = 1;

constexpr std::string_view kMethods[] = {"worklist", "chunked", "dense"};

Element element_of(Dtype dtype) {
  if (dtype == Dtype::bf16) return Element::bf16;
  return dtype == Dtype::f16 ? Element::f16 : Element::f32;
}

Dtype dtype_of(Element element) {
  switch (element) {
    case Element::i1:
      return Dtype::boolean;
    case Element::i32:
      return Dtype::i32;
    case Element::f16:
      return Dtype::f16;
    case Element::bf16:
      return Dtype::bf16;
    case Element::f32:
      break;
  }
  return Dtype::f32;
}

// A program and what it is kept under.
struct Planned {
  Shape shape;
  PlanContract plan;
  KernelContract kernel;
};

// What `present` must say beside which facts there are: the picks' sizes.
Result<Planned> plan_call(const Request& request, const Facts& present,
                          PlanContract contract, const AttentionShape& shape,
                          const XlaLane::Call& call, XlaMethod method,
                          const std::string& target) {
  Planned out;
  Shape& s = out.shape;
  s.method = method;
  s.backward = call.backward;
  s.batch = bucket(request.batch);
  s.q_len = round_up(bucket(request.q_len), request.tile.q);
  s.kv_len = round_up(bucket(request.kv_len), request.tile.kv);
  s.heads = shape.heads;
  s.kv_heads = shape.kv_heads;
  s.plan_heads = static_cast<int64_t>(request.masks.size());
  s.head_dim = shape.head_dim;
  s.v_head_dim = shape.v_head_dim;
  s.tile = request.tile;
  s.steps = contract.steps;
  s.element = element_of(call.dtype);
  s.scale = shape.scale_or_default();
  s.softcap = shape.softcap;
  s.sink_logits = call.sink_logits;
  s.dlse = call.dlse;
  s.masks = request.masks;
  s.window_bounds = static_cast<int64_t>(contract.window_bounds.size());
  if (present.picks && names_of(request).picks) {
    s.pick_heads = present.picks->heads;
    s.picks_k = bucket(present.picks->k);
    // A query's slots are then its row's union, which every batch may fill.
    if (present.picks->meaning == RouteMeaning::tile_union) {
      s.picks_k =
          std::max(s.picks_k,
                   std::min(request.ceilings.max_union,
                            ceil_div(s.kv_len, names_of(request).picks_block)));
    }
    s.plan_heads = std::max(s.plan_heads, s.pick_heads);
  }
  if (s.heads % s.plan_heads != 0) {
    return invalid("xla",
                   "heads must be a multiple of the plan's, found {} "
                   "for {}",
                   s.heads, s.plan_heads);
  }
  // The program counts in 32 bits.
  const double most = std::numeric_limits<int32_t>::max();
  const double units =
      static_cast<double>(s.batch) * static_cast<double>(s.units());
  const int64_t visits = s.units() / s.plan_heads;  // of each list
  const double steps =
      static_cast<double>(s.steps) * static_cast<double>(visits);
  if (units > most || steps > most) {
    return over_limit("xla",
                      "steps and heads of all batch rows must count to at most "
                      "{:.0f}, found {:.0f} and {:.0f}",
                      most, steps, units);
  }

  KernelChoice choice;
  choice.lane = "xla";
  choice.target = target;
  choice.direction = call.backward ? "backward" : "forward";
  choice.dtype = to_string(call.dtype);
  choice.shape = shape;
  choice.parameters = {{"method", static_cast<int64_t>(method)},
                       {"sink_logits", call.sink_logits ? 1 : 0},
                       {"dlse", call.dlse ? 1 : 0},
                       {"pick_heads", s.pick_heads},
                       {"picks", s.picks_k},
                       {"kernel_version", kKernelVersion}};
  out.plan = std::move(contract);
  out.kernel = make_kernel_contract(out.plan, choice);
  return out;
}

// Only the worklist's length depends on the worklist; picks are an input of
// every method.
Request without_ceilings(const Request& request) {
  Request out = request;
  out.ceilings = {};
  out.ceilings.max_union = request.ceilings.max_union;
  return out;
}

// The text that both keys digest, so that a difference has a name.
std::string full_text(const Planned& p) {
  return fmt::format(R"({{"kernel":{},"plan":{}}})", p.kernel.text,
                     p.plan.text);
}

// What a program is handed, by name.
class Inputs {
 public:
  void add(std::string name, const void* data) {
    data_[std::move(name)] = data;
  }
  void add(std::string name, Staged staged) {
    staged_.push_back(std::move(staged));
    add(std::move(name), staged_.back().data());
  }
  void add(xla::Integers integers) {
    integers_ = std::move(integers);
    for (const auto& [name, values] : integers_) add(name, values.data());
  }
  const void* of(const std::string& name) const { return data_.at(name); }

 private:
  std::map<std::string, const void*> data_;
  std::deque<Staged> staged_;
  xla::Integers integers_;
};

// Where a result goes.
struct Output {
  pjrt::ArrayType type;
  void* to = nullptr;  // as it is; null: through `copy`
  std::function<void(const void*, const Dims&)> copy;
};

Output to_tensor(const MutableTensorView& tensor, const Dims& dims) {
  return {{tensor.dtype, dims},
          xla::in_place(tensor, dims),
          [tensor](const void* from, const Dims& d) {
            xla::unstage(from, d, tensor);
          }};
}

Output to_floats(std::span<float> to, const Dims& have, const Dims& dims) {
  return {{Dtype::f32, dims},
          have == dims ? to.data() : nullptr,
          [to, have](const void* from, const Dims& d) {
            if (!to.empty()) {
              xla::unstage(static_cast<const float*>(from), d, to.data(), have);
            }
          }};
}

// They are written where the caller's arrays are, so no plugin is believed.
Result<void> check_outputs(const pjrt::Loaded& program,
                           const std::vector<Output>& outputs) {
  std::vector<pjrt::ArrayType> due;
  due.reserve(outputs.size() + 1);
  for (const Output& o : outputs) due.push_back(o.type);
  due.push_back({Dtype::i32, {}});  // the count of tiles
  const std::vector<pjrt::ArrayType>& found = program.outputs();
  if (found.size() != due.size()) {
    return invalid("xla", "a program must give {} arrays, found {}", due.size(),
                   found.size());
  }
  for (size_t i = 0; i < due.size(); ++i) {
    if (found[i] == due[i]) continue;
    return invalid("xla", "a program must give {}, found {} for output {}",
                   pjrt::describe(due[i]), pjrt::describe(found[i]), i);
  }
  return {};
}

// The outputs, and after them the count of tiles.
Result<void> read_results(const std::vector<pjrt::Buffer>& results,
                          const std::vector<Output>& outputs, int32_t& tiles) {
  std::vector<uint8_t> copy;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const pjrt::Buffer& from = results[i];
    auto bytes = pjrt::byte_size(from.type());
    if (!bytes) return bytes.error();
    void* to = outputs[i].to;
    if (!to) {
      copy.resize(static_cast<size_t>(*bytes));
      to = copy.data();
    }
    if (auto e = pjrt::to_host(from, to, *bytes); !e) return e;
    if (!outputs[i].to) outputs[i].copy(to, from.type().dims);
  }
  return pjrt::to_host(results.back(), &tiles, sizeof tiles);
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number out{};
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, out);
  if (error != std::errc() || at != end) return {};
  return out;
}

Result<pjrt::ClientOptions> read_client_options(
    const std::vector<std::string>& options) {
  pjrt::ClientOptions out;
  for (const std::string& option : options) {
    const size_t equals = option.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return invalid("xla", "a client option must read as name=value, found {}",
                     in_quotes(option));
    }
    const std::string name = option.substr(0, equals);
    const std::string value = option.substr(equals + 1);
    if (const auto whole = number_of<int64_t>(value)) {
      out.emplace_back(name, *whole);
    } else if (const auto real = number_of<double>(value)) {
      out.emplace_back(name, *real);
    } else if (value == "true" || value == "false") {
      out.emplace_back(name, value == "true");
    } else {
      out.emplace_back(name, value);
    }
  }
  return out;
}

}  // namespace

std::string_view to_string(XlaMethod method) {
  return kMethods[static_cast<size_t>(method)];
}

Result<XlaMethod> parse_xla_method(std::string_view text) {
  for (size_t i = 0; i < std::size(kMethods); ++i) {
    if (kMethods[i] == text) return static_cast<XlaMethod>(i);
  }
  return invalid("xla", "a method must be worklist, chunked or dense, found {}",
                 in_quotes(text));
}

struct XlaLane::State {
  XlaOptions options;
  pjrt::Place on;
  XlaPlace place;  // the same, in words
  mutable pjrt::CompileCache cache;

  State(const XlaOptions& o, const pjrt::Place& where)
      : options(o),
        on(where),
        place(describe(where)),
        cache({.folder = o.cache_folder,
               .max_bytes = o.max_cache_bytes,
               .max_compiles = o.max_compiles}) {}

  std::string target() const {
    return fmt::format("{}:{}", on.client->platform(), on.device->kind);
  }

  Result<Planned> plan_batch(const Batch& batch, const AttentionShape& shape,
                             const Call& call) const {
    auto contract = options.method == XlaMethod::worklist
                        ? make_contract(batch)
                        : make_ceiling_contract(
                              without_ceilings(batch.request()), batch.facts());
    if (!contract) return contract.error();
    return plan_call(batch.request(), batch.facts(), std::move(*contract),
                     shape, call, options.method, target());
  }

  Result<pjrt::Cached> program(const Planned& planned, XlaRun& run) const {
    const TraceSpan span("xla", "program");
    const auto write = [&]() -> Result<std::string> {
      const TraceSpan writing("xla", "write");
      return planned.shape.backward ? xla::backward_program(planned.shape)
                                    : xla::forward_program(planned.shape);
    };
    auto cached = timed(run.compile_ms, [&] {
      return cache.get(*on.client, *on.device,
                       {planned.kernel.key, full_text(planned)}, write);
    });
    if (!cached) return cached.error();
    run.contract = planned.kernel;
    run.compiles += cached->found == pjrt::Found::compiled;
    run.memory_hits += cached->found == pjrt::Found::memory;
    run.disk_hits += cached->found == pjrt::Found::disk;
    run.warnings = cached->warnings;
    return cached;
  }

  Result<XlaRun> run(const Planned& planned, const Batch::State& batch,
                     Inputs& inputs, const std::vector<Output>& outputs) const;
};

Result<XlaRun> XlaLane::State::run(const Planned& planned,
                                   const Batch::State& batch, Inputs& inputs,
                                   const std::vector<Output>& outputs) const {
  XlaRun out;
  const Shape& s = planned.shape;
  const Plan& plan = batch.plan;
  auto integers = xla::make_integers(s, batch.sweep.bound, plan);
  if (!integers) return integers.error();
  inputs.add(std::move(*integers));
  auto found = program(planned, out);
  if (!found) return found.error();
  if (auto e = check_outputs(*found->program, outputs); !e) return e.error();

  std::vector<pjrt::HostArray> arrays;
  for (const Argument& a : xla::arguments_of(s)) {
    arrays.push_back(
        {{dtype_of(a.type.element), a.type.dims}, inputs.of(a.name)});
  }
  auto results = pjrt::send_and_execute(*found->program, arrays,
                                        out.transfer_ms, out.run_ms);
  if (!results) return results.error();
  int32_t tiles = 0;
  auto read = timed(out.transfer_ms,
                    [&] { return read_results(*results, outputs, tiles); });
  if (!read) return read.error();
  const int64_t all =
      plan.batch * s.heads * plan.forward.rows * plan.forward.columns;
  if (s.method == XlaMethod::worklist) {
    out.tiles_run = tiles * s.unit_heads();
    const int64_t visits = step_count(plan.forward) * (s.heads / s.plan_heads);
    out.pairs_run = visits * s.tile.q * s.tile.kv;
  } else {
    out.tiles_run = all;
    out.pairs_run = s.batch * s.heads * s.q_len * s.kv_len;
  }
  out.tiles_skipped = all - out.tiles_run;
  return out;
}

XlaLane::XlaLane(std::unique_ptr<State> state) : state_(std::move(state)) {}
XlaLane::XlaLane(XlaLane&&) noexcept = default;
XlaLane& XlaLane::operator=(XlaLane&&) noexcept = default;
XlaLane::~XlaLane() = default;

const XlaPlace& XlaLane::place() const { return state_->place; }

Result<XlaLane> XlaLane::open(const XlaOptions& options) {
  auto client_options = read_client_options(options.client_options);
  if (!client_options) return client_options.error();
  auto place =
      pjrt::open_place(options.plugin, options.device, *client_options);
  if (!place) return place.error();
  return XlaLane(std::make_unique<State>(options, *place));
}

Result<XlaRun> XlaLane::forward(const Batch& batch, const AttentionShape& shape,
                                const ForwardTensors& t) const {
  const TraceSpan span("xla", "forward");
  auto read = read_batch(batch, "xla");
  if (!read) return read.error();
  const Plan& plan = batch.plan();
  const PlanSizes sizes{plan.batch, plan.q_len, plan.kv_len, plan.heads};
  if (auto e = check_forward("xla", sizes, shape, t); !e) return e.error();
  Call call;
  call.dtype = t.q.dtype;
  call.sink_logits = t.sink_logits.has_value();
  auto planned = state_->plan_batch(batch, shape, call);
  if (!planned) return planned.error();

  const Shape& s = planned->shape;
  Inputs inputs;
  inputs.add("q", Staged(t.q, {s.batch, s.heads, s.q_len, s.head_dim}));
  inputs.add("k", Staged(t.k, {s.batch, s.kv_heads, s.kv_len, s.head_dim}));
  inputs.add("v", Staged(t.v, {s.batch, s.kv_heads, s.kv_len, s.v_head_dim}));
  if (t.sink_logits) inputs.add("sink_logits", t.sink_logits->data());
  const Dims have = {plan.batch, s.heads, plan.q_len};
  const Dims rows = {s.batch, s.heads, s.q_len};
  return state_->run(
      *planned, **read, inputs,
      {to_tensor(t.out, {s.batch, s.heads, s.q_len, s.v_head_dim}),
       t.lse.empty() ? to_floats({}, {}, rows) : to_floats(t.lse, have, rows)});
}

Result<XlaRun> XlaLane::backward(const Batch& batch,
                                 const AttentionShape& shape,
                                 const BackwardTensors& t) const {
  const TraceSpan span("xla", "backward");
  auto read = read_batch(batch, "xla");
  if (!read) return read.error();
  const Plan& plan = batch.plan();
  const PlanSizes sizes{plan.batch, plan.q_len, plan.kv_len, plan.heads};
  if (auto e = check_backward("xla", sizes, shape, t); !e) return e.error();
  Call call;
  call.dtype = t.q.dtype;
  call.sink_logits = t.sink_logits.has_value();
  call.backward = true;
  call.dlse = !t.dlse.empty();
  auto planned = state_->plan_batch(batch, shape, call);
  if (!planned) return planned.error();

  const Shape& s = planned->shape;
  const Dims q_dims = {s.batch, s.heads, s.q_len, s.head_dim};
  const Dims k_dims = {s.batch, s.kv_heads, s.kv_len, s.head_dim};
  const Dims v_dims = {s.batch, s.kv_heads, s.kv_len, s.v_head_dim};
  const Dims out_dims = {s.batch, s.heads, s.q_len, s.v_head_dim};
  const Dims rows = {s.batch, s.heads, s.q_len};
  const Dims have = {plan.batch, s.heads, plan.q_len};
  // A query that is not there has no probability for any score.
  constexpr float kNoQuery = std::numeric_limits<float>::infinity();
  Inputs inputs;
  inputs.add("q", Staged(t.q, q_dims));
  inputs.add("k", Staged(t.k, k_dims));
  inputs.add("v", Staged(t.v, v_dims));
  inputs.add("out", Staged(t.out, out_dims));
  inputs.add("dout", Staged(t.dout, out_dims));
  inputs.add("lse", Staged(t.lse.data(), have, rows, kNoQuery));
  if (call.dlse) inputs.add("dlse", Staged(t.dlse.data(), have, rows, 0));
  if (t.sink_logits) inputs.add("sink_logits", t.sink_logits->data());
  std::vector<Output> outputs = {to_tensor(t.dq, q_dims),
                                 to_tensor(t.dk, k_dims),
                                 to_tensor(t.dv, v_dims)};
  if (t.sink_logits) {
    outputs.push_back({{Dtype::f32, {s.heads}}, t.dsink_logits.data(), {}});
  }
  return state_->run(*planned, **read, inputs, outputs);
}

Result<XlaRun> XlaLane::warm(const Request& request, const Facts& present,
                             const AttentionShape& shape,
                             const Call& call) const {
  const bool listed = state_->options.method == XlaMethod::worklist;
  const Ceilings& most = request.ceilings;
  if (listed && (most.max_steps == 0 || most.max_width == 0)) {
    return invalid("xla",
                   "to compile before the batch is known, max_steps and "
                   "max_width must be set, found {} and {}",
                   most.max_steps, most.max_width);
  }
  auto contract = make_ceiling_contract(
      listed ? request : without_ceilings(request), present);
  if (!contract) return contract.error();
  auto planned = plan_call(request, present, std::move(*contract), shape, call,
                           state_->options.method, state_->target());
  if (!planned) return planned.error();
  XlaRun out;
  auto found = state_->program(*planned, out);
  if (!found) return found.error();
  return out;
}

}  // namespace tessera
