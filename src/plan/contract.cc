// plan/contract.cc: the static part of a plan, and the key that digests it.
#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/fail.h"
#include "base/integers.h"
#include "base/trace.h"
#include "mask/bind.h"
#include "mask/canonical.h"
#include "plan/batch_state.h"
#include "plan/logical_block.h"
#include "plan/pick_unions.h"
#include "route/unions.h"
#include "tessera/batch.h"
#include "tessera/layouts.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr int kContractVersion = 0;

// A fact, whether it is given, and whether a consumer needs it. Facts that are
// not needed are left out of the contract.
struct Presence {
  std::string name;
  bool given;
  bool needed;
};

std::vector<Presence> presence_of(const Request& request, const Facts& f) {
  const Names n = mask::names_of(request);
  const bool ids = n.documents || n.segments;
  std::vector<Presence> out = {
      {"doc_ids", f.doc_ids.has_value(), ids},
      {"picks", f.picks.has_value(), n.picks},
      {"prefix_lengths", f.prefix_lengths.has_value(), n.prefix},
      {"q_doc_ids", f.q_doc_ids.has_value(), ids},
  };
  for (int64_t i = 0; i < kSameNames; ++i) {
    out.push_back({mask::same_fact(i),
                   f.same_ids[static_cast<size_t>(i)].has_value(),
                   (n.same >> i & 1) != 0});
  }
  out.insert(
      out.end(),
      {
          {"tree_enter", f.tree_enter.has_value(), n.tree},
          {"tree_leave", f.tree_leave.has_value(), n.tree},
          // Valid slot counts become token counts before a consumer reads them.
          {"valid_counts", f.valid_token_counts || f.valid_slot_counts, true},
      });
  return out;
}

Json names_json(const Names& names) {
  Json out = Json::array();
  if (names.documents) out.push_back("documents");
  if (names.picks) out.push_back("picks");
  if (names.prefix) out.push_back("prefix");
  for (const char letter : mask::same_letters(names.same)) {
    out.push_back(to_string(same(letter)));
  }
  if (names.segments) out.push_back("segments");
  if (names.tree) out.push_back("tree");
  return out;
}

// The capacity for one size: the ceiling if one is set, else the bucket of the
// size that this batch needs.
Result<int64_t> capacity(std::string_view what, int64_t needed, int64_t ceiling,
                         std::string_view ceiling_name,
                         std::vector<std::string>& folded) {
  if (ceiling == 0) {
    const int64_t b = bucket(needed);
    if (b != needed) {
      folded.push_back(fmt::format("{} {} is bucket {}", what, needed, b));
    }
    return b;
  }
  if (needed > ceiling) {
    return over_limit("contract", "{} must be at most {} {}, found {}", what,
                      ceiling_name, ceiling, needed);
  }
  if (needed != ceiling) {
    folded.push_back(
        fmt::format("{} {} is under the ceiling {}", what, needed, ceiling));
  }
  return ceiling;
}

// The contract's terms for picks, if a mask names them.
struct PickTerms {
  RouteMeaning meaning = RouteMeaning::exact;
  int64_t query_tile = 0;
  int64_t widest = 0;  // blocks in the largest union of a tile row
};

// The sizes of a contract before bucketing.
struct Sizes {
  int64_t heads = 1;
  std::optional<PickTerms> picks;
  int64_t steps = 0;
  int64_t width = 0;
  int64_t width_transposed = 0;
};

Result<PlanContract> contract_of(const Request& request, const Facts& facts,
                                 const Sizes& sizes);

PickTerms terms_of(const Request& request, const Picks& picks) {
  return {picks.meaning,
          picks.query_tile > 0 ? picks.query_tile : request.tile.q, 0};
}

// The pick terms with the largest union of this batch. An error if a union
// exceeds the ceiling.
Result<PickTerms> pick_terms(const Batch::State& batch) {
  const Request& request = batch.request;
  PickUnions unions =
      plan::plan_unions(batch.sweep.bound, mask::names_of(request).picks_block);
  auto fits =
      routing::set_capacity(request.ceilings.max_union, unions, "contract");
  if (!fits) return fits.error();
  PickTerms out = terms_of(request, *batch.facts.picks);
  out.widest = std::max<int64_t>(unions.widest, 1);
  return out;
}

}  // namespace

int64_t bucket(int64_t n) {
  if (n <= 0) return 0;
  const auto up = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
  // 1.5 * 2^k lies half way between two powers of two.
  return up >= 4 && n <= up / 4 * 3 ? up / 4 * 3 : up;
}

namespace {

Result<PlanContract> contract_of_batch(const Batch::State& batch) {
  const TraceSpan span("plan", "contract");
  const Plan& plan = batch.plan;
  Sizes sizes;
  sizes.heads = plan.heads;
  sizes.steps = std::max(step_count(plan.forward), step_count(plan.transposed));
  sizes.width = grid_width(plan.forward);
  sizes.width_transposed = grid_width(plan.transposed);
  if (plan.meaning) {
    auto picks = pick_terms(batch);
    if (!picks) return picks.error();
    sizes.picks = *picks;
  }
  return contract_of(batch.request, batch.facts, sizes);
}

}  // namespace

Result<PlanContract> make_contract(const Batch& batch) {
  auto read = plan::read_batch(batch, "contract");
  if (!read) return read.error();
  return plan::contract_of(**read);
}

Result<PlanContract> plan::contract_of(const Batch::State& batch) {
  const std::lock_guard lock(batch.mutex);
  if (!batch.contract) batch.contract = contract_of_batch(batch);
  return *batch.contract;
}

Result<PlanContract> make_ceiling_contract(const Request& request,
                                           const Facts& present) {
  const TraceSpan span("plan", "contract");
  if (auto r = mask::check_request(request); !r) return r.error();
  const int64_t rows = ceil_div(request.q_len, request.tile.q);
  const int64_t columns = ceil_div(request.kv_len, request.tile.kv);
  auto heads = static_cast<int64_t>(request.masks.size());
  std::optional<PickTerms> picks;
  const Names names = mask::names_of(request);
  if (present.picks && names.picks) {
    heads = std::max(heads, present.picks->heads);
    picks = terms_of(request, *present.picks);
    picks->widest = request.ceilings.max_union > 0
                        ? request.ceilings.max_union
                        : ceil_div(bucket(request.kv_len), names.picks_block);
  }
  const Ceilings& most = request.ceilings;
  // A double, since the product may overflow 64 bits.
  const double worst = static_cast<double>(request.batch) *
                       static_cast<double>(heads) * static_cast<double>(rows) *
                       static_cast<double>(columns);
  constexpr double kMaxSteps = kMaxCeiling;
  if (most.max_steps == 0 && worst > kMaxSteps) {
    return over_limit("contract",
                      "steps of the worst case must be at most {:.0f} "
                      "steps, found {:.3g} (set max_steps, or use a larger "
                      "tile)",
                      kMaxSteps, worst);
  }
  const auto steps = static_cast<int64_t>(std::min(worst, kMaxSteps));
  return contract_of(request, present,
                     {heads, picks, most.max_steps > 0 ? most.max_steps : steps,
                      most.max_width > 0 ? most.max_width : columns,
                      most.max_width > 0 ? most.max_width : rows});
}

KernelContract make_kernel_contract(const PlanContract& plan,
                                    const KernelChoice& choice) {
  const AttentionShape& s = choice.shape;
  Json terms = Json::parse(plan.text);
  if (!choice.reads_rectangle) {
    terms.erase("width");
    terms.erase("width_transposed");
  }
  Json text = {
      {"version", kContractVersion},
      {"plan", std::move(terms)},
      {"lane", choice.lane},
      {"target", choice.target},
      {"direction", choice.direction},
      {"dtype", choice.dtype},
      {"layout", choice.layout},
      {"sharding", choice.sharding},
      {"heads", s.heads},
      {"kv_heads", s.kv_heads},
      {"head_dim", s.head_dim},
      {"v_head_dim", s.v_head_dim},
      {"scale", s.scale_or_default()},
      {"softcap", s.softcap},
      {"parameters", choice.parameters},
  };
  if (choice.lowering_reason) {
    text["lowering_reason"] = *choice.lowering_reason;
  }
  KernelContract c;
  c.text = text.dump();
  c.key = digest_of(c.text);
  return c;
}

namespace {

Result<PlanContract> contract_of(const Request& request, const Facts& facts,
                                 const Sizes& sizes) {
  PlanContract c;
  const Tile& tile = request.tile;
  Json text = {
      {"version", kContractVersion},
      {"tile", {tile.q, tile.kv}},
      {"heads", sizes.heads},
  };
  const Tile block = plan::block_or_tile(request.logical_block, tile);
  text["logical_block"] = {block.q, block.kv};

  for (const Mask& mask : request.masks) {
    const std::string exact = to_string(mask);
    const std::string key = mask::folded_text(mask.expr);
    mask::append_window_bounds(mask.expr, c.window_bounds);
    if (exact != key) {
      c.folded.push_back(fmt::format(
          "mask {} is {}, its window bounds are runtime scalars", exact, key));
    }
    text["masks"].push_back({{"mask", key}, {"names", names_json(mask.names)}});
  }

  text["facts"] = Json::array();
  for (const Presence& p : presence_of(request, facts)) {
    if (p.given && p.needed) text["facts"].push_back(p.name);
    if (p.given && !p.needed) {
      c.unused_facts.emplace_back(p.name);
      c.folded.push_back(
          fmt::format("{} is given, no mask names it: left out", p.name));
    }
  }

  const Ceilings& most = request.ceilings;
  struct Term {
    const char* key;
    std::string_view what;
    int64_t needed;
    int64_t ceiling;
    std::string_view ceiling_name;
  };
  const Term terms[] = {
      {"batch", "batch", request.batch, 0, ""},
      {"q_len", "q_len", request.q_len, 0, ""},
      {"kv_len", "kv_len", request.kv_len, 0, ""},
      {"steps", "steps", sizes.steps, most.max_steps, "max_steps"},
      {"width", "grid width", sizes.width, most.max_width, "max_width"},
      {"width_transposed", "transposed grid width", sizes.width_transposed,
       most.max_width, "max_width"},
  };
  for (const Term& t : terms) {
    auto n = capacity(t.what, t.needed, t.ceiling, t.ceiling_name, c.folded);
    if (!n) return n.error();
    text[t.key] = *n;
    if (t.key == std::string_view("steps")) c.steps = *n;
  }

  if (sizes.picks) {
    const PickTerms& p = *sizes.picks;
    auto n = capacity("a tile row's union", p.widest, most.max_union,
                      "max_union", c.folded);
    if (!n) return n.error();
    c.union_blocks = *n;
    text["picks"] = {{"meaning", to_string(p.meaning)}, {"union", *n}};
    // Under tile_union the queries of a query tile share their blocks, and a
    // consumer may rely on that.
    if (p.meaning == RouteMeaning::tile_union) {
      text["picks"]["query_tile"] = p.query_tile;
    }
  } else if (most.max_union > 0) {
    c.folded.emplace_back("max_union is given, no mask names picks: left out");
  }

  c.text = text.dump();
  c.key = digest_of(c.text);
  return c;
}

}  // namespace

std::vector<std::string> make_warnings(const Batch& batch) {
  std::vector<std::string> out = batch.plan().warnings;
  for (const Presence& p : presence_of(batch.request(), batch.facts())) {
    if (!p.given || p.needed) continue;
    out.push_back(fmt::format(
        "[plan] a fact should be named by a mask, found {} unused", p.name));
  }
  return out;
}

std::string plan_digest(const Plan& plan) {
  Digest d;
  for (int64_t n : {plan.batch, plan.heads, plan.q_len, plan.kv_len,
                    plan.tile.q, plan.tile.kv}) {
    d.add(n);
  }
  if (plan.meaning) d.add(static_cast<int64_t>(*plan.meaning));
  for (const Worklist* w : {&plan.forward, &plan.transposed}) {
    d.add(w->row_start.data(), w->row_start.size() * sizeof(uint32_t));
    d.add(w->entries.data(), w->entries.size() * sizeof(Entry));
  }
  return d.hex();
}

}  // namespace tessera
