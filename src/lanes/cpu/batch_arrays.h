// lanes/cpu/batch_arrays.h: a batch as plain arrays, as the programs of JAX and
// of PJRT plugins pass it to our kernels at run time.
//
// The arrays are not trusted: before any work, the lists are compared with the
// plan that the facts give. Work prepared for equal arrays (compared by value)
// is kept and reused, so a batch is planned once and not once a layer.
//
// Picks that the program itself makes, as a router does, come without lists:
// row starts and entries are empty, and the call plans.
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

// The static part of a batch as text; a program is compiled for it. Only which
// facts are present is read, and the meaning of picks.
//   tile 256 256; facts doc_ids q_offset; meaning exact 0;
//   mask causal & window(1024, 0) & documents; names documents; ...
// The text has the classes of window bounds; the exact bounds are an array.
std::string static_text(const Request& request, const Facts& facts);

// A parsed static text: a request without its sizes. `window_bounds` are the
// exact bounds; if there are none, the classes stay in their place.
struct StaticTerms {
  Request request;
  std::vector<std::string> facts;
  RouteMeaning meaning = RouteMeaning::exact;
  int64_t query_tile = 0;
};
Result<StaticTerms> read_static_text(
    std::string_view text, std::span<const int32_t> window_bounds = {});

// The worklist of one direction. The entries are padded to the capacity.
struct ListArrays {
  std::span<const int32_t> row_start;
  std::span<const uint32_t> entries;
};

struct FactArray {
  std::span<const int32_t> values;
  std::vector<int64_t> shape;
};

struct BatchArrays {
  std::string_view text;  // from static_text()
  int64_t batch = 1, q_len = 0, kv_len = 0;
  std::span<const int32_t> window_bounds;
  ListArrays forward, transposed;
  std::vector<FactArray> facts;  // in the order of the text
};

// The names of a batch's facts, in the order of its arrays.
std::vector<std::string> fact_names(const Facts& facts);

// The arrays of a batch, in the order of a call. Entries are padded to `steps`;
// nullopt: the lists are left empty.
struct NamedInts {
  std::string name;  // "forward.entries", "doc_ids"
  std::vector<int32_t> values;
};
Result<std::vector<NamedInts>> batch_arrays(const Batch& batch,
                                            std::optional<int64_t> steps);

// The sizes of batch_arrays() for any batch of the request with the same facts.
struct NamedSize {
  std::string name;
  int64_t size = 0;
};
std::vector<NamedSize> batch_array_sizes(const Request& request,
                                         const Facts& present,
                                         std::optional<int64_t> steps);

// Work for the arrays: kept from an earlier call, or checked and prepared now.
Result<std::shared_ptr<const CpuWork>> ready_work(const BatchArrays& given);

}  // namespace tessera::cpu
