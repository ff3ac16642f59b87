// schedule/regions.h: the loops and branches of a kernel, from its jumps.
#pragma once

#include "schedule/bundles.h"

namespace tessera::schedule {

enum class RegionKind : uint8_t { kernel, loop, branch };

// Bundles [begin, end). A loop is what a jump back repeats; a branch what a
// jump forward may skip: code under a condition, or the other arm of one.
struct Region {
  RegionKind kind = RegionKind::kernel;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t number = -1;  // the vendor's, of where the jump leads
  int64_t parent = -1;
  int64_t depth = 0;
  std::string path;    // "loop0/if1": loops and ifs count apart in their parent
  std::string name;    // a tag of the source, "grid", or nothing
  std::string source;  // where most of its own ops come from
  std::optional<int64_t> limit;  // of a loop: its iterations, where constant
  bool grid = false;             // the vendor's pipelined loop over a grid

  bool operator==(const Region&) const = default;
};

struct RegionTree {
  std::vector<Region> regions;      // each after its parent; 0 is the kernel
  std::vector<uint32_t> innermost;  // of each bundle
  // Jumps that do not nest; their regions are cut at the end of the outer one.
  int64_t irregular = 0;

  bool operator==(const RegionTree&) const = default;
};

inline constexpr int64_t kMaxNested = 64;

// `delay` bundles behind a jump run whether it is taken or not, and count as
// part of what holds the jump.
Result<RegionTree> find_regions(const KernelText& kernel, int64_t delay);

}  // namespace tessera::schedule
