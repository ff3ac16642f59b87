// train.cc: the library's trainer; rows come as a dict of arrays.
#include "train.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "failure.h"
#include "model/hugging_face.h"
#include "model/layer.h"
#include "model/learning_rate.h"
#include "model/parameter_parts.h"
#include "session.h"
#include "states.h"
#include "tessera/train.h"
#include "unlocked.h"

namespace tessera::python {
namespace {

// A trainer, with the options and sizes that it was opened with.
struct PyTrainer {
  Trainer trainer;
  TrainOptions options;
  RowShape shape;
  int64_t rows = 0;
  std::string words;  // its options, for `repr`
};

std::string json_of(const nb::object& model) {
  if (model.is_none()) return "{}";
  if (nb::isinstance<nb::str>(model)) return nb::cast<std::string>(model);
  return nb::cast<std::string>(
      nb::module_::import_("json").attr("dumps")(model));
}

void init(PyTrainer* self, const nb::object& model, int64_t rows,
          int64_t tokens, const std::string& spec, const std::string& dtype,
          std::optional<std::pair<int64_t, int64_t>> tile, bool recompute,
          uint64_t seed, double weight_decay,
          const std::optional<std::filesystem::path>& plugin, int64_t device,
          const std::string& mesh, const std::string& exchange,
          const std::string& balance, const std::string& ceilings,
          const std::string& work, const std::string& evenness,
          const std::filesystem::path& cache_folder,
          const std::optional<std::string>& lowering_reason,
          int64_t max_compiles) {
  TrainOptions o;
  o.model = take(parse_model_config(json_of(model)));
  o.spec = take(find_layer_spec(spec));
  o.precision.products = parse_dtype(dtype);
  o.optimizer.weight_decay = weight_decay;
  o.rows = rows;
  o.tokens = tokens;
  if (!mesh.empty()) o.mesh = take(parse_mesh(mesh));
  o.shards = take(
      parse_train_shards({balance, exchange, ceilings, work, evenness, false}));
  o.tile = model::default_tile(o.spec);
  if (tile) o.tile = {tile->first, tile->second};
  o.recompute = recompute;
  o.seed = seed;
  o.xla.plugin = plugin.value_or("");
  o.xla.device = device;
  o.xla.cache_folder = cache_folder;
  o.xla.lowering_reason = lowering_reason;
  o.xla.max_compiles = checked_compiles(max_compiles);
  Trainer opened = take(unlocked([&] { return Trainer::open(o); }));
  const TrainCounters counters = opened.counters();
  for (const std::string& warning : counters.plugin_warnings) {
    if (PyErr_WarnEx(PyExc_UserWarning, warning.c_str(), 1) < 0) {
      throw nb::python_error();
    }
  }
  const std::string words = "'" + spec + "', rows=" + std::to_string(rows) +
                            ", tokens=" + std::to_string(tokens) +
                            (mesh.empty() ? "" : ", mesh='" + mesh + "'");
  new (self) PyTrainer{std::move(opened), o, RowShape::of(tokens), rows, words};
}

// Rows from columns by name. Absent columns get the defaults of a file.
Rows rows_of(const PyTrainer& self, const nb::dict& columns) {
  Rows out = take(Rows::make(self.shape, self.rows));
  for (size_t c = 0; c < kRowColumns; ++c) {
    const auto column = static_cast<RowColumn>(c);
    const RowColumnSpec& spec = spec_of(column);
    const char* const name = spec.name.data();
    if (spec.unit == RowUnit::chunk || spec.unit == RowUnit::edge) continue;
    if (column == RowColumn::num_chunks ||
        column == RowColumn::num_call_edges ||
        column == RowColumn::num_type_edges) {
      continue;
    }
    if (!columns.contains(name)) {
      if (spec.required) {
        refuse(std::string("rows must have the column ") + name +
               ", found none");
      }
      continue;
    }
    out.columns[c] =
        read_ints(name, columns[name], self.shape.array(column, self.rows))
            .values;
  }
  // The id of padding is read from the first padded row.
  for (int64_t r = 0; r < self.rows; ++r) {
    const int64_t valid = out.row(RowColumn::valid_token_count, r)[0];
    if (valid < 0 || valid >= self.shape.tokens) continue;
    out.pad_id = out.row(RowColumn::input_ids, r)[static_cast<size_t>(valid)];
    break;
  }
  take(unlocked_if_long(static_cast<size_t>(self.rows * self.shape.tokens),
                        [&] { return check_rows(out, "the rows of a step"); }));
  return out;
}

nb::dict step(PyTrainer& self, const nb::dict& rows, double learning_rate,
              double max_norm) {
  const Rows batch = rows_of(self, rows);
  auto told = unlocked([&] {
    return self.trainer.step(batch, {learning_rate, max_norm});
  });
  const StepReport r = take(std::move(told));
  nb::dict out;
  out["step"] = r.step;
  out["loss"] = r.loss;
  out["gradient_norm"] = r.gradient_norm;
  out["tokens"] = r.tokens;
  out["tiles_run"] = r.tiles_run;
  out["tiles_planned"] = r.tiles_planned;
  out["attention_flops"] = r.attention_flops;
  out["tiles_max_over_mean"] = r.tiles_max_over_mean;
  out["sent"] = r.sent;
  out["all_gather"] = r.all_gather;
  out["plan_ms"] = r.plan_ms;
  out["transfer_ms"] = r.transfer_ms;
  out["run_ms"] = r.run_ms;
  return out;
}

std::string ceilings(const PyTrainer& self, const nb::dict& rows) {
  const Rows batch = rows_of(self, rows);
  return to_string(
      take(unlocked([&] { return Trainer::ceilings(self.options, batch); })));
}

nb::object logits(PyTrainer& self, const nb::dict& rows) {
  const Rows batch = rows_of(self, rows);
  auto made = unlocked([&] { return self.trainer.logits(batch); });
  std::vector<float> of = take(std::move(made));
  const auto tokens = static_cast<size_t>(self.shape.tokens);
  const auto count = static_cast<size_t>(self.rows);
  const size_t vocab = of.size() / (count * tokens);
  return own_array(std::move(of), {count, tokens, vocab});
}

nb::bytes checkpoint(const PyTrainer& self) {
  auto bytes = unlocked([&] { return self.trainer.checkpoint(); });
  return bytes_of(take(std::move(bytes)));
}

void restore(PyTrainer& self, const nb::bytes& bytes, const std::string& name) {
  const std::string_view view(bytes.c_str(), bytes.size());
  auto ok = unlocked([&] { return self.trainer.restore(view, name); });
  take(ok);
}

nb::bytes import_model(const std::filesystem::path& folder) {
  auto bytes = [&]() -> Result<std::string> {
    const nb::gil_scoped_release released;
    auto theirs = read_hugging_face(folder);
    if (!theirs) return theirs.error();
    return import_hugging_face(*theirs);
  }();
  return bytes_of(take(std::move(bytes)));
}

void export_model(const nb::bytes& checkpoint,
                  const std::filesystem::path& folder,
                  const std::string& name) {
  const std::string_view view(checkpoint.c_str(), checkpoint.size());
  auto ok = [&]() -> Result<void> {
    const nb::gil_scoped_release released;
    return model::write_their_folder(folder, [&]() -> Result<void> {
      auto theirs = export_hugging_face(view, name);
      if (!theirs) return theirs.error();
      return write_hugging_face(*theirs, folder);
    });
  }();
  take(ok);
}

nb::object model_of(const nb::bytes& checkpoint, const std::string& name) {
  const ModelConfig m =
      take(checkpoint_model({checkpoint.c_str(), checkpoint.size()}, name));
  return nb::module_::import_("json").attr("loads")(to_json(m));
}

nb::dict counters(const PyTrainer& self) {
  const TrainCounters c = self.trainer.counters();
  nb::dict out;
  add_compiles(c, out);
  out["compile_ms"] = c.compile_ms;
  std::vector<std::string> warnings = c.plugin_warnings;
  warnings.insert(warnings.end(), c.warnings.begin(), c.warnings.end());
  out["warnings"] = warnings;
  return out;
}

nb::dict parameters(const PyTrainer& self) {
  nb::dict out;
  for (const ModelParameter& p : self.trainer.parameters()) {
    nb::list shape;
    for (const int64_t n : p.shape) shape.append(n);
    out[p.name.c_str()] = nb::tuple(shape);
  }
  return out;
}

std::string repr_of(const PyTrainer& self) {
  const int64_t numbers = model::numbers_of(self.trainer.parameters());
  return "Trainer(" + self.words + ", parameters=" + std::to_string(numbers) +
         ", steps=" + std::to_string(self.trainer.steps()) + ")";
}

double cosine_rate(int64_t step, int64_t steps, double peak,
                   std::optional<int64_t> warmup) {
  const model::RateSchedule schedule = {
      {.learning_rate = peak},
      warmup.value_or(model::usual_warmup(steps)),
      steps};
  return take(model::rates_at(schedule, step)).learning_rate;
}

constexpr const char* kAbout =
    "Trains a decoder on packed rows. A step is one compiled program,\n"
    "whose state stays on the device (docs/train.md).\n\n"
    "`model` is a dict or JSON text of sizes and settings.\n"
    "`step(rows, learning_rate)` takes a dict of int32 arrays [rows,\n"
    "...] by the names of a row's columns, as `tessera.data.Loader`\n"
    "gives them, and returns the loss, the norm of the gradients and\n"
    "counts of tiles. `checkpoint()` returns the bytes of a\n"
    ".safetensors file; `restore()` goes on from such bytes, bit for\n"
    "bit.\n\n"
    "`mesh`, such as 'data=2,head=2,seq=2', divides work among\n"
    "devices: the rows of a step along data; heads, the MLP's width\n"
    "and, if it divides, the vocabulary along head; and tokens along\n"
    "seq.\n\n"
    "`exchange` is how keys and values travel along seq: 'gather', or\n"
    "with the specs xla and tpu 'rounds' or 'ragged'. The spec tpu\n"
    "needs one of the last two. `balance`, `ceilings`, `work` and\n"
    "`evenness` go with these, as in `tessera train`. Without\n"
    "`ceilings` there is room for every batch, and rounds then send\n"
    "as much as gathering would; the balance 'tasks' also sends q and\n"
    "out. `ceilings(rows)` returns the ceilings that a batch needs.";

}  // namespace

void bind_train(nb::module_& m) {
  nb::class_<PyTrainer> trainer(m, "Trainer", kAbout);
  refuse_pickle(trainer, "keep checkpoint() and restore() it");
  trainer
      .def("__init__", &init, nb::arg("model") = nb::none(), nb::kw_only(),
           nb::arg("rows") = 1, nb::arg("tokens"), nb::arg("spec") = "xla",
           nb::arg("dtype") = "f32", nb::arg("tile") = nb::none(),
           nb::arg("recompute") = false, nb::arg("seed") = 0,
           nb::arg("weight_decay") = 0.1, nb::arg("plugin") = nb::none(),
           nb::arg("device") = 0, nb::arg("mesh") = "",
           nb::arg("exchange") = "", nb::arg("balance") = "",
           nb::arg("ceilings") = "", nb::arg("work") = "",
           nb::arg("evenness") = "", nb::arg("cache_folder") = "",
           nb::arg("lowering_reason") = nb::none(), nb::arg("max_compiles") = 0)
      .def("step", &step, nb::arg("rows"), nb::arg("learning_rate"),
           nb::arg("max_norm") = 1.0,
           nb::sig("def step(self, rows: dict[str, object], learning_rate: "
                   "float, max_norm: float = 1.0) -> dict[str, int | float]"),
           "Trains one step on a batch of rows. Returns a dict of the step's\n"
           "number, the loss, the norm of the gradients, tokens, tiles,\n"
           "FLOPs of attention, bytes sent and milliseconds. Gradients whose\n"
           "norm is above `max_norm` are scaled down to it.")
      .def("ceilings", &ceilings, nb::arg("rows"),
           nb::sig("def ceilings(self, rows: dict[str, object]) -> str"),
           "The ceilings that a batch of rows needs with an exchange in\n"
           "rounds, as text for the argument `ceilings` of another trainer.")
      .def("logits", &logits, nb::arg("rows"),
           nb::sig("def logits(self, rows: dict[str, object]) -> "
                   "numpy.ndarray"),
           "The logits of every token: float32 [rows, tokens, vocab].")
      .def("checkpoint", &checkpoint,
           "The state of training as the bytes of a .safetensors file.")
      .def("restore", &restore, nb::arg("checkpoint"), nb::kw_only(),
           nb::arg("name") = "",
           "Goes on from the bytes of a checkpoint, bit for bit. Error\n"
           "messages call the checkpoint `name`, which should be its file's\n"
           "name.")
      .def_prop_ro(
          "steps", [](const PyTrainer& t) { return t.trainer.steps(); },
          "The number of steps that were done, with those before a checkpoint.")
      .def("parameters", &parameters,
           nb::sig("def parameters(self) -> dict[str, tuple[int, ...]]"),
           "The shape of each parameter, by its name.")
      .def("__repr__", &repr_of)
      .def("counters", &counters,
           nb::sig("def counters(self) -> dict[str, int | float | "
                   "list[str]]"),
           "A dict of counts of compiles and of programs that came from\n"
           "memory or from the cache folder, the milliseconds of compiling,\n"
           "and warnings of the plugin and of the cache folder.");
  m.def("cosine_rate", &cosine_rate, nb::arg("step"), nb::kw_only(),
        nb::arg("steps"), nb::arg("peak"), nb::arg("warmup") = nb::none(),
        "The learning rate of a step, as in `tessera train`. The first\n"
        "step is 1. The rate rises to `peak` over `warmup` steps (None: a\n"
        "twentieth of `steps`), then falls as a cosine to a tenth of\n"
        "`peak` at the last of `steps`.");
  m.def("import_hugging_face", &import_model, nb::arg("folder"),
        "Reads a Llama or a Gemma 2 from a folder of Hugging Face's\n"
        "library. Returns the bytes of a checkpoint that\n"
        "`Trainer.restore` takes as the start of a run.");
  m.def("export_hugging_face", &export_model, nb::arg("checkpoint"),
        nb::arg("folder"), nb::kw_only(), nb::arg("name") = "",
        "Writes the model of a checkpoint as config.json and\n"
        "model.safetensors into a folder that is new or empty. Raises a\n"
        "TesseraError for a model that is neither a Llama nor a Gemma 2.\n"
        "Error messages call the checkpoint `name`.");
  m.def("checkpoint_model", &model_of, nb::arg("checkpoint"), nb::kw_only(),
        nb::arg("name") = "",
        nb::sig("def checkpoint_model(checkpoint: bytes, *, name: str = '') -> "
                "dict[str, object]"),
        "The sizes and settings of the model that a checkpoint is of, as\n"
        "a dict. Error messages call the checkpoint `name`.");
}

}  // namespace tessera::python
