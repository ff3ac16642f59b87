// bench/harness/flags.cc: flags and results that several benchmarks share.
#include "bench/harness/flags.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/machine.h"
#include "receipt/machine.h"
#include "request/numbers.h"

namespace tessera::bench {

Result<std::vector<Dtype>> parse_dtypes(std::string_view text) {
  std::vector<Dtype> out;
  for (const std::string_view word : request::split(text, ',')) {
    if (word != "f32" && word != "bf16") {
      return invalid("cli", "--dtype must be of f32 and bf16, found {}",
                     in_quotes(word));
    }
    out.push_back(word == "f32" ? Dtype::f32 : Dtype::bf16);
  }
  return out;
}

Result<void> check_peers(const std::optional<std::string>& folder) {
  if (!folder || std::filesystem::is_directory(*folder)) return {};
  return invalid("cli", "--peers must be a folder, found {}",
                 in_quotes(*folder));
}

Result<void> check_cache(const std::optional<std::string>& folder) {
  if (!folder || !folder->empty()) return {};
  return invalid("cli", "--cache must be a folder, found ''");
}

Result<void> check_result(const std::optional<std::string>& out) {
  return out ? check_output(*out) : Result<void>();
}

Result<void> write_result(const std::optional<std::string>& out,
                          const nlohmann::json& result) {
  if (!out) return {};
  return write_file(*out, result.dump(2) + "\n");
}

Result<void> save_result(const std::optional<std::string>& out,
                         const std::optional<std::string>& results,
                         const nlohmann::json& result, bool quiet) {
  if (auto e = write_result(out, result); !e) return e;
  if (!results) return {};
  const auto folder =
      std::filesystem::path(*results) / cli::slug(receipt::cpu_model());
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    return io_error("bench", "{} must be a folder, found: {}",
                    in_quotes(folder.string()), failed.message());
  }
  const std::string name = result["bench"].get<std::string>() + ".json";
  const std::string path = (folder / name).string();
  if (auto e = write_result(path, result); !e) return e;
  if (!quiet) fmt::print("{}\n", path);
  return {};
}

void print_out_of_bound(double ratio, const std::string& what) {
  fmt::print(stderr,
             "tessera-bench: [bench] every result must be within its bound, "
             "found {:.3g} of it for {}\n",
             ratio, what);
}

}  // namespace tessera::bench
