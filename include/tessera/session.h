// tessera/session.h: attention over batches and layers: a lane is opened once,
// a batch is prepared once, and then a layer costs its kernels and nothing
// else: no plan, bind, hash or compile (docs/session.md).
//
//   auto session = Session::open({});                     // once a program
//   auto batch = OwnedBatch::make(request, facts);        // once a batch
//   auto ready = session->prepare(*batch, call);
//   for (Layer& l : layers) l.saved = *ready->forward(l.tensors);
//   for (Layer& l : reversed) ready->backward(l.saved, l.gradients);
//   save(*ready->receipt(layers.back().saved));           // when asked for
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
  std::optional<LaneId> lane;    // this lane or an error; absent: the rules
  std::vector<LaneId> fallback;  // lanes that may step in, in order
  CpuOptions cpu;
  // Where the rules chose the lane, they also choose plugin and method. Plugin,
  // device and cache are for lanes jax_bridge and splash too.
  XlaOptions xla;
  std::optional<BridgeArtifact> artifact;  // of jax_bridge or splash
  // Spreads every call over devices of the plugin, from xla.device on, in lanes
  // xla and mosaic (docs/shard.md). Shape and dtype in `shards` are not read:
  // the call has them. No axes: one device.
  Mesh mesh;
  ShardOptions shards;
  GateTable gate;
  std::optional<Machine> machine;  // absent: this one, looked at when needed
  // Gives the bytes that are free. It is asked when a lane starts: a lane that
  // needs more does not start. Empty: no limit.
  std::function<double()> memory;
  bool input_digests = false;  // in the receipt; reads all inputs
};

// One set of counts for every lane. The reference has no tiles, and in a
// program of jax_bridge nothing can be counted. Compiles and passes are counted
// since this Prepared was made, over all its batches.
struct Counters : CompileCounts {
  // Of the latest forward pass.
  int64_t tiles_run = 0, tiles_skipped = 0, pairs_run = 0;
  int64_t forwards = 0, backwards = 0;
  // Of the latest prepare and the latest passes.
  double prepare_ms = 0, compile_ms = 0, transfer_ms = 0;
  double forward_ms = 0, backward_ms = 0;
  // Of all arrays that were put and fetched.
  double put_ms = 0, fetch_ms = 0;
};

// What a forward pass leaves for its backward pass: where its arrays are. They
// must not change in between.
struct Saved {
  ForwardTensors tensors;
  uint64_t of = 0;  // names the Prepared, batch and lane
};

// Where the attention of a forward pass went: the mass that each query puts on
// the first keys, and the entropy of its probabilities, in nats, the sink
// logit's among them (docs/attention.md).
struct SinkTelemetry {
  // How many first keys: those that `sink(first_keys)` in the head's mask would
  // name, of the document, of the segment or of the row.
  int64_t first_keys = 0;
  // [batch, heads, q_len]; 0 where a query has no legal key.
  std::vector<float> mass, entropy;

  // One document, or segment, of a batch row; queries of none share one entry.
  struct Document {
    int64_t batch_row = 0;
    std::optional<int32_t> document;  // its id, or the segment's number
    // By query head: its queries that have a legal key, and their means.
    std::vector<int64_t> queries;
    std::vector<double> mass, entropy;
  };
  std::vector<Document> documents;  // as their first queries come
};

// The roles of a call's arrays. A gradient has the role of its array.
enum class ArrayRole : uint8_t { q, k, v, out };

// An array that stays where its lane computes, on a mesh a part on each device.
// Put it once, give it to any number of layers, fetch it once. It belongs to
// its Prepared, until that has another batch, or another lane steps in.
class DeviceArray {
 public:
  DeviceArray() = default;  // none
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
  std::optional<std::span<const float>> sink_logits;  // of the host
};
// What such a pass leaves for its backward pass. The log-sum-exp is small and
// comes back to the host: [batch, heads, q_len].
struct DeviceSaved {
  DeviceForward in;
  DeviceArray out;
  std::vector<float> lse;
};
struct DeviceGradients {
  DeviceArray dq, dk, dv;
  std::vector<float> dsink_logits;
};

// One batch on one lane. It belongs to one caller at a time.
class Prepared {
 public:
  Prepared(Prepared&&) noexcept;
  Prepared& operator=(Prepared&&) noexcept;
  ~Prepared();

  Result<Saved> forward(const ForwardTensors& tensors,
                        const StopFlag* stop = nullptr);
  // The call that was prepared must have `backward` set.
  Result<void> backward(const Saved& saved, const Gradients& gradients,
                        const StopFlag* stop = nullptr);
  // Telemetry of a forward pass, computed again from its q, k and sink logits.
  // `forward` does and writes the same whether or not you ask. The call that
  // was prepared must have `sink_telemetry` set.
  Result<SinkTelemetry> sink_telemetry(const Saved& saved, int64_t first_keys,
                                       const StopFlag* stop = nullptr);
  // Passes over arrays that stay with the lane. put() copies. An `out` may be
  // the next layer's `q` if their dims agree. Here no other lane steps in.
  Result<DeviceArray> put(ArrayRole role, const TensorView& array);
  Result<void> fetch(const DeviceArray& array, const MutableTensorView& to);
  Result<DeviceSaved> forward(const DeviceForward& in,
                              const StopFlag* stop = nullptr);
  Result<DeviceGradients> backward(const DeviceSaved& saved,
                                   const DeviceArray& dout,
                                   std::span<const float> dlse = {},
                                   const StopFlag* stop = nullptr);
  // Moves on to the next batch, on the same lane; on cpu in the memory of this
  // one. After an error only another next() may be called.
  Result<void> next(const Batch& batch);

  const Batch& batch() const;
  const AttentionCall& call() const;
  const Choice& choice() const;
  LaneId lane() const;                          // the lane that runs it
  std::optional<std::string> fallback() const;  // why that is not choice().lane
  Counters counters() const;
  // What the latest passes ran, as JSON (docs/receipt.md). Give `gradients` if
  // the call has a backward pass, and `sinks` if it has `sink_telemetry`; else
  // neither.
  Result<std::string> receipt(const Saved& saved,
                              const Gradients* gradients = nullptr,
                              const SinkTelemetry* sinks = nullptr) const;
  // The program that a pass runs, for lanes that have one: StableHLO, with our
  // kernel's text in it where there is one.
  Result<std::string> program_text(bool backward = false) const;

  struct State;
  State& state() const { return *state_; }
  explicit Prepared(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

// Open lanes with their compiled programs, and the rules that choose a lane.
// Any thread may use it.
class Session {
 public:
  static Result<Session> open(SessionOptions options = {});
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // Chooses a lane, compiles at most once for each contract and direction, and
  // sends the batch's integers to the device. `chosen`: what choose() gave for
  // this batch; the rules are then not asked again.
  Result<Prepared> prepare(const Batch& batch, const AttentionCall& call,
                           const std::optional<Choice>& chosen = {}) const;
  // The choice alone; nothing is opened.
  Result<Choice> choose(const Batch& batch, const AttentionCall& call) const;
  // Compiles what every batch under the request's ceilings will need, on the
  // forced lane. `present` only says which facts there are. On a mesh this is
  // an error, since the batch itself decides too: see warm_all.
  Result<Counters> warm(const Request& request, const Facts& present,
                        const AttentionCall& call) const;
  // Where the forced lane runs; opens it. An error for a lane of no plugin.
  Result<PluginPlace> place() const;

  struct State;
  State& state() const { return *state_; }
  explicit Session(std::shared_ptr<State> state);

 private:
  std::shared_ptr<State> state_;
};

// One call from end to end.
struct RunCall {
  Batch batch;
  AttentionShape shape;
  ForwardTensors forward;
  std::optional<Gradients> gradients = {};  // a backward pass too
  int64_t first_keys = 0;                   // for sink telemetry; 0: none
  const StopFlag* stop = nullptr;           // every pass looks at it
};
AttentionCall call_of(const RunCall& call);

struct AttentionRun {
  Choice choice;
  LaneId executed = LaneId::cpu;
  std::optional<std::string> fallback;  // why `executed` is not choice.lane
  Counters counters;
  std::string receipt;  // JSON
  std::optional<SinkTelemetry> sinks;
};

// Opens a session for this one call.
Result<AttentionRun> run_attention(const RunCall& call,
                                   const SessionOptions& options = {});

// Runs the call again on the lane that the receipt says ran; its stop flag ends
// that. Gives the fields that the receipt has wrong: first form and digest,
// then request, shape, contract, plan, counts and output. Empty: the receipt is
// true.
Result<std::vector<std::string>> verify_run(const std::string& receipt,
                                            const RunCall& call,
                                            const SessionOptions& options = {});

// Compiles what a run will meet before it begins (docs/cache.md).
//
//   WarmList list;
//   for (const Batch& batch : batches) add_call(list, *session, batch, call);
//   auto told = warm_all(*session, list);   // told->compiles

// One batch of each contract that was met. Where the session names no lane, one
// of each choice under a contract: density may decide between lanes and
// methods.
struct WarmList {
  struct Call {
    Batch batch;
    AttentionCall call;
    std::optional<Choice> chosen;  // where the session names no lane
  };
  std::map<std::string, Call> calls;  // by contract and choice
  int64_t seen = 0;                   // batches that were added
};
// Keeps the batch if its contract in the session, or the choice for it, is new;
// says whether it was. On a mesh the contract is that of the batch's shards.
// `chosen` as in Session::prepare.
Result<bool> add_call(WarmList& list, const Session& session,
                      const Batch& batch, const AttentionCall& call,
                      std::optional<Choice> chosen = {});

struct WarmOptions {
  int threads = 0;  // compiles at a time; 0: every core this process may use
  // Called from any thread, one call at a time, after each contract.
  std::function<void(int64_t done, int64_t contracts)> progress;
  const StopFlag* stop = nullptr;  // looked at before each contract
};

// Programs of both directions count.
struct WarmReport : CompileCounts {
  int64_t batches = 0;    // that were added
  int64_t contracts = 0;  // distinct ones, with their choices
  double ms = 0;
  // Of the cache on disk: programs that could not be kept, entries that were
  // wrong.
  std::vector<std::string> warnings;
};
// Prepares the list's batches in the session. The session and the cache on disk
// then have their programs. The first error ends it, such as the session's
// limit on compiles.
Result<WarmReport> warm_all(const Session& session, const WarmList& list,
                            const WarmOptions& options = {});

}  // namespace tessera
