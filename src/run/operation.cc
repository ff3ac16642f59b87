// run/operation.cc: checks the declaration, runs, and judges the output.
#include "run/operation.h"

#include <optional>
#include <utility>

#include "base/fail.h"
#include "base/shape.h"
#include "base/text.h"
#include "lanes/jax_bridge/attention.h"
#include "run/judge_run.h"
#include "run/receipt_parts.h"
#include "tessera/plan.h"

namespace tessera::run {
namespace {

constexpr std::string_view kWhere = "bridge";

// The declared attention call, checked, for the judge to read.
Result<bridge::DeclaredAttention> declared_call(const BridgeSpec& spec,
                                                const OperationArrays& arrays) {
  if (!spec.attention) {
    return invalid(kWhere,
                   "an operation that is checked must be declared as "
                   "attention, found {}",
                   in_quotes(spec.operation));
  }
  if (auto e = bridge::check_counts(spec, arrays.inputs.size(),
                                    arrays.outputs.size());
      !e) {
    return e.error();
  }
  auto call = bridge::declared_attention(spec, arrays.inputs, arrays.outputs);
  if (!call) return call;
  auto legal = Legality::bind(call->request, call->facts);
  if (!legal) return legal.error();
  auto ids = bridge::check_query_ids(spec, arrays.inputs, *call);
  if (!ids) return ids.error();
  return call;
}

Result<receipt::Receipt::Check> judge(const bridge::DeclaredAttention& call,
                                      const OperationOptions& o) {
  // On XLA's devices every program flushes subnormal numbers.
  const auto options =
      judge_options(call.request, call.shape,
                    {.seed = o.seed, .flushes = true, .progress = o.progress});
  auto verdict = reference::judge_declared_forward(
      call.request, call.facts, call.shape, call.tensors, options);
  if (!verdict) return verdict.error();
  return check_of(*verdict, options);
}

}  // namespace

size_t bridge_bytes(const BridgeArray& array) {
  return static_cast<size_t>(byte_width(array.dtype)) *
         static_cast<size_t>(elements_of(array.shape));
}

Result<OperationRun> run_operation(const BridgeArtifact& artifact,
                                   const OperationArrays& arrays,
                                   const OperationOptions& options) {
  std::optional<bridge::DeclaredAttention> call;
  if (options.check) {
    auto declared = declared_call(artifact.spec, arrays);
    if (!declared) return declared.error();
    call = std::move(*declared);
  }
  auto lane = BridgeLane::open(options.bridge);
  if (!lane) return lane.error();
  auto ran =
      lane->run(artifact.program, artifact.spec, arrays.inputs, arrays.outputs);
  if (!ran) return ran.error();
  OperationRun out;
  out.ran = std::move(*ran);
  out.plugin = receipt_plugin(lane->place(), options.bridge.device);
  if (call) {
    auto check = judge(*call, options);
    if (!check) return check.error();
    out.check = std::move(*check);
  }
  return out;
}

}  // namespace tessera::run
