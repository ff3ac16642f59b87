// cli/model/command.cc: `tessera model`: converts parameters from and to the
// formats of other libraries.
#include "cli/command.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/json_line.h"
#include "cli/numbers.h"
#include "cli/request/file_checks.h"
#include "model/hugging_face.h"
#include "model/parameter_parts.h"
#include "tessera/train.h"

namespace tessera::cli {
namespace {

struct Options {
  std::string verb, from, out;
  bool json = false;
};

Result<void> print(const Options& o, std::string_view checkpoint,
                   const std::vector<std::string>& written) {
  auto model = checkpoint_model(checkpoint);
  if (!model) return model.error();
  auto spec = find_layer_spec(layer_spec_names().front());
  if (!spec) return spec.error();
  auto parameters = model_parameters(*model, *spec);
  if (!parameters) return parameters.error();
  const int64_t numbers = model::numbers_of(*parameters);
  if (o.json) {
    const nlohmann::json report = {
        {"model", nlohmann::json::parse(to_json(*model))},
        {"arrays", parameters->size()},
        {"parameters", numbers},
        {"files", written}};
    fmt::print("{}\n", json_line(report));
    return {};
  }
  fmt::print("model      {} layers of width {}, {} parameters\n", model->layers,
             model->width, numbers);
  for (const std::string& file : written) {
    fmt::print("file       {}\n", on_a_line(file));
  }
  return {};
}

Result<int> import_model(const Options& o) {
  auto files = model::their_files(o.from);
  if (!files) return files.error();
  if (auto e = check_files(files->names, {o.out}); !e) return e.error();
  auto theirs = read_hugging_face(o.from);
  if (!theirs) return theirs.error();
  auto checkpoint = import_hugging_face(*theirs);
  if (!checkpoint) return checkpoint.error();
  if (auto e = write_file(o.out, *checkpoint); !e) return e.error();
  if (auto e = print(o, *checkpoint, {o.out}); !e) return e.error();
  return kOk;
}

// Writes the model to the --out folder, which exists and is empty, in the
// format of Hugging Face.
Result<void> write_theirs(const Options& o) {
  const std::vector<std::string> files = {o.out + "/model.safetensors",
                                          o.out + "/config.json"};
  if (auto e = check_files({o.from}, files); !e) return e;
  auto checkpoint = read_file(o.from, kMaxCheckpointBytes);
  if (!checkpoint) return checkpoint.error();
  auto theirs = export_hugging_face(*checkpoint, o.from);
  if (!theirs) return theirs.error();
  if (auto e = write_hugging_face(*theirs, o.out); !e) return e;
  return print(o, *checkpoint, files);
}

Result<int> export_model(const Options& o) {
  auto e = model::write_their_folder(o.out, [&] { return write_theirs(o); });
  if (!e) return e.error();
  return kOk;
}

Result<int> run(const Options& o) {
  if (o.verb == "import") return import_model(o);
  if (o.verb == "export") return export_model(o);
  return invalid("cli", "a verb must be import or export, found {}",
                 in_quotes(o.verb));
}

constexpr const char* kFooter =
    "Examples:\n"
    "  tessera model import Llama-3.2-1B -o start.safetensors\n"
    "  tessera train --data rows --resume start.safetensors \\\n"
    "      --checkpoint model.safetensors\n"
    "  tessera model export model.safetensors -o tuned\n"
    "\n"
    "A folder is one of Hugging Face's library: config.json, and\n"
    "model.safetensors or the files of model.safetensors.index.json. Llama "
    "and\n"
    "Gemma 2, in F32, BF16 or F16; what is written is F32. A setting or an\n"
    "array that our models have no word for is refused by its name.";

constexpr JsonField kJsonFields[] = {
    {"model.NAME", "as `tessera train --model` takes it"},
    {"arrays, parameters", "how many"},
    {"files", "files that were written"},
};

}  // namespace

Command model_command() {
  auto o = std::make_shared<Options>();
  Command command{"model",
                  "Bring models in from Hugging Face's names, and out"};
  add_flags(
      command,
      {
          {"verb", &o->verb, "VERB", "import or export", true},
          {"from", &o->from, "FROM",
           "A folder to import; a checkpoint to export", true},
          {"-o,--out", &o->out, "TO",
           "The checkpoint to write; the folder to write, new or empty", true},
          {"--json", &o->json, "", "One JSON object on stdout"},
      });
  command.footer = kFooter;
  command.json_fields = kJsonFields;
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
