// request/drawn_picks.cc: parses "clustered:..." and its settings.
#include "request/drawn_picks.h"

#include <set>

#include "base/fail.h"
#include "base/text.h"
#include "request/numbers.h"
#include "tessera/attention.h"

namespace tessera::request {
namespace {

constexpr std::string_view kClustered = "clustered";

Result<void> read_setting(std::string_view part, DrawnPicks& out) {
  const size_t at = part.find('=');
  const std::string_view key = trim(part.substr(0, at));
  if (at == std::string_view::npos) {
    return invalid("cli", "--picks clustered takes name=value, found {}",
                   in_quotes(part));
  }
  const std::string_view value = part.substr(at + 1);
  struct Number {
    std::string_view key;
    int64_t least, most;
    int64_t* out;
  };
  int64_t seed = 0;
  for (const Number& n : {Number{"heads", 1, kMaxHeads, &out.heads},
                          Number{"kv_heads", 1, kMaxHeads, &out.kv_heads},
                          Number{"dim", 1, kMaxHeadDim, &out.dim},
                          Number{"seed", 0, int64_t{1} << 62, &seed}}) {
    if (key != n.key) continue;
    auto parsed = parse_int(value, fmt::format("--picks clustered {}", key),
                            n.least, n.most);
    if (!parsed) return parsed.error();
    *n.out = *parsed;
    if (key == "seed") out.seed = static_cast<uint64_t>(seed);
    return {};
  }
  if (key == "spread") {
    auto spread = parse_positive(value, "--picks clustered spread");
    if (!spread) return spread.error();
    out.spread = *spread;
    return {};
  }
  return invalid("cli",
                 "--picks clustered takes heads, kv_heads, dim, spread and "
                 "seed, found {}",
                 in_quotes(key));
}

}  // namespace

Result<std::optional<DrawnPicks>> parse_drawn(std::string_view source) {
  std::optional<DrawnPicks> out;
  if (source.substr(0, kClustered.size()) != kClustered) return out;
  std::string_view rest = source.substr(kClustered.size());
  if (!rest.empty() && rest.front() != ':') return out;
  out.emplace();
  out->kv_heads = 0;  // as many as heads
  if (!rest.empty()) {
    std::set<std::string_view> seen;
    for (const std::string_view part : split(rest.substr(1), ',')) {
      if (auto e = read_setting(part, *out); !e) return e.error();
      const std::string_view key = trim(part.substr(0, part.find('=')));
      auto e = take_once(seen, key, "cli", "--picks clustered");
      if (!e) return e.error();
    }
  }
  if (out->kv_heads == 0) out->kv_heads = out->heads;
  if (out->heads % out->kv_heads != 0) {
    return invalid("cli",
                   "--picks clustered kv_heads must divide heads, found {} for "
                   "{}",
                   out->kv_heads, out->heads);
  }
  return out;
}

}  // namespace tessera::request
