// tessera/dispatch.h: which lane runs a request, and why each other lane does
// not (docs/dispatch.md).
//
//   auto choice = choose(features_of(request, facts, shape, call),
//                        plan_facts(plan), this_machine());
//
// choose() is pure. Its Machine is a plain struct, which may describe another
// machine than this one.
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

// The requirements of a lane, and its abilities on a machine that meets them.
struct LaneFacts {
  LaneId lane = LaneId::cpu;
  std::string_view about;        // one line
  std::string_view absent = {};  // why this version lacks the lane; else empty
  bool needs_plugin = false;     // needs a PJRT plugin
  std::string_view platform = {};  // the platform that it needs; empty: any
  bool known_chips = false;        // runs only on TPUs of tessera/machine.h
  uint32_t atoms = 0;              // bit set by Atom
  bool any_words = false;          // masks with | and !; false: only with &
  uint32_t dtypes = 0;             // bit set by Dtype
  int64_t dim_step = 8, max_dim = 256;  // head dims: multiples of step, to max
  int64_t tile_step = 0, max_tile = 0;  // tile sides: the same; 0: any
  double min_scale = 0, max_scale = 0;  // of scale and softcap; 0 and 0: any
  bool backward = false, softcap = false, sink_logits = false;
  bool masks_by_head = false;  // accepts more than one mask
  bool sink_telemetry = false;
  bool meshes = false;    // can spread a call over several devices
  int64_t max_pairs = 0;  // the most scores of all heads; 0: any
  bool automatic = true;  // may be chosen without being named
  // The lane computes the meaning of the request. False for a lane of
  // artifacts, which computes what its artifact holds; it is never a fallback.
  bool same_meaning = true;
};
std::span<const LaneFacts> lane_registry();
const LaneFacts& facts_of(LaneId lane);

// The kind of code that runs: "native", "reference", "tpu/mosaic", "tpu/jax",
// "tpu/splash", "tpu/xla", "cuda" or "xla". `platform` is that of the lane's
// plugin, if it has one.
std::string lane_family(LaneId lane, std::string_view platform);

// What a call requires of a lane besides its request and facts.
struct CallFeatures {
  Dtype dtype = Dtype::f32;
  bool sink_logits = false;
  bool backward = false;
  bool compile_only = false;     // the call is compiled but not run
  bool bridge_artifact = false;  // the caller has an artifact for this request
  bool sink_telemetry = false;   // telemetry will be requested
  // The sizes of the caller's artifact of Splash's kernel, if any.
  std::optional<BridgeSplash> splash = {};
  int64_t devices = 1;             // devices of the call's mesh
  Numbers numbers = Numbers::any;  // for Tessera's TPU kernels
  // The platforms that the artifact, of either kind, was exported for ("tpu").
  // It runs on no other platform.
  std::vector<std::string> artifact_platforms = {};
};

// A request has the first class that applies.
enum class RequestClass : uint8_t {
  sparse_blocks,  // documents, segments, blocks, routed, tree, same
  custom,         // a window or a softcap
  plain_causal,   // `causal` alone
  other,
};
std::string_view to_string(RequestClass c);

struct RequestFeatures {
  uint32_t atoms = 0;    // bit set by Atom over all masks as written
  bool only_and = true;  // no mask has | or !
  RequestClass request_class = RequestClass::other;
  int64_t plan_heads = 1;
  int64_t batch = 1, q_len = 0, kv_len = 0;
  Tile tile;
  AttentionShape shape;
  CallFeatures call;
  int64_t masks = 1;  // if picks differ by head, plan_heads may be larger
};
// Of `present` only the presence of each fact and the heads of picks are read.
RequestFeatures features_of(const Request& request, const Facts& present,
                            const AttentionShape& shape,
                            const CallFeatures& call);

struct PlanFacts {
  int64_t tiles = 0, active = 0;
  int64_t widest_row = 0;  // active tiles of the widest row; 0: unknown
  double density() const {
    return tiles > 0 ? static_cast<double>(active) / static_cast<double>(tiles)
                     : 0;
  }
};
PlanFacts plan_facts(const Plan& plan);

// A gate's table has rows for Tessera's kernels: each kernel's output is judged
// against fp64, and its time is compared with that of XLA's programs. A verdict
// covers all rows of a kernel on one machine, or for one generation of TPUs.
enum class GateVerdict : uint8_t {
  promote,
  experimental,     // the kernel wins in few shape classes
  drop,             // the kernel wins in none: only ties and losses
  wrong,            // an output was out of bounds: the kernel is never chosen
  unjudged,         // some timed output was not judged
  out_of_hot_loop,  // needs a choice of shape at each step: never chosen
  unmeasured
};
std::string_view to_string(GateVerdict v);  // `drop` is "delete"
// Whether the output of a row was within the error bounds against fp64.
enum class GateJudgement : uint8_t { passed, wrong, unjudged };
std::string_view to_string(GateJudgement j);
// measured: times that `tessera gate` took. predicted: cycles of the schedule
// of the vendor's compiler.
enum class GateBasis : uint8_t { measured, predicted };
std::string_view to_string(GateBasis b);
struct GateRow {
  std::string kernel;  // "cpu/forward"
  LaneId lane = LaneId::cpu;
  GateBasis basis = GateBasis::measured;
  // A measured row holds for the machine with this Machine::key(); a predicted
  // row holds for every machine whose TPUs are of `generation`, "v6e". The
  // other string is empty.
  std::string machine, generation;
  RequestClass request_class = RequestClass::other;
  std::string mask;  // the measured mask
  bool backward = false;
  Dtype dtype = Dtype::f32;
  int64_t q_len = 0, kv_len = 0;
  AttentionShape shape;
  double density = 0;        // at the request's own tile
  std::optional<Tile> tile;  // the kernel's tile, if known
  // A measured row has times, a predicted row cycles. Absent if nothing ran or
  // was predicted.
  std::optional<double> kernel_ms, plain_ms, kernel_cycles, plain_cycles;
  // Predicted rows only: a factor of at least 1. Predictions that differ by a
  // smaller factor are a tie.
  std::optional<double> error_bar;
  XlaMethod plain = XlaMethod::dense;  // the fastest of XLA's programs
  std::optional<double> factor;        // XLA's figure / the kernel's figure
  GateJudgement judgement = GateJudgement::unjudged;
  std::optional<double> error;  // the largest error / bound
  bool shape_per_step = false;  // the kernel needs a choice of shape each step
  GateVerdict verdict = GateVerdict::unmeasured;  // verdict of the kernel
  std::string why;  // why figures or judgement are absent, or how it was judged
};
struct GateTable {
  std::vector<GateRow> rows;
};
// A measured row wins if its factor is above kWinFactor, a predicted row if its
// factor is above its error bar. Otherwise the row is a tie or a loss.
inline constexpr double kWinFactor = 1.10;
bool wins(const GateRow& row);
// A kernel that wins in fewer shape classes than this, or in fewer than half of
// those that were measured, is experimental. A shape class is the set of
// requests that a row applies to, without the direction. The kernel wins in a
// shape class if all rows of the class win.
inline constexpr int64_t kFewShapeClasses = 3;
inline constexpr double kMaxGateError = 1e300;
// Sets in each row the verdict of its kernel on its machine or generation.
void set_verdicts(GateTable& table);
// 0 if all tiles are active, 1 for more than half of them, 2 for more than a
// quarter, ..., at most 11.
int density_class(double density);
// Whether a row is for this machine, or for the generation of its device.
bool speaks_for(const GateRow& row, const Machine& machine);
// Whether the row can decide this request on this machine: machine, shape
// class, direction and density match, and it has figures and a verdict.
bool applies(const GateRow& row, const RequestFeatures& features,
             const PlanFacts& plan, const Machine& machine);
// Whether the row keeps the lane from being chosen for this request, because
// its kernel is `wrong` or `out_of_hot_loop`.
bool bars(const GateRow& row, LaneId lane, const RequestFeatures& features,
          const Machine& machine);

// Parses a table. Each row's class must be that of its mask and softcap, and
// there must be at least one row.
Result<GateTable> parse_gate(std::string_view json);
std::string gate_json(const GateTable& table);

// The sizes to measure a table on: every class of request at the lengths
// `tokens`, and decode of one query over `decode_keys` keys.
struct GateSizes {
  std::vector<int64_t> tokens = {1024, 4096};
  std::vector<Dtype> dtypes = {Dtype::f32, Dtype::bf16};
  int64_t heads = 8, head_dim = 128;
  std::vector<int64_t> decode_keys = {2048, 8192};
  // An artifact of Splash's kernel, measured at the sizes in its spec.
  std::optional<BridgeArtifact> artifact = {};
};
struct GateMeasured {
  GateTable table;
  std::string plugin;  // the plugin for plain XLA, or why there is none
};
// Judges each of Tessera's kernels against fp64, then times it alternately with
// plain XLA on this machine; the least of `rounds` times counts. `plugin`
// compiles plain XLA. Absent: the plugin of the first device, else
// xla_cpu_pjrt; without that plugin rows are unmeasured. `progress` receives
// the share that is done, 0 to 1.
Result<GateMeasured> measure_gate(
    const GateSizes& sizes, int64_t rounds,
    const std::optional<std::string>& plugin, const Machine& machine,
    const std::function<void(double)>& progress = {});

// A row of the table of thresholds (docs/dispatch.md). Most rows mean: on the
// platform, for calls of the direction, the lane runs the plan's worklist if
// the longer of both lengths is above `beyond_tokens` (for xla, q_len if the
// plan skips nothing) and the share of active tiles is below `below_density`.
// One row is for requests up to `up_to_tokens` that no such row takes: xla's
// program of all scores at once. Rows without a threshold are for artifacts
// that the caller gave and for the last resort.
struct DispatchRule {
  std::string_view name;
  LaneId lane = LaneId::cpu;
  std::string_view platform = {};   // empty: any
  std::string_view direction = {};  // forward, backward (of both); empty: any
  int64_t beyond_tokens = 0;
  int64_t up_to_tokens = 0;                  // 0: any
  std::optional<double> below_density = {};  // absent: any share
  std::string_view source = {};              // the evidence for the row
  // The generation of TPUs, or the CPU model, that the source was measured or
  // predicted on; empty: none.
  std::string_view generation = {}, cpu = {};
};
std::span<const DispatchRule> dispatch_rules();
// The row's source as text. For a prediction also what of it was checked; on
// other hardware than the source's, also where the threshold is borrowed from.
std::string source_words(const DispatchRule& rule, const Machine& machine);

struct Rejected {
  LaneId lane;
  std::string reason;
};
struct Choice {
  LaneId lane = LaneId::cpu;
  std::string plugin;  // for a lane that needs a plugin
  XlaMethod method = XlaMethod::worklist;
  RequestClass request_class = RequestClass::other;
  std::string reason;
  std::vector<Rejected> rejected;  // every other lane
  // The rows of the gate that decided, in the order in which they were
  // consulted: the row that applies to the request, then one for each lane that
  // is kept out. A table of only these rows gives the same choice.
  std::vector<GateRow> gate;
  // The threshold row that decided; null if no such row did.
  const DispatchRule* rule = nullptr;
};

// Chooses a lane, or only checks `forced` if it is given. If no lane can run
// the request, the error says what each lane lacks.
Result<Choice> choose(const RequestFeatures& features, const PlanFacts& plan,
                      const Machine& machine, const GateTable& gate = {},
                      std::optional<LaneId> forced = {});

// Why the lane cannot run such a request; absent if it can. Requirements on the
// plan are checked against `plan`.
std::optional<std::string> why_not(LaneId lane, const RequestFeatures& features,
                                   const Machine& machine,
                                   const PlanFacts& plan = {});

}  // namespace tessera
