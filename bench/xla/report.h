// bench/xla/report.h: prints a table of `tessera-bench xla`, makes its JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "bench/xla/measure.h"

namespace tessera::bench {

nlohmann::json table_json(const XlaProblem& problem,
                          const std::vector<XlaContender>& all,
                          double other_cores);
void print_table(const XlaProblem& problem,
                 const std::vector<XlaContender>& all, double other_cores);

}  // namespace tessera::bench
