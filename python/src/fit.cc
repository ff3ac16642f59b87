#include "fit.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "batch.h"
#include "failure.h"
#include "fit/parts.h"
#include "shard.h"
#include "tessera/fit.h"
#include "unlocked.h"

namespace tessera::python {
namespace {

// A budget as JSON, and the error if it does not fit.
using Told = std::pair<std::string, std::optional<std::string>>;

template <class Asked>
Told tell(const Asked& asked) {
  auto told = unlocked([&]() -> Result<Told> {
    const auto budget = make_budget(asked);
    if (!budget) return budget.error();
    std::vector<Remedy> remedies;
    std::optional<std::string> error;
    if (!budget->fits()) {
      remedies = what_fits(asked);
      error = fit::too_large(*budget, remedies).message;
    }
    return Told{budget_json(*budget, remedies), std::move(error)};
  });
  return take(std::move(told));
}

Told on_a_mesh(const Batch& batch, const AttentionCall& call, LaneId lane,
               const std::string& target, const std::string& mesh,
               ShardOptions options, const std::optional<std::string>& reason) {
  MeshFitCall asked;
  asked.batch = &batch;
  asked.mesh = take(parse_mesh(mesh));
  asked.options = std::move(options);
  asked.call = call;
  asked.lane = lane;
  asked.chip = target;
  asked.lowering_reason = reason;
  asked.numbers = Numbers::any;  // as in sessions
  return tell(asked);
}

Told fit(GivenBatch batch, int64_t heads, std::optional<int64_t> kv_heads,
         int64_t head_dim, std::optional<int64_t> v_head_dim,
         const std::string& dtype, double softcap, bool sink_logits,
         bool backward, bool dlse, bool sink_telemetry,
         const std::string& lane_name, const std::string& method,
         const std::string& target, const std::string& mesh,
         const std::string& balance, const std::string& exchange,
         const std::string& ceilings, const std::string& work,
         const std::string& evenness, bool uneven,
         const std::optional<std::string>& lowering_reason) {
  const Batch& of = batch_of(batch);
  AttentionCall call;
  call.shape = shape_of(heads, kv_heads, head_dim, v_head_dim);
  call.shape.softcap = softcap;
  call.dtype = parse_dtype(dtype);
  call.sink_logits = sink_logits;
  call.backward = backward;
  call.dlse = dlse;
  call.sink_telemetry = sink_telemetry;
  const LaneId lane = take(parse_lane(lane_name));
  if (sink_telemetry && (lane != LaneId::mosaic || !mesh.empty())) {
    refuse("sink_telemetry goes with the lane mosaic and no mesh, found " +
           (mesh.empty() ? lane_name : mesh));
  }
  ShardOptions shards = shard_options(
      {balance, exchange, ceilings, work, evenness, uneven}, mesh);
  if (!mesh.empty()) {
    if (method != "worklist") {
      refuse("a mesh runs the method 'worklist', found '" + method + "'");
    }
    return on_a_mesh(of, call, lane, target, mesh, std::move(shards),
                     lowering_reason);
  }
  FitCall asked = take(fit_call(of, call, lane, target));
  asked.method = take(parse_xla_method(method));
  if (lane != LaneId::xla && method != "worklist") {
    refuse("method goes with the lane xla, found " + lane_name);
  }
  asked.mosaic.lowering_reason = lowering_reason;
  return tell(asked);
}

}  // namespace

void bind_fit(nb::module_& m) {
  m.def("_fit", &fit, nb::arg("batch"), nb::kw_only(), nb::arg("heads"),
        nb::arg("kv_heads"), nb::arg("head_dim"), nb::arg("v_head_dim"),
        nb::arg("dtype"), nb::arg("softcap"), nb::arg("sink_logits"),
        nb::arg("backward"), nb::arg("dlse"), nb::arg("sink_telemetry"),
        nb::arg("lane"), nb::arg("method"), nb::arg("target"), nb::arg("mesh"),
        nb::arg("balance"), nb::arg("exchange"), nb::arg("ceilings"),
        nb::arg("work"), nb::arg("evenness"), nb::arg("uneven"),
        nb::arg("lowering_reason"));
}

}  // namespace tessera::python
