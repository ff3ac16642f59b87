// tessera/plan_file.h: a plan saved with its request and facts. Every other
// layout is derived, so the file holds none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/facts.h"
#include "tessera/plan.h"

namespace tessera {

// Facts that own their arrays.
struct OwnedFacts {
  std::optional<std::vector<int32_t>> doc_ids;
  std::optional<std::vector<int32_t>> q_doc_ids;
  std::optional<std::vector<int32_t>> valid_token_counts;
  std::optional<std::vector<int32_t>> valid_slot_counts;
  int64_t base_block_tokens = 0;
  std::optional<std::vector<int32_t>> prefix_lengths;
  std::optional<std::vector<int32_t>> q_offsets;
  std::optional<std::vector<int32_t>> picks;
  int64_t picks_heads = 1;
  int64_t picks_k = 0;

  Facts view() const;
};

struct PlanFile {
  Request request;
  OwnedFacts facts;
  Plan plan;
};

Result<std::string> encode_plan(const Request& request, const Facts& facts,
                                const Plan& plan);
// Never trusts the bytes: sizes, checksum, structure, and then the lists must
// be those that the request and facts in the file plan to.
Result<PlanFile> decode_plan(std::string_view bytes);

Result<void> save_plan(const std::string& path, const Request& request,
                       const Facts& facts, const Plan& plan);
Result<PlanFile> load_plan(const std::string& path);

}  // namespace tessera
