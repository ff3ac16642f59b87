// lanes/jax_bridge/lane.cc: checks, compiles and runs an artifact.
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/crc32.h"
#include "base/digest.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/timed.h"
#include "base/trace.h"
#include "lanes/jax_bridge/attention.h"
#include "pjrt/compile_cache.h"
#include "pjrt/locate.h"
#include "pjrt/place.h"
#include "tessera/bridge.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using pjrt::ArrayType;
using pjrt::HostArray;

constexpr std::string_view kWhere = "bridge";
constexpr std::string_view kMagic = "ML\xefR";  // of MLIR's bytecode

// Version of the cache entries of artifacts.
constexpr int64_t kKeyVersion = 1;

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

// The contract of an artifact, without array names: they change no program.
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
  // Platform names are untrusted: they may not be valid UTF-8.
  out.text = text.dump(-1, ' ', false, Json::error_handler_t::replace);
  out.key = digest_of(out.text);
  return out;
}

ArrayType type_of(const BridgeArray& array) {
  return {array.dtype, array.shape};
}

// An argument of the program: an input, or the index of the platform.
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
  PluginPlace place;  // the same, in words
  mutable pjrt::CompileCache cache;

  State(const BridgeOptions& o, const pjrt::Place& where)
      : on(where),
        place(describe(where)),
        cache({.folder = o.cache_folder,
               .max_bytes = o.max_cache_bytes,
               .max_programs = 256,
               .max_compiles = 0}) {}
};

struct HeldInputs::State {
  std::shared_ptr<const BridgeProgram::State> of;
  std::vector<std::optional<pjrt::Buffer>> buffers;  // in the spec's order
  double transfer_ms = 0;
};

double HeldInputs::transfer_ms() const {
  return state_ ? state_->transfer_ms : 0;
}

struct BridgeProgram::State {
  std::shared_ptr<const BridgeLane::State> lane;
  BridgeSpec spec;
  int32_t index = 0;  // of the platform in the artifact's list
  std::shared_ptr<const pjrt::Loaded> program;
  BridgeRun prepared;

  Result<std::vector<Argument>> arguments(
      std::span<const void* const> inputs,
      const HeldInputs::State* held = nullptr) const;
};

// The arguments in the program's order. The index of the platform goes first.
Result<std::vector<Argument>> BridgeProgram::State::arguments(
    std::span<const void* const> inputs, const HeldInputs::State* held) const {
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
    const pjrt::Buffer* const sent =
        held && held->buffers[i] ? &*held->buffers[i] : nullptr;
    out.push_back(
        {spec.inputs[i].name, {type_of(spec.inputs[i]), inputs[i], sent}});
  }
  return out;
}

BridgeProgram::BridgeProgram(std::shared_ptr<const State> state)
    : state_(std::move(state)) {}
BridgeProgram::BridgeProgram(BridgeProgram&&) noexcept = default;
BridgeProgram& BridgeProgram::operator=(BridgeProgram&&) noexcept = default;
BridgeProgram::~BridgeProgram() = default;

const BridgeRun& BridgeProgram::prepared() const { return state_->prepared; }

Result<HeldInputs> BridgeProgram::hold(
    std::span<const void* const> inputs) const {
  const TraceSpan span("bridge", "hold");
  const State& s = *state_;
  if (inputs.size() != s.spec.inputs.size()) {
    return invalid(kWhere, "there must be {} inputs, found {}",
                   s.spec.inputs.size(), inputs.size());
  }
  auto out = std::make_shared<HeldInputs::State>();
  out->of = state_;
  out->buffers.resize(inputs.size());
  auto sent = timed(out->transfer_ms, [&]() -> Result<void> {
    for (const int64_t kept : s.spec.kept_inputs) {
      const auto i = static_cast<size_t>(kept);
      if (!inputs[i]) continue;
      auto buffer = pjrt::to_device(s.program->client(), s.program->device(),
                                    type_of(s.spec.inputs[i]), inputs[i],
                                    pjrt::DataStays::during_call);
      if (!buffer) return buffer.error();
      out->buffers[i] = std::move(*buffer);
    }
    return {};
  });
  if (!sent) return sent.error();
  return HeldInputs(std::move(out));
}

Result<BridgeRun> BridgeProgram::run(std::span<const void* const> inputs,
                                     std::span<void* const> outputs,
                                     const HeldInputs& held) const {
  const TraceSpan span("bridge", "run");
  const State& s = *state_;
  if (auto e = bridge::check_counts(s.spec, inputs.size(), outputs.size());
      !e) {
    return e.error();
  }
  if (held.state() && held.state()->of != state_) {
    return invalid(kWhere,
                   "held inputs must be this program's, found another's");
  }
  auto arguments = s.arguments(inputs, held.state());
  if (!arguments) return arguments.error();
  BridgeRun out = s.prepared;
  std::vector<HostArray> arrays;
  arrays.reserve(arguments->size());
  for (const Argument& a : *arguments) arrays.push_back(a.array);
  auto results =
      pjrt::send_and_execute(*s.program, arrays, out.transfer_ms, out.run_ms);
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

BridgeLane::BridgeLane(std::shared_ptr<const State> state)
    : state_(std::move(state)) {}
BridgeLane::BridgeLane(BridgeLane&&) noexcept = default;
BridgeLane& BridgeLane::operator=(BridgeLane&&) noexcept = default;
BridgeLane::~BridgeLane() = default;

const PluginPlace& BridgeLane::place() const { return state_->place; }

Result<BridgeLane> BridgeLane::open(const BridgeOptions& options) {
  auto place =
      pjrt::open_place(pjrt::cpu_plugin(options.plugin), options.device);
  if (!place) return place.error();
  return BridgeLane(std::make_shared<State>(options, *place));
}

Result<BridgeProgram> BridgeLane::prepare(std::string_view artifact,
                                          const BridgeSpec& spec) const {
  const TraceSpan span("bridge", "prepare");
  const State& s = *state_;
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
  auto out = std::make_unique<BridgeProgram::State>();
  out->lane = state_;
  out->spec = spec;
  out->index = static_cast<int32_t>(platform - spec.platforms.begin());
  const std::vector<const void*> none(spec.inputs.size(), nullptr);
  auto arguments = out->arguments(none);
  if (!arguments) return arguments.error();

  BridgeRun& did = out->prepared;
  did.artifact_digest = digest_of(artifact);
  did.contract = contract_of(did.artifact_digest, spec, s.place.platform);
  auto program = timed(did.compile_ms, [&] {
    return s.cache.get(
        *s.on.client, *s.on.device, {did.contract.key, did.contract.text},
        [&] { return Result<std::string>(std::string(artifact)); });
  });
  if (!program) return program.error();
  did.add_compiles(pjrt::counts_of(program->found));
  did.warnings = program->warnings;
  out->program = std::move(program->program);
  if (auto ok = check_program(*out->program, *arguments, spec); !ok) {
    return ok.error();
  }
  return BridgeProgram(std::move(out));
}

Result<BridgeRun> BridgeLane::run(std::string_view artifact,
                                  const BridgeSpec& spec,
                                  std::span<const void* const> inputs,
                                  std::span<void* const> outputs) const {
  if (auto e = bridge::check_counts(spec, inputs.size(), outputs.size()); !e) {
    return e.error();
  }
  auto program = prepare(artifact, spec);
  if (!program) return program.error();
  return program->run(inputs, outputs);
}

}  // namespace tessera
