// model/compile_ahead.cc: compiles a step once, with a dump if its kernels or
// collectives are to be read.
#include "model/compile_ahead.h"

#include <algorithm>
#include <utility>

#include "base/digest.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/timed.h"
#include "lanes/mosaic/region_trips.h"
#include "model/mesh.h"
#include "model/step_plan.h"
#include "pjrt/compile_for.h"
#include "plan/topology_name.h"
#include "schedule/chip.h"
#include "schedule/compile_dump.h"
#include "schedule/program.h"

namespace tessera::model {
namespace {

Result<schedule::CompiledDump> compile_plain(
    const std::string& text, const schedule::DumpOptions& options) {
  auto made = pjrt::compile_for({options.plugin, {}}, options.target, text);
  if (!made) return made.error();
  return schedule::CompiledDump{
      {}, made->memory, made->topology.platform_version()};
}

std::vector<std::string> labels_of(const StepShape& s) {
  std::vector<std::string> out;
  for (const AttentionPlace& place : s.places) {
    if (!place.kernels) continue;
    for (const bool backward : {false, true}) {
      out.push_back(kernel_label(place, backward));
    }
  }
  return out;
}

// Predicts cycles from a dump of one target's kernels.
struct Predictor {
  const schedule::Dump& dump;
  const std::string& target;

  // The compiler merges equal calls into one kernel, and makes variants where
  // their arrays lie in other memories; the slowest variant counts.
  Result<std::optional<double>> cycles(const std::string& label,
                                       std::vector<schedule::TripRule> trips,
                                       int64_t heads) const {
    schedule::ScheduleOptions options;
    options.target = target;
    options.known = std::move(trips);
    options.heads = heads;
    std::optional<double> out;
    for (schedule::KernelText& text : schedule::kernels_of_label(dump, label)) {
      schedule::Dump alone;
      alone.kernels.push_back(std::move(text));
      auto report = schedule::make_schedule(std::move(alone), options);
      if (!report) return report.error();
      if (!report->cycles) return std::optional<double>();
      out = std::max(out.value_or(0), *report->cycles);
    }
    return out;
  }
};

// The cycles of a pass that is one call.
Result<std::optional<double>> predict(const Predictor& by,
                                      const AttentionPlace& place,
                                      bool backward, const Batch& batch) {
  const MosaicKernel& kernel = place.kernels->of(backward).kernel;
  auto trips = mosaic::region_trips(batch, kernel);
  if (!trips) return trips.error();
  return by.cycles(kernel_label(place, backward), std::move(*trips),
                   kernel.call.shape.heads);
}

// The cycles of a shard's calls, one after the other.
Result<std::optional<double>> predict_calls(const Predictor& by,
                                            const AttentionPlace& place,
                                            bool backward, const Batch& batch,
                                            const Shards& shards,
                                            size_t index) {
  const mosaic::ShardKernel& kernel = place.shard_kernels->of(backward);
  auto trips = mosaic::call_trips(batch, shards, index, kernel);
  if (!trips) return trips.error();
  double sum = 0;
  for (size_t c = 0; c < kernel.calls.size(); ++c) {
    const mosaic::ShardCall& call = kernel.calls[c];
    auto cycles =
        by.cycles(mosaic::call_label(kernel_label(place, backward), call.turn),
                  std::move((*trips)[c]), call.kernel.kernel.call.shape.heads);
    if (!cycles) return cycles.error();
    if (!*cycles) return std::optional<double>();
    sum += **cycles;
  }
  return std::optional(sum);
}

// The larger of the two; nothing unless both are known.
std::optional<double> slower(const std::optional<double>& a,
                             const std::optional<double>& b) {
  if (!a || !b) return {};
  return std::max(*a, *b);
}

// A place's cycles before any device is counted.
LayerCycles of_place(const PlannedStep& step, size_t place) {
  LayerCycles out;
  out.mask = to_string(step.requests[place].masks.front());
  out.forward_runs = step.shape.recompute ? 2 : 1;
  out.forward = out.backward = 0;
  return out;
}

// Raises `most`, an entry per place, to the cycles of a device's rows.
Result<void> predict_rows(const Predictor& by, const PlannedStep& step,
                          const Facts& facts, std::vector<LayerCycles>& most) {
  for (size_t i = 0; i < most.size(); ++i) {
    auto batch = BorrowedBatch::make(step.requests[i], facts);
    if (!batch) return batch.error();
    for (const bool backward : {false, true}) {
      auto cycles = predict(by, step.shape.places[i], backward, *batch);
      if (!cycles) return cycles.error();
      auto& of = backward ? most[i].backward : most[i].forward;
      of = slower(of, *cycles);
    }
  }
  return {};
}

// Raises `most` to the cycles of each shard of spread rows.
Result<void> predict_shards(const Predictor& by, const PlannedStep& step,
                            const Facts& facts,
                            std::vector<LayerCycles>& most) {
  std::vector<BorrowedBatch> batches;
  if (auto e = remake_batches(step.requests, facts, batches); !e) return e;
  auto all = spread_rows(*step.spread, batches);
  if (!all) return all.error();
  for (size_t i = 0; i < most.size(); ++i) {
    const Shards& shards = (*all)[i];
    for (size_t s = 0; s < shards.shards.size(); ++s) {
      // Shards that differ only in heads have the same queries.
      if (shards.shards[s].head != 0) continue;
      for (const bool backward : {false, true}) {
        auto cycles = predict_calls(by, step.shape.places[i], backward,
                                    batches[i], shards, s);
        if (!cycles) return cycles.error();
        auto& of = backward ? most[i].backward : most[i].forward;
        of = slower(of, *cycles);
      }
    }
  }
  return {};
}

Result<std::vector<LayerCycles>> predict_layers(const PlannedStep& step,
                                                const schedule::Dump& dump,
                                                const Rows& rows,
                                                const std::string& target) {
  const Predictor by = {dump, target};
  std::vector<LayerCycles> of_places;
  for (size_t i = 0; i < step.shape.places.size(); ++i) {
    of_places.push_back(of_place(step, i));
  }
  const Facts all = rows.facts();
  if (step.spread) {
    auto ok = predict_shards(by, step, all, of_places);
    if (!ok) return ok.error();
  }
  for (int64_t d = 0; d < step.shape.devices() && !step.spread; ++d) {
    // Devices that differ only in heads have the same queries.
    if (first_of_heads(step.shape.mesh, d) != d) continue;
    QueryFacts kept;
    const Facts facts = facts_of(all, portion_of(step.shape.mesh, d), kept);
    auto ok = predict_rows(by, step, facts, of_places);
    if (!ok) return ok.error();
  }
  std::vector<LayerCycles> out;
  for (int64_t layer = 0; layer < step.shape.model.layers; ++layer) {
    out.push_back(of_places[static_cast<size_t>(layer) % of_places.size()]);
  }
  return out;
}

}  // namespace

Result<std::optional<Lowering>> check_target(const TrainOptions& o,
                                             const std::string& target) {
  if (calls_cpu(o.spec)) {
    return invalid("train",
                   "a step of the spec {} calls kernels of the CPU, which a "
                   "TPU has not, found {} to compile for",
                   o.spec.name, in_quotes(target));
  }
  if (plan::chips_of(target) != o.mesh.devices()) {
    return invalid("train",
                   "a target must have a chip for each device of the step, as "
                   "v6e:2x2 has for four, found {} for {}",
                   in_quotes(target), o.mesh.devices());
  }
  // An unknown chip is passed on: the compiler reports it.
  const auto chip = tessera::find_chip(target);
  return lower_step(o, chip ? std::optional(*chip) : std::nullopt);
}

std::optional<double> LayerCycles::cycles() const {
  if (!forward || !backward) return {};
  return static_cast<double>(forward_runs) * *forward + *backward;
}

std::optional<double> AheadReport::attention_cycles() const {
  if (attention.empty()) return {};
  double out = 0;
  for (const LayerCycles& layer : attention) {
    const auto cycles = layer.cycles();
    if (!cycles) return {};
    out += *cycles;
  }
  return out;
}

Result<AheadReport> compile_ahead(const TrainOptions& options,
                                  const std::string& target, const Rows& rows) {
  auto lowering = check_target(options, target);
  if (!lowering) return lowering.error();
  auto step = plan_step(options, target);
  if (!step) return step.error();
  step->shape.drops_barriers = false;  // TPU compilers keep barriers
  step->shape.gives_state = true;
  auto text = step_program(step->shape);
  if (!text) return text.error();
  auto specs = program_specs(step->shape, *text);
  if (!specs) return specs.error();
  const bool spread = step->spread.has_value();
  const bool predicts = has_kernels(options.spec);
  schedule::DumpOptions dumps;
  dumps.target = target;
  dumps.plugin =
      options.xla.plugin.empty() ? std::string(kTpuPlugin) : options.xla.plugin;
  // No label: every kernel is dumped, since any may overlap a collective.
  if (!spread) dumps.labels = labels_of(step->shape);
  AheadReport out;
  auto made = timed(out.compile_ms, [&] {
    return predicts || spread ? schedule::compile_and_dump(*text, dumps)
                              : compile_plain(*text, dumps);
  });
  if (!made) return made.error();
  out.target = target;
  out.platform_version = std::move(made->platform_version);
  out.program = digest_of(*text);
  out.specs = std::move(*specs);
  out.lowering = std::move(*lowering);
  out.memory = made->memory;
  if (predicts) {
    auto clock = schedule::find_chip(target);
    if (!clock) return clock.error();
    out.gigahertz = clock->gigahertz;
    auto layers = predict_layers(*step, made->dump, rows, target);
    if (!layers) return layers.error();
    out.attention = std::move(*layers);
  }
  if (spread) {
    schedule::ScheduleOptions of;
    of.target = target;
    auto schedule = schedule::make_schedule(std::move(made->dump), of);
    if (!schedule) return schedule.error();
    out.collectives = std::move(schedule->collectives);
  }
  return out;
}

}  // namespace tessera::model
