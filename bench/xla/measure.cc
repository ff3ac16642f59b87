// bench/xla/measure.cc: runs, checks and times the contenders in turn.
#include "bench/xla/measure.h"

#include <utility>

#include "base/fail.h"
#include "base/timed.h"
#include "base/turns.h"
#include "cli/progress.h"
#include "request/random_inputs.h"
#include "run/judge_run.h"
#include "run/passes.h"

namespace tessera::bench {

using cli::Progress;
using request::Array;
using request::AttentionData;
using request::fill_inputs;
using request::Layout;

namespace {

Result<double> time_of(const XlaContender& c, XlaProblem& p) {
  double ms = 0;
  auto ran = timed(
      ms, [&] { return run::run_passes(*c.session, p.data.over(*p.batch)); });
  if (!ran) return ran.error();
  return ms;
}

Result<void> judge(XlaContender& c, XlaProblem& p) {
  Progress progress("checking");
  auto check = run::judge_run(
      p.data.over(*p.batch),
      {.flushes = c.name != kCpu, .progress = progress.callback()});
  if (!check) return check.error();
  c.check = std::move(*check);
  return {};
}

}  // namespace

Result<void> bind(XlaProblem& p, const XlaSettings& s) {
  auto mask = parse_mask(p.what->mask);
  if (!mask) return mask.error();
  Request request;
  request.masks = {std::move(*mask)};
  request.q_len = request.kv_len = s.tokens;
  OwnedFacts facts;
  if (p.what->documents) facts.doc_ids = packed_ids(s.tokens);
  auto batch = OwnedBatch::make(std::move(request), std::move(facts));
  if (!batch) return batch.error();
  p.batch = std::move(*batch);
  AttentionData& data = p.data;
  data.q_len = data.kv_len = s.tokens;
  data.shape = s.shape;
  data.shape.softcap = p.what->softcap;
  data.dtype = p.dtype;
  data.backward = p.direction == Direction::backward;
  data.allocate();
  fill_inputs(data, 0);
  return {};
}

Result<void> measure(XlaProblem& p, std::vector<XlaContender>& contenders,
                     int64_t rounds) {
  for (XlaContender& c : contenders) {
    Progress progress(c.name);
    // A new output: results of the contender before must not be checked again.
    p.data.out = Array(p.dtype, Layout::bhsd, 1, p.data.shape.heads,
                       p.data.q_len, p.data.shape.v_head_dim);
    auto first = time_of(c, p);
    if (!first) {
      c.why = first.error().message;
      continue;
    }
    c.first_ms = *first;
    if (auto ok = judge(c, p); !ok) return ok;
  }
  std::vector<XlaContender*> ran;
  std::vector<Turn<double>> turns;
  for (XlaContender& c : contenders) {
    if (!c.why.empty()) continue;
    ran.push_back(&c);
    turns.emplace_back([&p, c = &c] {
      auto settled = time_of(*c, p);
      return settled ? time_of(*c, p) : settled;
    });
  }
  auto ms = take_turns<double>(just(rounds), turns);
  if (!ms) return ms.error();
  for (size_t i = 0; i < ran.size(); ++i) ran[i]->ms = std::move((*ms)[i]);
  return {};
}

}  // namespace tessera::bench
