// tests/fuzz/mesh_fuzz.cc: any text is either a mesh that is written as it was
// read, or gives an error of one line.
#include "tessera/shard.h"
#include "tests/fuzz/must.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Mesh> mesh = parse_mesh(text);
  if (!mesh) {
    must(mesh.error().message.starts_with("[mesh] "));
    must(mesh.error().message.find_first_of("\r\n") == std::string::npos);
    return 0;
  }
  must(mesh->devices() >= 1 && mesh->devices() <= kMaxMeshDevices);
  const Result<Mesh> again = parse_mesh(to_string(*mesh));
  must(again.ok() && *again == *mesh);
  return 0;
}
