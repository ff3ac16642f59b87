// lanes/mosaic/program.h: the custom call that holds a kernel's text, and a
// whole StableHLO program around it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lanes/mosaic/writer.h"

namespace tessera::mosaic {

// The custom call as which a program holds a kernel.
inline constexpr std::string_view kCallTarget = "tpu_custom_call";

// The arrays that the call takes and gives; other arguments are scratch.
struct CallArrays {
  std::vector<Argument> inputs, results;
};
// Splits arguments whose last `outputs` arrays are results.
CallArrays call_arrays(const std::vector<Argument>& arguments, int outputs);
// The array as [..., tokens, dim], in whichever order the kernel takes it.
Argument with_dim_last(Argument a);
// A result may share the memory of an input array, whose name is the result's
// with this suffix.
inline constexpr std::string_view kBefore = "_before";
inline std::string before(std::string_view result) {
  return std::string(result).append(kBefore);
}
// Whether a result only keeps sums that a later call or chunk continues. The
// program does not return it.
inline bool is_kept(std::string_view result) {
  return result.ends_with("so_far");
}
// Whether such sums go from one chunk of queries to the next within a call; the
// others go from one call to the next.
inline bool is_of_chunks(std::string_view result) {
  return result == "dk_so_far" || result == "dv_so_far";
}
// What the call hands to the compiler, as JSON: the kernel, where its arrays
// lie, and the vector memory that it may use; the compiler's default is a
// fraction of what a core has.
std::string backend_config(const CallArrays& arrays, std::string_view kernel,
                           int64_t vector_bytes);
// Attributes of the call: backend_config and the layouts of its arrays.
std::string call_attributes(std::string_view name, const CallArrays& arrays,
                            std::string_view kernel, int64_t vector_bytes);

// `kernel` is the text of a function of `arguments`. The last `outputs` arrays
// are results, and the program returns those that are not is_kept(). The
// program has tensors with the dim last. It holds the kernel's text twice:
// encoded, as the compiler wants it, and readable, as comments at the end.
std::string program(std::string_view name,
                    const std::vector<Argument>& arguments, int outputs,
                    std::string_view kernel, int64_t vector_bytes);

}  // namespace tessera::mosaic
