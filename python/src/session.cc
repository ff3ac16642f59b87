#include "session.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "arrays.h"
#include "batch.h"
#include "call_arrays.h"
#include "failure.h"
#include "interrupts.h"
#include "repr.h"
#include "shard.h"
#include "sink_telemetry.h"
#include "states.h"
#include "tessera/receipt.h"
#include "tessera/session.h"
#include "unlocked.h"

namespace tessera::python {
namespace {

using Scale = std::optional<double>;

struct PySession {
  Session session;
  std::string words;  // for `repr`
};

struct PySaved {
  ForwardArrays arrays;
  Saved saved;
  std::optional<GradientArrays> gradients;
  std::optional<SinkTelemetry> sinks;
};

struct PyPrepared {
  PyPrepared(Prepared p, nb::object of)
      : prepared(std::move(p)), batch(std::move(of)) {}

  Prepared prepared;
  nb::object batch;
  std::atomic<bool> busy{false};
};

// Marks a prepared call as in use, and refuses a second thread.
class Use {
 public:
  explicit Use(PyPrepared& p) : busy_(p.busy) {
    if (busy_.exchange(true)) {
      refuse(
          "what a session prepared belongs to one thread at a time, found "
          "another at work on it");
    }
  }
  ~Use() { busy_ = false; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  std::atomic<bool>& busy_;
};

// Reads an artifact that JAX exported, and the file of its shapes.
std::optional<BridgeArtifact> read_artifact(
    const std::optional<std::filesystem::path>& artifact,
    const std::optional<std::filesystem::path>& shapes) {
  if (artifact.has_value() != shapes.has_value()) {
    refuse(std::string("artifact goes with shapes, found ") +
           (artifact ? "artifact" : "shapes") + " alone");
  }
  if (!artifact) return {};
  return take(load_artifact(*artifact, *shapes));
}

SessionOptions options_of(
    const std::optional<std::string>& lane,
    const std::vector<std::string>& fallback, int threads,
    const std::optional<std::string>& isa,
    const std::optional<std::filesystem::path>& plugin,
    const std::filesystem::path& cache_folder, bool input_digests,
    const std::string& mesh = "", const std::string& balance = "rows",
    const std::string& exchange = "rounds", const std::string& ceilings = "",
    const std::string& work = "", const std::string& evenness = "",
    bool uneven = false,
    const std::optional<std::filesystem::path>& artifact = {},
    const std::optional<std::filesystem::path>& shapes = {},
    const std::optional<std::string>& reason = {},
    const std::string& numbers = "any", int64_t max_compiles = 0,
    const std::string& row_sum = "exact") {
  SessionOptions o;
  o.xla.max_compiles = checked_compiles(max_compiles);
  o.artifact = read_artifact(artifact, shapes);
  if (!mesh.empty()) o.mesh = take(parse_mesh(mesh));
  o.shards = shard_options(
      {balance, exchange, ceilings, work, evenness, uneven}, mesh);
  if (lane) o.lane = take(parse_lane(*lane));
  for (const std::string& f : fallback) {
    o.fallback.push_back(take(parse_lane(f)));
  }
  if (threads < 0) {
    refuse("threads must be 0 or more, found " + std::to_string(threads));
  }
  o.cpu.threads = threads;
  if (isa) o.cpu.isa = take(parse_isa(*isa));
  if (plugin) o.xla.plugin = *plugin;
  o.xla.cache_folder = cache_folder;
  o.xla.lowering_reason = reason;
  o.xla.numbers = take(parse_numbers(numbers));
  o.xla.row_sum = take(parse_row_sum(row_sum));
  o.input_digests = input_digests;
  if (o.artifact && o.lane && *o.lane != LaneId::splash &&
      *o.lane != LaneId::jax_bridge) {
    refuse("artifact goes with the lane splash or jax_bridge, found " + *lane);
  }
  return o;
}

Session open(SessionOptions options) {
  const nb::gil_scoped_release released;
  return take(Session::open(std::move(options)));
}

// The options of a session, for its `repr`.
std::string words_of(const std::optional<std::string>& lane,
                     const std::vector<std::string>& fallback, int threads,
                     const std::string& mesh) {
  std::string said;
  const auto say = [&](const std::string& what) {
    said += (said.empty() ? "" : ", ") + what;
  };
  if (lane) say("'" + *lane + "'");
  for (const std::string& f : fallback) say("or '" + f + "'");
  if (threads != 0) say("threads=" + std::to_string(threads));
  if (!mesh.empty()) say("mesh='" + mesh + "'");
  return one_line("Session(", said, ")");
}

// The session of all calls that name none, opened at the first of them.
Session& default_session() {
  static std::atomic<Session*> opened{nullptr};
  if (Session* const session = opened.load()) return *session;
  SessionOptions options = options_of({}, {}, 0, {}, {}, "", false);
  // A thread that waits for the first one must not hold the GIL, which the
  // first one takes again when it returns.
  const nb::gil_scoped_release released;
  static std::once_flag once;
  std::call_once(once, [&] {
    opened = new Session(take(Session::open(std::move(options))));
  });
  return *opened.load();
}

const Session& session_of(nb::handle session) {
  if (session.is_none()) return default_session();
  if (!nb::isinstance<PySession>(session)) {
    refuse("session must be a tessera.Session, found " +
           nb::cast<std::string>(session.type().attr("__name__")));
  }
  return nb::cast<const PySession&>(session).session;
}
using GivenSession = nb::typed<nb::object, PySession>;

nb::any attention(nb::handle q, nb::handle k, nb::handle v, GivenBatch batch,
                  Scale scale, double softcap, nb::handle sink_logits,
                  const std::string& layout, bool return_lse, nb::handle out,
                  std::optional<int64_t> sink_telemetry, GivenSession session) {
  if (sink_telemetry) check_first_keys(*sink_telemetry);
  const ForwardArrays f = read_forward(q, k, v, sink_logits, layout, scale,
                                       softcap, out, return_lse);
  const Session& used = session_of(session);
  const Batch& of = batch_of(batch);
  AttentionCall call = call_of(f);
  call.sink_telemetry = sink_telemetry.has_value();
  std::optional<SinkTelemetry> told;
  take(without_gil([&](const StopFlag* stop) -> Result<void> {
    auto ready = used.prepare(of, call);
    if (!ready) return ready.error();
    auto ran = ready->forward(f.views, stop);
    if (!ran) return ran.error();
    if (!sink_telemetry) return {};
    auto sinks = ready->sink_telemetry(*ran, *sink_telemetry, stop);
    if (!sinks) return sinks.error();
    told = std::move(*sinks);
    return {};
  }));
  if (!told && !return_lse) return nb::borrow<nb::any>(f.out);
  nb::list results;
  results.append(f.out);
  if (return_lse) results.append(f.lse);
  if (told) results.append(sink_telemetry_of(std::move(*told), of, f.shape));
  return nb::borrow<nb::any>(nb::tuple(results));
}

AttentionCall call_of(int64_t heads, int64_t head_dim,
                      std::optional<int64_t> kv_heads,
                      std::optional<int64_t> v_head_dim,
                      const std::string& dtype, Scale scale, double softcap,
                      bool sink_logits, bool backward, bool sink_telemetry) {
  AttentionCall call;
  call.shape = shape_of(heads, kv_heads, head_dim, v_head_dim);
  call.shape.scale = scale;
  call.shape.softcap = softcap;
  call.dtype = parse_dtype(dtype);
  call.sink_logits = sink_logits;
  call.backward = backward;
  call.sink_telemetry = sink_telemetry;
  return call;
}

std::unique_ptr<PyPrepared> prepare(
    const PySession& self, GivenBatch batch, int64_t heads, int64_t head_dim,
    std::optional<int64_t> kv_heads, std::optional<int64_t> v_head_dim,
    const std::string& dtype, Scale scale, double softcap, bool sink_logits,
    bool backward, bool dlse, bool sink_telemetry) {
  AttentionCall call =
      call_of(heads, head_dim, kv_heads, v_head_dim, dtype, scale, softcap,
              sink_logits, backward, sink_telemetry);
  call.dlse = dlse;
  const Batch& of = batch_of(batch);
  auto made = unlocked([&] { return self.session.prepare(of, call); });
  return std::make_unique<PyPrepared>(take(std::move(made)), std::move(batch));
}

// Calls the user's progress function, from the thread that finished a contract.
// An exception of the function ends the work, and so does Ctrl-C, which Python
// delivers only to the main thread.
class WarmProgress {
 public:
  explicit WarmProgress(nb::object call) : call_(std::move(call)) {}

  void operator()(int64_t done, int64_t contracts) {
    const nb::gil_scoped_acquire held;
    if (raised_) return;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (!call_.is_none()) call_(done, contracts);
    } catch (...) {
      raised_ = std::current_exception();
      stop_.stop();
    }
  }

  const StopFlag* flag() const { return &stop_; }
  void raise() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  nb::object call_;
  std::exception_ptr raised_;
  StopFlag stop_;
};

nb::dict warm(const PySession& self, nb::iterable batches, int64_t heads,
              int64_t head_dim, std::optional<int64_t> kv_heads,
              std::optional<int64_t> v_head_dim, const std::string& dtype,
              Scale scale, double softcap, bool sink_logits, bool backward,
              bool dlse, bool sink_telemetry, int threads,
              nb::object progress) {
  AttentionCall call =
      call_of(heads, head_dim, kv_heads, v_head_dim, dtype, scale, softcap,
              sink_logits, backward, sink_telemetry);
  call.dlse = dlse;
  if (threads < 0) {
    refuse("threads must be 0 or more, found " + std::to_string(threads));
  }
  if (!progress.is_none() && !PyCallable_Check(progress.ptr())) {
    refuse("progress must be callable, found " +
           nb::cast<std::string>(progress.type().attr("__name__")));
  }
  WarmList list;
  std::vector<nb::object> kept;  // the list refers to memory of these batches
  for (nb::handle given : batches) {
    const Batch& of = batch_of(given);
    auto added =
        unlocked([&] { return add_call(list, self.session, of, call); });
    if (take(std::move(added))) kept.push_back(nb::borrow(given));
  }
  WarmProgress told(std::move(progress));
  WarmOptions options;
  options.threads = threads;
  options.progress = [&](int64_t done, int64_t of) { told(done, of); };
  options.stop = told.flag();
  auto ran = unlocked([&] { return self.session.warm(list, options); });
  told.raise();
  const WarmReport report = take(std::move(ran));
  nb::dict out;
  out["batches"] = report.batches;
  out["contracts"] = report.contracts;
  add_compiles(report, out);
  out["ms"] = report.ms;
  out["warnings"] = report.warnings;
  return out;
}

Choice choice_of(const Session& session, nb::handle batch,
                 const AttentionCall& call) {
  const Batch& of = batch_of(batch);
  auto choice = unlocked([&] { return session.choose(of, call); });
  return take(std::move(choice));
}

Choice choose_in(const PySession& self, GivenBatch batch, int64_t heads,
                 int64_t head_dim, std::optional<int64_t> kv_heads,
                 std::optional<int64_t> v_head_dim, const std::string& dtype,
                 Scale scale, double softcap, bool sink_logits, bool backward,
                 bool sink_telemetry) {
  return choice_of(self.session, batch,
                   call_of(heads, head_dim, kv_heads, v_head_dim, dtype, scale,
                           softcap, sink_logits, backward, sink_telemetry));
}

Choice choose(GivenBatch batch, int64_t heads, int64_t head_dim,
              std::optional<int64_t> kv_heads,
              std::optional<int64_t> v_head_dim, const std::string& dtype,
              Scale scale, double softcap, bool sink_logits, bool backward,
              bool sink_telemetry) {
  return choice_of(default_session(), batch,
                   call_of(heads, head_dim, kv_heads, v_head_dim, dtype, scale,
                           softcap, sink_logits, backward, sink_telemetry));
}

std::unique_ptr<PySaved> forward(PyPrepared& self, nb::handle q, nb::handle k,
                                 nb::handle v, nb::handle sink_logits,
                                 const std::string& layout, nb::handle out) {
  const Use use(self);
  const AttentionShape& shape = self.prepared.call().shape;
  auto saved = std::make_unique<PySaved>();
  saved->arrays = read_forward(q, k, v, sink_logits, layout, shape.scale,
                               shape.softcap, out, true);
  saved->saved = take(without_gil([&](const StopFlag* stop) {
    return self.prepared.forward(saved->arrays.views, stop);
  }));
  return saved;
}

nb::tuple backward(PyPrepared& self, PySaved& saved, nb::handle dout,
                   nb::handle dlse) {
  const Use use(self);
  GradientArrays g = read_gradients(saved.arrays, dout, dlse);
  take(without_gil([&](const StopFlag* stop) {
    return self.prepared.backward(saved.saved, g.views, stop);
  }));
  nb::object sink = saved.arrays.sink_logits ? g.dsink_logits : nb::none();
  nb::tuple out = nb::make_tuple(g.dq, g.dk, g.dv, sink);
  saved.gradients = std::move(g);
  return out;
}

nb::object sink_telemetry(PyPrepared& self, PySaved& saved,
                          int64_t first_keys) {
  const Use use(self);
  saved.sinks = take(without_gil([&](const StopFlag* stop) {
    return self.prepared.sink_telemetry(saved.saved, first_keys, stop);
  }));
  return sink_telemetry_of(*saved.sinks, self.prepared.batch(),
                           self.prepared.call().shape);
}

std::string receipt(PyPrepared& self, const PySaved& saved) {
  const Use use(self);
  const Gradients* const gradients =
      saved.gradients ? &saved.gradients->views : nullptr;
  const SinkTelemetry* const sinks = saved.sinks ? &*saved.sinks : nullptr;
  const nb::gil_scoped_release released;
  return take(self.prepared.receipt(saved.saved, gradients, sinks));
}

nb::dict counters(const PyPrepared& self) {
  const Counters c = self.prepared.counters();
  nb::dict out;
  out["tiles_run"] = c.tiles_run;
  out["tiles_skipped"] = c.tiles_skipped;
  out["pairs_run"] = c.pairs_run;
  out["forwards"] = c.forwards;
  out["backwards"] = c.backwards;
  add_compiles(c, out);
  out["prepare_ms"] = c.prepare_ms;
  out["compile_ms"] = c.compile_ms;
  out["transfer_ms"] = c.transfer_ms;
  out["forward_ms"] = c.forward_ms;
  out["backward_ms"] = c.backward_ms;
  return out;
}

std::vector<std::string> verify(const std::string& receipt, nb::handle q,
                                nb::handle k, nb::handle v, GivenBatch batch,
                                Scale scale, double softcap,
                                nb::handle sink_logits,
                                const std::string& layout, nb::handle dout,
                                nb::handle dlse,
                                std::optional<int64_t> sink_telemetry) {
  if (sink_telemetry) check_first_keys(*sink_telemetry);
  const ForwardArrays f = read_forward(q, k, v, sink_logits, layout, scale,
                                       softcap, nb::none(), true);
  RunCall call{batch_of(batch), f.shape, f.views, {}};
  std::optional<GradientArrays> g;
  if (!dout.is_none()) {
    g = read_gradients(f, dout, dlse);
    call.gradients = g->views;
  }
  call.first_keys = sink_telemetry.value_or(0);
  SessionOptions options = options_of({}, {}, 0, {}, {}, "", false);
  return take(without_gil([&](const StopFlag* stop) {
    call.stop = stop;
    return verify_run(receipt, call, options);
  }));
}

void bind_saved(nb::module_& m) {
  nb::class_<PySaved> saved(
      m, "Saved",
      "What a forward pass leaves for its backward pass. It refers to\n"
      "the arrays of the call, which must not change in between.");
  refuse_pickle(saved, "keep out and lse");
  saved
      .def_prop_ro(
          "out",
          [](const PySaved& s) { return nb::borrow<nb::any>(s.arrays.out); },
          "The output, in the layout of the call.")
      .def_prop_ro(
          "lse",
          [](const PySaved& s) {
            return nb::borrow<NumpyArray<float>>(s.arrays.lse);
          },
          "The natural log-sum-exp: float32 [batch, heads, q_len].")
      .def("__repr__", [](const PySaved& s) {
        const TensorView& q = s.arrays.views.q;
        return "Saved(batch=" + std::to_string(q.batch) +
               ", heads=" + std::to_string(q.heads) +
               ", q_len=" + std::to_string(q.tokens) +
               ", v_head_dim=" + std::to_string(s.arrays.shape.v_head_dim) +
               ", " + name_of(q.dtype) +
               (s.gradients ? ", with gradients" : "") +
               (s.sinks ? ", with sink telemetry" : "") + ")";
      });
}

void bind_prepared(nb::module_& m) {
  nb::class_<PyPrepared> prepared(
      m, "Prepared",
      "One batch that is ready on one lane, so a layer costs its\n"
      "kernels and nothing else. One thread at a time may use it.");
  refuse_pickle(prepared, "pickle its batch and prepare it again");
  prepared
      .def("forward", &forward, nb::arg("q"), nb::arg("k"), nb::arg("v"),
           nb::kw_only(), nb::arg("sink_logits") = nb::none(),
           nb::arg("layout") = "bhsd", nb::arg("out") = nb::none(),
           "Runs attention of the batch. Returns a Saved, which has `out`\n"
           "and `lse` and is an argument of `backward`. The result is\n"
           "written to `out` if it is given, else to a new array.")
      .def("backward", &backward, nb::arg("saved"), nb::arg("dout"),
           nb::kw_only(), nb::arg("dlse") = nb::none(),
           "Runs the backward pass of `saved`. Returns (dq, dk, dv,\n"
           "dsink_logits) as new arrays; dsink_logits is None without sink\n"
           "logits. `dlse` is the gradient of the log-sum-exp.")
      .def("sink_telemetry", &sink_telemetry, nb::arg("saved"),
           nb::arg("first_keys"),
           nb::sig("def sink_telemetry(self, saved: Saved, first_keys: int) "
                   "-> SinkTelemetry"),
           "Computes where the attention of a forward pass went: the mass on\n"
           "the first `first_keys` keys, and the entropy. The call must have\n"
           "been prepared with sink_telemetry=True.")
      .def("receipt", &receipt, nb::arg("saved"),
           "A receipt of what the latest passes ran, as JSON text.")
      .def(
          "next",
          [](PyPrepared& self, GivenBatch batch) {
            const Use use(self);
            const Batch& of = batch_of(batch);
            const auto done = unlocked([&] { return self.prepared.next(of); });
            take(done);
            self.batch = std::move(batch);
          },
          nb::arg("batch"), "Moves on to the next batch, on the same lane.")
      .def(
          "program_text",
          [](const PyPrepared& p, bool back) {
            return take(p.prepared.program_text(back));
          },
          nb::arg("backward") = false,
          "The program that the lane compiled, as text. Raises a\n"
          "TesseraError if the lane has no program.")
      .def_prop_ro(
          "batch",
          [](const PyPrepared& p) { return nb::borrow<NewBatch>(p.batch); },
          "The batch that is ready.")
      .def_prop_ro(
          "lane",
          [](const PyPrepared& p) {
            return std::string(to_string(p.prepared.lane()));
          },
          "The name of the lane that runs the batch.")
      .def_prop_ro(
          "reason",
          [](const PyPrepared& p) { return p.prepared.choice().reason; },
          "Why the lane was chosen.")
      .def_prop_ro(
          "fallback", [](const PyPrepared& p) { return p.prepared.fallback(); },
          "Why another lane runs the batch than the one that was chosen;\n"
          "None if the chosen lane runs it.")
      .def("__repr__",
           [](const PyPrepared& p) {
             const AttentionCall& call = p.prepared.call();
             const Request& request = batch_of(p.batch).request();
             return one_line(
                 "Prepared('" + std::string(to_string(p.prepared.lane())) +
                     "', '",
                 mask_text(request),
                 "', q_len=" + std::to_string(request.q_len) +
                     ", kv_len=" + std::to_string(request.kv_len) +
                     ", heads=" + std::to_string(call.shape.heads) +
                     ", head_dim=" + std::to_string(call.shape.head_dim) +
                     ", " + name_of(call.dtype) +
                     (call.backward ? ", backward" : "") + ")");
           })
      .def("counters", &counters,
           "Counts of tiles, pairs, passes and compiles, and the\n"
           "milliseconds of prepare, compile, transfer and passes, as a\n"
           "dict.");
}

void bind_open(nb::class_<PySession>& session) {
  session.def("__repr__", [](const PySession& s) { return s.words; })
      .def(
          "__init__",
          [](PySession* self, const std::optional<std::string>& lane,
             const std::vector<std::string>& fallback, int threads,
             const std::optional<std::string>& isa,
             const std::optional<std::filesystem::path>& plugin,
             const std::filesystem::path& cache_folder, bool input_digests,
             const std::string& mesh, const std::string& balance,
             const std::string& exchange, const std::string& ceilings,
             const std::string& work, const std::string& evenness, bool uneven,
             const std::optional<std::filesystem::path>& artifact,
             const std::optional<std::filesystem::path>& shapes,
             const std::optional<std::string>& lowering_reason,
             const std::string& numbers, int64_t max_compiles,
             const std::string& row_sum) {
            new (self) PySession{
                open(options_of(lane, fallback, threads, isa, plugin,
                                cache_folder, input_digests, mesh, balance,
                                exchange, ceilings, work, evenness, uneven,
                                artifact, shapes, lowering_reason, numbers,
                                max_compiles, row_sum)),
                words_of(lane, fallback, threads, mesh)};
          },
          nb::arg("lane") = nb::none(), nb::kw_only(),
          nb::arg("fallback") = std::vector<std::string>{},
          nb::arg("threads") = 0, nb::arg("isa") = nb::none(),
          nb::arg("plugin") = nb::none(), nb::arg("cache_folder") = "",
          nb::arg("input_digests") = false, nb::arg("mesh") = "",
          nb::arg("balance") = "rows", nb::arg("exchange") = "rounds",
          nb::arg("ceilings") = "", nb::arg("work") = "",
          nb::arg("evenness") = "", nb::arg("uneven") = false,
          nb::arg("artifact") = nb::none(), nb::arg("shapes") = nb::none(),
          nb::arg("lowering_reason") = nb::none(), nb::arg("numbers") = "any",
          nb::arg("max_compiles") = 0, nb::arg("row_sum") = "exact",
          "Opens a session.\n\n"
          "- `lane`: runs every call on this lane, or raises an error;\n"
          "  None: the dispatch rules choose\n"
          "- `fallback`: lanes that may step in, in this order\n"
          "- `threads`: threads of the lane cpu; 0: every core that this\n"
          "  process may use\n"
          "- `isa`: the instruction set of the lane cpu\n"
          "- `plugin`: the path or the name of a PJRT plugin\n"
          "- `cache_folder`: keeps compiled programs for other processes;\n"
          "  '': nowhere\n"
          "- `input_digests`: adds digests of the inputs to receipts, for\n"
          "  which all inputs are read\n"
          "- `mesh`: spreads every call over devices of the plugin, on the\n"
          "  lane xla or mosaic, such as 'data=2,seq=4'\n"
          "- `balance`, `exchange`, `ceilings`, `work`, `evenness`,\n"
          "  `uneven`: how a mesh spreads calls; see `shard`. With\n"
          "  `ceilings` batches that differ share one program\n"
          "- `artifact`, `shapes`: the files that JAX exported, for the\n"
          "  lanes splash and jax_bridge (docs/bridge.md)\n"
          "- `lowering_reason`: why tiles or logical blocks below the\n"
          "  granule of a TPU's matrix unit are lowered to it\n"
          "- `numbers`: 'finite' promises that the lane mosaic reads no NaN\n"
          "  or infinity, which saves cycles\n"
          "- `max_compiles`: the most programs to compile; one more raises\n"
          "  an error that says what varied; 0: no limit\n"
          "- `row_sum`: what the forward kernels of the lane mosaic divide\n"
          "  the probabilities by: 'exact', their float32 sum, or\n"
          "  'rounded', the sum of the probabilities as the product takes\n"
          "  them");
}

void bind_calls(nb::class_<PySession>& session) {
  session
      .def(
          "prepare", &prepare, nb::arg("batch"), nb::kw_only(),
          nb::arg("heads"), nb::arg("head_dim"),
          nb::arg("kv_heads") = nb::none(), nb::arg("v_head_dim") = nb::none(),
          nb::arg("dtype") = "f32", nb::arg("scale") = nb::none(),
          nb::arg("softcap") = 0.0, nb::arg("sink_logits") = false,
          nb::arg("backward") = false, nb::arg("dlse") = false,
          nb::arg("sink_telemetry") = false,
          "Chooses a lane and makes the batch ready on it. Returns a Prepared.")
      .def("warm", &warm, nb::arg("batches"), nb::kw_only(), nb::arg("heads"),
           nb::arg("head_dim"), nb::arg("kv_heads") = nb::none(),
           nb::arg("v_head_dim") = nb::none(), nb::arg("dtype") = "f32",
           nb::arg("scale") = nb::none(), nb::arg("softcap") = 0.0,
           nb::arg("sink_logits") = false, nb::arg("backward") = false,
           nb::arg("dlse") = false, nb::arg("sink_telemetry") = false,
           nb::arg("threads") = 0, nb::arg("progress") = nb::none(),
           nb::sig("def warm(self, batches: collections.abc.Iterable[Batch], "
                   "*, heads: int, head_dim: int, kv_heads: int | None = None, "
                   "v_head_dim: int | None = None, dtype: str = 'f32', "
                   "scale: float | None = None, softcap: float = 0.0, "
                   "sink_logits: bool = False, backward: bool = False, "
                   "dlse: bool = False, sink_telemetry: bool = False, "
                   "threads: int = 0, progress: "
                   "collections.abc.Callable[[int, int], object] | None = None)"
                   " -> dict[str, object]"),
           "Compiles the programs that these batches will need, one for each\n"
           "contract, in parallel. Afterwards the session and its cache\n"
           "folder have every program.\n\n"
           "`threads` is the number of compiles at a time; 0: every core\n"
           "that this process may use. `progress` is called with the number\n"
           "of contracts that are done and the number of all. Returns a\n"
           "dict: `batches`, `contracts`, `compiles`, `memory_hits`,\n"
           "`disk_hits`, `ms`, and in `warnings` what the cache folder could\n"
           "not keep.")
      .def("choose", &choose_in, nb::arg("batch"), nb::kw_only(),
           nb::arg("heads"), nb::arg("head_dim"),
           nb::arg("kv_heads") = nb::none(), nb::arg("v_head_dim") = nb::none(),
           nb::arg("dtype") = "f32", nb::arg("scale") = nb::none(),
           nb::arg("softcap") = 0.0, nb::arg("sink_logits") = false,
           nb::arg("backward") = false, nb::arg("sink_telemetry") = false,
           "Returns the Choice of a lane for such a call. Opens nothing.");
}

void bind_functions(nb::module_& m) {
  m.def("choose", &choose, nb::arg("batch"), nb::kw_only(), nb::arg("heads"),
        nb::arg("head_dim"), nb::arg("kv_heads") = nb::none(),
        nb::arg("v_head_dim") = nb::none(), nb::arg("dtype") = "f32",
        nb::arg("scale") = nb::none(), nb::arg("softcap") = 0.0,
        nb::arg("sink_logits") = false, nb::arg("backward") = false,
        nb::arg("sink_telemetry") = false,
        "Returns the Choice for such a call: the lane that would run it\n"
        "here, and the reasons against the other lanes.");
  m.def("attention", &attention, nb::arg("q"), nb::arg("k"), nb::arg("v"),
        nb::arg("batch"), nb::kw_only(), nb::arg("scale") = nb::none(),
        nb::arg("softcap") = 0.0, nb::arg("sink_logits") = nb::none(),
        nb::arg("layout") = "bhsd", nb::arg("return_lse") = false,
        nb::arg("out") = nb::none(), nb::arg("sink_telemetry") = nb::none(),
        nb::arg("session") = nb::none(),
        "Attention of one batch. Returns the output; or a tuple of the\n"
        "output, the natural log-sum-exp if `return_lse` is true, and a\n"
        "SinkTelemetry if `sink_telemetry` is a number of first keys.\n\n"
        "q is [batch, heads, q_len, dim], and k and v are [batch,\n"
        "kv_heads, kv_len, dim]; with the layout 'bshd' they are [batch,\n"
        "tokens, heads, dim]. The dtype is float32, bfloat16 or float16.\n"
        "The log-sum-exp is float32 [batch, heads, q_len].\n\n"
        "`scale` is 1 / sqrt(dim) unless it is given. The result is\n"
        "written to `out` if it is given, else to a new array. The output\n"
        "of a query that may see no key is 0. `session` runs the call;\n"
        "None: a session that all such calls share.");
  m.def("verify", &verify, nb::arg("receipt"), nb::arg("q"), nb::arg("k"),
        nb::arg("v"), nb::arg("batch"), nb::kw_only(),
        nb::arg("scale") = nb::none(), nb::arg("softcap") = 0.0,
        nb::arg("sink_logits") = nb::none(), nb::arg("layout") = "bhsd",
        nb::arg("dout") = nb::none(), nb::arg("dlse") = nb::none(),
        nb::arg("sink_telemetry") = nb::none(),
        "Runs the call of a receipt again. Returns the fields that\n"
        "differ; an empty list if the receipt is true.");
  m.def(
      "receipt_text",
      [](const std::string& receipt) { return take(receipt_text(receipt)); },
      nb::arg("receipt"),
      "A receipt as text, one line for each thing, as `tessera receipt\n"
      "show` prints it.");
}

}  // namespace

void bind_session(nb::module_& m) {
  bind_saved(m);
  bind_prepared(m);
  nb::class_<PySession> session(
      m, "Session",
      "Open lanes with their compiled programs, and the rules that\n"
      "choose a lane. Threads may share a session.");
  refuse_pickle(session, "open one where it is used");
  bind_open(session);
  bind_calls(session);
  bind_functions(m);
}

void add_compiles(const CompileCounts& counts, nb::dict& out) {
  out["compiles"] = counts.compiles;
  out["memory_hits"] = counts.memory_hits;
  out["disk_hits"] = counts.disk_hits;
}

}  // namespace tessera::python
