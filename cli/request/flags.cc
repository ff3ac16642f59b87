// cli/request/flags.cc: declares the request flags and turns them into a
// request.
#include "cli/request/flags.h"

#include <cstdio>
#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "cli/numbers.h"
#include "cli/request/documents.h"
#include "cli/request/spec.h"

namespace tessera::cli {
namespace {

constexpr const char* kRequestGroup = "The request";
constexpr const char* kFactsGroup = "The facts of a batch";
constexpr const char* kContractGroup = "The contract";

// Flags fill what the spec leaves open; naming a field twice is an error.
template <class T>
Result<void> merge(const T& flag, T& spec, std::string_view name) {
  if (flag == T{}) return {};
  if (!(spec == T{})) {
    return invalid(
        "cli", "{} is given once, found it as a flag and in the spec", name);
  }
  spec = flag;
  return {};
}

Result<std::optional<int64_t>> optional_int(
    const std::optional<std::string>& text, std::string_view what,
    int64_t least, int64_t most) {
  if (!text) return std::optional<int64_t>();
  auto value = parse_int(*text, what, least, most);
  if (!value) return value.error();
  return std::optional<int64_t>(*value);
}

}  // namespace

Result<RequestOptions> options_of(const RequestFlags& f) {
  RequestOptions o;
  if (f.spec) {
    auto text = read_file(*f.spec, kMaxSpecBytes);
    if (!text) return text.error();
    auto spec = parse_spec(*text);
    if (!spec) return spec;
    o = std::move(*spec);
  }
  struct Number {
    const std::optional<std::string>& text;
    std::string_view what;
    int64_t most;
    std::optional<int64_t>& out;
  };
  constexpr int64_t kMost = int64_t{1} << 40;
  for (const Number& n :
       {Number{f.q_len, "--q-len", kMaxTokens, o.q_len},
        Number{f.kv_len, "--kv-len", kMaxTokens, o.kv_len},
        Number{f.batch, "--batch", kMaxBatch, o.batch},
        Number{f.max_steps, "--max-steps", kMost, o.max_steps},
        Number{f.max_width, "--max-width", kMost, o.max_width},
        Number{f.max_union, "--max-union", kMost, o.max_union}}) {
    auto value = optional_int(n.text, n.what, 1, n.most);
    if (!value) return value.error();
    if (auto e = merge(*value, n.out, n.what); !e) return e.error();
  }
  struct Text {
    const std::optional<std::string>& text;
    std::string_view what;
    std::optional<std::string>& out;
  };
  for (const Text& t :
       {Text{f.q_offset, "--q-offset", o.q_offset},
        Text{f.tile, "--tile", o.tile},
        Text{f.logical_block, "--logical-block", o.logical_block},
        Text{f.docs, "--docs", o.docs}, Text{f.q_docs, "--q-docs", o.q_docs},
        Text{f.prefix, "--prefix", o.prefix}, Text{f.picks, "--picks", o.picks},
        Text{f.target, "--target", o.target}}) {
    if (auto e = merge(t.text, t.out, t.what); !e) return e.error();
  }
  if (auto e = merge(f.masks, o.masks, "--mask"); !e) return e.error();
  if (auto e = merge(f.valid, o.valid, "--valid"); !e) return e.error();
  return o;
}

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
  auto rest = options_of(others);
  if (!rest) return rest.error();
  if (!(*rest == RequestOptions{})) {
    return invalid("cli",
                   "--plan holds a whole request, found other request "
                   "flags beside it");
  }
  // What flags may ask for, a saved plan may hold.
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

void add_request_flags(Command& command, RequestFlags& f,
                       const char* target_help) {
  add_flags(
      command, kRequestGroup,
      {
          {"--mask", &f.masks, "EXPR",
           "Which keys a query may see: causal, window(left, right), chunk(n), "
           "prefix, documents, segments, sink(n), blocks(n), routed(top, "
           "block), full, joined by ! & | and parentheses. Repeated: one per "
           "group of heads"},
          {"--q-len", &f.q_len, "N", "Queries in a batch row"},
          {"--kv-len", &f.kv_len, "N", "Keys in a batch row [q-len]"},
          {"--batch", &f.batch, "N", "Batch rows [1]"},
          {"--tile", &f.tile, "QxKV", "Tile size, 8 to 4096 each [256x256]"},
          {"--logical-block", &f.logical_block, "QxKV",
           "Report the work of this block size too [the tile]"},
          {"--spec", &f.spec, "FILE",
           "The same request as a JSON object, fields named as the flags "
           "(q_len, docs, ...)"},
          {"--plan", &f.plan, "FILE", "A saved plan in place of a request"},
      });
  add_flags(
      command, kFactsGroup,
      {
          {"--docs", &f.docs, "SOURCE",
           "Document ids of the keys: " + std::string(kDocumentSources) +
               ". FILE is .npy (int32 or int64, [kv_len] or [batch, kv_len]) "
               "or text: lengths, a blank line between batch rows. "
               "position_ids begin a document wherever one is not the one "
               "before it plus 1. Lengths short of the row leave padding; "
               "lognormal has sigma 1, batch "
               "row b draws with seed + b"},
          {"--q-docs", &f.q_docs, "SOURCE",
           "Document ids of the queries [those at their positions]"},
          {"--valid", &f.valid, "COUNTS",
           "Valid keys of each batch row: tokens:N[,N...] or "
           "slots:N[,N...]@BASE, slots of BASE keys. Both may be given: the "
           "smaller holds. One value serves every batch row"},
          {"--prefix", &f.prefix, "N[,N...]", "Prefix lengths"},
          {"--q-offset", &f.q_offset, "N[,N...]",
           "Key position of query 0 [kv-len - q-len]"},
          {"--picks", &f.picks, "SOURCE",
           "Picks of blocks: " + std::string(kPickSources) +
               ". FILE is .safetensors with an I32 tensor picks [batch, heads, "
               "q_len, k] of block numbers, -1 unused. clustered, for "
               "routed(...), routes q and k that are drawn near centroids"},
      });
  add_flags(
      command, kContractGroup,
      {
          {"--max-steps", &f.max_steps, "N",
           "Ceiling of packed steps: one contract for every batch under it"},
          {"--max-width", &f.max_width, "N", "Ceiling of the grid width"},
          {"--max-union", &f.max_union, "N",
           "Ceiling of the blocks that the queries of a tile row pick "
           "together"},
          {"--target", &f.target, "NAME",
           target_help
               ? target_help
               : "Check the worklist against this target's scalar memory: v6e"},
      });
}

Facts facts_of(const Loaded& loaded) {
  return loaded.saved ? loaded.saved->facts() : loaded.resolved.facts.view();
}

Result<Loaded> load_request(const RequestFlags& flags, const Lengths& otherwise,
                            const RouteFlags& route) {
  const auto unread = [&]() -> Result<void> {
    if (route == RouteFlags{}) return {};
    return invalid("cli",
                   "flags of the router go with a mask that names "
                   "routed(top, block), found them alone");
  };
  if (flags.plan) {
    auto loaded = load_plan_file(flags);
    if (!loaded) return loaded;
    if (auto e = unread(); !e) return e.error();
    return loaded;
  }
  auto options = options_of(flags);
  if (!options) return options.error();
  if (!options->batch) options->batch = otherwise.batch;
  if (!options->q_len) options->q_len = otherwise.q_len;
  if (!options->kv_len) options->kv_len = otherwise.kv_len;
  auto resolved = resolve(*options);
  if (!resolved) return resolved.error();
  Loaded out{std::move(*resolved), std::nullopt, std::nullopt};
  const Request& request = out.resolved.request;
  if (!names_router(request)) {
    if (auto e = unread(); !e) return e.error();
    return out;
  }
  auto source = read_pick_source(options->picks, request, route);
  if (!source) return source.error();
  out.source = std::move(*source);
  return out;
}

Result<void> take_picks(const RouteFlags& route, Loaded& loaded) {
  if (!loaded.source) return {};
  double ms = 0;
  auto record = route_picks(route, *loaded.source, {}, {}, loaded.resolved, ms);
  if (!record) return record.error();
  loaded.source.reset();
  return {};
}

Result<Asked> load_asked(const RequestFlags& flags, const Tile& open_tile) {
  Asked out;
  const bool saved = flags.plan.has_value();
  if (saved) {
    RequestFlags plan_alone = flags;
    plan_alone.target.reset();
    auto loaded = load_plan_file(plan_alone);
    if (!loaded) return loaded.error();
    out.request = std::move(loaded->resolved.request);
    const Facts& facts = loaded->saved->facts();
    if (facts.q_doc_ids) out.present.q_doc_ids = Ints{};
    if (facts.valid_token_counts || facts.valid_slot_counts) {
      out.present.valid_token_counts = Ints{};
    }
  } else {
    auto options = options_of(flags);
    if (!options) return options.error();
    if (options->q_docs) out.present.q_doc_ids = Ints{};
    if (!options->valid.empty()) out.present.valid_token_counts = Ints{};
    auto request = resolve_request(*options);
    if (!request) return request.error();
    out.request = std::move(*request);
    if (!options->tile) out.request.tile = open_tile;
  }
  for (const Mask& mask : out.request.masks) {
    if (mask.names.documents || mask.names.segments) {
      out.present.doc_ids = Ints{};
    }
    if (mask.names.prefix) out.present.prefix_lengths = Ints{};
    if (mask.names.picks) out.present.picks = Picks{};
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
                 std::move(from.target), std::move(from.options)};
}

Result<Planned> plan_loaded(Loaded loaded) {
  auto planned = make_planned(std::move(loaded));
  if (planned) print_warnings(planned->batch.plan().warnings);
  return planned;
}

Result<Planned> load_planned(const RequestFlags& flags,
                             const RouteFlags& route) {
  auto loaded = load_request(flags, {}, route);
  if (!loaded) return loaded.error();
  if (auto e = take_picks(route, *loaded); !e) return e.error();
  return plan_loaded(std::move(*loaded));
}

void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    print_error(fmt::format("tessera: warning: {}\n", warning));
  }
}

void print_error(const std::string& text) { std::fputs(text.c_str(), stderr); }

}  // namespace tessera::cli
