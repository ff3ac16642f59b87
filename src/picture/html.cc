// picture/html.cc: packs the lists of a plan into the page, page.html.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/fail.h"
#include "picture/labels.h"
#include "picture/page.h"
#include "picture/parts.h"

namespace tessera::picture {
namespace {

using Json = nlohmann::json;
using Kind = DocumentSpan::Kind;

// The file holds every list if they are at most this large, so that it opens
// quickly.
constexpr int64_t kSmallBytes = int64_t{8} << 20;
constexpr int64_t kSmallLists = 256;
constexpr size_t kMaskLimit = 20000;

void put_varint(std::string& out, uint64_t v) {
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  out += static_cast<char>(v);
}

// Rows as varints: 0 repeats the row above; n + 1 starts a row of n runs, each
// the gap before it, then twice its length, plus one if the run is full.
struct PackedTiles {
  std::string bytes;
  int64_t runs = 0;  // without those of repeated rows
};

PackedTiles pack_tiles(const Worklist& w, int64_t list) {
  PackedTiles p;
  std::vector<TileRun> above;
  for (int64_t r = 0; r < w.rows; ++r) {
    std::vector<TileRun> runs = tile_runs(w.row(list, r));
    if (r > 0 && runs == above) {
      put_varint(p.bytes, 0);
      continue;
    }
    put_varint(p.bytes, runs.size() + 1);
    int64_t at = 0;
    for (const TileRun& run : runs) {
      put_varint(p.bytes, static_cast<uint64_t>(run.begin - at));
      put_varint(p.bytes, static_cast<uint64_t>(run.end - run.begin) << 1 |
                              (run.tile_class == TileClass::full ? 1 : 0));
      at = run.end;
    }
    p.runs += static_cast<int64_t>(runs.size());
    above = std::move(runs);
  }
  return p;
}

// Spans as varints: length, then 0 padding, 1 outside, or the id plus 2.
Json pack_spans(const std::vector<DocumentSpan>& spans) {
  std::string bytes;
  for (const DocumentSpan& s : spans) {
    put_varint(bytes, static_cast<uint64_t>(s.end - s.begin));
    put_varint(bytes, s.kind == Kind::padding ? 0
                      : s.kind == Kind::outside
                          ? 1
                          : uint64_t{2} + static_cast<uint64_t>(s.id));
  }
  return {{"count", spans.size()}, {"data", base64(bytes)}};
}

struct PackedList {
  Json json;
  int64_t bytes = 0;
};

// Counts of pairs may exceed 2^53, so they are written as text.
PackedList pack_list(const Input& in, int64_t batch_row, int64_t head) {
  const Parts parts = make_parts(in, batch_row, head);
  const PackedTiles tiles = pack_tiles(in.batch.plan().forward, parts.list);
  const int64_t total = parts.total();
  PackedList l;
  const bool own =
      static_cast<int64_t>(in.head_masks.size()) == in.batch.plan().heads;
  const std::string& mask =
      own ? in.head_masks[static_cast<size_t>(head)] : in.mask;
  l.json = {{"mask", clean_text(mask, kMaskLimit, false)},
            {"batch_row", batch_row},
            {"head", head},
            {"q_offset", parts.q_offset},
            {"empty", with_commas(parts.empty)},
            {"partial", with_commas(parts.partial)},
            {"full", with_commas(parts.full)},
            {"empty_share", percent(parts.empty, total)},
            {"partial_share", percent(parts.partial, total)},
            {"full_share", percent(parts.full, total)},
            {"density", percent(parts.active(), total)},
            {"bar",
             {static_cast<double>(parts.full) / static_cast<double>(total),
              static_cast<double>(parts.partial) / static_cast<double>(total)}},
            {"pairs", with_commas(parts.pairs)},
            {"paid", with_commas(parts.paid)},
            {"needed", with_commas(parts.needed)},
            {"ratio", ratio_text(parts.paid, parts.needed)},
            {"documents", with_commas(parts.documents)},
            {"keys", pack_spans(parts.keys)},
            {"queries", pack_spans(parts.queries)},
            {"runs", tiles.runs},
            {"tiles", base64(tiles.bytes)}};
  l.bytes +=
      static_cast<int64_t>(l.json["mask"].get_ref<const std::string&>().size());
  for (const char* at : {"keys", "queries"}) {
    l.bytes += static_cast<int64_t>(
        l.json[at]["data"].get_ref<const std::string&>().size());
  }
  l.bytes += static_cast<int64_t>(
      l.json["tiles"].get_ref<const std::string&>().size());
  return l;
}

// ASCII text that cannot end the script element that contains it.
std::string script_json(const Json& json) {
  const std::string text =
      json.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    if (c == '<' || c == '>' || c == '&') {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out;
}

// `text` with each mark replaced once; inserted text is not searched.
std::string fill_page(std::string_view text, std::string_view title,
                      std::string_view data) {
  constexpr std::string_view kTitle = "@TITLE@";
  constexpr std::string_view kData = "@DATA@";
  const size_t t = text.find(kTitle);
  const size_t d = text.find(kData);
  std::string out;
  out.reserve(text.size() + title.size() + data.size());
  out += text.substr(0, t);
  out += title;
  out += text.substr(t + kTitle.size(), d - t - kTitle.size());
  out += data;
  out += text.substr(d + kData.size());
  return out;
}

}  // namespace

Result<std::string> draw_html(const Input& input) {
  if (Result<void> r = check_input(input); !r) return r.error();
  const Plan& plan = input.batch.plan();
  PackedList chosen = pack_list(input, input.batch_row, input.head);
  if (chosen.bytes > kMaxHtmlBytes) {
    return over_limit("show",
                      "an HTML picture holds at most {} bytes of tiles and "
                      "documents, found {} for batch row {}, plan head {}",
                      kMaxHtmlBytes, chosen.bytes, input.batch_row, input.head);
  }
  const int64_t lists = plan.batch * plan.heads;
  const int64_t first = plan.list(input.batch_row, input.head);
  Json all = Json::array();
  int64_t bytes = chosen.bytes;
  bool whole = lists <= kSmallLists;
  for (int64_t l = 0; whole && l < lists; ++l) {
    if (l == first) {
      all.push_back(chosen.json);
      continue;
    }
    PackedList other = pack_list(input, l / plan.heads, l % plan.heads);
    bytes += other.bytes;
    whole = bytes <= kSmallBytes;
    all.push_back(std::move(other.json));
  }
  Json data = {{"mask", clean_text(input.mask, 20000, false)},
               {"q_len", plan.q_len},
               {"kv_len", plan.kv_len},
               {"tile_q", plan.tile.q},
               {"tile_kv", plan.tile.kv},
               {"rows", plan.forward.rows},
               {"columns", plan.forward.columns},
               {"batch", plan.batch},
               {"heads", plan.heads},
               {"whole", whole},
               {"chosen", whole ? first : 0},
               {"warnings", Json::array()},
               {"lists", whole ? std::move(all) : Json::array({chosen.json})}};
  const std::vector<std::string> warnings = make_warnings(input.batch);
  for (size_t i = 0; i < std::min<size_t>(warnings.size(), 20); ++i) {
    data["warnings"].push_back(clean_text(warnings[i], 500, false));
  }
  return fill_page(page(), escape_markup(clean_text(input.mask, 200, false)),
                   script_json(data));
}

}  // namespace tessera::picture
