// cli/explain/answers.h: what `tessera explain` says of a pair, or of a query.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "tessera/plan.h"

namespace tessera::cli {

struct Where {
  int64_t batch_row, head, query;
};

inline constexpr const char* kClassNames[] = {"empty", "partial", "full"};

// Each prints its answer and returns the exit code.
int explain_pair(const Legality& legality, const Plan& plan, const Where& at,
                 int64_t key, bool as_json);
int explain_query(const Legality& legality, const Plan& plan, const Where& at,
                  bool as_json);

// With what attention does with picks, where there are any.
void print_json(const Plan& plan, nlohmann::json out);

}  // namespace tessera::cli
