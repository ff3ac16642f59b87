// tests/fuzz/npy_fuzz.cc: any bytes are either an .npy file of ids that is the
// same when written again, or give an error.
#include "base/npy.h"
#include "tests/fuzz/must.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result<NpyInts> array = parse_npy(bytes);
  if (!array) {
    must(array.error().message.starts_with("["));
    return 0;
  }
  const Result<std::string> written = write_npy(array->shape, array->values);
  must(written.ok());
  const Result<NpyInts> again = parse_npy(*written);
  must(again.ok() && *again == *array);
  return 0;
}
