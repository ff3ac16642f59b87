// tests/temp_folder.h: a temporary folder, removed by the destructor.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tessera::testing {

class TempFolder {
 public:
  TempFolder() {
    std::string name = ::testing::TempDir() + "tessera-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << name;
    path_ = name;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace tessera::testing
