// tests/fuzz/safetensors_fuzz.cc: any bytes are either a .safetensors file
// whose tensors can all be read, or give an error.
#include "base/safetensors.h"
#include "tests/fuzz/must.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result<Safetensors> file = parse_safetensors(bytes);
  if (!file) {
    must(file.error().message.starts_with("["));
    return 0;
  }
  for (const auto& [name, tensor] : file->tensors) {
    must(tensor.bytes.data() >= bytes.data() &&
         tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + size);
    const Result<std::vector<int32_t>> values = int32_values(tensor, name);
    if (values)
      must(values->size() * byte_width(tensor.dtype) == tensor.bytes.size());
  }
  const Result<std::string> written = write_safetensors(*file);
  must(written.ok());
  const Result<Safetensors> again = parse_safetensors(*written);
  must(again.ok() && again->metadata == file->metadata &&
       again->tensors.size() == file->tensors.size());
  return 0;
}
