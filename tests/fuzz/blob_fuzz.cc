// tests/fuzz/blob_fuzz.cc: any bytes under an entry's name are either an entry
// that is the same when its blob is written again, or a miss with a warning.
#include <cstdlib>
#include <filesystem>

#include "base/blob_store.h"
#include "base/files.h"
#include "tests/fuzz/must.h"

using namespace tessera;

namespace {

constexpr const char* kKey = "key";
constexpr int64_t kMaxBytes = 1 << 20;

// A temporary folder, removed when the fuzzer ends.
struct Folder {
  std::string path =
      (std::filesystem::temp_directory_path() / "tessera-fuzz-XXXXXX").string();
  Folder() { must(mkdtemp(path.data()) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder folder;
  const BlobStore store(folder.path, kMaxBytes);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string path = store.path_of(kKey);
  Warnings warnings;
  must(store.put(kKey, "", warnings));  // makes a file with the right mode
  must(write_file(path, bytes).ok());
  const auto blob = store.get(kKey, warnings);
  if (!blob) {
    must(warnings.size() == 1 && warnings[0].starts_with("[cache] "));
    must(!std::filesystem::exists(path));
    return 0;
  }
  must(warnings.empty());
  must(store.put(kKey, *blob, warnings) && warnings.empty());
  must(*read_file(path, kMaxBytes) == bytes);
  return 0;
}
