// request/load.cc: merges flags and a spec file, or loads a saved plan. A field
// may be given only once.
#include "request/load.h"

#include <utility>

#include "base/fail.h"
#include "request/read_facts.h"
#include "request/spec.h"

namespace tessera::request {
namespace {

Result<Loaded> load_plan_file(const RequestFlags& f) {
  RequestFlags others = f;
  others.plan.reset();
  const std::optional<std::string> target = std::exchange(others.target, {});
  if (others.spec) {
    return invalid("cli",
                   "--plan holds a whole request, found --spec beside "
                   "it");
  }
  for (const receipt::RequestField& field : receipt::request_fields()) {
    if (!field.is_given(others)) continue;
    return invalid("cli", "--plan holds a whole request, found {} beside it",
                   field.flag());
  }
  // A saved plan may be as large as one that flags ask for.
  DecodeLimits limits;
  limits.max_ids = kMaxIds;
  limits.max_tile_rows = kMaxTiles;
  auto file = load_plan(*f.plan, limits);
  if (!file) return file.error();
  Loaded out;
  out.resolved.request = file->request();
  out.saved = std::move(*file);
  for (const Mask& mask : out.resolved.request.masks) {
    out.resolved.written.push_back(to_string(mask));
  }
  if (target) {
    auto found = find_target(*target);
    if (!found) return found.error();
    out.resolved.target = std::move(*found);
  }
  return out;
}

}  // namespace

// Flags fill what the spec leaves open; a field that both give is an error.
Result<receipt::RequestText> request_text(const RequestFlags& f) {
  if (!f.spec) return receipt::RequestText(f);
  auto out = load_spec(*f.spec);
  if (!out) return out;
  for (const receipt::RequestField& field : receipt::request_fields()) {
    if (!field.is_given(f)) continue;
    if (field.is_given(*out)) {
      return invalid("cli",
                     "{} is given once, found it as a flag and in the spec",
                     field.flag());
    }
    field.copy(f, *out);
  }
  return out;
}

Result<Loaded> load_request(const RequestFlags& typed, const Lengths& otherwise,
                            const RouteFlags& route) {
  const auto unread = [&]() -> Result<void> {
    if (route == RouteFlags{}) return {};
    return invalid("cli",
                   "flags of the router go with a mask that names "
                   "routed(top, block), found them alone");
  };
  if (typed.plan) {
    auto loaded = load_plan_file(typed);
    if (!loaded) return loaded;
    if (auto e = unread(); !e) return e.error();
    return loaded;
  }
  auto given = request_text(typed);
  if (!given) return given.error();
  const auto fill = [](const std::optional<int64_t>& length,
                       std::optional<std::string>& text) {
    if (!text && length) text = fmt::to_string(*length);
  };
  fill(otherwise.batch, given->batch);
  fill(otherwise.q_len, given->q_len);
  fill(otherwise.kv_len, given->kv_len);
  auto resolved = resolve(*given);
  if (!resolved) return resolved.error();
  Loaded out{std::move(*resolved), std::nullopt, std::nullopt};
  const Request& request = out.resolved.request;
  if (!names_router(request)) {
    if (auto e = unread(); !e) return e.error();
    return out;
  }
  auto source = read_pick_source(given->picks, request, route);
  if (!source) return source.error();
  out.source = std::move(*source);
  return out;
}

Result<Asked> load_asked(const RequestFlags& typed) {
  Asked out;
  Picks picks;
  if (typed.plan) {
    RequestFlags plan_alone = typed;
    plan_alone.target.reset();
    auto loaded = load_plan_file(plan_alone);
    if (!loaded) return loaded.error();
    out.request = std::move(loaded->resolved.request);
    const Facts& facts = loaded->saved->facts();
    if (facts.q_doc_ids) out.present.q_doc_ids = Ints{};
    if (facts.valid_token_counts || facts.valid_slot_counts) {
      out.present.valid_token_counts = Ints{};
    }
    if (facts.picks) picks = *facts.picks;
    picks.blocks = {};
  } else {
    auto given = request_text(typed);
    if (!given) return given.error();
    if (given->q_docs) out.present.q_doc_ids = Ints{};
    if (!given->valid.empty()) out.present.valid_token_counts = Ints{};
    auto request = resolve_request(*given);
    if (!request) return request.error();
    out.request = std::move(*request);
    out.open_tile = !given->tile;
    if (given->picks) {
      auto said = asked_picks(*given->picks, out.request);
      if (!said) return said.error();
      picks = *said;
    }
  }
  for (const Mask& mask : out.request.masks) {
    if (mask.names.documents || mask.names.segments) {
      out.present.doc_ids = Ints{};
    }
    if (mask.names.prefix) out.present.prefix_lengths = Ints{};
    if (mask.names.picks) out.present.picks = picks;
    if (mask.names.tree)
      out.present.tree_enter = out.present.tree_leave = Ints{};
    for (size_t i = 0; i < out.present.same_ids.size(); ++i) {
      if (mask.names.same >> i & 1) out.present.same_ids[i] = Ints{};
    }
  }
  return out;
}

Result<Planned> make_planned(Loaded loaded) {
  Resolved& from = loaded.resolved;
  auto batch = loaded.saved ? Result<OwnedBatch>(std::move(*loaded.saved))
                            : OwnedBatch::make(std::move(from.request),
                                               std::move(from.facts));
  if (!batch) return batch.error();
  return Planned{std::move(*batch), std::move(from.written),
                 std::move(from.target), std::move(from.given)};
}

}  // namespace tessera::request
