// request/document_numbers.h: numbers of a row that tell its documents:
// lengths, boundaries or positions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/facts.h"
#include "tessera/result.h"

namespace tessera::request {

using Ids = std::vector<int32_t>;

// What the numbers of a row are.
struct DocumentNumbers {
  std::string_view prefix;  // of a source
  std::string_view all, one;
  int64_t least;
  Result<Ids> (*ids)(Ints numbers, std::string_view what, int64_t length);
};
extern const DocumentNumbers kLengths, kBoundaries, kPositions;

// A row that serves every batch row.
Result<Ids> repeat(Result<Ids> row, int64_t batch);

// Of a file's array, [n], for every batch row, or [batch, n].
Result<Ids> read_npy_numbers(const std::string& path, std::string_view bytes,
                             const DocumentNumbers& numbers, int64_t batch,
                             int64_t length);
// Numbers, any number a line; a blank line ends a batch row.
Result<Ids> read_text_numbers(const std::string& path, std::string_view text,
                              const DocumentNumbers& numbers, int64_t batch,
                              int64_t length);

}  // namespace tessera::request
