// lanes/jax_bridge/lane.cc: an artifact is checked, compiled and run.
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/crc32.h"
#include "base/digest.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/timed.h"
#include "base/trace.h"
#include "pjrt/compile_cache.h"
#include "pjrt/place.h"
#include "tessera/bridge.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using pjrt::ArrayType;
using pjrt::HostArray;

constexpr std::string_view kWhere = "bridge";
constexpr std::string_view kMagic = "ML\xefR";  // of MLIR's bytecode

// Of what is kept under an artifact's key.
constexpr int64_t kKeyVersion = 1;

std::string digest_of(std::string_view bytes) {
  Digest digest;
  digest.add(bytes.data(), bytes.size());
  return digest.hex();
}

Result<void> check_artifact(std::string_view artifact, const BridgeSpec& spec) {
  const auto bytes = static_cast<int64_t>(artifact.size());
  if (bytes != spec.artifact_bytes) {
    return invalid(kWhere,
                   "the artifact must have the {} bytes that its shapes say, "
                   "found {}",
                   spec.artifact_bytes, bytes);
  }
  if (crc32(artifact) != spec.artifact_crc32) {
    return invalid(kWhere,
                   "the artifact must have the crc32 {} that its shapes say, "
                   "found {}",
                   spec.artifact_crc32, crc32(artifact));
  }
  if (!artifact.starts_with(kMagic)) {
    return invalid(kWhere,
                   "the artifact must be StableHLO as MLIR bytecode, found "
                   "bytes that begin with {}",
                   in_quotes(artifact.substr(0, kMagic.size())));
  }
  return {};
}

Json arrays_json(const std::vector<BridgeArray>& arrays) {
  Json out = Json::array();
  for (const BridgeArray& a : arrays) {
    out.push_back({{"dtype", to_string(a.dtype)}, {"shape", a.shape}});
  }
  return out;
}

// Names are no part of it: they change no program.
KernelContract contract_of(const std::string& digest, const BridgeSpec& spec,
                           std::string_view platform) {
  const Json text = {
      {"lane", "jax_bridge"},
      {"version", kKeyVersion},
      {"artifact", digest},
      {"artifact_bytes", spec.artifact_bytes},
      {"platform", platform},
      {"platforms", spec.platforms},
      {"platform_index", spec.platform_index},
      {"calling_convention_version", spec.calling_convention_version},
      {"inputs", arrays_json(spec.inputs)},
      {"kept_inputs", spec.kept_inputs},
      {"outputs", arrays_json(spec.outputs)},
  };
  KernelContract out;
  // Platforms are a stranger's words.
  out.text = text.dump(-1, ' ', false, Json::error_handler_t::replace);
  out.key = digest_of(out.text);
  return out;
}

ArrayType type_of(const BridgeArray& array) {
  return {array.dtype, array.shape};
}

// An argument of the program: an input, or the platform's index.
struct Argument {
  std::string name;
  HostArray array;
};

Result<void> check_program(const pjrt::Loaded& program,
                           const std::vector<Argument>& arguments,
                           const BridgeSpec& spec) {
  const auto& takes = program.inputs();
  if (takes && takes->size() != arguments.size()) {
    return invalid(kWhere,
                   "the program must take the {} arguments of its shapes "
                   "(kept inputs, and the platform's index where it has one), "
                   "found {}",
                   arguments.size(), takes->size());
  }
  for (size_t i = 0; takes && i < arguments.size(); ++i) {
    if ((*takes)[i] == arguments[i].array.type) continue;
    return invalid(kWhere,
                   "the program's input must be {} as its shapes say, found {} "
                   "for {}",
                   describe(arguments[i].array.type), describe((*takes)[i]),
                   in_quotes(arguments[i].name));
  }
  const auto& gives = program.outputs();
  if (gives.size() != spec.outputs.size()) {
    return invalid(kWhere,
                   "the program must give the {} outputs of its shapes, found "
                   "{}",
                   spec.outputs.size(), gives.size());
  }
  for (size_t i = 0; i < gives.size(); ++i) {
    const ArrayType said = type_of(spec.outputs[i]);
    if (gives[i] == said) continue;
    return invalid(kWhere,
                   "the program's output must be {} as its shapes say, found "
                   "{} for {}",
                   describe(said), describe(gives[i]),
                   in_quotes(spec.outputs[i].name));
  }
  return {};
}

}  // namespace

struct BridgeLane::State {
  pjrt::Place on;
  XlaPlace place;  // the same, in words
  mutable pjrt::CompileCache cache;

  State(const BridgeOptions& o, const pjrt::Place& where)
      : on(where),
        place(describe(where)),
        cache({.folder = o.cache_folder,
               .max_bytes = o.max_cache_bytes,
               .max_programs = 256,
               .max_compiles = 0}) {}

  Result<std::vector<Argument>> arguments(const BridgeSpec& spec,
                                          std::span<const void* const> inputs,
                                          const int32_t& index) const;
};

// The index goes first; `index` has it, and outlives the arguments.
Result<std::vector<Argument>> BridgeLane::State::arguments(
    const BridgeSpec& spec, std::span<const void* const> inputs,
    const int32_t& index) const {
  std::vector<Argument> out;
  if (spec.platform_index) {
    out.push_back({"the platform's index", {{Dtype::i32, {}}, &index}});
  }
  for (const int64_t kept : spec.kept_inputs) {
    const auto i = static_cast<size_t>(kept);
    if (i >= spec.inputs.size()) {
      return invalid(kWhere, "a kept input must be one of {}, found {}",
                     spec.inputs.size(), kept);
    }
    out.push_back({spec.inputs[i].name, {type_of(spec.inputs[i]), inputs[i]}});
  }
  return out;
}

BridgeLane::BridgeLane(std::unique_ptr<State> state)
    : state_(std::move(state)) {}
BridgeLane::BridgeLane(BridgeLane&&) noexcept = default;
BridgeLane& BridgeLane::operator=(BridgeLane&&) noexcept = default;
BridgeLane::~BridgeLane() = default;

const XlaPlace& BridgeLane::place() const { return state_->place; }

Result<BridgeLane> BridgeLane::open(const BridgeOptions& options) {
  auto place = pjrt::open_place(options.plugin, options.device);
  if (!place) return place.error();
  return BridgeLane(std::make_unique<State>(options, *place));
}

Result<BridgeRun> BridgeLane::run(std::string_view artifact,
                                  const BridgeSpec& spec,
                                  std::span<const void* const> inputs,
                                  std::span<void* const> outputs) const {
  const TraceSpan span("bridge", "run");
  const State& s = *state_;
  if (inputs.size() != spec.inputs.size() ||
      outputs.size() != spec.outputs.size()) {
    return invalid(
        kWhere, "there must be {} inputs and {} outputs, found {} and {}",
        spec.inputs.size(), spec.outputs.size(), inputs.size(), outputs.size());
  }
  if (auto ok = check_artifact(artifact, spec); !ok) return ok.error();
  const auto platform =
      std::find(spec.platforms.begin(), spec.platforms.end(), s.place.platform);
  if (platform == spec.platforms.end()) {
    return invalid(
        kWhere,
        "the artifact must be exported for the plugin's platform "
        "{}, found {}",
        in_quotes(s.place.platform),
        spec.platforms.empty()
            ? "none"
            : in_quotes(fmt::format("{}", fmt::join(spec.platforms, ", "))));
  }
  const auto index = static_cast<int32_t>(platform - spec.platforms.begin());
  auto arguments = s.arguments(spec, inputs, index);
  if (!arguments) return arguments.error();

  BridgeRun out;
  out.artifact_digest = digest_of(artifact);
  out.contract = contract_of(out.artifact_digest, spec, s.place.platform);
  auto program = timed(out.compile_ms, [&] {
    return s.cache.get(
        *s.on.client, *s.on.device, {out.contract.key, out.contract.text},
        [&] { return Result<std::string>(std::string(artifact)); });
  });
  if (!program) return program.error();
  out.compiles = program->found == pjrt::Found::compiled;
  out.memory_hits = program->found == pjrt::Found::memory;
  out.disk_hits = program->found == pjrt::Found::disk;
  out.warnings = program->warnings;
  const pjrt::Loaded& loaded = *program->program;
  if (auto ok = check_program(loaded, *arguments, spec); !ok) {
    return ok.error();
  }

  std::vector<HostArray> arrays;
  arrays.reserve(arguments->size());
  for (const Argument& a : *arguments) arrays.push_back(a.array);
  auto results =
      pjrt::send_and_execute(loaded, arrays, out.transfer_ms, out.run_ms);
  if (!results) return results.error();
  auto read = timed(out.transfer_ms, [&]() -> Result<void> {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const pjrt::Buffer& from = (*results)[i];
      auto bytes = pjrt::byte_size(from.type());
      if (!bytes) return bytes.error();
      auto ok = pjrt::to_host(from, outputs[i], *bytes);
      if (!ok) return ok;
    }
    return {};
  });
  if (!read) return read.error();
  return out;
}

}  // namespace tessera
