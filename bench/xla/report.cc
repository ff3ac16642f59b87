// bench/xla/report.cc: prints a table of `tessera-bench xla`, makes its JSON.
#include "bench/xla/report.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "base/dtype_word.h"
#include "bench/harness/times.h"

namespace tessera::bench {
namespace {

using nlohmann::json;

std::optional<double> median(const std::vector<XlaContender>& all,
                             std::string_view name) {
  for (const XlaContender& c : all) {
    if (c.name == name && !c.ms.empty()) return times_of(c.ms).median_ms;
  }
  return {};
}

std::optional<double> dense_to_worklist(const std::vector<XlaContender>& all) {
  const auto dense = median(all, to_string(XlaMethod::dense));
  const auto worklist = median(all, to_string(XlaMethod::worklist));
  if (!dense || !worklist) return {};
  return *dense / *worklist;
}

}  // namespace

json table_json(const XlaProblem& p, const std::vector<XlaContender>& all,
                double other_cores) {
  json rows = json::array();
  for (const XlaContender& c : all) {
    json row = {{"name", c.name == kCpu ? "cpu" : "xla " + c.name},
                {"why", c.why}};
    if (!c.ms.empty()) {
      const RunTimes times = times_of(c.ms);
      row["median_ms"] = times.median_ms;
      row["best_ms"] = times.best_ms;
      row["runs"] = c.ms;
      row["first_ms"] = c.first_ms;
      row["max_ratio"] = c.check.max_bound_ratio;
      row["worst"] = c.check.worst;
    }
    rows.push_back(std::move(row));
  }
  json out = {
      {"case", p.what->name},         {"mask", p.what->mask},
      {"dtype", dtype_word(p.dtype)}, {"direction", to_string(p.direction)},
      {"density", p.density()},       {"tile_density", p.tile_density()},
      {"rows", std::move(rows)},      {"other_cores", other_cores}};
  if (const auto ratio = dense_to_worklist(all)) out["ratio"] = *ratio;
  return out;
}

void print_table(const XlaProblem& p, const std::vector<XlaContender>& all,
                 double other_cores) {
  fmt::print(
      "{}, {}, {}: {:.1f} % of the pairs legal, {:.1f} % of the tiles "
      "active\n",
      p.what->mask, dtype_word(p.dtype), to_string(p.direction),
      100 * p.density(), 100 * p.tile_density());
  for (const XlaContender& c : all) {
    const std::string name = c.name == kCpu ? "cpu" : "xla " + c.name;
    if (!c.why.empty()) {
      fmt::print("  {:<13} not measured: {}\n", name, c.why);
      continue;
    }
    const RunTimes times = times_of(c.ms);
    fmt::print(
        "  {:<13} {:>9.1f} ms, best {:>9.1f}, first {:>9.1f}; {:.2g} % "
        "of the error bound\n",
        name, times.median_ms, times.best_ms, c.first_ms,
        100 * c.check.max_bound_ratio);
  }
  if (const auto ratio = dense_to_worklist(all)) {
    fmt::print("  dense / worklist {:.1f}\n", *ratio);
  }
  if (other_cores >= kQuietCores) {
    fmt::print("  not quiet: other processes kept {:.1f} cores busy\n",
               other_cores);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

}  // namespace tessera::bench
