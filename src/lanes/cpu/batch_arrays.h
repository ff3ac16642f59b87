// lanes/cpu/batch_arrays.h: a batch as arrays alone, as compilers hand them
// over when a program runs: JAX's, and those of PJRT plugins.
//
// The arrays are all that there is of the batch. They are never taken on trust:
// the lists must be those that the facts plan to, which is checked before any
// work. What was made ready for the same arrays before, compared by value,
// serves again, so that a batch is planned once and not once a layer.
//
// Of picks that the program itself makes, as a router does, nobody has lists:
// they are empty then, row starts too, and the call plans.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lanes/cpu/cpu.h"
#include "tessera/batch.h"
#include "tessera/result.h"

namespace tessera::cpu {

// What of a batch is static, as one text: a program is compiled for it. Of
// facts only which there are is read, and of picks their meaning.
//   tile 256 256; facts doc_ids q_offset; meaning exact 0;
//   mask causal & window(1024, 0) & documents; names documents; ...
// Window bounds are their classes there: the exact ones are an array.
std::string static_text(const Request& request, const Facts& facts);

// What such a text says: a request but for its sizes. Its window bounds are
// those that are given; with none, classes stand in their places.
struct StaticTerms {
  Request request;
  std::vector<std::string> facts;
  RouteMeaning meaning = RouteMeaning::exact;
  int64_t query_tile = 0;
};
Result<StaticTerms> read_static_text(
    std::string_view text, std::span<const int32_t> window_bounds = {});

// One direction of a batch: row starts, then entries and what fills the array
// up to its capacity.
struct ListArrays {
  std::span<const int32_t> row_start;
  std::span<const uint32_t> entries;
};

struct FactArray {
  std::span<const int32_t> values;
  std::vector<int64_t> shape;
};

struct BatchArrays {
  std::string_view text;  // of static_text
  int64_t batch = 1, q_len = 0, kv_len = 0;
  std::span<const int32_t> window_bounds;
  ListArrays forward, transposed;
  std::vector<FactArray> facts;  // in the order of the text
};

// The names of a batch's facts, in the order of its arrays.
std::vector<std::string> fact_names(const Facts& facts);

// The arrays that a batch becomes, in the order of a call. Entries are filled
// up to so many steps; none: lists are left empty.
struct NamedInts {
  std::string name;  // "forward.entries", "doc_ids"
  std::vector<int32_t> values;
};
Result<std::vector<NamedInts>> batch_arrays(const Batch& batch,
                                            std::optional<int64_t> steps);

// What they are of any batch of the request with such facts.
struct NamedSize {
  std::string name;
  int64_t size = 0;
};
std::vector<NamedSize> batch_array_sizes(const Request& request,
                                         const Facts& present,
                                         std::optional<int64_t> steps);

Result<std::shared_ptr<const CpuWork>> ready_work(const BatchArrays& given);

}  // namespace tessera::cpu
