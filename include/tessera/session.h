// tessera/session.h: attention over batches and layers. A lane is opened once
// and a batch prepared once; each layer then costs its kernels only, without
// planning, binding, hashing or compiling (docs/session.md).
//
//   auto session = Session::open({});                     // once a program
//   auto batch = OwnedBatch::make(request, facts);        // once a batch
//   auto ready = session->prepare(*batch, call);
//   for (Layer& l : layers) l.saved = *ready->forward(l.tensors);
//   for (Layer& l : reversed) ready->backward(l.saved, l.gradients);
//   save(*ready->receipt(layers.back().saved));           // optional
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/attention.h"
#include "tessera/batch.h"
#include "tessera/bridge.h"
#include "tessera/dispatch.h"
#include "tessera/machine.h"
#include "tessera/result.h"
#include "tessera/shard.h"

namespace tessera {

struct SessionOptions {
  // Forces this lane; an error if it cannot run. Absent: the rules choose.
  std::optional<LaneId> lane;
  std::vector<LaneId> fallback;  // lanes tried in order if the lane fails
  CpuOptions cpu;
  // If the rules choose the lane, they also choose plugin and method. Lanes
  // jax_bridge and splash use plugin, device and cache too.
  XlaOptions xla;
  std::optional<BridgeArtifact> artifact;  // for lane jax_bridge or splash
  // Lanes xla and mosaic spread every call over this mesh of the plugin's
  // devices, beginning with xla.device (docs/shard.md). No axes: one device.
  // Shape and dtype in `shards` are not read; those of the call are used.
  Mesh mesh;
  ShardOptions shards;
  GateTable gate;
  std::optional<Machine> machine;  // absent: this machine, probed when needed
  // Returns the free bytes. It is called when a lane starts; a lane that needs
  // more does not start. Empty: no limit.
  std::function<double()> memory;
  bool input_digests = false;  // in the receipt; reads all inputs
};

// Counts of one Prepared, the same fields for every lane. Lane reference has no
// tiles, and for jax_bridge no tiles can be counted. Compiles and passes are
// counted over all batches of the Prepared.
struct Counters : CompileCounts {
  // Counts of the latest forward pass.
  int64_t tiles_run = 0, tiles_skipped = 0, pairs_run = 0;
  int64_t forwards = 0, backwards = 0;
  // Times of the latest prepare and the latest passes.
  double prepare_ms = 0, compile_ms = 0, transfer_ms = 0;
  double forward_ms = 0, backward_ms = 0;
  // Times over all arrays that were put and fetched.
  double put_ms = 0, fetch_ms = 0;
};

// What a forward pass leaves for its backward pass: views of its arrays. The
// arrays must not change in between.
struct Saved {
  ForwardTensors tensors;
  uint64_t of = 0;  // identifies the Prepared, batch and lane
};

// Sink telemetry of a forward pass: for each query the probability mass on the
// first keys, and the entropy of its probabilities in nats, the sink logit's
// probability included (docs/attention.md).
struct SinkTelemetry {
  // The number of first keys. They are the keys that `sink(first_keys)` in the
  // head's mask would name: the first of the document, segment or row.
  int64_t first_keys = 0;
  // [batch, heads, q_len]; 0 for a query without a legal key.
  std::vector<float> mass, entropy;

  // One document, or segment, of a batch row. Queries of no document share one
  // entry.
  struct Document {
    int64_t batch_row = 0;
    std::optional<int32_t> document;  // document id, or segment number
    // By query head: the number of queries with a legal key, and their means.
    std::vector<int64_t> queries;
    std::vector<double> mass, entropy;
  };
  std::vector<Document> documents;  // in the order of their first queries
};

// The roles of a call's arrays. A gradient has the role of the array that it is
// the gradient of.
enum class ArrayRole : uint8_t { q, k, v, out };

// An array that stays where its lane computes; on a mesh each device holds a
// part. Put it once, pass it to any number of layers, fetch it once. Only the
// Prepared that made it accepts it, until that moves to another batch or
// another lane steps in.
class DeviceArray {
 public:
  DeviceArray() = default;  // no array
  explicit operator bool() const { return state_ != nullptr; }

  struct State;
  const State* state() const { return state_.get(); }
  explicit DeviceArray(std::shared_ptr<const State> state)
      : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

struct DeviceForward {
  DeviceArray q, k, v;
  std::optional<std::span<const float>> sink_logits;  // in host memory
};
// What a forward pass over DeviceArrays leaves for its backward pass. The log-
// sum-exp is small and is in host memory: [batch, heads, q_len].
struct DeviceSaved {
  DeviceForward in;
  DeviceArray out;
  std::vector<float> lse;
};
struct DeviceGradients {
  DeviceArray dq, dk, dv;
  std::vector<float> dsink_logits;
};

// One batch on one lane. Only one thread at a time may use it.
class Prepared {
 public:
  Prepared(Prepared&&) noexcept;
  Prepared& operator=(Prepared&&) noexcept;
  ~Prepared();

  Result<Saved> forward(const ForwardTensors& tensors,
                        const StopFlag* stop = nullptr);
  // The prepared call must have `backward` set.
  Result<void> backward(const Saved& saved, const Gradients& gradients,
                        const StopFlag* stop = nullptr);
  // Telemetry of a forward pass, computed from its q, k and sink logits. It
  // does not change what forward() does. The prepared call must have
  // `sink_telemetry` set.
  Result<SinkTelemetry> sink_telemetry(const Saved& saved, int64_t first_keys,
                                       const StopFlag* stop = nullptr);
  // Passes over arrays that stay with the lane. put() copies. An `out` may be
  // the next layer's `q` if their dims agree. If the lane fails here, no other
  // lane steps in.
  Result<DeviceArray> put(ArrayRole role, const TensorView& array);
  Result<void> fetch(const DeviceArray& array, const MutableTensorView& to);
  Result<DeviceSaved> forward(const DeviceForward& in,
                              const StopFlag* stop = nullptr);
  Result<DeviceGradients> backward(const DeviceSaved& saved,
                                   const DeviceArray& dout,
                                   std::span<const float> dlse = {},
                                   const StopFlag* stop = nullptr);
  // Moves on to the next batch, on the same lane; lane cpu reuses the memory of
  // the old batch. After an error only another next() may be called.
  Result<void> next(const Batch& batch);

  const Batch& batch() const;
  const AttentionCall& call() const;
  const Choice& choice() const;
  LaneId lane() const;  // the lane that runs the call
  // Why lane() is not choice().lane; absent if it is.
  std::optional<std::string> fallback() const;
  Counters counters() const;
  // The receipt of the latest passes, as JSON (docs/receipt.md). Give
  // `gradients` exactly if the call has `backward`, and `sinks` exactly if it
  // has `sink_telemetry`.
  Result<std::string> receipt(const Saved& saved,
                              const Gradients* gradients = nullptr,
                              const SinkTelemetry* sinks = nullptr) const;
  // The StableHLO that a pass runs, on lanes xla and mosaic; on mosaic it
  // contains the text of the TPU kernel.
  Result<std::string> program_text(bool backward = false) const;

  struct State;
  State& state() const { return *state_; }
  explicit Prepared(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

// What a run will meet, to be compiled before it begins (docs/cache.md):
//
//   WarmList list;
//   for (const Batch& batch : batches) add_call(list, *session, batch, call);
//   auto report = session->warm(list);   // report->compiles

// One batch for each contract of the batches that were added. If the session
// names no lane, one for each choice under a contract, because the density may
// decide between lanes and methods. And one request for each contract of the
// requests that were added, for runs whose batches are not there yet.
struct WarmList {
  struct Call {
    Batch batch;
    AttentionCall call;
    std::optional<Choice> chosen;  // set if the session names no lane
  };
  struct Ceilings {
    Request request;
    Facts present;  // the arrays stay the caller's
    AttentionCall call;
  };
  std::map<std::string, Call> calls;         // by contract and choice
  std::map<std::string, Ceilings> ceilings;  // by contract
  int64_t seen = 0;  // batches and requests that were added
};

struct WarmOptions {
  // Compiles at the same time; 0: as many as this process may use cores.
  int threads = 0;
  // Called from any thread, one call at a time, after each contract.
  std::function<void(int64_t done, int64_t contracts)> progress;
  const StopFlag* stop = nullptr;  // read before each contract
};

// The result of Session::warm(); counts include the programs of both
// directions.
struct WarmReport : CompileCounts {
  int64_t batches = 0;    // batches and requests that were added to the list
  int64_t contracts = 0;  // distinct pairs of contract and choice
  double ms = 0;
  double compile_ms = 0;  // of all threads together
  // Warnings of the cache on disk: programs that could not be stored, entries
  // that were corrupt.
  std::vector<std::string> warnings;
};

// Open lanes with their compiled programs, and the rules that choose a lane.
// Any thread may use a Session.
class Session {
 public:
  static Result<Session> open(SessionOptions options = {});
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // Chooses a lane, compiles at most once for each contract and direction, and
  // sends the batch's integers to the device. If `chosen`, the result of
  // choose() for this batch, is given, the rules do not run again.
  Result<Prepared> prepare(const Batch& batch, const AttentionCall& call,
                           const std::optional<Choice>& chosen = {}) const;
  // Only chooses; opens no lane.
  Result<Choice> choose(const Batch& batch, const AttentionCall& call) const;
  // Compiles all that the list needs, in parallel: the session and the cache on
  // disk then hold its programs. Stops at the first error, for example at the
  // session's limit on compiles.
  Result<WarmReport> warm(const WarmList& list,
                          const WarmOptions& options = {}) const;
  // The list of this one request (add_ceilings).
  Result<WarmReport> warm(const Request& request, const Facts& present,
                          const AttentionCall& call) const;
  // Opens the forced lane and says where it runs. An error for a lane without a
  // plugin.
  Result<PluginPlace> place() const;

  struct State;
  State& state() const { return *state_; }
  explicit Session(std::shared_ptr<State> state);

 private:
  std::shared_ptr<State> state_;
};

// Keeps the batch if its contract in the session, or the choice for it, is new.
// Returns whether it was new. On a mesh the contract is that of the batch's
// shards. `chosen` is as in Session::prepare.
Result<bool> add_call(WarmList& list, const Session& session,
                      const Batch& batch, const AttentionCall& call,
                      std::optional<Choice> chosen = {});
// Keeps the request if its contract is new, and returns whether it was new: for
// it the forced lane compiles what every batch under the request's ceilings
// needs. Of `present` only the presence of each fact is read. On a mesh the
// lane refuses it, because programs there depend on the batch.
Result<bool> add_ceilings(WarmList& list, const Session& session,
                          const Request& request, const Facts& present,
                          const AttentionCall& call);

// One call of run_attention(), with its batch and arrays.
struct RunCall {
  Batch batch;
  AttentionShape shape;
  ForwardTensors forward;
  std::optional<Gradients> gradients = {};  // absent: no backward pass
  int64_t first_keys = 0;          // for sink telemetry; 0: no telemetry
  const StopFlag* stop = nullptr;  // read by every pass
};
AttentionCall call_of(const RunCall& call);

struct AttentionRun {
  Choice choice;
  LaneId executed = LaneId::cpu;
  // Why `executed` is not choice.lane; absent if it is.
  std::optional<std::string> fallback;
  Counters counters;
  std::string receipt;  // JSON
  std::optional<SinkTelemetry> sinks;
};

// Opens a session, prepares and runs this one call.
Result<AttentionRun> run_attention(const RunCall& call,
                                   const SessionOptions& options = {});

// Runs the call again on the lane that the receipt says ran; the call's stop
// flag can end that. Returns the fields that are wrong in the receipt, in the
// order form and digest, request, shape, contract, plan, counts, output. Empty:
// the receipt is true.
Result<std::vector<std::string>> verify_run(const std::string& receipt,
                                            const RunCall& call,
                                            const SessionOptions& options = {});

}  // namespace tessera
