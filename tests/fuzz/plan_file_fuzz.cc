// tests/fuzz/plan_file_fuzz.cc: any bytes either are a plan file that survives
// being written again, or give an error. Each input is tried as it is, then
// with its length and checksum put right, so that the rest gets read.
#include <cstring>

#include "tessera/plan_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/fuzz/must.h"

using namespace tessera;

namespace {

constexpr size_t kLengthAt = 16;
constexpr size_t kDigestBytes = 16;

void try_to_read(const std::string& bytes) {
  const DecodeLimits limits{1 << 20, 1 << 16, 1 << 16};
  const Result<PlanFile> file = decode_plan(bytes, limits);
  if (!file) {
    must(file.error().message.starts_with("["));
    return;
  }
  const Result<std::string> written =
      encode_plan(file->request, file->facts.view(), file->plan);
  must(written.ok());
  const Result<PlanFile> again = decode_plan(*written, limits);
  must(again.ok() && *again == *file);
}

void put_right(std::string& bytes) {
  const uint64_t length = bytes.size();
  std::memcpy(bytes.data() + kLengthAt, &length, sizeof length);
  const size_t body = bytes.size() - kDigestBytes;
  XXH128_canonical_t digest;
  XXH128_canonicalFromHash(&digest, XXH3_128bits(bytes.data(), body));
  std::memcpy(bytes.data() + body, digest.digest, kDigestBytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  try_to_read(bytes);
  if (size < kLengthAt + sizeof(uint64_t) + kDigestBytes) return 0;
  put_right(bytes);
  try_to_read(bytes);
  return 0;
}
