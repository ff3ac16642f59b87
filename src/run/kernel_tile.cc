// run/kernel_tile.cc: looks up the tile of a request, by its facts if needed.
#include "run/kernel_tile.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "lanes/mosaic/settings.h"
#include "run/session_state.h"
#include "tessera/machine.h"
#include "tessera/mosaic.h"

namespace tessera::run {
namespace {

// Whether the mean number of keys a query sees depends on the facts too.
bool is_for_facts_to_say(const Request& request, const AttentionCall& call) {
  return mosaic_setting(request, call).keys == 0;
}

// `keys`: mean number of keys a query sees; 0: as the mask alone says.
KernelTile look_up(Request at, const Facts& present, const AttentionCall& call,
                   int64_t keys, const std::string& target,
                   const XlaOptions& options) {
  // The kernel of sink telemetry has the forward kernel's tile.
  AttentionCall pass = call;
  pass.sink_telemetry = false;
  // No lowering reason: no tile of the table is below the granule.
  const mosaic::KernelTerms terms = {{}, options.numbers, options.row_sum};
  mosaic::ChosenSetting chosen = mosaic::choose_setting(at, pass, keys);
  mosaic::take_terms(terms, pass, chosen.setting.options);
  chosen.chosen_by += mosaic::borrowed_words(chosen.setting, pass, target);
  mosaic::ChosenSetting found =
      mosaic::fit_setting(chosen, {.tile = true}, at, present, pass, target);
  at.tile = found.setting.tile;
  if (!call.backward) return {at.tile, std::move(found.chosen_by)};
  // Both directions have one tile, so it must fit the forward kernel too.
  pass.backward = pass.dlse = false;
  MosaicSetting passes = mosaic::choose_passes(at, pass).setting;
  mosaic::take_terms(terms, pass, passes.options);
  const mosaic::ChosenSetting both = mosaic::fit_setting(
      {std::move(passes), ""}, {.tile = true}, at, present, pass, target);
  if (both.setting.tile != at.tile) found.chosen_by += both.chosen_by;
  return {both.setting.tile, std::move(found.chosen_by)};
}

}  // namespace

std::string target_here(const Session& session) {
  const auto place = session.place();
  const auto chip = place ? chip_of_device(place->device) : std::nullopt;
  return chip ? std::string(chip->target) : std::string();
}

std::string target_of(const Machine& machine, const std::string& plugin) {
  const auto on =
      std::ranges::find(machine.plugins, plugin, &MachinePlugin::name);
  if (on == machine.plugins.end() || on->generation.empty()) return {};
  const auto chip = find_chip(on->generation);
  return chip ? std::string(chip->target) : std::string();
}

bool is_tile_open(const request::Loaded& loaded) {
  return !loaded.saved && !loaded.source && !loaded.resolved.given.tile;
}

Result<TileBy> take_kernel_tile(const AttentionCall& call,
                                const std::string& target,
                                const XlaOptions& options,
                                request::Loaded& loaded) {
  if (!is_tile_open(loaded)) return TileBy();
  request::Resolved& of = loaded.resolved;
  int64_t keys = 0;
  if (is_for_facts_to_say(of.request, call)) {
    auto batch = OwnedBatch::copy(of.request, of.facts.view());
    if (!batch) return batch.error();
    keys = keys_per_query(*batch);
  }
  KernelTile found =
      look_up(of.request, of.facts.view(), call, keys, target, options);
  of.request.tile = found.tile;
  return std::move(found.by);
}

KernelTile kernel_tile(const Batch& batch, const AttentionCall& call,
                       const std::string& target, const XlaOptions& options) {
  const bool by_facts = is_for_facts_to_say(batch.request(), call);
  return look_up(batch.request(), batch.facts(), call,
                 by_facts ? keys_per_query(batch) : 0, target, options);
}

LaneChooser chooser_of(const Session& session, const AttentionCall& call) {
  return {[&session, call](const Batch& batch) {
            return session.choose(batch, call);
          },
          [&session](const Choice& choice) {
            Session::State& state = session.state();
            const std::lock_guard lock(state.mutex);
            return state.machine ? target_of(*state.machine, choice.plugin)
                                 : std::string();
          },
          session.state().options.xla};
}

Result<TiledChoice> choose_and_tile(const LaneChooser& chooser,
                                    const AttentionCall& call, bool open_tile,
                                    OwnedBatch& batch) {
  auto choice = chooser.choose(batch);
  if (!choice) return choice.error();
  TiledChoice first = {std::move(*choice), ""};
  if (!open_tile || first.choice.lane != LaneId::mosaic) return first;
  KernelTile found =
      kernel_tile(batch, call, chooser.target(first.choice), chooser.options);
  Request at_tile = batch.request();
  if (found.tile == at_tile.tile) {
    first.tile_by = std::move(found.by);
    return first;
  }
  at_tile.tile = found.tile;
  auto planned = OwnedBatch::copy(std::move(at_tile), batch.facts());
  if (!planned) return planned.error();
  auto again = chooser.choose(*planned);
  if (!again || again->lane != LaneId::mosaic) return first;
  batch = std::move(*planned);
  return TiledChoice{std::move(*again), std::move(found.by)};
}

}  // namespace tessera::run
