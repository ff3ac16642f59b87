// lanes/mosaic/kernel_checks.h: checks of a kernel's request and of its shape.
#pragma once

#include <cstdint>
#include <string>

#include "lanes/mosaic/shape.h"
#include "tessera/attention.h"
#include "tessera/layouts.h"
#include "tessera/mosaic.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera::mosaic {

// Result of check_asked() for a call that kernels support: the memory of the
// target's cores, and how the tile lowers to its matrix unit.
struct AskedTarget {
  Target memory;
  Lowering lowering;
};
Result<AskedTarget> check_asked(const AttentionCall& call,
                                const MosaicOptions& options,
                                const Request& request,
                                const std::string& target);
// Rows and columns of tiles must fit the fields of a packed step.
Result<void> check_rows(const KernelShape& shape);
// Words of scalar memory that the kernel's scalar arrays take; with pages, one
// page of steps and the other arrays.
int64_t scalar_words_of(const KernelShape& shape, bool backward,
                        const Target& memory);
// The kernel's 32-bit counts, and the size of its scalar arrays.
Result<void> check_sizes(const KernelShape& shape, bool backward,
                         const Target& memory);
Result<void> check_vector_memory(int64_t bytes, const KernelShape& shape,
                                 bool backward);

}  // namespace tessera::mosaic
