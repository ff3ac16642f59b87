// tests/fuzz/plan_file_fuzz.cc: any bytes are either a plan file whose request
// and facts give the same plan, with the same bytes when written again, or an
// error.
//
// An input that starts with 's' is a header's JSON, a new line and sections.
// Lengths, canonical form and checksum are added, so that mutations pass those
// checks. Any other input is the file itself.
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "plan/make_plan.h"
#include "tessera/batch.h"
#include "tests/fuzz/must.h"

using namespace tessera;

namespace {

std::string sealed(std::string_view input) {
  const size_t line = std::min(input.find('\n'), input.size());
  std::string header(input.substr(0, line));
  const auto json = nlohmann::json::parse(header, nullptr, false);
  // The printer is recursive, so a long header stays text; the reader would
  // refuse its depth.
  if (!json.is_discarded() && header.size() < 4096) header = json.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string out("TESSERA\0plan", 12);
  append(out, kPlanFileVersion);
  append(out, uint64_t{0});
  append(out, uint64_t{header.size()});
  out += header;
  out += input.substr(std::min(line + 1, input.size()));
  const uint64_t length = out.size() + 16;
  std::memcpy(out.data() + 16, &length, 8);
  XXH128_canonical_t digest;
  XXH128_canonicalFromHash(&digest, XXH3_128bits(out.data(), out.size()));
  append(out, digest);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.starts_with("s")) bytes = sealed(std::string_view(bytes).substr(1));
  const DecodeLimits limits{1 << 20, 1 << 16, 1 << 14, 1 << 16};
  const Result<OwnedBatch> file = decode_plan(bytes, limits);
  if (!file) {
    must(file.error().message.starts_with("[plan file] "));
    return 0;
  }
  const Facts facts = file->facts();
  const Result<Plan> plan = plan::make_plan(file->request(), facts);
  must(plan.ok() && *plan == file->plan());
  const Result<std::string> again = encode_plan(*file);
  must(again.ok() && *again == bytes);
  return 0;
}
