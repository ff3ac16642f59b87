// bench/routed/case.h: one length of `tessera-bench routed`: its inputs, the
// routed run stage by stage, the dense one beside it, and the proof.
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

// What is picked, the queries that share a union, and the tile of plans.
inline constexpr int64_t kRoutedBlock = 256;

// What all lengths share.
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
  double routing = 0;  // all stages and what lies between them
  double plan = 0;
  double prepare = 0;    // a session's prepare, of the cpu lane
  double attention = 0;  // its forward

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
  // `attends`: with values and outputs, else q and k alone.
  static Result<RoutedCase> make(const RoutedSizes& sizes, int64_t tokens,
                                 bool attends);

  // Bytes of the arrays that make() allocates.
  static double bytes(const RoutedSizes& sizes, int64_t tokens, bool attends);

  // Q and K of a batch: nothing else differs between batches.
  void draw(int64_t batch);
  request::Clusters clusters(int64_t batch) const;

  // By MoBA's rule, as far as the plan.
  Result<RoutedRun> route(int64_t top, bool hierarchical) const;
  Result<void> attend(RoutedRun& run);
  // Of the output of the latest attend(), at sampled queries.
  Result<reference::Verdict> judge(const RoutedRun& run);
  // Milliseconds of causal attention by the cpu lane, plan and all, over the
  // first `heads` query heads and the heads of K and V that these read.
  Result<double> dense(int64_t heads);

  Request request(int64_t top) const;
  RouteSettings settings(int64_t top, bool hierarchical) const;
  int64_t causal_tiles(const RoutedRun& run) const;  // of all plan heads
  double density(const RoutedRun& run) const;        // of the causal tiles
  // The key of the plan's contract under ceilings that hold for any batch.
  Result<std::string> contract(const RoutedRun& run, int64_t top) const;

  int64_t tokens() const { return tokens_; }
  request::AttentionData& data() { return data_; }

 private:
  RoutedCase(const RoutedSizes& sizes, int64_t tokens, Session session)
      : sizes_(sizes), tokens_(tokens), session_(std::move(session)) {}

  RoutedSizes sizes_;
  int64_t tokens_;
  Session session_;  // of the cpu lane
  request::AttentionData data_;
};

}  // namespace tessera::bench
