// data/fill_row.h: fills the columns of a row from parts of documents.
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
  // How errors name a document.
  using PlaceOf = std::function<std::string(int64_t document)>;
  RowFiller(ChunkRoom room, PlaceOf place)
      : room_(room), place_(std::move(place)) {}

  // Sets the documents of the next rows, and the parts they are cut into. The
  // documents must outlive those rows.
  void start(const Documents& documents, std::span<const DocumentPart> parts);
  // Overwrites all of row r. Documents are numbered as in the parts.
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
  // For each document that is cut: its chunks and edges, sorted by their token,
  // so that a part reads only its own.
  std::vector<int32_t> chunk_order_;
  std::array<std::vector<int32_t>, 2> edge_order_;
  // For each document that is cut: the tokens [begin, end) that lie in rows.
  std::vector<std::pair<int32_t, int32_t>> kept_;
  std::vector<int32_t> number_;  // each chunk's number in its row, or -1
};

}  // namespace tessera::data
