// shard/ceilings.cc: ceilings as text, those that a contract has, and options
// from words.
#include <algorithm>
#include <charconv>

#include "base/fail.h"
#include "base/text.h"
#include "tessera/plan.h"
#include "tessera/shard.h"

namespace tessera {
namespace {

Result<int64_t> parse_count(std::string_view name, std::string_view word,
                            int64_t least) {
  int64_t n = 0;
  const char* const end = word.data() + word.size();
  const auto [at, error] = std::from_chars(word.data(), end, n);
  if (word.empty() || error != std::errc{} || at != end || n < least ||
      n > kMaxTiles) {
    return invalid("shard", "the ceiling of {} must be {} to {}, found {}",
                   name, least, kMaxTiles, in_quotes(word));
  }
  return n;
}

// Of each shift; nothing may travel by one of 0.
Result<std::vector<int64_t>> parse_counts(std::string_view name,
                                          std::string_view words) {
  std::vector<int64_t> out;
  for (size_t at = 0; at <= words.size();) {
    const size_t end = std::min(words.find(':', at), words.size());
    auto n = parse_count(name, words.substr(at, end - at), 0);
    if (!n) return n.error();
    out.push_back(*n);
    at = end + 1;
  }
  return out;
}

std::vector<int64_t> capacities(const Traffic& traffic, int64_t seq) {
  std::vector<int64_t> out(static_cast<size_t>(seq - 1), 0);
  for (const Round& round : traffic.rounds) {
    out[static_cast<size_t>(round.shift - 1)] = round.capacity;
  }
  return out;
}

}  // namespace

Result<ShardCeilings> parse_shard_ceilings(std::string_view text) {
  ShardCeilings out;
  std::vector<std::string_view> seen;
  for (size_t at = 0; !text.empty() && at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = std::min(word.find('='), word.size());
    const std::string_view name = word.substr(0, equals);
    const std::string_view value =
        equals < word.size() ? word.substr(equals + 1) : std::string_view{};
    if (std::ranges::find(seen, name) != seen.end()) {
      return invalid("shard", "a ceiling must stand once, found two for {}",
                     in_quotes(name));
    }
    seen.push_back(name);
    if (name == "rows" || name == "steps") {
      auto n = parse_count(name, value, 1);
      if (!n) return n.error();
      (name == "rows" ? out.rows : out.steps) = *n;
    } else if (name == "kv" || name == "q") {
      auto list = parse_counts(name, value);
      if (!list) return list.error();
      (name == "kv" ? out.kv_rounds : out.q_rounds) = std::move(*list);
    } else {
      return invalid("shard",
                     "a ceiling must be of rows, steps, kv or q, found {}",
                     in_quotes(word));
    }
  }
  return out;
}

std::string to_string(const ShardCeilings& ceilings) {
  std::vector<std::string> words;
  if (ceilings.rows > 0) words.push_back(fmt::format("rows={}", ceilings.rows));
  if (ceilings.steps > 0) {
    words.push_back(fmt::format("steps={}", ceilings.steps));
  }
  if (!ceilings.kv_rounds.empty()) {
    words.push_back(fmt::format("kv={}", fmt::join(ceilings.kv_rounds, ":")));
  }
  if (!ceilings.q_rounds.empty()) {
    words.push_back(fmt::format("q={}", fmt::join(ceilings.q_rounds, ":")));
  }
  return fmt::format("{}", fmt::join(words, ","));
}

ShardCeilings ceilings_of(const Shards& shards) {
  const int64_t seq = shards.mesh.size("seq");
  ShardCeilings out{shards.shapes.own_rows, shards.shapes.steps, {}, {}};
  if (seq > 1) {
    out.kv_rounds = capacities(shards.kv, seq);
    if (shards.balance == Balance::tasks) {
      out.q_rounds = capacities(shards.q, seq);
    }
  }
  return out;
}

Result<ShardOptions> parse_shard_options(std::string_view balance,
                                         std::string_view exchange,
                                         std::string_view ceilings,
                                         bool uneven) {
  ShardOptions out;
  auto how = parse_balance(balance);
  if (!how) return how.error();
  out.balance = *how;
  auto tiles = parse_tile_exchange(exchange);
  if (!tiles) return tiles.error();
  out.exchange = *tiles;
  auto most = parse_shard_ceilings(ceilings);
  if (!most) return most.error();
  out.ceilings = std::move(*most);
  out.uneven = uneven;
  return out;
}

}  // namespace tessera
