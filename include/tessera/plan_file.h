// tessera/plan_file.h: a plan saved with its request and facts. Every other
// layout is derived, so the file holds none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/batch.h"
#include "tessera/result.h"

namespace tessera {

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

Result<std::string> encode_plan(const Batch& batch);
// Never trusts the bytes: sizes, checksum, structure, and then the lists must
// be those that the request and facts in the file plan to. Needs memory for
// the facts and for the tiles that are really in the file, no more.
Result<OwnedBatch> decode_plan(std::string_view bytes,
                               const DecodeLimits& limits = {});

Result<void> save_plan(const std::string& path, const Batch& batch);
Result<OwnedBatch> load_plan(const std::string& path,
                             const DecodeLimits& limits = {});

}  // namespace tessera
