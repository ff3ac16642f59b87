// tests/fuzz/mask_fuzz.cc: any text either parses to a mask whose canonical
// text means the same mask, or gives an error that says where.
#include "tessera/mask.h"
#include "tests/fuzz/must.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Mask> mask = parse_mask(text);
  if (!mask) {
    must(mask.error().message.starts_with("[mask] "));
    must(mask.error().message.find_first_of("\r\n") == std::string::npos);
    return 0;
  }
  const Result<Mask> again = parse_mask(to_string(*mask));
  must(again.ok());
  // A name that simplification dropped stays in `names` only.
  must(again->expr == mask->expr);
  const Result<Expr> expr = parse_expr(text);
  must(expr.ok());
  must(*make_mask(*parse_expr(to_string(*expr))) == *mask);
  return 0;
}
