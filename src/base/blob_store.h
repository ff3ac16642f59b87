// base/blob_store.h: a folder of immutable blobs under string keys, which any
// number of processes share.
//
// A blob is written to a temporary file and renamed. Its file holds the key,
// the sizes and a digest of all of it; a file that is truncated, damaged,
// foreign or under a wrong name counts as absent and is removed. Readers take
// no lock: a file that they hold open may be replaced or removed. Every failure
// is a warning, never an error: the caller goes on without the store.
//
// Blobs may be code that is executed, so the folder must belong to the user and
// nobody else may write to it. Folders that the store makes have mode 0700.
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
  // The constructor touches no file. `max_bytes` bounds the files of all
  // processes together; the least recently used are removed first.
  BlobStore(std::string folder, int64_t max_bytes)
      : folder_(std::move(folder)), max_bytes_(max_bytes) {}

  // The blob, or nothing. A blob that is returned counts as used now.
  std::optional<std::string> get(std::string_view key,
                                 Warnings& warnings) const;

  // Makes the folder if it is missing. Returns whether the blob is stored.
  bool put(std::string_view key, std::string_view bytes,
           Warnings& warnings) const;

  void remove(std::string_view key, Warnings& warnings) const;

  // The path of a key's blob, which need not exist.
  std::string path_of(std::string_view key) const;

  const std::string& folder() const { return folder_; }

  // Bytes of a blob's file beyond the blob itself.
  static int64_t overhead(std::string_view key);

 private:
  // Removes blobs beyond max_bytes and unfinished files of dead processes.
  void tidy(int folder, Warnings& warnings) const;

  std::string folder_;
  int64_t max_bytes_;
};

}  // namespace tessera
