// cli/export/kernel_layouts.h: the arrays that kernels take: FlexAttention's,
// Splash's, our TPU kernel's, and those of selections.
#pragma once

#include "cli/export/layouts.h"

namespace tessera::cli {

Result<void> add_flex(const Batch& batch, const ExportFlags& flags,
                      NamedArrays& out);
Result<void> add_splash(const Batch& batch, const ExportFlags& flags,
                        NamedArrays& out);
// Whose vector memory lists are cut for.
inline constexpr const char* kLayoutTarget = "v6e";
// The call that the flags tell of; its heads pick a row of the table alone.
Result<AttentionCall> mosaic_call(const ExportFlags& flags);
Result<void> add_mosaic(const Batch& batch, const ExportFlags& flags,
                        NamedArrays& out);
Result<void> add_topk(const Batch& batch, const ExportFlags& flags,
                      NamedArrays& out);

}  // namespace tessera::cli
