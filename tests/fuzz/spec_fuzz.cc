// tests/fuzz/spec_fuzz.cc: any bytes either are a request's spec or give an
// error that is one line.
#include "cli/spec.h"
#include "tests/fuzz/must.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<cli::RequestOptions> options = cli::parse_spec(text);
  if (options) {
    must(*cli::parse_spec(text) == *options);
  } else {
    must(options.error().message.starts_with("[spec] "));
    must(options.error().message.find('\n') == std::string::npos);
  }
  return 0;
}
