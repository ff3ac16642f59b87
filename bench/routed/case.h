// bench/routed/case.h: one length of `tessera-bench routed`: inputs, the routed
// run by stages, the dense run and the check.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lanes/reference/judge.h"
#include "request/attention_data.h"
#include "request/clustered_inputs.h"
#include "tessera/route.h"
#include "tessera/session.h"

namespace tessera::bench {

// The size of a picked block, of the query blocks that share a union, and of
// the plan's tiles.
inline constexpr int64_t kRoutedBlock = 256;

// Settings that all lengths share.
struct RoutedSizes {
  AttentionShape shape;
  Dtype dtype = Dtype::f32;
  int threads = 1;
  RouteMeaning meaning = RouteMeaning::exact;
  double spread = 0;
  uint64_t seed = 0;
};

// Milliseconds of one run.
struct RoutedTimes {
  std::array<double, kRouteStages> stage{};
  double routing = 0;  // from the first stage to the end of the last
  double plan = 0;
  double prepare = 0;    // a session's prepare on the cpu lane
  double attention = 0;  // forward on the cpu lane

  double planned() const { return routing + plan; }
  double whole() const { return planned() + prepare + attention; }
};

struct RoutedRun {
  OwnedBatch batch;
  RoutedTimes times;

  const Plan& plan() const { return batch.plan(); }
  const RouteResult& routed() const { return *batch.routing(); }
};

class RoutedCase {
 public:
  // With `attends` there are values and outputs too, else only q and k.
  static Result<RoutedCase> make(const RoutedSizes& sizes, int64_t tokens,
                                 bool attends);

  // Bytes of the arrays that make() allocates.
  static double bytes(const RoutedSizes& sizes, int64_t tokens, bool attends);

  // Draws q and k of a batch. Nothing else differs between batches.
  void draw(int64_t batch);
  request::Clusters clusters(int64_t batch) const;

  // Routes by MoBA's rule, and plans.
  Result<RoutedRun> route(int64_t top, bool hierarchical) const;
  Result<void> attend(RoutedRun& run);
  // Checks the output of the latest attend() at sampled queries.
  Result<reference::Verdict> judge(const RoutedRun& run);
  // Milliseconds of causal attention on the cpu lane, with the plan, over the
  // first `heads` query heads and the heads of K and V that these read.
  Result<double> dense(int64_t heads);

  Request request(int64_t top) const;
  RouteSettings settings(int64_t top, bool hierarchical) const;
  int64_t causal_tiles(const RoutedRun& run) const;  // of all plan heads
  double density(const RoutedRun& run) const;        // share of causal tiles
  // The key of the plan's contract under ceilings that hold for any batch.
  Result<std::string> contract(const RoutedRun& run, int64_t top) const;

  int64_t tokens() const { return tokens_; }
  request::AttentionData& data() { return data_; }

 private:
  RoutedCase(const RoutedSizes& sizes, int64_t tokens, Session session)
      : sizes_(sizes), tokens_(tokens), session_(std::move(session)) {}

  RoutedSizes sizes_;
  int64_t tokens_;
  Session session_;  // on the cpu lane
  request::AttentionData data_;
};

}  // namespace tessera::bench
