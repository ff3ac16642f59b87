// tessera/contract.h: everything static that a plan's consumer depends on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/attention.h"
#include "tessera/batch.h"
#include "tessera/facts.h"
#include "tessera/plan.h"

namespace tessera {

struct PlanContract {
  std::string key;   // 32 hex digits; the same on every machine
  std::string text;  // canonical JSON that the key digests
  // Runtime scalars that left the key: exact window bounds, canonical order.
  std::vector<int64_t> window_bounds;
  int64_t steps = 0;  // that a packed worklist of either direction may have
  // Blocks that the queries of a tile row may pick together; 0 where no mask
  // names picks.
  int64_t union_blocks = 0;
  std::vector<std::string> unused_facts;  // given, but no mask names them
  std::vector<std::string> folded;  // a line for each thing that was folded
};

// The least 2^k or 1.5 * 2^k that is not below n; 0 for 0.
int64_t bucket(int64_t n);

Result<PlanContract> make_contract(const Batch& batch);

// The contract of every batch under the request's ceilings; an open ceiling is
// the worst case of the lengths. Of `present` only which facts there are is
// read, and of picks their heads and meaning, not what they hold.
Result<PlanContract> make_ceiling_contract(const Request& request,
                                           const Facts& present);

// What a compiled kernel depends on beside the terms of the plan's contract:
// the key of compile caches.
struct KernelChoice {
  std::string lane;       // "mosaic"
  std::string target;     // "v6e:1x1"
  std::string direction;  // "forward"
  std::string dtype;      // "bf16"
  std::string layout = "bhsd";
  std::string sharding = "none";
  AttentionShape shape;
  // Its arrays are as wide as the rectangle. Kernels that walk a list are not:
  // the grid width is no term of theirs.
  bool reads_rectangle = false;
  // Block sizes and the like by name, and the version of the kernel itself.
  std::map<std::string, int64_t> parameters;
  // Of a tile or a logical block smaller than the target's matrix unit
  // (tessera/lowering.h).
  std::optional<std::string> lowering_reason = {};
};
struct KernelContract {
  std::string key;
  std::string
      text;  // canonical JSON that the key digests, the plan's terms too
};
KernelContract make_kernel_contract(const PlanContract& plan,
                                    const KernelChoice& choice);

// A digest of shapes and both lists: two plans are equal when it is.
std::string plan_digest(const Plan& plan);

}  // namespace tessera
