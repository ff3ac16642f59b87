// cli/pack/output_checks.cc: checks of output files, by identity and not by
// name.
#include "cli/pack/output_checks.h"

#include <filesystem>

#include "base/fail.h"
#include "base/text.h"
#include "cli/request/file_checks.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

}  // namespace

Result<void> check_stats(const PackFlags& f, const std::string& stats,
                         bool to_folder) {
  const NamedPath picture = {"--stats", stats};
  if (auto e = check_ending(picture, ".svg"); !e) return e;
  // A folder of rows may hold no other files.
  if (to_folder) {
    if (auto e = check_outside(picture, {"--out", *f.out}); !e) return e;
  }
  return check_files(f.inputs, {stats});
}

Result<void> check_out(const PackFlags& f, const std::string& out) {
  for (const std::string& input : f.inputs) {
    std::error_code error;
    if (!fs::equivalent(input, out, error) || error) continue;
    return invalid("cli", "--out must be no input, found {}", in_quotes(out));
  }
  if (is_row_file(out)) return check_row_file(out);
  const std::string ending = fs::path(out).extension().string();
  for (const char* other :
       {".safetensors", ".jsonl", ".json", ".npy", ".csv"}) {
    if (ending != other) continue;
    return invalid("cli",
                   "--out must be a folder, or a file of Parquet or Arrow IPC, "
                   "found {}",
                   in_quotes(out));
  }
  return check_row_folder(out);
}

}  // namespace tessera::cli
