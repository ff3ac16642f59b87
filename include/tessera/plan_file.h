// tessera/plan_file.h: a plan saved with its request and facts. Every other
// layout is derived, so the file holds none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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
  RouteMeaning picks_meaning = RouteMeaning::exact;
  int64_t picks_query_tile = 0;

  Facts view() const;
  bool operator==(const OwnedFacts&) const = default;
};

OwnedFacts own_facts(const Facts& facts);

struct PlanFile {
  Request request;
  OwnedFacts facts;
  Plan plan;

  bool operator==(const PlanFile&) const = default;
};

// The version this build writes, and the only one it reads.
inline constexpr uint32_t kPlanFileVersion = 0;

// What a file may grow to in memory. Ids lie in it as runs, so a few bytes can
// stand for a billion tokens, and picks as bits; whoever means that raises the
// ceiling.
struct DecodeLimits {
  int64_t max_bytes = int64_t{1} << 32;      // of the file
  int64_t max_ids = int64_t{1} << 26;        // doc_ids and q_doc_ids together
  int64_t max_tile_rows = int64_t{1} << 24;  // rows and columns of all lists
  int64_t max_picks = int64_t{1} << 28;      // slots of all queries
};

// Refuses a plan that is not the one its request and facts make.
Result<std::string> encode_plan(const Request& request, const Facts& facts,
                                const Plan& plan);
// Never trusts the bytes: sizes, checksum, structure, and then the lists must
// be those that the request and facts in the file plan to. Needs memory for
// the facts and for the tiles that are really in the file, no more.
Result<PlanFile> decode_plan(std::string_view bytes,
                             const DecodeLimits& limits = {});

Result<void> save_plan(const std::string& path, const Request& request,
                       const Facts& facts, const Plan& plan);
Result<PlanFile> load_plan(const std::string& path,
                           const DecodeLimits& limits = {});

}  // namespace tessera
