// schedule/regions.h: the loops and branches of a kernel, from its jumps.
#pragma once

#include "schedule/bundles.h"

namespace tessera::schedule {

enum class RegionKind : uint8_t { kernel, loop, branch };

// Bundles [begin, end). A loop is the code that a jump back repeats; a branch
// is code that a jump forward may skip: one arm of a condition.
struct Region {
  RegionKind kind = RegionKind::kernel;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t number = -1;  // the vendor's number of the jump's target
  int64_t parent = -1;
  int64_t depth = 0;
  std::string path;    // "loop0/if1": loops and ifs count apart in their parent
  std::string name;    // a tag of the source, "grid", or nothing
  std::string source;  // the source of most of its own ops
  std::optional<int64_t> limit;  // iterations of a loop, if constant
  bool grid = false;             // the vendor's pipelined loop over a grid

  bool operator==(const Region&) const = default;
};

struct RegionTree {
  std::vector<Region> regions;      // parents first; 0 is the kernel
  std::vector<uint32_t> innermost;  // region of each bundle
  // Jumps that do not nest. Their regions are cut at the end of the outer one.
  int64_t irregular = 0;

  bool operator==(const RegionTree&) const = default;
};

inline constexpr int64_t kMaxNested = 64;

// The `delay` bundles after a jump always run, and belong to the region that
// holds the jump.
Result<RegionTree> find_regions(const KernelText& kernel, int64_t delay);

}  // namespace tessera::schedule
