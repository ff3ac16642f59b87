// bench/shard/measure.cc: draws batches and shards them.
#include "bench/shard/measure.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/turns.h"
#include "bench/harness/times.h"
#include "request/drawn_documents.h"
#include "tessera/batch.h"
#include "tessera/mask.h"

namespace tessera::bench {
namespace {

// The figures of one batch's shards.
struct Sample {
  double work, tokens, needed, sent, backward_needed, backward_sent, least,
      late, plan_ms, shard_ms;
};

Spread spread_of(const std::vector<Sample>& samples, double Sample::*figure) {
  std::vector<double> values(samples.size());
  std::ranges::transform(samples, values.begin(), figure);
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {times_of(values).median_ms, values[(n * 9 + 9) / 10 - 1]};
}

// CPU time of this thread, which other processes do not change.
double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 +
         static_cast<double>(now.tv_nsec) / 1e6;
}

// Plans and shards the batch of a seed.
Result<Sample> shard_once(const ShardCase& c, const ShardOptions& options,
                          uint64_t seed) {
  Request request;
  request.masks = {*parse_mask("causal & documents")};
  request.q_len = request.kv_len = c.tokens;
  const auto ids = request::lognormal_ids(c.mean, seed, c.tokens);
  Facts facts;
  facts.doc_ids = ids;
  const Mesh mesh{{{"seq", c.shards}}};
  const double start = cpu_ms();
  auto batch = BorrowedBatch::make(request, facts);
  if (!batch) return batch.error();
  const double planned = cpu_ms();
  auto shards = make_shards(*batch, mesh, options);
  if (!shards) return shards.error();
  const double done = cpu_ms();
  const ShardReport& r = shards->report;
  const auto beside = [](const Moved& m, int64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(m.all_gather);
  };
  return Sample{.work = r.work_max_over_mean,
                .tokens = r.tokens_max_over_mean,
                .needed = beside(r.forward, r.forward.needed),
                .sent = beside(r.forward, r.forward.sent),
                .backward_needed = beside(r.backward, r.backward.needed),
                .backward_sent = beside(r.backward, r.backward.sent),
                .least = beside(r.forward, r.least_needed),
                .late = 1 - r.early_work,
                .plan_ms = planned - start,
                .shard_ms = done - planned};
}

}  // namespace

std::vector<ShardCase> shard_cases() {
  return {
      {int64_t{1} << 17, 1536, 8, 0.06, 0.25},
      {int64_t{1} << 17, 16384, 8, 0.25, 0.60},
      {int64_t{1} << 20, 4096, 32, 0.03, 0.10},
  };
}

std::vector<ShardWay> shard_ways() {
  return {{Balance::contiguous},
          {Balance::headtail},
          {Balance::rows},
          {Balance::tasks},
          {Balance::rows, TileExchange::ragged},
          {Balance::tasks, TileExchange::ragged}};
}

std::vector<ShardWay> frontier_ways() {
  std::vector<ShardWay> out;
  for (const TileExchange exchange :
       {TileExchange::rounds, TileExchange::ragged}) {
    for (const auto& [work, tokens] : {std::pair(1.01, 1.02),
                                       {1.02, 1.02},
                                       {1.05, 1.02},
                                       {1.1, 1.02},
                                       {1.2, 1.02},
                                       {1.05, 1.1},
                                       {1.1, 1.1},
                                       {1.2, 1.2},
                                       {1.5, 1.5}}) {
      out.push_back({Balance::rows, exchange, {work, tokens}});
    }
    // Tokens stay where they lie, so that only work can be less even.
    for (const double work : {1.01, 1.02, 1.05, 1.1, 1.2, 1.5}) {
      out.push_back({Balance::tasks, exchange, {work, Evenness().tokens}});
    }
  }
  return out;
}

Result<ShardFigures> measure_shards(const ShardCase& c, const ShardWay& way,
                                    int64_t seeds) {
  ShardOptions options;
  options.balance = way.balance;
  options.exchange = way.exchange;
  options.evenness = way.evenness;
  options.shape.heads = 32;
  options.shape.kv_heads = 8;
  options.shape.head_dim = options.shape.v_head_dim = 128;
  uint64_t seed = 0;
  auto of = repeat<Sample>(just(seeds),
                           [&] { return shard_once(c, options, seed++); });
  if (!of) return of.error();
  return ShardFigures{spread_of(*of, &Sample::work),
                      spread_of(*of, &Sample::tokens),
                      spread_of(*of, &Sample::needed),
                      spread_of(*of, &Sample::sent),
                      spread_of(*of, &Sample::backward_needed),
                      spread_of(*of, &Sample::backward_sent),
                      spread_of(*of, &Sample::least),
                      spread_of(*of, &Sample::late),
                      spread_of(*of, &Sample::plan_ms).median,
                      spread_of(*of, &Sample::shard_ms).median};
}

}  // namespace tessera::bench
