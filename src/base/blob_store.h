// base/blob_store.h: a folder of immutable blobs under string keys, which any
// number of processes share.
//
// A blob is written aside and renamed, and its file holds the key, the sizes
// and a digest of all: one that is cut short, damaged, foreign or under another
// name is not there, and is removed. No lock is taken: readers hold a file open
// that others may replace or remove. Any trouble is a warning, never an error:
// the caller goes on without the store.
//
// What is kept may be code that is executed. So the folder must be the user's
// own and no one else may write to it; those that are made have mode 0700.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

using Warnings = std::vector<std::string>;

class BlobStore {
 public:
  // Nothing is looked at or made yet. `max_bytes` bounds all files of the
  // store, whoever wrote them; those used least recently go first.
  BlobStore(std::string folder, int64_t max_bytes)
      : folder_(std::move(folder)), max_bytes_(max_bytes) {}

  // The blob, which counts as used now, or nothing.
  std::optional<std::string> get(std::string_view key,
                                 Warnings& warnings) const;

  // Makes the folder where it is missing. Whether the blob is there now.
  bool put(std::string_view key, std::string_view bytes,
           Warnings& warnings) const;

  void remove(std::string_view key, Warnings& warnings) const;

  // Where a key's blob is, or would be.
  std::string path_of(std::string_view key) const;

  const std::string& folder() const { return folder_; }

  // Bytes that a blob's file has beside the blob.
  static int64_t overhead(std::string_view key);

 private:
  // Holds the bound, and removes what dead processes left half written.
  void tidy(int folder, Warnings& warnings) const;

  std::string folder_;
  int64_t max_bytes_;
};

}  // namespace tessera
