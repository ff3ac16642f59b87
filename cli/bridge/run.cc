// cli/bridge/run.cc: from flags to outputs and a receipt.
#include "cli/bridge/run.h"

#include "base/fail.h"
#include "base/text.h"
#include "cli/numbers.h"
#include "cli/progress.h"
#include "cli/run/check.h"
#include "lanes/jax_bridge/attention.h"
#include "run/receipt_parts.h"
#include "tessera/plan.h"
#include "tessera/version.h"

namespace tessera::cli {
namespace {

// Programs of JAX, whichever device runs them.
constexpr const char* kFamily = "tpu/jax";
constexpr const char* kWider =
    "the whole artifact and its shapes: what JAX baked in is part of the key, "
    "and another mask, length or scale is another compile";

// Everything that strangers gave, before any work.
struct Asked {
  BridgeOptions options;
  BridgeSpec spec;
  std::string artifact;
  BridgeData data;
  uint64_t seed = 0;
};

Result<Asked> read_all(const BridgeFlags& f) {
  Asked out;
  if (auto e = read_plugin_flags(f, out.options); !e) return e.error();
  auto seed = parse_seed(f.seed.value_or("0"));
  if (!seed) return seed.error();
  out.seed = *seed;
  if (f.seed && f.inputs) {
    return invalid("cli", "--seed goes without --inputs, found both");
  }
  auto read = load_artifact(*f.artifact, *f.shapes);
  if (!read) return read.error();
  out.artifact = std::move(read->program);
  out.spec = std::move(read->spec);
  if (f.check && !out.spec.attention) {
    return invalid("cli",
                   "--check needs an operation that the file of shapes "
                   "declares as attention, found {}",
                   in_quotes(out.spec.operation));
  }
  if (auto e = check_arrays_fit(out.spec); !e) return e.error();
  auto inputs = f.inputs ? read_bridge_inputs(*f.inputs, out.spec)
                         : draw_bridge_inputs(out.spec, out.seed);
  if (!inputs) return inputs.error();
  out.data.inputs = std::move(*inputs);
  out.data.outputs = make_bridge_outputs(out.spec);
  return out;
}

Result<receipt::Receipt::Check> judge(const bridge::DeclaredAttention& call,
                                      uint64_t seed) {
  Progress progress("checking");
  // XLA's processors flush, whoever wrote the program.
  auto options = judge_options(call.request, call.shape, seed, true);
  options.progress = progress.callback();
  auto verdict = reference::judge_declared_forward(
      call.request, call.facts, call.shape, call.tensors, options);
  if (!verdict) return verdict.error();
  return check_of(*verdict, options);
}

std::vector<receipt::Receipt::Array> arrays_of(
    const std::vector<BridgeArray>& arrays) {
  std::vector<receipt::Receipt::Array> out;
  out.reserve(arrays.size());
  for (const BridgeArray& a : arrays) {
    out.push_back({a.name, std::string(to_string(a.dtype)), a.shape});
  }
  return out;
}

// Of a run that was not judged yet.
receipt::Receipt receipt_of(const BridgeFlags& f, const Asked& asked,
                            const BridgeRun& run) {
  const BridgeSpec& spec = asked.spec;
  receipt::Receipt r;
  r.kind = receipt::Kind::operation;
  r.version = kVersion;
  r.lane = {"jax_bridge", "command", "jax_bridge", "jax_bridge", kFamily,
            "executed",   {}};
  r.operation = spec.operation;
  r.name = spec.name;
  r.artifact = {*f.artifact,         *f.shapes, run.artifact_digest,
                spec.artifact_bytes, spec.jax,  spec.calling_convention_version,
                spec.platforms};
  r.inputs.seed = asked.seed;
  r.inputs.file = f.inputs.value_or("");
  r.inputs.arrays = arrays_of(spec.inputs);
  r.inputs.digests = digests_of(spec.inputs, asked.data.inputs);
  if (!f.inputs) {
    for (const auto& [name, digest] : r.inputs.digests) {
      r.inputs.drawn.push_back(name);
    }
  }
  r.outputs = arrays_of(spec.outputs);
  r.key = {run.contract.key, true, kWider, run.contract.text};
  r.compiles = run.compiles;
  r.cache_hits = {run.memory_hits, run.disk_hits};
  r.compile_ms = run.compile_ms;
  r.transfer_ms = run.transfer_ms;
  r.run_ms = run.run_ms;
  r.warnings = run.warnings;
  r.output_digest = digest_of_all(asked.data.outputs);
  return r;
}

}  // namespace

Result<BridgeOutcome> run_bridge(const BridgeFlags& f) {
  auto asked = read_all(f);
  if (!asked) return asked.error();
  const auto inputs = asked->data.input_pointers();
  const auto outputs = asked->data.output_pointers();
  std::optional<bridge::DeclaredAttention> call;
  if (f.check) {
    auto bound = bridge::declared_attention(asked->spec, inputs, outputs);
    if (!bound) return bound.error();
    // Facts that do not fit are refused before any work.
    auto legal = Legality::bind(bound->request, bound->facts);
    if (!legal) return legal.error();
    auto ids = bridge::check_query_ids(asked->spec, inputs, *bound);
    if (!ids) return ids.error();
    call = std::move(*bound);
  }
  auto lane = BridgeLane::open(asked->options);
  if (!lane) return lane.error();
  auto ran = lane->run(asked->artifact, asked->spec, inputs, outputs);
  if (!ran) return ran.error();

  receipt::Receipt receipt = receipt_of(f, *asked, *ran);
  receipt.plugin = run::receipt_plugin(lane->place(), asked->options.device);
  if (call) {
    auto check = judge(*call, asked->seed);
    if (!check) return check.error();
    receipt.check = std::move(*check);
  }
  receipt::seal(receipt);
  return BridgeOutcome{std::move(receipt), std::move(asked->spec),
                       std::move(asked->data)};
}

}  // namespace tessera::cli
