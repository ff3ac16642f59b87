// bench/harness/temp_folder.h: a folder for files that are passed to other
// programs. The destructor removes it.
#pragma once

#include <string>

#include "tessera/result.h"

namespace tessera::bench {

class TempFolder {
 public:
  TempFolder() = default;
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder();

  Result<void> make();
  std::string file(const std::string& name) const;

 private:
  std::string path_;
};

}  // namespace tessera::bench
