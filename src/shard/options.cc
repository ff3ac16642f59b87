// shard/options.cc: parses the options of spreading a batch.
#include <fmt/format.h>

#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "shard/named_values.h"
#include "tessera/shard.h"

namespace tessera {

Result<TileWork> parse_tile_work(std::string_view text) {
  auto words = shard::split_named_values(text, "the work of a class");
  if (!words) return words.error();
  TileWork out;
  for (const shard::NamedValue& w : *words) {
    if (w.name != "partial" && w.name != "full") {
      return invalid("shard", "work must be of partial or full, found {}",
                     in_quotes(w.all));
    }
    auto n = shard::parse_number(
        w.value, fmt::format("the work of a {} tile", w.name), 1, kMaxTileWork);
    if (!n) return n.error();
    (w.name == "full" ? out.full : out.partial) = *n;
  }
  return out;
}

std::string to_string(const TileWork& work) {
  return fmt::format("partial={},full={}", work.partial, work.full);
}

Result<Evenness> parse_evenness(std::string_view text) {
  auto words = shard::split_named_values(text, "the evenness of one thing");
  if (!words) return words.error();
  Evenness out;
  for (const shard::NamedValue& w : *words) {
    if (w.name != "work" && w.name != "tokens") {
      return invalid("shard", "evenness must be of work or tokens, found {}",
                     in_quotes(w.all));
    }
    auto ratio = shard::parse_ratio(
        w.value, fmt::format("the evenness of {}", w.name), 1, kMaxEvenness);
    if (!ratio) return ratio.error();
    (w.name == "work" ? out.work : out.tokens) = *ratio;
  }
  return out;
}

std::string to_string(const Evenness& evenness) {
  return fmt::format("work={},tokens={}", evenness.work, evenness.tokens);
}

Result<ShardOptions> parse_shard_options(const ShardWords& words) {
  ShardOptions out;
  auto balance = parse_balance(words.balance);
  if (!balance) return balance.error();
  out.balance = *balance;
  auto exchange = parse_tile_exchange(words.exchange);
  if (!exchange) return exchange.error();
  out.exchange = *exchange;
  auto ceilings = parse_shard_ceilings(words.ceilings);
  if (!ceilings) return ceilings.error();
  out.ceilings = std::move(*ceilings);
  auto work = parse_tile_work(words.work);
  if (!work) return work.error();
  out.work = *work;
  auto evenness = parse_evenness(words.evenness);
  if (!evenness) return evenness.error();
  out.evenness = *evenness;
  if (!words.evenness.empty() && !seeks_evenness(out.balance)) {
    return invalid("shard",
                   "evenness goes with a balance that seeks it, rows or tasks, "
                   "found {}",
                   words.balance);
  }
  out.uneven = words.uneven;
  return out;
}

}  // namespace tessera
