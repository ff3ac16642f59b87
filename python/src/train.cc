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
  take(check_rows(out, "the rows of a step"));
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
  const std::string of = take(std::move(bytes));
  return nb::bytes(of.data(), of.size());
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
  const std::string of = take(std::move(bytes));
  return nb::bytes(of.data(), of.size());
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
    "A decoder trained on packed rows, a step one compiled program whose state "
    "stays on the device (docs/train.md).\n\n"
    "`model` is a dict or JSON of sizes and settings. `step(rows, "
    "learning_rate)` takes a dict of int32 arrays [rows, ...] by the names of "
    "a row's columns, as `tessera.data.Loader` gives them, and tells loss, "
    "norm and tiles. `checkpoint()` is a .safetensors file as bytes; "
    "`restore()` goes on from one, bit for bit. `mesh`, "
    "\"data=2,head=2,seq=2\", divides rows of a step, heads with the MLP's "
    "width (and the vocabulary where it divides), and tokens among devices. "
    "Where tokens are divided `exchange` is \"gather\", or of the specs xla "
    "and tpu \"rounds\" or \"ragged\" (tpu takes one of these), with "
    "`balance`, `ceilings`, `work` and `evenness` as `tessera train` has "
    "them; left open, ceilings have room for every batch, and rounds then "
    "send what gathering would, of tasks q and out besides. `ceilings(rows)` "
    "says what a batch takes.";

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
           "One step of training on a batch of rows: its loss, the norm of its "
           "gradients, tokens, tiles and milliseconds.")
      .def("ceilings", &ceilings, nb::arg("rows"),
           nb::sig("def ceilings(self, rows: dict[str, object]) -> str"),
           "What a batch takes of an exchange in rounds, as `ceilings` of "
           "another trainer takes it.")
      .def("logits", &logits, nb::arg("rows"),
           nb::sig("def logits(self, rows: dict[str, object]) -> "
                   "numpy.ndarray"),
           "Of every token: float32 [rows, tokens, vocab].")
      .def("checkpoint", &checkpoint,
           "The state of training as the bytes of a .safetensors file.")
      .def("restore", &restore, nb::arg("checkpoint"), nb::kw_only(),
           nb::arg("name") = "",
           "Goes on from a checkpoint, bit for bit. `name` is how errors call "
           "it: its file's.")
      .def_prop_ro(
          "steps", [](const PyTrainer& t) { return t.trainer.steps(); },
          "That were done, those before a checkpoint too.")
      .def("parameters", &parameters,
           nb::sig("def parameters(self) -> dict[str, tuple[int, ...]]"),
           "Shapes by name.")
      .def("__repr__", &repr_of)
      .def("counters", &counters,
           nb::sig("def counters(self) -> dict[str, int | float | "
                   "list[str]]"),
           "Compiles, how many of them came from the cache's folder, "
           "milliseconds, and warnings of the plugin and of that folder.");
  m.def(
      "cosine_rate", &cosine_rate, nb::arg("step"), nb::kw_only(),
      nb::arg("steps"), nb::arg("peak"), nb::arg("warmup") = nb::none(),
      "The learning rate of a step, the first of which is 1, as `tessera "
      "train` has it: it rises over `warmup` steps to `peak` (left open, over "
      "a twentieth of `steps`), then falls as a cosine to a tenth of it at "
      "the last of `steps`.");
  m.def("import_hugging_face", &import_model, nb::arg("folder"),
        "A Llama or a Gemma 2 as Hugging Face's library keeps it in a folder, "
        "as a checkpoint that a Trainer restores: the start of a run.");
  m.def("export_hugging_face", &export_model, nb::arg("checkpoint"),
        nb::arg("folder"), nb::kw_only(), nb::arg("name") = "",
        "Writes config.json and model.safetensors into a folder that is new "
        "or empty. `name` is how errors call the checkpoint.");
  m.def("checkpoint_model", &model_of, nb::arg("checkpoint"), nb::kw_only(),
        nb::arg("name") = "",
        nb::sig("def checkpoint_model(checkpoint: bytes, *, name: str = '') -> "
                "dict[str, object]"),
        "The model that a checkpoint is of. `name` is how errors call it.");
}

}  // namespace tessera::python
