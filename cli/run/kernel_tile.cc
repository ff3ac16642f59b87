// cli/run/kernel_tile.cc: looks a request's tile up by the batch it is of.
#include "cli/run/kernel_tile.h"

#include <utility>

#include "lanes/mosaic/settings.h"
#include "tessera/machine.h"
#include "tessera/mosaic.h"

namespace tessera::cli {

std::string target_here(const Session& session) {
  const auto place = session.place();
  const auto chip = place ? chip_of_device(place->device) : std::nullopt;
  return chip ? std::string(chip->target) : std::string();
}

Result<TileBy> take_kernel_tile(const AttentionCall& call,
                                const std::string& target,
                                const XlaOptions& options,
                                request::Loaded& loaded) {
  request::Resolved& of = loaded.resolved;
  if (loaded.saved || loaded.source || of.given.tile) return TileBy();
  // What a mask does not say by itself, its facts do.
  int64_t keys = 0;
  if (mosaic_setting(of.request, call).keys == 0) {
    auto batch = OwnedBatch::copy(of.request, of.facts.view());
    if (!batch) return batch.error();
    keys = keys_per_query(*batch);
  }
  // The table's tiles need no reason.
  const mosaic::KernelTerms terms = {{}, options.numbers, options.row_sum};
  mosaic::ChosenSetting chosen = mosaic::choose_setting(of.request, call, keys);
  mosaic::take_terms(terms, call, chosen.setting.options);
  chosen.chosen_by += mosaic::borrowed_words(chosen.setting, call, target);
  mosaic::ChosenSetting found =
      mosaic::fit_setting(std::move(chosen), {.tile = true}, of.request,
                          of.facts.view(), call, target);
  of.request.tile = found.setting.tile;
  if (!call.backward) return std::move(found.chosen_by);
  // The forward kernel has the same tile.
  AttentionCall forward = call;
  forward.backward = false;
  MosaicSetting passes = mosaic::choose_passes(of.request, forward).setting;
  mosaic::take_terms(terms, forward, passes.options);
  const mosaic::ChosenSetting both =
      mosaic::fit_setting({std::move(passes), ""}, {.tile = true}, of.request,
                          of.facts.view(), forward, target);
  if (both.setting.tile == of.request.tile) return std::move(found.chosen_by);
  of.request.tile = both.setting.tile;
  return found.chosen_by + both.chosen_by;
}

}  // namespace tessera::cli
