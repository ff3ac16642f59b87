#include "schedule/regions.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/fail.h"

namespace tessera::schedule {
namespace {

// Jumps back to the same bundle form one loop: the inner ones are "continue".
Result<std::vector<Region>> jump_regions(const KernelText& kernel,
                                         int64_t delay) {
  const auto size = static_cast<int64_t>(kernel.bundles.size());
  std::unordered_map<int64_t, int64_t> starts;
  for (int64_t b = 0; b < size; ++b) {
    for (int64_t number : kernel.bundles[static_cast<size_t>(b)].starts) {
      starts.emplace(number, b);
    }
  }
  std::vector<Region> out;
  std::map<int64_t, size_t> loops;
  for (int64_t b = 0; b < size; ++b) {
    const auto& branch = kernel.bundles[static_cast<size_t>(b)].branch;
    if (!branch) continue;
    const auto target = starts.find(branch->region);
    if (target == starts.end()) {
      return invalid("schedule",
                     "a branch must lead to a region that starts somewhere, "
                     "found none of number {} for bundle {:#x}",
                     branch->region, b);
    }
    const int64_t behind = std::min(b + 1 + delay, size);
    Region r;
    r.number = branch->region;
    if (target->second > b) {
      if (target->second <= behind) continue;  // skips only delay bundles
      r.kind = RegionKind::branch;
      r.begin = behind;
      r.end = target->second;
      out.push_back(std::move(r));
      continue;
    }
    const auto [known, fresh] = loops.emplace(target->second, out.size());
    if (!fresh) {
      out[known->second].end = behind;
      out[known->second].limit.reset();
      continue;
    }
    r.kind = RegionKind::loop;
    r.begin = target->second;
    r.end = behind;
    r.limit = branch->limit;
    out.push_back(std::move(r));
  }
  // A branch that skips a whole loop starts where the loop does. Its test comes
  // first, so the branch is the outer region.
  const auto order = [](const Region& r) {
    return std::tuple(r.begin, -r.end, r.kind == RegionKind::loop, r.number);
  };
  std::sort(out.begin(), out.end(), [&](const Region& a, const Region& b) {
    return order(a) < order(b);
  });
  // Drops a branch that only tests whether a loop runs at all: the loop's trips
  // include that.
  const auto last = std::unique(
      out.rbegin(), out.rend(), [](const Region& inner, const Region& outer) {
        return inner.kind == RegionKind::loop &&
               outer.kind == RegionKind::branch && inner.begin == outer.begin &&
               inner.end == outer.end;
      });
  out.erase(out.begin(), last.base());
  return out;
}

bool names_outer(const RegionTree& tree, const Region& region,
                 const std::string& source) {
  for (int64_t p = region.parent; p > 0;) {
    const Region& outer = tree.regions[static_cast<size_t>(p)];
    if (outer.source == source) return true;
    p = outer.parent;
  }
  return false;
}

// Names a region by the source of most of its own ops; ties go to the first.
// Sources that name an outer region count only if there is no other, because
// the compiler moves ops into loops and out of them.
void name_regions(const KernelText& kernel, RegionTree& tree) {
  std::vector<std::map<uint32_t, int64_t>> votes(tree.regions.size());
  for (size_t b = 0; b < kernel.bundles.size(); ++b) {
    for (uint32_t source : kernel.bundles[b].sources) {
      ++votes[tree.innermost[b]][source];
    }
  }
  for (size_t r = 0; r < votes.size(); ++r) {
    Region& region = tree.regions[r];
    int64_t most = 0;
    bool inherited = true;
    for (const auto& [source, count] : votes[r]) {
      if (source >= kernel.sources.size()) continue;
      const bool outer = names_outer(tree, region, kernel.sources[source]);
      if (outer > inherited || (outer == inherited && count <= most)) continue;
      inherited = outer;
      most = count;
      region.source = kernel.sources[source];
    }
    if (region.grid) {
      region.name = "grid";
    } else if (r > 0 &&
               region.source.find_first_of(".:") == std::string::npos) {
      region.name = region.source;
    }
  }
}

}  // namespace

Result<RegionTree> find_regions(const KernelText& kernel, int64_t delay) {
  auto found = jump_regions(kernel, delay);
  if (!found) return found.error();
  const auto size = static_cast<int64_t>(kernel.bundles.size());
  RegionTree tree;
  tree.regions.push_back({});
  tree.regions[0].end = size;
  tree.innermost.assign(kernel.bundles.size(), 0);
  std::vector<std::array<int64_t, 2>> counted(1);  // loops and ifs in each
  std::vector<size_t> open = {0};
  bool gridded = false;
  for (Region& r : *found) {
    while (tree.regions[open.back()].end <= r.begin) open.pop_back();
    const size_t parent = open.back();
    const Region& outer = tree.regions[parent];
    if (r.end > outer.end) {
      r.end = outer.end;
      ++tree.irregular;
    }
    r.parent = static_cast<int64_t>(parent);
    r.depth = outer.depth + 1;
    if (r.depth > kMaxNested) {
      return over_limit("schedule",
                        "regions must nest at most {} deep, found more at "
                        "bundle {:#x}",
                        kMaxNested, r.begin);
    }
    const bool loop = r.kind == RegionKind::loop;
    r.path = fmt::format("{}{}{}{}", outer.path, parent == 0 ? "" : "/",
                         loop ? "loop" : "if", counted[parent][loop ? 0 : 1]++);
    if (loop && !gridded &&
        kernel.bundles[static_cast<size_t>(r.begin)].pipeline) {
      r.grid = gridded = true;
    }
    const auto index = static_cast<uint32_t>(tree.regions.size());
    open.push_back(index);
    counted.push_back({});
    tree.regions.push_back(std::move(r));
  }
  // Inner regions come after their parents, so the innermost is on top.
  std::vector<size_t> stack = {0};
  size_t next = 1;
  for (int64_t b = 0; b < size; ++b) {
    while (tree.regions[stack.back()].end <= b) stack.pop_back();
    while (next < tree.regions.size() && tree.regions[next].begin == b) {
      stack.push_back(next++);
    }
    tree.innermost[static_cast<size_t>(b)] =
        static_cast<uint32_t>(stack.back());
  }
  name_regions(kernel, tree);
  return tree;
}

}  // namespace tessera::schedule
