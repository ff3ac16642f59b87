// tests/fuzz/spec_fuzz.cc: any text is either a spec that means the same when
// written again, or gives an error.
#include "request/spec.h"
#include "tests/fuzz/must.h"

using namespace tessera;
using namespace tessera::request;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<receipt::RequestText> given = parse_spec(text);
  if (!given) {
    must(given.error().message.starts_with("[spec] "));
    must(given.error().message.find_first_of("\r\n") == std::string::npos);
    return 0;
  }
  const Result<receipt::RequestText> again =
      parse_spec(receipt::request_json(*given).dump());
  must(again.ok() &&
       receipt::request_json(*again) == receipt::request_json(*given));
  return 0;
}
