// tests/fuzz/gate_fuzz.cc: any text is a gate's table, a machine, or an error.
#include "cli/choose/machine_file.h"
#include "tessera/dispatch.h"
#include "tests/fuzz/must.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<GateTable> table = parse_gate(text);
  if (table) {
    const Result<GateTable> again = parse_gate(gate_json(*table));
    must(again.ok() && gate_json(*again) == gate_json(*table));
  } else {
    must(table.error().message.starts_with("["));
    must(table.error().message.find_first_of("\r\n") == std::string::npos);
  }
  const Result<Machine> machine = cli::parse_machine(text);
  if (machine) must(!machine->key().empty());
  return 0;
}
