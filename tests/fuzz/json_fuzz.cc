// tests/fuzz/json_fuzz.cc: any bytes are either JSON that is the same when
// written and read again, or give an error.
#include "base/json_read.h"
#include "tests/fuzz/must.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = parse_json(text, "spec");
  if (!parsed) {
    must(parsed.error().message.starts_with("[spec] "));
    return 0;
  }
  const Json& value = **parsed;
  const auto again = parse_json(value.dump(), "spec");
  must(again.ok() && **again == value);
  must(!describe(value).empty());
  return 0;
}
