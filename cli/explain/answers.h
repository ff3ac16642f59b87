// cli/explain/answers.h: what `tessera explain` says about a pair or a query.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "tessera/batch.h"
#include "tessera/result.h"

namespace tessera::cli {

struct Where {
  int64_t batch_row, head, query;
};

inline constexpr const char* kClassNames[] = {"empty", "partial", "full"};

struct Answer {
  nlohmann::json json;
  std::string text;
};
Result<Answer> explain_pair(const Batch& batch, const Where& at, int64_t key);
Result<Answer> explain_query(const Batch& batch, const Where& at);

}  // namespace tessera::cli
