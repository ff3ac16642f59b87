// tessera/bridge.h: the jax_bridge lane: what JAX exported (`jax.export`), run
// through any PJRT plugin; attention or any other operation (docs/bridge.md).
//
//   auto spec = parse_bridge_spec(json);           // beside the artifact
//   auto lane = BridgeLane::open({});              // once
//   auto program = lane->prepare(artifact, *spec); // once an artifact
//   auto ran = program->run(inputs, outputs);
//
// Programs are JAX's, not ours: their key is the whole artifact with its
// shapes, which is more than a kernel contract. What JAX fixed at export (a
// mask, a length, a scale) is part of it, so another mask, length or scale is
// another compile.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/attention.h"
#include "tessera/batch.h"
#include "tessera/machine.h"
#include "tessera/result.h"

namespace tessera {

struct BridgeArray {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  // For an integer input that may be drawn: the least and the largest value.
  std::optional<std::pair<int64_t, int64_t>> range;
};

// An operation that says it is attention, so that it can be judged.
struct BridgeAttention {
  std::string mask;   // of the mask language
  bool bshd = false;  // the layout; else [batch, heads, tokens, dim]
  std::optional<double> scale;
  double softcap = 0;
  // Which array is what: "q", "k", "v", "out" and, where there are any, "lse",
  // "sink_logits", "picks", ids of queries ("q_same_a") and other facts by
  // their names ("doc_ids", "tree_enter", "same_a"): docs/bridge.md has all.
  std::map<std::string, std::string> roles;
};

// An operation that says it is JAX's Splash kernel with the arrays of its
// MaskInfo as arguments: one batch row of any mask, of these sizes.
struct BridgeSplash {
  Dtype dtype = Dtype::f32;
  AttentionShape shape;
  int64_t q_len = 0, kv_len = 0;
  int64_t block_q = 0, block_kv = 0;  // the tile
  int64_t mask_heads = 1;             // 1: one mask; else one a query head
  // Ceilings: tiles in a row of tiles; distinct partial tiles.
  int64_t width = 0, blocks = 0;
};

// What the file of shapes says about an artifact.
struct BridgeSpec {
  std::string name;       // "attention"
  std::string operation;  // any word
  int64_t artifact_bytes = 0;
  uint32_t artifact_crc32 = 0;
  std::string jax;  // its version
  int64_t calling_convention_version = 0;
  std::vector<std::string> platforms;  // that it was exported for
  bool platform_index = false;         // its first argument says which it is
  std::vector<BridgeArray> inputs, outputs;
  std::vector<int64_t> kept_inputs;  // those that the program really takes
  std::optional<BridgeAttention> attention;
  std::optional<BridgeSplash> splash;
};

Result<BridgeSpec> parse_bridge_spec(std::string_view json);

// A program and what its file of shapes says of it.
struct BridgeArtifact {
  std::string program;
  BridgeSpec spec;
};

// From a file, and the file of shapes beside it.
Result<BridgeArtifact> load_artifact(const std::string& path,
                                     const std::string& shapes_path);

// The array of that role, among inputs and outputs; null where there is none.
const BridgeArray* find_role(const BridgeSpec& spec, std::string_view role);

struct BridgeOptions {
  std::string plugin = "xla_cpu_pjrt";  // a path, a known name; "": this one
  int64_t device = 0;                   // its number among the plugin's
  // Compiled programs are kept here for other processes; empty: nowhere.
  std::string cache_folder;
  int64_t max_cache_bytes = kDefaultCacheBytes;
};

struct BridgeRun : CompileCounts {
  KernelContract contract;      // of the artifact and its shapes
  std::string artifact_digest;  // 32 hex digits
  double compile_ms = 0, transfer_ms = 0, run_ms = 0;
  std::vector<std::string> warnings;  // of the cache on disk
};

// Inputs of a program that stay on its device: sent once, read by any number of
// its runs.
class HeldInputs {
 public:
  HeldInputs() = default;      // none
  double transfer_ms() const;  // that sending them took

  struct State;
  const State* state() const { return state_.get(); }
  explicit HeldInputs(std::shared_ptr<const State> state)
      : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

// A compiled and checked artifact: a run sends inputs, executes, and reads
// outputs. Safe from any thread.
class BridgeProgram {
 public:
  BridgeProgram(BridgeProgram&&) noexcept;
  BridgeProgram& operator=(BridgeProgram&&) noexcept;
  ~BridgeProgram();

  const BridgeRun& prepared() const;  // its contract and compile
  // All of the spec's inputs and outputs, in its order; inputs that are held,
  // or that the program does not take, may be null.
  Result<BridgeRun> run(std::span<const void* const> inputs,
                        std::span<void* const> outputs,
                        const HeldInputs& held = {}) const;
  // Sends those of the inputs that are not null. The arrays need not stay.
  Result<HeldInputs> hold(std::span<const void* const> inputs) const;

  struct State;
  explicit BridgeProgram(std::shared_ptr<const State> state);

 private:
  std::shared_ptr<const State> state_;
};

class BridgeLane {
 public:
  // An error of the kind `unavailable` if there is no such plugin or device, or
  // if this build cannot load any.
  static Result<BridgeLane> open(const BridgeOptions& options);
  BridgeLane(BridgeLane&&) noexcept;
  BridgeLane& operator=(BridgeLane&&) noexcept;
  ~BridgeLane();

  const PluginPlace& place() const;

  // Checks that the artifact is that of the spec before the plugin sees it, and
  // its own shapes before it runs. Safe from any thread.
  Result<BridgeProgram> prepare(std::string_view artifact,
                                const BridgeSpec& spec) const;
  // One run of an artifact: prepared, and run.
  Result<BridgeRun> run(std::string_view artifact, const BridgeSpec& spec,
                        std::span<const void* const> inputs,
                        std::span<void* const> outputs) const;

  struct State;

 private:
  explicit BridgeLane(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

}  // namespace tessera
