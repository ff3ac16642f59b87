// lanes/mosaic/program.h: the custom call that holds a kernel's text, and a
// whole StableHLO program around it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lanes/mosaic/writer.h"

namespace tessera::mosaic {

// The custom call that a kernel is to any program around it.
inline constexpr std::string_view kCallTarget = "tpu_custom_call";

// The arrays that it takes and gives; the rest of a kernel's arguments is its
// scratch.
struct CallArrays {
  std::vector<Argument> inputs, results;
};
// Of arguments whose last `outputs` arrays are results.
CallArrays call_arrays(const std::vector<Argument>& arguments, int outputs);
// An array [..., tokens, dim], however the kernel takes it.
Argument with_dim_last(Argument a);
// A result that shares its memory with an array that comes in: the name of
// this.
inline constexpr std::string_view kBefore = "_before";
inline std::string before(std::string_view result) {
  return std::string(result).append(kBefore);
}
// A result in which a kernel keeps sums that it goes on with, and which nobody
// else reads.
inline bool is_kept(std::string_view result) {
  return result.ends_with("so_far");
}
// Of these, what goes from one chunk of queries to the next within a call; the
// others go from one call to the next.
inline bool is_of_chunks(std::string_view result) {
  return result == "dk_so_far" || result == "dv_so_far";
}
// What the call hands to the compiler, as JSON: the kernel, where its arrays
// lie, and the vector memory that it may use; the compiler's default is a
// fraction of what a core has.
std::string backend_config(const CallArrays& arrays, std::string_view kernel,
                           int64_t vector_bytes);
// What it says of itself: that, and the layouts of its arrays.
std::string call_attributes(std::string_view name, const CallArrays& arrays,
                            std::string_view kernel, int64_t vector_bytes);

// `kernel` is the text of a function of these arguments, whose last `outputs`
// arrays are the program's results, but for those that it keeps. The program
// has tensors with the dim last. The text
// stands in the program twice: encoded, as the compiler wants it, and readable,
// as comments at the end.
std::string program(std::string_view name,
                    const std::vector<Argument>& arguments, int outputs,
                    std::string_view kernel, int64_t vector_bytes);

}  // namespace tessera::mosaic
