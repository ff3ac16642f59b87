// data/row_folder.h: a folder of rows, whose files are there when all are.
// Until then they lie aside in it, under a lock.
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

// Within what lies aside: what is finished (data/pack_journal.h).
inline constexpr const char* kJournal = "journal";

// What the files may be. Others than the first need the component
// tessera_arrow.so.
inline constexpr std::string_view kRowFormats[] = {"safetensors", "parquet",
                                                   "arrow"};
Result<void> check_row_format(std::string_view format);

class RowFolder {
 public:
  // Made where it is not, and this run's alone as long as this lives. What a
  // run that was killed left is as it was. The format is one of kRowFormats.
  static Result<std::unique_ptr<RowFolder>> open(const std::string& path,
                                                 std::string format);

  // What lies aside under a name: a file of rows, or another.
  std::filesystem::path aside(const std::string& name) const;
  std::string name_of(int64_t file) const;  // "rows-00000.safetensors"
  // Of a file of any format.
  static bool is_name(std::string_view name);

  // Files that a run was putting in their place, which are the first ones of
  // its format, at most so many, lie aside again; of all formats where nobody
  // knows which it was. There must be nothing else in the folder.
  Result<void> take_back(int64_t most,
                         std::span<const std::string_view> formats);
  // Of what lies aside only these files of rows stay, and their journal. What
  // no run makes is refused, and nothing taken away.
  Result<void> keep(int64_t files);
  // All files of rows to their place; where one cannot, all stay aside.
  Result<void> finish(int64_t files);
  // Nothing lies aside any more.
  void clear();

 private:
  RowFolder(const std::string& path, std::string format, int lock);

  std::filesystem::path folder_, aside_;
  std::string format_;
  Descriptor lock_;
};

}  // namespace tessera::data
