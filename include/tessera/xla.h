// tessera/xla.h: the xla lane: attention as a StableHLO program that any PJRT
// plugin compiles and runs, forward and backward (docs/xla.md).
//
//   auto lane = XlaLane::open({});                          // once
//   auto ran = lane->forward(batch, shape, tensors);
//
// The worklist, ids, counts, offsets, picks and exact window bounds are inputs
// of the program: one serves every batch of its kernel contract.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/attention.h"
#include "tessera/batch.h"
#include "tessera/contract.h"
#include "tessera/facts.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera {

// worklist: a loop over the plan's steps. chunked: online softmax over all
// columns of tiles. dense: all scores at a time. All three mean the same.
enum class XlaMethod : uint8_t { worklist, chunked, dense };
std::string_view to_string(XlaMethod method);
Result<XlaMethod> parse_xla_method(std::string_view text);

struct XlaOptions {
  // A path, or a known plugin's name: "xla_cpu_pjrt".
  std::string plugin = "xla_cpu_pjrt";
  int64_t device = 0;  // its number among the plugin's
  // What the plugin is started with, "cpu_device_count=8": a whole number, a
  // number, true, false, or else a text.
  std::vector<std::string> client_options;
  XlaMethod method = XlaMethod::worklist;
  // Compiled programs are kept here for other processes; empty: nowhere.
  std::string cache_folder;
  int64_t max_cache_bytes = int64_t{1} << 30;
  // Compiles of this lane at most; one more is an error. 0: no limit.
  int64_t max_compiles = 0;
};

// What ran. Tiles are counted by the program itself where it is the worklist's.
struct XlaRun {
  KernelContract contract;
  int64_t compiles = 0;                    // the compiler really ran
  int64_t memory_hits = 0, disk_hits = 0;  // else one of these
  int64_t tiles_run = 0;                   // active tiles, every head
  int64_t tiles_skipped = 0;
  int64_t pairs_run = 0;  // scores computed, legal or not, every head
  double compile_ms = 0, transfer_ms = 0, run_ms = 0;
  std::vector<std::string> warnings;  // of the cache on disk
};

// Where and by what the lane runs.
struct XlaPlace {
  std::string plugin;            // its file
  std::string api;               // "0.81"
  std::string platform;          // "cpu"
  std::string platform_version;  // the plugin's own words
  std::string device;            // "cpu 0"
};

class XlaLane {
 public:
  // Of the kind `unavailable` where there is no such plugin or device, or the
  // build cannot load any.
  static Result<XlaLane> open(const XlaOptions& options);
  XlaLane(XlaLane&&) noexcept;
  XlaLane& operator=(XlaLane&&) noexcept;
  ~XlaLane();

  const XlaPlace& place() const;

  // Safe from any thread.
  Result<XlaRun> forward(const Batch& batch, const AttentionShape& shape,
                         const ForwardTensors& tensors) const;
  Result<XlaRun> backward(const Batch& batch, const AttentionShape& shape,
                          const BackwardTensors& tensors) const;

  // What a program is compiled for, beside request, shape and presence of
  // facts.
  struct Call {
    Dtype dtype = Dtype::f32;
    bool sink_logits = false;
    bool backward = false;
    bool dlse = false;  // backward takes the log-sum-exp's gradient
  };
  // Compiles what a batch under the request's ceilings will need, so that its
  // first call finds it. Of `present` only which facts there are is read.
  Result<XlaRun> warm(const Request& request, const Facts& present,
                      const AttentionShape& shape, const Call& call) const;

 private:
  struct State;
  explicit XlaLane(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tessera
