// lanes/reference/lane.cc: the reference lane as a session sees it.
#include "lanes/reference/lane.h"

#include <utility>
#include <vector>

#include "base/tensor_rows.h"
#include "base/timed.h"
#include "lanes/reference/reference.h"
#include "lanes/reference/sink_row.h"
#include "plan/batch_state.h"

namespace tessera::reference {
namespace {

// A tensor of any layout as dense fp64 [batch, heads, tokens, dim].
std::vector<double> widen(const TensorView& t) {
  std::vector<double> out(
      static_cast<size_t>(t.batch * t.heads * t.tokens * t.dim));
  double* row = out.data();
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t s = 0; s < t.tokens; ++s, row += t.dim) {
        read_row(t, b, h, s, row);
      }
    }
  }
  return out;
}

void narrow(const std::vector<double>& from, const MutableTensorView& t) {
  const double* row = from.data();
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t s = 0; s < t.tokens; ++s, row += t.dim) {
        write_row(t, b, h, s, row);
      }
    }
  }
}

void narrow(const std::vector<double>& from, std::span<float> to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(from[i]);
}

// The arrays of a call in fp64.
struct Wide {
  explicit Wide(const ForwardTensors& t)
      : q(widen(t.q)), k(widen(t.k)), v(widen(t.v)) {
    if (t.sink_logits) {
      sinks.assign(t.sink_logits->begin(), t.sink_logits->end());
    }
    inputs = {q, k, v, {}};
    if (t.sink_logits) inputs.sink_logits = sinks;
  }
  std::vector<double> q, k, v, sinks;
  AttentionInputs inputs;
};

// This lane runs no tiles: it tests every pair, and scores the legal ones.
class Work : public lanes::LaneWork {
 public:
  // Copies the facts, since every call reads them.
  static Result<std::unique_ptr<lanes::LaneWork>> make(
      const Batch& batch, const AttentionShape& shape) {
    auto read = plan::read_batch(batch, "reference");
    if (!read) return read.error();
    auto facts = std::make_unique<const OwnedFacts>(own_facts(batch.facts()));
    auto legality = Legality::bind(batch.request(), facts->view());
    if (!legality) return legality.error();
    return std::unique_ptr<lanes::LaneWork>(
        new Work(batch, std::move(facts), std::move(*legality), shape));
  }

  const lanes::WorkFacts& facts() const override { return facts_; }

  Result<lanes::PassRun> forward(const ForwardTensors& t,
                                 const StopFlag* stop) override {
    lanes::PassRun out;
    auto ran = timed(out.run_ms, [&]() -> Result<AttentionOutputs> {
      const Wide wide(t);
      return reference_forward(request_, legality_, shape_, wide.inputs, stop);
    });
    if (!ran) return ran.error();
    narrow(ran->out, t.out);
    narrow(ran->lse, t.lse);
    out.pairs_run = ran->pairs;
    return out;
  }

  Result<lanes::PassRun> backward(const ForwardTensors& t, const Gradients& g,
                                  const StopFlag* stop) override {
    lanes::PassRun out;
    auto ran = timed(out.run_ms, [&]() -> Result<AttentionGradients> {
      const Wide wide(t);
      const std::vector<double> dout = widen(g.dout);
      const std::vector<double> dlse(g.dlse.begin(), g.dlse.end());
      return reference_backward(request_, legality_, shape_, wide.inputs, dout,
                                dlse, stop);
    });
    if (!ran) return ran.error();
    narrow(ran->dq, g.dq);
    narrow(ran->dk, g.dk);
    narrow(ran->dv, g.dv);
    narrow(ran->dsink_logits, g.dsink_logits);
    return out;
  }

  Result<lanes::SinkRows> sink_rows(const ForwardTensors& t, int64_t first_keys,
                                    const StopFlag* stop) override {
    auto rows = reference::sink_rows(batch_, shape_, t, first_keys, stop);
    if (!rows) return rows.error();
    lanes::SinkRows to;
    for (const SinkRow& row : *rows) {
      to.live.push_back(row.live ? 1 : 0);
      to.mass.push_back(static_cast<float>(row.mass.value));
      to.entropy.push_back(static_cast<float>(row.entropy.value));
    }
    return to;
  }

 private:
  Work(const Batch& batch, std::unique_ptr<const OwnedFacts> owned,
       Legality legality, const AttentionShape& shape)
      : batch_(batch),
        request_(batch.request()),
        owned_(std::move(owned)),
        legality_(std::move(legality)),
        shape_(shape) {
    facts_.isa = to_string(Isa::portable);
    facts_.threads = 1;
  }

  Batch batch_;
  Request request_;
  std::unique_ptr<const OwnedFacts> owned_;  // legality_ points into it
  Legality legality_;
  AttentionShape shape_;
  lanes::WorkFacts facts_;
};

class ReferenceLane : public lanes::OpenLane {
 public:
  Result<std::unique_ptr<lanes::LaneWork>> prepare(
      const Batch& batch, const AttentionCall& call,
      std::unique_ptr<lanes::LaneWork>) override {
    return Work::make(batch, call.shape);
  }

  double bytes(const Request& request,
               const AttentionCall& call) const override {
    return lanes::lane_bytes(LaneId::reference, request, call);
  }
};

}  // namespace

Result<std::unique_ptr<lanes::OpenLane>> open_reference_lane(
    const lanes::LaneOptions&) {
  return std::unique_ptr<lanes::OpenLane>(std::make_unique<ReferenceLane>());
}

}  // namespace tessera::reference
