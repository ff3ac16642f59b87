// cli/train/settings.cc: reads a training run from flags, with all checks.
#include "cli/train/settings.h"

#include <cmath>
#include <filesystem>
#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/given_flags.h"
#include "cli/numbers.h"
#include "cli/request/file_checks.h"
#include "cli/run/cache_report.h"
#include "cli/train/options.h"
#include "request/numbers.h"

namespace tessera::cli {
namespace {

Result<int64_t> count(const std::optional<std::string>& text, const char* flag,
                      int64_t otherwise, int64_t least) {
  if (!text) return otherwise;
  return request::parse_int(*text, flag, least, kMaxSteps);
}

Result<double> positive(const std::optional<std::string>& text,
                        const char* flag, double otherwise) {
  if (!text) return otherwise;
  auto value = request::parse_positive(*text, flag);
  if (!value) return value;
  // The program takes the value as float32.
  const auto taken = static_cast<float>(*value);
  if (taken > 0 && std::isfinite(taken)) return value;
  return invalid("cli", "{} must be a number that float32 holds, found {}",
                 flag, in_quotes(*text));
}

// Refuses flags of a run with --compile-only and --warm, which run no step.
Result<void> check_compiled(const TrainFlags& f) {
  if (f.target && !f.compile_only) {
    return invalid("cli", "--target goes with --compile-only, found it alone");
  }
  if (!f.compile_only && !f.warm) return {};
  std::vector<GivenFlag> of_a_run = {{"--checkpoint", f.checkpoint.has_value()},
                                     {"--picture", f.picture.has_value()},
                                     {"--receipt", f.receipt.has_value()}};
  if (f.compile_only) {
    // The model, the ceilings and the device of a real run may depend on these.
    of_a_run.insert(of_a_run.end(), {{"--resume", f.resume.has_value()},
                                     {"--steps", f.steps.has_value()},
                                     {"--device", f.device.has_value()},
                                     {"--warm", f.warm}});
  }
  const auto found = first_given(of_a_run);
  if (found.empty()) return {};
  return invalid("cli", "{} runs no step, found {} beside it",
                 f.compile_only ? "--compile-only" : "--warm", found);
}

std::vector<NamedPath> outputs(const TrainFlags& f) {
  std::vector<NamedPath> out;
  for (const auto& [flag, file] : {std::pair("--checkpoint", &f.checkpoint),
                                   std::pair("--save-program", &f.program),
                                   std::pair("--picture", &f.picture),
                                   std::pair("--receipt", &f.receipt)}) {
    if (*file) out.push_back({flag, **file});
  }
  return out;
}

// Checks that no file would overwrite another or be written into the folder of
// rows.
Result<void> check_train_files(const TrainFlags& f) {
  namespace fs = std::filesystem;
  std::vector<std::string> read = {f.data}, written;
  std::error_code error;
  const bool is_folder = fs::is_directory(f.data, error);
  for (const NamedPath& output : outputs(f)) {
    if (is_folder) {
      if (auto e = check_outside(output, {"--data", f.data}); !e) return e;
    }
    written.push_back(output.path);
  }
  if (f.picture) {
    if (auto e = check_ending({"--picture", *f.picture}, ".svg"); !e) return e;
  }
  if (f.checkpoint) {
    auto e = check_ending({"--checkpoint", *f.checkpoint}, ".safetensors");
    if (!e) return e;
  }
  // The files of the folder may be links to files elsewhere.
  for (fs::directory_iterator at(f.data, error), end; !error && at != end;
       at.increment(error)) {
    read.push_back(at->path().string());
  }
  if (f.model) read.push_back(*f.model);
  // A run may overwrite the checkpoint that it resumes.
  if (f.resume && !(f.checkpoint && is_same_file(*f.resume, *f.checkpoint))) {
    read.push_back(*f.resume);
  }
  return check_files(read, written);
}

}  // namespace

Result<model::TrainingRun> read_train_flags(const TrainFlags& f) {
  if (f.resume && f.seed) {
    return invalid("cli",
                   "--resume draws no parameters, found --seed beside it");
  }
  model::TrainingRun out;
  out.data = f.data;
  if (f.resume) {
    out.start = *f.resume;
    auto bytes = read_file(*f.resume, kMaxCheckpointBytes);
    if (!bytes) return bytes.error();
    out.resumed = std::move(*bytes);
  }
  if (auto e = read_train_options(f, out.resumed, out.options); !e) {
    return e.error();
  }
  auto steps = count(f.steps, "--steps", 100, 1);
  if (!steps) return steps.error();
  out.rates.steps = *steps;
  auto warmup = count(f.warmup, "--warmup", model::usual_warmup(*steps), 0);
  if (!warmup) return warmup.error();
  out.rates.warmup = *warmup;
  auto rate = positive(f.rate, "--rate", 3e-4);
  if (!rate) return rate.error();
  out.rates.peak.learning_rate = *rate;
  auto norm = positive(f.max_norm, "--max-norm", 1);
  if (!norm) return norm.error();
  out.rates.peak.max_norm = *norm;
  auto every = count(f.every, "--every", 0, 1);
  if (!every) return every.error();
  out.every = *every;
  if (f.every && !f.checkpoint) {
    return invalid("cli", "--every goes with --checkpoint, found it alone");
  }
  if (auto e = check_compiled(f); !e) return e.error();
  if (f.warm) {
    auto kept = check_cache_folder(out.options.xla.cache_folder);
    if (!kept) return kept.error();
  }
  if (auto e = check_train_files(f); !e) return e.error();
  return out;
}

}  // namespace tessera::cli
