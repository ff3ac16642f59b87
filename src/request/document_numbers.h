// request/document_numbers.h: document ids from the numbers of a row: lengths,
// boundaries or positions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/facts.h"
#include "tessera/result.h"

namespace tessera::request {

using Ids = std::vector<int32_t>;

// One kind of such numbers: its names, its least value and its conversion.
struct DocumentNumbers {
  std::string_view prefix;    // of a source: "lengths:"
  std::string_view all, one;  // plural and singular, for errors
  int64_t least;
  Result<Ids> (*ids)(Ints numbers, std::string_view what, int64_t length);
};
extern const DocumentNumbers kLengths, kBoundaries, kPositions;

// Repeats one row for every batch row.
Result<Ids> repeat(Result<Ids> row, int64_t batch);

// Reads a .npy array of shape [n], for every batch row, or [batch, n].
Result<Ids> read_npy_numbers(const std::string& path, std::string_view bytes,
                             const DocumentNumbers& numbers, int64_t batch,
                             int64_t length);
// Reads text with any count of numbers per line; a blank line ends a batch row.
Result<Ids> read_text_numbers(const std::string& path, std::string_view text,
                              const DocumentNumbers& numbers, int64_t batch,
                              int64_t length);

}  // namespace tessera::request
