// cli/compile/asked_kernel.h: makes a TPU kernel from flags.
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

// Text that says what chose the tile and the tiles per pass.
std::string who_chose(const std::string& tile_by, const std::string& passes_by);

// The inputs of a kernel, read from flags. Facts that the mask names, or a flag
// gives, count as present; they are not read. A tile or tiles per pass without
// a flag are looked up in the table and reduced to what fits the target's
// vector memory. `batch_keys` is the mean number of keys per query of a known
// batch, used if --keys-per-query is not given; 0: unknown.
struct AskedCall {
  Request request;
  Facts present;
  AttentionCall call;
  MosaicOptions options;
  std::string tile_by, passes_by;  // what chose tile and tiles per pass
  bool open = false;               // no flag gives either of them
};
Result<AskedCall> read_asked_call(const KernelFlags& flags,
                                  const std::string& target,
                                  int64_t batch_keys = 0);

// The call for the budget of the kernel's memory on a chip.
FitCall asked_fit(AskedCall asked, const std::string& target);

struct AskedKernel {
  Request request;
  AttentionShape shape;
  MosaicKernel kernel;
  std::string tile_by, passes_by;  // as in AskedCall
  bool open = false;               // as in AskedCall
  // If the batch is known, over all heads of a forward pass: legal pairs, and
  // pairs of its tiles.
  int64_t legal_pairs = 0;
  std::optional<PaidWork> work = {};

  std::string chosen_by() const { return who_chose(tile_by, passes_by); }
};
// `target` is a topology, "v6e:1x1".
Result<AskedKernel> make_asked_kernel(AskedCall asked,
                                      const std::string& target);
Result<AskedKernel> make_asked_kernel(const KernelFlags& flags,
                                      const std::string& target,
                                      int64_t batch_keys = 0);

// The tile and tiles per pass that were looked up, and what chose them.
struct AskedSetting {
  MosaicSetting setting;
  std::string tile_by, passes_by;
};
Result<AskedSetting> asked_setting(
    const request::Asked& asked, const AttentionCall& call, bool open_passes,
    const std::optional<std::string>& keys_per_query, int64_t batch_keys = 0);
// Reduces the values in `found` that no flag gave to what fits the target's
// vector memory. Extends `tile_by` and `passes_by` if the row of the table was
// made for kernels with other options.
void take_what_fits(const request::Asked& asked, const AttentionCall& call,
                    const std::string& target, const mosaic::OpenSetting& open,
                    AskedSetting& found);

}  // namespace tessera::cli
