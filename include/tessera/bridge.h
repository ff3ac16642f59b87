// tessera/bridge.h: lane jax_bridge, which runs artifacts of `jax.export`
// through any PJRT plugin: attention or any other operation (docs/bridge.md).
//
//   auto spec = parse_bridge_spec(json);           // beside the artifact
//   auto lane = BridgeLane::open({});              // once
//   auto program = lane->prepare(artifact, *spec); // once per artifact
//   auto ran = program->run(inputs, outputs);
//
// The cache key of such a program is the whole artifact with its shapes, not a
// kernel contract. Everything that JAX fixed at export (mask, length, scale) is
// part of the artifact, so another mask, length or scale needs another compile.
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
  // The least and largest value, for an integer input that may be drawn at
  // random.
  std::optional<std::pair<int64_t, int64_t>> range;
};

// Declares that an operation is attention, so that its results can be judged.
struct BridgeAttention {
  std::string mask;   // in the mask language
  bool bshd = false;  // layout [batch, tokens, heads, dim], else [b, h, t, d]
  std::optional<double> scale;
  double softcap = 0;
  // The array name of each role: "q", "k", "v", "out" and, if present, "lse",
  // "sink_logits", "picks", ids of queries ("q_same_a") and other facts by name
  // ("doc_ids", "tree_enter", "same_a"). docs/bridge.md lists all roles.
  std::map<std::string, std::string> roles;
};

// Declares that an operation is JAX's Splash kernel with the arrays of its
// MaskInfo as arguments. It takes one batch row of any mask, of these sizes.
struct BridgeSplash {
  Dtype dtype = Dtype::f32;
  AttentionShape shape;
  int64_t q_len = 0, kv_len = 0;
  int64_t block_q = 0, block_kv = 0;  // the tile
  int64_t mask_heads = 1;             // 1: one mask; else one per query head
  // Ceilings of the tiles in a tile row, and of distinct partial tiles.
  int64_t width = 0, blocks = 0;
};

// The content of the file of shapes of an artifact.
struct BridgeSpec {
  std::string name;       // "attention"
  std::string operation;  // any word
  int64_t artifact_bytes = 0;
  uint32_t artifact_crc32 = 0;
  std::string jax;  // version of JAX
  int64_t calling_convention_version = 0;
  std::vector<std::string> platforms;  // platforms that it was exported for
  bool platform_index = false;  // the first argument is an index into platforms
  std::vector<BridgeArray> inputs, outputs;
  std::vector<int64_t> kept_inputs;  // indices of the inputs that it reads
  std::optional<BridgeAttention> attention;
  std::optional<BridgeSplash> splash;
};

Result<BridgeSpec> parse_bridge_spec(std::string_view json);

// A program and its file of shapes.
struct BridgeArtifact {
  std::string program;
  BridgeSpec spec;
};

// Loads an artifact from its file and its file of shapes.
Result<BridgeArtifact> load_artifact(const std::string& path,
                                     const std::string& shapes_path);

// The input or output with that role; null if there is none.
const BridgeArray* find_role(const BridgeSpec& spec, std::string_view role);

struct BridgeOptions {
  // A path or a known plugin's name; "": xla_cpu_pjrt.
  std::string plugin = "xla_cpu_pjrt";
  int64_t device = 0;  // index among the plugin's devices
  // The folder of the cache of compiled programs, which processes share. Empty:
  // no cache on disk.
  std::string cache_folder;
  int64_t max_cache_bytes = kDefaultCacheBytes;
};

struct BridgeRun : CompileCounts {
  KernelContract contract;      // of artifact and shapes
  std::string artifact_digest;  // 32 hex digits
  double compile_ms = 0, transfer_ms = 0, run_ms = 0;
  std::vector<std::string> warnings;  // of the cache on disk
};

// Inputs of a program that stay on its device: sent once and read by any number
// of its runs.
class HeldInputs {
 public:
  HeldInputs() = default;      // no inputs
  double transfer_ms() const;  // time of sending them

  struct State;
  const State* state() const { return state_.get(); }
  explicit HeldInputs(std::shared_ptr<const State> state)
      : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

// A checked and compiled artifact. A run sends inputs, executes the program and
// reads outputs. Any thread may call it.
class BridgeProgram {
 public:
  BridgeProgram(BridgeProgram&&) noexcept;
  BridgeProgram& operator=(BridgeProgram&&) noexcept;
  ~BridgeProgram();

  const BridgeRun& prepared() const;  // contract and compile of prepare()
  // Takes all inputs and outputs of the spec, in its order. Inputs that are
  // held, or that the program does not read, may be null.
  Result<BridgeRun> run(std::span<const void* const> inputs,
                        std::span<void* const> outputs,
                        const HeldInputs& held = {}) const;
  // Sends the inputs that are not null. The caller may free the arrays after
  // the call.
  Result<HeldInputs> hold(std::span<const void* const> inputs) const;

  struct State;
  explicit BridgeProgram(std::shared_ptr<const State> state);

 private:
  std::shared_ptr<const State> state_;
};

class BridgeLane {
 public:
  // An error of kind `unavailable` if there is no such plugin or device, or if
  // this build cannot load plugins.
  static Result<BridgeLane> open(const BridgeOptions& options);
  BridgeLane(BridgeLane&&) noexcept;
  BridgeLane& operator=(BridgeLane&&) noexcept;
  ~BridgeLane();

  const PluginPlace& place() const;

  // Checks that the artifact is that of the spec before it passes it to the
  // plugin, and checks the artifact's own shapes before it runs. Any thread may
  // call it.
  Result<BridgeProgram> prepare(std::string_view artifact,
                                const BridgeSpec& spec) const;
  // Prepares an artifact and runs it once.
  Result<BridgeRun> run(std::string_view artifact, const BridgeSpec& spec,
                        std::span<const void* const> inputs,
                        std::span<void* const> outputs) const;

  struct State;

 private:
  explicit BridgeLane(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

}  // namespace tessera
