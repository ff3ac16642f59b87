// fit/budget.cc: the parts of both passes, and their sums.
#include <algorithm>
#include <numeric>

#include "base/fail.h"
#include "fit/parts.h"
#include "lanes/lane.h"
#include "lanes/mosaic/kernel.h"
#include "tessera/batch.h"

namespace tessera {
namespace {

int64_t sum(const std::vector<MemoryPart>& parts) {
  return std::accumulate(
      parts.begin(), parts.end(), int64_t{0},
      [](int64_t n, const MemoryPart& p) { return n + p.bytes; });
}

Result<PassMemory> pass_of(const FitCall& asked, const Chip& chip,
                           bool backward) {
  if (asked.lane == LaneId::xla) return fit::xla_pass(asked, chip, backward);
  return fit::mosaic_pass(asked, chip,
                          lanes::one_direction(asked.call, backward));
}

}  // namespace

Result<void> fit::check_lane(LaneId lane, const AttentionCall& call) {
  if (lane != LaneId::xla && lane != LaneId::mosaic) {
    return invalid("fit", "a budget is of lane xla or mosaic, found {}",
                   to_string(lane));
  }
  if (call.dlse && !call.backward) {
    return invalid("fit",
                   "the log-sum-exp's gradient goes with backward, found it "
                   "with forward");
  }
  return {};
}

std::string_view to_string(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::input:
      return "input";
    case MemoryKind::output:
      return "output";
    case MemoryKind::lse:
      return "lse";
    case MemoryKind::gradient:
      return "gradient";
    case MemoryKind::metadata:
      return "metadata";
    case MemoryKind::scratch:
      break;
  }
  return "scratch";
}

int64_t PassMemory::argument_bytes() const { return sum(arguments); }
int64_t PassMemory::output_bytes() const { return sum(outputs); }
int64_t PassMemory::scratch_bytes() const { return sum(scratch); }
int64_t PassMemory::core_bytes() const {
  int64_t out = 0;
  for (const MemoryPart& p : scratch) out += p.core ? p.bytes : 0;
  return out;
}
int64_t PassMemory::least() const {
  int64_t out = 0;
  for (const auto* parts : {&arguments, &outputs, &scratch}) {
    for (const MemoryPart& p : *parts) out += p.least;
  }
  return out;
}
int64_t PassMemory::total() const {
  return argument_bytes() + output_bytes() + scratch_bytes();
}

const PassMemory& Budget::largest() const {
  const PassMemory* out = &forward;
  for (const auto* other : {&backward, &sinks}) {
    if (*other && (*other)->total() > out->total()) out = &**other;
  }
  return *out;
}

int64_t Budget::residuals() const {
  if (!backward) return 0;
  int64_t out = 0;
  for (const MemoryPart& p : backward->arguments) {
    out += p.residual ? p.bytes : 0;
  }
  return out;
}

int64_t Budget::recompute_saves() const {
  int64_t out = residuals();
  if (out == 0) return 0;
  for (const MemoryPart& p : backward->arguments) {
    if (p.name == "sink_logits") out -= p.bytes;
  }
  return out;
}

int64_t Budget::needed() const { return largest().total() + kProgramRoom; }

bool Budget::beyond_room() const {
  return std::max({forward.least(), backward ? backward->least() : 0,
                   sinks ? sinks->least() : 0}) > chip.room;
}

Result<Budget> make_budget(const FitCall& asked) {
  Budget out;
  auto chip = find_chip(asked.chip);
  if (!chip) return chip.error();
  out.chip = *chip;
  if (auto e = fit::check_lane(asked.lane, asked.call); !e) return e.error();
  auto forward = pass_of(asked, *chip, false);
  if (!forward) return forward.error();
  out.forward = std::move(*forward);
  if (asked.call.sink_telemetry && asked.lane == LaneId::mosaic) {
    auto sinks =
        fit::mosaic_pass(asked, *chip, mosaic::telemetry_alone(asked.call));
    if (!sinks) return sinks.error();
    out.sinks = std::move(*sinks);
  }
  if (!asked.call.backward) return out;
  auto backward = pass_of(asked, *chip, true);
  if (!backward) return backward.error();
  out.backward = std::move(*backward);
  return out;
}

Result<FitCall> fit_call(const Batch& batch, const AttentionCall& call,
                         LaneId lane, std::string chip) {
  auto contract = make_contract(batch);
  if (!contract) return contract.error();
  FitCall out;
  out.request = batch.request();
  if (out.request.ceilings.max_steps == 0) {
    out.request.ceilings.max_steps = contract->steps;
  }
  out.present = batch.facts();
  out.call = call;
  out.lane = lane;
  out.open_passes = lane == LaneId::mosaic;
  out.mosaic.numbers = Numbers::any;
  out.chip = std::move(chip);
  return out;
}

Result<std::string> program_text(const FitCall& asked, bool backward) {
  if (auto e = fit::check_lane(asked.lane, asked.call); !e) return e.error();
  if (asked.lane == LaneId::mosaic) {
    auto planned =
        fit::planned_kernel(asked, lanes::one_direction(asked.call, backward));
    if (!planned) return planned.error();
    return mosaic::write_kernel(*planned).program_text;
  }
  auto shape = fit::xla_shape(asked, backward);
  if (!shape) return shape.error();
  return backward ? xla::backward_program(*shape)
                  : xla::forward_program(*shape);
}

Result<std::string> sinks_text(const FitCall& asked) {
  auto planned =
      fit::planned_kernel(asked, mosaic::telemetry_alone(asked.call));
  if (!planned) return planned.error();
  return mosaic::write_kernel(*planned).program_text;
}

}  // namespace tessera
