// tests/fuzz/bridge_fuzz.cc: any bytes as a file of shapes, and as a module
// whose inputs are read: a usable result or an error, never a crash.
#include "lanes/jax_bridge/attention.h"
#include "lanes/jax_bridge/splash.h"
#include "pjrt/input_types.h"
#include "tests/fuzz/must.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)pjrt::input_types(text, false);
  (void)pjrt::input_types(text, true);
  const auto spec = parse_bridge_spec(text);
  if (!spec) {
    must(spec.error().message.starts_with("["));
    return 0;
  }
  must(!spec->name.empty());
  for (const int64_t kept : spec->kept_inputs) {
    must(kept >= 0 && kept < static_cast<int64_t>(spec->inputs.size()));
  }
  if (spec->splash) must(bridge::splash_of(*spec).ok());
  if (!spec->attention) return 0;
  must(find_role(*spec, "q") && find_role(*spec, "out"));
  const std::vector<const void*> inputs(spec->inputs.size());
  const std::vector<void*> outputs(spec->outputs.size());
  must(bridge::declared_attention(*spec, inputs, outputs).ok());
  return 0;
}
