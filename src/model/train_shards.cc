// model/train_shards.cc: how shards of a step exchange, to and from text.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "model/spread.h"
#include "tessera/train.h"

namespace tessera {
namespace {

constexpr std::string_view kGather = "gather";

// The ceilings of each mask, separated by ';'.
Result<std::vector<ShardCeilings>> parse_ceilings(std::string_view text) {
  std::vector<ShardCeilings> out;
  for (size_t at = 0; !text.empty() && at <= text.size();) {
    const size_t end = std::min(text.find(';', at), text.size());
    auto each = parse_shard_ceilings(text.substr(at, end - at));
    if (!each) return each.error();
    out.push_back(std::move(*each));
    at = end + 1;
  }
  return out;
}

}  // namespace

namespace model {
namespace {

std::vector<int64_t> larger(std::vector<int64_t> a,
                            const std::vector<int64_t>& b) {
  a.resize(std::max(a.size(), b.size()), 0);
  for (size_t i = 0; i < b.size(); ++i) a[i] = std::max(a[i], b[i]);
  return a;
}

}  // namespace

std::vector<ShardCeilings> joined(const std::vector<ShardCeilings>& a,
                                  const std::vector<ShardCeilings>& b) {
  std::vector<ShardCeilings> out = a;
  if (out.size() < b.size()) out.resize(b.size());
  for (size_t i = 0; i < b.size(); ++i) {
    ShardCeilings& to = out[i];
    to.rows = std::max(to.rows, b[i].rows);
    to.steps = std::max(to.steps, b[i].steps);
    to.kv_rounds = larger(to.kv_rounds, b[i].kv_rounds);
    to.q_rounds = larger(to.q_rounds, b[i].q_rounds);
  }
  return out;
}

}  // namespace model

Result<std::optional<TrainShards>> parse_train_shards(const ShardWords& words) {
  const bool more = !words.balance.empty() || !words.ceilings.empty() ||
                    !words.work.empty() || !words.evenness.empty();
  ShardWords known = words;
  if (words.exchange.empty()) known.exchange = more ? "rounds" : kGather;
  if (known.exchange == kGather) {
    if (!more) return std::optional<TrainShards>();
    return invalid("train",
                   "{} goes with the exchange rounds or ragged, found gather",
                   !words.balance.empty()    ? "a balance"
                   : !words.ceilings.empty() ? "a ceiling"
                   : !words.work.empty()     ? "the work of a tile"
                                             : "evenness");
  }
  const auto exchange = parse_tile_exchange(known.exchange);
  if (!exchange || *exchange == TileExchange::automatic) {
    return invalid("train",
                   "exchange must be gather, rounds or ragged, found {}",
                   in_quotes(known.exchange));
  }
  if (known.balance.empty()) known.balance = "rows";
  known.ceilings = {};
  auto options = parse_shard_options(known);
  if (!options) return options.error();
  auto ceilings = parse_ceilings(words.ceilings);
  if (!ceilings) return ceilings.error();
  return std::optional(TrainShards{options->balance, options->exchange,
                                   options->work, options->evenness,
                                   std::move(*ceilings)});
}

std::string to_string(const std::vector<ShardCeilings>& of_masks) {
  std::string out;
  for (const ShardCeilings& each : of_masks) {
    out += (out.empty() ? "" : ";") + to_string(each);
  }
  return out;
}

}  // namespace tessera
