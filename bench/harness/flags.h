// bench/harness/flags.h: flags and results that several benchmarks share.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/attention.h"
#include "tessera/result.h"

namespace tessera::bench {

// "f32,bf16"
Result<std::vector<Dtype>> parse_dtypes(std::string_view text);

// Checks the folder of --peers, if it is given.
Result<void> check_peers(const std::optional<std::string>& folder);

// Checks the folder that keeps compiled programs.
Result<void> check_cache(const std::optional<std::string>& folder);

// Checks that --out can be written, before anything is measured.
Result<void> check_result(const std::optional<std::string>& out);
// Writes the result to `out`, if it is given.
Result<void> write_result(const std::optional<std::string>& out,
                          const nlohmann::json& result);

// Writes the result to `out` and as RESULTS/<this CPU>/<bench>.json, as far as
// they are given. Unless `quiet`, prints the path of the second.
Result<void> save_result(const std::optional<std::string>& out,
                         const std::optional<std::string>& results,
                         const nlohmann::json& result, bool quiet);

// Prints that a result is outside its error bound, and by what ratio.
void print_out_of_bound(double ratio, const std::string& what);

}  // namespace tessera::bench
