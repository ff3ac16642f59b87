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

// That its bytes, whatever the layout, can be counted.
Result<void> check_size(std::string_view name, Dtype dtype,
                        std::span<const int64_t> dims);
// One array of a program, in the layout that the compiler gives it.
Result<MemoryPart> part_of(std::string name, MemoryKind kind, Dtype dtype,
                           std::span<const int64_t> dims);

// What an argument of this name is: "q", "lse", "steps".
MemoryKind kind_of(std::string_view name);
// Whether the forward pass leaves it for the backward pass.
bool is_residual(std::string_view name);

Result<xla::Shape> xla_shape(const FitCall& asked, bool backward);
Result<PassMemory> xla_pass(const FitCall& asked, const Chip& chip,
                            bool backward);
// Of one of the call's programs: chunks of queries are the backward one's.
Result<mosaic::PlannedKernel> planned_kernel(const FitCall& asked,
                                             const AttentionCall& one);
Result<PassMemory> mosaic_pass(const FitCall& asked, const Chip& chip,
                               const AttentionCall& one);

// A lane that has a budget, and directions that go together.
Result<void> check_lane(LaneId lane, const AttentionCall& call);

// What a program of the shape makes for itself, counters last.
Result<std::vector<MemoryPart>> xla_scratch(const xla::Shape& shape,
                                            const Chip& chip);

// The error of a budget that does not fit, with what would.
Error too_large(const Budget& budget, const std::vector<Remedy>& remedies);

// The table of a result's arrays, which the compiler counts among outputs.
MemoryPart table_of(const Chip& chip, size_t outputs);

}  // namespace tessera::fit
