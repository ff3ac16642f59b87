#include "data.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "batch.h"
#include "data/position_fields.h"
#include "documents.h"
#include "failure.h"
#include "mask.h"
#include "repr.h"
#include "states.h"
#include "tessera/documents.h"
#include "unlocked.h"

namespace tessera::python {
namespace {

// The loader, until it is closed. A thread takes the mutex without the GIL. The
// mutex is recursive, because a signal handler may close the loader while its
// thread waits inside next().
struct Open {
  std::recursive_mutex mutex;
  std::unique_ptr<Loader> loader;
  std::shared_ptr<Raised> raised;
  const std::vector<std::thread::id> threads;
  const pid_t process = ::getpid();

  Open(Loader of, std::shared_ptr<Raised> exception)
      : loader(std::make_unique<Loader>(std::move(of))),
        raised(std::move(exception)),
        threads(loader->threads()) {}

  // A forked child has none of the loader's threads and must not wait for any.
  bool is_forked() const { return ::getpid() != process; }
  // True if the loader's own source calls the loader: it would wait for itself.
  bool is_own_thread() const {
    return std::find(threads.begin(), threads.end(),
                     std::this_thread::get_id()) != threads.end();
  }
  void check_caller() const {
    if (is_forked()) {
      refuse(
          "a loader must be used in the process that opened it, found a fork "
          "of it (keep state() and open one with it)");
    }
    if (!is_own_thread()) return;
    if (raised->closed) refuse("a loader must be open, found a closed one");
    refuse(
        "a loader must be used by others than its source, found its own "
        "thread");
  }

  void close() {
    raised->closed = true;
    const nb::gil_scoped_release released;
    const std::lock_guard lock(mutex);
    loader.reset();
  }
};

// Closes the loader in a Python thread, which the interpreter waits for at
// exit. If no thread can be started, the loader is leaked.
void close_elsewhere(const std::shared_ptr<Open>& open) {
  try {
    const auto close = nb::cpp_function([open] { open->close(); });
    nb::module_::import_("threading")
        .attr("Thread")(nb::arg("target") = close, nb::arg("daemon") = false)
        .attr("start")();
  } catch (nb::python_error& e) {
    (void)open->loader.release();
    e.discard_as_unraisable("tessera.data.Loader");
  }
}

// Called when the last reference is gone, in any thread or in a forked child.
void end(const std::shared_ptr<Open>& open) {
  if (open->is_forked()) {
    (void)open->loader.release();
  } else if (!open->is_own_thread()) {
    open->close();
  } else if (!open->raised->closed.exchange(true)) {
    close_elsewhere(open);
  }
}

struct PyLoader {
  std::shared_ptr<Open> open;
  std::shared_ptr<Raised> raised;
  // The position after the last batch that was handed out, or at the end.
  StreamPosition position;
  StreamReport report;
  bool ended = false;
  int64_t handed = 0;  // rows handed out since the loader was opened
  int64_t tokens = 0;  // tokens of a row
  BatchOptions options;
  // Options of a stream of documents; none for rows that are packed already.
  std::optional<StreamOptions> stream;

  PyLoader(std::shared_ptr<Open> of, BatchOptions as,
           std::optional<StreamOptions> with)
      : open(std::move(of)),
        raised(open->raised),
        position(open->loader->position()),
        report(open->loader->report()),
        tokens(open->loader->shape().tokens),
        options(std::move(as)),
        stream(std::move(with)) {}
  PyLoader(const PyLoader&) = delete;
  PyLoader& operator=(const PyLoader&) = delete;
  ~PyLoader() { end(open); }
};

nb::list list_of(const std::set<std::string>& names) {
  nb::list out;
  for (const std::string& name : names) out.append(name.c_str());
  return out;
}

nb::dict dict_of(const StreamPosition& p) {
  nb::dict out;
  data::visit_position(p, [&](const char* name, auto n) { out[name] = n; });
  out["options"] = p.options;
  out["inputs"] = p.inputs;
  out["ignored"] = list_of(p.counted.ignored);
  return out;
}

template <class T>
void read_key(const nb::dict& dict, const char* key, T& to) {
  if (!dict.contains(key) || !nb::try_cast(nb::handle(dict[key]), to)) {
    refuse(std::string("a state must be what Loader.state() gave, found no "
                       "such value for '") +
           key + "'");
  }
}

StreamPosition position_of(const nb::dict& dict) {
  StreamPosition p;
  data::visit_position(
      p, [&](const char* name, auto& n) { read_key(dict, name, n); });
  read_key(dict, "options", p.options);
  read_key(dict, "inputs", p.inputs);
  std::vector<std::string> ignored;
  read_key(dict, "ignored", ignored);
  p.counted.ignored.insert(ignored.begin(), ignored.end());
  return p;
}

// Rows that several arrays share. When the last array is freed, the memory goes
// back to the loader, except in a forked child, where another thread may have
// held the loader's lock at the fork.
struct Shared {
  Rows rows;
  std::weak_ptr<SpareRows> spare;
  const pid_t process = ::getpid();

  ~Shared() {
    if (::getpid() != process) return;
    if (const auto to = spare.lock()) to->give(std::move(rows));
  }
};

// The columns as arrays that share the rows' memory.
nb::dict dict_of(LoadedBatch made, std::weak_ptr<SpareRows> spare) {
  auto* const shared = new Shared{std::move(made.rows), std::move(spare)};
  const nb::capsule owner(
      shared, [](void* p) noexcept { delete static_cast<Shared*>(p); });
  Rows* const rows = &shared->rows;
  nb::dict out;
  for (size_t c = 0; c < kRowColumns; ++c) {
    const auto column = static_cast<RowColumn>(c);
    std::vector<size_t> shape;
    for (const int64_t n : rows->shape.array(column, rows->rows)) {
      shape.push_back(static_cast<size_t>(n));
    }
    out[spec_of(column).name.data()] = nb::cast(nb::ndarray<nb::numpy, int32_t>(
        rows->columns[c].data(), shape.size(), shape.data(), owner));
  }
  out["filled"] = made.filled;
  out["batch"] = new_batch(std::move(made.batch));
  return out;
}

// Rethrows the exception of the iterable of documents, if there is one.
void raise_theirs(const Raised& raised) {
  const nb::object& e = raised.exception;
  if (!e.is_valid()) return;
  PyErr_SetObject(e.type().ptr(), e.ptr());
  throw nb::python_error();
}

nb::dict next(PyLoader& self) {
  Result<std::optional<LoadedBatch>> got = std::optional<LoadedBatch>();
  std::weak_ptr<SpareRows> spare;
  bool closed = false, interrupted = false;
  self.open->check_caller();
  {
    const nb::gil_scoped_release released;
    const std::lock_guard lock(self.open->mutex);
    const std::unique_ptr<Loader>& loader = self.open->loader;
    while (loader && !interrupted && !loader->ready(50)) {
      const nb::gil_scoped_acquire held;
      interrupted = PyErr_CheckSignals() != 0;
    }
    closed = !loader;
    if (!closed && !interrupted) {
      got = loader->next();
      spare = loader->spare();
      // state() and account() read these under the GIL.
      const nb::gil_scoped_acquire held;
      self.position = loader->position();
      self.report = loader->report();
      self.ended = got && !*got;
    }
  }
  if (interrupted) throw nb::python_error();
  if (closed) refuse("a loader must be open, found a closed one");
  if (!got) raise_theirs(*self.raised);
  auto batch = take(std::move(got));
  if (!batch) throw nb::stop_iteration();
  self.handed += batch->filled;
  return dict_of(std::move(*batch), std::move(spare));
}

std::string words(const PyLoader& self) {
  std::string masks;
  for (const Mask& mask : self.options.masks) {
    masks += (masks.empty() ? "" : " / ") + to_string(mask);
  }
  const bool given = !masks.empty();
  return one_line(given ? "Loader('" : "Loader(", masks,
                  (given ? "', tokens=" : "tokens=") +
                      std::to_string(self.tokens) +
                      ", rows=" + std::to_string(self.options.rows) + ", " +
                      std::to_string(self.handed) + " rows handed out)");
}

nb::dict account_of(const PyLoader& self) {
  if (!self.stream) {
    refuse(
        "an account must be of documents, found rows that were packed "
        "before");
  }
  const PackAccount& a = self.report.account;
  const ChunkAccount& c = self.report.chunks;
  const PackBalance& b = self.report.balance;
  const auto known = [](bool is_known, auto value) {
    return is_known ? nb::cast(value) : nb::object(nb::none());
  };
  nb::dict out;
  out["documents"] = a.documents;
  out["documents_empty"] = a.empty_documents;
  out["documents_long"] = a.long_documents;
  out["documents_dropped"] = a.dropped_documents;
  out["parts"] = a.parts;
  out["tokens_in"] = a.tokens_in;
  out["tokens_out"] = a.tokens_out;
  out["tokens_dropped"] = a.tokens_dropped;
  out["dropped_by"] = std::string(to_string(self.stream->pack.long_documents));
  out["rows"] = a.rows;
  out["padding"] = a.padding;
  out["fill"] = known(a.rows != 0, a.fill());
  out["full_steps"] = b.steps;
  out["cost_max_over_mean"] = known(b.steps != 0, b.max_over_mean);
  out["cost_worst_step"] = known(b.steps != 0, b.worst);
  out["length_spread"] = known(b.steps != 0, b.length_spread);
  // Counts of chunks and edges, also of those that found no room in their row.
  out["chunk_room"] = std::string(to_string(self.stream->chunk_room));
  out["chunks_in"] = c.chunks_in;
  out["chunks_out"] = c.chunks_out;
  out["chunks_cut"] = c.chunks_cut;
  out["chunks_no_room"] = c.chunks_over;
  // Before the end the counts include rows that were not handed out.
  out["chunks_dropped"] = known(self.ended, c.chunks_dropped());
  out["edges_in"] = c.edges_in;
  out["edges_out"] = c.edges_out;
  out["edges_across_rows"] = c.edges_across;
  out["edges_no_room"] = c.edges_over;
  out["edges_dropped"] = known(self.ended, c.edges_dropped());
  out["ignored_columns"] = list_of(self.report.ignored);
  return out;
}

// Closes the loader before the interpreter ends: its thread may need it.
void close_at_exit(nb::handle self, const std::shared_ptr<Open>& open) {
  nb::module_::import_("weakref").attr("finalize")(
      self, nb::cpp_function([open] { end(open); }));
}

void set_batches(BatchOptions& o, int64_t rows, const nb::object& mask,
                 std::pair<int64_t, int64_t> tile, int64_t max_steps,
                 int64_t max_width, int64_t ahead, int64_t workers) {
  o.rows = rows;
  if (!mask.is_none()) {
    o.masks = read_masks(mask);
    if (o.masks.empty()) refuse("mask must be one mask or more, found none");
  }
  o.tile = {tile.first, tile.second};
  o.ceilings.max_steps = max_steps;
  o.ceilings.max_width = max_width;
  o.ahead = ahead;
  o.workers = workers;
}

void init(nb::pointer_and_handle<PyLoader> self, nb::handle documents,
          int64_t tokens, int64_t rows, const std::string& strategy,
          const std::string& long_documents, const nb::object& mask,
          std::pair<int64_t, int64_t> tile, int64_t max_steps,
          int64_t max_width, int64_t window_rows, int64_t rows_per_step,
          double mixing, uint64_t seed, int32_t pad_id, int64_t max_chunks,
          int64_t max_edges, bool strict_chunks, int64_t ahead, int64_t workers,
          std::optional<nb::dict> state) {
  LoaderOptions o;
  PackOptions& pack = o.stream.pack;
  pack.tokens = tokens;
  pack.strategy = take(parse_pack_strategy(strategy));
  pack.long_documents = take(parse_long_documents(long_documents));
  pack.window_rows = window_rows;
  pack.rows_per_step = rows_per_step;
  pack.mixing = mixing;
  pack.seed = seed;
  o.stream.pad_id = pad_id;
  o.stream.max_chunks = max_chunks;
  o.stream.max_edges = max_edges;
  if (strict_chunks) o.stream.chunk_room = ChunkRoom::refuse;
  set_batches(o, rows, mask, tile, max_steps, max_width, ahead, workers);
  pack.tile = o.tile;
  StreamPosition from;
  if (state) from = position_of(*state);
  auto raised = std::make_shared<Raised>();
  auto source = documents_of(documents, raised);
  auto made =
      unlocked([&] { return Loader::open(std::move(source), o, from); });
  if (!made) raise_theirs(*raised);
  const auto open = std::make_shared<Open>(take(std::move(made)), raised);
  new (self.p) PyLoader(open, static_cast<BatchOptions&>(o), o.stream);
  close_at_exit(self.h, open);
}

nb::object open_rows(const std::filesystem::path& path, int64_t rows,
                     const nb::object& mask, std::pair<int64_t, int64_t> tile,
                     int64_t max_steps, int64_t max_width, int64_t ahead,
                     int64_t workers, std::optional<nb::dict> state) {
  BatchOptions o;
  set_batches(o, rows, mask, tile, max_steps, max_width, ahead, workers);
  StreamPosition from;
  if (state) from = position_of(*state);
  auto made = unlocked([&] { return Loader::open_rows(path, o, from); });
  const auto open =
      std::make_shared<Open>(take(std::move(made)), std::make_shared<Raised>());
  nb::object self = nb::cast(new PyLoader(open, std::move(o), std::nullopt),
                             nb::rv_policy::take_ownership);
  close_at_exit(self, open);
  return self;
}

void close(PyLoader& self) {
  const Open& open = *self.open;
  if (open.is_own_thread() && open.raised->closed) return;
  open.check_caller();
  self.open->close();
}

constexpr const char* kAbout =
    "Fixed-shape batches of packed rows, each with its attention\n"
    "plan. Threads make the batches ahead.\n\n"
    "`documents` is one of these:\n\n"
    "- anything with `__arrow_c_stream__`: a pyarrow Table or\n"
    "  RecordBatchReader, a Polars DataFrame, a DuckDB relation\n"
    "- a path or a list of paths of JSON lines, Parquet or Arrow IPC\n"
    "- an iterable of documents: token arrays, or dicts of fields\n\n"
    "A batch is a dict. It has each column of the rows as a NumPy\n"
    "int32 array [rows, ...]; `batch`, the `tessera.Batch` of their\n"
    "doc_ids and valid_token_count under `mask` (None: causal &\n"
    "documents); and `filled`, the number of rows that are not\n"
    "padding alone, which is below `rows` in the last batch only.\n\n"
    "`workers` threads plan batches, read columns of Parquet and\n"
    "parse JSON lines. The batches are the same for any number of\n"
    "workers. `ahead` is how many batches are made before they are\n"
    "asked for.\n\n"
    "`state()` is where to go on: `Loader(same documents, ...,\n"
    "state=state)` gives the same batches from there.";

}  // namespace

void bind_data(nb::module_& m) {
  nb::class_<PyLoader> loader(m, "Loader", nb::is_weak_referenceable(), kAbout);
  refuse_pickle(loader, "keep state() and open one with it");
  loader
      .def("__init__", &init, nb::arg("documents"), nb::kw_only(),
           nb::arg("tokens") = 8192, nb::arg("rows") = 8,
           nb::arg("strategy") = "bestfit", nb::arg("long_documents") = "split",
           nb::arg("mask") = nb::none(),
           nb::arg("tile") = std::pair<int64_t, int64_t>{256, 256},
           nb::arg("max_steps") = 0, nb::arg("max_width") = 0,
           nb::arg("window_rows") = 4096, nb::arg("rows_per_step") = 8,
           nb::arg("mixing") = 0.0, nb::arg("seed") = 0, nb::arg("pad_id") = 0,
           nb::arg("max_chunks") = 0, nb::arg("max_edges") = 0,
           nb::arg("strict_chunks") = false, nb::arg("ahead") = 2,
           nb::arg("workers") = 1, nb::arg("state") = nb::none())
      .def_static(
          "open_rows", &open_rows, nb::arg("path"), nb::kw_only(),
          nb::arg("rows") = 8, nb::arg("mask") = nb::none(),
          nb::arg("tile") = std::pair<int64_t, int64_t>{256, 256},
          nb::arg("max_steps") = 0, nb::arg("max_width") = 0,
          nb::arg("ahead") = 2, nb::arg("workers") = 1,
          nb::arg("state") = nb::none(),
          nb::sig("def open_rows(path: str | os.PathLike, *, rows: int = 8, "
                  "mask: object "
                  "| None = None, tile: tuple[int, int] = (256, 256), "
                  "max_steps: int = 0, max_width: int = 0, ahead: int = 2, "
                  "workers: int = 1, state: dict | None = None) -> Loader"),
          "Opens a loader of rows that were packed before, for example by\n"
          "`tessera pack`.\n\n"
          "`path` is a file of safetensors, Parquet or Arrow IPC, or a\n"
          "folder of such files, which are read in the order of their\n"
          "names. Batches are as those of documents, in the order of the\n"
          "rows. The files are checked at once, each row when it is read.\n"
          "`state()` names a row of a file; `open_rows(same path,\n"
          "state=state)` goes on from there. Such a loader has no\n"
          "account().")
      .def(
          "__iter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __iter__(self) -> Loader"))
      .def("__next__", &next,
           nb::sig("def __next__(self) -> dict[str, object]"))
      .def(
          "state", [](const PyLoader& l) { return dict_of(l.position); },
          nb::sig(
              "def state(self) -> dict[str, int | float | str | list[str]]"),
          "Where to go on after the last batch, as a dict for JSON or\n"
          "pickle: plain numbers, what was counted so far, and digests of\n"
          "the options and of the files (names, sizes, order).")
      .def("__repr__", &words)
      .def("account", &account_of,
           nb::sig("def account(self) -> dict[str, object]"),
           "Where tokens, chunks and edges went, as a dict.\n\n"
           "The counts are those of the time when the last batch was made:\n"
           "of the windows that were packed by then and of the chunks that\n"
           "were handed out. When the loader has ended they are of all\n"
           "documents. A loader that goes on from a state also counts what\n"
           "was before the state. `ignored_columns` are the columns that the\n"
           "documents have and the rows have no place for. Raises a\n"
           "TesseraError for a loader of packed rows.")
      .def("close", &close,
           "Stops the threads of the loader. Batches that were handed out\n"
           "stay valid.")
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> Loader"))
      .def(
          "__exit__",
          [](PyLoader& l, const nb::args&) {
            // In a forked child an exception may leave the block too.
            if (!l.open->is_forked()) close(l);
          },
          nb::sig("def __exit__(self, *args: object) -> None"));
}

}  // namespace tessera::python
