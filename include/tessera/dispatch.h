// tessera/dispatch.h: which lane runs a request, and why not the others
// (docs/dispatch.md).
//
//   auto choice = choose(features_of(request, facts, shape, call),
//                        plan_facts(plan), this_machine());
//
// choose() is pure: what it knows of a machine is a plain struct, which may
// describe one that is not here.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/attention.h"
#include "tessera/bridge.h"
#include "tessera/facts.h"
#include "tessera/machine.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera {

enum class LaneId : uint8_t {
  cpu,
  xla,
  mosaic,
  jax_bridge,
  splash,
  cuda,
  reference
};
std::string_view to_string(LaneId lane);
Result<LaneId> parse_lane(std::string_view text);

// What a lane is and can do on the right machine.
struct LaneFacts {
  LaneId lane = LaneId::cpu;
  std::string_view about;        // one line
  std::string_view absent = {};  // why this version has none; else empty
  bool needs_plugin = false;     // a PJRT plugin, of `platform` if that is set
  std::string_view platform = {};
  bool known_chips = false;  // its TPUs are those of tessera/machine.h
  uint32_t atoms = 0;        // bits by Atom
  bool any_words = false;    // masks with | and !; else atoms joined by &
  uint32_t dtypes = 0;       // bits by Dtype
  int64_t dim_step = 8, max_dim = 256;  // head dims: multiples, up to
  int64_t tile_step = 0, max_tile = 0;  // sides of tiles; 0: any
  double min_scale = 0, max_scale = 0;  // and of a softcap; 0 and 0: any
  bool backward = false, softcap = false, sink_logits = false;
  bool masks_by_head = false;  // more than one mask
  bool sink_telemetry = false;
  bool meshes = false;    // it spreads a call over several devices
  int64_t max_pairs = 0;  // scores of all heads; 0: any
  bool automatic = true;  // chosen without being asked for
  // It computes what the request means; a lane of artifacts computes what its
  // artifact holds, so nothing falls back to it.
  bool same_meaning = true;
};
std::span<const LaneFacts> lane_registry();
const LaneFacts& facts_of(LaneId lane);

// Whose code runs: "native", "reference", "tpu/mosaic", "tpu/jax",
// "tpu/splash", "tpu/xla", "cuda" or "xla". `platform` is the plugin's, where
// the lane has one.
std::string lane_family(LaneId lane, std::string_view platform);

// What one call asks of a lane, beside request and facts.
struct CallFeatures {
  Dtype dtype = Dtype::f32;
  bool sink_logits = false;
  bool backward = false;
  bool compile_only = false;     // nothing is to run
  bool bridge_artifact = false;  // the caller has one for this request
  bool sink_telemetry = false;   // it will be asked for telemetry
  // What Splash's kernel was exported for, where the caller has it.
  std::optional<BridgeSplash> splash = {};
  int64_t devices = 1;             // of the mesh that the call is spread over
  Numbers numbers = Numbers::any;  // that TPU kernels of ours are to take
  // The platforms that the artifact, of either kind, was exported for: "tpu".
  // It runs on no other.
  std::vector<std::string> artifact_platforms = {};
};

// The first that holds decides where a request belongs.
enum class RequestClass : uint8_t {
  sparse_blocks,  // documents, segments, blocks, routed, tree, same
  custom,         // a window or a softcap
  plain_causal,   // `causal` alone
  other,
};
std::string_view to_string(RequestClass c);

struct RequestFeatures {
  uint32_t atoms = 0;  // bits by Atom, of all masks as they were written
  bool only_and = true;
  RequestClass request_class = RequestClass::other;
  int64_t plan_heads = 1;
  int64_t batch = 1, q_len = 0, kv_len = 0;
  Tile tile;
  AttentionShape shape;
  CallFeatures call;
  int64_t masks = 1;  // plan heads may be more, where heads pick
};
// `present` only says which facts there are, and the heads of picks.
RequestFeatures features_of(const Request& request, const Facts& present,
                            const AttentionShape& shape,
                            const CallFeatures& call);

struct PlanFacts {
  int64_t tiles = 0, active = 0;
  int64_t widest_row = 0;  // active tiles of its longest row; 0: not told
  double density() const {
    return tiles > 0 ? static_cast<double>(active) / static_cast<double>(tiles)
                     : 0;
  }
};
PlanFacts plan_facts(const Plan& plan);

// A gate's table has our kernels, each judged by fp64 and then compared with
// XLA's programs. A verdict is over all rows of a kernel on one machine, or for
// one generation of TPUs.
enum class GateVerdict : uint8_t {
  promote,
  experimental,     // it wins in few shape classes
  drop,             // it wins in none: ties and losses
  wrong,            // an output was out of bounds: never chosen
  unjudged,         // timed, but not all that was timed was judged
  out_of_hot_loop,  // it needs a choice of shape each step: never chosen
  unmeasured
};
std::string_view to_string(GateVerdict v);  // "delete" for drop
// Whether the output of a row lay within the bounds of the fp64 judge.
enum class GateJudgement : uint8_t { passed, wrong, unjudged };
std::string_view to_string(GateJudgement j);
// Times that `tessera gate` took, or cycles of the vendor's schedule.
enum class GateBasis : uint8_t { measured, predicted };
std::string_view to_string(GateBasis b);
struct GateRow {
  std::string kernel;  // "cpu/forward"
  LaneId lane = LaneId::cpu;
  GateBasis basis = GateBasis::measured;
  // The machine that the row speaks for, a Machine::key(). A predicted row
  // speaks for every machine whose TPUs are of the generation, "v6e". The other
  // is empty.
  std::string machine, generation;
  RequestClass request_class = RequestClass::other;
  std::string mask;  // what was measured
  bool backward = false;
  Dtype dtype = Dtype::f32;
  int64_t q_len = 0, kv_len = 0;
  AttentionShape shape;
  double density = 0;        // at the request's own tile
  std::optional<Tile> tile;  // the kernel's, where it is known
  // Figures of the row's basis; absent where nothing ran, or nothing was
  // predicted.
  std::optional<double> kernel_ms, plain_ms, kernel_cycles, plain_cycles;
  // For cycles, at least 1: two predictions that differ by less are a tie.
  std::optional<double> error_bar;
  XlaMethod plain = XlaMethod::dense;  // the fastest of XLA's
  std::optional<double> factor;        // plain over kernel
  GateJudgement judgement = GateJudgement::unjudged;
  std::optional<double> error;  // the worst, as a share of its bound
  bool shape_per_step = false;  // the kernel needs a choice of shape each step
  GateVerdict verdict = GateVerdict::unmeasured;  // its kernel's
  std::string why;  // why no figures or no judgement; or how it was judged
};
struct GateTable {
  std::vector<GateRow> rows;
};
// A measured row wins above this factor, a predicted one above its error bar;
// less is a tie or a loss.
inline constexpr double kWinFactor = 1.10;
bool wins(const GateRow& row);
// A kernel that wins in fewer shape classes than this, or in fewer than half of
// those that were measured, is experimental, however large its wins. A shape
// class is what a row speaks for, without the direction. It wins if all its
// rows win.
inline constexpr int64_t kFewShapeClasses = 3;
inline constexpr double kMaxGateError = 1e300;
// Gives each row the verdict of its kernel on its machine or generation.
void set_verdicts(GateTable& table);
// 0 for all tiles, 1 for more than half of them, 2 for more than a quarter, ...
int density_class(double density);
// Whether a row is of this machine, or of the generation of its device.
bool speaks_for(const GateRow& row, const Machine& machine);
// Whether the row says something about this request on this machine.
bool applies(const GateRow& row, const RequestFeatures& features,
             const PlanFacts& plan, const Machine& machine);
// Whether the row's kernel keeps the lane from being chosen for this request.
bool bars(const GateRow& row, LaneId lane, const RequestFeatures& features,
          const Machine& machine);

// A class must be that of the row's mask and softcap, and a table must have a
// row.
Result<GateTable> parse_gate(std::string_view json);
std::string gate_json(const GateTable& table);

// What a table is measured on: every class of request at these lengths, and
// decode of one query over so many keys.
struct GateSizes {
  std::vector<int64_t> tokens = {1024, 4096};
  std::vector<Dtype> dtypes = {Dtype::f32, Dtype::bf16};
  int64_t heads = 8, head_dim = 128;
  std::vector<int64_t> decode_keys = {2048, 8192};
  std::optional<BridgeArtifact> artifact = {};  // Splash's kernel, of its sizes
};
struct GateMeasured {
  GateTable table;
  std::string plugin;  // whose compiler plain XLA is, or why there is none
};
// Judges each kernel of ours by fp64, then times it in turns with plain XLA on
// this machine; the least of `rounds` times counts. `plugin` compiles plain
// XLA. Absent: that of the first device, else xla_cpu_pjrt; where that is
// missing, rows are unmeasured. `progress` is told the share done, 0 to 1.
Result<GateMeasured> measure_gate(
    const GateSizes& sizes, int64_t rounds,
    const std::optional<std::string>& plugin, const Machine& machine,
    const std::function<void(double)>& progress = {});

// A row of the table of thresholds (docs/dispatch.md). Most rows say: on the
// platform, for calls of the direction, the lane runs what the plan lists if
// the longer of both lengths is above `beyond_tokens` (for xla, q_len where the
// plan skips nothing) and the share of active tiles is below `below_density`.
// One row is for what no such row takes, up to
// `up_to_tokens`: xla's program of all scores at a time. Rows without a
// threshold are for what was given by name, and for the last resort.
struct DispatchRule {
  std::string_view name;
  LaneId lane = LaneId::cpu;
  std::string_view platform = {};   // empty: any
  std::string_view direction = {};  // forward, backward (of both); empty: any
  int64_t beyond_tokens = 0;
  int64_t up_to_tokens = 0;                  // 0: any
  std::optional<double> below_density = {};  // none: any share
  std::string_view source = {};              // what says so
  // What its source was measured or predicted on, if anything: a generation of
  // TPUs, a CPU's model.
  std::string_view generation = {}, cpu = {};
};
std::span<const DispatchRule> dispatch_rules();
// The row's source. For predictions also what was checked of them, and on a
// machine that the source is not about, from what the threshold is borrowed.
std::string source_words(const DispatchRule& rule, const Machine& machine);

struct Rejected {
  LaneId lane;
  std::string reason;
};
struct Choice {
  LaneId lane = LaneId::cpu;
  std::string plugin;  // of a lane that needs one
  XlaMethod method = XlaMethod::worklist;
  RequestClass request_class = RequestClass::other;
  std::string reason;
  std::vector<Rejected> rejected;  // every other lane
  // The gate's rows that decided, in the order in which they were asked: the
  // one that speaks for the request, then one for each lane that is kept out.
  // The same choice follows from these alone.
  std::vector<GateRow> gate;
  // The threshold row that decided, unless the gate's first row did.
  const DispatchRule* rule = nullptr;
};

// If no lane can run the request, an error says what each lane lacks. With
// `forced`, that lane or an error.
Result<Choice> choose(const RequestFeatures& features, const PlanFacts& plan,
                      const Machine& machine, const GateTable& gate = {},
                      std::optional<LaneId> forced = {});

// Why the lane cannot run such a request; nothing if it can. What it needs of a
// plan is checked against `plan`.
std::optional<std::string> why_not(LaneId lane, const RequestFeatures& features,
                                   const Machine& machine,
                                   const PlanFacts& plan = {});

}  // namespace tessera
