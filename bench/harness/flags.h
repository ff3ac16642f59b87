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

// The folder of --peers, where it is given.
Result<void> check_peers(const std::optional<std::string>& folder);

// A folder that is to keep what is compiled.
Result<void> check_cache(const std::optional<std::string>& folder);

// Whether --out can be written: asked before anything is measured.
Result<void> check_result(const std::optional<std::string>& out);
// Writes what it asks for.
Result<void> write_result(const std::optional<std::string>& out,
                          const nlohmann::json& result);

// Says that a result is further off than its bound, and by how much.
void print_out_of_bound(double ratio, const std::string& what);

}  // namespace tessera::bench
