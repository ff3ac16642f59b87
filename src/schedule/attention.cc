// schedule/attention.cc: reads the pipeline around a grid of attention steps.
#include "schedule/attention.h"

#include <algorithm>

namespace tessera::schedule {
namespace {

// A window's last two dimensions are tokens and head dim, in either order. The
// dimensions before them select one head of one batch row.
struct Tokens {
  int64_t block = 0;
  int64_t length = 0;
};

// The token dimension of a window, if its length is `length` and the head dim
// is whole.
std::optional<Tokens> tokens_of(const Window& w, int64_t length) {
  const size_t rank = w.shape.size();
  if (rank < 2 || w.full.size() != rank) return {};
  for (const auto& [tokens, dim] :
       {std::pair(rank - 2, rank - 1), {rank - 1, rank - 2}}) {
    if (w.full[tokens] == length && w.full[dim] == w.shape[dim]) {
      return Tokens{w.shape[tokens], w.full[tokens]};
    }
  }
  return {};
}

// The lists of q, the first operand that the pipeline moves: [.., tokens, dim],
// one head per block. `heads` is 0 if q has another form.
struct Lists {
  int64_t heads = 0;
  size_t dimensions = 0;
};
Lists lists_of(const KernelText& text) {
  for (const Window& w : text.windows) {
    if (w.output) continue;
    const size_t rank = w.full.size();
    if (rank < 3 || w.shape.size() != rank) return {};
    double heads = 1;
    for (size_t d = 0; d + 2 < rank; ++d) {
      if (w.shape[d] != 1 || w.full[d] < 1) return {};
      heads *= static_cast<double>(w.full[d]);
    }
    if (heads > 1e9) return {};
    return {static_cast<int64_t>(heads), rank - 2};
  }
  return {};
}

// The parts of a step: the region that holds them, and the parts with matrix
// products. If no part has one, the region itself computes.
struct Step {
  size_t inside = 0;
  std::vector<size_t> parts;
  std::vector<size_t> products;
};

std::optional<Step> find_step(const KernelProfile& p, size_t grid) {
  const auto has_product = [&](size_t r) {
    return p.whole[r].used[kMatmul] > 0;
  };
  Step out;
  out.inside = grid;
  size_t guards = 0;
  for (size_t r : branches_in(p.tree, grid)) {
    if (!has_product(r) || branches_in(p.tree, r).empty()) continue;
    out.inside = r;
    ++guards;
  }
  if (guards > 1) return {};
  out.parts = branches_in(p.tree, out.inside);
  for (size_t r : out.parts) {
    if (has_product(r)) out.products.push_back(r);
  }
  const bool computes =
      out.inside != grid && p.own[out.inside].used[kMatmul] > 0;
  if (out.products.size() > 2 || (out.products.empty() && !computes)) return {};
  return out;
}

// The bundles from the first product of the step to the last.
std::pair<int64_t, int64_t> product_range(const KernelProfile& p,
                                          const Step& step) {
  const auto& regions = p.tree.regions;
  if (!step.products.empty()) {
    return {regions[step.products.front()].begin,
            regions[step.products.back()].end};
  }
  std::pair<int64_t, int64_t> out{-1, -1};
  for (int64_t b = regions[step.inside].begin; b < regions[step.inside].end;
       ++b) {
    const auto at = static_cast<size_t>(b);
    if (p.tree.innermost[at] != step.inside ||
        p.text.bundles[at].used[kMatmul] == 0) {
      continue;
    }
    if (out.first < 0) out.first = b;
    out.second = b + 1;
  }
  return out;
}

// Counts the steps and rows of the grid. Its dimensions are the lists, then
// either all active tiles or rows and columns.
bool count_steps(const KernelText& text, const Lists& lists,
                 const PlanCounts& counts, AttentionTrips& out) {
  const auto& bounds = text.grid;
  if (bounds.size() < 2 || bounds.size() > lists.dimensions + 2) return false;
  const auto heads = static_cast<double>(lists.heads);
  out.heads = lists.heads;
  out.active_steps = static_cast<double>(counts.steps) * heads;
  out.grid_steps = out.active_steps;
  out.rows = static_cast<double>(counts.filled_rows) * heads;
  if (std::count(bounds.begin(), bounds.end(), -1) == 0) {
    out.grid_steps = 1;
    for (int64_t n : bounds) out.grid_steps *= static_cast<double>(n);
    // The last dimension sweeps a row, whether rows are of queries or of keys.
    if (bounds.size() == lists.dimensions + 2) {
      out.rows = out.grid_steps / static_cast<double>(bounds.back());
    }
  }
  // Fewer steps than active tiles: the plan is of another kernel.
  out.dead_steps = out.grid_steps - out.active_steps;
  return out.dead_steps >= 0;
}

}  // namespace

std::string_view role_name(Role role) {
  constexpr std::string_view kNames[] = {"",        "grid", "step",    "first",
                                         "compute", "full", "partial", "last"};
  return kNames[static_cast<size_t>(role)];
}

PlanCounts count_plan(const Plan& plan) {
  PlanCounts out;
  const Worklist& w = plan.forward;
  for (const Entry& e : w.entries) {
    ++(e.tile_class() == TileClass::full ? out.full : out.partial);
  }
  out.steps = out.full + out.partial;
  out.rows = w.lists * w.rows;
  for (int64_t l = 0; l < w.lists; ++l) {
    for (int64_t r = 0; r < w.rows; ++r) {
      out.filled_rows += w.row(l, r).empty() ? 0 : 1;
    }
  }
  return out;
}

std::optional<Tile> kernel_blocks(const KernelText& text, int64_t q_len,
                                  int64_t kv_len) {
  std::vector<int64_t> blocks;
  for (const Window& w : text.windows) {
    if (w.output || blocks.size() == 2) continue;
    const auto tokens = tokens_of(w, blocks.empty() ? q_len : kv_len);
    if (!tokens || tokens->block < kMinBlock || tokens->block > kMaxBlock) {
      return {};
    }
    blocks.push_back(tokens->block);
  }
  if (blocks.size() != 2) return {};
  return Tile{blocks[0], blocks[1]};
}

size_t grid_region(const RegionTree& tree) {
  for (size_t r = 1; r < tree.regions.size(); ++r) {
    if (tree.regions[r].grid) return r;
  }
  return 0;
}

std::vector<size_t> branches_in(const RegionTree& tree, size_t parent) {
  std::vector<size_t> out;
  for (size_t r = parent + 1; r < tree.regions.size(); ++r) {
    if (tree.regions[r].parent == static_cast<int64_t>(parent) &&
        tree.regions[r].kind == RegionKind::branch) {
      out.push_back(r);
    }
  }
  return out;
}

// Attention kernels share the form of the vendor's pipeline around a grid:
// every grid step runs the loop, an active step runs the products of its tile,
// the first step of a row runs what precedes the products, and the last what
// follows.
std::optional<AttentionTrips> attention_trips(const KernelProfile& p,
                                              const PlanCounts& counts) {
  const size_t grid = grid_region(p.tree);
  const Lists lists = lists_of(p.text);
  if (grid == 0 || lists.heads == 0) return {};
  const auto step = find_step(p, grid);
  AttentionTrips out;
  if (!step || !count_steps(p.text, lists, counts, out)) return {};
  const auto& regions = p.tree.regions;
  const auto heads = static_cast<double>(lists.heads);
  const bool guarded = step->inside != grid;
  out.dead_cycles =
      out.dead_steps *
      static_cast<double>(p.own[grid].cycles() +
                          (guarded ? p.own[step->inside].cycles() : 0));
  const auto add = [&](size_t region, double trips, Role role) {
    out.regions.push_back({region, trips, role});
  };
  // The pipeline's first fetch and last write are iterations of their own.
  add(grid,
      regions[grid].limit ? static_cast<double>(*regions[grid].limit)
                          : out.grid_steps + 2,
      Role::grid);
  if (guarded) {
    add(step->inside, out.grid_steps,
        step->products.empty() ? Role::compute : Role::step);
  }
  const auto [begin, end] = product_range(p, *step);
  for (size_t r : step->parts) {
    if (regions[r].end <= begin) add(r, out.rows, Role::first);
    if (regions[r].begin >= end) add(r, out.rows, Role::last);
  }
  if (step->products.size() == 1) {
    add(step->products[0], out.active_steps, Role::compute);
  } else if (step->products.size() == 2) {
    // Masks use the vector units, so the part with more VALU ops is `partial`.
    const auto [a, b] = std::pair(step->products[0], step->products[1]);
    const bool second = p.whole[b].used[kValu] >= p.whole[a].used[kValu];
    add(second ? a : b, static_cast<double>(counts.full) * heads, Role::full);
    add(second ? b : a, static_cast<double>(counts.partial) * heads,
        Role::partial);
  }
  return out;
}

}  // namespace tessera::schedule
