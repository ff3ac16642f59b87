// cli/compile/asked_kernel.cc: makes a kernel from flags, without reading
// facts.
#include "cli/compile/asked_kernel.h"

#include <fmt/format.h>

#include <utility>

#include "base/fail.h"
#include "cli/lowering.h"
#include "lanes/mosaic/settings.h"
#include "request/numbers.h"

namespace tessera::cli {
namespace {

// Refuses flags of features that the kernels lack.
Result<void> refuse_unsupported(const RunFlags& f) {
  if (f.layout && *f.layout != "bhsd") {
    return invalid("mosaic", "--layout must be bhsd, found {}", *f.layout);
  }
  return {};
}

}  // namespace

Result<AskedSetting> asked_setting(
    const request::Asked& asked, const AttentionCall& call, bool open_passes,
    const std::optional<std::string>& keys_per_query, int64_t batch_keys) {
  if (keys_per_query) {
    auto keys =
        request::parse_int(*keys_per_query, "--keys-per-query", 1, kMaxTokens);
    if (!keys) return keys.error();
    if (!asked.open_tile || !open_passes) {
      return invalid("cli",
                     "--keys-per-query picks tile and tiles a pass, found {} "
                     "beside it",
                     asked.open_tile ? "--tiles-per-pass" : "a tile");
    }
    batch_keys = *keys;
  }
  constexpr const char* kRequest = "the request";
  if (asked.open_tile && !open_passes) {
    MosaicSetting usual;
    if (call.backward) usual = {kMosaicBackwardTile, kMosaicBackward, 0};
    return AskedSetting{std::move(usual), "the default", kRequest};
  }
  mosaic::ChosenSetting found =
      asked.open_tile ? mosaic::choose_setting(asked.request, call, batch_keys)
                      : mosaic::choose_passes(asked.request, call, batch_keys);
  return AskedSetting{found.setting,
                      asked.open_tile ? found.chosen_by : kRequest,
                      open_passes ? found.chosen_by : kRequest};
}

void take_what_fits(const request::Asked& asked, const AttentionCall& call,
                    const std::string& target, const mosaic::OpenSetting& open,
                    AskedSetting& found) {
  const std::string words = mosaic::borrowed_words(found.setting, call, target);
  if (open.tile) found.tile_by += words;
  if (open.passes) found.passes_by += words;
  const mosaic::ChosenSetting fit = mosaic::fit_setting(
      {found.setting, ""}, open, asked.request, asked.present, call, target);
  if (fit.setting.tile != found.setting.tile) found.tile_by += fit.chosen_by;
  if (open.passes) found.passes_by += fit.chosen_by;
  found.setting = fit.setting;
}

std::string who_chose(const std::string& tile_by,
                      const std::string& passes_by) {
  if (tile_by == passes_by) return tile_by;
  return fmt::format("{}; tiles a pass: {}", tile_by, passes_by);
}

Result<AskedCall> read_asked_call(const KernelFlags& f,
                                  const std::string& target,
                                  int64_t batch_keys) {
  if (auto e = refuse_unsupported(f.run); !e) return e.error();
  if (auto e = check_reason_flag(f.run.lowering_reason); !e) return e.error();
  const bool backward = f.run.backward;
  auto asked = load_asked(f.run.request);
  if (!asked) return asked.error();
  RunOptions sizes;
  RunFlags run = f.run;
  if (!run.dtype) run.dtype = "bf16";
  if (auto e = read_shape(run, sizes); !e) return e.error();
  AttentionCall call{sizes.data.shape, sizes.data.dtype};
  call.sink_logits = f.run.sink_logits;
  call.backward = backward;
  call.dlse = f.dlse;
  call.sink_telemetry = f.sink_telemetry;
  auto found = asked_setting(*asked, call, !f.tiles_per_pass, f.keys_per_query,
                             batch_keys);
  if (!found) return found.error();
  MosaicOptions& options = found->setting.options;
  auto row_sum = read_row_sum(f.run.row_sum);
  if (!row_sum) return row_sum.error();
  options.row_sum = *row_sum;
  auto numbers = read_numbers(f.run.numbers);
  if (!numbers) return numbers.error();
  options.numbers = *numbers;
  options.lowering_reason = f.run.lowering_reason;
  if (auto e = read_kernel_sizes(f, options); !e) return e.error();
  take_what_fits(*asked, call, target,
                 {asked->open_tile, !f.tiles_per_pass, !f.fetch_ahead}, *found);
  asked->request.tile = found->setting.tile;
  return AskedCall{std::move(asked->request),
                   asked->present,
                   call,
                   options,
                   std::move(found->tile_by),
                   std::move(found->passes_by),
                   asked->open_tile && !f.tiles_per_pass};
}

FitCall asked_fit(AskedCall asked, const std::string& target) {
  FitCall out;
  out.request = std::move(asked.request);
  out.present = asked.present;
  out.call = asked.call;
  out.lane = LaneId::mosaic;
  out.mosaic = asked.options;
  out.chip = target;
  return out;
}

Result<AskedKernel> make_asked_kernel(AskedCall asked,
                                      const std::string& target) {
  auto kernel = make_mosaic_kernel(asked.request, asked.present, asked.call,
                                   target, asked.options);
  if (!kernel) return kernel.error();
  return AskedKernel{std::move(asked.request),   asked.call.shape,
                     std::move(*kernel),         std::move(asked.tile_by),
                     std::move(asked.passes_by), asked.open};
}

Result<AskedKernel> make_asked_kernel(const KernelFlags& f,
                                      const std::string& target,
                                      int64_t batch_keys) {
  auto asked = read_asked_call(f, target, batch_keys);
  if (!asked) return asked.error();
  return make_asked_kernel(std::move(*asked), target);
}

}  // namespace tessera::cli
