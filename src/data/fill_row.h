// data/fill_row.h: the parts of documents that lie in a row become its columns.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/documents.h"

namespace tessera::data {

class RowFiller {
 public:
  // What errors call a document.
  using PlaceOf = std::function<std::string(int64_t document)>;
  RowFiller(ChunkRoom room, PlaceOf place)
      : room_(room), place_(std::move(place)) {}

  // The next rows are of these documents, which must stay, cut into these
  // parts.
  void start(const Documents& documents, std::span<const DocumentPart> parts);
  // All of row r, whatever it holds. Documents are numbered as in the parts.
  Result<void> fill(std::span<const DocumentPart> parts, Rows& rows, int64_t r);

  ChunkAccount account;

 private:
  struct Place;
  void sort_by_token(int64_t document);
  bool is_kept(int64_t document, int32_t token) const;
  void tokens(const Place& at);
  Result<void> chunks(const Place& at);
  Result<void> edges(const Place& at, size_t kind);

  ChunkRoom room_;
  PlaceOf place_;
  const Documents* documents_ = nullptr;
  // Of each document that is cut, its chunks and edges by the token where they
  // lie: a part finds its own and reads no others.
  std::vector<int32_t> chunk_order_;
  std::array<std::vector<int32_t>, 2> edge_order_;
  // Of each document that is cut, the tokens [begin, end) that lie in rows.
  std::vector<std::pair<int32_t, int32_t>> kept_;
  std::vector<int32_t>
      number_;  // of each chunk in its row, or that it has none
};

}  // namespace tessera::data
