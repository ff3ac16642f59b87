// data/fill_row.h: the parts of documents that lie in a row become its columns.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tessera/documents.h"

namespace tessera::data {

class RowFiller {
 public:
  explicit RowFiller(ChunkRoom room) : room_(room) {}

  // Into row r, which is padding alone. Documents are numbered as in the parts.
  Result<void> fill(const Documents& documents,
                    std::span<const DocumentPart> parts, Rows& rows, int64_t r);

  ChunkAccount account;

 private:
  struct Place;
  void tokens(const Place& at);
  Result<void> chunks(const Place& at);
  Result<void> edges(const Place& at, size_t kind);

  ChunkRoom room_;
  std::vector<int32_t>
      number_;  // of a document's chunks in the row, or why not
};

}  // namespace tessera::data
