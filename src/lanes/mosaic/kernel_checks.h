// lanes/mosaic/kernel_checks.h: what a kernel is held to, by what is asked and
// then by its shape.
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

// A call, options, tile and target that kernels have: the memory of its cores,
// and the tile in its matrix unit.
struct AskedTarget {
  Target memory;
  Lowering lowering;
};
Result<AskedTarget> check_asked(const AttentionCall& call,
                                const MosaicOptions& options,
                                const Request& request,
                                const std::string& target);
// Rows and columns that packed steps can count.
Result<void> check_rows(const KernelShape& shape);
// What its scalar arrays, or a page and the others, take of scalar memory.
int64_t scalar_words_of(const KernelShape& shape, bool backward,
                        const Target& memory);
// What it counts, and its scalar arrays.
Result<void> check_sizes(const KernelShape& shape, bool backward,
                         const Target& memory);
Result<void> check_vector_memory(int64_t bytes, const KernelShape& shape,
                                 bool backward);

}  // namespace tessera::mosaic
