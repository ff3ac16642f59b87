// cli/export/kernel_layouts.h: the arrays that kernels take: of FlexAttention,
// Splash, tokamax, Tessera's TPU kernel, and index-sparse attention (top-k).
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
// The target whose memory determines how lists are cut: --target, else v6e.
std::string mosaic_target(const ExportFlags& flags);
// The call that the flags describe, and the options of its kernel.
Result<AttentionCall> mosaic_call(const ExportFlags& flags);
Result<void> read_mosaic_options(const ExportFlags& flags,
                                 MosaicOptions& options);
Result<void> add_mosaic(const Batch& batch, const ExportFlags& flags,
                        NamedArrays& out);
Result<void> add_topk(const Batch& batch, const ExportFlags& flags,
                      NamedArrays& out);

}  // namespace tessera::cli
