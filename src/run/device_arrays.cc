// run/device_arrays.cc: passes over arrays that stay with the lane.
#include <utility>

#include "base/fail.h"
#include "base/timed.h"
#include "base/trace.h"
#include "lanes/host_residents.h"
#include "lanes/tensors.h"
#include "run/session_state.h"
#include "tessera/session.h"

namespace tessera {

struct DeviceArray::State {
  uint64_t of = 0;  // Prepared::State::id
  ArrayRole role = ArrayRole::q;
  int64_t dim = 0;
  lanes::ResidentPtr there;
};

namespace {

constexpr std::string_view kRoles[] = {"q", "k", "v", "out"};

std::string_view name_of(ArrayRole role) {
  return kRoles[static_cast<size_t>(role)];
}
bool of_queries(ArrayRole role) {
  return role == ArrayRole::q || role == ArrayRole::out;
}
int64_t dim_of(ArrayRole role, const AttentionShape& shape) {
  const bool values = role == ArrayRole::v || role == ArrayRole::out;
  return values ? shape.v_head_dim : shape.head_dim;
}

// An array may be given for any role with the same tokens and dim.
Result<const lanes::Resident*> check_given(const Prepared::State& p,
                                           const DeviceArray& array,
                                           ArrayRole role,
                                           std::string_view name) {
  const DeviceArray::State* state = array.state();
  if (state == nullptr || state->of != p.id) {
    return invalid("run",
                   "an array must have been put on the device for this batch, "
                   "found {} for {}",
                   state ? "another batch's or lane's" : "none", name);
  }
  if (of_queries(state->role) != of_queries(role) ||
      state->dim != dim_of(role, p.call.shape)) {
    return invalid("run",
                   "an array must be like {}, {} of dim {}, found one like {} "
                   "of dim {} for {}",
                   name_of(role), of_queries(role) ? "queries" : "keys",
                   dim_of(role, p.call.shape), name_of(state->role), state->dim,
                   name);
  }
  return state->there.get();
}

Result<lanes::ResidentForward> check_inputs(const Prepared::State& p,
                                            const DeviceForward& in) {
  auto q = check_given(p, in.q, ArrayRole::q, "q");
  if (!q) return q.error();
  auto k = check_given(p, in.k, ArrayRole::k, "k");
  if (!k) return k.error();
  auto v = check_given(p, in.v, ArrayRole::v, "v");
  if (!v) return v.error();
  const auto heads = static_cast<size_t>(p.call.shape.heads);
  if (in.sink_logits.has_value() != p.call.sink_logits ||
      (in.sink_logits && in.sink_logits->size() != heads)) {
    return invalid("run",
                   "sink logits must be as the call was prepared, found {} for "
                   "{}",
                   in.sink_logits ? in.sink_logits->size() : 0,
                   p.call.sink_logits ? heads : 0);
  }
  lanes::ResidentForward out;
  out.q = *q;
  out.k = *k;
  out.v = *v;
  out.sink_logits = in.sink_logits;
  return out;
}

size_t rows_of(const Prepared::State& p) {
  const Request& r = p.batch.request();
  return static_cast<size_t>(r.batch * p.call.shape.heads * r.q_len);
}

DeviceArray array_of(const Prepared::State& p, ArrayRole role,
                     lanes::ResidentPtr there) {
  DeviceArray::State state{p.id, role, dim_of(role, p.call.shape),
                           std::move(there)};
  return DeviceArray(
      std::make_shared<const DeviceArray::State>(std::move(state)));
}

Result<void> check_view(const Prepared::State& p, ArrayRole role,
                        const TensorView& view, bool output) {
  return lanes::check_array("run", lanes::PlanSizes::of(p.batch.plan()), p.call,
                            name_of(role), view, output);
}

// Arrays where the lane keeps them, or in host memory if it keeps none.
class Residents {
 public:
  explicit Residents(const Prepared::State& p)
      : host_(*p.work, p.batch.plan(), p.call), own_(p.work->residents()) {}
  lanes::ResidentWork* operator->() { return own_ ? own_ : &host_; }

 private:
  lanes::HostResidents host_;
  lanes::ResidentWork* own_;
};

}  // namespace

Result<DeviceArray> Prepared::put(ArrayRole role, const TensorView& view) {
  const TraceSpan span("run", "put");
  State& p = *state_;
  if (auto e = run::check_prepared(p); !e) return e.error();
  if (auto e = check_view(p, role, view, false); !e) return e.error();
  auto there = timed(p.counters.put_ms,
                     [&] { return Residents(p)->put(view, of_queries(role)); });
  if (!there) return there.error();
  return array_of(p, role, std::move(*there));
}

Result<void> Prepared::fetch(const DeviceArray& array,
                             const MutableTensorView& to) {
  const TraceSpan span("run", "fetch");
  State& p = *state_;
  if (auto e = run::check_prepared(p); !e) return e;
  const ArrayRole role = array ? array.state()->role : ArrayRole::q;
  auto there = check_given(p, array, role, name_of(role));
  if (!there) return there.error();
  if (auto e = check_view(p, role, as_input(to), true); !e) return e;
  return timed(p.counters.fetch_ms, [&] {
    return Residents(p)->fetch(**there, of_queries(role), to);
  });
}

Result<DeviceSaved> Prepared::forward(const DeviceForward& in,
                                      const StopFlag* stop) {
  const TraceSpan span("run", "forward");
  State& p = *state_;
  if (auto e = run::check_prepared(p); !e) return e.error();
  auto pass = check_inputs(p, in);
  if (!pass) return pass.error();
  DeviceSaved out{in, {}, std::vector<float>(rows_of(p))};
  pass->lse = out.lse;
  auto ran = Residents(p)->forward(*pass, stop);
  if (!ran) return ran.error();
  run::count_forward(p, *ran);
  out.out = array_of(p, ArrayRole::out, std::move(pass->out));
  return out;
}

Result<DeviceGradients> Prepared::backward(const DeviceSaved& saved,
                                           const DeviceArray& dout,
                                           std::span<const float> dlse,
                                           const StopFlag* stop) {
  const TraceSpan span("run", "backward");
  State& p = *state_;
  if (auto e = run::check_prepared(p); !e) return e.error();
  if (auto e = run::check_says_backward(p); !e) return e.error();
  auto forward = check_inputs(p, saved.in);
  if (!forward) return forward.error();
  auto given = check_given(p, saved.out, ArrayRole::out, "out");
  if (!given) return given.error();
  auto from = check_given(p, dout, ArrayRole::out, "dout");
  if (!from) return from.error();
  const size_t rows = rows_of(p);
  if (saved.lse.size() != rows || dlse.size() != (p.call.dlse ? rows : 0)) {
    return invalid("run",
                   "lse and dlse must be as the call was prepared, found {} "
                   "and {} values for {} and {}",
                   saved.lse.size(), dlse.size(), rows, p.call.dlse ? rows : 0);
  }
  DeviceGradients out;
  if (saved.in.sink_logits) {
    out.dsink_logits.resize(saved.in.sink_logits->size());
  }
  lanes::ResidentBackward pass;
  pass.q = forward->q;
  pass.k = forward->k;
  pass.v = forward->v;
  pass.sink_logits = forward->sink_logits;
  pass.out = *given;
  pass.dout = *from;
  pass.lse = saved.lse;
  pass.dlse = dlse;
  pass.dsink_logits = out.dsink_logits;
  auto ran = Residents(p)->backward(pass, stop);
  if (!ran) return ran.error();
  run::count_backward(p, *ran);
  out.dq = array_of(p, ArrayRole::q, std::move(pass.dq));
  out.dk = array_of(p, ArrayRole::k, std::move(pass.dk));
  out.dv = array_of(p, ArrayRole::v, std::move(pass.dv));
  return out;
}

}  // namespace tessera
