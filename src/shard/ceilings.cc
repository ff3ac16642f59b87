// shard/ceilings.cc: parses ceilings, and reads those of a contract.
#include <algorithm>

#include "base/fail.h"
#include "base/text.h"
#include "shard/named_values.h"
#include "tessera/plan.h"
#include "tessera/shard.h"

namespace tessera {
namespace {

Result<int64_t> parse_count(std::string_view name, std::string_view word,
                            int64_t least) {
  return shard::parse_number(word, fmt::format("the ceiling of {}", name),
                             least, kMaxTiles);
}

// One count per shift; 0: nothing may travel by that shift.
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
  auto words = shard::split_named_values(text, "a ceiling");
  if (!words) return words.error();
  ShardCeilings out;
  for (const auto& [all, name, value] : *words) {
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
                     in_quotes(all));
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

}  // namespace tessera
