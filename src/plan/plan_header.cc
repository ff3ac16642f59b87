// plan/plan_header.cc: reads and writes the JSON at the start of a plan file.
#include "plan/plan_header.h"

#include "base/fail.h"
#include "base/json_read.h"
#include "base/text.h"
#include "mask/canonical.h"

namespace tessera::plan {
namespace {

constexpr std::string_view kWhere = kPlanFileWhere;
// The bound for counts that have no other limit.
constexpr int64_t kMaxCount = int64_t{1} << 40;

Json text_of(const PlanHeader& h) {
  const Request& r = h.request;
  Json masks = Json::array();
  for (const Mask& m : r.masks) {
    Json mask = {{"expr", to_string(m)},
                 {"prefix", m.names.prefix},
                 {"documents", m.names.documents},
                 {"segments", m.names.segments},
                 {"picks_block", m.names.picks ? m.names.picks_block : 0}};
    // These fields were added later and are written only if used, so files
    // without them stay the same.
    if (m.names.tree) mask["tree"] = true;
    if (m.names.same != 0) mask["same"] = mask::same_letters(m.names.same);
    masks.push_back(std::move(mask));
  }
  Json sections = Json::array();
  for (const Section& s : h.sections) {
    sections.push_back({{"name", s.name}, {"words", s.words}});
  }
  return {{"request",
           {{"masks", std::move(masks)},
            {"batch", r.batch},
            {"q_len", r.q_len},
            {"kv_len", r.kv_len},
            {"tile", {r.tile.q, r.tile.kv}},
            {"logical_block", {r.logical_block.q, r.logical_block.kv}},
            {"max_steps", r.ceilings.max_steps},
            {"max_width", r.ceilings.max_width},
            {"max_union", r.ceilings.max_union}}},
          {"facts",
           {{"base_block_tokens", h.base_block_tokens},
            {"picks_heads", h.picks_heads},
            {"picks_k", h.picks_k},
            {"picks_meaning", to_string(h.picks_meaning)},
            {"picks_query_tile", h.picks_query_tile}}},
          {"heads", h.heads},
          {"sections", std::move(sections)}};
}

// Reads members in turn and keeps the first error, so the caller checks once
// after a list of fields.
class Members {
 public:
  Members(const Json& object, std::string name)
      : object_(object), name_(std::move(name)) {}

  void integer(const char* key, int64_t least, int64_t most, int64_t& out) {
    if (error_) return;
    keep(read_int(object_.at(key), kWhere, path(key), least, most), out);
  }

  void tile(const char* key, int64_t least, int64_t most, Tile& out) {
    if (error_) return;
    const Json& pair = object_.at(key);
    if (!pair.is_array() || pair.size() != 2) {
      error_ = invalid(kWhere, "{} must be an array of 2, found {} for it",
                       path(key), describe(pair));
      return;
    }
    keep(read_int(pair[0], kWhere, path(key), least, most), out.q);
    keep(read_int(pair[1], kWhere, path(key), least, most), out.kv);
  }

  void flag(const char* key, bool& out) {
    if (error_) return;
    keep(read_bool(object_.at(key), kWhere, path(key)), out);
  }

  void string(const char* key, std::string& out) {
    if (error_) return;
    keep(read_string(object_.at(key), kWhere, path(key)), out);
  }

  const std::optional<Error>& error() const { return error_; }

 private:
  std::string path(const char* key) const { return name_ + "." + key; }

  template <class T>
  void keep(Result<T> result, T& out) {
    if (error_) return;
    if (result) {
      out = std::move(*result);
    } else {
      error_ = result.error();
    }
  }

  const Json& object_;
  std::string name_;
  std::optional<Error> error_;
};

Result<Mask> read_mask(const Json& value, size_t index) {
  const std::string name = fmt::format("request.masks[{}]", index);
  if (auto ok = check_fields(
          value, kWhere, name,
          {"expr", "prefix", "documents", "segments", "picks_block"},
          {"tree", "same"});
      !ok) {
    return ok.error();
  }
  std::string text;
  Names names;
  Members members(value, name);
  members.string("expr", text);
  members.flag("prefix", names.prefix);
  members.flag("documents", names.documents);
  members.flag("segments", names.segments);
  if (value.contains("tree")) members.flag("tree", names.tree);
  members.integer("picks_block", 0, INT32_MAX, names.picks_block);
  std::string letters;
  if (value.contains("same")) members.string("same", letters);
  if (members.error()) return *members.error();
  for (const char letter : letters) {
    if (letter >= 'a' && letter < 'a' + kSameNames) {
      names.same |= 1U << (letter - 'a');
    }
  }
  if (letters != mask::same_letters(names.same) ||
      (letters.empty() && value.contains("same"))) {
    return invalid(kWhere,
                   "{}.same must be letters a to {}, ascending, found {}", name,
                   static_cast<char>('a' + kSameNames - 1), in_quotes(letters));
  }
  names.picks = names.picks_block > 0;

  auto mask = parse_mask(text);
  if (!mask) {
    return invalid(kWhere, "{}.expr must be a mask, found \"{}\" for {}", name,
                   mask.error().message, in_quotes(text));
  }
  if (const std::string canonical = to_string(*mask); canonical != text) {
    return invalid(kWhere, "{}.expr must be in canonical form, found {} for {}",
                   name, in_quotes(text), in_quotes(canonical));
  }
  // Simplification may drop a name but never adds one.
  const Names& least = mask->names;
  if ((least.prefix && !names.prefix) ||
      (least.documents && !names.documents) ||
      (least.segments && !names.segments) || (least.tree && !names.tree) ||
      (least.same & ~names.same) != 0 ||
      (least.picks && least.picks_block != names.picks_block)) {
    return invalid(kWhere,
                   "{} must name what its expr names, found less for {}", name,
                   in_quotes(text));
  }
  mask->names = names;
  return mask;
}

Result<Request> read_request(const Json& value) {
  if (auto ok = check_fields(
          value, kWhere, "request",
          {"masks", "batch", "q_len", "kv_len", "tile", "logical_block",
           "max_steps", "max_width", "max_union"});
      !ok) {
    return ok.error();
  }
  Request r;
  const Json& masks = value.at("masks");
  if (!masks.is_array() || masks.empty()) {
    return invalid(kWhere,
                   "request.masks must be an array of one or more, found {} "
                   "for it",
                   describe(masks));
  }
  for (size_t i = 0; i < masks.size(); ++i) {
    auto mask = read_mask(masks[i], i);
    if (!mask) return mask.error();
    r.masks.push_back(std::move(*mask));
  }
  Members members(value, "request");
  members.integer("batch", 1, kMaxBatch, r.batch);
  members.integer("q_len", 1, kMaxTokens, r.q_len);
  members.integer("kv_len", 1, kMaxTokens, r.kv_len);
  members.tile("tile", kMinBlock, kMaxBlock, r.tile);
  members.tile("logical_block", 0, kMaxCount, r.logical_block);
  members.integer("max_steps", 0, kMaxCeiling, r.ceilings.max_steps);
  members.integer("max_width", 0, kMaxCeiling, r.ceilings.max_width);
  members.integer("max_union", 0, kMaxCeiling, r.ceilings.max_union);
  if (members.error()) return *members.error();
  return r;
}

Result<std::vector<Section>> read_sections(const Json& value) {
  if (!value.is_array()) {
    return invalid(kWhere, "sections must be an array, found {} for it",
                   describe(value));
  }
  std::vector<Section> out;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string name = fmt::format("sections[{}]", i);
    if (auto ok = check_fields(value[i], kWhere, name, {"name", "words"});
        !ok) {
      return ok.error();
    }
    Section section;
    Members members(value[i], name);
    members.string("name", section.name);
    members.integer("words", 0, kMaxCount, section.words);
    if (members.error()) return *members.error();
    out.push_back(std::move(section));
  }
  return out;
}

}  // namespace

Result<PlanHeader> read_header(std::string_view text) {
  const auto parsed = parse_json(text, kWhere);
  if (!parsed) return parsed.error();
  const Json& json = **parsed;
  if (auto ok = check_fields(json, kWhere, "the header",
                             {"request", "facts", "heads", "sections"});
      !ok) {
    return ok.error();
  }
  const Json& facts = json.at("facts");
  if (auto ok = check_fields(facts, kWhere, "facts",
                             {"base_block_tokens", "picks_heads", "picks_k",
                              "picks_meaning", "picks_query_tile"});
      !ok) {
    return ok.error();
  }
  PlanHeader h;
  auto request = read_request(json.at("request"));
  if (!request) return request.error();
  h.request = std::move(*request);
  Members members(facts, "facts");
  members.integer("base_block_tokens", 0, kMaxCount, h.base_block_tokens);
  members.integer("picks_heads", 1, kMaxBatch, h.picks_heads);
  members.integer("picks_k", 0, kMaxTokens, h.picks_k);
  std::string meaning;
  members.string("picks_meaning", meaning);
  members.integer("picks_query_tile", 0, kMaxTokens, h.picks_query_tile);
  if (members.error()) return *members.error();
  auto known = parse_route_meaning(meaning);
  if (!known) {
    return invalid(kWhere,
                   "facts.picks_meaning must be exact or union, found {}",
                   in_quotes(meaning));
  }
  h.picks_meaning = *known;
  auto heads = read_int(json.at("heads"), kWhere, "heads", 1, kMaxCount);
  if (!heads) return heads.error();
  h.heads = *heads;
  auto sections = read_sections(json.at("sections"));
  if (!sections) return sections.error();
  h.sections = std::move(*sections);
  // A header has one text, so equal plans give equal files.
  if (text_of(h).dump() != text) {
    return invalid(kWhere,
                   "the header must be in canonical form, found other text "
                   "that means the same");
  }
  return h;
}

Result<std::string> write_header(const PlanHeader& header) {
  std::string text = text_of(header).dump();
  auto again = read_header(text);
  if (!again) return again.error();
  for (size_t i = 0; i < header.request.masks.size(); ++i) {
    if (!(again->request.masks[i] == header.request.masks[i])) {
      return invalid(kWhere,
                     "a mask must be as make_mask makes it, found another for "
                     "request.masks[{}]",
                     i);
    }
  }
  return text;
}

}  // namespace tessera::plan
