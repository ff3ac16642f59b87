// plan/plan_file.cc: reads and writes plan files. Little-endian throughout:
//   12 bytes  magic "TESSERA\0plan"
//   uint32    version
//   uint64    bytes of the whole file
//   uint64    bytes of the header
//   header    JSON in canonical form, padded with spaces to 8 bytes
//   sections  32-bit words, in the order and sizes the header tells
//   16 bytes  XXH3-128 of everything before it, canonical byte order
// doc_ids and q_doc_ids are runs (id, length); no run crosses a batch row.
// row_counts holds the number of tiles of each row, entries the tiles (column,
// class). Picks that a mask names are stored as union_counts, union_blocks,
// pick_bits and, for each of the entries, union_slots (plan/pick_unions.h). The
// file keeps which blocks a query picks, but not their slots. `picks` holds,
// unchanged, picks that no mask names.
#include <algorithm>
#include <array>

#include "tessera/batch.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/integers.h"
#include "base/text.h"
#include "mask/canonical.h"
#include "plan/batch_state.h"
#include "plan/pick_unions.h"
#include "plan/plan_header.h"
#include "plan/transpose.h"
#include "plan/verify.h"
#include "plan/well_formed.h"

namespace tessera {
namespace {

constexpr std::string_view kWhere = plan::kPlanFileWhere;
constexpr std::string_view kMagic("TESSERA\0plan", 12);
constexpr size_t kVersionAt = 12;
constexpr size_t kLengthAt = 16;
constexpr size_t kHeaderLengthAt = 24;
constexpr size_t kHeaderAt = 32;
constexpr size_t kDigestBytes = 16;
// Far more than any request writes, and still cheap to parse.
constexpr uint64_t kMaxHeader = uint64_t{1} << 24;

constexpr std::string_view kSectionOrder[] = {"doc_ids",
                                              "q_doc_ids",
                                              "valid_token_counts",
                                              "valid_slot_counts",
                                              "prefix_lengths",
                                              "q_offsets",
                                              "picks",
                                              "union_counts",
                                              "union_blocks",
                                              "pick_bits",
                                              "row_counts",
                                              "entries",
                                              "union_slots",
                                              "tree_enter",
                                              "tree_leave",
                                              "same_a",
                                              "same_b",
                                              "same_c",
                                              "same_d",
                                              "same_e",
                                              "same_f",
                                              "same_g",
                                              "same_h"};

std::string digest_bytes(std::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical,
                           XXH3_128bits(bytes.data(), bytes.size()));
  return {reinterpret_cast<const char*>(canonical.digest), kDigestBytes};
}

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    out += fmt::format("{:02x}", static_cast<uint8_t>(c));
  }
  return out;
}

std::vector<uint32_t> make_runs(Ints ids, int64_t row_length) {
  std::vector<uint32_t> words;
  const auto row = static_cast<size_t>(row_length);
  for (size_t begin = 0; begin < ids.size();) {
    const size_t row_end = std::min(ids.size(), begin / row * row + row);
    size_t end = begin + 1;
    while (end < row_end && ids[end] == ids[begin]) ++end;
    words.push_back(static_cast<uint32_t>(ids[begin]));
    words.push_back(static_cast<uint32_t>(end - begin));
    begin = end;
  }
  return words;
}

// Maps section names to their bytes in the file.
class Sections {
 public:
  static Result<Sections> cut(const std::vector<plan::Section>& table,
                              std::string_view bytes) {
    Sections out;
    size_t next = 0;
    for (const plan::Section& s : table) {
      const auto* const place =
          std::find(std::begin(kSectionOrder), std::end(kSectionOrder), s.name);
      if (place == std::end(kSectionOrder)) {
        return invalid(kWhere, "sections must be known ones, found {} for one",
                       in_quotes(s.name));
      }
      const auto index = static_cast<size_t>(place - std::begin(kSectionOrder));
      if (index < next) {
        return invalid(kWhere,
                       "sections must keep their order and appear once, found "
                       "{} after '{}'",
                       in_quotes(s.name), kSectionOrder[next - 1]);
      }
      next = index + 1;
      if (static_cast<uint64_t>(s.words) > bytes.size() / 4) {
        return invalid(kWhere,
                       "a section must lie within the file, found {} words "
                       "where {} bytes are left for {}",
                       s.words, bytes.size(), in_quotes(s.name));
      }
      const size_t size = static_cast<size_t>(s.words) * 4;
      out.bytes_[index] = bytes.substr(0, size);
      bytes.remove_prefix(size);
    }
    if (!bytes.empty()) {
      return invalid(kWhere,
                     "sections must fill the file, found {} bytes more for "
                     "the last",
                     bytes.size());
    }
    return out;
  }

  const std::optional<std::string_view>& get(std::string_view name) const {
    const auto* const place =
        std::find(std::begin(kSectionOrder), std::end(kSectionOrder), name);
    return bytes_[static_cast<size_t>(place - std::begin(kSectionOrder))];
  }

 private:
  std::array<std::optional<std::string_view>, std::size(kSectionOrder)> bytes_;
};

Result<std::optional<std::vector<int32_t>>> read_ids(const Sections& sections,
                                                     std::string_view name,
                                                     int64_t batch,
                                                     int64_t row_length) {
  std::optional<std::vector<int32_t>> out;
  const auto& section = sections.get(name);
  if (!section) return out;
  const std::string_view bytes = *section;
  if (bytes.size() % 8 != 0) {
    return invalid(kWhere, "runs must be pairs of words, found {} words for {}",
                   bytes.size() / 4, name);
  }
  // All runs are checked before anything is allocated.
  int64_t at = 0;  // within the row
  int64_t rows = 0;
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const auto id = load<int32_t>(bytes, i);
    const auto length = int64_t{load<uint32_t>(bytes, i + 4)};
    if (length < 1 || length > row_length - at) {
      return invalid(kWhere,
                     "a run must be of 1 to {} ids, found {} for run {} of {}",
                     row_length - at, length, i / 8, name);
    }
    if (at > 0 && id == load<int32_t>(bytes, i - 8)) {
      return invalid(kWhere,
                     "neighbouring runs must differ, found id {} twice for run "
                     "{} of {}",
                     id, i / 8, name);
    }
    at += length;
    if (at == row_length) {
      at = 0;
      ++rows;
    }
  }
  if (rows != batch || at != 0) {
    return invalid(kWhere,
                   "runs must fill {} rows of {} ids, found {} rows and {} ids "
                   "for {}",
                   batch, row_length, rows, at, name);
  }
  out.emplace();
  out->reserve(static_cast<size_t>(batch * row_length));
  for (size_t i = 0; i < bytes.size(); i += 8) {
    out->insert(out->end(), load<uint32_t>(bytes, i + 4),
                load<int32_t>(bytes, i));
  }
  return out;
}

Result<std::optional<std::vector<int32_t>>> read_picks(
    const plan::PlanHeader& h, const Sections& sections,
    const DecodeLimits& limits) {
  std::optional<std::vector<int32_t>> out;
  const bool named = mask::names_of(h.request).picks;
  for (const char* name :
       {"union_counts", "union_blocks", "pick_bits", "union_slots"}) {
    if (sections.get(name).has_value() == named) continue;
    return invalid(kWhere,
                   "{} must be there where a mask names picks and only there, "
                   "found {}",
                   name, named ? "none" : "it");
  }
  if (!named) {
    if (sections.get("picks")) {
      out = load_array<int32_t>(*sections.get("picks"));
    }
    return out;
  }
  if (sections.get("picks")) {
    return invalid(kWhere,
                   "picks that a mask names must be bits over unions, found "
                   "the section 'picks'");
  }
  const Request& r = h.request;
  plan::PickLayout layout{r.batch,   h.picks_heads, r.q_len,
                          h.picks_k, r.tile.q,      0};
  layout.blocks = ceil_div(r.kv_len, mask::names_of(r).picks_block);
  int64_t slots = 0;
  if (h.picks_k < 1 ||
      __builtin_mul_overflow(r.batch * h.picks_heads, r.q_len, &slots) ||
      __builtin_mul_overflow(slots, h.picks_k, &slots) ||
      slots > limits.max_picks) {
    return over_limit(kWhere,
                      "picks must be of 1 to {} slots, found [{}, {}, {}, {}] "
                      "for the file (raise the ceiling to read it)",
                      limits.max_picks, r.batch, h.picks_heads, r.q_len,
                      h.picks_k);
  }
  auto picks = plan::picks_of_words(layout, *sections.get("union_counts"),
                                    *sections.get("union_blocks"),
                                    *sections.get("pick_bits"), kWhere);
  if (!picks) return picks.error();
  out = std::move(*picks);
  return out;
}

Result<OwnedFacts> read_facts(const plan::PlanHeader& h,
                              const Sections& sections,
                              const DecodeLimits& limits) {
  OwnedFacts f;
  const Request& r = h.request;
  // Both factors are at most 2^30, so the products fit.
  const int64_t ids = (sections.get("doc_ids") ? r.batch * r.kv_len : 0) +
                      (sections.get("q_doc_ids") ? r.batch * r.q_len : 0);
  if (ids > limits.max_ids) {
    return over_limit(kWhere,
                      "doc_ids and q_doc_ids must hold at most {} ids, found "
                      "{} for the file (raise the ceiling to read it)",
                      limits.max_ids, ids);
  }
  auto doc_ids = read_ids(sections, "doc_ids", r.batch, r.kv_len);
  if (!doc_ids) return doc_ids.error();
  f.doc_ids = std::move(*doc_ids);
  auto q_doc_ids = read_ids(sections, "q_doc_ids", r.batch, r.q_len);
  if (!q_doc_ids) return q_doc_ids.error();
  f.q_doc_ids = std::move(*q_doc_ids);

  // Plain arrays; bind() checks their sizes against the request.
  const auto plain = [&](std::string_view name) {
    std::optional<std::vector<int32_t>> out;
    if (sections.get(name)) out = load_array<int32_t>(*sections.get(name));
    return out;
  };
  f.valid_token_counts = plain("valid_token_counts");
  f.valid_slot_counts = plain("valid_slot_counts");
  f.prefix_lengths = plain("prefix_lengths");
  f.q_offsets = plain("q_offsets");
  f.tree_enter = plain("tree_enter");
  f.tree_leave = plain("tree_leave");
  for (size_t i = 0; i < f.same_ids.size(); ++i) {
    f.same_ids[i] = plain(mask::same_fact(static_cast<int64_t>(i)));
  }
  auto picks = read_picks(h, sections, limits);
  if (!picks) return picks.error();
  f.picks = std::move(*picks);
  f.base_block_tokens = h.base_block_tokens;
  f.picks_heads = h.picks_heads;
  f.picks_k = h.picks_k;
  f.picks_meaning = h.picks_meaning;
  f.picks_query_tile = h.picks_query_tile;
  if (!f.picks &&
      (f.picks_heads != 1 || f.picks_k != 0 ||
       f.picks_meaning != RouteMeaning::exact || f.picks_query_tile != 0)) {
    return invalid(kWhere,
                   "picks_heads, picks_k, picks_meaning and picks_query_tile "
                   "must be 1, 0, exact and 0 without picks, found {}, {}, {} "
                   "and {}",
                   f.picks_heads, f.picks_k, to_string(f.picks_meaning),
                   f.picks_query_tile);
  }
  return f;
}

// Checks that each tile's slot is where its first block is in its row's union.
Result<void> check_slots(const Request& request, const Facts& facts,
                         const Worklist& forward, const Sections& sections) {
  const auto& section = sections.get("union_slots");
  if (!section) return {};
  auto bound = mask::bind(request, facts);
  if (!bound) return bound.error();
  const int64_t block = mask::names_of(request).picks_block;
  const std::vector<uint32_t> due = plan::tile_slots(
      *bound, block, plan::plan_unions(*bound, block), forward);
  if (section->size() / 4 != due.size()) {
    return invalid(kWhere, "union_slots must hold {} tiles, found {}",
                   due.size(), section->size() / 4);
  }
  for (size_t i = 0; i < due.size(); ++i) {
    const auto found = load<uint32_t>(*section, 4 * i);
    if (found == due[i]) continue;
    return invalid(kWhere,
                   "union_slots must be those of the tiles, found {} where {} "
                   "is due, for tile {}",
                   found, due[i], i);
  }
  return {};
}

Result<Worklist> read_forward(const plan::PlanHeader& h,
                              const Sections& sections,
                              const DecodeLimits& limits) {
  const Request& r = h.request;
  Worklist w;
  w.rows = ceil_div(r.q_len, r.tile.q);
  w.columns = ceil_div(r.kv_len, r.tile.kv);
  int64_t tile_rows = 0;
  if (__builtin_mul_overflow(r.batch, h.heads, &w.lists) ||
      __builtin_mul_overflow(w.lists, w.rows + w.columns, &tile_rows) ||
      tile_rows > limits.max_tile_rows) {
    return over_limit(kWhere,
                      "rows and columns of all lists must be at most {}, found "
                      "{} heads of {} batch rows of {} + {} for the file "
                      "(raise the ceiling to read it)",
                      limits.max_tile_rows, h.heads, r.batch, w.rows,
                      w.columns);
  }
  for (const std::string_view name : {"row_counts", "entries"}) {
    if (!sections.get(name)) {
      return invalid(kWhere, "a file must hold its lists, found no section {}",
                     in_quotes(name));
    }
  }
  const std::string_view counts = *sections.get("row_counts");
  const std::string_view entries = *sections.get("entries");
  const int64_t rows = w.lists * w.rows;
  if (counts.size() / 4 != static_cast<uint64_t>(rows)) {
    return invalid(kWhere, "row_counts must hold {} rows, found {}", rows,
                   counts.size() / 4);
  }
  const auto tiles = static_cast<int64_t>(entries.size() / 4);
  if (tiles > kMaxTiles) {
    return over_limit(kWhere, "a plan holds at most {} tiles, found {}",
                      kMaxTiles, tiles);
  }
  w.row_start.reserve(static_cast<size_t>(rows) + 1);
  w.row_start.push_back(0);
  int64_t total = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const auto at = static_cast<size_t>(i);
    const auto count = int64_t{load<uint32_t>(counts, 4 * at)};
    if (count > std::min(w.columns, tiles - total)) {
      return invalid(kWhere,
                     "a row must hold at most {} tiles, found {} for row {} of "
                     "row_counts",
                     std::min(w.columns, tiles - total), count, i);
    }
    total += count;
    w.row_start.push_back(static_cast<uint32_t>(total));
  }
  if (total != tiles) {
    return invalid(kWhere, "row_counts must add up to {} entries, found {}",
                   tiles, total);
  }
  w.entries = load_array<Entry>(entries);
  if (auto e = plan::check_worklist(w, kWhere); !e) return e.error();
  return w;
}

// Checks everything around the header and sections, and returns those two.
Result<std::pair<std::string_view, std::string_view>> open_envelope(
    std::string_view bytes, const DecodeLimits& limits) {
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    return invalid(kWhere, "the first bytes must be {}, found {}",
                   in_quotes(kMagic),
                   in_quotes(bytes.substr(0, kMagic.size())));
  }
  const size_t least = kHeaderAt + kDigestBytes;
  if (bytes.size() < least) {
    return invalid(kWhere, "a file must be at least {} bytes, found {}", least,
                   bytes.size());
  }
  if (static_cast<uint64_t>(bytes.size()) >
      static_cast<uint64_t>(limits.max_bytes)) {
    return over_limit(kWhere, "a file must be at most {} bytes, found {}",
                      limits.max_bytes, bytes.size());
  }
  // The version is checked before the checksum, which another version may
  // compute differently.
  const auto version = load<uint32_t>(bytes, kVersionAt);
  if (version != kPlanFileVersion) {
    return invalid(kWhere,
                   "this build reads version {} only, found {} for the file",
                   kPlanFileVersion, version);
  }
  const auto length = load<uint64_t>(bytes, kLengthAt);
  if (length != bytes.size()) {
    return invalid(kWhere,
                   "a file must be as long as it says, found {} bytes "
                   "for {}",
                   bytes.size(), length);
  }
  const std::string_view body = bytes.substr(0, bytes.size() - kDigestBytes);
  const std::string_view stated = bytes.substr(body.size());
  if (const std::string digest = digest_bytes(body); digest != stated) {
    return invalid(kWhere,
                   "the bytes must match their checksum, found {} for {}",
                   hex(digest), hex(stated));
  }
  const auto header = load<uint64_t>(bytes, kHeaderLengthAt);
  const size_t left = body.size() - kHeaderAt;
  if (header > left || header > kMaxHeader) {
    return invalid(kWhere, "a header must be at most {} bytes, found {}",
                   std::min<uint64_t>(left, kMaxHeader), header);
  }
  const auto size = static_cast<size_t>(header);
  return std::pair(body.substr(kHeaderAt, size), body.substr(kHeaderAt + size));
}

size_t padded(size_t n) { return (n + 7) / 8 * 8; }

// Builds the whole file.
Result<std::string> close_envelope(const plan::PlanHeader& header,
                                   const std::string& sections) {
  auto text = plan::write_header(header);
  if (!text) return text.error();
  const size_t header_size = padded(text->size());
  if (header_size > kMaxHeader) {
    return over_limit(kWhere, "a header must be at most {} bytes, found {}",
                      kMaxHeader, header_size);
  }
  std::string out(kMagic);
  const size_t total = kHeaderAt + header_size + sections.size() + kDigestBytes;
  out.reserve(total);
  append(out, kPlanFileVersion);
  append(out, uint64_t{total});
  append(out, uint64_t{header_size});
  out += *text;
  out.append(header_size - text->size(), ' ');
  out += sections;
  out += digest_bytes(out);
  return out;
}

}  // namespace

Result<std::string> encode_plan(const Batch& batch) {
  auto read = plan::read_batch(batch, kWhere);
  if (!read) return read.error();
  const Request& request = (*read)->request;
  const Facts& facts = (*read)->facts;
  const Plan& plan = (*read)->plan;
  const Worklist& w = plan.forward;

  plan::PlanHeader header;
  header.request = request;
  header.heads = plan.heads;
  header.base_block_tokens = facts.base_block_tokens;
  if (facts.picks) {
    header.picks_heads = facts.picks->heads;
    header.picks_k = facts.picks->k;
    header.picks_meaning = facts.picks->meaning;
    header.picks_query_tile = facts.picks->query_tile;
  }
  std::string sections;
  const auto add = [&](std::string_view name, std::string_view bytes) {
    header.sections.push_back(
        {std::string(name), static_cast<int64_t>(bytes.size() / 4)});
    sections += bytes;
  };
  const auto add_ids = [&](std::string_view name,
                           const std::optional<Ints>& ids, int64_t row_length) {
    if (!ids) return;
    const std::vector<uint32_t> runs = make_runs(*ids, row_length);
    add(name, bytes_of(std::span<const uint32_t>(runs)));
  };
  const auto add_plain = [&](std::string_view name,
                             const std::optional<Ints>& values) {
    if (values) add(name, bytes_of(*values));
  };
  add_ids("doc_ids", facts.doc_ids, request.kv_len);
  add_ids("q_doc_ids", facts.q_doc_ids, request.q_len);
  add_plain("valid_token_counts", facts.valid_token_counts);
  add_plain("valid_slot_counts", facts.valid_slot_counts);
  add_plain("prefix_lengths", facts.prefix_lengths);
  add_plain("q_offsets", facts.q_offsets);
  plan::PickWords words;
  const auto add_words = [&](std::string_view name,
                             const std::vector<uint32_t>& from) {
    add(name, bytes_of(std::span<const uint32_t>(from)));
  };
  if (plan.meaning) {
    words = plan::pick_words((*read)->sweep.bound,
                             mask::names_of(request).picks_block, w);
    add_words("union_counts", words.counts);
    add_words("union_blocks", words.blocks);
    add_words("pick_bits", words.bits);
  } else if (facts.picks) {
    add("picks", bytes_of(facts.picks->blocks));
  }
  std::vector<uint32_t> counts;
  counts.reserve(w.row_start.size() - 1);
  for (size_t i = 1; i < w.row_start.size(); ++i) {
    counts.push_back(w.row_start[i] - w.row_start[i - 1]);
  }
  add("row_counts", bytes_of(std::span<const uint32_t>(counts)));
  add("entries", bytes_of(std::span<const Entry>(w.entries)));
  if (plan.meaning) add_words("union_slots", words.slots);
  add_plain("tree_enter", facts.tree_enter);
  add_plain("tree_leave", facts.tree_leave);
  for (size_t i = 0; i < facts.same_ids.size(); ++i) {
    add_plain(mask::same_fact(static_cast<int64_t>(i)), facts.same_ids[i]);
  }

  return close_envelope(header, sections);
}

Result<OwnedBatch> decode_plan(std::string_view bytes,
                               const DecodeLimits& limits) {
  auto envelope = open_envelope(bytes, limits);
  if (!envelope) return envelope.error();
  auto [text, data] = *envelope;
  const std::string_view padding =
      text.substr(std::min(text.size(), text.find_last_not_of(' ') + 1));
  const size_t json_size = text.size() - padding.size();
  if (padded(json_size) != text.size()) {
    return invalid(kWhere,
                   "a header must be padded to 8 bytes and no further, found "
                   "{} bytes for {}",
                   text.size(), padded(json_size));
  }
  auto header = plan::read_header(text.substr(0, json_size));
  if (!header) return header.error();
  auto sections = Sections::cut(header->sections, data);
  if (!sections) return sections.error();
  auto forward = read_forward(*header, *sections, limits);
  if (!forward) return forward.error();
  auto facts = read_facts(*header, *sections, limits);
  if (!facts) return facts.error();

  const Request& request = header->request;
  auto verified =
      plan::verify_forward(request, facts->view(), *forward, kWhere);
  if (!verified) {
    Error error = verified.error();
    // Errors of binding do not mention the file, so they are wrapped.
    if (error.message.rfind("[plan file]", 0) != 0) {
      error.message = fmt::format(
          "[{}] the request and facts must be valid, found \"{}\" for them",
          kWhere, error.message);
    }
    return error;
  }
  auto slots = check_slots(request, facts->view(), *forward, *sections);
  if (!slots) return slots.error();
  Plan plan;
  plan.batch = request.batch;
  plan.heads = verified->heads;
  plan.q_len = request.q_len;
  plan.kv_len = request.kv_len;
  plan.tile = request.tile;
  plan.forward = std::move(*forward);
  plan.transposed = transpose(plan.forward);
  plan.legal_pairs = std::move(verified->legal_pairs);
  plan.meaning = verified->meaning;
  plan.warnings = std::move(verified->warnings);
  return BatchMaker::of_verified(std::move(header->request), std::move(*facts),
                                 std::move(plan));
}

Result<void> save_plan(const std::string& path, const Batch& batch) {
  auto bytes = encode_plan(batch);
  if (!bytes) return bytes.error();
  return write_file(path, *bytes);
}

Result<OwnedBatch> load_plan(const std::string& path,
                             const DecodeLimits& limits) {
  auto bytes = read_file(path, limits.max_bytes);
  if (!bytes) return bytes.error();
  return in_file(decode_plan(*bytes, limits), path);
}

}  // namespace tessera
