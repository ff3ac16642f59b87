// run/operation_receipt.cc: what an operation ran, with digests of its arrays.
#include "run/operation_receipt.h"

#include <vector>

#include "base/digest.h"
#include "tessera/version.h"

namespace tessera::run {
namespace {

// The family of every program that JAX exported, on any device.
constexpr const char* kFamily = "tpu/jax";
constexpr const char* kWider =
    "the whole artifact and its shapes: what JAX baked in is part of the key, "
    "and another mask, length or scale is another compile";

std::vector<receipt::Receipt::Array> arrays_of(
    const std::vector<BridgeArray>& arrays) {
  std::vector<receipt::Receipt::Array> out;
  out.reserve(arrays.size());
  for (const BridgeArray& a : arrays) {
    out.push_back({a.name, std::string(to_string(a.dtype)), a.shape});
  }
  return out;
}

std::string array_digest(const BridgeArray& array, const void* data) {
  return digest_of({static_cast<const char*>(data), bridge_bytes(array)});
}

receipt::Receipt::Inputs inputs_of(const BridgeSpec& spec,
                                   const OperationArrays& arrays,
                                   const OperationSource& source) {
  receipt::Receipt::Inputs out;
  out.seed = source.seed;
  out.file = source.inputs_file;
  out.arrays = arrays_of(spec.inputs);
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    out.digests[spec.inputs[i].name] =
        array_digest(spec.inputs[i], arrays.inputs[i]);
  }
  if (!source.drawn) return out;
  out.drawn.reserve(out.digests.size());
  for (const auto& [name, unused] : out.digests) out.drawn.push_back(name);
  return out;
}

std::string outputs_digest(const BridgeSpec& spec,
                           const OperationArrays& arrays) {
  Digest digest;
  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    digest.add(arrays.outputs[i], bridge_bytes(spec.outputs[i]));
  }
  return digest.hex();
}

}  // namespace

receipt::Receipt operation_receipt(const BridgeSpec& spec,
                                   const OperationArrays& arrays,
                                   const OperationRun& run,
                                   const OperationSource& source) {
  const BridgeRun& ran = run.ran;
  receipt::Receipt r;
  r.kind = receipt::Kind::operation;
  r.version = kVersion;
  r.lane = {"jax_bridge", "command", "jax_bridge", "jax_bridge", kFamily,
            "executed",   {}};
  r.operation = spec.operation;
  r.name = spec.name;
  r.plugin = run.plugin;
  r.artifact = {
      source.artifact_file, source.shapes_file, ran.artifact_digest,
      spec.artifact_bytes,  spec.jax,           spec.calling_convention_version,
      spec.platforms};
  r.inputs = inputs_of(spec, arrays, source);
  r.outputs = arrays_of(spec.outputs);
  r.key = {ran.contract.key, true, kWider, ran.contract.text};
  r.compiles = ran.compiles;
  r.cache_hits = {ran.memory_hits, ran.disk_hits};
  r.compile_ms = ran.compile_ms;
  r.transfer_ms = ran.transfer_ms;
  r.run_ms = ran.run_ms;
  r.warnings = ran.warnings;
  r.check = run.check;
  r.output_digest = outputs_digest(spec, arrays);
  receipt::seal(r);
  return r;
}

}  // namespace tessera::run
