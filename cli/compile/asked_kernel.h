// cli/compile/asked_kernel.h: a TPU kernel as flags ask for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/compile/kernel_flags.h"
#include "lanes/mosaic/settings.h"
#include "request/load.h"
#include "tessera/fit.h"
#include "tessera/mosaic.h"

namespace tessera::cli {

// Of a tile and of tiles a pass, either or both, in words.
std::string who_chose(const std::string& tile_by, const std::string& passes_by);

// What a kernel is made from, once all flags are read. Facts that the mask
// names, or a flag gives, count as present; they are not read. Tile and tiles a
// pass that are open are looked up, as far as the target's vector memory holds
// them; `batch_keys`, the mean keys a query of a batch that is known, goes with
// that where no flag says it.
struct AskedCall {
  Request request;
  Facts present;
  AttentionCall call;
  MosaicOptions options;
  std::string tile_by, passes_by;  // who chose tile and tiles a pass
  bool open = false;               // not the request
};
Result<AskedCall> read_asked_call(const KernelFlags& flags,
                                  const std::string& target,
                                  int64_t batch_keys = 0);

// Its memory on a chip.
FitCall asked_fit(AskedCall asked, const std::string& target);

struct AskedKernel {
  Request request;
  AttentionShape shape;
  MosaicKernel kernel;
  std::string tile_by, passes_by;  // who chose tile and tiles a pass
  bool open = false;               // not the request
  // Of a batch that is known, all heads of a forward pass: legal pairs, and
  // those of its tiles.
  int64_t legal_pairs = 0;
  std::optional<PaidWork> work = {};

  std::string chosen_by() const { return who_chose(tile_by, passes_by); }
};
// `target` as v6e:1x1.
Result<AskedKernel> make_asked_kernel(AskedCall asked,
                                      const std::string& target);
Result<AskedKernel> make_asked_kernel(const KernelFlags& flags,
                                      const std::string& target,
                                      int64_t batch_keys = 0);

// What is looked up of a tile and tiles a pass that are open, and who chose.
struct AskedSetting {
  MosaicSetting setting;
  std::string tile_by, passes_by;
};
Result<AskedSetting> asked_setting(
    const request::Asked& asked, const AttentionCall& call, bool open_passes,
    const std::optional<std::string>& keys_per_query, int64_t batch_keys = 0);
// What is open, as far as the target's vector memory holds it. Adds to who
// chose it, where the table's row is of other kernels than one of these
// options.
void take_what_fits(const request::Asked& asked, const AttentionCall& call,
                    const std::string& target, const mosaic::OpenSetting& open,
                    AskedSetting& found);

}  // namespace tessera::cli
