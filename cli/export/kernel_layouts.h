// cli/export/kernel_layouts.h: the arrays that kernels take: FlexAttention's,
// Splash's, tokamax's, our TPU kernel's, and those of selections.
#pragma once

#include <string>

#include "cli/export/layouts.h"
#include "tessera/mosaic.h"

namespace tessera::cli {

Result<void> add_flex(const Batch& batch, const ExportFlags& flags,
                      NamedArrays& out);
Result<void> add_splash(const Batch& batch, const ExportFlags& flags,
                        NamedArrays& out);
Result<void> add_tokamax(const Batch& batch, const ExportFlags& flags,
                         NamedArrays& out);
// Whose memory lists are cut for: --target, else v6e.
std::string mosaic_target(const ExportFlags& flags);
// The call that the flags tell of, and what they say of its kernel.
Result<AttentionCall> mosaic_call(const ExportFlags& flags);
Result<void> read_mosaic_options(const ExportFlags& flags,
                                 MosaicOptions& options);
Result<void> add_mosaic(const Batch& batch, const ExportFlags& flags,
                        NamedArrays& out);
Result<void> add_topk(const Batch& batch, const ExportFlags& flags,
                      NamedArrays& out);

}  // namespace tessera::cli
