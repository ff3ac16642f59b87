// data/row_folder.h: a folder of rows, whose files appear only when all are
// complete. Until then they lie in a subfolder, which is locked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "tessera/data.h"

namespace tessera::data {

// In that subfolder: the list of finished files (data/pack_journal.h).
inline constexpr const char* kJournal = "journal";

// The formats of files. All but the first need the component tessera_arrow.so.
inline constexpr std::string_view kRowFormats[] = {"safetensors", "parquet",
                                                   "arrow"};
Result<void> check_row_format(std::string_view format);

class RowFolder {
 public:
  // Makes the folder if needed, and locks it while the object lives. Files of a
  // killed run are kept. The format is one of kRowFormats.
  static Result<std::unique_ptr<RowFolder>> open(const std::string& path,
                                                 std::string format);

  // The path in the subfolder of a file of rows, or of another file.
  std::filesystem::path aside(const std::string& name) const;
  std::string name_of(int64_t file) const;  // "rows-00000.safetensors"
  // Whether this is the name of a file of rows, in any format.
  static bool is_name(std::string_view name);

  // Moves back to the subfolder the files that a killed run had put in place:
  // the first ones of a format, at most `most`. All formats are given if the
  // run's is unknown. An error if anything else is in the folder.
  Result<void> take_back(int64_t most,
                         std::span<const std::string_view> formats);
  // Removes from the subfolder all but the first `files` files of rows and
  // their journal. If something in it is not from a run, nothing is removed.
  Result<void> keep(int64_t files);
  // Puts all files of rows in place; if one fails, all stay in the subfolder.
  Result<void> finish(int64_t files);
  // Removes the subfolder.
  void clear();

 private:
  RowFolder(const std::string& path, std::string format, int lock);

  std::filesystem::path folder_, aside_;
  std::string format_;
  Descriptor lock_;
};

}  // namespace tessera::data
