// bench/shard/measure.cc: draws batches and shards them.
#include "bench/shard/measure.h"

#include <algorithm>
#include <ctime>

#include "request/drawn_documents.h"
#include "tessera/batch.h"
#include "tessera/mask.h"

namespace tessera::bench {
namespace {

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  const double median =
      n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  return {median, values[(n * 9 + 9) / 10 - 1]};
}

// Of this thread's processor: others on the machine do not count.
double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 +
         static_cast<double>(now.tv_nsec) / 1e6;
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
  const Mesh mesh{{{"seq", c.shards}}};
  std::vector<double> work, tokens, needed, sent, b_needed, b_sent, least, late,
      plan, shard;
  for (int64_t seed = 0; seed < seeds; ++seed) {
    Request request;
    request.masks = {*parse_mask("causal & documents")};
    request.q_len = request.kv_len = c.tokens;
    const auto ids =
        request::lognormal_ids(c.mean, static_cast<uint64_t>(seed), c.tokens);
    Facts facts;
    facts.doc_ids = ids;
    const double start = cpu_ms();
    auto batch = BorrowedBatch::make(request, facts);
    if (!batch) return batch.error();
    const double planned = cpu_ms();
    auto shards = make_shards(*batch, mesh, options);
    if (!shards) return shards.error();
    const double done = cpu_ms();
    plan.push_back(planned - start);
    shard.push_back(done - planned);
    const ShardReport& r = shards->report;
    const auto beside = [](const Moved& m, int64_t bytes) {
      return static_cast<double>(bytes) / static_cast<double>(m.all_gather);
    };
    work.push_back(r.work_max_over_mean);
    tokens.push_back(r.tokens_max_over_mean);
    needed.push_back(beside(r.forward, r.forward.needed));
    sent.push_back(beside(r.forward, r.forward.sent));
    b_needed.push_back(beside(r.backward, r.backward.needed));
    b_sent.push_back(beside(r.backward, r.backward.sent));
    least.push_back(beside(r.forward, r.least_needed));
    late.push_back(1 - r.early_work);
  }
  return ShardFigures{spread_of(work),        spread_of(tokens),
                      spread_of(needed),      spread_of(sent),
                      spread_of(b_needed),    spread_of(b_sent),
                      spread_of(least),       spread_of(late),
                      spread_of(plan).median, spread_of(shard).median};
}

}  // namespace tessera::bench
