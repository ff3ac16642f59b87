// plan/plan_header.h: the JSON at the start of a plan file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/plan.h"

namespace tessera::plan {

inline constexpr std::string_view kPlanFileWhere = "plan file";

// An array of 32-bit words. Sections follow the header in this order.
struct Section {
  std::string name;
  int64_t words = 0;

  bool operator==(const Section&) const = default;
};

struct PlanHeader {
  Request request;
  int64_t heads = 1;  // plan heads
  int64_t base_block_tokens = 0;
  int64_t picks_heads = 1;
  int64_t picks_k = 0;
  RouteMeaning picks_meaning = RouteMeaning::exact;
  int64_t picks_query_tile = 0;
  std::vector<Section> sections;

  bool operator==(const PlanHeader&) const = default;
};

// Equal headers give equal text. An error if read_header would not return the
// same header: a mask not made by make_mask, or a size out of range.
Result<std::string> write_header(const PlanHeader& header);

// Checks types, ranges and masks, but not that the sizes agree.
Result<PlanHeader> read_header(std::string_view text);

}  // namespace tessera::plan
