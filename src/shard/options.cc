// shard/options.cc: how to spread a batch, from words.
#include <fmt/format.h>

#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "shard/words.h"
#include "tessera/shard.h"

namespace tessera {

Result<TileWork> parse_tile_work(std::string_view text) {
  auto words = shard::split_words(text, "the work of a class");
  if (!words) return words.error();
  TileWork out;
  for (const shard::Word& w : *words) {
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
  out.uneven = words.uneven;
  return out;
}

}  // namespace tessera
