// fit/parts.h: the arrays of a lane's programs, by name.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lanes/mosaic/kernel.h"
#include "lanes/xla/shape.h"
#include "tessera/fit.h"

namespace tessera::fit {

// An error if the array is so large that its bytes could overflow.
Result<void> check_size(std::string_view name, Dtype dtype,
                        std::span<const int64_t> dims);
// One array of a program, in the layout that the compiler gives it.
Result<MemoryPart> part_of(std::string name, MemoryKind kind, Dtype dtype,
                           std::span<const int64_t> dims);

// The kind of the array of this name: "q", "lse", "steps".
MemoryKind kind_of(std::string_view name);
// Whether the forward pass leaves this array for the backward pass.
bool is_residual(std::string_view name);

Result<xla::Shape> xla_shape(const FitCall& asked, bool backward);
Result<PassMemory> xla_pass(const FitCall& asked, const Chip& chip,
                            bool backward);
// `one` is the call of one program. Only a backward one has chunks of queries.
Result<mosaic::PlannedKernel> planned_kernel(const FitCall& asked,
                                             const AttentionCall& one);
Result<PassMemory> mosaic_pass(const FitCall& asked, const Chip& chip,
                               const AttentionCall& one);

// An error for a lane without a budget, or for dlse without backward.
Result<void> check_lane(LaneId lane, const AttentionCall& call);

// The scratch of a program of this shape, counters last.
Result<std::vector<MemoryPart>> xla_scratch(const xla::Shape& shape,
                                            const Chip& chip);

// The error of a budget that does not fit, with the changes that would.
Error too_large(const Budget& budget, const std::vector<Remedy>& remedies);

// The table of pointers to the results, which the compiler counts as output.
MemoryPart table_of(const Chip& chip, size_t outputs);

}  // namespace tessera::fit
